//! What every command needs: the kernel below the chosen root, the journal, the places.

use crate::cli::{Cli, ConsentArgs};
use crate::fail::Failure;
use crate::say;
use kilter_api::{Restored, Reverted, Settings};
use kilter_kernel::{Kernel, Lock, Store};
use kilter_knobs::{Catalog, Consent, Places};
use std::path::Path;

/// The machine that a command works on.
#[derive(Debug)]
pub struct Machine {
    /// Its kernel files.
    pub kernel: Kernel,
    /// Its journal.
    pub store: Store,
    /// kilter's own files.
    pub places: Places,
    /// Whether output is JSON.
    pub json: bool,
}

impl Machine {
    /// The machine that the global options name.
    pub fn new(cli: &Cli) -> Result<Self, Failure> {
        Self::below(cli.root.as_path(), cli.json)
    }

    /// This machine itself.
    pub fn own() -> Result<Self, Failure> {
        Self::below(Path::new("/"), false)
    }

    fn below(root: &Path, json: bool) -> Result<Self, Failure> {
        if !root.is_absolute() || !root.is_dir() {
            return Err(Failure::new(format!(
                "--root {}: not an absolute path of a directory",
                root.display()
            )));
        }
        let kernel = Kernel::new(root);
        let store = Store::new(&kernel);
        let places = Places::new(root, kilter_kernel::is_root());
        Ok(Machine {
            kernel,
            store,
            places,
            json,
        })
    }

    /// Whether the kernel files are the machine's own.
    pub fn is_real(&self) -> bool {
        self.kernel.root() == Path::new("/")
    }

    /// Whether settings can be changed at all.
    pub fn need_root(&self, what: &str) -> Result<(), Failure> {
        if self.is_real() && !kilter_kernel::is_root() {
            return Err(
                Failure::new(format!("{what} needs root")).hint(format!("sudo {}", command_line()))
            );
        }
        Ok(())
    }

    /// The catalog.
    pub fn catalog(&self) -> Result<Catalog, Failure> {
        Ok(Catalog::load(&self.places)?)
    }

    /// The right to change settings, after everything that the dead left behind was put back.
    pub fn lock(&self) -> Result<Lock<'_>, Failure> {
        let lock = self.store.lock()?;
        let done = lock.recover(&self.kernel)?;
        if !done.layers.is_empty() {
            say::warning(format!(
                "put back the settings of a kilter that had been killed ({})",
                say::count(done.files.len(), "file")
            ));
            tell_troubles(&done);
        }
        Ok(lock)
    }

    /// Puts back what the dead left behind, for commands that read values before they hold the
    /// lock: a leftover is not the machine's own value.
    pub fn clear_leftovers(&self) -> Result<(), Failure> {
        let allowed = !self.is_real() || kilter_kernel::is_root();
        if allowed && self.has_leftovers() {
            drop(self.lock()?);
        }
        Ok(())
    }

    fn has_leftovers(&self) -> bool {
        self.store
            .status(&self.kernel)
            .is_ok_and(|status| status.layers.iter().any(|layer| !layer.alive))
    }

    /// Tells of layers that a killed kilter left and that this command will not put back.
    pub fn tell_leftovers(&self) {
        if self.has_leftovers() {
            say::warning("a kilter was killed and its settings are still in force");
            say::hint("kilter revert");
        }
    }
}

/// Tells what could not be put back, or was left alone.
pub fn tell_troubles(done: &Reverted) {
    for file in &done.files {
        match &file.outcome {
            Restored::LeftAlone { found, original } => say::warning(format!(
                "{}: left at {found}, which somebody else has set since (it was {original})",
                file.knob
            )),
            Restored::Failed { error, original } => say::error(format!(
                "{}: could not be put back to {original}: {error}",
                file.knob
            )),
            Restored::Gone => say::warning(format!("{}: gone; nothing to put back", file.knob)),
            Restored::Restored { .. } | Restored::Covered | Restored::Vanished => {}
        }
    }
}

/// `KNOB=VALUE`.
pub fn parse_setting(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((knob, value)) if !knob.trim().is_empty() => {
            Ok((knob.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(Failure::new(format!("`{text}` is not KNOB=VALUE")).hint("kilter knobs list")),
    }
}

/// Settings given one by one; a knob given twice is an error.
pub fn parse_settings(texts: &[String]) -> Result<Settings, Failure> {
    let mut settings = Settings::new();
    for text in texts {
        let (knob, value) = parse_setting(text)?;
        if settings.insert(knob.clone(), value).is_some() {
            return Err(Failure::new(format!("{knob} is given twice")));
        }
    }
    Ok(settings)
}

impl From<&ConsentArgs> for Consent {
    fn from(args: &ConsentArgs) -> Consent {
        Consent {
            allow: args.allow.iter().map(|&risk| risk.into()).collect(),
            skip_risky: args.skip_risky,
        }
    }
}

/// The command line as it was typed, for hints.
pub fn command_line() -> String {
    let words: Vec<String> = std::env::args().skip(1).map(|word| quote(&word)).collect();
    format!("kilter {}", words.join(" "))
}

/// A word as a shell would need it.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
