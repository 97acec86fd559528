//! One experiment: what is asked and what was measured.

use crate::{Metric, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line that `kilter run --batch` reads. It answers each with one [`BatchReply`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunRequest {
    /// Comes back in the reply.
    pub id: u64,
    /// The values to hold during the run; full knob names.
    pub settings: Settings,
    /// The command and its arguments; executed, never given to a shell.
    pub command: Vec<String>,
    /// Executed before, outside the measurement, under the same settings; empty for none.
    pub prepare: Vec<String>,
    /// Executed after, outside the measurement; empty for none.
    pub cleanup: Vec<String>,
    /// Ends the whole process group after this many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// Waits this long after a change of settings, before the run.
    pub settle_s: f64,
    /// CPUs for the workload in the kernel's list format (`0,2-3`); absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// What to read from the output.
    pub metrics: Vec<Metric>,
}

/// One line that `kilter run --batch` writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BatchReply {
    /// The request's number.
    pub id: u64,
    /// What came of it.
    #[serde(flatten)]
    pub result: BatchResult,
}

/// What came of one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum BatchResult {
    /// The workload ran (and may have failed: see its outcome).
    Ran {
        /// The measurements.
        record: Box<RunRecord>,
    },
    /// The workload was not run: a setting was refused, or the preparation failed.
    NotRun {
        /// Why.
        error: String,
        /// What to do about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
}

/// The measurements of one run. `kilter run --json` prints one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecord {
    /// The command.
    pub command: Vec<String>,
    /// The values that were in force, as read back.
    pub settings: Settings,
    /// When it began, RFC 3339.
    pub started: String,
    /// Seconds of `CLOCK_BOOTTIME` when it began, to place runs on one axis.
    pub started_boottime_s: f64,
    /// How it ended.
    pub outcome: Outcome,
    /// Wall-clock seconds from just before the start to the exit.
    pub wall_s: f64,
    /// CPU seconds in user mode, of the command and its waited-for children.
    pub user_s: f64,
    /// CPU seconds in kernel mode.
    pub sys_s: f64,
    /// Largest resident set of any one process of it.
    pub max_rss_kib: u64,
    /// Times a process gave up the CPU by itself.
    pub voluntary_switches: u64,
    /// Times a process was preempted.
    pub involuntary_switches: u64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// What the whole machine went through meanwhile.
    pub machine: MachineDelta,
    /// Hardware and software counters by perf's names; only those that could be opened and ran.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, Counter>,
    /// Metrics read from the output, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// The end of standard output, at most 4 KiB, when it was captured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout_tail: String,
    /// The end of standard error, at most 4 KiB, when it was captured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr_tail: String,
    /// The machine. Batch replies after the first leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// What a reader should know before believing the numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// The command exited.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal ended it.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// It ran into `timeout_s` and was ended.
    TimedOut,
    /// The user ended it (Ctrl-C).
    Interrupted,
}

/// What the whole machine went through during a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineDelta {
    /// Seconds that the hypervisor kept CPUs from this machine, summed over CPUs.
    pub steal_s: f64,
    /// One-minute load average at the start.
    pub load_1m: f64,
    /// Seconds in which some task waited, per resource; absent without PSI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
}

/// Pressure-stall deltas, in seconds (kernel: Documentation/accounting/psi.rst).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pressure {
    /// Some task waited for a CPU.
    pub cpu_some_s: f64,
    /// Some task waited for memory.
    pub memory_some_s: f64,
    /// All tasks waited for memory.
    pub memory_full_s: f64,
    /// Some task waited for I/O.
    pub io_some_s: f64,
    /// All tasks waited for I/O.
    pub io_full_s: f64,
}

/// One perf counter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counter {
    /// The count, scaled up where the counter was multiplexed.
    pub value: f64,
    /// Part of the run during which it counted, 0 to 1.
    pub running: f64,
}

/// What a measurement depends on besides the settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fingerprint {
    /// Short identity of the machine and kernel: equal where results may be compared.
    pub id: String,
    /// Kernel release, `6.12.107-amd64`.
    pub kernel: String,
    /// Machine architecture, `x86_64`.
    pub arch: String,
    /// Distribution's pretty name.
    pub os: String,
    /// CPU model name.
    pub cpu: String,
    /// CPUs online.
    pub cpus: u32,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// `v1`, `v2`, `hybrid` or `none`.
    pub cgroup: String,
    /// Hypervisor or container kind, or `none`.
    pub virtualisation: String,
    /// cpufreq drivers and governors in use, or `none`.
    pub cpufreq: String,
    /// `enabled` with the scheduler's name where a sched_ext scheduler runs, else empty.
    pub sched_ext: String,
    /// Identity of this boot. Not part of `id`.
    pub boot_id: String,
}
