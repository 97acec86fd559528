//! Knobs and profiles: from names and values to a transaction.
//!
//! The [`Catalog`] is data (TOML, built in and from `/usr/share/kilter` and `/etc/kilter`).
//! [`probe`] says what this kernel has of a knob, [`plan`] checks values and compiles couplings
//! into the order of writing. `import` and `export` read and make other tools' files. Nothing here
//! writes a kernel file.
#![forbid(unsafe_code)]

mod catalog;
mod check;
mod compile;
mod evidence;
mod export;
mod files;
mod import;
mod import_writes;
mod late;
mod names;
mod order;
mod places;
mod plan;
mod probe;
mod profile;
mod sysctl;
mod tuned;
mod tuned_plugins;
mod wish;

pub use catalog::{Catalog, CatalogError};
pub use check::{ValueError, allowed, check_spec, check_value};
pub use evidence::{EvidenceFile, Ledger};
pub use export::{
    Item, items as export_items, magisk_module, shell_script, sysctl_conf, systemd_unit, tuned_conf,
};
pub use files::FileProblem;
pub use import::{Import, import_sysctl};
pub use import_writes::{files_of_every_kernel, import_writes};
pub use names::{UnknownName, is_glob, nearest, valid_name};
pub use places::Places;
pub use plan::{Consent, PlanError, Planned, plan};
pub use probe::{Found, instances, probe, probe_all, probe_one};
pub use profile::{
    ProfileError, ProfileValues, all_profiles, profile_values, reason_for, resolve_profile,
    save_profile,
};
pub use sysctl::{
    BadLine, SysctlLine, deciding_line, files_of, parse_sysctl, read as read_config,
    sysctl_matches, system_sysctls,
};
pub use tuned::{TunedError, import_tuned};
