//! What a kernel must have, found out before anything is loaded.

use crate::refusal::Refusal;
use libbpf_rs::btf::{Btf, types};
use std::path::Path;

/// Where the kernel shows its extensible scheduler.
const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// Functions that the scheduler cannot do without, with the number of their arguments. A kernel
/// whose type information is defective shows one argument more.
const FUNCTIONS: [(&str, usize); 13] = [
    ("scx_bpf_create_dsq", 2),
    ("scx_bpf_select_cpu_dfl", 4),
    ("scx_bpf_dsq_insert", 4),
    ("scx_bpf_dsq_move_to_local", 1),
    ("scx_bpf_dsq_move", 4),
    ("scx_bpf_dsq_nr_queued", 1),
    ("scx_bpf_task_cpu", 1),
    ("scx_bpf_test_and_clear_cpu_idle", 1),
    ("bpf_cpumask_test_cpu", 2),
    ("bpf_iter_scx_dsq_new", 3),
    ("bpf_iter_scx_dsq_next", 1),
    ("bpf_iter_scx_dsq_destroy", 1),
    ("bpf_iter_num_new", 3),
];

/// Enumerators that the scheduler resolves when it is loaded. One that stays unresolved would be 0,
/// and a scheduler with wrong flags freezes the machine until the watchdog ends it.
const ENUMERATORS: [(&str, &str); 7] = [
    ("scx_enq_flags", "SCX_ENQ_WAKEUP"),
    ("scx_enq_flags", "SCX_ENQ_PREEMPT"),
    ("scx_dsq_id_flags", "SCX_DSQ_LOCAL"),
    ("scx_dsq_id_flags", "SCX_DSQ_LOCAL_ON"),
    ("scx_kick_flags", "SCX_KICK_PREEMPT"),
    ("scx_ent_flags", "SCX_TASK_QUEUED"),
    ("scx_wake_flags", "SCX_WAKE_FORK"),
];

/// What of this kernel the loader needs to know.
#[derive(Debug)]
pub(crate) struct Kernel {
    btf: Btf<'static>,
    /// Value of `ops.hotplug_seq`: a CPU that comes or goes while loading is noticed.
    pub hotplug_seq: u64,
}

impl Kernel {
    /// Checks everything that can be checked without loading.
    pub fn check() -> Result<Self, Refusal> {
        if !Path::new(SCHED_EXT).exists() {
            let release = rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned();
            return Err(Refusal::NoSchedExt { release });
        }
        if let Some((name, state)) = other_scheduler() {
            return Err(Refusal::OtherScheduler { name, state });
        }
        if !rustix::process::geteuid().is_root() {
            return Err(Refusal::NotRoot);
        }
        let btf = Btf::from_vmlinux().map_err(|error| Refusal::NoBtf(error.to_string()))?;
        let kernel = Kernel {
            btf,
            hotplug_seq: read("hotplug_seq").parse().unwrap_or(0),
        };
        match kernel.missing() {
            missing if missing.is_empty() => Ok(kernel),
            missing => Err(Refusal::Missing(missing)),
        }
    }

    fn missing(&self) -> Vec<String> {
        let functions = FUNCTIONS
            .iter()
            .filter(|(name, arguments)| self.arguments(name) != Some(*arguments))
            .map(|(name, _)| match self.arguments(name) {
                Some(_) => format!("{name}() as documented (its type information is defective)"),
                None => format!("{name}()"),
            });
        let enumerators = ENUMERATORS
            .iter()
            .filter(|(of, name)| self.enumerator(of, name).is_none())
            .map(|(_, name)| (*name).to_owned());
        functions.chain(enumerators).collect()
    }

    /// Number of arguments of a kernel function.
    fn arguments(&self, name: &str) -> Option<usize> {
        let function: types::Func<'_> = self.btf.type_by_name(name)?;
        let prototype: types::FuncProto<'_> = function.next_type()?.try_into().ok()?;
        Some(prototype.iter().len())
    }

    /// The functions that are called only where they are: is this one?
    pub fn has(&self, name: &str, arguments: usize) -> bool {
        self.arguments(name) == Some(arguments)
    }

    /// Value of an enumerator.
    pub fn enumerator(&self, of: &str, name: &str) -> Option<u64> {
        self.enumerators(of)
            .into_iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value)
    }

    /// The enumerators of an enumeration with their values.
    pub fn enumerators(&self, of: &str) -> Vec<(String, u64)> {
        let named = |name: Option<&std::ffi::OsStr>| {
            name.unwrap_or_default().to_string_lossy().into_owned()
        };
        if let Some(found) = self.btf.type_by_name::<types::Enum64<'_>>(of) {
            let members = found.iter();
            return members
                .map(|member| (named(member.name), member.value as u64))
                .collect();
        }
        let found = self.btf.type_by_name::<types::Enum<'_>>(of);
        found.map_or_else(Vec::new, |found| {
            let members = found.iter();
            members
                .map(|member| (named(member.name), member.value as u64))
                .collect()
        })
    }
}

/// Name and state of the scheduler that is loaded, if one is.
fn other_scheduler() -> Option<(String, String)> {
    let state = read("state");
    (state != "disabled" && !state.is_empty()).then(|| (read("root/ops"), state))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(SCHED_EXT).join(file))
        .unwrap_or_default()
        .trim()
        .to_owned()
}
