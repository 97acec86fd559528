//! One reclaim, now, with the truth about what it did.

use crate::cgroup::Cgroup;
use crate::maps;
use crate::ranges::{Hint, Hints, MANY, Skips, choose};
use crate::swap::{Zram, swap, zram};
use crate::target::{Target, TargetError};
use crate::usage::{Rollup, sum};
use crate::work::{End, Manner, Work, work};
use kilter_api::ReclaimOnce;
use kilter_kernel::Kernel;
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::time::Instant;

/// Bytes in one call, unless the target has huge pages: a mebibyte takes about a millisecond, which
/// is how long the target's own mmap may wait.
pub const CALL_BYTES: usize = 1 << 20;

/// Bytes in one call where a smaller one would split huge pages.
pub const HUGE_BYTES: usize = 2 << 20;

/// Bytes that a cgroup is told to reclaim in one write.
const GROUP_BYTES: u64 = 8 << 20;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub hints: Hints,
    /// Bytes in one call at most; by default [`CALL_BYTES`], or [`HUGE_BYTES`] for huge pages.
    pub call_bytes: Option<usize>,
    /// Workers, 1 or 2.
    pub workers: usize,
}

/// Reclaims from a process.
///
/// # Errors
/// There is none, or it may not be touched.
pub fn process(
    kernel: &Kernel,
    pid: i32,
    request: Request,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<ReclaimOnce, TargetError> {
    let meter = Meter::start(kernel);
    let mut sums = Sums::default();
    let target = Target::open(&kernel.below("/proc"), pid, None)?;
    sums.add(&target, request, cancelled)?;
    let told = ReclaimOnce {
        pid: Some(pid),
        name: target.name().to_owned(),
        ..ReclaimOnce::default()
    };
    Ok(meter.finish(kernel, sums, request, told))
}

/// Reclaims from a cgroup: by its own file where everything is asked for and it has one, else process
/// by process.
///
/// # Errors
/// Its processes may not be touched.
pub fn cgroup(
    kernel: &Kernel,
    group: &Cgroup,
    request: Request,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<ReclaimOnce, TargetError> {
    let meter = Meter::start(kernel);
    let mut sums = Sums::default();
    let told = ReclaimOnce {
        cgroup: Some(group.name().to_owned()),
        name: group
            .name()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned(),
        ..ReclaimOnce::default()
    };
    if request.hints == Hints::all(Hint::PageOut) && group.can_reclaim() {
        sums.by_group(group, cancelled);
        return Ok(meter.finish(kernel, sums, request, told));
    }
    for pid in group.processes() {
        match Target::open(&kernel.below("/proc"), pid, None) {
            Ok(target) => match sums.add(&target, request, cancelled) {
                // It ended meanwhile.
                Err(TargetError::Absent(_) | TargetError::Zombie(_)) | Ok(()) => {}
                Err(error) => return Err(error),
            },
            Err(TargetError::Absent(_) | TargetError::Zombie(_) | TargetError::Kernel(_)) => {}
            Err(error) => return Err(error),
        }
        if matches!(sums.work.end, End::Cancelled | End::Refused(_)) {
            break;
        }
        sums.work.end = End::Whole;
    }
    Ok(meter.finish(kernel, sums, request, told))
}

/// What is summed up over processes.
#[derive(Default)]
struct Sums {
    before: Rollup,
    after: Rollup,
    work: Work,
    skipped: Skips,
    processes: usize,
    mappings: usize,
    scan: &'static str,
    scan_s: f64,
    call_bytes: usize,
    method: &'static str,
}

impl Sums {
    fn add(
        &mut self,
        target: &Target,
        request: Request,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), TargetError> {
        let before = target.rollup()?;
        let begun = Instant::now();
        let choice = choose(target, request.hints, MANY)?;
        self.scan_s += begun.elapsed().as_secs_f64();
        let usual = match before.huge_bytes {
            0 => CALL_BYTES,
            _ => HUGE_BYTES,
        };
        let call_bytes = request.call_bytes.unwrap_or(usual);
        let manner = Manner {
            call_bytes,
            workers: request.workers,
        };
        let done = work(target, &choice, manner, cancelled);
        // A process that ended took its memory with it: nothing was reclaimed from it.
        let after = target.rollup().unwrap_or(before);
        self.skipped.merge(&choice.skipped);
        self.skipped.merge(&done.skipped);
        self.tell_refused(target, &done.refused);
        self.before = add(self.before, before);
        self.after = add(self.after, after);
        self.work.walked += done.walked;
        self.work.calls += done.calls;
        self.work.end = self.work.end.max(done.end);
        self.processes += 1;
        self.mappings += choice.mappings;
        self.scan = choice.how;
        self.call_bytes = self.call_bytes.max(call_bytes);
        self.method = "process_madvise";
        Ok(())
    }

    /// Adds refused ranges with the reason that the kernel has for each.
    fn tell_refused(&mut self, target: &Target, refused: &[Range<usize>]) {
        if refused.is_empty() {
            return;
        }
        let reasons = maps::reasons(&target.smaps().unwrap_or_default());
        for range in refused {
            let overlaps = |(other, _): &&(Range<usize>, &str)| {
                other.start < range.end && range.start < other.end
            };
            let reason = reasons
                .iter()
                .find(overlaps)
                .map_or("refused", |(_, reason)| reason);
            self.skipped.add(reason, range.len());
        }
    }

    fn by_group(&mut self, group: &Cgroup, cancelled: &(dyn Fn() -> bool + Sync)) {
        let rollup = || Rollup {
            memory: group.memory().unwrap_or_default(),
            ..Rollup::default()
        };
        self.before = rollup();
        self.method = "memory.reclaim";
        self.scan = "none";
        self.call_bytes = GROUP_BYTES as usize;
        self.processes = group.processes().len();
        let mut left = self.before.memory.resident_bytes;
        while left > 0 {
            if cancelled() {
                self.work.end = End::Cancelled;
                break;
            }
            let bytes = left.min(GROUP_BYTES);
            self.work.calls += 1;
            match group.reclaim(bytes) {
                Ok(()) => self.work.walked += bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                // No more can be had.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.work.end = End::Refused(error.raw_os_error().unwrap_or(0));
                    break;
                }
            }
            left -= bytes;
        }
        self.after = rollup();
    }
}

fn add(a: Rollup, b: Rollup) -> Rollup {
    Rollup {
        memory: sum(a.memory, b.memory),
        shared_bytes: a.shared_bytes + b.shared_bytes,
        huge_bytes: a.huge_bytes + b.huge_bytes,
        locked_bytes: a.locked_bytes + b.locked_bytes,
    }
}

/// Time, CPU time, compressed memory and swap cache from the beginning on.
struct Meter {
    begun: Instant,
    cpu_s: f64,
    swap_cached: u64,
    zram: Option<Zram>,
}

impl Meter {
    fn start(kernel: &Kernel) -> Self {
        Meter {
            begun: Instant::now(),
            cpu_s: cpu_s(),
            swap_cached: swap(kernel).cached,
            zram: zram(kernel),
        }
    }

    fn finish(
        self,
        kernel: &Kernel,
        sums: Sums,
        request: Request,
        told: ReclaimOnce,
    ) -> ReclaimOnce {
        let grew = |before: Zram| zram(kernel).map(|now| now.used as i64 - before.used as i64);
        let (before, after) = (sums.before.memory, sums.after.memory);
        let reclaimed = before.resident_bytes.saturating_sub(after.resident_bytes);
        let zram_grew_bytes = self.zram.and_then(grew);
        let swap_cache_grew_bytes = swap(kernel).cached as i64 - self.swap_cached as i64;
        let mut once = ReclaimOnce {
            processes: sums.processes,
            method: sums.method.to_owned(),
            anon: request.hints.anon.name().to_owned(),
            file: request.hints.file.name().to_owned(),
            before,
            after,
            reclaimed_bytes: reclaimed,
            walked_bytes: sums.work.walked,
            zram_grew_bytes,
            swap_cache_grew_bytes,
            gained_bytes: reclaimed as i64 - zram_grew_bytes.unwrap_or(0) - swap_cache_grew_bytes,
            shared_bytes: sums.after.shared_bytes,
            seconds: self.begun.elapsed().as_secs_f64(),
            cpu_s: cpu_s() - self.cpu_s,
            scan_s: sums.scan_s,
            scan: sums.scan.to_owned(),
            mappings: sums.mappings,
            calls: sums.work.calls,
            call_bytes: sums.call_bytes as u64,
            workers: request.workers,
            skipped: sums.skipped.told(),
            ended: sums.work.end.name().to_owned(),
            ..told
        };
        once.warnings = warnings(kernel, &once, request.hints, sums.work.end);
        once
    }
}

/// What a person should know.
fn warnings(kernel: &Kernel, once: &ReclaimOnce, hints: Hints, end: End) -> Vec<String> {
    let mut warnings = Vec::new();
    let wants_swap = hints.anon == Hint::PageOut;
    let swap = swap(kernel);
    if wants_swap && swap.total == 0 {
        warnings.push("there is no swap: anonymous memory stays where it is".to_owned());
    } else if wants_swap && swap.free < once.after.anon_bytes.min(16 << 20) {
        warnings.push("swap is full: what is left stays where it is".to_owned());
    }
    if wants_swap && zram(kernel).is_some_and(|zram| zram.is_full()) {
        warnings.push("zram has reached its limit (mem_limit): it takes no more pages".to_owned());
    }
    if once.swap_cache_grew_bytes > 1 << 20 {
        warnings.push(format!(
            "{} MiB are still in memory: they are being written to swap, or could not be",
            once.swap_cache_grew_bytes >> 20
        ));
    }
    let is_pageout = wants_swap || hints.file == Hint::PageOut;
    if is_pageout
        && once.shared_bytes > once.after.resident_bytes / 2
        && once.shared_bytes > 1 << 20
    {
        warnings.push(format!(
            "{} MiB are still resident because other processes map them too (copy-on-write, libraries)",
            once.shared_bytes >> 20
        ));
    }
    if let Some(grew) = once.zram_grew_bytes
        && once.reclaimed_bytes > 1 << 20
        && grew * 4 > once.reclaimed_bytes as i64 * 3
    {
        warnings.push("this memory compresses badly: zram grew by more than three quarters of what was reclaimed".to_owned());
    }
    match end {
        End::Refused(libc_enosys) if libc_enosys == rustix::io::Errno::NOSYS.raw_os_error() => {
            warnings.push("this kernel has no process_madvise (it needs Linux 5.10)".to_owned());
        }
        End::Refused(errno) => warnings.push(format!(
            "the kernel refused: {} (it takes CAP_SYS_NICE and the right to trace the process)",
            std::io::Error::from_raw_os_error(errno)
        )),
        _ => {}
    }
    warnings
}

/// CPU seconds of this process.
pub(crate) fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
