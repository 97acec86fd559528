//! Which addresses to give advice about: from `maps`, or from a scan of the page tables where there
//! are many mappings.

use crate::maps::{Backing, Mapping};
use crate::target::{Target, TargetError};
use kilter_api::SkippedRanges;
use kilter_kernel::{Advice, Pages, scan_pages};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

/// Mappings above which the page tables are scanned instead, where the kernel can (Linux 6.7).
pub const MANY: usize = 1000;

/// Where mappings end that nobody asked to have higher: 47 bits of address, but for arm64, which has 48.
/// A kernel with fewer refuses the scan.
#[cfg(target_pointer_width = "64")]
const USER_END: usize =
    (1 << if cfg!(target_arch = "aarch64") {
        48
    } else {
        47
    }) - (1 << 16);
#[cfg(not(target_pointer_width = "64"))]
const USER_END: usize = 0xc000_0000 - (1 << 16);

/// How ranges were found, as told.
const SCAN: &str = "pagemap_scan";

/// What is to be done with one kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Nothing.
    Leave,
    /// First in line when memory is needed (`MADV_COLD`).
    Cold,
    /// Out now (`MADV_PAGEOUT`).
    PageOut,
}

impl Hint {
    /// The kernel's advice.
    pub fn advice(self) -> Option<Advice> {
        match self {
            Hint::Leave => None,
            Hint::Cold => Some(Advice::Cold),
            Hint::PageOut => Some(Advice::PageOut),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Hint::Leave => "leave",
            Hint::Cold => "cold",
            Hint::PageOut => "pageout",
        }
    }
}

/// A hint for each kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints {
    /// Memory that goes to swap: anonymous and shared memory.
    pub anon: Hint,
    /// Pages of files.
    pub file: Hint,
}

impl Hints {
    /// The same for both.
    pub fn all(hint: Hint) -> Self {
        Hints {
            anon: hint,
            file: hint,
        }
    }
}

/// Addresses with the advice for each.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// In ascending order for each kind of advice.
    pub ranges: Vec<(Range<usize>, Advice)>,
    /// Mappings that were looked at: all of them, unless the page tables were scanned instead.
    pub mappings: usize,
    /// `maps` or `pagemap_scan`.
    pub how: &'static str,
    /// What was left out.
    pub skipped: Skips,
}

/// What was left out, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skips(BTreeMap<&'static str, (u64, u64)>);

impl Skips {
    /// Adds a range.
    pub fn add(&mut self, reason: &'static str, bytes: usize) {
        let (ranges, sum) = self.0.entry(reason).or_default();
        *ranges += 1;
        *sum = sum.saturating_add(bytes as u64);
    }

    /// Adds all of another's.
    pub fn merge(&mut self, other: &Skips) {
        for (reason, (ranges, bytes)) in &other.0 {
            let (sum, total) = self.0.entry(reason).or_default();
            *sum += ranges;
            *total = total.saturating_add(*bytes);
        }
    }

    /// As a message.
    pub fn told(&self) -> Vec<SkippedRanges> {
        let told = |(reason, &(ranges, bytes)): (&&str, &(u64, u64))| SkippedRanges {
            reason: (*reason).to_owned(),
            ranges,
            bytes,
        };
        self.0.iter().map(told).collect()
    }
}

/// Chooses the ranges of a process: by a scan of its page tables where it has more than so many
/// mappings.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn choose(target: &Target, hints: Hints, many: usize) -> Result<Choice, TargetError> {
    let mut choice = Choice::of_maps();
    let mut start = None;
    target.each_mapping(|mapping| {
        start.get_or_insert(mapping.range.start);
        choice.mappings += 1;
        if choice.mappings > many {
            // Writing out the rest would cost the kernel as much as the scan.
            return ControlFlow::Break(());
        }
        choice.add(mapping, hints);
        ControlFlow::Continue(())
    })?;
    let mappings = choice.mappings;
    if mappings <= many {
        return Ok(choice);
    }
    if let Some(choice) = start.and_then(|start| scanned(target, hints, start..USER_END)) {
        return Ok(Choice { mappings, ..choice });
    }
    let mut choice = Choice::of_maps();
    target.each_mapping(|mapping| {
        choice.mappings += 1;
        choice.add(mapping, hints);
        ControlFlow::Continue(())
    })?;
    Ok(choice)
}

/// What of a process is in swap, to be read back; all of its anonymous memory where the kernel cannot
/// tell.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn swapped(target: &Target) -> Result<Choice, TargetError> {
    let hints = Hints {
        anon: Hint::Cold,
        file: Hint::Leave,
    };
    let mut choice = Choice::of_maps();
    target.each_mapping(|mapping| {
        choice.add(mapping, hints);
        ControlFlow::Continue(())
    })?;
    let ends = choice.ranges.first().zip(choice.ranges.last());
    if let Some(within) = ends.map(|((first, _), (last, _))| first.start..last.end)
        && let Ok(found) = scan_pages(target.pagemap(), within, Pages::Swapped)
    {
        choice.how = SCAN;
        choice.ranges = found
            .into_iter()
            .map(|range| (range, Advice::WillNeed))
            .collect();
    }
    choice
        .ranges
        .iter_mut()
        .for_each(|(_, advice)| *advice = Advice::WillNeed);
    Ok(choice)
}

impl Choice {
    /// Nothing yet, to be chosen from mappings.
    fn of_maps() -> Self {
        Choice {
            how: "maps",
            ..Choice::default()
        }
    }

    /// Adds a mapping, if advice can be about it. Adjacent ones become one.
    fn add(&mut self, Mapping { range, backing }: Mapping, hints: Hints) {
        let hint = match backing {
            Backing::Swap => hints.anon,
            Backing::File => hints.file,
            Backing::Special => return self.skipped.add("special", range.len()),
            Backing::Device => return self.skipped.add("device", range.len()),
        };
        match hint.advice() {
            Some(advice) => push(&mut self.ranges, range, advice),
            None => self.skipped.add("not asked for", range.len()),
        }
    }
}

fn push(ranges: &mut Vec<(Range<usize>, Advice)>, range: Range<usize>, advice: Advice) {
    match ranges.last_mut() {
        Some((last, same)) if last.end == range.start && *same == advice => last.end = range.end,
        _ => ranges.push((range, advice)),
    }
}

/// What is resident, by the page tables; none where the kernel cannot tell.
fn scanned(target: &Target, hints: Hints, within: Range<usize>) -> Option<Choice> {
    let kinds: Vec<(Pages, Advice)> = match (hints.anon.advice(), hints.file.advice()) {
        (Some(anon), Some(file)) if anon == file => vec![(Pages::Resident, anon)],
        (anon, file) => [(Pages::Anonymous, anon), (Pages::File, file)]
            .into_iter()
            .filter_map(|(pages, advice)| Some((pages, advice?)))
            .collect(),
    };
    let mut choice = Choice {
        how: "pagemap_scan",
        ..Choice::default()
    };
    for (pages, advice) in kinds {
        let found = scan_pages(target.pagemap(), within.clone(), pages).ok()?;
        choice
            .ranges
            .extend(found.into_iter().map(|range| (range, advice)));
    }
    Some(choice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of_maps(mappings: impl Iterator<Item = Mapping>, hints: Hints) -> Choice {
        let mut choice = Choice::of_maps();
        mappings.for_each(|mapping| choice.add(mapping, hints));
        choice
    }

    fn mapping(start: usize, pages: usize, backing: Backing) -> Mapping {
        let start = start * 4096;
        Mapping {
            range: start..start + pages * 4096,
            backing,
        }
    }

    #[test]
    fn neighbours_become_one_range_and_the_rest_is_told() {
        let mappings = [
            mapping(1, 2, Backing::Swap),
            mapping(3, 1, Backing::Swap),
            mapping(4, 1, Backing::File),
            mapping(9, 1, Backing::Special),
            mapping(11, 4, Backing::Device),
        ];
        let hints = Hints {
            anon: Hint::PageOut,
            file: Hint::Leave,
        };
        let choice = of_maps(mappings.clone().into_iter(), hints);
        assert_eq!(choice.ranges, [(4096..4 * 4096, Advice::PageOut)]);
        let told: Vec<String> = choice
            .skipped
            .told()
            .into_iter()
            .map(|skip| format!("{} {} {}", skip.reason, skip.ranges, skip.bytes / 4096))
            .collect();
        assert_eq!(told, ["device 1 4", "not asked for 1 1", "special 1 1"]);
        let hints = Hints {
            anon: Hint::PageOut,
            file: Hint::Cold,
        };
        let choice = of_maps(mappings.into_iter(), hints);
        assert_eq!(choice.ranges.len(), 2, "different advice stays apart");
    }

    proptest! {
        #[test]
        fn every_byte_is_chosen_or_told(kinds in proptest::collection::vec((0..4_usize, 1..9_usize, 0..2_usize), 0..40)) {
            let backings = [Backing::Swap, Backing::File, Backing::Special, Backing::Device];
            let mut at = 1;
            let mut mappings = Vec::new();
            for (kind, pages, gap) in kinds {
                mappings.push(mapping(at, pages, backings[kind]));
                at += pages + gap;
            }
            let all: usize = mappings.iter().map(|mapping| mapping.range.len()).sum();
            let choice = of_maps(mappings.into_iter(), Hints { anon: Hint::Cold, file: Hint::Leave });
            let chosen: usize = choice.ranges.iter().map(|(range, _)| range.len()).sum();
            let left: u64 = choice.skipped.told().iter().map(|skip| skip.bytes).sum();
            prop_assert_eq!(all, chosen + left as usize);
            prop_assert!(choice.ranges.is_sorted_by(|a, b| a.0.end <= b.0.start));
        }
    }
}
