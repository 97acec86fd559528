//! The parameters of the daemon that may change while it runs.

use kilter_kernel::{Parameter, Parameters};

/// All parameters, in the order in which they are shown.
pub const PARAMETERS: [Parameter; 14] = [
    Parameter {
        name: "available_percent",
        min: 1,
        max: 90,
        default: 25,
        summary: "Below this part of memory available, cached apps are paged out",
    },
    Parameter {
        name: "stall_ms",
        min: 1,
        max: 1000,
        default: 50,
        summary: "Milliseconds of a second for which tasks waited for memory that count as pressure",
    },
    Parameter {
        name: "oom_score_adj",
        min: 1,
        max: 1001,
        default: 850,
        summary: "From this oom_score_adj on an app is cached; 1001: never by it",
    },
    Parameter {
        name: "idle_s",
        min: 0,
        max: 86_400,
        default: 60,
        summary: "Seconds without CPU time after which an app is cached; 0: never by it",
    },
    Parameter {
        name: "min_app_mb",
        min: 1,
        max: 1_000_000,
        default: 12,
        summary: "Smaller apps are left out",
    },
    Parameter {
        name: "delta_mb",
        min: 0,
        max: 1_000_000,
        default: 8,
        summary: "An app that was paged out must have grown by this much before it is again",
    },
    Parameter {
        name: "app_throttle_s",
        min: 0,
        max: 86_400,
        default: 10,
        summary: "Seconds between two page-outs of one app; twice as many when swap runs low",
    },
    Parameter {
        name: "cpu_percent",
        min: 1,
        max: 200,
        default: 50,
        summary: "Part of one CPU that reclaim takes at most",
    },
    Parameter {
        name: "swap_free_percent",
        min: 0,
        max: 90,
        default: 10,
        summary: "Below this part of swap free, nothing is paged out",
    },
    Parameter {
        name: "ratio_percent",
        min: 100,
        max: 1000,
        default: 130,
        summary: "Bytes that compressed swap must hold for 100 that it takes",
    },
    Parameter {
        name: "refault_percent",
        min: 1,
        max: 100,
        default: 1,
        summary: "Part of its time that an app may lose to what kilter paged out",
    },
    Parameter {
        name: "prefetch",
        min: 0,
        max: 1,
        default: 1,
        summary: "Read an app back at once when it comes to the front again",
    },
    Parameter {
        name: "call_kib",
        min: 4,
        max: 65_536,
        default: 1024,
        summary: "KiB in one call; the app's own mmap waits for so long",
    },
    Parameter {
        name: "workers",
        min: 1,
        max: 2,
        default: 1,
        summary: "Workers on one app",
    },
];

/// The parameters by their defaults.
pub fn defaults() -> Parameters {
    Parameters::new(&PARAMETERS)
}

/// The parameters as the policy takes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Part of memory available below which apps are paged out, 0 to 1.
    pub available: f64,
    /// Stall in a second that counts as pressure.
    pub stall_ms: u32,
    /// oom_score_adj from which an app is cached.
    pub oom_score_adj: i32,
    /// Seconds without CPU time after which an app is cached.
    pub idle_s: Option<f64>,
    /// Bytes below which an app is left out.
    pub min_app: u64,
    /// Bytes by which it must have grown since it was paged out.
    pub delta: u64,
    /// Seconds between two page-outs of one app.
    pub app_throttle_s: f64,
    /// Part of one CPU that reclaim takes at most.
    pub cpu: f64,
    /// Part of swap that must be free.
    pub swap_free: f64,
    /// Bytes held for one byte taken.
    pub ratio: f64,
    /// Part of its time that an app may lose.
    pub refault: f64,
    /// Whether returning apps are read back.
    pub prefetch: bool,
    /// Bytes in one call.
    pub call_bytes: usize,
    /// Workers.
    pub workers: usize,
}

impl From<&Parameters> for Tuning {
    fn from(params: &Parameters) -> Self {
        let value = |name| params.get(name).expect("a parameter of the table");
        let percent = |name| value(name) as f64 / 100.0;
        let megabytes = |name| value(name).unsigned_abs() << 20;
        let idle_s = value("idle_s") as f64;
        Tuning {
            available: percent("available_percent"),
            stall_ms: value("stall_ms") as u32,
            oom_score_adj: value("oom_score_adj") as i32,
            idle_s: (idle_s > 0.0).then_some(idle_s),
            min_app: megabytes("min_app_mb"),
            delta: megabytes("delta_mb"),
            app_throttle_s: value("app_throttle_s") as f64,
            cpu: percent("cpu_percent"),
            swap_free: percent("swap_free_percent"),
            ratio: percent("ratio_percent"),
            refault: percent("refault_percent"),
            prefetch: value("prefetch") == 1,
            call_bytes: (value("call_kib") as usize * 1024).next_power_of_two(),
            workers: value("workers") as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_lie_in_their_ranges_and_both_ends_can_be_used() {
        for end in [|p: &Parameter| p.min, |p: &Parameter| p.max] {
            let mut params = defaults();
            for parameter in &PARAMETERS {
                assert!(
                    (parameter.min..=parameter.max).contains(&parameter.default),
                    "{}",
                    parameter.name
                );
                params
                    .set(parameter.name, &end(parameter).to_string())
                    .unwrap();
            }
            let tuning = Tuning::from(&params);
            assert!(
                tuning.call_bytes.is_power_of_two() && tuning.refault > 0.0 && tuning.cpu > 0.0
            );
        }
        assert_eq!(Tuning::from(&defaults()).idle_s, Some(60.0));
    }
}
