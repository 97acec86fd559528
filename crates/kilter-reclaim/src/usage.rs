//! What `/proc/PID` tells of a process: its memory, its CPU time, its faults.

use kilter_api::MemoryUse;

/// `PF_KTHREAD` (linux/sched.h): the process is a kernel thread.
const PF_KTHREAD: u32 = 0x0020_0000;

/// What `stat` tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Its name, at most 15 bytes unless it is a kernel thread's.
    pub name: String,
    /// It has ended and waits to be collected.
    pub is_zombie: bool,
    /// It is a kernel thread.
    pub is_kernel: bool,
    /// Its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Major faults so far, those of its children left out.
    pub major_faults: u64,
    /// CPU time so far, in clock ticks.
    pub ticks: u64,
    /// When it was started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Resident pages.
    pub resident_pages: u64,
}

/// `/proc/PID/stat` (proc_pid_stat(5)).
pub fn stat(text: &[u8]) -> Option<Stat> {
    // The name in parentheses may hold anything, so fields count from the last one.
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let name = text.get(open + 1..close)?;
    let rest = std::str::from_utf8(text.get(close + 2..)?).ok()?;
    let mut fields = [""; 22];
    let mut count = 0;
    for (slot, field) in fields.iter_mut().zip(rest.split_ascii_whitespace()) {
        *slot = field;
        count += 1;
    }
    if count < fields.len() {
        return None;
    }
    let number = |field: usize| fields[field - 3].parse::<u64>().ok();
    Some(Stat {
        name: String::from_utf8_lossy(name).into_owned(),
        is_zombie: matches!(fields[0], "Z" | "X"),
        is_kernel: number(9)? as u32 & PF_KTHREAD != 0,
        parent: fields[1].parse().ok()?,
        group: fields[2].parse().ok()?,
        major_faults: number(12)?,
        ticks: number(14)?.saturating_add(number(15)?),
        start_ticks: number(22)?,
        resident_pages: number(24)?,
    })
}

/// What `smaps_rollup` tells: exact, and as costly as the process is large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Memory.
    pub memory: MemoryUse,
    /// Resident bytes that other processes map too.
    pub shared_bytes: u64,
    /// Resident bytes in huge pages of anonymous memory.
    pub huge_bytes: u64,
    /// Bytes that may not be reclaimed (mlock(2)).
    pub locked_bytes: u64,
}

/// `/proc/PID/smaps_rollup`; zeros for a process without memory.
pub fn rollup(text: &str) -> Rollup {
    let of = |name: &str| kib(text, name).unwrap_or(0);
    Rollup {
        memory: MemoryUse {
            resident_bytes: of("Rss:"),
            anon_bytes: of("Anonymous:"),
            swapped_bytes: of("Swap:"),
        },
        shared_bytes: of("Shared_Clean:") + of("Shared_Dirty:"),
        huge_bytes: of("AnonHugePages:"),
        locked_bytes: of("Locked:"),
    }
}

/// What `status` tells of memory: counters that the kernel has at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Memory; shared memory counts as not backed by a file.
    pub memory: MemoryUse,
    /// Bytes that may not be reclaimed.
    pub locked_bytes: u64,
    /// Its real uid.
    pub uid: u32,
}

/// `/proc/PID/status`; none for a process without memory of its own.
pub fn status(text: &str) -> Option<Status> {
    let of = |name: &str| kib(text, name).unwrap_or(0);
    let mut lines = text.lines();
    let uid = lines.find_map(|line| line.strip_prefix("Uid:"))?;
    Some(Status {
        memory: MemoryUse {
            resident_bytes: kib(text, "VmRSS:")?,
            anon_bytes: of("RssAnon:") + of("RssShmem:"),
            swapped_bytes: of("VmSwap:"),
        },
        locked_bytes: of("VmLck:"),
        uid: uid.split_ascii_whitespace().next()?.parse().ok()?,
    })
}

/// The bytes of the line `NAME  123 kB`.
pub fn kib(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let rest = lines.find_map(|line| line.strip_prefix(name))?;
    let number: u64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}

/// The sum of two uses.
pub fn sum(a: MemoryUse, b: MemoryUse) -> MemoryUse {
    MemoryUse {
        resident_bytes: a.resident_bytes + b.resident_bytes,
        anon_bytes: a.anon_bytes + b.anon_bytes,
        swapped_bytes: a.swapped_bytes + b.swapped_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hostile_names_do_not_shift_fields() {
        let mut fields = vec!["1"; 50];
        for (number, value) in [
            (3, "S"),
            (4, "7"),
            (9, "4194304"),
            (12, "5"),
            (14, "70"),
            (15, "30"),
            (22, "900"),
            (24, "44"),
        ] {
            fields[number - 3] = value;
        }
        let tail = fields.join(" ");
        let found = stat(format!("42 (a) R 9 9) {tail}").as_bytes()).unwrap();
        assert_eq!(found.name, "a) R 9 9");
        assert_eq!((found.parent, found.major_faults, found.ticks), (7, 5, 100));
        assert_eq!((found.start_ticks, found.resident_pages), (900, 44));
        assert!(!found.is_kernel && !found.is_zombie);
        assert!(
            stat(b"42 (\xff) Z 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1")
                .unwrap()
                .is_zombie
        );
    }

    #[test]
    fn this_process_is_seen_as_it_is() {
        let found = stat(&std::fs::read("/proc/self/stat").unwrap()).unwrap();
        assert_eq!(found.parent, std::os::unix::process::parent_id() as i32);
        let status = status(&std::fs::read_to_string("/proc/self/status").unwrap()).unwrap();
        let rollup = rollup(&std::fs::read_to_string("/proc/self/smaps_rollup").unwrap());
        let (a, b) = (status.memory.resident_bytes, rollup.memory.resident_bytes);
        assert!(a > 0 && a.abs_diff(b) < a / 2, "{a} {b}");
        assert_eq!(status.uid, rustix::process::getuid().as_raw());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_not(text in ".{0,300}", bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (stat(&bytes), stat(text.as_bytes()), rollup(&text), status(&text));
        }

        #[test]
        fn numbers_are_kibibytes(number in 0..u64::MAX / 1024) {
            prop_assert_eq!(kib(&format!("Rss:   {number} kB\n"), "Rss:"), Some(number * 1024));
        }
    }
}
