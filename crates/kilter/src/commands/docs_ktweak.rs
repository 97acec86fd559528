//! `docs/ktweak.md`: each tweak of KTweak on kernels that were looked at, out of the catalog, the two
//! profiles and what guests of each kernel reported (`tests/vm/golden`).

use kilter_api::{KnobSpec, Profile};
use kilter_knobs::Catalog;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// What a kernel reported of each entry of the catalog: its file and the words it offers, or why not.
pub struct Kernel {
    /// `6.1`.
    pub series: String,
    /// By the entry's name.
    pub entries: BTreeMap<String, String>,
}

/// The page.
pub fn page(catalog: &Catalog, profiles: &[Profile], kernels: &[Kernel]) -> String {
    let profile = |name: &str| profiles.iter().find(|profile| profile.name == name);
    let (Some(readme), Some(script)) = (profile("ktweak"), profile("ktweak-script")) else {
        return String::new();
    };
    let names: BTreeSet<&String> = readme.set.keys().chain(script.set.keys()).collect();
    let tweaks: Vec<Tweak> = names
        .into_iter()
        .filter_map(|name| Tweak::new(catalog, name, readme, script))
        .collect();
    let mut text = format!("# KTweak, tweak by tweak\n\n{INTRODUCTION}\n");
    table(&mut text, &tweaks, kernels);
    counts(&mut text, &tweaks, kernels);
    let _ = write!(text, "\n{MEASURE}\n\n{MEASURED}\n\n## Each tweak\n");
    for tweak in &tweaks {
        entry(&mut text, tweak);
    }
    text
}

const INTRODUCTION: &str = "Made from the catalog, the profiles `ktweak` (the README's values) and `ktweak-script` (the script's, which differ), and what kernels out of Debian's suites reported in guests (`tests/vm/golden`), by a test of `kilter docs`.

- *applies*: the file is where the script writes it.
- *moved*: the kernel has the setting elsewhere. The script finds nothing and says nothing; kilter writes it at its new place.
- *gone*: the kernel has it no more.
- *other device*: these guests have no such hardware (CPU frequencies, for one); kernels that do have it take it.
- *phones*: kernels of phones alone have it, none of these.
- *refused*: the file is there, and offers nothing of what KTweak asks for; otherwise the word that it takes is named. Modules bring more I/O schedulers.

`kilter apply ktweak-script --allow security,durability` sets what a kernel has at its present place, tells of the rest with the reason, reads back, and `kilter revert ktweak-script` undoes it. `kilter export ktweak-script --to magisk` makes a module of it.";

const MEASURE: &str = "KTweak's figures come from one phone, as averages without a spread. What a profile does on your machine, as a whole and line by line, with intervals:

```
sudo kilter compare --with ktweak-script --allow security,durability --workload hackbench
sudo kilter audit ktweak-script --allow security,durability --workload hackbench
sudo kilter compare --with ktweak --allow durability --workload voicemark
```

hackbench rewards never preempting; look at `wakeup`, `latencymark` and `cyclictest-loaded` beside it.";

/// Told by the commands that it names; nothing makes it anew.
const MEASURED: &str = "## What kilter measured

`kilter compare --workload W --with ktweak-script --allow security,durability --budget 280s` (180 s from memcpy on) for each of KTweak's workloads, on Linux 6.18 with two CPUs of a quiet virtual machine. There 19 of the script's 43 settings apply: of memory, of the disk, of the network; its kernel keeps the scheduler's files to itself.

| workload | metric | with `ktweak-script` | blocks | verdict |
| --- | --- | --- | --- | --- |
| `hackbench-threads` | time | +0.1 % (−6.3 to +7.0) | 6 | inconclusive |
| `hackbench-processes` | time | −0.6 % (no interval) | 2 | inconclusive |
| `perf-bench-memcpy` | bytes per second | +1.5 % (−2.7 to +6.0) | 65 | inconclusive |
| `cyclictest-loaded` | mean latency | +0.8 % (−4.6 to +6.6) | 36 | inconclusive |
| `voicemark` | voices | +0.9 % (−3.3 to +5.3) | 10 | inconclusive |
| `latencymark` | smallest buffer | −9.3 % (−33.3 to +38.4) | 11 | inconclusive |

No effect showed, for better or worse; none beyond the intervals is likely.

On Linux 6.1, whose scheduler takes KTweak's times (a guest of `make test-vm`, two CPUs, emulated), `kilter compare --with ktweak --with ktweak-script --allow security,durability -- hackbench -pl 60` and the same with `--workload wakeup`; intervals of 97.5 %:

| | `ktweak` (the README's values) | `ktweak-script` | blocks |
| --- | --- | --- | --- |
| `hackbench -pl 60`: time | −54 % (−28 to −71): better | −5 % (−36 to +41): inconclusive | 5; 6 |
| `wakeup`: latency, 99 % | +27 % (−8 to +80): inconclusive | +32 % (−11 to +99): inconclusive | 21 |
| `wakeup`: latency, 90 % (shown beside, decides nothing) | 3.4 times (1.6 to 7.5) | 3.7 times (1.7 to 8.0) | 21 |

So the README's claim for `hackbench -pl 8000` (94 % less time with `sched.wakeup_granularity_ns` at 10 ms) has a core: under the README's values, which let a wake-up preempt least, hackbench takes half its time on that kernel. Whoever wakes up beside other work seems to wait longer for it. Kernels from 6.6 on have no such setting.";

struct Tweak<'a> {
    name: &'a str,
    spec: &'a KnobSpec,
    readme: Option<&'a str>,
    script: Option<&'a str>,
    why: Vec<&'a str>,
}

impl<'a> Tweak<'a> {
    fn new(
        catalog: &'a Catalog,
        name: &'a str,
        readme: &'a Profile,
        script: &'a Profile,
    ) -> Option<Self> {
        let template = name.replacen("block.*.", "block.<dev>.", 1).replacen(
            "cpufreq.*.",
            "cpufreq.<policy>.",
            1,
        );
        let (readme, script) = (readme.set.get(name), script.set.get(name));
        let mut why: Vec<&str> = Vec::new();
        for value in [readme, script].into_iter().flatten() {
            if !why.contains(&value.why.trim()) {
                why.push(value.why.trim());
            }
        }
        Some(Tweak {
            name,
            spec: catalog.find(&template).ok()?,
            readme: readme.map(|value| value.value.as_str()),
            script: script.map(|value| value.value.as_str()),
            why,
        })
    }

    /// The file that KTweak writes: the oldest place.
    fn old_place(&self) -> &str {
        let places = || self.spec.paths.iter().map(|place| place.file.as_str());
        let old = |file: &&str| file.starts_with("/proc/sys/") || file.ends_with("/sched_features");
        places().find(old).or_else(|| places().next()).unwrap_or("")
    }

    fn only_phones(&self) -> bool {
        let of_phones = |era: &str| ["Android", "Qualcomm"].iter().any(|who| era.contains(who));
        self.spec.paths.iter().all(|place| of_phones(&place.era))
    }

    fn in_all_kernels(&self) -> bool {
        let old = |era: &str| {
            ["all", "≥ 3.", "≥ 4."]
                .iter()
                .any(|start| era.starts_with(start))
        };
        let mut places = self.spec.paths.iter();
        places.any(|place| place.file == self.old_place() && old(&place.era))
    }

    /// What becomes of it on a kernel, in a word or two.
    fn fate(&self, kernel: &Kernel) -> String {
        if self.only_phones() {
            return "phones".to_owned();
        }
        let report = kernel.entries.get(&self.spec.name).map(String::as_str);
        let Some(report) = report else {
            // The guests have not been asked since the entry is in the catalog.
            return match self.spec.name.starts_with("cpufreq.") {
                true => "other device".to_owned(),
                false if self.in_all_kernels() => "applies".to_owned(),
                false => "not looked at".to_owned(),
            };
        };
        let mut words = report.split_whitespace();
        match words.next() {
            Some(file) if file.starts_with('/') => {
                let offered: Vec<&str> = words.collect();
                if let Some(chosen) = self.chosen(&offered) {
                    return chosen;
                }
                match file == self.old_place() {
                    true => "applies".to_owned(),
                    false => "moved".to_owned(),
                }
            }
            _ if self.spec.name.starts_with("cpufreq.") => "other device".to_owned(),
            Some("absent") => "gone".to_owned(),
            _ => report.to_owned(),
        }
    }

    /// Of lists of wishes, what each gets of what is offered; none where there is no list.
    fn chosen(&self, offered: &[&str]) -> Option<String> {
        let fate = |who: &str, value: Option<&str>| {
            let list = value?.strip_prefix("first:")?;
            Some(match list.split(',').find(|word| offered.contains(word)) {
                Some(word) => format!("{who}: `{word}`"),
                None => format!("{who}: refused"),
            })
        };
        let fates: Vec<String> = [fate("README", self.readme), fate("script", self.script)]
            .into_iter()
            .flatten()
            .collect();
        (!fates.is_empty() && !offered.is_empty()).then(|| fates.join(", "))
    }
}

fn table(text: &mut String, tweaks: &[Tweak], kernels: &[Kernel]) {
    text.push_str("\n| tweak | README | script |");
    for kernel in kernels {
        let _ = write!(text, " {} |", kernel.series);
    }
    text.push_str("\n| --- | --- | --- |");
    text.push_str(&" --- |".repeat(kernels.len()));
    text.push('\n');
    for tweak in tweaks {
        let shown = |value: Option<&str>| value.map_or(String::new(), |value| format!("`{value}`"));
        let _ = write!(
            text,
            "| [`{}`](knobs/{}.md) | {} | {} |",
            tweak.name,
            super::docs::family(tweak.name),
            shown(tweak.readme),
            shown(tweak.script)
        );
        for kernel in kernels {
            let _ = write!(text, " {} |", tweak.fate(kernel));
        }
        text.push('\n');
    }
}

/// How much of the script each kernel takes.
fn counts(text: &mut String, tweaks: &[Tweak], kernels: &[Kernel]) {
    text.push('\n');
    for kernel in kernels {
        let of_script = || tweaks.iter().filter(|tweak| tweak.script.is_some());
        let count = |fate: &str| {
            of_script()
                .filter(|tweak| tweak.fate(kernel) == fate)
                .count()
        };
        let _ = writeln!(
            text,
            "- {}: of the script's {} settings {} apply, {} have moved, {} are gone, {} are those of phones.",
            kernel.series,
            of_script().count(),
            count("applies"),
            count("moved"),
            count("gone"),
            count("phones")
        );
    }
}

fn entry(text: &mut String, tweak: &Tweak) {
    let _ = write!(text, "\n### `{}`\n\n", tweak.name);
    for why in &tweak.why {
        let _ = writeln!(text, "- {}", super::docs::escaped(why));
    }
    if !tweak.spec.successor.is_empty() {
        let _ = writeln!(
            text,
            "- Instead: {}",
            super::docs::escaped(&tweak.spec.successor)
        );
    }
    let measured = tweak.spec.sources.iter();
    for fact in measured.filter(|source| source.starts_with("Measured")) {
        let _ = writeln!(text, "- {}", super::docs::escaped(fact));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilter_knobs::{Places, all_profiles};
    use std::path::Path;

    fn repository(path: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(path)
    }

    fn kernels() -> Vec<Kernel> {
        ["sysctl", "cfs", "eevdf", "scx-defective"]
            .map(|kind| {
                let file = repository(&format!("tests/vm/golden/{kind}.json"));
                let text = std::fs::read_to_string(file).unwrap();
                let mut entries: BTreeMap<String, String> = serde_json::from_str(&text).unwrap();
                let series = entries.remove("kernel series").unwrap();
                Kernel { series, entries }
            })
            .into()
    }

    fn built_in() -> String {
        let profiles = all_profiles(&Places::new(Path::new("/nonexistent"), true)).unwrap();
        page(&Catalog::built_in(), &profiles, &kernels())
    }

    /// `KILTER_UPDATE_DOCS=1` writes the page instead.
    #[test]
    fn the_page_in_the_repository_is_current() {
        let (file, text) = (repository("docs/ktweak.md"), built_in());
        if std::env::var_os("KILTER_UPDATE_DOCS").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            found == text,
            "docs/ktweak.md has drifted: KILTER_UPDATE_DOCS=1 cargo test -p kilter docs"
        );
    }

    #[test]
    fn fates_are_those_that_kernels_were_seen_to_have() {
        let text = built_in();
        let row = |knob: &str| {
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with(&format!("| [`{knob}`]")));
            let cells = line.unwrap_or_default().split('|').skip(4);
            cells
                .map(|cell| cell.trim().to_owned())
                .filter(|cell| !cell.is_empty())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            row("sched.latency_ns"),
            ["applies", "moved", "gone", "gone"]
        );
        assert_eq!(
            row("sched.features.NEXT_BUDDY"),
            ["applies", "moved", "moved", "moved"]
        );
        assert_eq!(row("vm.swappiness"), ["applies"; 4]);
        assert_eq!(row("kernel.sched_upmigrate"), ["phones"; 4]);
        assert!(text.contains("| script | 5.10 | 6.1 | 6.12 | 7.2 |"));
    }
}
