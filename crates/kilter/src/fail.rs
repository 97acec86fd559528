//! Failures as a person sees them: what, where, and the next command to type.

use std::fmt;

/// A command that failed. Printed once, at the top.
#[derive(Debug)]
pub struct Failure {
    message: String,
    hint: Option<String>,
    /// The exit code.
    pub code: u8,
}

/// What a command ends with: an exit code, or a failure.
pub type Outcome = Result<u8, Failure>;

impl Failure {
    /// A failure with exit code 2.
    pub fn new(message: impl fmt::Display) -> Self {
        Failure {
            message: message.to_string(),
            hint: None,
            code: 2,
        }
    }

    /// Adds the next command to type.
    pub fn hint(self, hint: impl fmt::Display) -> Self {
        self.hint_if(Some(hint))
    }

    /// Adds the next command to type, where there is one.
    fn hint_if(mut self, hint: Option<impl fmt::Display>) -> Self {
        self.hint = hint.map(|hint| hint.to_string());
        self
    }

    /// Changes the exit code.
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// The message without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The hint alone.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Prints it on standard error.
    pub fn print(&self) {
        crate::say::error(&self.message);
        if let Some(hint) = &self.hint {
            crate::say::hint(hint);
        }
    }
}

macro_rules! plain_failures {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Failure::new(error)
            }
        }
    )*};
}

plain_failures!(
    kilter_groups::ConfigError,
    kilter_groups::DaemonError,
    kilter_knobs::ValueError,
    kilter_knobs::FileProblem,
    std::io::Error,
    serde_json::Error,
);

impl From<kilter_kernel::CpuTreeError> for Failure {
    fn from(error: kilter_kernel::CpuTreeError) -> Self {
        use kilter_kernel::CpuTreeError::{File, NoController, NotTheRoot};
        let hint = match &error {
            NoController => {
                Some("boot without `cgroup_disable=cpu`, or mount one: `mount -t cgroup2 none DIR`")
            }
            NotTheRoot { .. } => Some("run it on the host, outside the container"),
            File(_) => None,
        };
        Failure::new(error).hint_if(hint)
    }
}

impl From<kilter_groups::SubscriptionError> for Failure {
    fn from(error: kilter_groups::SubscriptionError) -> Self {
        Failure::new(format!("{error}; nothing was moved"))
    }
}

impl From<kilter_kernel::MoveError> for Failure {
    fn from(error: kilter_kernel::MoveError) -> Self {
        use kilter_kernel::MoveError::{AlreadyHeld, File, Store};
        match error {
            Store(error) => error.into(),
            File(error) => Failure::new(format!("{error}; nothing was moved")),
            AlreadyHeld { ref layer, .. } => {
                let hint = format!(
                    "end it with `kilter revert {}`",
                    crate::machine::quote(layer)
                );
                Failure::new(error).hint(hint)
            }
        }
    }
}

impl From<kilter_knobs::UnknownName> for Failure {
    fn from(error: kilter_knobs::UnknownName) -> Self {
        let list = match error.what {
            "profile" => "kilter profile list",
            "workload" => "kilter bench --list",
            _ => "kilter knobs list --all",
        };
        Failure::new(error).hint(list)
    }
}

impl From<kilter_knobs::CatalogError> for Failure {
    fn from(error: kilter_knobs::CatalogError) -> Self {
        match error {
            kilter_knobs::CatalogError::Unknown(error) => error.into(),
            error => Failure::new(error),
        }
    }
}

impl From<kilter_knobs::ProfileError> for Failure {
    fn from(error: kilter_knobs::ProfileError) -> Self {
        match error {
            kilter_knobs::ProfileError::Unknown(error) => error.into(),
            error => Failure::new(error),
        }
    }
}

impl From<kilter_knobs::PlanError> for Failure {
    fn from(error: kilter_knobs::PlanError) -> Self {
        let hint = match &error {
            kilter_knobs::PlanError::Unknown(_) => Some("kilter knobs list --all".to_owned()),
            kilter_knobs::PlanError::Value(error) => {
                Some(format!("kilter knobs show {}", error.knob))
            }
            kilter_knobs::PlanError::Risky(_) => Some(format!(
                "add --skip-risky to leave them out, or --allow {}",
                error.risks().join(",")
            )),
            kilter_knobs::PlanError::Above { knob, .. } => {
                Some(format!("kilter knobs show {knob}"))
            }
            kilter_knobs::PlanError::Exclusive(..) => None,
        };
        Failure::new(error).hint_if(hint)
    }
}

impl From<kilter_kernel::StoreError> for Failure {
    fn from(error: kilter_kernel::StoreError) -> Self {
        use kilter_kernel::StoreError::{ExperimentRunning, Io, NoSuchLayer};
        let hint = match &error {
            ExperimentRunning { .. } => Some("wait for it, or see `kilter status`"),
            NoSuchLayer(_) => Some("kilter status"),
            Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                Some("settings can be changed by root only: try `sudo kilter …`")
            }
            Io { .. } => None,
        };
        let text = match &error {
            Io { .. } => format!("the journal cannot be used, so nothing was changed: {error}"),
            _ => error.to_string(),
        };
        Failure::new(text).hint_if(hint)
    }
}

impl From<kilter_kernel::LayerError> for Failure {
    fn from(error: kilter_kernel::LayerError) -> Self {
        match error {
            kilter_kernel::LayerError::Store(error) => error.into(),
            kilter_kernel::LayerError::Refused { ref knob, .. } => {
                let hint = format!("kilter knobs show {knob}");
                Failure::new(format!("{error}; what had been written was put back")).hint(hint)
            }
            error => Failure::new(error),
        }
    }
}
