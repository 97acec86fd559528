//! One module a command, and `lab` and `space` for what some of them share.

pub mod apply;
pub mod audit;
pub mod bench;
pub mod compare;
pub mod docs;
#[cfg(test)]
mod docs_ktweak;
pub mod doctor;
pub mod evidence;
mod evidence_import;
mod evidence_text;
pub mod export;
pub mod generate;
pub mod groups;
mod groups_demo;
pub mod hold;
pub mod holder;
pub mod import;
mod import_script;
pub mod knobs;
pub mod lab;
pub mod load;
pub mod profile;
pub mod reclaim;
pub mod report;
pub mod run;
pub mod sched;
pub mod selftest;
mod socket;
mod space;
pub mod status;
pub mod tune;
pub mod why;
