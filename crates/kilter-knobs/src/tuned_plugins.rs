//! What the options of TuneD's plugins are in the catalog.

use crate::catalog::Catalog;
use crate::import::Import;

/// One option of a plugin.
pub(crate) struct Given<'a> {
    pub key: &'a str,
    pub value: &'a str,
    pub devices: &'a str,
    pub from: &'a str,
}

impl Given<'_> {
    /// Whether the plugin's option is a knob; then it is taken over, or left out with the reason.
    pub fn take(&self, catalog: &Catalog, import: &mut Import, plugin: &str) -> bool {
        match plugin {
            "sysctl" => {
                let file = format!("/proc/sys/{}", self.key.replace('.', "/"));
                import.take_file(catalog, &file, &relative(self.value), self.from);
                true
            }
            "sysfs" => {
                import.take_file(catalog, self.key, self.value, self.from);
                true
            }
            "scheduler" => {
                let file = format!("/proc/sys/kernel/{}", self.key);
                let known = catalog.by_file(&file).is_some();
                if known {
                    import.take_file(catalog, &file, self.value, self.from);
                }
                known
            }
            "vm" => self.simple(catalog, import, vm(self.key), self.value),
            "cpu" => self.cpu(catalog, import),
            "disk" => self.disk(catalog, import),
            _ => false,
        }
    }

    fn simple(
        &self,
        catalog: &Catalog,
        import: &mut Import,
        knob: Option<String>,
        value: &str,
    ) -> bool {
        if let Some(knob) = &knob {
            import.take(catalog, knob, &relative(value), self.from);
        }
        knob.is_some()
    }

    fn cpu(&self, catalog: &Catalog, import: &mut Import) -> bool {
        let preferred = |value: &str| match value.contains('|') {
            true => format!("first:{}", value.replace('|', ",")),
            false => value.to_owned(),
        };
        let (knob, value) = match self.key {
            "governor" => ("cpufreq.*.governor", preferred(self.value)),
            "energy_performance_preference" => (
                "cpufreq.*.energy_performance_preference",
                preferred(self.value),
            ),
            "min_perf_pct" | "max_perf_pct" | "no_turbo" | "hwp_dynamic_boost" => {
                let knob = format!("cpufreq.intel_pstate.{}", self.key);
                return self.simple(catalog, import, Some(knob), self.value);
            }
            "boost" => ("cpufreq.boost", self.value.to_owned()),
            "force_latency" => {
                // Of alternatives (`cstate.id:1|3`) the number is the one for machines without names.
                let mut numbers = self
                    .value
                    .split('|')
                    .filter(|word| word.parse::<u32>().is_ok());
                let Some(number) = numbers.next() else {
                    return false;
                };
                ("pm_qos.cpu_dma_latency_us", number.to_owned())
            }
            _ => return false,
        };
        self.simple(catalog, import, Some(knob.to_owned()), &value)
    }

    fn disk(&self, catalog: &Catalog, import: &mut Import) -> bool {
        let (leaf, value) = match self.key {
            "elevator" => ("scheduler", self.value.to_owned()),
            "readahead" => ("read_ahead_kb", kib(self.value)),
            _ => return false,
        };
        for device in self
            .devices
            .split([',', ' '])
            .filter(|device| !device.is_empty())
        {
            if device.starts_with('!') {
                import.leave(
                    self.from,
                    &format!("devices={device}"),
                    "leaving devices out",
                );
                continue;
            }
            import.take(
                catalog,
                &format!("block.{device}.{leaf}"),
                &value,
                self.from,
            );
        }
        true
    }
}

fn vm(key: &str) -> Option<String> {
    match key {
        "transparent_hugepages" | "transparent_hugepage" => Some("thp.enabled".to_owned()),
        "transparent_hugepage.defrag" => Some("thp.defrag".to_owned()),
        "dirty_bytes" | "dirty_ratio" | "dirty_background_bytes" | "dirty_background_ratio" => {
            Some(format!("vm.{key}"))
        }
        _ => None,
    }
}

/// `>N` and `<N`: no less, no more than N.
fn relative(value: &str) -> String {
    match value.split_at_checked(1) {
        Some((">", number)) => format!("at-least:{}", number.trim()),
        Some(("<", number)) => format!("at-most:{}", number.trim()),
        _ => value.to_owned(),
    }
}

/// Readahead in KiB; with an `s` behind it the number is of sectors.
fn kib(value: &str) -> String {
    let mut words = value.split_whitespace();
    let (number, unit) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let (sign, digits) = match number.split_at_checked(1) {
        Some((sign @ (">" | "<"), digits)) => (sign, digits),
        _ => ("", number),
    };
    let halved = digits.parse::<i64>().ok().filter(|_| unit.starts_with('s'));
    let digits = halved.map_or_else(|| digits.to_owned(), |sectors| (sectors / 2).to_string());
    relative(&format!("{sign}{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readahead_has_units() {
        assert_eq!(kib("4096"), "4096");
        assert_eq!(kib(">4096"), "at-least:4096");
        assert_eq!(kib("1024 s"), "512");
    }
}
