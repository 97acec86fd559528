//! Profiles out of other tools' files: what becomes a knob's value, and what is left out with the
//! reason. Nothing here writes a setting.

use crate::catalog::Catalog;
use crate::check::check_value;
use crate::sysctl::{SysctlLine, deciding_line, parse_sysctl, sysctl_matches};
use kilter_api::{LeftOut, ProfileValue};
use std::collections::BTreeMap;
use std::path::Path;

/// What a file holds for kilter.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Import {
    /// Values by knob, with where they come from as the reason.
    pub set: BTreeMap<String, ProfileValue>,
    /// The rest.
    pub left_out: Vec<LeftOut>,
}

impl Import {
    /// Takes a value over, or leaves it out with the reason.
    pub(crate) fn take(&mut self, catalog: &Catalog, knob: &str, value: &str, from: &str) {
        // A glob over devices is checked by its template.
        let template = knob.replacen("block.*.", "block.<dev>.", 1).replacen(
            "cpufreq.*.",
            "cpufreq.<policy>.",
            1,
        );
        let checked = catalog
            .find(&template)
            .map_err(|error| error.to_string())
            .and_then(|spec| {
                check_value(knob, spec, value)
                    .map_err(|error| format!("`{value}`: {}", error.allowed))
            });
        match checked {
            Ok(value) => {
                let why = from.to_owned();
                self.set
                    .insert(knob.to_owned(), ProfileValue { value, why });
            }
            Err(reason) => self.leave(from, &format!("{knob} = {value}"), &reason),
        }
    }

    /// Takes over what a kernel file is to hold.
    pub(crate) fn take_file(&mut self, catalog: &Catalog, file: &str, value: &str, from: &str) {
        match catalog.by_file(file) {
            Some((knob, _)) => self.take(catalog, &knob, value, from),
            None => self.leave(
                from,
                &format!("{file} = {value}"),
                "no knob of the catalog's",
            ),
        }
    }

    /// Leaves something out.
    pub fn leave(&mut self, from: &str, what: &str, reason: &str) {
        self.left_out.push(LeftOut {
            from: from.to_owned(),
            what: what.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// Of two knobs that set each other to zero keeps one: never the zero.
    pub(crate) fn settle_pairs(&mut self, catalog: &Catalog) {
        let names: Vec<String> = self.set.keys().cloned().collect();
        for name in names {
            let partner = catalog
                .find(&name)
                .ok()
                .and_then(|spec| spec.couplings.excludes.clone());
            let (Some(partner), Some(value)) = (partner, self.set.get(&name)) else {
                continue;
            };
            let Some(other) = self.set.get(&partner) else {
                continue;
            };
            // The bytes of a pair are the finer number, and are what is meant where both stand.
            let goes = match (value.value.as_str(), other.value.as_str()) {
                ("0", _) => &name,
                (_, "0") => &partner,
                _ if name.ends_with("_ratio") => &name,
                _ => &partner,
            };
            let stays = if *goes == name { &partner } else { &name };
            let reason = format!("{stays} is set too, and that makes this one zero");
            let goes = goes.clone();
            if let Some(gone) = self.set.remove(&goes) {
                self.leave(&gone.why, &format!("{goes} = {}", gone.value), &reason);
            }
        }
    }
}

/// What a text of `sysctl.d(5)` sets.
pub fn import_sysctl(catalog: &Catalog, file: &Path, text: &str) -> Import {
    let (lines, bad) = parse_sysctl(file, text);
    let mut import = Import::default();
    let name = file.display();
    for line in bad {
        import.leave(
            &format!("{name}:{}", line.line),
            &line.problem,
            "not understood",
        );
    }
    for line in &lines {
        let from = format!("{name}:{}", line.line);
        let Some(value) = &line.value else {
            continue;
        };
        let decides = |path: &str| deciding_line(&lines, path) == Some(line);
        match line.path.contains(['*', '?', '[']) {
            false if decides(&line.path) => {
                import.take_file(catalog, &line.path, value, &from);
            }
            false => import.leave(&from, &shown(line, value), "a later line sets it again"),
            true => {
                let meant: Vec<&str> = plain_sysctls(catalog)
                    .filter(|path| sysctl_matches(&line.path, path) && decides(path))
                    .collect();
                if meant.is_empty() {
                    import.leave(
                        &from,
                        &shown(line, value),
                        "the glob means no knob of the catalog's",
                    );
                }
                for path in meant {
                    import.take_file(catalog, path, value, &from);
                }
            }
        }
    }
    import.settle_pairs(catalog);
    import
}

fn shown(line: &SysctlLine, value: &str) -> String {
    format!("{} = {value}", line.path)
}

/// The sysctls that the catalog knows, on whichever kernel.
fn plain_sysctls(catalog: &Catalog) -> impl Iterator<Item = &str> {
    let paths = catalog.knobs.iter().flat_map(|spec| &spec.paths);
    paths
        .map(|place| place.file.as_str())
        .filter(|file| file.starts_with("/proc/sys/") && !file.contains('<'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(text: &str) -> Import {
        import_sysctl(&Catalog::built_in(), Path::new("x.conf"), text)
    }

    fn values(import: &Import) -> Vec<(&str, &str)> {
        let set = import.set.iter();
        set.map(|(knob, value)| (knob.as_str(), value.value.as_str()))
            .collect()
    }

    #[test]
    fn sysctls_become_knobs_under_their_names() {
        let found = import(
            "vm.swappiness = 60\nkernel/sched_migration_cost_ns = 5000000\n-net.ipv4.tcp_rmem = 4096\t131072 6291456\n\
             vm.swappiness = 10\nnet.ipv4.ip_forward = 1\nvm.dirty_ratio = 500\nnonsense\n",
        );
        assert_eq!(
            values(&found),
            [
                ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
                ("sched.migration_cost_ns", "5000000"),
                ("vm.swappiness", "10"),
            ]
        );
        let left: Vec<&str> = found
            .left_out
            .iter()
            .map(|left| left.reason.as_str())
            .collect();
        assert_eq!(
            left,
            [
                "not understood",
                "a later line sets it again",
                "no knob of the catalog's",
                "`500`: the range is 0 to 100 percent",
            ]
        );
    }

    #[test]
    fn globs_mean_the_catalogs_knobs() {
        let found = import("vm.dirty_*_centisecs = 1000\n-vm.dirty_expire_centisecs\n");
        assert_eq!(values(&found), [("vm.dirty_writeback_centisecs", "1000")]);
    }

    #[test]
    fn of_a_pair_the_zero_goes() {
        let found = import("vm.dirty_ratio = 0\nvm.dirty_bytes = 536870912\n");
        assert_eq!(values(&found), [("vm.dirty_bytes", "536870912")]);
        assert_eq!(found.left_out.len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "\\PC*") {
            import(&text);
        }
    }
}
