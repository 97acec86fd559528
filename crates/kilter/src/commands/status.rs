//! `kilter status` and `kilter verify`.

use crate::fail::Outcome;
use crate::machine::Machine;
use crate::say;
use kilter_api::{Held, HeldValue, LayerInfo, Status};

/// Runs `kilter status`.
pub fn status(machine: &Machine) -> Outcome {
    let status = machine.store.status(&machine.kernel)?;
    if machine.json {
        say::json(&status)?;
        return Ok(0);
    }
    if let Some(pid) = status.experiment {
        say::line(format!("An experiment is running (process {pid})."));
    }
    if status.layers.is_empty() {
        say::line("No layer is in force: every setting is as kilter found it.");
    }
    for layer in &status.layers {
        print_layer(layer);
    }
    if status.layers.iter().any(|layer| !layer.alive) {
        say::warning("a kilter was killed and its settings are still in force");
        say::hint("kilter revert");
    }
    Ok(0)
}

fn print_layer(layer: &LayerInfo) {
    let holder = match &layer.owner {
        None => "held until reverted".to_owned(),
        Some(owner) if layer.alive => format!("held by process {}", owner.pid),
        Some(owner) => format!("left by process {}, which is dead", owner.pid),
    };
    say::line(format!(
        "{} (since {}, {holder})",
        say::bold(&layer.name),
        layer.since
    ));
    let rows: Vec<Vec<String>> = layer.values.iter().map(row).collect();
    say::table(&rows);
}

fn row(value: &HeldValue) -> Vec<String> {
    let note = match &value.now {
        Held::InForce => String::new(),
        Held::Covered => say::faint("covered by a newer layer"),
        Held::Drifted { value } => say::bold(format!("drifted: now {value}")),
        Held::Gone => "gone".to_owned(),
    };
    vec![
        format!("  {}", value.knob),
        value.original.clone(),
        "→".to_owned(),
        value.held.clone(),
        note,
    ]
}

/// Runs `kilter verify`: exit code 1 when a held value has drifted.
pub fn verify(machine: &Machine) -> Outcome {
    let status = machine.store.status(&machine.kernel)?;
    if machine.json {
        say::json(&status)?;
    }
    let astray: Vec<(&LayerInfo, &HeldValue)> = held(&status)
        .filter(|(_, value)| matches!(value.now, Held::Drifted { .. } | Held::Gone))
        .collect();
    let total = held(&status).count();
    if !machine.json {
        let rows: Vec<Vec<String>> = astray
            .iter()
            .map(|(layer, value)| {
                let now = match &value.now {
                    Held::Drifted { value } => format!("now {value}"),
                    _ => "gone".to_owned(),
                };
                vec![
                    value.knob.clone(),
                    format!("{} set {}", layer.name, value.held),
                    now,
                ]
            })
            .collect();
        say::table(&rows);
        match (total, astray.len()) {
            (0, _) => say::line("No layer is in force: nothing to verify."),
            (_, 0) => say::line(format!("All {} in force.", say::count(total, "value"))),
            (_, drifted) => say::line(format!(
                "{drifted} of {} drifted.",
                say::count(total, "value")
            )),
        }
        if let Some((layer, _)) = astray.first() {
            say::hint(format!(
                "`kilter apply {0}` sets them again, `kilter revert {0}` lets go",
                crate::machine::quote(&layer.name)
            ));
        }
    }
    Ok(u8::from(!astray.is_empty()))
}

fn held(status: &Status) -> impl Iterator<Item = (&LayerInfo, &HeldValue)> {
    status
        .layers
        .iter()
        .flat_map(|layer| layer.values.iter().map(move |value| (layer, value)))
}
