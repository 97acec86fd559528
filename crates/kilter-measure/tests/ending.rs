//! Timeouts and signals end the whole process group, gently first.

mod common;

use common::{capture, run_job, sh, text, with_signals};
use kilter_api::Outcome;
use kilter_measure::{Job, Measured, Output, Warning};
use std::path::Path;
use std::time::{Duration, Instant};

/// Three generations, each of which ignores `SIGTERM`; the ids of all go to standard output.
const STUBBORN: &str = "trap '' TERM; echo $$; \
    sh -c 'trap \"\" TERM; echo $$; sh -c \"trap \\\"\\\" TERM; echo \\$\\$; sleep 300; sleep 300\"; sleep 300' & \
    while :; do sleep 300; done";

fn with_timeout(mut job: Job, millis: u64) -> Job {
    job.timeout = Some(Duration::from_millis(millis));
    job.grace = Duration::from_millis(200);
    job
}

fn pids(measured: &Measured) -> Vec<i32> {
    text(&measured.stdout)
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect()
}

/// Whether the process is there and no zombie that some parent forgot.
fn runs(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("State:") && !line.contains('Z'))
}

/// Runs `job` while another thread, after `after`, sends `signals` one by one to this one.
fn run_and_signal(job: &Job, after: Duration, signals: &'static [i32]) -> Measured {
    with_signals(|taken| {
        // SAFETY: names the calling thread, which outlives the sender below.
        let target = unsafe { libc::pthread_self() };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for &signal in signals {
                    std::thread::sleep(after);
                    // SAFETY: the thread waits for this one to end. It blocks the signal.
                    unsafe { libc::pthread_kill(target, signal) };
                }
            });
            kilter_measure::run(job, taken, |_| ()).unwrap()
        })
    })
}

#[test]
fn a_timeout_ends_what_obeys() {
    let start = Instant::now();
    let mut job = with_timeout(Job::new(["sleep", "300"]), 100);
    job.grace = Duration::from_secs(100);
    let measured = run_job(&job);
    assert_eq!(measured.outcome, Outcome::TimedOut);
    assert!(measured.wall >= Duration::from_millis(100));
    assert!(
        start.elapsed() < Duration::from_secs(50),
        "the grace time is not waited out"
    );
    let left = |w: &Warning| matches!(w, Warning::LeftBehind { .. });
    assert!(!measured.warnings.iter().any(left));
}

#[test]
fn a_timeout_kills_a_whole_family_that_ignores_it() {
    let mut job = with_timeout(sh(STUBBORN), 1500);
    job.output = Output::Capture;
    let measured = run_job(&job);
    assert_eq!(measured.outcome, Outcome::TimedOut);
    let pids = pids(&measured);
    assert_eq!(pids.len(), 3, "{:?}", text(&measured.stdout));
    assert!(!pids.iter().any(|&pid| runs(pid)), "{pids:?}");
    assert!(
        measured.wall >= Duration::from_millis(1700),
        "the grace time was given"
    );
    assert!(
        !measured
            .warnings
            .iter()
            .any(|w| matches!(w, Warning::LeftBehind { .. }))
    );
}

#[test]
fn descendants_that_outlive_an_obedient_leader_are_killed() {
    let script = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.05; done' & echo $$; wait";
    let measured = capture(&with_timeout(sh(script), 500));
    assert_eq!(measured.outcome, Outcome::TimedOut);
    let pids = pids(&measured);
    assert_eq!(pids.len(), 2);
    assert!(!pids.iter().any(|&pid| runs(pid)), "{pids:?}");
}

#[test]
fn descendants_get_the_grace_time_to_tidy_up() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("tidy");
    let child = format!(
        "trap 'sleep 0.3; : > {}; exit' TERM; while :; do sleep 0.05; done",
        mark.display()
    );
    let script = format!("sh -c \"{child}\" & wait");
    let mut job = with_timeout(sh(&script), 300);
    job.grace = Duration::from_secs(20);
    let start = Instant::now();
    assert_eq!(run_job(&job).outcome, Outcome::TimedOut);
    assert!(
        mark.exists(),
        "the descendant was killed before it could tidy up"
    );
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_stopped_command_is_ended_too() {
    let measured = run_job(&with_timeout(sh("kill -STOP $$; sleep 300"), 300));
    assert_eq!(measured.outcome, Outcome::TimedOut);
}

#[test]
fn a_command_that_ends_in_time_is_not_timed_out() {
    let measured = run_job(&with_timeout(sh("exit 4"), 60_000));
    assert_eq!(measured.outcome, Outcome::Exited { code: 4 });
}

#[test]
fn a_signal_interrupts() {
    for signal in [[libc::SIGINT], [libc::SIGTERM], [libc::SIGHUP]] {
        let signals: &'static [i32] = Box::leak(Box::new(signal));
        let mut job = sh("echo $$; sleep 300");
        job.output = Output::Capture;
        let measured = run_and_signal(&job, Duration::from_millis(400), signals);
        assert_eq!(measured.outcome, Outcome::Interrupted);
        assert_eq!(measured.signal, Some(signal[0]));
        assert!(!runs(pids(&measured)[0]));
    }
}

#[test]
fn a_second_signal_does_not_wait_for_the_grace_time() {
    let mut job = sh(STUBBORN);
    job.output = Output::Capture;
    job.grace = Duration::from_secs(100);
    let start = Instant::now();
    let measured = run_and_signal(
        &job,
        Duration::from_millis(500),
        &[libc::SIGINT, libc::SIGINT],
    );
    assert_eq!(measured.outcome, Outcome::Interrupted);
    assert!(start.elapsed() < Duration::from_secs(50));
    assert!(!pids(&measured).iter().any(|&pid| runs(pid)));
}

#[test]
fn the_command_dies_with_its_measurer() {
    // The measurer is this test's program again, killed with SIGKILL while its command runs.
    if std::env::var_os("KILTER_TEST_MEASURER").is_some() {
        let mut job = sh("echo $$ >&2; exec sleep 300");
        job.output = Output::Inherit;
        run_job(&job);
        return;
    }
    use std::io::{BufRead, BufReader};
    let mut measurer = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "the_command_dies_with_its_measurer",
            "--nocapture",
        ])
        .env("KILTER_TEST_MEASURER", "1")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(measurer.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let pid: i32 = lines
        .filter_map(|line| line.trim().parse().ok())
        .next()
        .expect("its pid");
    assert!(runs(pid));
    measurer.kill().unwrap();
    measurer.wait().unwrap();
    let start = Instant::now();
    while runs(pid) && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!runs(pid) && Path::new("/proc/self").exists());
}
