//! Subscribing to the kernel's events, and making sure that they come: an unprivileged listener, or
//! one in a namespace of its own, gets no error and no event either.

use crate::connector::{Connector, Received};
use rustix::event::Timespec;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A uid that a child takes to see whether the kernel tells of it; the overflow uid, `nobody`.
const PROBE_UID: u32 = 65_534;

/// How long an event may take. They come within microseconds; the child has to be started.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the kernel shows of the first namespaces (`PROC_USER_INIT_INO`, `PROC_PID_INIT_INO` in
/// linux/proc_ns.h).
const INITIAL: [(&str, &str); 2] = [("user", "user:[4026531837]"), ("pid", "pid:[4026531836]")];

/// A subscription that was seen to work.
#[derive(Debug)]
pub struct Subscription {
    /// Where events come from.
    pub connector: Connector,
    /// Whether the kernel sends only what was asked for (Linux 6.6).
    pub masked: bool,
}

/// Why no events come.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionError {
    /// The socket.
    #[error(
        "the kernel's process events cannot be had: {0} (it needs root, and CONFIG_PROC_EVENTS)"
    )]
    Socket(#[from] std::io::Error),
    /// Not the first namespaces.
    #[error(
        "this process is in a {0} namespace of its own, where the kernel tells of nobody: run it outside the container"
    )]
    Namespace(&'static str),
    /// Nothing came.
    #[error(
        "the kernel accepted the subscription but told nothing of a process that changed its uid"
    )]
    Silent,
}

/// Subscribes, with a mask where the kernel has it, and tests it with a real change of uid.
///
/// # Errors
/// The socket cannot be had, or nothing comes.
pub fn subscribe() -> Result<Subscription, SubscriptionError> {
    for (kind, first) in INITIAL {
        let found = std::fs::read_link(format!("/proc/self/ns/{kind}"));
        if found.is_ok_and(|found| found.as_os_str() != first) {
            return Err(SubscriptionError::Namespace(kind));
        }
    }
    let connector = Connector::open()?;
    for masked in [true, false] {
        connector.listen(masked)?;
        match hear(&connector)? {
            Some(quiet) => {
                let masked = masked && quiet;
                return Ok(Subscription { connector, masked });
            }
            None => continue,
        }
    }
    Err(SubscriptionError::Silent)
}

/// Changes a child's uid and listens. None: nothing was told of it; else whether nothing of another
/// kind was told either.
fn hear(connector: &Connector) -> Result<Option<bool>, SubscriptionError> {
    let mut child = Command::new("/proc/self/exe")
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env_clear()
        .current_dir("/")
        .uid(PROBE_UID)
        .spawn();
    let end = Instant::now() + PATIENCE;
    let mut others = 0;
    let told = loop {
        match connector.receive()? {
            Received::Uid(event) if event.real_uid == PROBE_UID => break true,
            Received::Nothing if Instant::now() > end => break false,
            Received::Nothing => connector.wait(Timespec {
                tv_sec: 0,
                tv_nsec: 20_000_000,
            }),
            Received::Other => others += 1,
            Received::Uid(_) | Received::Lost => {}
        }
    };
    if let Ok(child) = &mut child {
        let _ = child.wait();
    }
    // The answer to the request is the one message of another kind that may come under a mask.
    Ok(told.then_some(others <= 1))
}

use std::os::unix::process::CommandExt;
