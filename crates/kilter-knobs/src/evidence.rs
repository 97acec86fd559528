//! The evidence: one verdict a line, appended, never rewritten.

use kilter_api::Evidence;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// The file of the evidence.
#[derive(Clone, Debug)]
pub struct EvidenceFile(PathBuf);

impl EvidenceFile {
    /// The evidence at a path, which need not exist yet.
    pub fn new(path: impl AsRef<Path>) -> Self {
        EvidenceFile(path.as_ref().to_owned())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Appends a verdict as one line in one write.
    pub fn record(&self, evidence: &Evidence) -> io::Result<()> {
        if let Some(dir) = self.0.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut line = serde_json::to_vec(evidence)?;
        line.push(b'\n');
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.0)?
            .write_all(&line)
    }

    /// All verdicts, oldest first. Lines that are not evidence (torn, or of a later kilter) are
    /// left out.
    pub fn read(&self) -> io::Result<Vec<Evidence>> {
        match std::fs::File::open(&self.0) {
            Ok(file) => {
                let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
                Ok(lines
                    .filter_map(|line| serde_json::from_slice(&line).ok())
                    .collect())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}
