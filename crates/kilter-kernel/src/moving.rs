//! A layer that moves processes between cgroups: begun, ended with its owner, taken back.

use crate::cgroup::{CpuTree, HeldTree, Move};
use crate::journal::Layer;
use crate::kernel::{FileError, Files, Kernel};
use crate::process::{end, is_alive, this_process};
use crate::store::{Lock, Store, StoreError};
use kilter_api::{Held, HeldValue, Owner, Restored, RestoredFile};

/// Groups that could not be put in force. Nothing of them is left.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The journal failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another layer moves processes already.
    #[error("the layer `{layer}` of process {pid} has put processes into groups already")]
    AlreadyHeld {
        /// Its name.
        layer: String,
        /// Its owner, 0 if there is none.
        pid: i32,
    },
    /// The kernel refused.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Lock<'_> {
    /// Begins a layer under which processes may be moved into groups of `tree`. It ends with its
    /// owner, as every layer does. `since` is RFC 3339.
    ///
    /// # Errors
    /// Another layer does so already, the journal failed, or the kernel refused.
    pub fn begin_moves(
        &self,
        kernel: &Kernel,
        tree: &CpuTree,
        (name, knob): (&str, &str),
        since: &str,
        owner: Owner,
    ) -> Result<(u64, HeldTree), MoveError> {
        if let Some(layer) = self.moving_layer()? {
            return Err(MoveError::AlreadyHeld {
                layer: layer.name,
                pid: layer.owner.map_or(0, |owner| owner.pid),
            });
        }
        let journaled = Move::into_groups(knob, tree);
        let layer = Layer {
            id: self.next_id()?,
            name: name.to_owned(),
            since: since.to_owned(),
            boot_id: self.store.boot().to_owned(),
            owner: Some(owner),
            entries: Vec::new(),
            moves: vec![journaled.clone()],
            held: None,
            undoing: None,
        };
        let file = self.store.file(layer.id);
        layer.create(&file).map_err(StoreError::at(&file))?;
        let begun = HeldTree::new(kernel, &journaled)
            .map_err(MoveError::File)
            .and_then(|tree| {
                Layer::append_held(&file, &[]).map_err(StoreError::at(&file))?;
                Ok(tree)
            });
        match begun {
            Ok(tree) => Ok((layer.id, tree)),
            Err(error) => {
                self.undo(kernel, layer.id)?;
                Err(error)
            }
        }
    }

    fn moving_layer(&self) -> Result<Option<Layer>, StoreError> {
        let layers = self.store.layers()?;
        Ok(layers.into_iter().find(|layer| !layer.moves.is_empty()))
    }

    /// Ends the process that moves for a layer, so that nothing is moved again behind an undo.
    /// Does nothing for this process's own layer.
    pub(crate) fn stop_moving(&self, layer: &Layer) {
        if let Some(owner) = &layer.owner
            && !layer.moves.is_empty()
            && *owner != this_process()
            && is_alive(owner)
        {
            end(owner);
        }
    }
}

/// Whether a living process moves processes for a knob.
pub(crate) fn is_held(kernel: &Kernel, knob: &str) -> bool {
    let moves = |layer: &Layer| layer.moves.iter().any(|moved| moved.knob == knob);
    let lives = |layer: &Layer| layer.owner.as_ref().is_some_and(is_alive);
    let layers = Store::new(kernel).layers().unwrap_or_default();
    layers.iter().any(|layer| moves(layer) && lives(layer))
}

/// Takes back what a process that was ended had moved. The caller has the lock.
pub(crate) fn forget_owner(kernel: &Kernel, owner: &Owner) -> Result<(), FileError> {
    let store = Store::new(kernel);
    let layers = store.layers().unwrap_or_default();
    let its = |layer: &&Layer| layer.owner.as_ref() == Some(owner) && !layer.moves.is_empty();
    for layer in layers.iter().filter(its) {
        for moved in &layer.moves {
            moved.take_back(kernel)?;
        }
        let _ = std::fs::remove_file(store.file(layer.id));
    }
    Ok(())
}

/// Takes a layer's moves back, and says what came of it.
pub(crate) fn take_back(files: &dyn Files, layer: &Layer) -> Vec<RestoredFile> {
    let outcome = |moved: &Move| match files.take_back(moved) {
        Ok(_) => Restored::Restored {
            value: "0".to_owned(),
        },
        Err(error) if error.refusal == crate::kernel::Refusal::Absent => Restored::Gone,
        Err(error) => Restored::Failed {
            error: error.to_string(),
            original: "0".to_owned(),
        },
    };
    let told = |moved: &Move| RestoredFile {
        knob: moved.knob.clone(),
        path: moved.mount.clone(),
        was_set: true,
        outcome: outcome(moved),
    };
    layer.moves.iter().map(told).collect()
}

/// A move as `status` and `verify` show it.
pub(crate) fn standing(files: &dyn Files, moved: &Move) -> HeldValue {
    HeldValue {
        knob: moved.knob.clone(),
        path: moved.mount.clone(),
        original: "0".to_owned(),
        held: "1".to_owned(),
        now: match files.is_moved(moved) {
            true => Held::InForce,
            false => Held::Gone,
        },
    }
}
