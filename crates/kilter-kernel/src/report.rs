//! What is in force now, for `status` and `verify`. Needs no lock and no rights.

use crate::journal::{Entry, Layer};
use crate::kernel::Files;
use crate::layer::show;
use crate::moving;
use crate::process::is_alive;
use crate::store::{Store, StoreError};
use kilter_api::{Held, HeldValue, LayerInfo, Status};

impl Store {
    /// The layers in force, oldest first, each value with how it stands.
    pub fn status(&self, files: &dyn Files) -> Result<Status, StoreError> {
        let layers = self.layers()?;
        let infos = layers
            .iter()
            .enumerate()
            .map(|(at, layer)| info(files, layer, &layers[at + 1..]));
        Ok(Status {
            layers: infos.collect(),
            experiment: self.running_experiment(),
        })
    }
}

fn info(files: &dyn Files, layer: &Layer, newer: &[Layer]) -> LayerInfo {
    let values = layer
        .entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.target.is_some() && !entry.is_awaited())
        .map(|(at, entry)| {
            let held = layer
                .held
                .as_ref()
                .and_then(|held| held[at].clone())
                .unwrap_or_default();
            HeldValue {
                knob: entry.knob.clone(),
                path: entry.path.to_string(),
                original: entry.original.clone(),
                now: standing(files, entry, &held, newer),
                held,
            }
        });
    LayerInfo {
        id: layer.id,
        name: layer.name.clone(),
        since: layer.since.clone(),
        alive: layer.held.is_some() && layer.owner.as_ref().is_none_or(is_alive),
        owner: layer.owner.clone(),
        values: values
            .chain(
                layer
                    .moves
                    .iter()
                    .map(|moved| moving::standing(files, moved)),
            )
            .collect(),
    }
}

fn standing(files: &dyn Files, entry: &Entry, held: &str, newer: &[Layer]) -> Held {
    if newer.iter().any(|layer| layer.governs(&entry.slot())) {
        return Held::Covered;
    }
    match show(files, entry) {
        Some(value) if value == held => Held::InForce,
        Some(value) => Held::Drifted { value },
        None => Held::Gone,
    }
}
