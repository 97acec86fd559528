//! Hardware and software counters of one command, by `perf_event_open(2)`.
//!
//! The events are opened on kilter itself, disabled, inherited by what it spawns and enabled by
//! exec: kilter never counts, the command counts from its first instruction, and no handshake
//! between parent and child is needed. Each event has its own descriptor, so that one which this
//! machine lacks takes no other with it, and the kernel may multiplex them.

use kilter_api::Counter;
use rustix::fd::{FromRawFd, OwnedFd, RawFd};
use std::collections::BTreeMap;
use std::io;

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const CACHE: u32 = 3;

/// `PERF_COUNT_HW_CACHE_OP_READ`, `PERF_COUNT_HW_CACHE_RESULT_MISS`; the lowest byte is the cache, 0
/// for L1 data and 2 for the last level.
const READ_MISS: u64 = 1 << 16;

/// An event: perf's name, its type and number in linux/perf_event.h, and whether counting it in
/// user mode alone tells anything (the scheduler's events happen in the kernel only).
struct Event(&'static str, u32, u64, bool);

const EVENTS: [Event; 11] = [
    Event("task-clock", SOFTWARE, 1, true),
    Event("page-faults", SOFTWARE, 2, true),
    Event("context-switches", SOFTWARE, 3, false),
    Event("cpu-migrations", SOFTWARE, 4, false),
    Event("cycles", HARDWARE, 0, true),
    Event("instructions", HARDWARE, 1, true),
    Event("cache-misses", HARDWARE, 3, true),
    Event("branches", HARDWARE, 4, true),
    Event("branch-misses", HARDWARE, 5, true),
    Event("L1-dcache-load-misses", CACHE, READ_MISS, true),
    Event("LLC-load-misses", CACHE, 2 | READ_MISS, true),
];

/// Bits of `perf_event_attr`'s flag word, by their number in linux/perf_event.h.
const DISABLED: u32 = 0;
const INHERIT: u32 = 1;
const EXCLUDE_KERNEL: u32 = 5;
const EXCLUDE_HYPERVISOR: u32 = 6;
const ENABLE_ON_EXEC: u32 = 12;

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`.
const READ_TIMES: u64 = 1 | 2;
const FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// The first published `perf_event_attr` (`PERF_ATTR_SIZE_VER0`), which every kernel takes.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// Counters that wait for the next command.
#[derive(Debug, Default)]
pub struct Counters {
    open: Vec<(String, OwnedFd)>,
}

impl Counters {
    /// Opens those that this machine, kernel and user have. Where `kernel.perf_event_paranoid`
    /// keeps the kernel's part from us, user mode is counted alone, and the name ends in `:u`.
    ///
    /// The first counter on an idle system makes the kernel wait for a grace period (some
    /// milliseconds); all further ones cost microseconds.
    #[must_use]
    pub fn open() -> Self {
        Self {
            open: EVENTS.iter().filter_map(open_event).collect(),
        }
    }

    /// Names of the counters that could be opened.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.open.iter().map(|(name, _)| name.as_str())
    }

    /// Reads and closes them. Counters that never ran are left out, multiplexed ones scaled up.
    /// `task-clock` is in nanoseconds.
    #[must_use]
    pub fn finish(self) -> BTreeMap<String, Counter> {
        let values = self
            .open
            .into_iter()
            .filter_map(|(name, fd)| Some((name, read_counter(&fd)?)));
        values.collect()
    }
}

fn open_event(event: &Event) -> Option<(String, OwnedFd)> {
    let Event(name, _, _, alone) = event;
    match open_with(event, &[]) {
        Ok(fd) => Some(((*name).to_owned(), fd)),
        Err(error)
            if *alone && matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) =>
        {
            let fd = open_with(event, &[EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR]).ok()?;
            Some((format!("{name}:u"), fd))
        }
        Err(_) => None,
    }
}

fn open_with(event: &Event, more: &[u32]) -> io::Result<OwnedFd> {
    let &Event(_, kind, config, _) = event;
    let flags = [DISABLED, INHERIT, ENABLE_ON_EXEC].iter().chain(more);
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config,
        sample_period: 0,
        sample_type: 0,
        read_format: READ_TIMES,
        flags: flags.map(|&number| flag(number)).sum(),
        wakeup_events: 0,
        breakpoint_type: 0,
        breakpoint_address: 0,
    };
    let (this_process, any_cpu, no_group) = (0, -1, -1);
    // SAFETY: the attributes outlive the call and say their own size.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            this_process,
            any_cpu,
            no_group,
            FD_CLOEXEC,
        )
    };
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor, and nobody else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The flags are C bit fields, which big-endian machines fill from the other end.
fn flag(number: u32) -> u64 {
    if cfg!(target_endian = "big") {
        1 << (63 - number)
    } else {
        1 << number
    }
}

fn read_counter(fd: &OwnedFd) -> Option<Counter> {
    let mut bytes = [0_u8; 24];
    let read = rustix::io::read(fd, &mut bytes).ok()?;
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if read == bytes.len() {
        scaled(word(0)?, word(8)?, word(16)?)
    } else {
        None
    }
}

fn scaled(count: u64, enabled: u64, running: u64) -> Option<Counter> {
    if enabled == 0 || running == 0 {
        return None;
    }
    let running = (running as f64 / enabled as f64).min(1.0);
    Some(Counter {
        value: count as f64 / running,
        running,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attributes_have_the_published_size() {
        assert_eq!(size_of::<Attributes>(), 64);
    }

    #[test]
    fn multiplexed_counts_are_scaled_and_idle_ones_left_out() {
        assert_eq!(
            scaled(50, 100, 25),
            Some(Counter {
                value: 200.0,
                running: 0.25
            })
        );
        assert_eq!(
            scaled(50, 100, 100),
            Some(Counter {
                value: 50.0,
                running: 1.0
            })
        );
        assert_eq!(scaled(0, 0, 0), None);
        assert_eq!(scaled(0, 100, 0), None);
    }

    #[test]
    fn nothing_is_counted_before_an_exec() {
        let counters = Counters::open();
        if counters.open.is_empty() {
            eprintln!("skipped: no counter can be opened here");
        }
        assert_eq!(counters.finish(), BTreeMap::new());
    }
}
