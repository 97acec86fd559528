//! `kilter load`: the built-in load generators; one JSON object on standard output.

use crate::cli::{Load, Messaging, Wakeup};
use crate::fail::{Failure, Outcome};
use crate::say;
use kilter_measure::load::{MessagingOptions, Transport, WakeupOptions, Workers};

/// Runs the command.
pub fn run(command: &Load) -> Outcome {
    match command {
        Load::Messaging(args) => say::json(&messaging(args).run().map_err(Failure::new)?)?,
        Load::Wakeup(args) => say::json(&wakeup(args).run().map_err(Failure::new)?)?,
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
