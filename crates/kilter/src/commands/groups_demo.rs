//! `kilter groups demo`: four tasks of one user against one of another, pinned to one CPU, in one
//! session; first as they are, then with a group for each user.

use crate::args::this_binary;
use crate::cli::GroupsDemo;
use crate::commands::apply::refuse_during_experiment;
use crate::commands::groups::{Lending, begin, end, need_real, on_off, with_folds};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::say;
use kilter_api::{DemoTask, GroupsDemo as Report};
use kilter_groups::{Config, Daemon, Policy, autogroup};
use rustix::fd::AsFd;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_thread_res_uid};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Tasks of the first user.
const HOGS: usize = 4;

/// Iterations between two looks at the clock: about 0.1 ms.
const ROUND: u32 = 100_000;

/// What a hog tells at its end.
#[derive(Serialize, Deserialize)]
struct Told {
    cpu_s: f64,
    work: u64,
}

/// Runs the demonstration.
pub fn run(machine: &Machine, args: &GroupsDemo) -> Outcome {
    if !(0.1..=600.0).contains(&args.seconds) {
        let text = format!("--seconds {}: the range is 0.1 to 600", args.seconds);
        return Err(Failure::new(text));
    }
    let [many, lone] = args.uids[..] else {
        return Err(Failure::new("--uids: two different uids are needed"));
    };
    if many == lone {
        return Err(Failure::new("--uids: two different uids are needed"));
    }
    machine.need_root("running tasks of other users")?;
    need_real(machine)?;
    refuse_during_experiment(machine)?;
    let cpu = cpu(args.cpu)?;
    let uids = [many, lone];
    let half = |title: &str| {
        say::note(format!("{title}: {} s on CPU {cpu} …", args.seconds));
        contest(uids, cpu, args.seconds)
    };
    // Groups can be begun only while this process has one thread, so everything that may fail
    // fails before the first half.
    let policy = with_folds(machine, Config::default(), vec![many..=many, lone..=lone]);
    let before = half("Without groups")?;
    let after = under_groups(machine, policy, || half("With a group for each user"))?;
    let lone_work = |tasks: &[DemoTask]| tasks.last().map_or(0, |task| task.work) as f64;
    let report = Report {
        cpu,
        seconds: args.seconds,
        autogroup: autogroup(&machine.kernel),
        speedup: lone_work(&after) / lone_work(&before).max(1.0),
        before,
        after,
    };
    match machine.json {
        true => say::json(&report)?,
        false => print(&report),
    }
    Ok(0)
}

fn cpu(asked: Option<usize>) -> Result<usize, Failure> {
    let mine = sched_getaffinity(None).map_err(std::io::Error::from)?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| mine.is_set(cpu))
        .collect();
    let chosen = asked.or(cpus.last().copied()).unwrap_or(0);
    match cpus.contains(&chosen) {
        true => Ok(chosen),
        false => Err(Failure::new(format!(
            "--cpu {chosen}: this process may not run on it"
        ))),
    }
}

/// Does something while the daemon runs in a thread, and takes everything back.
fn under_groups<T>(
    machine: &Machine,
    policy: Policy,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let begun = begin(machine, policy, Lending::Mine)?;
    let (stop, stopper) = rustix::pipe::pipe().map_err(std::io::Error::from)?;
    let (ready, wait) = std::sync::mpsc::channel();
    let (subscription, groups) = (begun.subscription, begun.groups);
    let daemon = std::thread::spawn(move || {
        // Real-time scheduling belongs to the thread that asks for it.
        let (mut daemon, _) = Daemon::new(subscription, groups, true);
        let tell = move |_, _| {
            let _ = ready.send(());
        };
        daemon.run(stop.as_fd(), tell, &mut |text| say::warning(text))
    });
    // An error before it is ready closes the channel, and is told below.
    let done = match wait.recv() {
        Ok(()) => work(),
        Err(_) => Err(Failure::new("the groups ended too early")),
    };
    drop(stopper);
    let ended = daemon.join();
    end(machine, begun.id)?;
    drop(begun.guardian);
    match ended {
        Ok(ended) => ended?,
        Err(_) => return Err(Failure::new("the groups' thread died")),
    };
    done
}

/// Runs the tasks side by side; the lone one is the last.
fn contest([many, lone]: [u32; 2], cpu: usize, seconds: f64) -> Result<Vec<DemoTask>, Failure> {
    let mut uids = vec![many; HOGS];
    uids.push(lone);
    let hogs = uids.into_iter().map(|uid| Hog::start(uid, cpu, seconds));
    let mut hogs = hogs.collect::<Result<Vec<_>, _>>()?;
    for hog in &mut hogs {
        hog.ready()?;
    }
    // Time to be moved.
    std::thread::sleep(Duration::from_millis(200));
    for hog in &mut hogs {
        hog.go()?;
    }
    let told = hogs.iter_mut().map(Hog::told);
    let told = told.collect::<Result<Vec<_>, _>>()?;
    let total: f64 = told.iter().map(|told| told.cpu_s).sum();
    let task = |(hog, told): (&Hog, &Told)| DemoTask {
        uid: hog.uid,
        share_percent: 100.0 * told.cpu_s / total,
        work: told.work,
    };
    Ok(hogs.iter().zip(&told).map(task).collect())
}

/// A task of the demonstration; killed when dropped.
struct Hog {
    uid: u32,
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Hog {
    fn start(uid: u32, cpu: usize, seconds: f64) -> Result<Self, Failure> {
        let mut child = Command::new(this_binary()?)
            .args(["groups", "hog", "--uid", &uid.to_string()])
            .args(["--cpu", &cpu.to_string(), "--seconds", &seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().expect("piped");
        Ok(Hog {
            uid,
            child,
            lines: BufReader::new(stdout),
        })
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.lines.read_line(&mut line)? {
            0 => Err(Failure::new(format!("the task of uid {} died", self.uid))),
            _ => Ok(line),
        }
    }

    fn ready(&mut self) -> Result<(), Failure> {
        self.line().map(drop)
    }

    fn go(&mut self) -> Result<(), Failure> {
        let stdin = self.child.stdin.as_mut().expect("piped");
        Ok(stdin.write_all(b"go\n")?)
    }

    fn told(&mut self) -> Result<Told, Failure> {
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A hog: becomes the user, says so, waits for a line, works, tells.
pub fn hog(uid: u32, cpu: usize, seconds: f64) -> Outcome {
    let mut set = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).map_err(std::io::Error::from)?;
    let uid = rustix::process::Uid::from_raw(uid);
    // One thread: the call is that of the process.
    set_thread_res_uid(uid, uid, uid).map_err(std::io::Error::from)?;
    say::line("ready");
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line)? == 0 {
        return Ok(2);
    }
    let cpu_s = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let (end, begin) = (Instant::now() + Duration::from_secs_f64(seconds), cpu_s());
    let (mut work, mut state) = (0, 1);
    while Instant::now() < end {
        state = round(state);
        work += 1;
    }
    let cpu_s = cpu_s() - begin;
    say::line(serde_json::to_string(&Told { cpu_s, work })?);
    Ok(0)
}

/// One round of work (xorshift, Marsaglia 2003).
fn round(mut state: u64) -> u64 {
    for _ in 0..ROUND {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state = std::hint::black_box(state);
    }
    state
}

fn print(report: &Report) {
    for (title, tasks) in [
        ("Without groups", &report.before),
        ("With a group for each user", &report.after),
    ] {
        say::line(say::bold(title));
        let mut rows = vec![["  uid", "share", "work"].map(str::to_owned).to_vec()];
        rows.extend(tasks.iter().map(|task| {
            vec![
                format!("  {}", task.uid),
                format!("{:.1} %", task.share_percent),
                task.work.to_string(),
            ]
        }));
        say::table(&rows);
    }
    say::line(format!(
        "The lone task did {} times the work (CPU {}, {} s each, one session, autogroup {}).",
        say::bold(format!("{:.2}", report.speedup)),
        report.cpu,
        report.seconds,
        on_off(report.autogroup)
    ));
}
