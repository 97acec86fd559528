//! What the whole machine goes through: pressure, stolen time, load.

use crate::read_below;
use kilter_api::{MachineDelta, Pressure};
use std::path::Path;

/// Totals of the machine at one moment; the difference of two is a [`MachineDelta`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineState {
    steal_ticks: u64,
    ticks_per_s: f64,
    load_1m: f64,
    cpu: Option<Stall>,
    memory: Option<Stall>,
    io: Option<Stall>,
}

/// Microseconds since boot in which some, and all, tasks stalled on a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stall {
    some_us: u64,
    full_us: u64,
}

impl MachineState {
    /// Reads `proc/pressure/*`, `proc/stat` and `proc/loadavg` below `root`. What is missing (no
    /// PSI in the kernel, a container without `/proc/stat`) counts as nothing.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let stall = |resource: &str| {
            parse_pressure(&read_below(root, &format!("proc/pressure/{resource}"))?)
        };
        Self {
            steal_ticks: read_below(root, "proc/stat")
                .and_then(|text| parse_steal(&text))
                .unwrap_or(0),
            ticks_per_s: ticks_per_second(),
            load_1m: read_below(root, "proc/loadavg")
                .and_then(|text| parse_load(&text))
                .unwrap_or(0.0),
            cpu: stall("cpu"),
            memory: stall("memory"),
            io: stall("io"),
        }
    }

    /// What happened from `self` until `after`.
    #[must_use]
    pub fn until(&self, after: &Self) -> MachineDelta {
        let steal = after.steal_ticks.saturating_sub(self.steal_ticks);
        MachineDelta {
            steal_s: if self.ticks_per_s > 0.0 {
                steal as f64 / self.ticks_per_s
            } else {
                0.0
            },
            load_1m: self.load_1m,
            pressure: self.pressure_until(after),
        }
    }

    fn pressure_until(&self, after: &Self) -> Option<Pressure> {
        let none = [self.cpu, self.memory, self.io].iter().all(Option::is_none);
        let seconds = |from: Option<Stall>, to: Option<Stall>, part: fn(Stall) -> u64| {
            let (Some(from), Some(to)) = (from, to) else {
                return 0.0;
            };
            part(to).saturating_sub(part(from)) as f64 / 1e6
        };
        (!none).then(|| Pressure {
            cpu_some_s: seconds(self.cpu, after.cpu, |stall| stall.some_us),
            memory_some_s: seconds(self.memory, after.memory, |stall| stall.some_us),
            memory_full_s: seconds(self.memory, after.memory, |stall| stall.full_us),
            io_some_s: seconds(self.io, after.io, |stall| stall.some_us),
            io_full_s: seconds(self.io, after.io, |stall| stall.full_us),
        })
    }
}

/// `proc/pressure/*`: lines `some avg10=… avg60=… avg300=… total=MICROSECONDS`. Kernels before 5.13
/// have no `full` line for the CPU.
fn parse_pressure(text: &str) -> Option<Stall> {
    let total = |kind: &str| {
        let line = text
            .lines()
            .find(|line| line.split_ascii_whitespace().next() == Some(kind))?;
        line.split_ascii_whitespace()
            .find_map(|field| field.strip_prefix("total="))?
            .parse()
            .ok()
    };
    Some(Stall {
        some_us: total("some")?,
        full_us: total("full").unwrap_or(0),
    })
}

/// The eighth number of `proc/stat`'s line `cpu`, in clock ticks.
fn parse_steal(text: &str) -> Option<u64> {
    let mut fields = text.lines().next()?.split_ascii_whitespace();
    (fields.next()? == "cpu")
        .then(|| fields.nth(7)?.parse().ok())
        .flatten()
}

fn parse_load(text: &str) -> Option<f64> {
    text.split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
        .filter(|load: &f64| load.is_finite())
}

fn ticks_per_second() -> f64 {
    // SAFETY: asks for a constant of the system.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESSURE: &str = "some avg10=0.12 avg60=0.05 avg300=0.01 total=4699484\n\
                            full avg10=0.00 avg60=0.00 avg300=0.00 total=17\n";

    #[test]
    fn parses_pressure_with_and_without_full() {
        assert_eq!(
            parse_pressure(PRESSURE),
            Some(Stall {
                some_us: 4_699_484,
                full_us: 17
            })
        );
        let old = PRESSURE.lines().next().unwrap();
        assert_eq!(
            parse_pressure(old),
            Some(Stall {
                some_us: 4_699_484,
                full_us: 0
            })
        );
        for broken in [
            "",
            "some",
            "some total=",
            "some total=-1",
            "full total=3",
            "sometotal=3",
        ] {
            assert_eq!(parse_pressure(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn parses_steal_and_load() {
        let stat = "cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1 2 3 4 5 6 7 44 9 10\n";
        assert_eq!(parse_steal(stat), Some(88));
        assert_eq!(parse_steal("cpu  1 2 3\n"), None);
        assert_eq!(parse_steal("intr 1 2 3 4 5 6 7 8\n"), None);
        assert_eq!(parse_load("0.52 0.58 0.59 1/467 1234\n"), Some(0.52));
        assert_eq!(parse_load("nan 0 0"), None);
    }

    #[test]
    fn reads_below_a_root_and_subtracts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/stat", "cpu 1 1 1 1 1 1 1 100 0 0\n");
        write("proc/loadavg", "1.25 1 1 1/1 1\n");
        write(
            "proc/pressure/memory",
            "some total=1000000\nfull total=500000\n",
        );
        let before = MachineState::read(root.path());
        write("proc/stat", "cpu 9 9 9 9 9 9 9 150 0 0\n");
        write("proc/loadavg", "7.00 1 1 1/1 1\n");
        write(
            "proc/pressure/memory",
            "some total=3500000\nfull total=1500000\n",
        );
        let delta = before.until(&MachineState::read(root.path()));
        assert_eq!(delta.steal_s, 50.0 / ticks_per_second());
        assert_eq!(delta.load_1m, 1.25);
        let pressure = delta.pressure.unwrap();
        assert_eq!((pressure.memory_some_s, pressure.memory_full_s), (2.5, 1.0));
        assert_eq!((pressure.cpu_some_s, pressure.io_some_s), (0.0, 0.0));
    }

    #[test]
    fn a_bare_root_has_no_pressure() {
        let root = tempfile::tempdir().unwrap();
        let state = MachineState::read(root.path());
        assert_eq!(state.until(&state), MachineDelta::default());
    }

    #[test]
    fn totals_that_went_backwards_count_as_nothing() {
        let later = MachineState {
            steal_ticks: 5,
            ticks_per_s: 100.0,
            ..MachineState::default()
        };
        assert_eq!(later.until(&MachineState::default()).steal_s, 0.0);
    }

    #[test]
    fn the_real_files_parse() {
        let root = Path::new("/");
        let state = MachineState::read(root);
        for (resource, stall) in [
            ("cpu", state.cpu),
            ("memory", state.memory),
            ("io", state.io),
        ] {
            match read_below(root, &format!("proc/pressure/{resource}")) {
                Some(_) => assert!(stall.is_some(), "{resource}"),
                None => eprintln!("skipped: no readable /proc/pressure/{resource} here"),
            }
        }
        if Path::new("/proc/loadavg").exists() {
            assert!(state.load_1m >= 0.0);
            let delta = state.until(&MachineState::read(root));
            assert!(delta.steal_s >= 0.0);
        } else {
            eprintln!("skipped: no /proc/loadavg here");
        }
    }
}
