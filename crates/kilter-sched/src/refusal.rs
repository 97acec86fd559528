//! Why the scheduler cannot run on a machine.

/// Why the scheduler cannot run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Built without the scheduler.
    #[error(
        "this kilter was built without the HRRN scheduler (its build had no clang 16 or newer, or not the feature `sched`)"
    )]
    NotBuilt,
    /// Not root.
    #[error("loading a scheduler needs root")]
    NotRoot,
    /// A kernel without sched_ext.
    #[error(
        "this kernel ({release}) has no sched_ext: it needs Linux 6.14 or newer built with CONFIG_SCHED_CLASS_EXT=y"
    )]
    NoSchedExt {
        /// Its release.
        release: String,
    },
    /// Another scheduler runs.
    #[error("the scheduler `{name}` is loaded ({state}); only one can be")]
    OtherScheduler {
        /// Its name.
        name: String,
        /// Its state, as the kernel tells it.
        state: String,
    },
    /// No type information.
    #[error("this kernel has no type information (CONFIG_DEBUG_INFO_BTF=y): {0}")]
    NoBtf(String),
    /// The kernel lacks something that the scheduler calls or names.
    #[error("this kernel lacks what the scheduler needs: {}", .0.join(", "))]
    Missing(Vec<String>),
}
