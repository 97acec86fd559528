//! `kilter reclaim once`.

use crate::cli::{HintArg, ReclaimOnce as Arguments};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::say;
use kilter_api::ReclaimOnce;
use kilter_measure::Signals;
use kilter_reclaim::{Cgroup, Hint, Hints, TargetError, once};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

/// Exit code where the work was ended early: by a signal, or because the process went away.
const UNFINISHED: u8 = 1;

/// Runs the command.
pub fn run(machine: &Machine, args: &Arguments) -> Outcome {
    let signals = Signals::take()?;
    let request = once::Request {
        hints: hints(args),
        call_bytes: args.call_kib.map(|kib| kib as usize * 1024),
        workers: args.workers as usize,
    };
    let cancelled = || is_readable(&signals);
    let kernel = &machine.kernel;
    let done = match args.target.parse::<i32>() {
        Ok(pid) => once::process(kernel, pid, request, &cancelled),
        Err(_) => {
            let group = Cgroup::find(kernel, &args.target).map_err(Failure::new)?;
            once::cgroup(kernel, &group, request, &cancelled)
        }
    };
    // Taken, or it would end this process once it is let through again.
    while signals.next()?.is_some() {}
    let done = done.map_err(failure)?;
    tell(machine, &done)?;
    Ok(match done.ended.as_str() {
        "whole" => 0,
        "refused" => 2,
        _ => UNFINISHED,
    })
}

fn is_readable(signals: &Signals) -> bool {
    let mut fds = [PollFd::new(signals, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn failure(error: TargetError) -> Failure {
    let hint = match error {
        TargetError::NotPermitted(_) if !kilter_kernel::is_root() => {
            Some(format!("sudo {}", crate::machine::command_line()))
        }
        _ => None,
    };
    match hint {
        Some(hint) => Failure::new(error).hint(hint),
        None => Failure::new(error),
    }
}

fn hints(args: &Arguments) -> Hints {
    let hint = |arg: HintArg| match arg {
        HintArg::Cold => Hint::Cold,
        HintArg::Pageout => Hint::PageOut,
    };
    let usual = if args.cold { Hint::Cold } else { Hint::PageOut };
    let of = |given: Option<Option<HintArg>>| match given {
        Some(own) => own.map_or(usual, hint),
        None => Hint::Leave,
    };
    match (args.anon, args.file) {
        (None, None) => Hints::all(usual),
        (anon, file) => Hints {
            anon: of(anon),
            file: of(file),
        },
    }
}

fn tell(machine: &Machine, done: &ReclaimOnce) -> Result<(), Failure> {
    if machine.json {
        say::json(done)?;
        return Ok(());
    }
    let what = match (&done.pid, &done.cgroup) {
        (Some(pid), _) => format!("{} (process {pid})", done.name),
        (None, Some(group)) => {
            format!("cgroup {group} ({})", say::count(done.processes, "process"))
        }
        (None, None) => done.name.clone(),
    };
    say::line(format!(
        "{what}, anonymous memory: {}, files: {}",
        done.anon, done.file
    ));
    let (before, after) = (done.before, done.after);
    let rows = [
        ["", "before", "after"].map(say::bold).to_vec(),
        row("resident", before.resident_bytes, after.resident_bytes),
        row("of it not of files", before.anon_bytes, after.anon_bytes),
        row("in swap", before.swapped_bytes, after.swapped_bytes),
    ];
    say::table(&rows);
    let grown = [
        ("zram", done.zram_grew_bytes.unwrap_or(0)),
        ("the swap cache", done.swap_cache_grew_bytes),
    ];
    let grew: String = grown
        .iter()
        .filter(|(_, bytes)| *bytes != 0)
        .map(|(what, bytes)| format!(", {what} grew by {}", signed(*bytes)))
        .collect();
    say::line(format!(
        "reclaimed {}{grew}, so the gain is {}",
        size(done.reclaimed_bytes),
        signed(done.gained_bytes)
    ));
    say::line(format!(
        "{:.3} s ({:.3} s CPU), {} over {} ({}) by {}, of at most {}; ranges from {} in {:.1} ms",
        done.seconds,
        done.cpu_s,
        say::count(done.calls as usize, "call"),
        size(done.walked_bytes),
        say::count(done.mappings, "mapping"),
        done.method,
        size(done.call_bytes),
        done.scan,
        done.scan_s * 1e3,
    ));
    for skip in &done.skipped {
        let (ranges, bytes) = (say::count(skip.ranges as usize, "range"), size(skip.bytes));
        say::line(say::faint(format!(
            "left out: {ranges}, {bytes}: {}",
            skip.reason
        )));
    }
    if done.ended != "whole" {
        let why = match done.ended.as_str() {
            "cancelled" => "a signal ended it before the end",
            "died" => "the process ended meanwhile",
            "executed" => {
                "the process executes another program now, and was left alone from then on"
            }
            _ => "the kernel refused",
        };
        say::warning(why);
    }
    for warning in &done.warnings {
        say::warning(warning);
    }
    Ok(())
}

fn row(name: &str, before: u64, after: u64) -> Vec<String> {
    vec![name.to_owned(), size(before), size(after)]
}

/// Bytes for a person.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..10_737_418_240 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", size(bytes.unsigned_abs()))
}
