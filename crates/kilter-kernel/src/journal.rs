//! The record of a layer, written before the kernel is touched.
//!
//! A layer is one file of lines; a line is a CRC-32 in hexadecimal, a space, and a JSON record. A
//! line that was torn by a crash fails its checksum and is skipped. Records are handed to the
//! kernel with `write(2)` and not forced to disk: a record must outlive its process, and it need
//! not outlive the boot, because the settings it describes do not either.

use crate::cgroup::Move;
use crate::path::KernelPath;
use kilter_api::{Format, Owner};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// One file of a layer: what it showed before, and what must come back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The knob's full name, or the file's path where it has no knob.
    pub knob: String,
    /// The file.
    pub path: KernelPath,
    /// How the file shows the value.
    pub format: Format,
    /// The value to write; absent for a file that is only kept safe from a coupled write.
    pub target: Option<String>,
    /// The value just before this layer.
    pub before: String,
    /// The value that comes back when no layer holds the file.
    pub original: String,
    /// A lower layer held the file and somebody changed it since: what they set comes back, not
    /// the lower layer's value.
    pub rebased: bool,
    /// The other member of a pair that zero each other.
    pub excludes: Option<KernelPath>,
    /// A file that takes its own value again after this one was written.
    pub commit: Option<KernelPath>,
    /// For a file that was not there when the layer began: what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Late>,
}

/// A file that comes with another write of its layer, as a governor's tunables do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Late {
    /// It has not come: the layer knows no original and has written nothing.
    Awaited,
    /// It came, and its first value is the original.
    Here,
}

impl Entry {
    /// What the entry occupies: its file or, where many knobs share one, its word in that file.
    pub fn slot(&self) -> String {
        match self.format {
            Format::Feature => format!("{}#{}", self.path, self.word()),
            _ => self.path.to_string(),
        }
    }

    /// The last part of the knob's name, which is the word of a feature.
    pub fn word(&self) -> &str {
        self.knob.rsplit('.').next().unwrap_or(&self.knob)
    }

    /// Whether the file has not been there yet in the layer's life.
    pub fn is_awaited(&self) -> bool {
        self.late == Some(Late::Awaited)
    }

    /// The file has come and shows this value; `original` is what comes back.
    pub fn arrive(&mut self, before: String, original: String) {
        self.before = before;
        self.original = original;
        self.late = Some(Late::Here);
    }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
enum Record {
    /// Who began the layer, and everything it will touch.
    Intent {
        name: String,
        since: String,
        boot_id: String,
        owner: Option<Owner>,
        entries: Vec<Entry>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        moves: Vec<Move>,
    },
    /// Files have come with a write: by slot, what each shows first and what must come back.
    Arrived {
        values: BTreeMap<String, (String, String)>,
    },
    /// What the files showed once all was written, in the order of the entries.
    Held { values: Vec<Option<String>> },
    /// The layer no longer ends with its owner.
    Kept,
    /// Undoing has begun; these slots had been changed by somebody else and are left alone.
    Undo { leave: BTreeSet<String> },
    /// An older layer was undone beneath this one, which moved these files.
    Moved {
        values: BTreeMap<String, Option<String>>,
    },
}

/// A layer as its file tells it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layer {
    pub id: u64,
    pub name: String,
    pub since: String,
    pub boot_id: String,
    pub owner: Option<Owner>,
    pub entries: Vec<Entry>,
    /// Processes that it moves between cgroups.
    pub moves: Vec<Move>,
    /// Absent: the writer died before it had read everything back.
    pub held: Option<Vec<Option<String>>>,
    /// Present: an undo began.
    pub undoing: Option<BTreeSet<String>>,
}

impl Layer {
    /// Position of the entry of a slot.
    pub fn position(&self, slot: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.slot() == slot)
    }

    /// Whether the layer decides what this slot shows: it sets it, or sets the partner whose write
    /// zeroes it, or moved it by a coupled write.
    pub fn governs(&self, slot: &str) -> bool {
        let sets = |at: usize| self.entries[at].target.is_some();
        let moved = |at: usize| {
            let held = self.held.as_ref().and_then(|held| held[at].as_ref());
            self.held.is_some() && held != Some(&self.entries[at].before)
        };
        let known = |at: &usize| !self.entries[*at].is_awaited();
        self.position(slot).filter(known).is_some_and(|at| {
            let partner = self.entries[at].excludes.as_ref();
            let partner = partner.and_then(|path| self.position(path.as_str()));
            sets(at) || moved(at) || partner.is_some_and(sets)
        })
    }

    /// The value the layer left a slot with.
    pub fn held_at(&self, slot: &str) -> Option<&str> {
        let at = self.position(slot)?;
        self.held.as_ref()?.get(at)?.as_deref()
    }

    /// Begins the layer's file. Fails without a trace when it cannot be written whole.
    pub fn create(&self, file: &Path) -> io::Result<()> {
        let line = encode(&Record::Intent {
            name: self.name.clone(),
            since: self.since.clone(),
            boot_id: self.boot_id.clone(),
            owner: self.owner.clone(),
            entries: self.entries.clone(),
            moves: self.moves.clone(),
        })?;
        let mut created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(file)?;
        write_whole(&mut created, &line, 0).inspect_err(|_| {
            let _ = std::fs::remove_file(file);
        })
    }

    pub fn append_arrived(
        file: &Path,
        values: BTreeMap<String, (String, String)>,
    ) -> io::Result<()> {
        append(file, &Record::Arrived { values })
    }

    pub fn append_held(file: &Path, values: &[Option<String>]) -> io::Result<()> {
        append(
            file,
            &Record::Held {
                values: values.to_vec(),
            },
        )
    }

    pub fn append_kept(file: &Path) -> io::Result<()> {
        append(file, &Record::Kept)
    }

    pub fn append_undo(file: &Path, leave: &BTreeSet<String>) -> io::Result<()> {
        append(
            file,
            &Record::Undo {
                leave: leave.clone(),
            },
        )
    }

    pub fn append_moved(file: &Path, values: BTreeMap<String, Option<String>>) -> io::Result<()> {
        append(file, &Record::Moved { values })
    }

    /// Reads a layer back; none if not even its intent is whole, in which case nothing was written.
    pub fn load(id: u64, file: &Path) -> io::Result<Option<Layer>> {
        let mut bytes = Vec::new();
        File::open(file)?.read_to_end(&mut bytes)?;
        let mut records = bytes.split(|&byte| byte == b'\n').filter_map(decode);
        let Some(Record::Intent {
            name,
            since,
            boot_id,
            owner,
            entries,
            moves,
        }) = records.next()
        else {
            return Ok(None);
        };
        let mut layer = Layer {
            id,
            name,
            since,
            boot_id,
            owner,
            entries,
            moves,
            held: None,
            undoing: None,
        };
        records.for_each(|record| layer.replay(record));
        Ok(Some(layer))
    }

    fn replay(&mut self, record: Record) {
        match record {
            Record::Intent { .. } => {}
            Record::Arrived { values } => {
                for (slot, (before, original)) in values {
                    if let Some(at) = self.position(&slot) {
                        self.entries[at].arrive(before, original);
                    }
                }
            }
            Record::Held { values } if values.len() == self.entries.len() => {
                self.held = Some(values)
            }
            Record::Held { .. } => {}
            Record::Kept => self.owner = None,
            Record::Undo { leave } => self.undoing = Some(leave),
            Record::Moved { values } => {
                for (slot, value) in values {
                    if let (Some(at), Some(held)) = (self.position(&slot), self.held.as_mut()) {
                        // Not this layer's doing: it has moved nothing.
                        self.entries[at].before = value.clone().unwrap_or_default();
                        held[at] = value;
                    }
                }
            }
        }
    }
}

fn encode(record: &Record) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(record)?;
    let mut line = format!("{:08x} ", crc32fast::hash(&json)).into_bytes();
    line.extend_from_slice(&json);
    line.push(b'\n');
    Ok(line)
}

fn decode(line: &[u8]) -> Option<Record> {
    let (sum, json) = (line.get(..8)?, line.get(9..)?);
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    (crc32fast::hash(json) == sum).then(|| serde_json::from_slice(json).ok())?
}

fn append(file: &Path, record: &Record) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(file)?;
    let end = file.seek(SeekFrom::End(0))?;
    let mut line = encode(record)?;
    if end > 0 {
        file.seek(SeekFrom::Start(end - 1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last[0] != b'\n' {
            line.insert(0, b'\n');
        }
    }
    write_whole(&mut file, &line, end)
}

/// Writes a line or, on a full disk, nothing of it.
fn write_whole(file: &mut File, line: &[u8], end: u64) -> io::Result<()> {
    file.write_all(line).inspect_err(|_| {
        let _ = file.set_len(end);
    })
}
