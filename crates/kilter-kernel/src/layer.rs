//! Putting a layer in force: read, journal, write, read back.

use crate::journal::{Entry, Late, Layer};
use crate::kernel::{FileError, Files, Refusal};
use crate::path::KernelPath;
use crate::store::{Lock, StoreError};
use crate::value;
use kilter_api::{Format, Owner, Reverted};
use std::collections::BTreeMap;

/// One file of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The knob's full name, or the file's path where it has no knob.
    pub knob: String,
    /// The file.
    pub path: KernelPath,
    /// How the file shows the value.
    pub format: Format,
    /// The value to write; absent for a file that only has to be kept safe from a coupled write.
    pub value: Option<String>,
    /// The other member of a pair that zero each other.
    pub excludes: Option<KernelPath>,
    /// A file that takes its own value again after this one was written.
    pub commit: Option<KernelPath>,
    /// Whether the file may come only with an earlier step's write.
    pub appears: bool,
}

/// Files to change as one, in the order of writing: a file comes before those that it resets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transaction {
    /// The files.
    pub steps: Vec<Step>,
}

/// A layer that is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    /// Its number.
    pub id: u64,
    /// What came of each file that was to be written.
    pub written: Vec<Written>,
    /// Knobs whose file was to come with another write and did not.
    pub missing: Vec<String>,
    /// Knobs that a lower layer held and somebody else had changed.
    pub drifted: Vec<String>,
}

/// One written file.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The knob's full name.
    pub knob: String,
    /// The value before.
    pub before: String,
    /// The value asked for.
    pub asked: String,
    /// The value that the file shows now.
    pub kept: String,
}

/// A layer that could not be put in force. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The journal failed; no setting was written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file could not be read; no setting was written.
    #[error("{knob}: {source}")]
    Read {
        /// The knob.
        knob: String,
        /// The reason.
        source: FileError,
    },
    /// A file shows something that is no value of its kind; no setting was written.
    #[error("{knob}: {path}: {source}")]
    Odd {
        /// The knob.
        knob: String,
        /// The file.
        path: String,
        /// The reason.
        source: value::ValueError,
    },
    /// The kernel refused a value; what had been written was put back.
    #[error("{knob}={value}: {source}")]
    Refused {
        /// The knob.
        knob: String,
        /// The value it refused.
        value: String,
        /// The reason.
        source: FileError,
        /// What was put back.
        undone: Box<Reverted>,
    },
}

impl Lock<'_> {
    /// Puts a transaction in force as a new layer on top. `since` is RFC 3339.
    pub fn begin(
        &self,
        files: &dyn Files,
        name: &str,
        since: &str,
        owner: Option<Owner>,
        transaction: &Transaction,
    ) -> Result<Begun, LayerError> {
        let below = self.store.layers()?;
        let entries = snapshot(files, transaction, &below)?;
        let drifted = entries
            .iter()
            .filter(|entry| entry.rebased)
            .map(|entry| entry.knob.clone())
            .collect();
        let id = self.next_id()?;
        let mut layer = Layer {
            id,
            name: name.to_owned(),
            since: since.to_owned(),
            boot_id: self.store.boot().to_owned(),
            owner,
            entries,
            moves: Vec::new(),
            held: None,
            undoing: None,
        };
        let file = self.store.file(id);
        layer.create(&file).map_err(StoreError::at(&file))?;
        if let Err(failed) = self.write_in_turn(files, &mut layer, &below) {
            let undone = Box::new(self.undo(files, id)?);
            let (at, source) = match failed {
                Failed::Refused(at, source) => (at, source),
                Failed::Journal(error) => return Err(error.into()),
            };
            let entry = &layer.entries[at];
            return Err(LayerError::Refused {
                knob: entry.knob.clone(),
                value: entry.target.clone().unwrap_or_default(),
                source,
                undone,
            });
        }
        let held = layer
            .entries
            .iter()
            .map(|entry| show(files, entry))
            .collect::<Vec<_>>();
        if let Err(error) = Layer::append_held(&file, &held) {
            self.undo(files, id)?;
            return Err(StoreError::at(&file)(error).into());
        }
        Ok(Begun {
            id,
            written: written(&layer.entries, &held),
            missing: missing(&layer.entries),
            drifted,
        })
    }

    /// Writes what is there, then what came with that: its first values go into the journal before
    /// it is written.
    fn write_in_turn(
        &self,
        files: &dyn Files,
        layer: &mut Layer,
        below: &[Layer],
    ) -> Result<(), Failed> {
        let refused = |(at, source)| Failed::Refused(at, source);
        let (here, awaited): (Vec<usize>, Vec<usize>) =
            (0..layer.entries.len()).partition(|&at| !layer.entries[at].is_awaited());
        write_all(files, &layer.entries, &here).map_err(refused)?;
        let mut arrived = BTreeMap::new();
        for &at in &awaited {
            let entry = &mut layer.entries[at];
            if let Some(first) = show(files, entry) {
                let original = inherited(entry, below).unwrap_or_else(|| first.clone());
                arrived.insert(entry.slot(), (first.clone(), original.clone()));
                entry.arrive(first, original);
            }
        }
        if arrived.is_empty() {
            return Ok(());
        }
        let file = self.store.file(layer.id);
        Layer::append_arrived(&file, arrived)
            .map_err(|error| Failed::Journal(StoreError::at(&file)(error)))?;
        write_all(files, &layer.entries, &awaited).map_err(refused)
    }

    /// The number of a layer on top of all others.
    pub(crate) fn next_id(&self) -> Result<u64, StoreError> {
        let ids = self.store.ids()?;
        Ok(ids.last().map_or(1, |last| last.saturating_add(1)))
    }

    /// Lets a layer outlive its owner.
    pub fn keep(&self, id: u64) -> Result<(), StoreError> {
        let file = self.store.file(id);
        Layer::append_kept(&file).map_err(StoreError::at(&file))
    }
}

/// Why a layer is taken back as soon as it has begun.
enum Failed {
    /// The kernel refused the entry at this position.
    Refused(usize, FileError),
    /// The journal.
    Journal(StoreError),
}

/// The value that an entry's file shows now; none if it is gone or shows no value.
pub(crate) fn show(files: &dyn Files, entry: &Entry) -> Option<String> {
    let text = files.read(&entry.path).ok()?;
    value::parse(entry.format, entry.word(), &text).ok()
}

pub(crate) fn put(files: &dyn Files, entry: &Entry, value: &str) -> Result<(), FileError> {
    files.write(
        &entry.path,
        &value::written(entry.format, entry.word(), value),
    )
}

/// Makes the kernel keep what was written over CPU hotplug: the file takes its own value again.
pub(crate) fn commit<'a>(files: &dyn Files, written: impl Iterator<Item = &'a Entry>) {
    let mut done: Vec<&KernelPath> = Vec::new();
    for path in written.filter_map(|entry| entry.commit.as_ref()) {
        if !done.contains(&path) {
            done.push(path);
            if let Ok(text) = files.read(path) {
                // Its own value back: it can only be refused where it was refused before.
                let _ = files.write(path, &format!("{}\n", text.trim()));
            }
        }
    }
}

fn snapshot(
    files: &dyn Files,
    transaction: &Transaction,
    below: &[Layer],
) -> Result<Vec<Entry>, LayerError> {
    let mut entries = Vec::with_capacity(transaction.steps.len());
    for step in &transaction.steps {
        let mut entry = Entry {
            knob: step.knob.clone(),
            path: step.path.clone(),
            format: step.format,
            target: step.value.clone(),
            before: String::new(),
            original: String::new(),
            rebased: false,
            excludes: step.excludes.clone(),
            commit: step.commit.clone(),
            late: None,
        };
        let text = match files.read(&step.path) {
            Ok(text) => text,
            // A coupled file that is not there cannot be moved, but a lower layer may have made it
            // vanish: then it is this layer's to bring back, should that one go first.
            Err(error) if step.value.is_none() && error.refusal != Refusal::Other => {
                if let Some(original) = inherited(&entry, below) {
                    entry.before = original.clone();
                    entry.original = original;
                    entries.push(entry);
                }
                continue;
            }
            Err(error) if step.appears && error.refusal == Refusal::Absent => {
                entry.late = Some(Late::Awaited);
                entries.push(entry);
                continue;
            }
            Err(source) => {
                return Err(LayerError::Read {
                    knob: step.knob.clone(),
                    source,
                });
            }
        };
        entry.before = match value::parse(step.format, entry.word(), &text) {
            Ok(value) => value,
            Err(_) if step.value.is_none() => continue,
            Err(source) => {
                let path = step.path.to_string();
                return Err(LayerError::Odd {
                    knob: step.knob.clone(),
                    path,
                    source,
                });
            }
        };
        (entry.original, entry.rebased) = origin(&entry, below);
        entries.push(entry);
    }
    Ok(entries)
}

/// The original that the newest lower layer keeps for a slot.
fn inherited(entry: &Entry, below: &[Layer]) -> Option<String> {
    let slot = entry.slot();
    let keeps = |layer: &Layer| Some(known(layer, &slot)?.original.clone());
    below.iter().rev().find_map(keeps)
}

/// A layer's entry of a slot, if its file has been there.
fn known<'a>(layer: &'a Layer, slot: &str) -> Option<&'a Entry> {
    let entry = &layer.entries[layer.position(slot)?];
    (!entry.is_awaited()).then_some(entry)
}

/// The value that comes back at the very end, and whether a lower layer had lost hold of the file.
fn origin(entry: &Entry, below: &[Layer]) -> (String, bool) {
    let slot = entry.slot();
    let holder = below
        .iter()
        .rev()
        .find(|layer| known(layer, &slot).is_some());
    let lost = holder.is_some_and(|layer| layer.held_at(&slot) != Some(&entry.before));
    match inherited(entry, below) {
        Some(original) if !lost => (original, false),
        _ => (entry.before.clone(), lost),
    }
}

/// Writes the targets at these positions in order; a second time what a later write of the same
/// layer moved. The error is of the entry at the position that it names.
fn write_all(
    files: &dyn Files,
    entries: &[Entry],
    chosen: &[usize],
) -> Result<(), (usize, FileError)> {
    let mut kept = vec![None; entries.len()];
    // Pairs with an order of their own (minimum ≤ maximum) may need the later one first.
    let mut refused = Vec::new();
    for &at in chosen {
        match write_one(files, &entries[at], entries) {
            Ok(value) => kept[at] = value,
            Err(error) if error.refusal == Refusal::Invalid => refused.push(at),
            Err(error) => return Err((at, error)),
        }
    }
    for at in refused {
        kept[at] = write_one(files, &entries[at], entries).map_err(|error| (at, error))?;
    }
    for (at, kept) in kept.into_iter().enumerate() {
        if let (Some(target), Some(kept)) = (&entries[at].target, kept)
            && show(files, &entries[at]).as_ref() != Some(&kept)
        {
            put(files, &entries[at], target).map_err(|error| (at, error))?;
        }
    }
    let written = chosen.iter().map(|&at| &entries[at]);
    commit(files, written.filter(|entry| entry.target.is_some()));
    Ok(())
}

/// Writes one target and returns what the file shows then; none if there was nothing to write.
fn write_one(
    files: &dyn Files,
    entry: &Entry,
    entries: &[Entry],
) -> Result<Option<String>, FileError> {
    let Some(target) = entry.target.as_ref().filter(|_| !entry.is_awaited()) else {
        return Ok(None);
    };
    let now = show(files, entry);
    let partner_in_force = || {
        let partner = entries
            .iter()
            .find(|other| Some(&other.path) == entry.excludes.as_ref());
        partner.is_some_and(|partner| show(files, partner).is_some_and(|value| value != "0"))
    };
    if now.as_ref() == Some(target) && !partner_in_force() {
        return Ok(now);
    }
    put(files, entry, target)?;
    Ok(show(files, entry))
}

fn missing(entries: &[Entry]) -> Vec<String> {
    let awaited = entries.iter().filter(|entry| entry.is_awaited());
    awaited.map(|entry| entry.knob.clone()).collect()
}

fn written(entries: &[Entry], held: &[Option<String>]) -> Vec<Written> {
    entries
        .iter()
        .zip(held)
        .filter(|(entry, _)| !entry.is_awaited())
        .filter_map(|(entry, held)| {
            Some(Written {
                knob: entry.knob.clone(),
                before: entry.before.clone(),
                asked: entry.target.clone()?,
                kept: held.clone().unwrap_or_default(),
            })
        })
        .collect()
}
