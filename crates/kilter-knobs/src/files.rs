//! Reading catalog files that people wrote: bounded, and with errors that name the line.

use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest catalog file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A catalog file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {problem}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct FileProblem {
    /// The file.
    pub path: PathBuf,
    /// The line, where there is one.
    pub line: Option<usize>,
    /// What is wrong.
    pub problem: String,
}

impl FileProblem {
    pub(crate) fn new(path: &Path, problem: impl ToString) -> Self {
        FileProblem {
            path: path.to_owned(),
            line: None,
            problem: problem.to_string(),
        }
    }
}

/// Reads a TOML file; none if there is no such file.
pub(crate) fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, FileProblem> {
    let Some(text) = read_text(path)? else {
        return Ok(None);
    };
    toml::from_str(&text).map(Some).map_err(|error| {
        let line = error
            .span()
            .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        FileProblem {
            path: path.to_owned(),
            line,
            problem: error.message().to_owned(),
        }
    })
}

pub(crate) fn read_text(path: &Path) -> Result<Option<String>, FileProblem> {
    let fail = |problem: &str| Err(FileProblem::new(path, problem));
    // Looked at before it is opened: opening a pipe would wait for a writer.
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileProblem::new(path, error)),
    };
    if !meta.is_file() {
        return fail("this is not a file");
    }
    if meta.len() > MAX_BYTES {
        return fail("the file is larger than 1 MiB");
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes))
        .map_err(|error| FileProblem::new(path, error))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..good]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count()
                + 1;
            Err(FileProblem {
                path: path.to_owned(),
                line: Some(line),
                problem: "the text is not UTF-8".to_owned(),
            })
        }
    }
}

/// The TOML files of a directory, sorted by name; none if there is no such directory.
pub(crate) fn toml_files(dir: &Path) -> Result<Vec<PathBuf>, FileProblem> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FileProblem::new(dir, error)),
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    files.sort();
    Ok(files)
}
