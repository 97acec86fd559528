//! Why a scheduler ended, as the kernel tells it.

/// How a scheduler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Its own process let go of it.
    Detached,
    /// Somebody ended it from outside (SysRq-S, a CPU that came or went).
    Stopped,
    /// The kernel ended it for an error: a task that never ran, a wrong call.
    Ejected,
}

/// The end of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub how: How,
    /// The kernel's name of the kind: `SCX_EXIT_ERROR_STALL`.
    pub kind: String,
    /// The kernel's code.
    pub code: i64,
    /// The reason, in the kernel's words.
    pub reason: String,
    /// Details.
    pub message: String,
    /// The state of tasks and CPUs at that moment, for developers; may be long.
    pub dump: String,
    /// Whether the kernel asks for a new start (a CPU came or went).
    pub restart: bool,
}

impl Ended {
    /// Reason and details in a line.
    pub fn line(&self) -> String {
        match (self.reason.as_str(), self.message.as_str()) {
            ("", "") => self.kind.clone(),
            (reason, "") => format!("{reason} ({})", self.kind),
            ("", message) => format!("{message} ({})", self.kind),
            (reason, message) => format!("{reason}: {message} ({})", self.kind),
        }
    }
}

/// How a kind of exit is to be read.
#[cfg_attr(not(scheduler), allow(dead_code))]
pub(crate) fn how(kind: &str) -> How {
    match kind {
        kind if kind.contains("ERROR") => How::Ejected,
        "SCX_EXIT_UNREG" | "SCX_EXIT_UNREG_BPF" | "SCX_EXIT_DONE" => How::Detached,
        _ => How::Stopped,
    }
}

/// The text of a buffer that ends with a zero byte.
#[cfg_attr(not(scheduler), allow(dead_code))]
pub(crate) fn text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&buffer[..end.unwrap_or(buffer.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ejection_is_told_from_an_end() {
        for (kind, wanted) in [
            ("SCX_EXIT_UNREG", How::Detached),
            ("SCX_EXIT_UNREG_KERN", How::Stopped),
            ("SCX_EXIT_SYSRQ", How::Stopped),
            ("SCX_EXIT_ERROR", How::Ejected),
            ("SCX_EXIT_ERROR_BPF", How::Ejected),
            ("SCX_EXIT_ERROR_STALL", How::Ejected),
        ] {
            assert_eq!(how(kind), wanted, "{kind}");
        }
    }

    #[test]
    fn texts_end_at_zero() {
        assert_eq!(text(b"stall\0\0x"), "stall");
        assert_eq!(text(b"full"), "full");
    }
}
