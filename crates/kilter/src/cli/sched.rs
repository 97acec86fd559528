//! Flags of `kilter sched` and of `scx_hrrn`.

use clap::{Args, Parser, Subcommand, ValueEnum};

/// `kilter sched`.
#[derive(Debug, Subcommand)]
pub enum Sched {
    /// Put the machine under a scheduler until it is ended (Ctrl-C)
    #[command(version)]
    Run {
        /// The scheduler
        scheduler: SchedulerName,
        #[command(flatten)]
        hrrn: Hrrn,
    },
    /// Show which scheduler is loaded, its parameters and its counters
    Status,
    /// Change a parameter of the running scheduler
    Set {
        /// The scheduler
        scheduler: SchedulerName,
        /// Parameters with their values: `max_lifetime_ms=60000`
        #[arg(required = true, value_name = "PARAMETER=VALUE")]
        values: Vec<String>,
    },
    /// Watch the running scheduler
    Top {
        /// Seconds from one picture to the next
        #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
        interval: f64,
    },
}

/// Schedulers that kilter brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchedulerName {
    /// Highest Response Ratio Next
    Hrrn,
}

/// The scheduler under the name that users of sched_ext expect.
#[derive(Debug, Parser)]
#[command(
    name = "scx_hrrn",
    version,
    about = "Put the machine under Highest Response Ratio Next until it is ended (Ctrl-C)",
    max_term_width = 100
)]
pub struct ScxHrrn {
    #[command(flatten)]
    pub hrrn: Hrrn,
}

/// How the HRRN scheduler is started.
#[derive(Debug, Args)]
pub struct Hrrn {
    /// The seed's policy exactly, or with the departures below
    #[arg(long, value_enum, default_value_t = Policy::Kilter)]
    pub policy: Policy,
    /// Compare response ratios as the seed does, or without rounding
    #[arg(long, value_enum, default_value_t = CompareBy::Seed)]
    pub compare: CompareBy,
    /// Share the CPU between users first, then between the tasks of each
    #[arg(long)]
    pub per_uid: bool,
    /// Departure: do not reset waiting tasks, only running ones at the tick
    #[arg(long)]
    pub no_reset_at_pick: bool,
    /// Departure: treat SCHED_BATCH and SCHED_IDLE as SCHED_OTHER
    #[arg(long)]
    pub no_classes: bool,
    /// Departure: let woken kernel threads wait like other tasks
    #[arg(long)]
    pub no_kthreads: bool,
    /// Departure: start new tasks on their parent's CPU, not on the one with the shortest queue
    #[arg(long)]
    pub no_spread: bool,
    #[command(flatten)]
    pub params: HrrnParams,
    /// Let the kernel end the scheduler when a task has waited this long, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1_000..=30_000))]
    pub timeout_ms: u32,
    /// Print counters every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub stats: Option<f64>,
    /// Start nothing; print the counters of the scheduler that runs
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = interval)]
    pub monitor: Option<f64>,
    /// Print what was found out about this kernel, and the whole dump of an ejection
    #[arg(short, long)]
    pub verbose: bool,
    /// Do something wrong, until the kernel ends it (for tests)
    #[arg(long, hide = true, value_enum)]
    pub fault: Option<FaultOf>,
}

/// First values of the parameters; `kilter sched set` changes them later.
#[derive(Debug, Args)]
#[command(next_help_heading = "Parameters")]
pub struct HrrnParams {
    /// How long age and CPU time of a task count before both begin anew [default: 10000]
    #[arg(long, value_name = "MS")]
    pub max_lifetime_ms: Option<i64>,
    /// How much later than its creation a new task's claim begins [default: 0]
    #[arg(long, value_name = "US", allow_negative_numbers = true)]
    pub latency_us: Option<i64>,
    /// Percent of the running task's R that a woken task needs to preempt it before its slice is
    /// over; 0: never preempt by waking [default: 200; of the seed: 100]
    #[arg(long, value_name = "PERCENT")]
    pub wakeup_threshold: Option<i64>,
    /// A task that has waited longer comes first; 0: no cap [default: 500; of the seed: 0]
    #[arg(long, value_name = "MS")]
    pub max_wait_ms: Option<i64>,
    /// No tick preempts a task that has run for less, and afterwards a woken one needs only a
    /// higher R; 0: no slice [default: 1000; of the seed: 0]
    #[arg(long, value_name = "US")]
    pub slice_us: Option<i64>,
}

/// Which policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// As described by its author
    Seed,
    /// With the departures that make it fit for every machine
    Kilter,
}

/// How response ratios are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareBy {
    /// Quotients, then remainders
    Seed,
    /// Without rounding
    Exact,
}

/// What the scheduler does wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FaultOf {
    /// It picks nothing
    Stall,
    /// It puts a task into a queue that does not exist
    Queue,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.1 to 86400".to_owned()),
    }
}
