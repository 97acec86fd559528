//! Knobs: what the catalog says of one setting, and what this kernel says of it.

use crate::KnownEvidence;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One entry of the catalog. A name or path may hold placeholders (`<dev>`, `<policy>`), at most two,
/// which are expanded to the instances that the machine has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KnobSpec {
    /// Dotted name: `vm.swappiness`, `block.<dev>.nr_requests`, `sched.features.NEXT_BUDDY`.
    pub name: String,
    /// What it sets, in one line.
    pub summary: String,
    /// What it does to the machine, when to change it and what is wrongly believed of it.
    pub why: String,
    /// The kind of value, with its enforced range or choices.
    pub value: ValueKind,
    /// Unit of the value as kilter takes it: `ns`, `KiB`, `percent`, `pages`, … or empty.
    #[serde(default)]
    pub unit: String,
    /// The mainline kernel's default, with what it depends on, for people to read.
    pub default: String,
    /// What `tune` samples. Absent: never searched unless named with a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
    /// The worst that a wrong value does.
    pub risk: Risk,
    /// Measurements that this knob falsifies (`diskstats`, `vmstat`, `schedstat`, `perf`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blinds: Vec<String>,
    /// How this knob and others move each other.
    #[serde(default, skip_serializing_if = "Couplings::is_empty")]
    pub couplings: Couplings,
    /// Where the knob lives, newest kernels first; the first path that exists is used. Empty only
    /// where `by_hand` says how else it is set.
    #[serde(default)]
    pub paths: Vec<PathSpec>,
    /// For settings that no file holds (an attribute of a task, a boot parameter, a cgroup that
    /// systemd owns): how a person sets it. kilter explains such a knob and does not write it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by_hand: String,
    /// What takes its place where no path exists any more.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub successor: String,
    /// Kernel documents, commits, articles and measurements behind this entry.
    pub sources: Vec<String>,
}

/// A place where a knob lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathSpec {
    /// Absolute path below `/proc/sys`, `/sys` or a listed exception.
    pub file: String,
    /// Kernels that have it, for people to read: `≤ 5.12`, `5.13-6.5`, `≥ 6.6`, `all`.
    pub era: String,
    /// How the file shows the value and takes it.
    #[serde(default)]
    pub format: Format,
    /// For choices whose own file shows the current word alone: the file that lists the words which
    /// the kernel offers now. For numbers: the file that lists those the hardware has (frequencies).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub offers: String,
    /// For a file that is there only while another knob has a certain value: that knob and value
    /// (`block.<dev>.scheduler=bfq`). One of the whole machine is there while any instance of the
    /// other knob has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub appears_with: String,
}

/// How a kernel file shows and takes a value. Written values always end in a newline: some files
/// refuse a value without one (`printk_devkmsg`) and none refuses one with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The file holds the value and nothing else: `60`.
    #[default]
    Plain,
    /// All choices in a line, the current one in brackets: `none [mq-deadline] bfq`.
    Bracketed,
    /// All choices in a line, the current one in parentheses: `none voluntary (full)`.
    Parenthesised,
    /// A module parameter of type bool: shows `Y` or `N`; the value is `1` or `0`.
    YesNo,
    /// Shows hexadecimal (`0x0007`), takes decimal or hexadecimal; the value is decimal.
    Hex,
    /// Several numbers between any white space (`4096\t131072\t6291456`); the value has single spaces.
    Spaced,
    /// A set of CPUs in hexadecimal, in groups of eight digits (`00000001,0000000f`); the value has
    /// neither commas nor leading zeros.
    Mask,
    /// Pairs of CPU and number (`0:1324800 1:0`); the value is CPU 0's number, written as `0:NUMBER`.
    Cpu0,
    /// One word of a line of scheduler features (`NEXT_BUDDY`, `NO_NEXT_BUDDY`), named by the last
    /// part of the knob's name; the value is `1` or `0`.
    Feature,
}

/// The kind of a value and what is allowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ValueKind {
    /// A whole number. Refused outside the range, before anything is written.
    Int {
        /// Smallest allowed value.
        min: i64,
        /// Largest allowed value.
        max: i64,
    },
    /// `0` or `1`.
    Bool,
    /// One of a list of words.
    Choice {
        /// The words that are known; one that is not listed is refused.
        choices: Vec<String>,
    },
    /// Whole numbers with a space between them, each within the range.
    List {
        /// Smallest allowed number.
        min: i64,
        /// Largest allowed number.
        max: i64,
        /// Most numbers; at least one is needed.
        most: usize,
    },
    /// A set of CPUs as a hexadecimal number, the lowest bit for CPU 0: `3` is CPUs 0 and 1.
    Mask,
}

/// What a search samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "scale", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Search {
    /// Evenly over an interval, in steps.
    Linear {
        /// Smallest value tried.
        min: i64,
        /// Largest value tried.
        max: i64,
        /// Distance between neighbouring values.
        #[serde(default = "one")]
        step: i64,
    },
    /// Evenly over the logarithm.
    Log {
        /// Smallest value tried; above zero.
        min: i64,
        /// Largest value tried.
        max: i64,
    },
    /// Each of a list of values (for bools and choices, and for odd sets of numbers).
    Values {
        /// The values tried.
        values: Vec<String>,
    },
}

fn one() -> i64 {
    1
}

/// The worst that a wrong value of a knob does. `security`, `durability` and `hang` are never
/// searched, and are applied only with `--allow`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Risk {
    /// Slower or faster, nothing else.
    Low,
    /// Worse latency or responsiveness, or stalls.
    Latency,
    /// More memory in use, swapping, or tasks killed for lack of memory.
    Memory,
    /// More heat and less battery.
    Power,
    /// Logs, statistics or diagnostics are lost.
    Diagnostics,
    /// More data lost in a crash.
    Durability,
    /// A defence is removed.
    Security,
    /// The machine can lock up.
    Hang,
}

impl Risk {
    /// Whether a person must say yes to this risk by name.
    pub fn needs_consent(self) -> bool {
        matches!(self, Risk::Durability | Risk::Security | Risk::Hang)
    }
}

/// How a knob moves others, and how it must be written. Names may hold the same placeholder as the
/// knob's own name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Couplings {
    /// The other member of a pair in which a write of one sets the other to zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excludes: Option<String>,
    /// Knobs that a write of this one resets or lifts: written after it, and put back with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resets: Vec<String>,
    /// Files without a knob of their own that a write of this one resets; `*` in the last part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resets_files: Vec<String>,
    /// A knob that takes its own value again after this one was written, which makes the kernel
    /// keep the new value over CPU hotplug.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// This knob's value must not be above that knob's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<String>,
}

impl Couplings {
    /// Whether the knob stands alone.
    pub fn is_empty(&self) -> bool {
        *self == Couplings::default()
    }
}

/// One knob on this machine: an instance of a catalog entry with what the kernel shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knob {
    /// The name with its placeholder filled in: `block.vda.nr_requests`.
    pub name: String,
    /// What this kernel says.
    pub state: KnobState,
    /// Whether a glob over devices leaves it out unless it is named (loop, ram, zram, dm, md).
    pub virtual_device: bool,
    /// The catalog entry.
    pub spec: KnobSpec,
    /// For choices whose file lists what it offers now: the words in the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<String>,
}

/// A knob and what was found out about it. `kilter knobs show --json` prints a list of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KnobDetails {
    /// The knob.
    #[serde(flatten)]
    pub knob: Knob,
    /// All verdicts on it, newest first.
    pub evidence: Vec<KnownEvidence>,
}

/// What this kernel says of a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum KnobState {
    /// It is here and can be read.
    Present {
        /// Its value now.
        value: String,
        /// The file.
        path: String,
        /// Whether this process may write it.
        writable: bool,
    },
    /// It cannot be used, for a reason.
    Unavailable(Unavailable),
}

/// Why a knob cannot be read or written here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unavailable {
    /// The reason, as one word for programs.
    pub reason: UnavailableReason,
    /// The reason, in a sentence for people.
    pub detail: String,
}

/// Reasons why a knob cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnavailableReason {
    /// No path of it exists on this kernel.
    Absent,
    /// Kernel lockdown refuses it, even to root.
    LockedDown,
    /// The kernel offers it for reading only.
    ReadOnly,
    /// The caller lacks the right; root may have it.
    NotPermitted,
    /// It exists and the kernel cannot do it on this hardware (an empty file, EOPNOTSUPP, 524).
    Unsupported,
    /// debugfs is not mounted.
    NotMounted,
    /// No file holds it: a person sets it by other means.
    ByHand,
}
