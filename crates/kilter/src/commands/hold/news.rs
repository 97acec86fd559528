//! What wakes `kilter hold` between two looks: CPUs and devices that come and go, and the end of a
//! sleep.

use kilter_measure::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, recvfrom, socket_with,
};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::io;
use std::time::{Duration, Instant};

/// The kernel's own uevents; udev's follow in group 2.
const KERNEL: u32 = 1;

/// Subsystems whose coming and going makes or resets settings.
const SUBSYSTEMS: [&str; 6] = ["cpu", "block", "bdi", "net", "module", "memory"];

/// How long after an event the next look is made: events come in bursts, and others write too.
const SETTLING: Duration = Duration::from_millis(500);

/// What came first.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// This signal.
    Signal(i32),
    /// It is time to look, and nothing special has happened.
    Nothing,
    /// CPUs or devices came or went, or the machine has slept.
    Disturbed,
}

/// The sources of news. What this machine does not have stays silent.
pub struct Newsroom {
    signals: Signals,
    events: Option<OwnedFd>,
    clock: Option<OwnedFd>,
    slept: Duration,
}

impl Newsroom {
    /// Opens them, those of the machine only where its settings are `real`. From here on signals are
    /// read and do not end the process.
    pub fn open(real: bool) -> io::Result<Self> {
        Ok(Newsroom {
            signals: Signals::take()?,
            events: real.then(uevents).and_then(Result::ok),
            clock: real.then(clock).and_then(Result::ok),
            slept: slept(),
        })
    }

    /// Waits for news, at most this long.
    pub fn wait(&mut self, at_most: Duration) -> io::Result<News> {
        let mut until = Instant::now() + at_most;
        let mut disturbed = false;
        loop {
            if let Some(signal) = self.signals.next()? {
                return Ok(News::Signal(signal));
            }
            if self.heard() && !disturbed {
                disturbed = true;
                until = Instant::now() + SETTLING;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(match disturbed || self.has_slept() {
                    true => News::Disturbed,
                    false => News::Nothing,
                });
            }
            self.sleep(left)?;
        }
    }

    fn sleep(&self, at_most: Duration) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let others = self.events.iter().chain(&self.clock);
        fds.extend(others.map(|fd| PollFd::new(fd, PollFlags::IN)));
        let timeout = Timespec {
            tv_sec: at_most.as_secs().cast_signed(),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads all that is there; whether anything of it matters.
    fn heard(&mut self) -> bool {
        let mut matters = self.clock_was_set();
        let mut buffer = [0; 8 << 10];
        while let Some(events) = &self.events {
            match recvfrom(events, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _, from)) => {
                    let from =
                        from.and_then(|from| netlink::SocketAddrNetlink::try_from(from).ok());
                    // Anybody may send to a netlink socket; the kernel's port is 0.
                    let kernel = from.is_some_and(|from| from.pid() == 0);
                    matters |= kernel && is_news(&buffer[..length.min(buffer.len())]);
                }
                // Events were lost: some of them may have mattered.
                Err(rustix::io::Errno::NOBUFS) => matters = true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        matters
    }

    /// Resume sets the clock, and a timer can be told of that. Setting it by hand does so too.
    fn clock_was_set(&mut self) -> bool {
        let Some(timer) = &self.clock else {
            return false;
        };
        let told = rustix::io::read(timer, &mut [0; 8]);
        if told == Err(rustix::io::Errno::CANCELED) {
            self.clock = clock().ok();
            return self.has_slept();
        }
        false
    }

    fn has_slept(&mut self) -> bool {
        let slept = slept();
        let before = std::mem::replace(&mut self.slept, slept);
        slept.saturating_sub(before) > Duration::from_millis(100)
    }
}

fn uevents() -> io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(netlink::KOBJECT_UEVENT),
    )?;
    bind(&socket, &netlink::SocketAddrNetlink::new(0, KERNEL))?;
    Ok(socket)
}

/// A timer far in the future that is cancelled when the clock is set.
fn clock() -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
    let never = Itimerspec {
        it_interval: Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: Timespec {
            tv_sec: 1 << 33,
            tv_nsec: 0,
        },
    };
    let when = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    timerfd_settime(&timer, when, &never)?;
    Ok(timer)
}

/// How long the machine has slept since its boot.
fn slept() -> Duration {
    let time = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    time(ClockId::Boottime).saturating_sub(time(ClockId::Monotonic))
}

/// Whether an event tells of something that makes or resets settings.
fn is_news(event: &[u8]) -> bool {
    let mut fields = event.split(|&byte| byte == 0).filter_map(|field| {
        let field = std::str::from_utf8(field).ok()?;
        field.split_once('=')
    });
    let (mut action, mut subsystem) = ("", "");
    for (name, value) in &mut fields {
        match name {
            "ACTION" => action = value,
            "SUBSYSTEM" => subsystem = value,
            _ => {}
        }
    }
    // `change` comes from media and resized disks, hundreds at a time, and resets nothing.
    let coming_or_going = matches!(action, "add" | "remove" | "online" | "offline" | "move");
    coming_or_going && SUBSYSTEMS.contains(&subsystem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_cpus_and_devices_matter() {
        let event = |action: &str, subsystem: &str| {
            format!(
                "{action}@/devices/x\0ACTION={action}\0DEVPATH=/devices/x\0SUBSYSTEM={subsystem}\0SEQNUM=1\0"
            )
        };
        for (action, subsystem, matters) in [
            ("offline", "cpu", true),
            ("add", "block", true),
            ("change", "block", false),
            ("add", "usb", false),
        ] {
            assert_eq!(
                is_news(event(action, subsystem).as_bytes()),
                matters,
                "{action} {subsystem}"
            );
        }
        assert!(!is_news(b"\xff\xfe\0ACTION\0="));
    }
}
