//! In place of the scheduler where it was not built: it can be asked for, and says why it is not.

use crate::ended::Ended;
use crate::options::Options;
use crate::refusal::Refusal;
use crate::stats::Stats;
use kilter_kernel::Parameters;
use std::convert::Infallible;

/// Why the scheduler could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It is not there.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Never: nothing is loaded.
    #[error("{}", .0.line())]
    Ended(Box<Ended>),
}

/// A scheduler that cannot exist.
pub struct Scheduler(Infallible);

impl Scheduler {
    /// Says that there is none.
    pub fn start(_: &Options) -> Result<Self, StartError> {
        Err(Refusal::NotBuilt.into())
    }

    /// Never called.
    pub fn set_params(&mut self, _: &Parameters) -> u64 {
        match self.0 {}
    }

    /// Never called.
    pub fn stats(&self) -> Vec<Stats> {
        match self.0 {}
    }

    /// Never called.
    pub fn ended(&self) -> Option<Ended> {
        match self.0 {}
    }

    /// Never called.
    pub fn stop(self) -> Option<Ended> {
        match self.0 {}
    }

    /// Never called.
    pub fn can_kick(&self) -> bool {
        match self.0 {}
    }
}
