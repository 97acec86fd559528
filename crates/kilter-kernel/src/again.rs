//! Setting values of a layer in force again, after somebody or the kernel itself has changed them.

use crate::journal::{Entry, Layer};
use crate::kernel::{FileError, Files};
use crate::layer::{commit, put, show};
use crate::store::{Lock, StoreError};
use std::collections::BTreeMap;

/// Writes can disturb each other, so files are looked at again, this often at most.
const PASSES: usize = 3;

/// What came of setting one value again.
#[derive(Debug)]
pub struct Again {
    /// The knob's full name.
    pub knob: String,
    /// The value that the file shows now, or the kernel's refusal.
    pub outcome: Result<String, FileError>,
}

impl Lock<'_> {
    /// Sets knobs of the layers with this name again that show another value than these hold, and
    /// what that disturbs of these layers. A value that a newer layer governs stays.
    ///
    /// The originals have been in the journal since the layer began, so an undo needs nothing more.
    ///
    /// # Errors
    /// No such layer is in force, or the journal fails.
    pub fn set_again(
        &self,
        files: &dyn Files,
        name: &str,
        knobs: &[String],
    ) -> Result<Vec<Again>, StoreError> {
        let layers = self.store.layers()?;
        if !layers.iter().any(|layer| layer.name == name) {
            return Err(StoreError::NoSuchLayer(name.to_owned()));
        }
        let mut done = Vec::new();
        for (at, layer) in layers.iter().enumerate() {
            if layer.name == name && layer.held.is_some() {
                let free = |entry: &Entry| {
                    let slot = entry.slot();
                    !layers[at + 1..].iter().any(|newer| newer.governs(&slot))
                };
                done.extend(self.again(files, layer, knobs, free)?);
            }
        }
        Ok(done)
    }

    fn again(
        &self,
        files: &dyn Files,
        layer: &Layer,
        knobs: &[String],
        free: impl Fn(&Entry) -> bool,
    ) -> Result<Vec<Again>, StoreError> {
        let is_held = |entry: &Entry| {
            let held = layer.held_at(&entry.slot());
            held.is_some() && show(files, entry).as_deref() == held
        };
        let chosen = |entry: &&Entry| {
            entry.target.is_some() && knobs.contains(&entry.knob) && free(entry) && !is_held(entry)
        };
        // What stands as it should, and must stand so afterwards.
        let standing: Vec<&Entry> = layer
            .entries
            .iter()
            .filter(|entry| free(entry) && is_held(entry))
            .collect();
        let chosen: Vec<&Entry> = layer.entries.iter().filter(chosen).collect();
        let mut errors: BTreeMap<&str, FileError> = BTreeMap::new();
        for _ in 0..PASSES {
            let mut written = false;
            for entry in &chosen {
                if !is_held(entry) && show(files, entry).is_some() {
                    let target = entry.target.as_deref().unwrap_or_default();
                    if let Err(error) = put(files, entry, target) {
                        errors.insert(&entry.knob, error);
                    }
                    written = true;
                }
            }
            for entry in &standing {
                if let (false, Some(held)) = (is_held(entry), layer.held_at(&entry.slot())) {
                    written |= put(files, entry, held).is_ok();
                }
            }
            commit(files, chosen.iter().copied());
            if !written || chosen.iter().chain(&standing).all(|entry| is_held(entry)) {
                break;
            }
        }
        self.learn(files, layer, &chosen, &errors)?;
        let outcome = |entry: &&Entry| {
            let now = show(files, entry)?;
            let outcome = match errors.remove(entry.knob.as_str()) {
                Some(error) if !is_held(entry) => Err(error),
                _ => Ok(now),
            };
            let knob = entry.knob.clone();
            Some(Again { knob, outcome })
        };
        Ok(chosen.iter().filter_map(outcome).collect())
    }

    /// The kernel may keep another value than it kept before; an undo must know it for ours.
    fn learn(
        &self,
        files: &dyn Files,
        layer: &Layer,
        written: &[&Entry],
        errors: &BTreeMap<&str, FileError>,
    ) -> Result<(), StoreError> {
        let values: BTreeMap<String, Option<String>> = written
            .iter()
            .filter(|entry| !errors.contains_key(entry.knob.as_str()))
            .map(|entry| (entry.slot(), show(files, entry)))
            .filter(|(slot, now)| now.is_some() && now.as_deref() != layer.held_at(slot))
            .collect();
        if values.is_empty() {
            return Ok(());
        }
        let file = self.store.file(layer.id);
        Layer::append_moved(&file, values).map_err(StoreError::at(&file))
    }
}
