//! Configurations that people write: read whole, and refused with the line that is wrong.

use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest configuration that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A configuration that cannot be used. Nothing was done.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {problem}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// The line, where there is one.
    pub line: Option<usize>,
    /// What is wrong.
    pub problem: String,
}

/// What is wrong, and at which byte of the text.
pub type ConfigProblem = (Option<usize>, String);

/// Reads a configuration; the defaults where there is no file.
///
/// # Errors
/// It is no regular file, too large, or `parse` finds something wrong with it.
pub fn load_config<T: Default>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, ConfigProblem>,
) -> Result<T, ConfigError> {
    let fail = |problem: String| ConfigError {
        path: path.to_owned(),
        line: None,
        problem,
    };
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(T::default()),
        Err(error) => return Err(fail(error.to_string())),
    };
    parse(&text).map_err(|(at, problem)| ConfigError {
        line: at.map(|at| text[..at.min(text.len())].matches('\n').count() + 1),
        ..fail(problem)
    })
}

/// The text of a configuration as a message; what it says is for the caller to check.
///
/// # Errors
/// It is not TOML, or has other keys or kinds of values.
pub fn parse_config<T: DeserializeOwned>(text: &str) -> Result<T, ConfigProblem> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map(|span| span.start);
        (at, error.message().to_owned())
    })
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind};
    // Looked at before it is opened: opening a pipe would wait for a writer.
    let meta = std::fs::metadata(path)?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        let problem = "this is not a file of 1 MiB at most";
        return Err(Error::new(ErrorKind::InvalidInput, problem));
    }
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}
