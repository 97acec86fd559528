//! The command's process group, as a whole.

use std::fs;
use std::io;

/// A process group other than kilter's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(pub(crate) i32);

impl Group {
    /// Sends `signal` to every member. That there is none left is no error.
    ///
    /// # Errors
    /// Not permitted: the members have become another user's.
    pub(crate) fn signal(self, signal: i32) -> io::Result<()> {
        debug_assert!(
            self.0 > 1,
            "0 and 1 would address kilter's own group, or everything"
        );
        // SAFETY: kill(2) touches no memory.
        if unsafe { libc::kill(-self.0, signal) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ESRCH) {
            Ok(())
        } else {
            Err(error)
        }
    }

    /// Whether any member still runs. Zombies, which wait for a parent that does not fetch them,
    /// do not count.
    pub(crate) fn is_alive(self) -> bool {
        // SAFETY: signal 0 only asks.
        let any = unsafe { libc::kill(-self.0, 0) } == 0
            || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
        any && self.has_live_member()
    }

    fn has_live_member(self) -> bool {
        // Without /proc, what kill(2) has said must do.
        let Ok(entries) = fs::read_dir("/proc") else {
            return true;
        };
        let is_pid = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        let pids = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        pids.filter(|name| is_pid(name)).any(|pid| {
            let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
            state_and_group(&stat)
                .is_some_and(|(state, group)| group == self.0 && !matches!(state, b'Z' | b'X'))
        })
    }
}

/// State and process group from a `/proc/PID/stat`, whose command name may hold anything.
fn state_and_group(stat: &[u8]) -> Option<(u8, i32)> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.bytes().next()?;
    Some((state, fields.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_cannot_confuse_the_parser() {
        assert_eq!(
            state_and_group(b"7 (a) Z 1 (b)) S 1 42 3 0 -1 4"),
            Some((b'S', 42))
        );
        assert_eq!(state_and_group(b"7 (true"), None);
        assert_eq!(state_and_group(b"7 (true) R"), None);
    }

    #[test]
    fn our_own_group_lives_and_an_unused_one_does_not() {
        // SAFETY: reads an id.
        assert!(Group(unsafe { libc::getpgrp() }).is_alive());
        // Above every possible pid (PID_MAX_LIMIT is 2^22).
        assert!(!Group(1 << 30).is_alive());
        assert!(Group(1 << 30).signal(libc::SIGKILL).is_ok());
    }
}
