//! What the script loses before it begins: capabilities, resources, system calls.

use super::filter;
use super::{Limits, raw};
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
    set_no_new_privs,
};
use std::io;

/// Confines the calling process, which is about to execute the script. Returns the listener of the
/// filter's notifications, for the first process of the sandbox.
pub(super) fn confine(limits: &Limits) -> io::Result<OwnedFd> {
    let _ = rustix::process::setsid();
    // SAFETY: numbers only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
    resources(limits)?;
    capabilities()?;
    set_no_new_privs(true)?;
    filter::install()
}

fn resources(limits: &Limits) -> io::Result<()> {
    let seconds = limits.wall.as_secs() + 1;
    for (resource, most) in [
        (Resource::Nproc, limits.processes),
        (Resource::As, limits.memory),
        (Resource::Data, limits.memory),
        (Resource::Stack, 8 << 20),
        (Resource::Core, 0),
        (Resource::Cpu, seconds),
        (Resource::Fsize, 16 << 20),
        (Resource::Nofile, 256),
        (Resource::Memlock, 64 << 10),
        (Resource::Msgqueue, 0),
        (Resource::Sigpending, 256),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit)?;
    }
    Ok(())
}

/// Root without any power, which no execution brings back.
fn capabilities() -> io::Result<()> {
    clear_ambient_capability_set()?;
    for bit in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match remove_capability_from_bounding_set(capability) {
            // Beyond the last that this kernel has.
            Err(rustix::io::Errno::INVAL) => break,
            result => result?,
        }
    }
    use CapabilitiesSecureBits as Bits;
    set_capabilities_secure_bits(
        Bits::NO_ROOT
            | Bits::NO_ROOT_LOCKED
            | Bits::NO_SETUID_FIXUP
            | Bits::NO_SETUID_FIXUP_LOCKED
            | Bits::KEEP_CAPS_LOCKED
            | Bits::NO_CAP_AMBIENT_RAISE
            | Bits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, none)?)
}

/// Keeps every descriptor but the three standard ones from what this process executes. Whoever
/// called kilter may have left files open, and a directory or a terminal among them leads outside.
pub(super) fn keep_descriptors() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse::<i32>().ok());
        let Some(number @ 3..) = number else { continue };
        // SAFETY: numbers only; a descriptor that is gone by now is refused.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// Sends a descriptor through a socket.
pub(super) fn send(socket: &OwnedFd, fd: OwnedFd) -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::os::fd::AsFd;
    let fds = [fd.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&fds));
    let byte = [io::IoSlice::new(b"f")];
    sendmsg(socket, &byte, &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a descriptor from a socket, if one is there.
pub(super) fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut into = [io::IoSliceMut::new(&mut byte)];
    recvmsg(
        socket,
        &mut into,
        &mut rights,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    let fds = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fds.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Lets a process go on that waits at the filter.
pub(super) struct Gate(OwnedFd);

impl Gate {
    pub(super) fn new(listener: OwnedFd) -> Self {
        Gate(listener)
    }

    /// Answers one waiting process after doing what has to come first.
    pub(super) fn answer(&self, first: impl FnOnce()) -> io::Result<()> {
        // SAFETY: plain numbers, for which zero is valid; the kernel wants them zeroed.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the ioctl fills the structure that it is defined for.
        if unsafe {
            libc::ioctl(
                raw(&self.0),
                libc::SECCOMP_IOCTL_NOTIF_RECV as _,
                &mut asked,
            )
        } != 0
        {
            return Err(io::Error::last_os_error());
        }
        first();
        let answer = libc::seccomp_notif_resp {
            id: asked.id,
            val: 0,
            error: 0,
            flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        };
        // SAFETY: the ioctl reads the structure that it is defined for. A process that was killed
        // meanwhile needs no answer.
        unsafe { libc::ioctl(raw(&self.0), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &answer) };
        Ok(())
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

/// Takes over a descriptor that the kernel has just made.
pub(super) fn own(fd: i32) -> OwnedFd {
    // SAFETY: the caller has it from a system call that makes a new descriptor.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
