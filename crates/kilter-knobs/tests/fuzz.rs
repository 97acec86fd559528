//! Files that anybody may have written, mutated at random: profiles, catalogs, TuneD's and sysctl.d's
//! files, journals. Nothing may panic, and nothing but the journal's undo may write, and that only
//! below `/proc/sys` and `/sys`.
//!
//! It runs for a second; `KILTER_FUZZ_SECONDS=600` for as long as one likes (`make fuzz`). A failure
//! names the seed, and `KILTER_FUZZ_SEED` begins with it.

use kilter_api::Settings;
use kilter_kernel::{Kernel, Store};
use kilter_knobs::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A generator of its own, so that a seed means the same for ever (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end.max(1)
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// Words that mean something to one of the parsers.
const WORDS: [&str; 40] = [
    "[set]",
    "[main]",
    "[sysctl]",
    "include=",
    "[[knob]]",
    "\"\"\"",
    "'''",
    "=",
    "{",
    "}",
    "[",
    "]",
    "vm.swappiness",
    "block.*.iostats",
    "*",
    "?",
    "<dev>",
    "..",
    "/",
    "\0",
    "\n",
    "\u{feff}",
    "é",
    "-9223372036854775808",
    "99999999999999999999",
    "0x",
    "1e400",
    "nan",
    "first:",
    "nearest:",
    "highest",
    "at-least:",
    "${f:",
    "}",
    "%",
    "-",
    ">",
    "/etc/passwd",
    "../../etc",
    "/proc/sys/vm/..",
];

fn mutate(random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut text = seed.to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(text.len() + 1);
        let end = (at + random.below(40)).min(text.len());
        match random.below(8) {
            0 => drop(text.drain(at..end)),
            1 => drop(text.splice(at..at, random.one(&WORDS).bytes())),
            2 => drop(text.splice(at..end, random.one(&WORDS).bytes())),
            3 => text.truncate(at),
            4 => {
                let from = random.below(other.len() + 1);
                let to = (from + random.below(200)).min(other.len());
                drop(text.splice(at..at, other[from..to].iter().copied()));
            }
            5 => {
                let again = text[at..end].to_vec();
                for _ in 0..random.below(20) {
                    text.splice(at..at, again.iter().copied());
                }
            }
            _ => {
                if let Some(byte) = text.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    text.truncate(1 << 20);
    text
}

/// A small machine in a directory, and files of kinds to begin with.
struct Machine {
    dir: tempfile::TempDir,
    catalog: Catalog,
    profiles: Vec<Vec<u8>>,
    catalogs: Vec<Vec<u8>>,
    workloads: Vec<Vec<u8>>,
    journals: Vec<Vec<u8>>,
}

const FILES: [(&str, &str); 9] = [
    ("proc/sys/vm/swappiness", "60\n"),
    ("proc/sys/vm/dirty_ratio", "20\n"),
    ("proc/sys/vm/dirty_bytes", "0\n"),
    (
        "proc/sys/kernel/random/boot_id",
        "00000000-0000-4000-8000-000000000000\n",
    ),
    (
        "sys/kernel/debug/sched/features",
        "PLACE_LAG NO_NEXT_BUDDY\n",
    ),
    ("sys/block/vda/queue/iostats", "1\n"),
    (
        "sys/block/vda/queue/scheduler",
        "none [mq-deadline] kyber\n",
    ),
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
    ("home/somebody/file", "theirs\n"),
];

const TUNED: &[u8] = b"[main]\nsummary=x\ninclude=base\n[variables]\na=10\n[sysctl]\nvm.swappiness=${a}\nvm.dirty_ratio=>40\n[vm]\ntransparent_hugepages=always\ndirty_bytes=20%\n[cpu]\ngovernor=schedutil|performance\nforce_latency=cstate.id:1|3\n[disk]\ndevices=!sd*\nelevator=none\nreadahead=>4096 s\n[sysfs]\n/sys/block/*/queue/iostats=0\n[scheduler]\nsched_min_granularity_ns=10000000\n[script]\nscript=${i:PROFILE_DIR}/x.sh\n";

const SYSCTL: &[u8] = b"# x\nvm.swappiness = 10\n-net.ipv4.tcp_rmem = 4096 131072 6291456\nvm/dirty_*_centisecs=5\n-vm.dirty_expire_centisecs\nkernel.sched_latency_ns=1\n";

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in FILES {
            put(&dir.path().join(file), text.as_bytes());
        }
        let catalog = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog");
        let all = |kind: &str| {
            let entries = fs::read_dir(catalog.join(kind)).unwrap().flatten();
            let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            files.sort();
            files.iter().map(|file| fs::read(file).unwrap()).collect()
        };
        let mut machine = Machine {
            catalog: Catalog::built_in(),
            profiles: all("profiles"),
            catalogs: all("knobs"),
            workloads: all("workloads"),
            journals: Vec::new(),
            dir,
        };
        machine.journals = vec![machine.journal()];
        machine.forget();
        machine
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn kernel(&self) -> Kernel {
        Kernel::new(self.root())
    }

    /// The journal of a layer as kilter writes it.
    fn journal(&self) -> Vec<u8> {
        let settings = Settings::from([
            ("vm.swappiness".to_owned(), "10".to_owned()),
            ("vm.dirty_ratio".to_owned(), "30".to_owned()),
            ("block.vda.scheduler".to_owned(), "kyber".to_owned()),
            ("sched.features.NEXT_BUDDY".to_owned(), "1".to_owned()),
        ]);
        let (kernel, consent) = (self.kernel(), Consent::default());
        let planned = plan(&kernel, &self.catalog, "p", &settings, &consent).unwrap();
        let store = Store::new(&kernel);
        let lock = store.lock().unwrap();
        let since = "2026-01-01T00:00:00Z";
        let begun = lock
            .begin(&kernel, "p", since, None, &planned.transaction)
            .unwrap();
        let file = self
            .root()
            .join(format!("run/kilter/layers/{:08}", begun.id));
        let text = fs::read(file).unwrap();
        lock.undo(&kernel, begun.id).unwrap();
        text
    }

    /// Everything outside kilter's own places.
    fn tree(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut dirs: Vec<PathBuf> = ["proc", "sys", "home", "etc/passwd"]
            .iter()
            .map(|name| self.root().join(name))
            .collect();
        while let Some(path) = dirs.pop() {
            match fs::read_dir(&path) {
                Ok(entries) => dirs.extend(entries.flatten().map(|entry| entry.path())),
                Err(_) => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
            }
        }
        found
    }

    fn forget(&self) {
        let _ = fs::remove_dir_all(self.root().join("etc/kilter"));
        let _ = fs::remove_dir_all(self.root().join("run"));
        let _ = fs::remove_dir_all(self.root().join("etc/tuned"));
        for (file, text) in FILES {
            put(&self.root().join(file), text.as_bytes());
        }
    }
}

fn put(file: &Path, text: &[u8]) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// Checksums of mutated lines made right, so that what is behind them is reached.
fn with_checksums(journal: &[u8]) -> Vec<u8> {
    let lines = journal.split(|&byte| byte == b'\n');
    lines
        .flat_map(|line| {
            let json = line.get(9..).unwrap_or_default();
            let mut whole = format!("{:08x} ", crc32fast::hash(json)).into_bytes();
            whole.extend_from_slice(json);
            whole.push(b'\n');
            whole
        })
        .collect()
}

fn pick<'a>(random: &mut Random, from: &'a [Vec<u8>]) -> &'a [u8] {
    &from[random.below(from.len())]
}

/// One file of some kind, mutated, and everything that kilter does with it.
fn one(machine: &Machine, random: &mut Random) {
    let root = machine.root();
    let (kernel, places) = (machine.kernel(), Places::new(root, true));
    let other = pick(random, &machine.catalogs);
    let kind = random.below(6);
    match kind {
        0 => {
            let seed = pick(random, &machine.profiles);
            let text = mutate(random, seed, other);
            put(&root.join("etc/kilter/profiles/desktop.toml"), &text);
            use_profiles(&kernel, &places, &machine.catalog);
        }
        1 => {
            let seed = pick(random, &machine.catalogs);
            let text = mutate(random, seed, other);
            put(&root.join("etc/kilter/knobs/mine.toml"), &text);
            if let Ok(catalog) = Catalog::load(&places) {
                probe_all(&kernel, &catalog);
                use_profiles(&kernel, &places, &catalog);
            }
        }
        2 => {
            let seed = pick(random, &machine.workloads);
            let text = mutate(random, seed, other);
            put(&root.join("etc/kilter/workloads/mine.toml"), &text);
            let _ = Catalog::workloads(&places);
        }
        3 => {
            put(
                &root.join("etc/tuned/x/tuned.conf"),
                &mutate(random, TUNED, other),
            );
            put(
                &root.join("etc/tuned/base/tuned.conf"),
                &mutate(random, TUNED, SYSCTL),
            );
            let _ = import_tuned(&machine.catalog, root, "x", random.below(2) == 0);
        }
        4 => {
            let text = mutate(random, SYSCTL, other);
            let text = String::from_utf8_lossy(&text);
            import_sysctl(&machine.catalog, Path::new("x.conf"), &text);
            let writes = text.lines().filter_map(|line| line.split_once('='));
            import_writes(&machine.catalog, &kernel, writes, "x.sh");
        }
        _ => {
            let text = mutate(random, &machine.journals[0], other);
            let text = if random.below(4) == 0 {
                text
            } else {
                with_checksums(&text)
            };
            put(&root.join("run/kilter/layers/00000001"), &text);
            let store = Store::new(&kernel);
            let _ = store.status(&kernel);
            if let Ok(lock) = store.lock() {
                let _ = lock.recover(&kernel);
                let _ = lock.revert(&kernel, None, random.below(2) == 0);
            }
        }
    }
    check(machine, kind);
    machine.forget();
}

fn use_profiles(kernel: &Kernel, places: &Places, catalog: &Catalog) {
    let _ = all_profiles(places);
    let consent = Consent {
        skip_risky: true,
        ..Consent::default()
    };
    if let Ok((_, settings)) = resolve_profile(places, "desktop") {
        let _ = plan(kernel, catalog, "desktop", &settings, &consent);
    }
    if let Ok((profile, values)) = profile_values(places, "desktop")
        && let Ok(items) = export_items(catalog, &values, &consent)
    {
        let script = shell_script(&profile, &items, "/bin/sh");
        magisk_module(&profile, &script);
        sysctl_conf(&profile, &items);
        tuned_conf(&profile, &items);
        systemd_unit(&profile, "/usr/local/sbin/x");
    }
}

/// Nothing was written; by a journal's undo at most what stands below `/proc/sys` and `/sys`.
fn check(machine: &Machine, kind: usize) {
    for (file, text) in machine.tree() {
        let inside = file.strip_prefix(machine.root()).unwrap().to_owned();
        let known = FILES.iter().find(|(name, _)| Path::new(name) == inside);
        let (_, original) = known.unwrap_or_else(|| panic!("{} was made", inside.display()));
        let undoable = inside.starts_with("proc/sys") || inside.starts_with("sys");
        assert!(
            text == original.as_bytes() || (kind == 5 && undoable),
            "{} was written",
            inside.display()
        );
    }
}

#[test]
fn files_of_any_content_do_no_harm() {
    let variable = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seconds = variable("KILTER_FUZZ_SECONDS").unwrap_or(1);
    let machine = Machine::new();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut seed = variable("KILTER_FUZZ_SEED").unwrap_or(1).max(1);
    let mut done = 0_u64;
    while Instant::now() < until {
        let outcome = std::panic::catch_unwind(|| one(&machine, &mut Random(seed)));
        if let Err(panic) = outcome {
            eprintln!("KILTER_FUZZ_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
        // Neighbouring seeds begin alike; a stride keeps them apart.
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15).max(1);
        done += 1;
    }
    eprintln!("{done} files in {seconds} s");
    assert!(done > 0);
}
