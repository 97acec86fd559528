//! Per-uid CPU groups: how they stand, and what the demonstration measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `kilter groups status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupsStatus {
    /// Where the hierarchy with the cpu controller is mounted.
    pub hierarchy: String,
    /// `v1` or `v2`.
    pub version: String,
    /// Whether the kernel gives each session outside the groups a share of its own.
    pub autogroup: bool,
    /// Seconds over which the shares were measured.
    pub interval_s: f64,
    /// The groups; none where no `kilter groups run` is at work.
    pub groups: Vec<GroupInfo>,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupInfo {
    /// Its name in the hierarchy.
    pub group: String,
    /// The user; absent for the group of all users beyond the cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The user's name, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Weight against other groups, on the scale of `cpu.weight` (1 to 10000).
    pub weight: u32,
    /// Whether it runs only when nobody else wants to.
    pub idle: bool,
    /// Percent of one CPU that it never exceeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_percent: Option<f64>,
    /// Processes in it.
    pub processes: usize,
    /// Threads in it.
    pub tasks: usize,
    /// Percent of all CPUs that it used over the interval.
    pub cpu_percent: f64,
    /// Periods so far in which its limit stopped it.
    pub throttled: u64,
    /// Seconds so far for which its limit stopped it.
    pub throttled_s: f64,
}

/// `kilter groups demo`: several tasks of one user against one of another, on one CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupsDemo {
    /// The CPU that all tasks were pinned to.
    pub cpu: usize,
    /// Seconds of each half.
    pub seconds: f64,
    /// Whether autogroup was on.
    pub autogroup: bool,
    /// Without groups.
    pub before: Vec<DemoTask>,
    /// With a group for each user.
    pub after: Vec<DemoTask>,
    /// The lone task's work with groups over its work without.
    pub speedup: f64,
}

/// One task of the demonstration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DemoTask {
    /// Its user.
    pub uid: u32,
    /// Percent of the CPU time of all tasks that it got.
    pub share_percent: f64,
    /// Work done, in rounds of a fixed calculation.
    pub work: u64,
}
