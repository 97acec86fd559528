//! What this kernel has of the catalog. Paths are tried, versions never compared.

use crate::catalog::{Catalog, fill, instance_of};
use kilter_api::{Format, Knob, KnobSpec, KnobState, Unavailable, UnavailableReason, ValueKind};
use kilter_kernel::{FileError, Files, Kernel, KernelPath, Refusal, parse_value, words};

/// The path of a knob that is here.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The file.
    pub path: KernelPath,
    /// How it shows the value.
    pub format: Format,
    /// The value now.
    pub value: String,
    /// For choices: the words that the file offers now.
    pub offered: Vec<String>,
}

/// Devices whose queue belongs to no hardware of their own; a glob leaves them out.
const VIRTUAL: [&str; 6] = ["loop", "ram", "zram", "dm-", "md", "nbd"];

/// The same of network interfaces.
const VIRTUAL_NET: [&str; 10] = [
    "lo", "veth", "docker", "br-", "virbr", "tun", "tap", "wg", "dummy", "ifb",
];

/// Looks a knob up in the kernel.
pub fn probe(
    kernel: &Kernel,
    name: &str,
    spec: &KnobSpec,
    instance: Option<&str>,
) -> Result<Found, Unavailable> {
    let word = name.rsplit('.').next().unwrap_or(name);
    if spec.paths.is_empty() {
        let detail = format!("kilter does not write it; by hand: {}", spec.by_hand);
        return Err(unavailable(UnavailableReason::ByHand, detail));
    }
    let mut problems = Vec::new();
    for place in &spec.paths {
        let path = match KernelPath::new(fill(&place.file, instance)) {
            Ok(path) => path,
            Err(error) => return Err(unavailable(UnavailableReason::Absent, error.to_string())),
        };
        match kernel.read(&path) {
            Ok(text) => {
                let mut found = found(spec, path, place.format, word, &text)?;
                if !place.offers.is_empty() {
                    found.offered = listed(kernel, fill(&place.offers, instance));
                }
                return Ok(found);
            }
            Err(error) => problems.push(error),
        }
    }
    Err(why(spec, instance, &problems))
}

/// The words in a file beside a knob's own; none if there is no such file.
pub(crate) fn listed(kernel: &Kernel, file: String) -> Vec<String> {
    KernelPath::new(file)
        .ok()
        .and_then(|path| kernel.read(&path).ok())
        .map(|text| text.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

fn found(
    spec: &KnobSpec,
    path: KernelPath,
    format: Format,
    word: &str,
    text: &str,
) -> Result<Found, Unavailable> {
    if text.trim().is_empty() {
        let detail = format!("{path} is empty: this machine cannot do it");
        return Err(unavailable(UnavailableReason::Unsupported, detail));
    }
    let value = parse_value(format, word, text).map_err(|error| match format {
        Format::Feature => lacking(spec, None),
        _ => unavailable(
            UnavailableReason::Unsupported,
            format!("{path}: {error}{}", successor(spec)),
        ),
    })?;
    if matches!(spec.value, ValueKind::Int { .. }) && value.parse::<i128>().is_err() {
        let detail = format!("{path} shows `{value}`, which is no number");
        return Err(unavailable(UnavailableReason::Unsupported, detail));
    }
    Ok(Found {
        offered: words(format, text),
        path,
        format,
        value,
    })
}

/// The most telling of the reasons for which no path could be read.
fn why(spec: &KnobSpec, instance: Option<&str>, problems: &[FileError]) -> Unavailable {
    let reason = |refusal: Refusal| match refusal {
        Refusal::LockedDown => UnavailableReason::LockedDown,
        Refusal::NotPermitted => UnavailableReason::NotPermitted,
        Refusal::ReadOnly => UnavailableReason::ReadOnly,
        Refusal::NotMounted => UnavailableReason::NotMounted,
        Refusal::Absent => UnavailableReason::Absent,
        _ => UnavailableReason::Unsupported,
    };
    let rank = |problem: &&FileError| match reason(problem.refusal) {
        UnavailableReason::Absent => 2,
        UnavailableReason::NotMounted => 1,
        _ => 0,
    };
    let Some(told) = problems.iter().min_by_key(rank) else {
        return unavailable(
            UnavailableReason::Absent,
            "the catalog names no path".to_owned(),
        );
    };
    let reason = reason(told.refusal);
    let mechanism = spec.paths.iter().find_map(|place| {
        let path = KernelPath::new(place.file.as_str()).ok()?;
        path.mechanism().map(str::to_owned)
    });
    let detail = match (reason, mechanism) {
        (UnavailableReason::Absent, Some(dir)) => not_running(&dir),
        (UnavailableReason::Absent, None) => return lacking(spec, instance),
        (UnavailableReason::NotMounted, _) => "debugfs is not mounted".to_owned(),
        _ => told.to_string(),
    };
    unavailable(reason, detail)
}

/// A parameter of a mechanism that does not run.
fn not_running(dir: &str) -> String {
    match dir.strip_prefix("/run/kilter/sched/") {
        Some(name) => {
            format!("no scheduler of kilter is running (`kilter sched run {name}` starts it)")
        }
        None => "`kilter reclaim run` is not running".to_owned(),
    }
}

fn lacking(spec: &KnobSpec, instance: Option<&str>) -> Unavailable {
    let eras: Vec<&str> = spec.paths.iter().map(|path| path.era.as_str()).collect();
    let switch = spec.paths.iter().find(|path| !path.appears_with.is_empty());
    let lacks = match switch {
        Some(path) => {
            let with = fill(&path.appears_with, instance);
            format!("it appears with {with}")
        }
        None => "this kernel does not have it".to_owned(),
    };
    let detail = format!(
        "{lacks} (kernels with it: {}){}",
        eras.join(", "),
        successor(spec)
    );
    unavailable(UnavailableReason::Absent, detail)
}

fn successor(spec: &KnobSpec) -> String {
    match spec.successor.as_str() {
        "" => String::new(),
        successor => format!("; instead: {successor}"),
    }
}

fn unavailable(reason: UnavailableReason, detail: String) -> Unavailable {
    Unavailable { reason, detail }
}

/// The instances of a templated entry on this machine; one without a name for a plain entry.
pub fn instances(kernel: &Kernel, spec: &KnobSpec) -> Vec<Option<String>> {
    if !spec.name.contains('<') {
        return vec![None];
    }
    let expanded = spec.paths.iter().map(|path| expand(kernel, &path.file));
    let found = expanded.into_iter().find(|names| !names.is_empty());
    found.unwrap_or_default().into_iter().map(Some).collect()
}

/// What fills the placeholders of a path on this machine, by the directories that are there.
fn expand(kernel: &Kernel, file: &str) -> Vec<String> {
    let (Some(start), Some(end)) = (file.find('<'), file.find('>')) else {
        return Vec::new();
    };
    let (kind, component) = (&file[start + 1..end], file[..start].rfind('/').unwrap_or(0));
    let prefix = &file[component + 1..start];
    let suffix = file[end + 1..].split('/').next().unwrap_or_default();
    let names = kernel.list(&file[..component]).into_iter();
    let names = names.filter_map(|name| {
        let inner = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
        fills(kind, inner).then(|| inner.to_owned())
    });
    // A size too small for anonymous memory has a directory for shmem alone.
    let names = names.filter(|name| {
        let here =
            || KernelPath::new(fill(file, Some(name))).is_ok_and(|p| kernel.read(&p).is_ok());
        kind != "size" || here()
    });
    names
        .flat_map(|name| {
            let rest = fill(file, Some(&name));
            match rest.contains('<') {
                true => expand(kernel, &rest)
                    .into_iter()
                    .map(|inner| format!("{name}/{inner}"))
                    .collect(),
                false => vec![name],
            }
        })
        .collect()
}

/// Whether a directory's name is one of a placeholder's kind: `<cpu>` is `cpu` and a number.
fn fills(kind: &str, name: &str) -> bool {
    match kind {
        "policy" | "cpu" | "state" | "domain" | "rx" | "tx" => {
            let number = name.strip_prefix(kind);
            let number = number.map(|rest| rest.trim_start_matches('-'));
            number.is_some_and(|rest| {
                !rest.is_empty() && rest.chars().all(|digit| digit.is_ascii_digit())
            })
        }
        "size" => name.strip_suffix("kB").is_some_and(|size| {
            !size.is_empty() && size.chars().all(|digit| digit.is_ascii_digit())
        }),
        _ => !name.is_empty() && !name.contains('.'),
    }
}

/// Every knob of the catalog on this machine, instances spelled out. A templated entry without an
/// instance is told as absent under its template's name.
pub fn probe_all(kernel: &Kernel, catalog: &Catalog) -> Vec<Knob> {
    let mut knobs = Vec::new();
    for spec in &catalog.knobs {
        let instances = instances(kernel, spec);
        if instances.is_empty() {
            let detail = format!("this machine has no instance of {}", spec.name);
            let state = KnobState::Unavailable(unavailable(UnavailableReason::Absent, detail));
            knobs.push(Knob {
                name: spec.name.clone(),
                state,
                virtual_device: false,
                spec: spec.clone(),
                offered: Vec::new(),
            });
        }
        for instance in instances {
            knobs.push(knob(kernel, spec, instance.as_deref()));
        }
    }
    knobs
}

/// A knob on this machine by its full name.
pub fn probe_one(kernel: &Kernel, name: &str, spec: &KnobSpec) -> Knob {
    knob(kernel, spec, instance_of(&spec.name, name).as_deref())
}

/// One knob on this machine.
fn knob(kernel: &Kernel, spec: &KnobSpec, instance: Option<&str>) -> Knob {
    let name = fill(&spec.name, instance);
    let (state, offered) = match probe(kernel, &name, spec, instance) {
        Ok(found) => {
            let writable = kernel.may_write(&found.path);
            let state = KnobState::Present {
                value: found.value,
                path: found.path.to_string(),
                writable,
            };
            (state, found.offered)
        }
        Err(reason) => (KnobState::Unavailable(reason), Vec::new()),
    };
    let virtual_device = knob_is_virtual(spec, instance);
    Knob {
        name,
        state,
        virtual_device,
        spec: spec.clone(),
        offered,
    }
}

pub(crate) fn knob_is_virtual(spec: &KnobSpec, instance: Option<&str>) -> bool {
    let virtual_names: &[&str] = match spec.name.split('.').next() {
        Some("block") => &VIRTUAL,
        Some("net") => &VIRTUAL_NET,
        _ => &[],
    };
    instance.is_some_and(|device| {
        virtual_names
            .iter()
            .any(|prefix| device.starts_with(prefix))
    })
}
