//! The process that holds a profile: applies it, then looks now and then, and at once when something
//! has happened, whether the values are still its own.

use super::drift::{Action, Drift, Watch};
use super::news::{News, Newsroom};
use super::{service, state};
use crate::args;
use crate::cli::HoldHow;
use crate::commands::apply::{Wanted, now, put_in_force};
use crate::commands::why::likely_setter;
use crate::fail::{Failure, Outcome};
use crate::machine::{Machine, tell_troubles};
use crate::say;
use kilter_api::{Held, HeldValue, HoldDrift, HoldInfo, HoldPolicy, Settings};
use kilter_kernel::{Guardian, StoreError, this_process};
use kilter_knobs::{Consent, resolve_profile};
use std::time::{Duration, Instant};

/// How long to wait for an experiment to end before looking again.
const EXPERIMENT: Duration = Duration::from_secs(2);

/// The time between two looks.
pub fn every(how: &HoldHow) -> Result<Duration, Failure> {
    let seconds = args::seconds("--every", &how.every)?;
    match (0.1..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(Failure::new(format!(
            "--every {}: from 0.1 s to 1 d",
            how.every
        ))),
    }
}

/// What the profile asks for.
pub fn wanted(machine: &Machine, profile: &str, how: &HoldHow) -> Result<Wanted, Failure> {
    let (profile, settings) = resolve_profile(&machine.places, profile)?;
    Ok(Wanted {
        name: profile.name,
        settings,
        consent: Consent::from(&how.consent),
    })
}

/// Runs `kilter hold run`.
pub fn run(machine: &Machine, profile: &str, how: &HoldHow) -> Outcome {
    let every = every(how)?;
    let wanted = wanted(machine, profile, how)?;
    wanted.plan(machine)?;
    let profile = wanted.name;
    machine.need_root("changing settings")?;
    if let Some(other) = state::all(machine)
        .iter()
        .find(|hold| hold.profile == profile)
    {
        let pid = other.pid.unwrap_or_default();
        return Err(
            Failure::new(format!("process {pid} holds {profile} already"))
                .hint("kilter hold status"),
        );
    }
    let guardian = match how.revert_on_stop {
        true => {
            // The guardian's fork needs a journal directory that can be written.
            drop(machine.lock()?);
            Some(Guardian::start(&machine.kernel)?)
        }
        false => None,
    };
    let policy = HoldPolicy::from(how.policy);
    let mut keeper = Keeper {
        machine,
        how,
        newsroom: Newsroom::open(machine.is_real())?,
        watch: Watch::new(policy, every),
        every,
        hold: HoldInfo {
            profile,
            unit: None,
            pid: Some(this_process().pid),
            since: now(),
            policy,
            revert_on_stop: how.revert_on_stop,
            set_again: 0,
            drifted: Vec::new(),
            gone: Vec::new(),
        },
    };
    let outcome = keeper.hold();
    service::notify("STOPPING=1");
    state::remove(machine, &keeper.hold.profile);
    let reverted = match how.revert_on_stop {
        true => keeper.revert(),
        false => Ok(()),
    };
    drop(guardian);
    reverted.and(outcome)
}

struct Keeper<'a> {
    machine: &'a Machine,
    how: &'a HoldHow,
    newsroom: Newsroom,
    watch: Watch,
    every: Duration,
    hold: HoldInfo,
}

/// Whether to go on.
enum Then {
    GoOn,
    End,
}

impl Keeper<'_> {
    fn hold(&mut self) -> Outcome {
        if let Then::End = self.apply()? {
            return Ok(0);
        }
        service::notify("READY=1");
        loop {
            let disturbed = match self.newsroom.wait(self.every)? {
                News::Signal(signal) if signal == rustix::process::Signal::HUP.as_raw() => {
                    say::note("Applying anew, as asked.");
                    if let Then::End = self.apply()? {
                        return Ok(0);
                    }
                    continue;
                }
                News::Signal(_) => {
                    if !self.how.revert_on_stop {
                        say::note("Ended; the settings stay in force.");
                    }
                    return Ok(0);
                }
                News::Nothing => false,
                News::Disturbed => true,
            };
            // A change during an experiment is the experiment's, or would falsify it.
            if let Then::End = self.wait_for_experiments()? {
                return Ok(0);
            }
            if let Then::End = self.look(disturbed)? {
                say::note(format!(
                    "{} was reverted by somebody; it is held no more.",
                    self.hold.profile
                ));
                return Ok(0);
            }
        }
    }

    /// Puts the profile in force, whole.
    fn apply(&mut self) -> Result<Then, Failure> {
        if let Then::End = self.wait_for_experiments()? {
            return Ok(Then::End);
        }
        let wanted = wanted(self.machine, &self.hold.profile, self.how)?;
        let owner = self.how.revert_on_stop.then(this_process);
        let lock = self.machine.lock()?;
        let (_, plan) = put_in_force(self.machine, &lock, &wanted, owner)?;
        drop(lock);
        for skipped in &plan.skipped {
            say::note(format!("{}: {}", skipped.knob, skipped.because.detail));
        }
        self.watch.forget();
        self.hold.drifted.clear();
        self.publish()?;
        say::note(format!(
            "{}: {} in force.",
            self.hold.profile,
            say::count(plan.changes.len(), "value")
        ));
        Ok(Then::GoOn)
    }

    fn wait_for_experiments(&mut self) -> Result<Then, Failure> {
        while self.machine.store.running_experiment().is_some() {
            if let News::Signal(_) = self.newsroom.wait(EXPERIMENT)? {
                return Ok(Then::End);
            }
        }
        Ok(Then::GoOn)
    }

    fn look(&mut self, disturbed: bool) -> Result<Then, Failure> {
        let Some(values) = self.values()? else {
            return Ok(Then::End);
        };
        if disturbed {
            self.hold_new_devices(&values)?;
        }
        let drifted: Vec<Drift> = values
            .iter()
            .filter_map(|value| match &value.now {
                Held::Drifted { value: now } => Some((value, Some(now.clone()))),
                Held::Gone => Some((value, None)),
                Held::InForce | Held::Covered => None,
            })
            .map(|(value, now)| Drift::new(&value.knob, &value.path, now))
            .collect();
        let actions = self.watch.judge(&drifted, disturbed, Instant::now());
        let gone: Vec<String> = drifted
            .into_iter()
            .filter_map(|drift| drift.value.is_none().then_some(drift.knob))
            .collect();
        if actions.is_empty() && gone == self.hold.gone {
            return Ok(Then::GoOn);
        }
        self.hold.gone = gone;
        self.act(actions, &values)?;
        self.publish()?;
        Ok(Then::GoOn)
    }

    /// The values of all layers of this name; none if somebody took them back.
    fn values(&self) -> Result<Option<Vec<HeldValue>>, Failure> {
        let status = self.machine.store.status(&self.machine.kernel)?;
        let mut found = None;
        for layer in status.layers {
            if layer.name == self.hold.profile {
                found.get_or_insert_with(Vec::new).extend(layer.values);
            }
        }
        Ok(found)
    }

    fn act(&mut self, actions: Vec<Action>, values: &[HeldValue]) -> Result<(), Failure> {
        let mut again = Vec::new();
        for action in actions {
            match action {
                Action::Restore(knob) => again.push(knob),
                Action::Enforce(knob) => {
                    self.tell_change(&knob, values, "set again");
                    again.push(knob);
                }
                Action::TellOfFight(knob, pause) => {
                    say::warning(format!(
                        "{knob}: somebody keeps changing it; set again, and next in {} s at the earliest",
                        pause.as_secs()
                    ));
                    again.push(knob);
                }
                Action::Tell(knob) => self.tell_change(&knob, values, "left so"),
                Action::TellOfReturn(knob) => {
                    self.hold.drifted.retain(|drift| drift.knob != knob);
                    say::note(format!("{knob}: the profile's value is back."));
                }
            }
        }
        match again.is_empty() {
            true => Ok(()),
            false => self.set_again(&again),
        }
    }

    fn tell_change(&mut self, knob: &str, values: &[HeldValue], and: &str) {
        let Some(value) = values.iter().find(|value| value.knob == knob) else {
            return;
        };
        let Held::Drifted { value: found } = &value.now else {
            return;
        };
        let by = self
            .machine
            .catalog()
            .ok()
            .and_then(|catalog| likely_setter(self.machine, &catalog, knob))
            .unwrap_or_default();
        let shown = match by.is_empty() {
            true => String::new(),
            false => format!(" ({by})"),
        };
        let text = format!(
            "{knob}: somebody has changed {} to {found}{shown}; {and}",
            value.held
        );
        match self.hold.policy {
            HoldPolicy::Yield => say::note(&text),
            HoldPolicy::Warn | HoldPolicy::Enforce => say::warning(&text),
        }
        self.hold.drifted.retain(|drift| drift.knob != knob);
        if self.hold.policy != HoldPolicy::Enforce {
            self.hold.drifted.push(HoldDrift {
                knob: knob.to_owned(),
                held: value.held.clone(),
                value: found.clone(),
                noticed: now(),
                by,
            });
        }
    }

    fn set_again(&mut self, knobs: &[String]) -> Result<(), Failure> {
        let lock = self.machine.lock()?;
        let done = match lock.set_again(&self.machine.kernel, &self.hold.profile, knobs) {
            // Reverted since the look; the next one sees it.
            Err(StoreError::NoSuchLayer(_)) => return Ok(()),
            done => done?,
        };
        drop(lock);
        for again in done {
            match again.outcome {
                Ok(value) => {
                    self.hold.set_again += 1;
                    say::note(format!("{}: set again to {value}.", again.knob));
                }
                Err(error) => say::warning(format!("{}: cannot be set again: {error}", again.knob)),
            }
        }
        Ok(())
    }

    /// Devices that have come since are the profile's too where its globs name them.
    fn hold_new_devices(&mut self, values: &[HeldValue]) -> Result<(), Failure> {
        let whole = wanted(self.machine, &self.hold.profile, self.how)?.plan(self.machine)?;
        let is_new = |knob: &String| {
            !values.iter().any(|value| value.knob == *knob) && !self.watch.is_theirs(knob)
        };
        let changes = whole.plan.changes.into_iter();
        let settings: Settings = changes
            .filter(|change| is_new(&change.knob))
            .map(|change| (change.knob, change.new))
            .collect();
        let only_new = Wanted {
            name: self.hold.profile.clone(),
            settings,
            consent: Consent::from(&self.how.consent),
        };
        let planned = only_new.plan(self.machine)?;
        let new = planned.plan.changes.iter().map(|change| &*change.knob);
        let new: Vec<&str> = new.collect();
        if new.is_empty() {
            return Ok(());
        }
        let owner = self.how.revert_on_stop.then(this_process);
        let lock = self.machine.lock()?;
        // On top of the layer in force, under its name: they are taken back together.
        lock.begin(
            &self.machine.kernel,
            &self.hold.profile,
            &now(),
            owner,
            &planned.transaction,
        )?;
        say::note(format!("New here, and held too: {}.", new.join(", ")));
        Ok(())
    }

    fn revert(&self) -> Result<(), Failure> {
        let lock = self.machine.lock()?;
        match lock.revert(&self.machine.kernel, Some(&self.hold.profile), false) {
            Ok(done) => {
                tell_troubles(&done);
                say::note(format!("{}: taken back.", self.hold.profile));
                Ok(())
            }
            Err(StoreError::NoSuchLayer(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn publish(&self) -> Result<(), Failure> {
        let drifted = self.hold.drifted.len();
        service::notify(&match drifted {
            0 => "STATUS=All values in force.".to_owned(),
            _ => format!(
                "STATUS={} changed by somebody else.",
                say::count(drifted, "value")
            ),
        });
        state::write(self.machine, &self.hold)
    }
}
