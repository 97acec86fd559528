//! The child between its clone and its exec.
//!
//! It has a copy of kilter's memory and one thread. Only async-signal-safe calls are allowed here:
//! no allocation, no lock, no panic.

use crate::exec::Arrays;
use crate::signals::{SignalMask, set_default};
use crate::terminal;
use rustix::fd::RawFd;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// Where in its set-up the child failed.
#[derive(Clone, Copy, PartialEq)]
#[repr(i32)]
pub(crate) enum Stage {
    Stdio = 1,
    Cpus,
    User,
    Exec,
}

/// What the child tells its parent before the exec: memory that the clone shares.
pub(crate) struct Report(ptr::NonNull<[AtomicI32; 3]>);

impl Report {
    pub(crate) fn new() -> io::Result<Self> {
        let size = size_of::<[AtomicI32; 3]>();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let page = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(ptr::null_mut(), size, access, MapFlags::SHARED)?
        };
        ptr::NonNull::new(page.cast())
            .map(Self)
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn words(&self) -> &[AtomicI32; 3] {
        // SAFETY: the mapping is page-aligned, zeroed by the kernel and lives as long as `self`;
        // both processes access it by atomics only.
        unsafe { self.0.as_ref() }
    }

    /// Notes how much memory this process has had so far. The kernel carries that over the exec
    /// into the command's `max_rss`.
    fn set_memory(&self) {
        let [.., memory] = self.words();
        // SAFETY: plain data that the system call fills.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        memory.store(
            usage.ru_maxrss.try_into().unwrap_or(i32::MAX),
            Ordering::Relaxed,
        );
    }

    /// The child's largest resident set before its exec, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let [.., memory] = self.words();
        memory.load(Ordering::Relaxed).try_into().unwrap_or(0)
    }

    fn set_failure(&self, stage: Stage, errno: i32) {
        let [at, why, _] = self.words();
        why.store(errno, Ordering::Relaxed);
        at.store(stage as i32, Ordering::Release);
    }

    pub(crate) fn failure(&self) -> Option<(Stage, i32)> {
        let [at, why, _] = self.words();
        let stages = [Stage::Stdio, Stage::Cpus, Stage::User, Stage::Exec];
        let at = at.load(Ordering::Acquire);
        let stage = stages.into_iter().find(|&stage| stage as i32 == at)?;
        Some((stage, why.load(Ordering::Relaxed)))
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it is left.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), size_of::<[AtomicI32; 3]>()) };
    }
}

/// What the child does before its exec, prepared so that it needs no memory.
pub(crate) struct Setup<'a> {
    pub(crate) parent: i32,
    pub(crate) arrays: &'a Arrays,
    pub(crate) stdio: [Option<RawFd>; 3],
    pub(crate) mask: Option<&'a [u64]>,
    pub(crate) readback: Vec<u64>,
    pub(crate) user: Option<(u32, u32, &'a [u32])>,
    pub(crate) foreground: bool,
    /// Signals that get their default action.
    pub(crate) resets: &'a [i32],
    pub(crate) report: &'a Report,
}

/// The child. Only async-signal-safe calls from here on; a failure is noted for the parent.
pub(crate) extern "C" fn set_up_and_exec(setup: *mut c_void) -> c_int {
    // SAFETY: the parent passes its `Setup`, of which this process has its own copy.
    let setup = unsafe { &mut *setup.cast::<Setup>() };
    let failed = setup.run();
    // SAFETY: reads the calling thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    setup.report.set_failure(failed, errno);
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

impl Setup<'_> {
    /// Returns only if the exec did not happen; errno then says why.
    fn run(&mut self) -> Stage {
        // SAFETY: a system call without memory.
        unsafe { libc::setpgid(0, 0) };
        if self.foreground {
            terminal::become_foreground();
        }
        if !self.redirect() {
            return Stage::Stdio;
        }
        if !self.pin() {
            return Stage::Cpus;
        }
        if !self.change_user() {
            return Stage::User;
        }
        self.tie_to_parent();
        self.reset_signals();
        self.report.set_memory();
        self.exec();
        Stage::Exec
    }

    fn redirect(&self) -> bool {
        (0..).zip(self.stdio).all(|(target, source)| match source {
            // Sources are never their own target, nor an earlier one: Rust's start-up fills 0 to 2.
            // SAFETY: duplicates a descriptor; touches no memory.
            Some(source) => unsafe { libc::dup2(source, target) >= 0 },
            None => true,
        })
    }

    /// Pins, and reads back: a cpuset narrows the mask without an error.
    fn pin(&mut self) -> bool {
        let Some(mask) = self.mask else { return true };
        // SAFETY: each call gets a buffer and its size in bytes.
        unsafe {
            let size = size_of_val(mask);
            if libc::syscall(libc::SYS_sched_setaffinity, 0, size, mask.as_ptr()) < 0 {
                return false;
            }
            let size = size_of_val(&self.readback[..]);
            if libc::syscall(
                libc::SYS_sched_getaffinity,
                0,
                size,
                self.readback.as_mut_ptr(),
            ) < 0
            {
                return false;
            }
            let (same, beyond) = self.readback.split_at(mask.len());
            let exact = same == mask && beyond.iter().all(|&word| word == 0);
            if !exact {
                *libc::__errno_location() = libc::EINVAL;
            }
            exact
        }
    }

    /// System calls rather than the C library's functions, which would tell threads that the
    /// child does not have.
    fn change_user(&self) -> bool {
        let Some((uid, gid, groups)) = self.user else {
            return true;
        };
        // SAFETY: the group array is passed with its length; the rest are numbers.
        unsafe {
            libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0
                && libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
                && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
        }
    }

    /// Dies with kilter. After the change of user, which would reset it.
    fn tie_to_parent(&self) {
        // SAFETY: numbers only. A parent that is already gone sends no signal, hence the check.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != self.parent {
                libc::_exit(127);
            }
        }
    }

    fn reset_signals(&self) {
        self.resets.iter().for_each(|&signal| set_default(signal));
        SignalMask::empty().restore();
    }

    /// As execvp(3): the next candidate where one is missing; no permission counts only if no
    /// later one works.
    fn exec(&self) {
        let mut denied = false;
        let Arrays {
            candidates,
            arguments,
            by_shell,
            environment,
        } = self.arrays;
        for &path in candidates {
            // SAFETY: all arrays are null-terminated and point to C strings that live on in this
            // process's copy. The slot is the child's own to write.
            unsafe {
                libc::execve(path, arguments.as_ptr(), environment.as_ptr());
                if *libc::__errno_location() == libc::ENOEXEC {
                    by_shell.as_ptr().cast_mut().add(1).write(path);
                    libc::execve(by_shell[0], by_shell.as_ptr(), environment.as_ptr());
                    *libc::__errno_location() = libc::ENOEXEC;
                }
                match *libc::__errno_location() {
                    libc::EACCES => denied = true,
                    libc::ENOENT | libc::ENOTDIR => {}
                    _ => return,
                }
            }
        }
        if denied {
            // SAFETY: writes the calling thread's errno.
            unsafe { *libc::__errno_location() = libc::EACCES };
        }
    }
}
