//! `kilter docs`: the catalog as Markdown, one page for each family of knobs. `docs/knobs` is made by it.

use crate::fail::Outcome;
use crate::page;
use kilter_api::{KnobSpec, Profile};
use kilter_knobs::{Catalog, all_profiles};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::machine::Machine;

/// What the families are called on the index, by the first word of a knob's name.
const FAMILIES: [(&str, &str); 22] = [
    ("block", "Block queues and I/O schedulers"),
    ("cgroup", "Groups of processes"),
    ("cpu_boost", "Touch boost of phones"),
    ("cpufreq", "CPU frequency"),
    ("cpuidle", "CPU idle states"),
    ("damon", "DAMON"),
    ("groups", "CPU groups of kilter"),
    ("hrrn", "The HRRN scheduler of kilter"),
    ("kernel", "Sysctls of the kernel"),
    ("mglru", "Multi-generational LRU"),
    ("net", "Network"),
    ("pm_qos", "Latency requests"),
    ("reclaim", "Proactive reclaim of kilter"),
    ("sched", "Scheduler"),
    ("schedtune", "schedtune of phones"),
    ("swap", "Swap"),
    ("task", "Attributes of a task"),
    ("thp", "Transparent huge pages"),
    ("vm", "Virtual memory"),
    ("walt", "WALT of phones"),
    ("workqueue", "Kernel worker threads"),
    ("zram", "zram and zswap"),
];

/// Runs the command: writes every page into a directory.
pub fn run(machine: &Machine, dir: &Path) -> Outcome {
    let profiles = all_profiles(&machine.places)?;
    std::fs::create_dir_all(dir)?;
    for (name, text) in pages(&machine.catalog()?, &profiles) {
        std::fs::write(dir.join(name), text)?;
    }
    Ok(0)
}

/// All pages by the names of their files.
pub fn pages(catalog: &Catalog, profiles: &[Profile]) -> BTreeMap<String, String> {
    let mut families: BTreeMap<&str, Vec<&KnobSpec>> = BTreeMap::new();
    for spec in &catalog.knobs {
        families.entry(family(&spec.name)).or_default().push(spec);
    }
    let mut pages = BTreeMap::from([("README.md".to_owned(), index(&families))]);
    for (family, specs) in &families {
        let mut text = format!("# {}\n\n{GENERATED}\n", title(family));
        for spec in specs {
            entry(&mut text, spec, profiles);
        }
        pages.insert(format!("{family}.md"), text);
    }
    pages
}

const GENERATED: &str = "Made from `catalog/knobs` by `kilter docs docs/knobs`. `kilter knobs show NAME` tells the same of this machine's kernel, with its value now and the evidence.";

pub(super) fn family(name: &str) -> &str {
    match name.split('.').next().unwrap_or(name) {
        "zswap" => "zram",
        first => first,
    }
}

fn title(family: &str) -> &str {
    let known = FAMILIES.iter().find(|(name, _)| *name == family);
    known.map_or(family, |(_, title)| title)
}

fn index(families: &BTreeMap<&str, Vec<&KnobSpec>>) -> String {
    let total: usize = families.values().map(Vec::len).sum();
    let mut text = format!("# Knobs\n\n{total} knobs. {GENERATED}\n");
    for (family, specs) in families {
        let _ = write!(
            text,
            "\n## [{}]({family}.md)\n\n| knob | sets | risk |\n| --- | --- | --- |\n",
            title(family)
        );
        for spec in specs {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} |",
                spec.name,
                escaped(&spec.summary),
                page::risk(spec)
            );
        }
    }
    text
}

fn entry(text: &mut String, spec: &KnobSpec, profiles: &[Profile]) {
    let _ = write!(
        text,
        "\n## `{}`\n\n{}\n\n",
        spec.name,
        escaped(&spec.summary)
    );
    text.push_str("| | |\n| --- | --- |\n");
    for (name, fact) in page::facts(spec) {
        let _ = writeln!(text, "| {name} | {} |", escaped(&fact));
    }
    let why: Vec<&str> = spec.why.split_whitespace().collect();
    let _ = write!(text, "\n{}\n", escaped(&why.join(" ")));
    let set = page::set_by(spec, profiles);
    if !set.is_empty() {
        text.push_str("\nIn profiles:\n\n");
        for set in set {
            let value = format!("`{} = {}`", set.profile, set.value);
            let _ = writeln!(text, "- {value}: {}", escaped(&set.why));
        }
    }
    text.push_str("\nSources:\n\n");
    for source in &spec.sources {
        let _ = writeln!(text, "- {}", escaped(source));
    }
}

/// The text with what Markdown would take for markup escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '<' | '>' | '*' | '|' | '_' | '`') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilter_knobs::Places;

    /// `KILTER_UPDATE_DOCS=1` writes the pages instead.
    #[test]
    fn the_pages_in_the_repository_are_current() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/knobs");
        let profiles = all_profiles(&Places::new(Path::new("/nonexistent"), true)).unwrap();
        let pages = pages(&Catalog::built_in(), &profiles);
        if std::env::var_os("KILTER_UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(&dir).unwrap();
            for (name, text) in &pages {
                std::fs::write(dir.join(name), text).unwrap();
            }
        }
        for (name, text) in &pages {
            let found = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
            assert!(
                found == *text,
                "docs/knobs/{name} has drifted: kilter docs docs/knobs"
            );
        }
        let files = std::fs::read_dir(&dir).unwrap().count();
        assert_eq!(files, pages.len(), "a page in docs/knobs is of no family");
    }

    #[test]
    fn markup_in_the_catalog_is_text() {
        assert_eq!(escaped("<dev> a*b"), "\\<dev\\> a\\*b");
    }
}
