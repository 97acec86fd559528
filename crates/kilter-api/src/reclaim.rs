//! Proactive reclaim: what one reclaim did, and how the daemon and its apps stand.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `kilter reclaim once`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReclaimOnce {
    /// The process; absent for a cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The cgroup, as a path below its hierarchy; absent for a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Name of the process, or of the cgroup.
    pub name: String,
    /// Processes that it was made of.
    pub processes: usize,
    /// `process_madvise` or `memory.reclaim`.
    pub method: String,
    /// What was done with swap-backed memory: `cold`, `pageout` or `leave`.
    pub anon: String,
    /// What was done with pages of files.
    pub file: String,
    /// Before.
    pub before: MemoryUse,
    /// After.
    pub after: MemoryUse,
    /// Bytes that left memory: what was resident before and no longer is.
    pub reclaimed_bytes: u64,
    /// Bytes that the kernel walked, which is what its calls return.
    pub walked_bytes: u64,
    /// Bytes by which compressed swap in memory (zram) grew meanwhile, whoever wrote to it; absent
    /// where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zram_grew_bytes: Option<i64>,
    /// Bytes by which the swap cache grew meanwhile: pages taken from the target that are still in
    /// memory, because they are being written to swap, or could not be.
    #[serde(default)]
    pub swap_cache_grew_bytes: i64,
    /// What the machine gained: reclaimed bytes less what zram and the swap cache grew by.
    pub gained_bytes: i64,
    /// Bytes still resident that other processes map too: nothing reclaims these from here.
    pub shared_bytes: u64,
    /// Seconds from beginning to end, the choice of ranges included.
    pub seconds: f64,
    /// CPU seconds that it cost.
    pub cpu_s: f64,
    /// Seconds for finding the ranges.
    pub scan_s: f64,
    /// How ranges were found: `maps`, `pagemap_scan` or `none`.
    pub scan: String,
    /// Mappings that were looked at: all of them, unless page tables were scanned instead.
    pub mappings: usize,
    /// Calls made.
    pub calls: u64,
    /// Bytes of a call at most.
    pub call_bytes: u64,
    /// Workers.
    pub workers: usize,
    /// What was left out, by reason.
    pub skipped: Vec<SkippedRanges>,
    /// How it ended: `whole`, `cancelled`, `died`, `executed` (another program) or `refused`.
    pub ended: String,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// Memory of a process or a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUse {
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Of these, not backed by a file.
    pub anon_bytes: u64,
    /// Bytes in swap.
    pub swapped_bytes: u64,
}

/// Address ranges that were left out for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedRanges {
    /// The reason: `not asked for`, `special`, `locked`, `huge pages`, `device`, `unmapped meanwhile`,
    /// `not resident`, `not permitted`, `out of time`.
    pub reason: String,
    /// Mappings, or parts of them.
    pub ranges: u64,
    /// Bytes of address space, resident or not.
    pub bytes: u64,
}

/// `kilter reclaim status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReclaimStatus {
    /// The running daemon; absent where none runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<ReclaimDaemon>,
}

/// A running `kilter reclaim run`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReclaimDaemon {
    /// Its process.
    pub pid: u32,
    /// Since when, RFC 3339.
    pub since: String,
    /// `pressure` or `on-cached`.
    pub policy: String,
    /// The parameters in force.
    pub params: BTreeMap<String, i64>,
    /// The memory cgroup that it watches; absent: the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Memory as the daemon saw it last.
    pub memory: ReclaimMemory,
    /// What wakes it, besides changes.
    pub wakes: Vec<String>,
    /// Why nothing is paged out now, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Sums since its start.
    pub total: ReclaimTotals,
    /// The apps it follows, the longest cached first.
    pub apps: Vec<ReclaimApp>,
    /// Troubles, each once.
    pub troubles: Vec<String>,
}

/// Memory as the daemon sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReclaimMemory {
    /// Bytes in all: of the machine, or the limit of the cgroup.
    pub total_bytes: u64,
    /// Bytes available without swapping.
    pub available_bytes: u64,
    /// Swap in all.
    pub swap_total_bytes: u64,
    /// Swap that is free.
    pub swap_free_bytes: u64,
    /// Bytes held by zram for each byte it takes; absent without zram, or while it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zram_ratio: Option<f64>,
    /// Times that the kernel told of memory pressure.
    pub pressure_events: u64,
}

/// Sums over all apps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReclaimTotals {
    /// Times that an app was made cold.
    pub colds: u64,
    /// Times that an app was paged out.
    pub pageouts: u64,
    /// Times that an app was read back ahead of its need.
    pub prefetches: u64,
    /// Bytes reclaimed.
    pub reclaimed_bytes: u64,
    /// Bytes that came back from swap afterwards.
    pub refaulted_bytes: u64,
    /// CPU seconds of reclaim.
    pub reclaim_cpu_s: f64,
    /// CPU seconds of the daemon in all.
    pub cpu_s: f64,
    /// Times that it woke up.
    pub wakeups: u64,
    /// Looks at every app.
    pub looks: u64,
    /// Looks at every process.
    pub sweeps: u64,
    /// Processes seen at the last one.
    pub processes: usize,
}

/// An app: a cgroup or a tree of processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReclaimApp {
    /// Its name: that of its first process, or of its cgroup.
    pub name: String,
    /// Its first process.
    pub pid: i32,
    /// Its cgroup, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its processes.
    pub pids: Vec<i32>,
    /// `active`, `cached`, `cold`, `paged-out` or `left-out`.
    pub state: String,
    /// Why it is in this state.
    pub why: String,
    /// Seconds for which it has been cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_s: Option<f64>,
    /// Its memory now.
    pub memory: MemoryUse,
    /// Bytes reclaimed from it so far.
    pub reclaimed_bytes: u64,
    /// Bytes that it swapped back in after that.
    pub refaulted_bytes: u64,
    /// Seconds that kilter is estimated to have cost it.
    pub cost_s: f64,
    /// Times in a row that it came back at once.
    pub strikes: u32,
    /// Seconds for which it is still left alone because of that.
    pub left_alone_s: f64,
    /// What was done last, and when: `pageout`, `cold`, `prefetch` or empty.
    pub last_action: String,
    /// Seconds since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_action_s: Option<f64>,
    /// Why it was done, or why nothing was.
    pub last_why: String,
    /// Every step of the last decision, in order.
    pub chain: Vec<DecisionStep>,
}

/// One action of the daemon; `kilter reclaim run --json` prints one a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReclaimEvent {
    /// The app.
    pub app: String,
    /// Its first process.
    pub pid: i32,
    /// Its cgroup.
    pub cgroup: String,
    /// `cold`, `pageout` or `prefetch`.
    pub action: String,
    /// Why.
    pub why: String,
    /// Bytes reclaimed.
    pub reclaimed_bytes: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// CPU seconds that it took.
    pub cpu_s: f64,
    /// It was not carried to its end: the app came back, or the daemon was to end.
    pub cut_short: bool,
}

/// One question of a decision and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionStep {
    /// The question.
    pub question: String,
    /// The answer, with its numbers.
    pub answer: String,
    /// Whether the answer decided.
    pub decides: bool,
}
