//! A kernel in memory: rounds, clamps, couples and refuses as the real one was seen to do.

use crate::kernel::{FileError, Files, Refusal};
use crate::path::KernelPath;
use crate::{Step, Transaction};
use kilter_api::Format;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

pub const QUEUE: &str = "/sys/block/vda/queue";
pub const SCHED: &str = "/sys/kernel/debug/sched";
pub const VM: &str = "/proc/sys/vm";

/// Death by SIGKILL, for a test: unwinds out of the transaction.
pub struct Killed;

#[derive(Debug)]
pub struct FakeKernel {
    files: RefCell<BTreeMap<String, String>>,
    /// The copy from which CPU hotplug recomputes scheduler values.
    normalized: RefCell<BTreeMap<String, i64>>,
    /// Writes left until death; half of the deaths come before the write, half after.
    pub fuse: Cell<Option<usize>>,
    pub writes: Cell<usize>,
}

/// What this machine multiplies normalized scheduler values with when scaling is on.
const FACTOR: i64 = 2;

impl FakeKernel {
    pub fn new() -> Self {
        let files = [
            (VM, "swappiness", "60"),
            (VM, "dirty_ratio", "20"),
            (VM, "dirty_bytes", "0"),
            (VM, "dirty_background_ratio", "10"),
            (VM, "dirty_background_bytes", "0"),
            (VM, "min_free_kbytes", "20000"),
            (VM, "laptop_mode", "0"),
            ("/proc/sys/kernel", "sched_rt_period_us", "1000000"),
            ("/proc/sys/kernel", "sched_rt_runtime_us", "950000"),
            ("/proc/sys/kernel", "printk_devkmsg", "ratelimit"),
            ("/proc/sys/kernel", "nmi_watchdog", "1"),
            (QUEUE, "scheduler", "none [mq-deadline] kyber bfq"),
            (QUEUE, "nr_requests", "128"),
            (QUEUE, "read_ahead_kb", "64"),
            (QUEUE, "iostats", "1"),
            (QUEUE, "wbt_lat_usec", "5000"),
            (QUEUE, "iosched/read_expire", "333"),
            (QUEUE, "iosched/fifo_batch", "16"),
            (SCHED, "features", "PLACE_LAG NO_NEXT_BUDDY RUN_TO_PARITY"),
            (SCHED, "base_slice_ns", "1400000"),
            (SCHED, "migration_cost_ns", "500000"),
            (SCHED, "tunable_scaling", "1"),
            (
                "/sys/kernel/mm/transparent_hugepage",
                "enabled",
                "always [madvise] never",
            ),
        ];
        let files = files
            .into_iter()
            .map(|(dir, name, value)| (format!("{dir}/{name}"), format!("{value}\n")));
        FakeKernel {
            files: RefCell::new(files.collect()),
            normalized: RefCell::new(BTreeMap::from([("base_slice_ns".to_owned(), 700_000)])),
            fuse: Cell::new(None),
            writes: Cell::new(0),
        }
    }

    pub fn state(&self) -> BTreeMap<String, String> {
        self.files.borrow().clone()
    }

    pub fn get(&self, path: &str) -> String {
        self.files
            .borrow()
            .get(path)
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    }

    /// Somebody else writes.
    pub fn echo(&self, value: &str, path: &str) {
        self.apply(path, &format!("{value}\n")).unwrap();
    }

    /// A CPU goes away and comes back: scaled values are computed anew from the hidden copy.
    pub fn hotplug(&self) {
        let value = self.normalized.borrow()["base_slice_ns"] * self.factor();
        self.set(&format!("{SCHED}/base_slice_ns"), &value.to_string());
    }

    pub fn remove(&self, prefix: &str) {
        self.files
            .borrow_mut()
            .retain(|path, _| !path.starts_with(prefix));
    }

    fn factor(&self) -> i64 {
        if self.get(&format!("{SCHED}/tunable_scaling")) == "0" {
            1
        } else {
            FACTOR
        }
    }

    fn set(&self, path: &str, value: &str) {
        self.files
            .borrow_mut()
            .insert(path.to_owned(), format!("{value}\n"));
    }

    fn apply(&self, path: &str, text: &str) -> Result<(), FileError> {
        let refuse = |errno: i32, refusal| {
            Err(FileError {
                path: path.to_owned(),
                refusal,
                errno,
            })
        };
        let invalid = || refuse(libc::EINVAL, Refusal::Invalid);
        let old = self.get(path);
        let value = text.trim();
        let number = value.parse::<i64>().unwrap_or(-1);
        if !self.files.borrow().contains_key(path) {
            return refuse(libc::ENOENT, Refusal::Absent);
        }
        let (dir, name) = match path.strip_prefix(QUEUE) {
            Some(rest) => (QUEUE, rest.trim_start_matches('/')),
            None => path.rsplit_once('/').unwrap(),
        };
        match (dir, name) {
            (VM, "dirty_ratio" | "dirty_background_ratio") => {
                if !(0..=100).contains(&number) {
                    return invalid();
                }
                self.set(path, value);
                // dirty_ratio zeroes its partner only when the number changes.
                if name == "dirty_background_ratio" || value != old {
                    self.set(&path.replace("_ratio", "_bytes"), "0");
                }
            }
            (VM, "dirty_bytes" | "dirty_background_bytes") => {
                if number < 8192 {
                    return invalid();
                }
                self.set(path, value);
                self.set(&path.replace("_bytes", "_ratio"), "0");
            }
            (VM, "laptop_mode") => {}
            (VM, "swappiness") if !(0..=200).contains(&number) => return invalid(),
            ("/proc/sys/kernel", "sched_rt_runtime_us")
                if number > self.number("sched_rt_period_us") =>
            {
                return invalid();
            }
            ("/proc/sys/kernel", "sched_rt_period_us")
                if number < self.number("sched_rt_runtime_us") =>
            {
                return invalid();
            }
            ("/proc/sys/kernel", "printk_devkmsg") if !text.ends_with('\n') => return invalid(),
            ("/proc/sys/kernel", "nmi_watchdog") => return refuse(524, Refusal::Unsupported),
            (QUEUE, "scheduler") => return self.switch(value).or_else(|()| invalid()),
            (QUEUE, "nr_requests") => self.set(path, &number.max(4).to_string()),
            (QUEUE, "read_ahead_kb") => self.set(path, &(number / 4 * 4).to_string()),
            (QUEUE, "iostats") => {
                self.set(path, value);
                self.lift_read_ahead();
            }
            (SCHED, "features") => return self.feature(value).or_else(|()| invalid()),
            (SCHED, "tunable_scaling") => {
                self.set(path, value);
                let base = self
                    .get(&format!("{SCHED}/base_slice_ns"))
                    .parse::<i64>()
                    .unwrap();
                self.normalized
                    .borrow_mut()
                    .insert("base_slice_ns".to_owned(), base / self.factor());
            }
            ("/sys/kernel/mm/transparent_hugepage", "enabled") => {
                self.set(path, &pick("always madvise never", value));
                let reserve = if value == "never" { "5579" } else { "45056" };
                self.set(&format!("{VM}/min_free_kbytes"), reserve);
            }
            _ => self.set(path, value),
        }
        Ok(())
    }

    fn number(&self, name: &str) -> i64 {
        self.get(&format!("/proc/sys/kernel/{name}"))
            .parse()
            .unwrap()
    }

    fn lift_read_ahead(&self) {
        let file = format!("{QUEUE}/read_ahead_kb");
        let lifted = self.get(&file).parse::<i64>().unwrap().max(128);
        self.set(&file, &lifted.to_string());
    }

    fn switch(&self, value: &str) -> Result<(), ()> {
        let chosen = if value.starts_with("none") {
            "none"
        } else {
            value
        };
        if !["none", "mq-deadline", "kyber", "bfq"].contains(&chosen) {
            return Err(());
        }
        if self
            .get(&format!("{QUEUE}/scheduler"))
            .contains(&format!("[{chosen}]"))
        {
            return Ok(());
        }
        self.set(
            &format!("{QUEUE}/scheduler"),
            &pick("none mq-deadline kyber bfq", chosen),
        );
        self.set(
            &format!("{QUEUE}/nr_requests"),
            if chosen == "none" { "64" } else { "256" },
        );
        self.remove(&format!("{QUEUE}/iosched/"));
        if chosen == "mq-deadline" {
            self.set(&format!("{QUEUE}/iosched/read_expire"), "500");
            self.set(&format!("{QUEUE}/iosched/fifo_batch"), "16");
        }
        if chosen == "kyber" {
            self.set(&format!("{QUEUE}/iosched/read_lat_nsec"), "2000000");
        }
        self.set(
            &format!("{QUEUE}/wbt_lat_usec"),
            if chosen == "bfq" { "0" } else { "5000" },
        );
        self.lift_read_ahead();
        Ok(())
    }

    fn feature(&self, word: &str) -> Result<(), ()> {
        let name = word.strip_prefix("NO_").unwrap_or(word);
        let line = self.get(&format!("{SCHED}/features"));
        let mut found = false;
        let words: Vec<&str> = line
            .split(' ')
            .map(|old| {
                let same = old.strip_prefix("NO_").unwrap_or(old) == name;
                found |= same;
                if same { word } else { old }
            })
            .collect();
        self.set(&format!("{SCHED}/features"), &words.join(" "));
        if found { Ok(()) } else { Err(()) }
    }
}

fn pick(words: &str, chosen: &str) -> String {
    let mark = |word: &str| {
        if word == chosen {
            format!("[{word}]")
        } else {
            word.to_owned()
        }
    };
    words.split(' ').map(mark).collect::<Vec<_>>().join(" ")
}

impl Files for FakeKernel {
    fn read(&self, path: &KernelPath) -> Result<String, FileError> {
        self.files
            .borrow()
            .get(path.as_str())
            .cloned()
            .ok_or(FileError {
                path: path.to_string(),
                refusal: Refusal::Absent,
                errno: libc::ENOENT,
            })
    }

    fn write(&self, path: &KernelPath, text: &str) -> Result<(), FileError> {
        self.writes.set(self.writes.get() + 1);
        match self.fuse.get() {
            Some(0) => std::panic::panic_any(Killed),
            Some(1) => {
                let _ = self.apply(path.as_str(), text);
                std::panic::panic_any(Killed)
            }
            Some(left) => self.fuse.set(Some(left - 2)),
            None => {}
        }
        self.apply(path.as_str(), text)
    }
}

/// A step that sets a file, or only watches it.
pub fn step(knob: &str, path: String, format: Format, value: Option<&str>) -> Step {
    Step {
        knob: knob.to_owned(),
        path: KernelPath::new(path).unwrap(),
        format,
        value: value.map(str::to_owned),
        excludes: None,
        commit: None,
        appears: false,
    }
}

fn pair(name: &str, value: Option<&str>) -> Step {
    let partner = match name.strip_suffix("_ratio") {
        Some(stem) => format!("{stem}_bytes"),
        None => name.replace("_bytes", "_ratio"),
    };
    let excludes = Some(KernelPath::new(format!("{VM}/{partner}")).unwrap());
    Step {
        excludes,
        ..step(
            &format!("vm.{name}"),
            format!("{VM}/{name}"),
            Format::Plain,
            value,
        )
    }
}

/// The steps that the catalog's couplings make of one setting, as `kilter-knobs` compiles them.
pub fn set(knob: &str, value: &str) -> Transaction {
    let plain = |path: String| step(knob, path, Format::Plain, Some(value));
    let watch = |name: &str| {
        step(
            &format!("block.vda.{name}"),
            format!("{QUEUE}/{name}"),
            Format::Plain,
            None,
        )
    };
    let steps = match knob {
        "vm.dirty_ratio" => vec![pair("dirty_ratio", Some(value)), pair("dirty_bytes", None)],
        "vm.dirty_bytes" => vec![pair("dirty_bytes", Some(value)), pair("dirty_ratio", None)],
        "vm.dirty_background_ratio" => vec![
            pair("dirty_background_ratio", Some(value)),
            pair("dirty_background_bytes", None),
        ],
        "vm.dirty_background_bytes" => vec![
            pair("dirty_background_bytes", Some(value)),
            pair("dirty_background_ratio", None),
        ],
        "thp.enabled" => vec![
            step(
                knob,
                "/sys/kernel/mm/transparent_hugepage/enabled".into(),
                Format::Bracketed,
                Some(value),
            ),
            step(
                "vm.min_free_kbytes",
                format!("{VM}/min_free_kbytes"),
                Format::Plain,
                None,
            ),
        ],
        "block.vda.scheduler" => vec![
            step(
                knob,
                format!("{QUEUE}/scheduler"),
                Format::Bracketed,
                Some(value),
            ),
            watch("iosched/read_expire"),
            watch("iosched/fifo_batch"),
            watch("iosched/read_lat_nsec"),
            watch("nr_requests"),
            watch("wbt_lat_usec"),
            watch("read_ahead_kb"),
        ],
        "block.vda.iostats" => vec![plain(format!("{QUEUE}/iostats")), watch("read_ahead_kb")],
        "sched.base_slice_ns" => vec![Step {
            commit: Some(KernelPath::new(format!("{SCHED}/tunable_scaling")).unwrap()),
            ..plain(format!("{SCHED}/base_slice_ns"))
        }],
        _ => match knob.split_once('.').unwrap() {
            ("vm", name) => vec![plain(format!("{VM}/{name}"))],
            ("kernel", name) => vec![plain(format!("/proc/sys/kernel/{name}"))],
            ("block", name) => vec![plain(format!(
                "{QUEUE}/{}",
                name.trim_start_matches("vda.")
            ))],
            ("sched", name) if name.starts_with("features.") => {
                vec![step(
                    knob,
                    format!("{SCHED}/features"),
                    Format::Feature,
                    Some(value),
                )]
            }
            (_, name) => vec![plain(format!("{SCHED}/{name}"))],
        },
    };
    Transaction { steps }
}

/// Several settings as one transaction, resetters first.
pub fn all(settings: &[(&str, &str)]) -> Transaction {
    let mut steps: Vec<Step> = Vec::new();
    for (knob, value) in settings {
        for step in set(knob, value).steps {
            match steps
                .iter_mut()
                .find(|other| other.path == step.path && other.knob == step.knob)
            {
                Some(other) => other.value = other.value.take().or(step.value),
                None => steps.push(step),
            }
        }
    }
    let rank = |step: &Step| match step.path.as_str() {
        path if path.ends_with("/scheduler")
            || path.ends_with("/enabled")
            || path.ends_with("tunable_scaling") =>
        {
            0
        }
        path if path.ends_with("/read_ahead_kb") => 2,
        _ => 1,
    };
    steps.sort_by_key(rank);
    // As the planner has it: only what the chosen scheduler brings may come late.
    for step in &mut steps {
        let brought = [("mq-deadline", "read_expire"), ("kyber", "read_lat_nsec")];
        step.appears = brought.iter().any(|(scheduler, file)| {
            step.path.as_str().ends_with(file)
                && settings.contains(&("block.vda.scheduler", *scheduler))
        });
    }
    Transaction { steps }
}
