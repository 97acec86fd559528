//! What commands print: captured whole, cut, passed on.

mod common;

use common::{TestResult, capture, run_job, sh, text};
use kilter_api::{Direction, Metric, MetricSource, Outcome, Settings};
use kilter_measure::{CAPTURE_LIMIT, Job, Metrics, Output, Stdin, TAIL_LIMIT, Warning};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Runs one test of this program again, by itself, with `name` set.
fn again(test: &str, name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(name, "1");
    command
}

#[test]
fn both_streams_are_captured_apart() {
    let measured = capture(&sh("echo out; echo err >&2; printf 'no newline'"));
    assert_eq!(text(&measured.stdout), "out\nno newline");
    assert_eq!(text(&measured.stderr), "err\n");
    let record = measured.record(Settings::new());
    assert_eq!(
        (record.stdout_tail.as_str(), record.stderr_tail.as_str()),
        ("out\nno newline", "err\n")
    );
}

#[test]
fn output_larger_than_a_pipe_does_not_block() {
    let measured = capture(&sh(
        "head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2",
    ));
    assert_eq!(measured.outcome, Outcome::Exited { code: 0 });
    assert_eq!(
        (measured.stdout.total(), measured.stderr.total()),
        (3_000_000, 2_000_000)
    );
    assert!(!measured.stdout.is_cut());
}

#[test]
fn a_closed_or_leaked_pipe_does_not_hang() {
    let closed = capture(&sh("exec >&- 2>&-; sleep 0.1; exit 3"));
    assert_eq!(closed.outcome, Outcome::Exited { code: 3 });
    // A process that is left behind holds the pipe open.
    let leaked = capture(&sh("sleep 300 & echo $!; exit 0"));
    let pid: i32 = text(&leaked.stdout).trim().parse().unwrap();
    // SAFETY: ends the process that this test has left behind.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    assert_eq!(leaked.outcome, Outcome::Exited { code: 0 });
}

#[test]
fn a_hundred_megabytes_stay_out_of_memory() -> TestResult {
    const NAME: &str = "KILTER_TEST_LARGE";
    if std::env::var_os(NAME).is_none() {
        // By itself, so that the high-water mark is this test's own.
        let output = again("a_hundred_megabytes_stay_out_of_memory", NAME).output()?;
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return Ok(());
    }
    let script =
        "echo score: 1; head -c 100000000 /dev/zero | tr '\\0' 'x\\n'; echo; echo score: 2";
    let measured = capture(&sh(script));
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .ok_or("no VmHWM")?;
    let peak_kib: usize = peak.trim().trim_end_matches(" kB").parse()?;
    assert!(peak_kib < 24 << 10, "peak of {peak_kib} KiB");

    assert!(measured.stdout.is_cut() && measured.stdout.total() > 100_000_000);
    assert!(measured.stdout.bytes().len() <= CAPTURE_LIMIT);
    assert!(
        matches!(measured.warnings[..], [Warning::OutputCut { .. }, ..]),
        "{:?}",
        measured.warnings
    );
    let record = measured.record(Settings::new());
    assert!(record.stdout_tail.len() <= TAIL_LIMIT);
    assert!(
        record.warnings[0].contains("standard output"),
        "{:?}",
        record.warnings
    );
    let source = MetricSource::Regex {
        pattern: "^score: (.*)$".into(),
    };
    let metric = Metric {
        name: "score".into(),
        source,
        direction: Direction::Max,
        unit: String::new(),
    };
    let values = Metrics::compile(&[metric])?.extract(&record, &measured.stdout.bytes(), b"")?;
    assert_eq!(values["score"], 2.0);
    Ok(())
}

#[test]
fn streams_are_passed_on_as_asked() -> TestResult {
    const NAME: &str = "KILTER_TEST_PASS_ON";
    let script = "echo to-out; echo to-err >&2; head -c 200000 /dev/zero | tr '\\0' z";
    match std::env::var(NAME) {
        Err(_) => {}
        Ok(how) => {
            let output = match how.as_str() {
                "tee" => Output::Tee,
                "inherit" => Output::Inherit,
                _ => Output::ToStderr,
            };
            let measured = run_job(&Job {
                output,
                ..sh(script)
            });
            let expected = if output == Output::Tee { 200_007 } else { 0 };
            assert_eq!(measured.stdout.total(), expected);
            return Ok(());
        }
    }
    for (how, out, err) in [
        ("tee", true, true),
        ("inherit", true, true),
        ("stderr", false, true),
    ] {
        let output = again("streams_are_passed_on_as_asked", NAME)
            .env(NAME, how)
            .output()?;
        assert!(output.status.success(), "{how}");
        let has = |stream: &[u8], what: &str| String::from_utf8_lossy(stream).contains(what);
        let many = |stream: &[u8]| stream.iter().filter(|&&byte| byte == b'z').count() >= 200_000;
        assert_eq!(
            (has(&output.stdout, "to-out"), many(&output.stdout)),
            (out, out),
            "{how}"
        );
        assert_eq!(has(&output.stderr, "to-err"), err, "{how}");
        assert_eq!(has(&output.stderr, "to-out"), !out, "{how}");
    }
    Ok(())
}

#[test]
fn a_reader_that_goes_away_ends_neither_run_nor_capture() -> TestResult {
    const NAME: &str = "KILTER_TEST_NO_READER";
    if let Some(mark) = std::env::var_os(NAME) {
        let script = "echo first; sleep 0.3; head -c 1000000 /dev/zero; echo last >&2; exit 5";
        let measured = run_job(&Job {
            output: Output::Tee,
            ..sh(script)
        });
        assert_eq!(measured.outcome, Outcome::Exited { code: 5 });
        assert_eq!(
            (measured.stdout.total(), measured.stderr.total()),
            (1_000_006, 5)
        );
        return Ok(std::fs::write(mark, "done")?);
    }
    let folder = tempfile::tempdir()?;
    let mark = folder.path().join("mark");
    let mut command = again("a_reader_that_goes_away_ends_neither_run_nor_capture", NAME);
    let mut run = command
        .env(NAME, &mark)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let lines = BufReader::new(run.stdout.take().ok_or("no pipe")?).lines();
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.ends_with("first"))
    );
    // The iterator is gone, and with it the pipe's reading end.
    run.wait()?;
    assert_eq!(std::fs::read_to_string(mark)?, "done");
    Ok(())
}

#[test]
fn standard_input_can_be_empty() {
    let mut job = sh("cat; echo end");
    job.stdin = Stdin::Null;
    assert_eq!(text(&capture(&job).stdout), "end\n");
}
