//! Profiles out of what a program wrote to kernel files.

use crate::catalog::{Catalog, fill, instance_of};
use crate::import::Import;
use crate::probe::{instances, knob_is_virtual};
use kilter_api::{Format, KnobSpec, PathSpec, ProfileValue};
use kilter_kernel::{Kernel, parse_value};
use std::collections::BTreeMap;

/// What writes to files, in order, make of knobs. Where all devices of the machine got one value, the
/// profile says so with a glob.
pub fn import_writes<'a>(
    catalog: &Catalog,
    kernel: &Kernel,
    writes: impl IntoIterator<Item = (&'a str, &'a str)>,
    from: &str,
) -> Import {
    let mut import = Import::default();
    // A later write of a file (or of one word of a file of words) is what counts.
    let mut last: BTreeMap<(&str, &str), (usize, &str)> = BTreeMap::new();
    for (number, (path, text)) in writes.into_iter().enumerate() {
        let word = match feature_file(catalog, path) {
            true => text.strip_prefix("NO_").unwrap_or(text),
            false => "",
        };
        last.insert((path, word), (number, text));
    }
    let mut last: Vec<_> = last
        .into_iter()
        .map(|((path, _), (number, text))| (number, path, text))
        .collect();
    last.sort_unstable();
    for (_, path, text) in last {
        match knob_of(catalog, path, text) {
            Some((knob, value)) => import.take(catalog, &knob, &value, from),
            None => import.leave(
                from,
                &format!("{path} = {text}"),
                "no knob of the catalog's",
            ),
        }
    }
    import.settle_pairs(catalog);
    spread(&mut import, catalog, kernel, from);
    import
}

/// Every file that the catalog knows on whichever kernel, with a text that such a file may hold. The
/// places of devices are filled with this machine's, or with a device that machines usually have.
pub fn files_of_every_kernel(catalog: &Catalog, kernel: &Kernel) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for spec in &catalog.knobs {
        let mut named = instances(kernel, spec);
        if named.is_empty() {
            named.push(Some(usual(&spec.name)));
        }
        for place in &spec.paths {
            for instance in &named {
                let file = fill(&place.file, instance.as_deref());
                files.insert(file, shown(spec, place));
                if !place.offers.is_empty()
                    && let Some(choices) = choices(spec)
                {
                    let offers = fill(&place.offers, instance.as_deref());
                    files.insert(offers, format!("{}\n", choices.join(" ")));
                }
            }
        }
    }
    files
}

/// An instance of a template that machines usually have: `policy0`, `cpu0/state0`, `sda`.
fn usual(template: &str) -> String {
    let kinds = template.split('<').skip(1);
    let kinds = kinds.filter_map(|rest| rest.split_once('>').map(|(kind, _)| kind));
    let names: Vec<String> = kinds
        .map(|kind| match kind {
            "dev" => "sda".to_owned(),
            "rx" | "tx" => format!("{kind}-0"),
            "group" => "top-app".to_owned(),
            _ => format!("{kind}0"),
        })
        .collect();
    names.join("/")
}

fn choices(spec: &KnobSpec) -> Option<&[String]> {
    match &spec.value {
        kilter_api::ValueKind::Choice { choices } => Some(choices),
        _ => None,
    }
}

fn shown(spec: &KnobSpec, place: &PathSpec) -> String {
    let first = || choices(spec).and_then(<[String]>::first).cloned();
    match place.format {
        Format::Bracketed | Format::Parenthesised => {
            let (open, close) = match place.format {
                Format::Bracketed => ('[', ']'),
                _ => ('(', ')'),
            };
            let choices = choices(spec).unwrap_or_default();
            let (first, rest) = match choices {
                [first, rest @ ..] => (first.as_str(), rest),
                [] => ("none", choices),
            };
            format!("{open}{first}{close} {}\n", rest.join(" "))
        }
        Format::YesNo => "N\n".to_owned(),
        Format::Feature => {
            let name = spec.name.rsplit('.').next().unwrap_or(&spec.name);
            format!("NO_{name}\n")
        }
        _ => format!("{}\n", first().unwrap_or_else(|| "0".to_owned())),
    }
}

fn feature_file(catalog: &Catalog, path: &str) -> bool {
    let places = catalog.knobs.iter().flat_map(|spec| &spec.paths);
    places
        .filter(|place| place.format == Format::Feature)
        .any(|place| place.file == path)
}

/// The knob that a write to a file sets, and the value in the catalog's form.
fn knob_of(catalog: &Catalog, path: &str, text: &str) -> Option<(String, String)> {
    if feature_file(catalog, path) {
        let (name, value) = match text.strip_prefix("NO_") {
            Some(name) => (name, "0"),
            None => (text, "1"),
        };
        let spec = catalog.knobs.iter().find(|spec| {
            let last = spec.name.rsplit('.').next();
            let mut places = spec.paths.iter();
            last == Some(name) && places.any(|place| place.format == Format::Feature)
        })?;
        return Some((spec.name.clone(), value.to_owned()));
    }
    let (knob, spec) = catalog.by_file(path)?;
    let place = spec
        .paths
        .iter()
        .find(|place| place.file == path || instance_of(&place.file, path).is_some())?;
    let value = match place.format {
        Format::YesNo | Format::Hex | Format::Spaced | Format::Mask | Format::Cpu0 => {
            parse_value(place.format, "", text).unwrap_or_else(|_| text.to_owned())
        }
        _ => text.to_owned(),
    };
    Some((knob, value))
}

/// Puts a glob where every real device got the same value.
fn spread(import: &mut Import, catalog: &Catalog, kernel: &Kernel, from: &str) {
    for spec in catalog.knobs.iter().filter(|spec| one_place(&spec.name)) {
        let set: BTreeMap<String, ProfileValue> = import
            .set
            .iter()
            .filter_map(|(knob, value)| Some((instance_of(&spec.name, knob)?, value.clone())))
            .collect();
        let real = |instance: &str| !knob_is_virtual(spec, Some(instance));
        let mut here: Vec<String> = instances(kernel, spec).into_iter().flatten().collect();
        here.retain(|instance| real(instance));
        let of_real: Vec<&ProfileValue> = set
            .iter()
            .filter(|(instance, _)| real(instance))
            .map(|(_, value)| value)
            .collect();
        let all_alike = of_real.windows(2).all(|two| two[0].value == two[1].value);
        let all_set = here.iter().all(|instance| set.contains_key(instance));
        let (Some(common), true, true) = (of_real.first(), all_alike, all_set) else {
            continue;
        };
        let glob = fill(&spec.name, Some("*"));
        let (common, mut others) = ((*common).clone(), Vec::new());
        for (instance, value) in &set {
            let knob = fill(&spec.name, Some(instance));
            import.set.remove(&knob);
            if !real(instance) {
                others.push(format!("{knob} = {}", value.value));
            }
        }
        if let [first, rest @ ..] = &others[..] {
            let what = match rest.len() {
                0 => first.clone(),
                more => format!("{first}, and {more} such"),
            };
            let reason = "no hardware of its own: a profile names such a device where it means it";
            import.leave(from, &what, reason);
        }
        import.set.insert(glob, common);
    }
}

/// Whether a template stands for devices, CPUs or their policies, which are alike; groups are not.
fn one_place(template: &str) -> bool {
    let alike = ["<dev>", "<policy>", "<cpu>"];
    template.matches('<').count() == 1 && alike.iter().any(|kind| template.contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn import(kernel: &Kernel, writes: &[(&str, &str)]) -> Import {
        import_writes(
            &Catalog::built_in(),
            kernel,
            writes.iter().copied(),
            "tweaks.sh",
        )
    }

    fn values(import: &Import) -> Vec<(&str, &str)> {
        let set = import.set.iter();
        set.map(|(knob, value)| (knob.as_str(), value.value.as_str()))
            .collect()
    }

    #[test]
    fn the_last_write_counts_and_words_of_one_file_are_knobs() {
        let features = "/sys/kernel/debug/sched/features";
        let found = import(
            &Kernel::new(Path::new("/nonexistent")),
            &[
                ("/proc/sys/vm/swappiness", "10"),
                (features, "NEXT_BUDDY"),
                (features, "NO_TTWU_QUEUE"),
                (features, "NO_NEXT_BUDDY"),
                ("/proc/sys/vm/swappiness", "100"),
                ("/sys/module/zswap/parameters/enabled", "Y"),
                ("/proc/sys/kernel/sched_latency_ns", "4000000"),
                ("/proc/sys/vm/laptop_mode_of_mine", "1"),
                ("/proc/sys/vm/dirty_ratio", "500"),
            ],
        );
        assert_eq!(
            values(&found),
            [
                ("sched.features.NEXT_BUDDY", "0"),
                ("sched.features.TTWU_QUEUE", "0"),
                ("sched.latency_ns", "4000000"),
                ("vm.swappiness", "100"),
                ("zswap.enabled", "1"),
            ]
        );
        let left: Vec<&str> = found
            .left_out
            .iter()
            .map(|left| left.what.as_str())
            .collect();
        assert_eq!(
            left,
            [
                "/proc/sys/vm/laptop_mode_of_mine = 1",
                "vm.dirty_ratio = 500"
            ]
        );
    }

    #[test]
    fn one_value_for_all_real_devices_is_a_glob() {
        let root = tempfile::tempdir().unwrap();
        for disk in ["vda", "vdb", "loop0"] {
            let queue = root.path().join(format!("sys/block/{disk}/queue"));
            std::fs::create_dir_all(&queue).unwrap();
            std::fs::write(queue.join("iostats"), "1\n").unwrap();
            std::fs::write(queue.join("nomerges"), "0\n").unwrap();
        }
        let found = import(
            &Kernel::new(root.path()),
            &[
                ("/sys/block/vda/queue/iostats", "0"),
                ("/sys/block/vdb/queue/iostats", "0"),
                ("/sys/block/loop0/queue/iostats", "0"),
                ("/sys/block/loop1/queue/iostats", "0"),
                ("/sys/block/vda/queue/nomerges", "2"),
            ],
        );
        assert_eq!(
            values(&found),
            [("block.*.iostats", "0"), ("block.vda.nomerges", "2")]
        );
        let left: Vec<&str> = found
            .left_out
            .iter()
            .map(|left| left.what.as_str())
            .collect();
        assert_eq!(left, ["block.loop0.iostats = 0, and 1 such"]);
    }

    #[test]
    fn files_of_every_kernel_become_their_knobs_again() {
        let catalog = Catalog::built_in();
        let kernel = Kernel::new(Path::new("/nonexistent"));
        let files = files_of_every_kernel(&catalog, &kernel);
        assert!(files.contains_key("/proc/sys/kernel/sched_latency_ns"));
        assert!(files.contains_key("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"));
        for spec in catalog.knobs.iter().filter(|spec| !spec.paths.is_empty()) {
            let mut places = spec.paths.iter();
            let known = places.any(|place| {
                let file = fill(&place.file, Some(&usual(&spec.name)));
                files.contains_key(&file)
            });
            assert!(known, "{}", spec.name);
        }
    }
}
