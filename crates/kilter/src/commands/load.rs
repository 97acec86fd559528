//! `kilter load`: the built-in load generators; one JSON object on standard output.

use crate::args::this_binary;
use crate::cli::{Audio, CoresArg, Load, Messaging, Wakeup};
use crate::fail::{Failure, Outcome};
use crate::say;
use kilter_measure::load::{
    AudioOptions, Cores, MessagingOptions, Transport, WakeupOptions, Workers,
};
use std::process::{Child, Command, Stdio};

/// Runs the command.
pub fn run(command: &Load) -> Outcome {
    match command {
        Load::Messaging(args) if args.with_parent && !stays_with_parent() => return Ok(1),
        Load::Messaging(args) => say::json(&messaging(args).run().map_err(Failure::new)?)?,
        Load::Wakeup(args) => say::json(&wakeup(args).run().map_err(Failure::new)?)?,
        Load::Voicemark(args) => say::json(&audio(args).voicemark().map_err(Failure::new)?)?,
        Load::Latencymark(args) => say::json(&audio(args).latencymark().map_err(Failure::new)?)?,
        Load::Beside { groups, command } => return beside(*groups, command),
    }
    Ok(0)
}

fn messaging(args: &Messaging) -> MessagingOptions {
    MessagingOptions {
        groups: args.groups,
        pairs: args.pairs,
        loops: args.loops,
        size: args.size,
        transport: if args.pipe {
            Transport::Pipe
        } else {
            Transport::Socket
        },
        workers: if args.threads {
            Workers::Thread
        } else {
            Workers::Process
        },
    }
}

fn wakeup(args: &Wakeup) -> WakeupOptions {
    WakeupOptions {
        message_threads: args.message_threads,
        workers: args.workers,
        runtime_s: args.runtime,
        warmup_s: args.warmup,
        sleep_us: args.sleep,
        operations: args.operations,
        cache_kib: args.cache,
        locking: !args.no_locking,
    }
}

fn audio(args: &Audio) -> AudioOptions {
    AudioOptions {
        runtime_s: args.runtime,
        warmup_s: args.warmup,
        load: args.load,
        cores: match args.cores {
            CoresArg::Any => Cores::Any,
            CoresArg::Little => Cores::Little,
            CoresArg::Big => Cores::Big,
        },
        fifo: args.fifo,
    }
}

/// Ties this process's life to its parent's; whether the parent lives.
fn stays_with_parent() -> bool {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    let tied = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    tied && getppid().is_some_and(|parent| parent != Pid::INIT)
}

/// A load that is ended with this value. Its workers are threads: when its end was seen, all are gone.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command beside the load of `messaging`, and exits with its code.
fn beside(groups: u32, command: &[String]) -> Outcome {
    // Far more loops than fit into any run.
    let load = Command::new(this_binary()?)
        .args([
            "load",
            "messaging",
            "--pipe",
            "--threads",
            "--loops",
            "10000000",
            "--with-parent",
        ])
        .args(["--groups", &groups.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let mut load = Beside(load);
    let (program, arguments) = command.split_first().expect("clap asks for a word");
    let status = Command::new(program)
        .args(arguments)
        .status()
        .map_err(|error| Failure::new(format!("{program}: {error}")))?;
    // A load that had failed would make the figure one of an idle machine.
    if let Some(ended) = load.0.try_wait()? {
        return Err(Failure::new(format!("the load ended meanwhile: {ended}")));
    }
    match status.code() {
        Some(code) => Ok(u8::try_from(code).unwrap_or(1)),
        None => Err(Failure::new(format!("{program}: {status}"))),
    }
}
