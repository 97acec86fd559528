//! Transactions against a simulated kernel that has the couplings of the real one, and against
//! death at every point.

mod again;
mod crash;
mod fake;
mod late;
mod rules;
