//! What `/proc` says of a process: whose it is, which group it is in, and whether it may be moved.

use kilter_kernel::{CgroupVersion, Kernel};
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use std::cell::RefCell;
use std::os::fd::OwnedFd;

/// `PF_KTHREAD` (linux/sched.h): the process is a kernel thread.
const PF_KTHREAD: u32 = 0x0020_0000;

/// `SCHED_FIFO`, `SCHED_RR` and `SCHED_DEADLINE` (linux/sched.h).
const REAL_TIME: [u32; 3] = [1, 2, 6];

/// The process directory. Files are read into one buffer: sweeps read tens of thousands.
#[derive(Debug)]
pub struct Proc {
    dir: OwnedFd,
    buffer: RefCell<Vec<u8>>,
}

/// What `stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// It is a kernel thread.
    pub kernel_thread: bool,
    /// It is scheduled under a real-time or deadline policy.
    pub real_time: bool,
    /// Its threads.
    pub threads: u32,
    /// CPU time so far, in clock ticks.
    pub ticks: u64,
}

impl Proc {
    /// The process directory of a kernel.
    ///
    /// # Errors
    /// There is none.
    pub fn open(kernel: &Kernel) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Proc {
            dir: rustix::fs::open(kernel.below("/proc"), flags, Mode::empty())?,
            buffer: RefCell::new(Vec::with_capacity(4096)),
        })
    }

    /// The real uid of a process; none if it has ended.
    pub fn real_uid(&self, pid: i32) -> Option<u32> {
        self.read(&format!("{pid}/status"), real_uid)?
    }

    /// The group of a process in the cpu controller's hierarchy, `/` being the root.
    pub fn group(&self, pid: i32, version: CgroupVersion) -> Option<String> {
        self.read(&format!("{pid}/cgroup"), |text| {
            group(text, version).map(str::to_owned)
        })?
    }

    /// What `stat` tells of a process.
    pub fn stat(&self, pid: i32) -> Option<Stat> {
        self.read(&format!("{pid}/stat"), stat)?
    }

    /// Whether a process may be moved at all: it is no kernel thread, and none of its threads is
    /// real-time or deadline. None if it has ended.
    pub fn is_movable(&self, pid: i32) -> Option<bool> {
        let stat = self.stat(pid)?;
        if stat.kernel_thread || stat.real_time {
            return Some(false);
        }
        let real_time = |tid: i32| {
            self.read(&format!("{pid}/task/{tid}/stat"), self::stat)
                .flatten()
                .is_some_and(|stat| stat.real_time)
        };
        Some(stat.threads < 2 || !self.threads(pid).into_iter().any(real_time))
    }

    /// Processes that a process has started and that it is still the parent of. Empty where the
    /// kernel was built without `CONFIG_PROC_CHILDREN`; the sweep finds them then.
    pub fn children(&self, pid: i32) -> Vec<i32> {
        let of_thread = |tid: i32| {
            self.read(&format!("{pid}/task/{tid}/children"), |text| {
                let pids = text.split_ascii_whitespace();
                pids.filter_map(|pid| pid.parse().ok())
                    .collect::<Vec<i32>>()
            })
            .unwrap_or_default()
        };
        match self.threads(pid).as_slice() {
            [one] => of_thread(*one),
            threads => threads.iter().flat_map(|&tid| of_thread(tid)).collect(),
        }
    }

    fn threads(&self, pid: i32) -> Vec<i32> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = openat(&self.dir, format!("{pid}/task"), flags, Mode::empty());
        let Ok(dir) = open.and_then(Dir::new) else {
            return Vec::new();
        };
        dir.flatten()
            .filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok())
            .collect()
    }

    fn read<T>(&self, path: &str, parse: impl FnOnce(&str) -> T) -> Option<T> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.dir, path, flags, Mode::empty()).ok()?;
        let mut buffer = self.buffer.borrow_mut();
        buffer.clear();
        loop {
            if buffer.capacity() - buffer.len() < 1024 {
                buffer.reserve(4096);
            }
            match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut buffer)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        // Names may hold any bytes; numbers do not.
        Some(parse(&String::from_utf8_lossy(&buffer)))
    }
}

/// The first of the four numbers after `Uid:` in `status`.
pub(crate) fn real_uid(status: &str) -> Option<u32> {
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The path after the hierarchy with the cpu controller in `/proc/PID/cgroup` (cgroups(7)).
pub(crate) fn group(cgroup: &str, version: CgroupVersion) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let fits = match version {
            CgroupVersion::V1 => controllers.split(',').any(|name| name == "cpu"),
            CgroupVersion::V2 => number == "0" && controllers.is_empty(),
        };
        fits.then_some(path)
    })
}

/// `/proc/PID/stat` (proc_pid_stat(5)).
pub(crate) fn stat(text: &str) -> Option<Stat> {
    // The name in parentheses may hold anything, so fields count from the last one.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let ticks = |number: usize| field(number)?.parse::<u64>().ok();
    let flags: u32 = field(9)?.parse().ok()?;
    let policy: u32 = field(41)?.parse().ok()?;
    Some(Stat {
        kernel_thread: flags & PF_KTHREAD != 0,
        real_time: REAL_TIME.contains(&policy),
        threads: field(20)?.parse().ok()?,
        ticks: ticks(14)?.saturating_add(ticks(15)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_real_uid_is_the_first() {
        let status = "Name:\tUid: 5\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n";
        assert_eq!(real_uid(status), Some(1000));
        assert_eq!(real_uid("Name:\tx\n"), None);
    }

    #[test]
    fn the_group_is_that_of_the_cpu_controller() {
        let v1 = "9:name=systemd:/\n3:cpuset:/a\n1:cpu,cpuacct:/b:c\n0::/d\n";
        assert_eq!(group(v1, CgroupVersion::V1), Some("/b:c"));
        assert_eq!(group(v1, CgroupVersion::V2), Some("/d"));
        assert_eq!(group("0::/d\n", CgroupVersion::V1), None);
    }

    #[test]
    fn hostile_names_do_not_shift_fields() {
        // Fields 3 to 52: utime 70, stime 30, 3 threads, SCHED_OTHER.
        let mut fields = vec!["1"; 50];
        for (number, value) in [
            (3, "S"),
            (9, "4194304"),
            (14, "70"),
            (15, "30"),
            (20, "3"),
            (41, "0"),
        ] {
            fields[number - 3] = value;
        }
        let tail = fields.join(" ");
        let plain = stat(&format!("42 (x) {tail}")).unwrap();
        assert_eq!(stat(&format!("42 (a) R 9 9) {tail}")), Some(plain));
        let expected = Stat {
            kernel_thread: false,
            real_time: false,
            threads: 3,
            ticks: 100,
        };
        assert_eq!(plain, expected);
    }

    #[test]
    fn this_process_is_seen_as_it_is() {
        let proc = Proc::open(&Kernel::new("/")).unwrap();
        let me = std::process::id() as i32;
        assert_eq!(proc.real_uid(me), Some(rustix::process::getuid().as_raw()));
        let stat = proc.stat(me).unwrap();
        assert!(!stat.kernel_thread && stat.threads >= 2, "{stat:?}");
        assert_eq!(proc.is_movable(me), Some(true));
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        assert_eq!(proc.children(me), [child.id() as i32]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(proc.stat(child.id() as i32), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_not(text in ".{0,300}") {
            let _ = (real_uid(&text), stat(&text));
            let _ = (group(&text, CgroupVersion::V1), group(&text, CgroupVersion::V2));
        }
    }
}
