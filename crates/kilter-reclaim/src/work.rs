//! Giving the advice: small calls, one after the other, that can be cancelled between any two.
//!
//! A call holds the target's `mmap_lock` for reading, so a target that maps memory waits for it; and
//! memory of a killed target is not freed before it ends. Both are why calls are small.

use crate::ranges::{Choice, Skips};
use crate::target::{State, Target};
use kilter_kernel::{Advice, RANGES_AT_MOST, advise};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

/// How the work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Bytes in one call at most; a power of two, so that calls end on boundaries of huge pages where
    /// they are as large.
    pub call_bytes: usize,
    /// Workers, which take parts of the addresses from both ends.
    pub workers: usize,
}

/// How it ended. The worst of several workers' counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Everything was done.
    #[default]
    Whole,
    /// It was told to stop.
    Cancelled,
    /// The process executed another program.
    Executed,
    /// The process ended.
    Died,
    /// The kernel refused: the right is missing, or it has no such call.
    Refused(i32),
}

impl End {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            End::Whole => "whole",
            End::Cancelled => "cancelled",
            End::Executed => "executed",
            End::Died => "died",
            End::Refused(_) => "refused",
        }
    }
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Bytes that the kernel walked.
    pub walked: u64,
    /// Calls.
    pub calls: u64,
    /// Ranges that the kernel refused to take advice about.
    pub refused: Vec<Range<usize>>,
    /// Bytes that were no longer mapped.
    pub skipped: Skips,
    /// How it ended.
    pub end: End,
}

/// Bytes that a worker takes at a time, where there are several.
const PART: usize = 16 << 20;

/// Gives the advice about all ranges. `cancelled` is asked before each call.
pub fn work(
    target: &Target,
    choice: &Choice,
    manner: Manner,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Work {
    let parts = match manner.workers {
        0 | 1 => 1,
        _ => bytes(&choice.ranges).div_ceil(PART).max(1),
    };
    let parts = Mutex::new(VecDeque::from(split(&choice.ranges, parts)));
    let take = |at: usize| {
        let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
        // From both ends: two in one page table would wait for each other, and whoever has the slower
        // CPU takes less.
        match at % 2 {
            0 => parts.pop_front(),
            _ => parts.pop_back(),
        }
    };
    let worker = |at: usize| {
        let mut worker = Worker {
            target,
            mappings: None,
            work: Work::default(),
        };
        while worker.work.end == End::Whole
            && let Some(part) = take(at)
        {
            worker.run(part.into(), manner.call_bytes, cancelled);
        }
        worker.work
    };
    let mut sum = Work::default();
    let mut add = |work: Work| {
        sum.walked += work.walked;
        sum.calls += work.calls;
        sum.refused.extend(work.refused);
        sum.skipped.merge(&work.skipped);
        sum.end = sum.end.max(work.end);
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..manner.workers)
            .map(|at| scope.spawn(move || worker(at)))
            .collect();
        add(worker(0));
        for thread in threads {
            // A panic is a defect: let it be seen.
            add(thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    sum
}

fn bytes(ranges: &[(Range<usize>, Advice)]) -> usize {
    ranges.iter().map(|(range, _)| range.len()).sum()
}

/// Parts of about equal bytes, in order.
fn split(ranges: &[(Range<usize>, Advice)], parts: usize) -> Vec<Vec<(Range<usize>, Advice)>> {
    /// Parts begin at these boundaries, so that no huge page is cut.
    const BOUNDARY: usize = 2 << 20;
    let share = bytes(ranges).div_ceil(parts).max(1);
    let mut split = vec![Vec::new()];
    let mut room = share;
    for (range, advice) in ranges {
        let mut range = range.clone();
        while !range.is_empty() {
            let last = split.len() == parts;
            let end = match range
                .start
                .saturating_add(room)
                .checked_next_multiple_of(BOUNDARY)
            {
                Some(end) if !last => end.min(range.end),
                _ => range.end,
            };
            let taken = range.start..end;
            room = room.saturating_sub(taken.len());
            range.start = end;
            split
                .last_mut()
                .expect("never empty")
                .push((taken, *advice));
            if room == 0 && !last {
                split.push(Vec::new());
                room = share;
            }
        }
    }
    split
}

/// The ranges of the next call: up to so many bytes, of one kind of advice.
fn next_call(
    ranges: &mut VecDeque<(Range<usize>, Advice)>,
    call_bytes: usize,
) -> Option<(Vec<Range<usize>>, Advice)> {
    let advice = ranges.front()?.1;
    let mut call = Vec::new();
    let mut room = call_bytes;
    while room > 0 && call.len() < RANGES_AT_MOST {
        let Some((range, _)) = ranges.front_mut().filter(|(_, other)| *other == advice) else {
            break;
        };
        let boundary = (range.start + 1).next_multiple_of(call_bytes);
        let end = range.end.min(range.start + room).min(boundary);
        let taken = range.start..end;
        room -= taken.len();
        range.start = end;
        if range.start >= range.end {
            ranges.pop_front();
        }
        let at_boundary = end == boundary;
        call.push(taken);
        // A call that has filled up to a boundary ends there, so that the next begins on one.
        if at_boundary {
            break;
        }
    }
    Some((call, advice))
}

struct Worker<'a> {
    target: &'a Target,
    /// The mappings, once a range was refused: ranges found by a scan may span several.
    mappings: Option<Vec<Range<usize>>>,
    work: Work,
}

impl Worker<'_> {
    fn run(
        &mut self,
        mut ranges: VecDeque<(Range<usize>, Advice)>,
        call_bytes: usize,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) {
        while let Some((call, advice)) = next_call(&mut ranges, call_bytes) {
            self.work.end = match self.target.state() {
                _ if cancelled() => End::Cancelled,
                State::Ended => End::Died,
                State::Executed => End::Executed,
                State::Same => self.advise_all(call, advice),
            };
            if self.work.end != End::Whole {
                return;
            }
        }
    }

    /// One call, and as many more as the kernel finds fault with ranges in it.
    fn advise_all(&mut self, call: Vec<Range<usize>>, advice: Advice) -> End {
        let mut rest = call;
        while !rest.is_empty() {
            self.work.calls += 1;
            match advise(self.target.as_fd(), &rest, advice) {
                Ok(walked) => {
                    self.work.walked += walked as u64;
                    drop_front(&mut rest, walked);
                    if walked == 0 {
                        self.refuse(rest.remove(0));
                    }
                }
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR | Errno::AGAIN) => {}
                    Some(Errno::SRCH) => return End::Died,
                    // What is mapped of it was done.
                    Some(Errno::NOMEM) => {
                        let range = rest.remove(0);
                        self.work.skipped.add("unmapped meanwhile", range.len());
                    }
                    Some(Errno::INVAL) => {
                        let range = rest.remove(0);
                        let parts = self.mappings_in(&range);
                        match parts.len() {
                            0 | 1 => self.refuse(range),
                            _ => drop(rest.splice(0..0, parts)),
                        }
                    }
                    _ => return End::Refused(error.raw_os_error().unwrap_or(0)),
                },
            }
        }
        End::Whole
    }

    fn refuse(&mut self, range: Range<usize>) {
        match self.work.refused.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.work.refused.push(range),
        }
    }

    /// The parts of a range that lie in one mapping each.
    fn mappings_in(&mut self, range: &Range<usize>) -> Vec<Range<usize>> {
        let target = self.target;
        let mappings = self.mappings.get_or_insert_with(|| {
            let mut mappings = Vec::new();
            // Of a process that has ended there are none.
            let _ = target.each_mapping(|mapping| {
                mappings.push(mapping.range);
                ControlFlow::Continue(())
            });
            mappings
        });
        let first = mappings.partition_point(|mapping| mapping.end <= range.start);
        mappings[first..]
            .iter()
            .take_while(|mapping| mapping.start < range.end)
            .map(|mapping| mapping.start.max(range.start)..mapping.end.min(range.end))
            .collect()
    }
}

/// Takes so many bytes from the front.
fn drop_front(ranges: &mut Vec<Range<usize>>, mut bytes: usize) {
    let mut whole = 0;
    for range in ranges.iter_mut() {
        let taken = bytes.min(range.len());
        range.start += taken;
        bytes -= taken;
        if range.start < range.end {
            break;
        }
        whole += 1;
    }
    ranges.drain(..whole);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges() -> impl Strategy<Value = Vec<(Range<usize>, Advice)>> {
        proptest::collection::vec((1..3_000_usize, 0..600_usize, any::<bool>()), 0..50).prop_map(
            |parts| {
                let mut at = 0x10_0000;
                parts
                    .into_iter()
                    .map(|(pages, gap, cold)| {
                        let start = at + gap * 4096;
                        at = start + pages * 4096;
                        (start..at, if cold { Advice::Cold } else { Advice::PageOut })
                    })
                    .collect()
            },
        )
    }

    fn pages(ranges: &[(Range<usize>, Advice)]) -> Vec<(usize, Advice)> {
        let pages = |(range, advice): &(Range<usize>, Advice)| {
            let advice = *advice;
            range
                .clone()
                .step_by(4096)
                .map(move |page| (page, advice))
                .collect::<Vec<_>>()
        };
        ranges.iter().flat_map(pages).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn calls_hold_every_page_once_and_are_small(given in ranges(), power in 14..23_u32) {
            let call_bytes = 1 << power;
            let mut left: VecDeque<_> = given.iter().cloned().collect();
            let mut made = Vec::new();
            while let Some((call, advice)) = next_call(&mut left, call_bytes) {
                let bytes: usize = call.iter().map(Range::len).sum();
                prop_assert!(bytes <= call_bytes && bytes > 0 && call.len() <= RANGES_AT_MOST);
                made.extend(call.into_iter().map(|range| (range, advice)));
            }
            prop_assert_eq!(pages(&made), pages(&given));
        }

        #[test]
        fn parts_hold_every_page_once(given in ranges(), parts in 1..4_usize) {
            let split = split(&given, parts);
            prop_assert!(split.len() <= parts);
            prop_assert_eq!(pages(&split.concat()), pages(&given));
        }

        #[test]
        fn what_is_done_is_taken_from_the_front(given in ranges(), bytes in 0..20_000_000_usize) {
            let mut rest: Vec<Range<usize>> = given.iter().map(|(range, _)| range.clone()).collect();
            let before: usize = rest.iter().map(Range::len).sum();
            drop_front(&mut rest, bytes);
            let after: usize = rest.iter().map(Range::len).sum();
            prop_assert_eq!(after, before.saturating_sub(bytes));
        }
    }
}
