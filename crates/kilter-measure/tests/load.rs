//! The load generators: what they report, what they refuse, what they leave behind.

mod common;

use common::TestResult;
use kilter_measure::load::{
    AudioOptions, Cores, LoadError, MessagingOptions, Transport, WakeupOptions, Workers,
};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn small() -> MessagingOptions {
    MessagingOptions {
        groups: 2,
        pairs: 3,
        loops: 50,
        ..MessagingOptions::default()
    }
}

fn wakeup() -> WakeupOptions {
    WakeupOptions {
        runtime_s: 0.5,
        warmup_s: 0.1,
        cache_kib: 16,
        ..WakeupOptions::default()
    }
}

/// Children of this process, by `/proc`.
fn children_of(parent: u32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        field("PPid:") == parent.to_string() && !field("State:").starts_with('Z')
    };
    pids.filter(is_child).collect()
}

#[test]
fn every_kind_of_messaging_delivers_all() -> TestResult {
    for transport in [Transport::Pipe, Transport::Socket] {
        for workers in [Workers::Process, Workers::Thread] {
            let options = MessagingOptions {
                transport,
                workers,
                ..small()
            };
            let result = options.run()?;
            assert_eq!(result.messages, 2 * 3 * 3 * 50);
            assert!(result.seconds > 0.0);
            let expected = result.messages as f64 / result.seconds;
            assert!((result.messages_per_s - expected).abs() < 1e-6 * expected);
        }
    }
    Ok(())
}

#[test]
fn messages_of_all_sizes_arrive() -> TestResult {
    for size in [1, 4096, 4097, 65_536] {
        MessagingOptions {
            size,
            loops: 5,
            ..small()
        }
        .run()?;
    }
    Ok(())
}

#[test]
fn more_messages_take_longer() -> TestResult {
    let few = MessagingOptions {
        loops: 20,
        ..small()
    }
    .run()?;
    let many = MessagingOptions {
        loops: 4000,
        ..small()
    }
    .run()?;
    assert!(many.seconds > few.seconds, "{many:?} {few:?}");
    Ok(())
}

#[test]
fn options_out_of_range_are_named_with_the_range() {
    let text = |options: MessagingOptions| options.run().unwrap_err().to_string();
    assert_eq!(
        text(MessagingOptions {
            groups: 0,
            ..small()
        }),
        "groups = 0 is not possible; from 1 to 1000"
    );
    assert!(
        text(MessagingOptions {
            size: 65_537,
            ..small()
        })
        .contains("size")
    );
    assert!(
        text(MessagingOptions {
            groups: 1000,
            pairs: 200,
            ..small()
        })
        .contains("groups x pairs")
    );
    let text = |options: WakeupOptions| options.run().unwrap_err().to_string();
    for runtime_s in [0.0, f64::NAN, f64::INFINITY, 1e9] {
        assert!(
            text(WakeupOptions {
                runtime_s,
                ..wakeup()
            })
            .contains("runtime")
        );
    }
    assert!(
        text(WakeupOptions {
            workers: Some(0),
            ..wakeup()
        })
        .contains("workers")
    );
    assert!(
        text(WakeupOptions {
            message_threads: 256,
            workers: Some(1024),
            ..wakeup()
        })
        .contains(" x ")
    );
}

#[test]
fn wake_ups_are_measured() -> TestResult {
    for locking in [true, false] {
        let options = WakeupOptions {
            message_threads: 2,
            workers: Some(3),
            locking,
            ..wakeup()
        };
        let result = options.run()?;
        for tail in [result.wakeup_us, result.request_us] {
            assert!(tail.count > 0);
            assert!(tail.p50 <= tail.p90 && tail.p90 <= tail.p99 && tail.p99 <= tail.p99_9);
            assert!(tail.p99_9 <= tail.max, "{tail:?}");
        }
        assert!(
            result.request_us.p50 >= 100.0,
            "a request sleeps for 100 µs: {result:?}"
        );
        assert!(result.seconds >= 0.5);
        let rate = result.request_us.count as f64 / result.seconds;
        assert!((result.requests_per_s - rate).abs() < 1e-6 * rate);
    }
    Ok(())
}

#[test]
fn more_work_takes_longer() -> TestResult {
    let light = WakeupOptions {
        operations: 1,
        workers: Some(1),
        ..wakeup()
    }
    .run()?;
    let heavy = WakeupOptions {
        operations: 40,
        workers: Some(1),
        ..wakeup()
    }
    .run()?;
    assert!(
        heavy.request_us.p50 > light.request_us.p50,
        "{heavy:?} {light:?}"
    );
    assert!(heavy.requests_per_s < light.requests_per_s);
    Ok(())
}

#[test]
fn a_request_that_never_ends_in_time_is_an_error() {
    let options = WakeupOptions {
        sleep_us: 1_000_000,
        runtime_s: 0.1,
        warmup_s: 0.0,
        ..wakeup()
    };
    assert!(matches!(options.run(), Err(LoadError::Nothing(_))));
}

#[test]
fn results_are_json_under_the_documented_names() -> TestResult {
    let value = serde_json::to_value(wakeup().run()?)?;
    for pointer in [
        "/wakeup_us/p99_9",
        "/request_us/max",
        "/wakeup_us/count",
        "/requests_per_s",
        "/seconds",
    ] {
        assert!(
            value
                .pointer(pointer)
                .is_some_and(serde_json::Value::is_number),
            "{pointer}"
        );
    }
    let value = serde_json::to_value(small().run()?)?;
    assert!(value["seconds"].is_number() && value["messages_per_s"].is_number());
    Ok(())
}

/// Starts this test's program again with a load that takes minutes; returns it when its workers run.
fn endless(test: &str) -> std::process::Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("KILTER_TEST_ENDLESS", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while children_of(child.id()).len() < 12 && start.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(children_of(child.id()).len(), 12);
    assert!(child.try_wait().unwrap().is_none());
    child
}

fn is_endless() -> Option<MessagingOptions> {
    std::env::var_os("KILTER_TEST_ENDLESS")?;
    Some(MessagingOptions {
        loops: 100_000_000,
        ..small()
    })
}

fn all_gone(pids: &[i32]) -> bool {
    let start = Instant::now();
    let alive = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line.starts_with("State:") && !line.contains('Z'))
    };
    while pids.iter().any(alive) && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    !pids.iter().any(alive)
}

#[test]
fn a_killed_load_leaves_no_process() {
    if let Some(options) = is_endless() {
        let _ = options.run();
        return;
    }
    let mut load = endless("a_killed_load_leaves_no_process");
    let workers = children_of(load.id());
    load.kill().unwrap();
    load.wait().unwrap();
    assert!(all_gone(&workers));
}

#[test]
fn a_killed_worker_ends_the_load_with_an_error() {
    if let Some(options) = is_endless() {
        let error = options.run().expect_err("a worker is killed");
        eprintln!("error: {error}");
        return;
    }
    let mut load = endless("a_killed_worker_ends_the_load_with_an_error");
    let workers = children_of(load.id());
    // SAFETY: a worker of the load that this test has started, which has not been waited for.
    unsafe { libc::kill(workers[0], libc::SIGKILL) };
    let stderr = BufReader::new(load.stderr.take().unwrap());
    let message = stderr
        .lines()
        .map_while(Result::ok)
        .find(|line| line.starts_with("error: "));
    assert!(load.wait().unwrap().success());
    assert!(message.is_some_and(|text| text.contains("sender") || text.contains("receiver")));
    assert!(all_gone(&workers));
}

fn audio() -> AudioOptions {
    AudioOptions {
        runtime_s: 0.4,
        warmup_s: 0.2,
        ..AudioOptions::default()
    }
}

#[test]
fn voicemark_finds_voices_that_take_their_share() -> TestResult {
    let result = std::thread::spawn(|| audio().voicemark())
        .join()
        .expect("no panic")?;
    assert!(result.voices >= 1.0, "{result:?}");
    assert!(result.load > 0.05 && result.load < 1.5, "{result:?}");
    assert!(result.seconds >= 0.35, "{result:?}");
    assert_eq!(result.cpus, "");
    Ok(())
}

#[test]
fn latencymark_ends_with_a_buffer_of_whole_bursts() -> TestResult {
    let options = AudioOptions {
        cores: Cores::Big,
        ..audio()
    };
    // Pinning is of the calling thread, which another test may get next.
    let result = std::thread::spawn(move || options.latencymark())
        .join()
        .expect("no panic")?;
    assert!((1..=128).contains(&result.bursts), "{result:?}");
    assert_eq!(result.latency_ms, f64::from(result.bursts) * 2.0);
    assert!(
        u64::from(result.bursts) <= result.underruns + 1,
        "{result:?}"
    );
    assert!(!result.cpus.is_empty(), "{result:?}");
    Ok(())
}

#[test]
fn audio_options_out_of_range_are_refused() {
    let refused = [
        AudioOptions {
            runtime_s: 0.0,
            ..audio()
        },
        AudioOptions {
            load: 1.0,
            ..audio()
        },
        AudioOptions {
            load: f64::NAN,
            ..audio()
        },
        AudioOptions {
            warmup_s: -1.0,
            ..audio()
        },
        AudioOptions {
            fifo: Some(0),
            ..audio()
        },
    ];
    for options in refused {
        assert!(
            matches!(options.voicemark(), Err(LoadError::Option { .. })),
            "{options:?}"
        );
        assert!(
            matches!(options.latencymark(), Err(LoadError::Option { .. })),
            "{options:?}"
        );
    }
}
