//! Taking a layer back, in whatever state its writer left it.
//!
//! First every file is judged, then the judgement is journaled, then files are written: an undo
//! that is itself killed is finished by the next one without mistaking its own half-done work for
//! somebody else's change.

use crate::journal::{Entry, Layer};
use crate::kernel::Files;
use crate::layer::{commit, put, show};
use crate::moving;
use crate::process::is_alive;
use crate::store::{Lock, StoreError};
use kilter_api::{Restored, RestoredFile, Reverted};
use std::collections::{BTreeMap, BTreeSet};

/// Writes can disturb each other, so files are looked at again, this often at most.
const PASSES: usize = 3;

/// What is to become of one file.
#[derive(Clone, Debug, PartialEq)]
enum Aim {
    /// It gets this value.
    Restore(String),
    /// A newer layer sets it and keeps it at this value.
    Cover(String),
    /// A newer layer sets it, and somebody else changed it to this value, which stays.
    CoverDrifted(String),
    /// Somebody else changed it to this value.
    Leave(String),
    /// There is no such file any more.
    Gone,
}

impl Aim {
    fn value(&self) -> Option<&str> {
        match self {
            Aim::Restore(value) | Aim::Cover(value) | Aim::CoverDrifted(value) => Some(value),
            Aim::Leave(_) | Aim::Gone => None,
        }
    }
}

impl Lock<'_> {
    /// Undoes every layer whose owner is dead or whose writer was, and forgets those of an earlier
    /// boot, whose settings went with it.
    pub fn recover(&self, files: &dyn Files) -> Result<Reverted, StoreError> {
        self.forget_stale()?;
        self.undo_where(files, false, |layer| {
            layer.held.is_none()
                || layer.undoing.is_some()
                || layer.owner.as_ref().is_some_and(|owner| !is_alive(owner))
        })
    }

    /// Undoes all layers that a process owns.
    pub fn undo_of(
        &self,
        files: &dyn Files,
        owner: &kilter_api::Owner,
    ) -> Result<Reverted, StoreError> {
        self.undo_where(files, false, |layer| layer.owner.as_ref() == Some(owner))
    }

    /// Undoes the layers with this name, or all that nobody alive owns, newest first; a process that
    /// only holds processes in groups is ended first. With `force`,
    /// files that somebody else changed are put back too, and the layer is forgotten even where the
    /// kernel refuses.
    pub fn revert(
        &self,
        files: &dyn Files,
        name: Option<&str>,
        force: bool,
    ) -> Result<Reverted, StoreError> {
        let chosen = |layer: &Layer| match name {
            Some(name) => layer.name == name,
            // Processes in groups are held by a process that runs for nothing else.
            None => layer.owner.is_none() || !layer.moves.is_empty(),
        };
        for layer in self.store.layers()?.iter().filter(|layer| chosen(layer)) {
            self.stop_moving(layer);
        }
        let done = self.undo_where(files, force, chosen)?;
        match name {
            Some(name) if done.layers.is_empty() => Err(StoreError::NoSuchLayer(name.to_owned())),
            _ => Ok(done),
        }
    }

    /// Undoes one layer. Its file goes once every file of it is settled; where the kernel refused
    /// one, the layer stays and the next undo tries again.
    pub fn undo(&self, files: &dyn Files, id: u64) -> Result<Reverted, StoreError> {
        self.undo_one(files, id, false, false)
    }

    /// With `force`, strangers' changes are overwritten; with `forget`, the layer's file goes even
    /// where the kernel refused.
    fn undo_one(
        &self,
        files: &dyn Files,
        id: u64,
        force: bool,
        forget: bool,
    ) -> Result<Reverted, StoreError> {
        let layers = self.store.layers()?;
        let Some(at) = layers.iter().position(|layer| layer.id == id) else {
            return Err(StoreError::NoSuchLayer(id.to_string()));
        };
        let (older, layer, newer) = (&layers[..at], &layers[at], &layers[at + 1..]);
        let aims = judge(files, older, layer, newer, force);
        let leave = left_alone(layer, &aims);
        // On a full disk the undo goes on: only an undo killed halfway would miss this record.
        let _ = Layer::append_undo(&self.store.file(id), &leave);
        let errors = restore(files, &layer.entries, &aims);
        self.tell_newer(files, layer, &aims, newer);
        let mut outcomes = settle(files, layer, &aims, &errors);
        outcomes.extend(moving::take_back(files, layer));
        if forget || !outcomes.iter().any(has_failed) {
            let file = self.store.file(id);
            std::fs::remove_file(&file).map_err(StoreError::at(&file))?;
        }
        Ok(Reverted {
            layers: vec![layer.name.clone()],
            files: outcomes,
        })
    }

    /// Undoes the chosen layers, newest first; at the end once more those in which the kernel
    /// refused a value, perhaps because of an older layer's that is gone by then.
    fn undo_where(
        &self,
        files: &dyn Files,
        force: bool,
        chosen: impl Fn(&Layer) -> bool,
    ) -> Result<Reverted, StoreError> {
        let mut done = Reverted::default();
        let mut again = Vec::new();
        for layer in self
            .store
            .layers()?
            .iter()
            .rev()
            .filter(|layer| chosen(layer))
        {
            let outcome = self.undo_one(files, layer.id, force, false)?;
            match outcome.files.iter().any(has_failed) {
                true => again.push(layer.id),
                false => merge(&mut done, outcome),
            }
        }
        for id in again {
            merge(&mut done, self.undo_one(files, id, force, force)?);
        }
        Ok(done)
    }

    /// Removes layer files of an earlier boot and those whose intent was torn.
    fn forget_stale(&self) -> Result<(), StoreError> {
        let live: BTreeSet<u64> = self.store.layers()?.iter().map(|layer| layer.id).collect();
        for id in self
            .store
            .ids()?
            .into_iter()
            .filter(|id| !live.contains(id))
        {
            let file = self.store.file(id);
            std::fs::remove_file(&file).map_err(StoreError::at(&file))?;
        }
        Ok(())
    }

    /// Newer layers that only watch a file learn what it shows now, so that their own undo does not
    /// take this one for a stranger's change.
    fn tell_newer(&self, files: &dyn Files, layer: &Layer, aims: &[Aim], newer: &[Layer]) {
        for other in newer {
            let values: BTreeMap<String, Option<String>> = layer
                .entries
                .iter()
                .zip(aims)
                .filter(|(_, aim)| matches!(aim, Aim::Restore(_)))
                .map(|(entry, _)| (entry.slot(), entry))
                .filter(|(slot, _)| other.position(slot).is_some() && !other.governs(slot))
                .map(|(slot, entry)| (slot, show(files, entry)))
                .collect();
            if !values.is_empty() {
                let _ = Layer::append_moved(&self.store.file(other.id), values);
            }
        }
    }
}

fn judge(
    files: &dyn Files,
    older: &[Layer],
    layer: &Layer,
    newer: &[Layer],
    force: bool,
) -> Vec<Aim> {
    let mut aims: Vec<Aim> = layer
        .entries
        .iter()
        .map(|entry| aim(files, older, layer, newer, entry, force))
        .collect();
    // A pair is one setting: where one member is a stranger's, so is the other.
    for at in 0..aims.len() {
        let partner = layer.entries[at]
            .excludes
            .as_ref()
            .and_then(|path| layer.position(path.as_str()));
        if let Some(partner) = partner
            && matches!(aims[partner], Aim::Leave(_))
            && matches!(aims[at], Aim::Restore(_))
        {
            aims[at] = show(files, &layer.entries[at]).map_or(Aim::Gone, Aim::Leave);
        }
    }
    aims
}

fn aim(
    files: &dyn Files,
    older: &[Layer],
    layer: &Layer,
    newer: &[Layer],
    entry: &Entry,
    force: bool,
) -> Aim {
    if entry.is_awaited() {
        return Aim::Gone;
    }
    let slot = entry.slot();
    let now = show(files, entry);
    let half_done = layer.held.is_none() || layer.undoing.is_some();
    let left = layer
        .undoing
        .as_ref()
        .is_some_and(|leave| leave.contains(&slot));
    if let Some(cover) = newer.iter().rev().find(|other| other.governs(&slot)) {
        let held = cover.held_at(&slot).map(str::to_owned);
        return match now {
            // What this undo moved goes back to the newer layer's value; what a stranger gave it stays.
            Some(found) if held.as_ref() != Some(&found) && (left || !half_done) => {
                Aim::CoverDrifted(found)
            }
            _ => held.map_or(Aim::Gone, Aim::Cover),
        };
    }
    let wanted = wanted(older, entry);
    let as_left = now.as_deref() == layer.held_at(&slot);
    match now {
        _ if force => Aim::Restore(wanted),
        Some(found) if left => Aim::Leave(found),
        _ if half_done || as_left => Aim::Restore(wanted),
        Some(now) if now == wanted => Aim::Restore(wanted),
        Some(found) => Aim::Leave(found),
        None => Aim::Gone,
    }
}

/// The value a file should have once this layer is gone.
fn wanted(older: &[Layer], entry: &Entry) -> String {
    let slot = entry.slot();
    older
        .iter()
        .rev()
        .filter(|_| !entry.rebased)
        .find_map(|layer| layer.held_at(&slot))
        .unwrap_or(&entry.original)
        .to_owned()
}

fn left_alone(layer: &Layer, aims: &[Aim]) -> BTreeSet<String> {
    let alone = layer
        .entries
        .iter()
        .zip(aims)
        .filter(|(_, aim)| matches!(aim, Aim::Leave(_) | Aim::CoverDrifted(_)));
    alone.map(|(entry, _)| entry.slot()).collect()
}

/// Writes what differs, in the journal's order, until nothing differs or nothing helps. Returns the
/// last error of each file.
fn restore(files: &dyn Files, entries: &[Entry], aims: &[Aim]) -> Vec<Option<String>> {
    let mut errors = vec![None; entries.len()];
    for pass in 0..PASSES {
        let mut written = false;
        for (at, (entry, aim)) in entries.iter().zip(aims).enumerate() {
            let Some(wanted) = aim.value() else { continue };
            let partner = partner(entry, entries, aims);
            if !needs_write(files, entry, wanted, partner, pass) {
                continue;
            }
            errors[at] = write_back(files, entry, wanted, partner, pass)
                .err()
                .map(|error| error.reason());
            written = true;
        }
        // All of them, written or not: an undo killed just before its commit is finished here.
        commit(files, entries.iter());
        if !written {
            break;
        }
    }
    errors
}

/// The other member of a pair with the value it is to have.
fn partner<'a>(
    entry: &Entry,
    entries: &'a [Entry],
    aims: &'a [Aim],
) -> Option<(&'a Entry, &'a str)> {
    let path = entry.excludes.as_ref()?;
    let at = entries.iter().position(|other| other.path == *path)?;
    Some((&entries[at], aims[at].value()?))
}

fn needs_write(
    files: &dyn Files,
    entry: &Entry,
    wanted: &str,
    partner: Option<(&Entry, &str)>,
    pass: usize,
) -> bool {
    let differs = |entry: &Entry, wanted: &str| show(files, entry).as_deref() != Some(wanted);
    match partner {
        // Its zero comes from writing the other member; writing the zero itself could zero both.
        Some((_, other)) if wanted == "0" && other != "0" && pass == 0 => false,
        // The value stands, and the other member may still have to be zeroed by writing it.
        Some((other, zero)) if wanted != "0" && pass == 0 => {
            differs(entry, wanted) || differs(other, zero)
        }
        _ => differs(entry, wanted),
    }
}

fn write_back(
    files: &dyn Files,
    entry: &Entry,
    wanted: &str,
    partner: Option<(&Entry, &str)>,
    pass: usize,
) -> Result<(), crate::kernel::FileError> {
    match partner {
        // Both are to be zero and this one refuses it (`dirty_bytes`): a change of the other zeroes it.
        Some((other, "0")) if wanted == "0" && pass > 0 => {
            put(files, other, "1")?;
            put(files, other, "0")
        }
        _ => put(files, entry, wanted),
    }
}

fn settle(
    files: &dyn Files,
    layer: &Layer,
    aims: &[Aim],
    errors: &[Option<String>],
) -> Vec<RestoredFile> {
    let outcome = |(entry, (aim, error)): (&Entry, (&Aim, &Option<String>))| {
        let outcome = match aim {
            Aim::Cover(_) | Aim::CoverDrifted(_) => Restored::Covered,
            Aim::Gone => gone(entry),
            Aim::Leave(found) => Restored::LeftAlone {
                found: found.clone(),
                original: entry.original.clone(),
            },
            Aim::Restore(wanted) => match show(files, entry) {
                Some(now) if now == *wanted => Restored::Restored { value: now },
                None => gone(entry),
                Some(now) => Restored::Failed {
                    error: error
                        .clone()
                        .unwrap_or_else(|| format!("the kernel keeps {now}")),
                    original: wanted.clone(),
                },
            },
        };
        RestoredFile {
            knob: entry.knob.clone(),
            path: entry.path.to_string(),
            was_set: entry.target.is_some(),
            outcome,
        }
    };
    layer
        .entries
        .iter()
        .zip(aims.iter().zip(errors))
        .map(outcome)
        .collect()
}

fn gone(entry: &Entry) -> Restored {
    match entry.late {
        Some(_) => Restored::Vanished,
        None => Restored::Gone,
    }
}

fn has_failed(file: &RestoredFile) -> bool {
    matches!(file.outcome, Restored::Failed { .. })
}

fn merge(done: &mut Reverted, more: Reverted) {
    done.layers.extend(more.layers);
    done.files.extend(more.files);
}
