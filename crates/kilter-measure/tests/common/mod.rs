//! What the tests of real commands share.
#![allow(dead_code)]

use kilter_measure::{Captured, Job, Measured, Output, Signals, SpawnError};

pub type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Says why a test cannot tell anything here.
pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

/// A job for the shell.
pub fn sh(script: &str) -> Job {
    Job::new(["sh", "-c", script])
}

/// Runs with the signals taken, as the binary does.
pub fn with_signals<T>(body: impl FnOnce(&Signals) -> T) -> T {
    body(&Signals::take().expect("signals"))
}

/// Runs a job that can be started.
pub fn run_job(job: &Job) -> Measured {
    with_signals(|signals| kilter_measure::run(job, signals, |_| ())).expect("a started job")
}

/// As [`run_job`], with the output captured.
pub fn capture(job: &Job) -> Measured {
    run_job(&Job {
        output: Output::Capture,
        ..job.clone()
    })
}

/// A stream as text.
pub fn text(captured: &Captured) -> String {
    String::from_utf8_lossy(&captured.bytes()).into_owned()
}

/// The error of a job that cannot be started.
pub fn error_of(job: &Job) -> SpawnError {
    with_signals(|signals| kilter_measure::run(job, signals, |_| ())).expect_err("an error")
}
