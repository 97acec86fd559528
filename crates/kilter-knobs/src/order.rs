//! The order of writing: a file comes before those that its write resets.

use kilter_kernel::{KernelPath, Step};
use std::collections::BTreeSet;

/// "The first is written before the second", by path.
pub(crate) type Before = BTreeSet<(KernelPath, KernelPath)>;

/// Sorts steps so that every pair of `before` is kept; steps that are free stay in their order.
/// The catalog's couplings hold no cycle (a test sees to it); a user's might, and then the steps
/// of the cycle keep their order.
pub(crate) fn sort(mut steps: Vec<Step>, before: &Before) -> Vec<Step> {
    let mut sorted = Vec::with_capacity(steps.len());
    while !steps.is_empty() {
        let waiting: BTreeSet<&KernelPath> = steps.iter().map(|step| &step.path).collect();
        let blocked = |step: &Step| {
            before.iter().any(|(first, second)| {
                *second == step.path && *first != step.path && waiting.contains(first)
            })
        };
        let next = steps.iter().position(|step| !blocked(step)).unwrap_or(0);
        sorted.push(steps.remove(next));
    }
    sorted
}
