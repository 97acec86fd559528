//! The evidence: one verdict a line, appended, never rewritten.

use kilter_api::Evidence;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file of the evidence.
#[derive(Clone, Debug)]
pub struct EvidenceFile(PathBuf);

/// What the file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Verdicts, oldest line first.
    pub verdicts: Vec<Evidence>,
    /// Lines that are none: torn, or of a later kilter.
    pub unreadable: usize,
}

impl Ledger {
    fn parse(bytes: &[u8]) -> Self {
        let mut ledger = Ledger::default();
        let lines = bytes.split(|&byte| byte == b'\n');
        for line in lines.filter(|line| !line.trim_ascii().is_empty()) {
            match serde_json::from_slice(line) {
                Ok(evidence) => ledger.verdicts.push(evidence),
                Err(_) => ledger.unreadable += 1,
            }
        }
        ledger
    }
}

impl EvidenceFile {
    /// The evidence at a path, which need not exist yet.
    pub fn new(path: impl AsRef<Path>) -> Self {
        EvidenceFile(path.as_ref().to_owned())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Appends verdicts, one a line, in one write.
    ///
    /// # Errors
    /// The system's. A write that a full disk cut short leaves a torn last line, which readers skip
    /// and the next append closes.
    pub fn append(&self, verdicts: &[Evidence]) -> io::Result<()> {
        self.append_to(self.open_locked()?, verdicts)
    }

    /// Appends those that are not there already, wherever they came from, and returns how many.
    ///
    /// # Errors
    /// As for [`EvidenceFile::append`].
    pub fn append_new(&self, verdicts: &[Evidence]) -> io::Result<usize> {
        let mut file = self.open_locked()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let mut known: Vec<Evidence> = Ledger::parse(&bytes).verdicts;
        let before = known.len();
        let mut names: std::collections::HashSet<String> = known.iter().map(identity).collect();
        for verdict in verdicts {
            if names.insert(identity(verdict)) {
                known.push(verdict.clone());
            }
        }
        self.append_to(file, &known[before..])?;
        Ok(known.len() - before)
    }

    /// Everything there is.
    ///
    /// # Errors
    /// The system's; that there is no file is none.
    pub fn read(&self) -> io::Result<Ledger> {
        match std::fs::read(&self.0) {
            Ok(bytes) => Ok(Ledger::parse(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ledger::default()),
            Err(error) => Err(error),
        }
    }

    fn open_locked(&self) -> io::Result<File> {
        if let Some(dir) = self.0.parent() {
            kilter_kernel::make_dir(dir)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .mode(0o644)
            .open(&self.0)?;
        // Until the file is closed: nobody else appends between the look and the write.
        rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
        Ok(file)
    }

    fn append_to(&self, mut file: File, verdicts: &[Evidence]) -> io::Result<()> {
        let mut text = Vec::new();
        if !verdicts.is_empty() && !ends_a_line(&mut file)? {
            text.push(b'\n');
        }
        for verdict in verdicts {
            serde_json::to_writer(&mut text, verdict)?;
            text.push(b'\n');
        }
        file.write_all(&text)
    }
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// What makes a verdict that verdict: all of it but the way it came here.
fn identity(evidence: &Evidence) -> String {
    let plain = Evidence {
        imported: false,
        ..evidence.clone()
    };
    serde_json::to_string(&plain).expect("evidence is plain data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilter_api::{Direction, Settings, Verdict, VerdictRecord};

    fn evidence(when: &str) -> Evidence {
        Evidence {
            when: when.into(),
            machine: "9f3c".into(),
            kernel: "6.12.1".into(),
            boot_id: "1".into(),
            command: vec!["true".into()],
            base: Settings::new(),
            arm: Settings::from([("vm.swappiness".into(), "10".into())]),
            old: Settings::new(),
            workload: String::new(),
            runs: 40,
            cpu: String::new(),
            version: String::new(),
            study: String::new(),
            imported: false,
            verdict: VerdictRecord {
                verdict: Verdict::Better,
                metric: "wall_s".into(),
                direction: Direction::Min,
                ratio: 0.9,
                low: 0.85,
                high: 0.95,
                confidence: 0.95,
                region_percent: 1.0,
                blocks: 10,
                looks: 1,
                more_blocks: None,
                base_median: 1.0,
                arm_median: 0.9,
            },
        }
    }

    fn file() -> (tempfile::TempDir, EvidenceFile) {
        let dir = tempfile::tempdir().unwrap();
        let file = EvidenceFile::new(dir.path().join("state/evidence.jsonl"));
        (dir, file)
    }

    #[test]
    fn what_was_appended_is_read_in_order() {
        let (_dir, file) = file();
        assert_eq!(file.read().unwrap(), Ledger::default());
        file.append(&[evidence("a"), evidence("b")]).unwrap();
        file.append(&[evidence("c")]).unwrap();
        let whens = |ledger: &Ledger| -> Vec<String> {
            let verdicts = ledger.verdicts.iter();
            verdicts.map(|verdict| verdict.when.clone()).collect()
        };
        assert_eq!(whens(&file.read().unwrap()), ["a", "b", "c"]);
    }

    #[test]
    fn a_torn_line_costs_only_itself() {
        let (_dir, file) = file();
        file.append(&[evidence("a")]).unwrap();
        let mut open = OpenOptions::new().append(true).open(file.path()).unwrap();
        open.write_all(b"{\"when\": \"torn").unwrap();
        file.append(&[evidence("b")]).unwrap();
        let ledger = file.read().unwrap();
        assert_eq!(ledger.verdicts, [evidence("a"), evidence("b")]);
        assert_eq!(ledger.unreadable, 1);
    }

    #[test]
    fn only_what_is_new_is_added_wherever_it_came_from() {
        let (_dir, file) = file();
        let imported = |when: &str| Evidence {
            imported: true,
            ..evidence(when)
        };
        file.append(&[evidence("a")]).unwrap();
        let given = [imported("a"), imported("b"), imported("b")];
        assert_eq!(file.append_new(&given).unwrap(), 1);
        assert_eq!(file.append_new(&given).unwrap(), 0);
        let ledger = file.read().unwrap();
        assert_eq!(ledger.verdicts, [evidence("a"), imported("b")]);
    }

    #[test]
    fn lines_of_an_older_form_are_read() {
        let old = r#"{"when":"2026-01-02T03:04:05Z","machine":"9f3c","kernel":"6.12.1","boot_id":"1","command":["true"],"arm":{"vm.swappiness":"10"},"verdict":{"verdict":"better","metric":"wall_s","direction":"min","ratio":0.9,"low":0.85,"high":0.95,"confidence":0.95,"region_percent":1.0,"blocks":10,"base_median":1.0,"arm_median":0.9}}"#;
        let ledger = Ledger::parse(old.as_bytes());
        assert_eq!((ledger.verdicts.len(), ledger.unreadable), (1, 0));
        let found = &ledger.verdicts[0];
        assert_eq!(
            (found.runs, found.imported, found.verdict.looks),
            (0, false, 1)
        );
    }

    #[test]
    fn appends_at_the_same_time_lose_nothing() {
        let (_dir, file) = file();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    for number in 0..50 {
                        let verdict = evidence(&format!("{thread}-{number}"));
                        // The same from two threads: one of them is new.
                        file.append_new(&[verdict, evidence("shared")]).unwrap();
                    }
                });
            }
        });
        let ledger = file.read().unwrap();
        assert_eq!((ledger.verdicts.len(), ledger.unreadable), (201, 0));
    }
}
