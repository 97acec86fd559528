//! Doing to an app what was decided, and finding out what it did.

use crate::account::{Done, What};
use crate::apps::{App, Key};
use crate::cgroup::Cgroup;
use crate::once::cpu_s;
use crate::params::Tuning;
use crate::processes::{Member, says_frozen};
use crate::ranges::{Choice, Hint, Hints, MANY, choose, swapped};
use crate::standing::{By, Standing};
use crate::swap::zram;
use crate::target::{Target, TargetError};
use crate::work::{End, Manner, work};
use kilter_api::MemoryUse;
use kilter_kernel::Kernel;
use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often it is asked whether the app has come back meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// Marking memory as cold is thirty times as fast as paging it out, so calls may be larger.
const COLD_CALLS: usize = 16;

/// Bytes that a cgroup is told to reclaim in one write.
const GROUP_BYTES: u64 = 8 << 20;

/// What came of an action.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was done, or a part of it.
    Done(Done),
    /// It plays audio, so it was left alone.
    Audio,
    /// Its processes are gone.
    Gone,
    /// The kernel refused.
    Refused(String),
}

/// Does it. `stop` is asked before each call, as is whether the app is still in the background.
pub fn act(
    kernel: &Kernel,
    key: &Key,
    app: &App,
    what: What,
    tuning: &Tuning,
    stop: &(dyn Fn() -> bool + Sync),
) -> Outcome {
    if what != What::Prefetch
        && app
            .members
            .iter()
            .any(|member| has_audio(kernel, member.pid))
    {
        return Outcome::Audio;
    }
    let (begun_s, before) = (cpu_s(), zram(kernel));
    let still = Still::new(kernel, app, tuning);
    let cancelled = || stop() || (what != What::Prefetch && !still.is_so());
    let mut cut_short = false;
    let by_group = match key {
        Key::Cgroup(name) if what == What::PageOut => {
            Cgroup::named(kernel, name).ok().filter(Cgroup::can_reclaim)
        }
        _ => None,
    };
    if let Some(group) = by_group {
        match squeeze(&group, &cancelled) {
            Ok(whole) => cut_short = !whole,
            Err(error) => return Outcome::Refused(error.to_string()),
        }
    } else {
        let mut alive = false;
        for &member in &app.members {
            match advise_one(kernel, member, what, tuning, &cancelled) {
                Ok(End::Whole) => alive = true,
                Ok(End::Refused(errno)) => {
                    return Outcome::Refused(std::io::Error::from_raw_os_error(errno).to_string());
                }
                Ok(End::Cancelled) => (alive, cut_short) = (true, true),
                Ok(End::Died | End::Executed) => {}
                Err(error @ TargetError::NotPermitted(_)) => {
                    return Outcome::Refused(error.to_string());
                }
                Err(_) => {}
            }
            if cut_short {
                break;
            }
        }
        if !alive {
            return Outcome::Gone;
        }
    }
    let after = memory_of(kernel, &app.members);
    let grew = |a: u64, b: u64| a.saturating_sub(b);
    Outcome::Done(Done {
        reclaimed: match what {
            What::PageOut => grew(app.memory.resident_bytes, after.resident_bytes),
            _ => 0,
        },
        cpu_s: cpu_s() - begun_s,
        after,
        stored: before
            .zip(zram(kernel))
            .map(|(a, b)| (grew(b.stored, a.stored), grew(b.used, a.used))),
        cut_short,
    })
}

fn advise_one(
    kernel: &Kernel,
    member: Member,
    what: What,
    tuning: &Tuning,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<End, TargetError> {
    let target = Target::open(&kernel.below("/proc"), member.pid, Some(member.start_ticks))?;
    let hints = |anon| Hints {
        anon,
        file: Hint::Cold,
    };
    let choice: Choice = match what {
        What::Cold => choose(&target, hints(Hint::Cold), MANY)?,
        // Pages of files cost nothing to drop when memory is needed, and more to read back.
        What::PageOut => choose(&target, hints(Hint::PageOut), MANY)?,
        What::Prefetch => swapped(&target)?,
    };
    let call_bytes = match what {
        What::Cold => tuning.call_bytes * COLD_CALLS,
        _ => tuning.call_bytes,
    };
    let manner = Manner {
        call_bytes,
        workers: tuning.workers,
    };
    Ok(work(&target, &choice, manner, cancelled).end)
}

/// Has a cgroup reclaim from itself; false if it was stopped.
fn squeeze(group: &Cgroup, cancelled: &dyn Fn() -> bool) -> std::io::Result<bool> {
    let mut left = group.memory().unwrap_or_default().resident_bytes;
    while left > 0 {
        if cancelled() {
            return Ok(false);
        }
        let bytes = left.min(GROUP_BYTES);
        match group.reclaim(bytes) {
            Ok(()) => left -= bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // No more can be had.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Memory of processes, by the counters that the kernel has at hand.
pub fn memory_of(kernel: &Kernel, members: &[Member]) -> MemoryUse {
    members
        .iter()
        .filter_map(|member| {
            fs::read_to_string(kernel.below(&format!("/proc/{}/status", member.pid))).ok()
        })
        .filter_map(|text| crate::usage::status(&text))
        .fold(MemoryUse::default(), |all, one| {
            crate::usage::sum(all, one.memory)
        })
}

/// Whether a process plays or records: it has a sound device open, or memory that it shares with a
/// sound server, or is one.
pub fn has_audio(kernel: &Kernel, pid: i32) -> bool {
    const SERVERS: [&str; 6] = [
        "pipewire",
        "pipewire-pulse",
        "pulseaudio",
        "wireplumber",
        "jackd",
        "jackdbus",
    ];
    let below = |file: &str| kernel.below(&format!("/proc/{pid}/{file}"));
    let name = fs::read_to_string(below("comm")).unwrap_or_default();
    if SERVERS.contains(&name.trim()) {
        return true;
    }
    let is_sound = |entry: fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|file| {
            let name = file.to_string_lossy();
            name.starts_with("/dev/snd/")
                || name.starts_with("/memfd:pipewire")
                || name.starts_with("/memfd:pulseaudio")
        })
    };
    fs::read_dir(below("fd"))
        .into_iter()
        .flatten()
        .flatten()
        .any(is_sound)
}

/// Whether an app is still in the background, by the one thing that said so; asked between calls.
struct Still {
    file: Option<std::path::PathBuf>,
    fits: Box<dyn Fn(&str) -> bool + Send + Sync>,
    asked: Mutex<(Instant, bool)>,
}

impl Still {
    fn new(kernel: &Kernel, app: &App, tuning: &Tuning) -> Self {
        let pid = app.first().map_or(0, |member| member.pid);
        let of_process = |file: &str| Some(kernel.below(&format!("/proc/{pid}/{file}")));
        type Fits = Box<dyn Fn(&str) -> bool + Send + Sync>;
        let (file, fits): (_, Fits) = match &app.standing {
            Standing::Cached(By::Frozen, _) => {
                (app.frozen_file().map(Into::into), Box::new(says_frozen))
            }
            Standing::Cached(By::Score, _) => {
                let from = tuning.oom_score_adj;
                let high =
                    move |text: &str| text.trim().parse::<i32>().is_ok_and(|now| now >= from);
                (of_process("oom_score_adj"), Box::new(high))
            }
            Standing::Cached(By::Idle, _) if app.members.len() == 1 => {
                // Waking up once is no use yet.
                let ticks = app.ticks() + 2;
                let idle = move |text: &str| {
                    crate::usage::stat(text.as_bytes()).is_some_and(|stat| stat.ticks <= ticks)
                };
                (of_process("stat"), Box::new(idle))
            }
            _ => (None, Box::new(|_: &str| true)),
        };
        Still {
            file,
            fits,
            asked: Mutex::new((Instant::now(), true)),
        }
    }

    fn is_so(&self) -> bool {
        let Some(file) = &self.file else { return true };
        let Ok(mut asked) = self.asked.lock() else {
            return true;
        };
        if asked.0.elapsed() >= LOOK {
            let text = fs::read(file).unwrap_or_default();
            *asked = (Instant::now(), (self.fits)(&String::from_utf8_lossy(&text)));
        }
        asked.1
    }
}
