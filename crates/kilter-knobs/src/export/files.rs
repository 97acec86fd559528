//! Files for sysctl.d, TuneD and systemd.

use super::Item;
use crate::wish::Wish;
use kilter_api::{Format, LeftOut, Profile};
use std::fmt::Write;

/// A file of sysctl.d and what it cannot hold. Every line has the `-` that lets other kernels pass.
pub fn sysctl_conf(profile: &Profile, items: &[Item]) -> (String, Vec<LeftOut>) {
    let mut text = head(profile, "sysctl.d(5)");
    let mut left = Vec::new();
    for item in items.iter().filter(|item| item.value.is_some()) {
        let value = item.value.as_deref().unwrap_or_default();
        let sysctls: Vec<String> = item
            .patterns()
            .filter_map(|(file, _)| file.strip_prefix("/proc/sys/").map(str::to_owned))
            .collect();
        if sysctls.is_empty() {
            leave(&mut left, item, "it is no sysctl");
        } else if Wish::parse(value).is_some() {
            leave(&mut left, item, "the value is found out on the machine");
        } else {
            comment(&mut text, item);
            for name in sysctls {
                let _ = writeln!(text, "-{} = {value}", name.replace('/', "."));
            }
        }
    }
    (text, left)
}

/// A profile of TuneD's and what it cannot hold.
pub fn tuned_conf(profile: &Profile, items: &[Item]) -> (String, Vec<LeftOut>) {
    let (mut sysctl, mut sysfs) = (String::new(), String::new());
    let (mut cpu, mut disk) = (String::new(), String::new());
    let mut left = Vec::new();
    for item in items.iter().filter(|item| item.value.is_some()) {
        let value = item.value.as_deref().unwrap_or_default();
        let wish = Wish::parse(value);
        let (section, lines) = match (item.knob.as_str(), &wish) {
            ("cpufreq.*.governor", Some(Wish::First(words))) => {
                (&mut cpu, vec![format!("governor={}", words.join("|"))])
            }
            ("cpufreq.*.governor", None) => (&mut cpu, vec![format!("governor={value}")]),
            ("block.*.scheduler", None) => (&mut disk, vec![format!("elevator={value}")]),
            ("block.*.read_ahead_kb", None) => (&mut disk, vec![format!("readahead={value}")]),
            (_, Some(Wish::AtLeast(number))) => (&mut sysctl, sysctls(item, &format!(">{number}"))),
            (_, Some(Wish::AtMost(number))) => (&mut sysctl, sysctls(item, &format!("<{number}"))),
            (_, Some(_)) => {
                leave(&mut left, item, "the value is found out on the machine");
                continue;
            }
            (_, None) => {
                let lines = sysctls(item, value);
                match lines.is_empty() {
                    false => (&mut sysctl, lines),
                    true => (&mut sysfs, files(item, value)),
                }
            }
        };
        if lines.is_empty() {
            leave(&mut left, item, "TuneD has no plugin for it");
            continue;
        }
        comment(section, item);
        for line in lines {
            let _ = writeln!(section, "{line}");
        }
    }
    let mut text = head(profile, "TuneD");
    let _ = write!(text, "[main]\nsummary={}\n", words(&profile.summary));
    let sections = [
        ("cpu", cpu),
        ("disk", disk),
        ("sysctl", sysctl),
        ("sysfs", sysfs),
    ];
    for (name, body) in sections.into_iter().filter(|(_, body)| !body.is_empty()) {
        let _ = write!(text, "\n[{name}]\n{body}");
    }
    (text, left)
}

/// A unit that runs the exported script at boot, after others that write settings.
pub fn systemd_unit(profile: &Profile, script: &str) -> String {
    format!(
        "# Made by kilter {version} from its profile {name}.\n\
         [Unit]\n\
         Description=Kernel settings of the profile {name}\n\
         After=systemd-sysctl.service systemd-modules-load.service systemd-udev-settle.service tuned.service power-profiles-daemon.service tlp.service\n\
         ConditionVirtualization=!container\n\n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart=/bin/sh {script}\n\
         ExecStop=/bin/sh {script} --revert\n\n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        version = env!("CARGO_PKG_VERSION"),
        name = profile.name,
    )
}

fn sysctls(item: &Item, value: &str) -> Vec<String> {
    let files = item.patterns();
    let names =
        files.filter_map(|(file, _)| Some(file.strip_prefix("/proc/sys/")?.replace('/', ".")));
    names.map(|name| format!("{name}={value}")).collect()
}

/// Lines of TuneD's sysfs plugin: files that take the value as it stands.
fn files(item: &Item, value: &str) -> Vec<String> {
    let takes = |format| {
        !matches!(
            format,
            Format::Feature | Format::YesNo | Format::Cpu0 | Format::Mask
        )
    };
    item.patterns()
        .filter(|(file, place)| file.starts_with("/sys/") && takes(place.format))
        .map(|(file, _)| format!("{file}={value}"))
        .collect()
}

fn head(profile: &Profile, what: &str) -> String {
    let summary = words(&profile.summary);
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "# {}: {summary}\n# For {what}, made by kilter {version}.\n\n",
        profile.name
    )
}

fn comment(text: &mut String, item: &Item) {
    if !item.why.is_empty() {
        let _ = writeln!(text, "# {}", words(&item.why));
    }
}

fn leave(left: &mut Vec<LeftOut>, item: &Item, reason: &str) {
    left.push(LeftOut {
        from: "profile".to_owned(),
        what: format!(
            "{} = {}",
            item.knob,
            item.value.as_deref().unwrap_or_default()
        ),
        reason: reason.to_owned(),
    });
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::of_profile;
    use super::*;
    use crate::{Catalog, import_sysctl};
    use std::path::Path;

    #[test]
    fn what_goes_out_to_sysctl_comes_back() {
        let profile = Profile::default();
        let items = of_profile("ktweak-script");
        let (text, left) = sysctl_conf(&profile, &items);
        let back = import_sysctl(&Catalog::built_in(), Path::new("x"), &text);
        let wanted = items.iter().filter(|item| item.value.is_some()).count();
        assert_eq!(back.set.len() + left.len(), wanted);
        for (knob, value) in &back.set {
            let item = items.iter().find(|item| item.knob == *knob).unwrap();
            assert_eq!(item.value.as_ref(), Some(&value.value), "{knob}");
        }
    }

    #[test]
    fn tuned_gets_its_plugins() {
        let (text, left) = tuned_conf(&Profile::default(), &of_profile("ktweak-script"));
        for line in [
            "governor=schedutil|interactive",
            "readahead=128",
            "vm.swappiness=100",
            "/sys/block/*/queue/nr_requests=64",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is missing in {text}"
            );
        }
        let left: Vec<&str> = left.iter().map(|left| left.what.as_str()).collect();
        assert!(left.contains(&"sched.features.NEXT_BUDDY = 1"), "{left:?}");
    }
}
