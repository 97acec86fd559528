//! `kilter load`.

use clap::{Args, Subcommand, ValueEnum};

/// `kilter load`.
#[derive(Debug, Subcommand)]
pub enum Load {
    /// Groups of senders and receivers over pipes or sockets (hackbench's pattern)
    Messaging(Messaging),
    /// Message threads wake workers (schbench's pattern)
    Wakeup(Wakeup),
    /// How many voices of a synthesizer a CPU sustains (SynthMark's pattern)
    Voicemark(Audio),
    /// The smallest audio buffer that plays without a gap (SynthMark's pattern)
    Latencymark(Audio),
    /// Run a command while the load of `messaging` runs beside it
    Beside {
        /// Groups of the load
        #[arg(short, long, default_value_t = 2)]
        groups: u32,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// `kilter load voicemark` and `latencymark`.
#[derive(Debug, Args)]
pub struct Audio {
    /// Seconds of measurement
    #[arg(short, long, value_name = "SECONDS", default_value_t = 3.0)]
    pub runtime: f64,
    /// Seconds before it that do not count
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    pub warmup: f64,
    /// Share of a CPU's time that the voices take
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    pub load: f64,
    /// On which cores
    #[arg(long, value_enum, default_value_t = CoresArg::Any)]
    pub cores: CoresArg,
    /// Priority under SCHED_FIFO; by default an ordinary thread
    #[arg(long, value_name = "PRIORITY")]
    pub fifo: Option<u32>,
}

/// Kinds of cores by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CoresArg {
    /// Wherever the kernel puts it
    Any,
    /// Those with the least capacity
    Little,
    /// Those with the most capacity
    Big,
}

/// `kilter load messaging`.
#[derive(Debug, Args)]
pub struct Messaging {
    /// Groups
    #[arg(short, long, default_value_t = 10)]
    pub groups: u32,
    /// Senders, and as many receivers, in a group
    #[arg(short, long, default_value_t = 20)]
    pub pairs: u32,
    /// Messages from each sender to each receiver of its group
    #[arg(short, long, default_value_t = 100)]
    pub loops: u32,
    /// Bytes of a message
    #[arg(short, long, default_value_t = 100)]
    pub size: u32,
    /// Pipes instead of socket pairs
    #[arg(long)]
    pub pipe: bool,
    /// Threads instead of processes
    #[arg(long)]
    pub threads: bool,
    /// End when the parent does
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

/// `kilter load wakeup`.
#[derive(Debug, Args)]
pub struct Wakeup {
    /// Message threads
    #[arg(short, long, default_value_t = 1)]
    pub message_threads: u32,
    /// Workers of a message thread; by default as many as there are CPUs
    #[arg(short, long)]
    pub workers: Option<u32>,
    /// Seconds of measurement
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10.0)]
    pub runtime: f64,
    /// Seconds before it that do not count
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub warmup: f64,
    /// Microseconds that a request sleeps first
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 100)]
    pub sleep: u32,
    /// Matrix multiplications in a request
    #[arg(long, default_value_t = 5)]
    pub operations: u32,
    /// KiB that the matrices of a worker take
    #[arg(long, value_name = "KIB", default_value_t = 256)]
    pub cache: u32,
    /// Do not multiply under a lock per CPU
    #[arg(long)]
    pub no_locking: bool,
}
