//! One module a command.

pub mod apply;
pub mod bench;
pub mod doctor;
pub mod evidence;
pub mod generate;
pub mod knobs;
pub mod lab;
pub mod load;
pub mod profile;
pub mod run;
pub mod space;
pub mod status;
