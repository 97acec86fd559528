//! `kilter run` and `kilter run --batch`.

use crate::args;
use crate::cli::Run;
use crate::experiment::{OWN_FAILURE, RunSpec, Session, ended};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::{metrics, say};
use kilter_api::{BatchReply, BatchResult, MetricSource, RunRecord, RunRequest};
use kilter_knobs::Consent;
use kilter_measure::{Output, Stdin};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::Write;
use std::os::fd::AsFd;

/// The longest line of a batch, in bytes.
const MAX_LINE: usize = 1 << 20;

/// Runs the command.
pub fn run(machine: &Machine, args: &Run) -> Outcome {
    match args.batch {
        true => batch(machine, args),
        false => once(machine, args),
    }
}

fn once(machine: &Machine, args: &Run) -> Outcome {
    let command = args::command(&args.command, args.run.shell)?;
    let mut options = args::run_options(&args.run)?;
    options.metrics = metrics::plain(&args.run.metric)?;
    let mut session = Session::under(machine, &args.settings, args.run.as_root)?;
    if options.settle_s > 0.0 {
        std::thread::sleep(std::time::Duration::from_secs_f64(options.settle_s));
    }
    session.aside("preparation", &options.prepare, options.cpus.as_deref())?;
    let from_output = options
        .metrics
        .iter()
        .any(|metric| !matches!(metric.source, MetricSource::Record { .. }));
    let spec = RunSpec {
        command: &command,
        cpus: options.cpus.as_deref(),
        timeout_s: options.timeout_s,
        output: match (machine.json, from_output) {
            (true, true) => Output::Capture,
            (true, false) => Output::ToStderr,
            (false, true) => Output::Tee,
            (false, false) => Output::Inherit,
        },
        stdin: Stdin::Inherit,
        metrics: &options.metrics,
        counters: machine.json,
    };
    let ran = session
        .run(&spec)
        .map_err(|failure| failure.into_failure())?;
    if let Err(failure) = session.aside("clean-up", &options.cleanup, options.cpus.as_deref()) {
        say::warning(failure.message());
    }
    session.release()?;
    let code = exit_code(&ran.record, ran.measured.signal);
    let mut record = ran.record;
    if machine.json {
        record.fingerprint = Some(kilter_measure::fingerprint(machine.kernel.root()));
        say::json(&record)?;
    } else {
        summary(&record);
    }
    match ran.metric_problem {
        Some(problem) if code == 0 => Err(Failure::new(problem).code(OWN_FAILURE)),
        _ => Ok(code),
    }
}

fn exit_code(record: &RunRecord, signal: Option<i32>) -> u8 {
    let low = |number: i32| u8::try_from(number & 0xff).unwrap_or(OWN_FAILURE);
    match record.outcome {
        kilter_api::Outcome::Exited { code } => low(code),
        kilter_api::Outcome::Signalled { signal } => low(128 + signal),
        kilter_api::Outcome::TimedOut => 124,
        kilter_api::Outcome::Interrupted => low(128 + signal.unwrap_or(2)),
    }
}

/// What the run cost, on standard error: standard output belongs to the command.
fn summary(record: &RunRecord) {
    let settings: Vec<String> = record
        .settings
        .iter()
        .map(|(knob, value)| format!("{knob}={value}"))
        .collect();
    if !settings.is_empty() {
        say::note(say::faint(format!("with    {}", settings.join(" "))));
    }
    if !matches!(record.outcome, kilter_api::Outcome::Exited { code: 0 }) {
        say::note(say::faint(format!("ended   it {}", ended(&record.outcome))));
    }
    say::note(say::faint(format!(
        "time    {:.3} s wall, {:.3} s user, {:.3} s system",
        record.wall_s, record.user_s, record.sys_s
    )));
    say::note(say::faint(format!(
        "memory  {} MiB at most, {} minor and {} major faults",
        record.max_rss_kib.div_ceil(1024),
        record.minor_faults,
        record.major_faults
    )));
    say::note(say::faint(format!(
        "tasks   {} voluntary and {} involuntary switches",
        record.voluntary_switches, record.involuntary_switches
    )));
    for (name, value) in &record.metrics {
        say::note(say::faint(format!("metric  {name} {value}")));
    }
    record.warnings.iter().for_each(say::warning);
}

fn batch(machine: &Machine, args: &Run) -> Outcome {
    let mut session = Session::new(machine, args.run.as_root)?;
    session.consent = Consent::from(&args.settings.consent);
    // Whoever asked for the runs may be killed; its settings must not outlive it by a long run.
    session.for_reader = true;
    if machine.need_root("settings").is_ok() {
        session.take_guard()?;
        drop(machine.lock()?);
    }
    let mut lines = Lines::default();
    let mut told_machine = false;
    loop {
        let line = match lines.next(&session)? {
            Next::Line(line) => line,
            Next::End => return Ok(0),
            Next::Signal(signal) => return Ok(u8::try_from(128 + signal).unwrap_or(OWN_FAILURE)),
        };
        let request: RunRequest = serde_json::from_str(&line).map_err(|error| {
            Failure::new(format!(
                "standard input, line {}: not a run request: {error}",
                lines.number
            ))
        })?;
        if request.command.first().is_none_or(String::is_empty) {
            return Err(Failure::new(format!(
                "standard input, line {}: the command is empty",
                lines.number
            )));
        }
        let (result, signal) = match session.answer(&request) {
            Ok(ran) => {
                let mut record = ran.record;
                if !told_machine {
                    record.fingerprint = Some(kilter_measure::fingerprint(machine.kernel.root()));
                    told_machine = true;
                }
                record.warnings.extend(ran.metric_problem);
                (
                    BatchResult::Ran {
                        record: Box::new(record),
                    },
                    ran.measured.signal,
                )
            }
            Err(failure) => {
                let hint = failure.hint_text().map(str::to_owned);
                (
                    BatchResult::NotRun {
                        error: failure.message().to_owned(),
                        hint,
                    },
                    None,
                )
            }
        };
        let mut reply = serde_json::to_vec(&BatchReply {
            id: request.id,
            result,
        })?;
        reply.push(b'\n');
        let mut out = std::io::stdout().lock();
        out.write_all(&reply).and_then(|()| out.flush())?;
        if let Some(signal) = signal {
            return Ok(u8::try_from(128 + signal).unwrap_or(OWN_FAILURE));
        }
    }
}

enum Next {
    Line(String),
    End,
    Signal(i32),
}

/// Lines of standard input, waited for together with the signals.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    number: usize,
}

impl Lines {
    fn next(&mut self, session: &Session<'_>) -> Result<Next, Failure> {
        loop {
            if let Some(signal) = session.signals.next()? {
                return Ok(Next::Signal(signal));
            }
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                self.number += 1;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let line = String::from_utf8(line).map_err(|_| {
                    Failure::new(format!("standard input, line {}: not UTF-8", self.number))
                })?;
                return Ok(Next::Line(line));
            }
            if self.buffer.len() > MAX_LINE {
                return Err(Failure::new(format!(
                    "standard input, line {}: longer than 1 MiB",
                    self.number + 1
                )));
            }
            if !self.fill(session)? {
                return Ok(Next::End);
            }
        }
    }

    /// Waits for input or a signal; false at the end of the input.
    fn fill(&mut self, session: &Session<'_>) -> Result<bool, Failure> {
        let stdin = std::io::stdin();
        let signals = session.signals.as_fd();
        let mut fds = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::new(&signals, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Failure::new(std::io::Error::from(errno))),
        }
        if fds[0].revents().is_empty() {
            return Ok(true);
        }
        let mut chunk = [0; 64 * 1024];
        let count = rustix::io::read(&stdin, &mut chunk).map_err(std::io::Error::from)?;
        self.buffer.extend_from_slice(&chunk[..count]);
        Ok(count > 0)
    }
}
