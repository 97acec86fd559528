//! Real commands: how they end, what they are given, what is measured.

mod common;

use common::{TestResult, capture, error_of, run_job, sh, skip, text, with_signals};
use kilter_api::Outcome;
use kilter_measure::{CpuList, Credentials, Job, Output, SpawnError, Stdin, Warning};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Held by tests that look at memory: a child begins as a copy of the whole test program.
static MEMORY: Mutex<()> = Mutex::new(());

#[test]
fn exit_codes_and_signals_are_told_apart() {
    assert_eq!(
        run_job(&Job::new(["true"])).outcome,
        Outcome::Exited { code: 0 }
    );
    assert_eq!(run_job(&sh("exit 7")).outcome, Outcome::Exited { code: 7 });
    let killed = run_job(&sh("kill -USR1 $$"));
    assert_eq!(
        killed.outcome,
        Outcome::Signalled {
            signal: libc::SIGUSR1
        }
    );
    assert_eq!(killed.signal, None);
}

#[test]
fn the_callback_gets_the_group_while_the_command_lives() {
    let mut job = sh("read x; exit 3");
    job.stdin = Stdin::Null;
    let mut group = 0;
    let measured = with_signals(|signals| kilter_measure::run(&job, signals, |pgid| group = pgid));
    assert!(group > 1);
    assert!(matches!(
        measured.unwrap().outcome,
        Outcome::Exited { code: 1 | 3 }
    ));
    let own = capture(&sh("cut -d' ' -f5 /proc/$$/stat; echo $$"));
    let ids: Vec<_> = text(&own.stdout).lines().map(str::to_owned).collect();
    assert_eq!(ids[0], ids[1], "the command leads its own group");
}

#[test]
fn what_cannot_be_executed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, mode: u32, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };

    let missing = error_of(&Job::new(["kilter-no-such-command"]));
    assert!(matches!(missing, SpawnError::NotFound(_)), "{missing}");
    assert_eq!(missing.exit_code(), 127);
    assert_eq!(
        missing.to_string(),
        "command not found: \"kilter-no-such-command\""
    );
    assert_eq!(error_of(&Job::new(["/no/such/file"])).exit_code(), 127);
    assert_eq!(error_of(&Job::new(["/etc/passwd/x"])).exit_code(), 127);

    let plain = error_of(&Job::new([file("plain", 0o644, "#!/bin/sh\n")]));
    assert!(matches!(plain, SpawnError::NotExecutable { .. }), "{plain}");
    assert_eq!(plain.exit_code(), 126);
    assert_eq!(error_of(&Job::new([folder.path()])).exit_code(), 126);
    let orphan = error_of(&Job::new([file(
        "orphan",
        0o755,
        "#!/no/such/interpreter\n",
    )]));
    assert_eq!(orphan.exit_code(), 126);
    assert!(orphan.to_string().contains("interpreter"), "{orphan}");

    assert!(matches!(error_of(&Job::new([""; 0])), SpawnError::Empty));
    assert!(matches!(error_of(&Job::new([""])), SpawnError::Empty));
    assert!(matches!(
        error_of(&Job::new(["echo", "a\0b"])),
        SpawnError::ZeroByte(_)
    ));
    assert_eq!(error_of(&Job::new(["echo", "a\0b"])).exit_code(), 125);
}

#[test]
fn a_script_without_an_interpreter_line_runs_in_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script");
    std::fs::write(&path, "echo \"$0|$1|$#\"\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let measured = capture(&Job::new([path.as_os_str(), "a b".as_ref(), "c".as_ref()]));
    assert_eq!(
        text(&measured.stdout),
        format!("{}|a b|2\n", path.display())
    );
}

#[test]
fn the_command_starts_with_clean_signals() {
    let measured = capture(&Job::new([
        "grep",
        "-E",
        "^Sig(Blk|Ign):",
        "/proc/self/status",
    ]));
    let ours = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = |status: &str| {
        let line = status
            .lines()
            .find(|line| line.starts_with("SigIgn:"))
            .unwrap();
        u64::from_str_radix(line[7..].trim(), 16).unwrap()
    };
    let status = text(&measured.stdout);
    assert!(status.contains("SigBlk:\t0000000000000000"), "{status}");
    let pipe = 1 << (libc::SIGPIPE - 1);
    assert_ne!(
        ignored(&ours) & pipe,
        0,
        "Rust ignores SIGPIPE, or this test proves nothing"
    );
    assert_eq!(ignored(&status), ignored(&ours) & !pipe);
}

#[test]
fn no_descriptor_leaks_into_the_command() {
    let command = ["ls", "/proc/self/fd"];
    // What the tests' own caller has left open is inherited both ways, and ls opens the folder.
    let plain = std::process::Command::new(command[0])
        .arg(command[1])
        .output()
        .unwrap();
    let measured = capture(&Job::new(command));
    assert_eq!(text(&measured.stdout).as_bytes(), plain.stdout);
    assert!(text(&measured.stdout).starts_with("0\n1\n"));
}

#[test]
fn cpus_are_pinned_and_wrong_ones_refused() {
    let online = CpuList::online(Path::new("/")).unwrap();
    let last = online.iter().last().unwrap();
    let mut job = Job::new(["grep", "Cpus_allowed_list", "/proc/self/status"]);
    job.cpus = Some(last.to_string().parse().unwrap());
    assert_eq!(
        text(&capture(&job).stdout),
        format!("Cpus_allowed_list:\t{last}\n")
    );

    job.cpus = Some("4000".parse().unwrap());
    let error = error_of(&job);
    assert!(matches!(error, SpawnError::Cpus { .. }), "{error}");
    assert!(error.to_string().contains("may use 0"), "{error}");
    // One of the two exists: the kernel would pin to it without a word.
    job.cpus = Some("0,4000".parse().unwrap());
    let error = error_of(&job);
    assert!(error.to_string().contains("0,4000"), "{error}");
}

#[test]
fn root_can_run_as_someone_else() {
    let script = "id -u; id -g; id -G; echo $HOME $USER $LOGNAME; grep -c 'CapEff:.0*$' /proc/$$/status; touch /x-kilter";
    let mut job = sh(script);
    job.user = Some(Credentials {
        uid: 65_534,
        gid: 65_533,
        groups: vec![65_533, 65_000],
        name: "someone".into(),
        home: "/nowhere".into(),
    });
    if !rustix::process::geteuid().is_root() {
        job.output = Output::Capture;
        let error = error_of(&job);
        assert!(
            matches!(error, SpawnError::User { uid: 65_534, .. }),
            "{error}"
        );
        return skip("changing the user needs root");
    }
    let measured = capture(&job);
    let lines = text(&measured.stdout);
    assert_eq!(
        lines,
        "65534\n65533\n65533 65000\n/nowhere someone someone\n1\n"
    );
    assert!(text(&measured.stderr).contains("ermission denied"));
    assert!(!Path::new("/x-kilter").exists());
}

#[test]
fn resources_are_those_of_the_command_and_its_children() -> TestResult {
    let _alone = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let idle = run_job(&Job::new(["sleep", "0.2"]));
    let busy = run_job(&sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"));
    let (idle_cpu, busy_cpu) = (
        idle.usage.user + idle.usage.sys,
        busy.usage.user + busy.usage.sys,
    );
    assert!(idle.wall >= Duration::from_millis(200));
    assert!(idle_cpu < idle.wall / 2, "{idle_cpu:?}");
    assert!(busy_cpu > idle_cpu, "{busy_cpu:?} {idle_cpu:?}");
    assert!(idle.usage.voluntary_switches >= 1);

    // 64 MiB in a grandchild that is waited for.
    let large = run_job(&sh(
        "(head -c 67108864 /dev/zero | tail -c 67108864 >/dev/null); true",
    ));
    assert!(
        large.usage.max_rss_kib > 60 << 10,
        "{}",
        large.usage.max_rss_kib
    );
    assert!(
        idle.usage.max_rss_kib < 32 << 10,
        "{}",
        idle.usage.max_rss_kib
    );
    assert!(large.usage.minor_faults > idle.usage.minor_faults);

    let record = busy.record(kilter_api::Settings::new());
    assert!(record.wall_s > 0.0 && record.user_s + record.sys_s > 0.0);
    assert!(record.started_boottime_s > 0.0);
    record.started.parse::<jiff::Timestamp>()?;
    Ok(())
}

#[test]
fn our_own_memory_is_not_the_commands() {
    let _alone = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let ballast = vec![1_u8; 64 << 20];
    let measured = run_job(&Job::new(["true"]));
    let floor = measured
        .warnings
        .iter()
        .find(|w| matches!(w, Warning::RssFloor { .. }));
    // The kernel counts the copy that the child began as; kilter must say so.
    assert!(
        floor.is_some() || measured.usage.max_rss_kib < 32 << 10,
        "{:?}",
        measured.usage
    );
    assert_eq!(ballast[ballast.len() - 1], 1);
}

#[test]
fn counters_count_the_command_alone() {
    let count = |script: &str| {
        let mut job = sh(script);
        job.counters = true;
        run_job(&job).counters
    };
    let short = count("true");
    if short.is_empty() {
        return skip("no counter can be opened here");
    }
    let long = count("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
    for name in ["task-clock", "instructions", "cycles"] {
        let find = |counters: &std::collections::BTreeMap<String, kilter_api::Counter>| {
            counters
                .iter()
                .find(|(key, _)| key.trim_end_matches(":u") == name)
                .map(|(_, c)| c.value)
        };
        match (find(&short), find(&long)) {
            (Some(short), Some(long)) => assert!(long > 2.0 * short, "{name}: {long} {short}"),
            _ => eprintln!("{name} cannot be counted here"),
        }
    }
    let children = count("for i in 1 2 3 4 5 6 7 8; do /bin/true; done");
    if let (Some(one), Some(nine)) = (short.get("page-faults"), children.get("page-faults")) {
        assert!(
            nine.value > 3.0 * one.value,
            "children are counted: {nine:?} {one:?}"
        );
    }
    if rustix::process::geteuid().is_root() {
        let mut job = Job::new(["true"]);
        (job.counters, job.user) = (true, Some(Credentials::of(65_534, 65_534).unwrap()));
        assert!(
            run_job(&job).counters.keys().eq(short.keys()),
            "a change of user stops no counter"
        );
    }
    for counter in short.values().chain(long.values()) {
        assert!(
            counter.running > 0.0 && counter.running <= 1.0,
            "{counter:?}"
        );
    }
}

#[test]
fn what_is_left_running_is_told() {
    let measured = run_job(&sh("sleep 300 >/dev/null 2>&1 & exit 0"));
    assert_eq!(measured.outcome, Outcome::Exited { code: 0 });
    let group = measured.warnings.iter().find_map(|warning| match warning {
        Warning::LeftBehind { pgid } => Some(*pgid),
        _ => None,
    });
    // SAFETY: ends the group that this test has just left behind.
    unsafe { libc::kill(-group.expect("a warning"), libc::SIGKILL) };
    let tidy = run_job(&sh("sleep 0.01 & wait"));
    assert!(
        !tidy
            .warnings
            .iter()
            .any(|w| matches!(w, Warning::LeftBehind { .. }))
    );
}
