//! The HRRN scheduler: what runs, with which parameters, and what it counted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `kilter sched status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SchedStatus {
    /// Whether this kernel can load a scheduler (sched_ext).
    pub supported: bool,
    /// Name of the scheduler that is loaded, as the kernel tells it; absent: the kernel's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<String>,
    /// The HRRN scheduler, where a kilter runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hrrn: Option<SchedRun>,
}

/// A running HRRN scheduler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SchedRun {
    /// The process whose life holds it.
    pub pid: u32,
    /// Since when, RFC 3339.
    pub since: String,
    /// How long loading and attaching took, in seconds.
    pub start_s: f64,
    /// What it was started with: `policy`, `compare`, `per_uid`, and each departure.
    pub options: BTreeMap<String, String>,
    /// The parameters in force.
    pub params: BTreeMap<String, i64>,
    /// From the last change of a parameter until a CPU acted on it, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_seen_ms: Option<f64>,
    /// Counters since the start, of all CPUs.
    pub total: SchedCounters,
    /// The same of each CPU, by number.
    pub cpus: Vec<SchedCounters>,
}

/// Counters of the scheduler since its start. Histograms count by powers of two: entry n counts
/// values from 2ⁿ to 2ⁿ⁺¹ − 1; zeros at the end are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SchedCounters {
    /// Tasks picked from a queue.
    pub picks: u64,
    /// Queued tasks that were looked at for that.
    pub scanned: u64,
    /// Most that were looked at for one pick.
    pub scanned_max: u64,
    /// Times that the running task was higher than all that waited.
    pub kept: u64,
    /// Picks for having waited longer than `max_wait_ms`.
    pub capped: u64,
    /// Picks that another CPU was faster with.
    pub races: u64,
    /// Tasks that an idle CPU pulled from another's queue.
    pub pulls: u64,
    /// Woken and new tasks put on an idle CPU at once.
    pub idle_placed: u64,
    /// Preemptions by the tick.
    pub preempted_tick: u64,
    /// Preemptions by a woken task.
    pub preempted_wakeup: u64,
    /// Preemptions by a woken kernel thread.
    pub preempted_kthread: u64,
    /// Resets of start and sum.
    pub resets: u64,
    /// Tasks waiting when last looked at.
    pub queued: u64,
    /// Most tasks that ever waited on a CPU.
    pub queued_max: u64,
    /// The longest wait for a CPU, in nanoseconds.
    pub wait_max_ns: u64,
    /// Waits for a CPU, in nanoseconds.
    pub waits: Vec<u64>,
    /// Response ratios of picked tasks.
    pub ratios: Vec<u64>,
}
