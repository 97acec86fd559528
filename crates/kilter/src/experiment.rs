//! One experiment: settings in force, runs under them, settings back.
//!
//! A [`Session`] holds what lasts as long as the experiment: the right to run one, the guardian,
//! the signals. Values stay in force from one run to the next as long as they are the same, so that
//! a batch writes only where arms change.

use crate::args;
use crate::cli::SettingArgs;
use crate::commands::apply::{begin, did_not_appear};
use crate::fail::Failure;
use crate::machine::{Machine, tell_troubles};
use crate::say;
use kilter_api::{Metric, RunRecord, RunRequest, Settings, Skipped};
use kilter_kernel::{Experiment, Guardian, this_process};
use kilter_knobs::{Catalog, Consent, Planned, plan};
use kilter_measure::{
    CpuList, Credentials, Job, Measured, Metrics, Output, Signals, SpawnError, Stdin,
};
use std::time::Duration;

/// Exit code for kilter's own failures in `run`, as env(1) and timeout(1) have it.
pub const OWN_FAILURE: u8 = 125;

/// An experiment under way. Dropping it puts every setting back.
pub struct Session<'m> {
    machine: &'m Machine,
    user: Option<Credentials>,
    /// Signals that end the experiment.
    pub signals: Signals,
    /// Whether a run ends once nobody reads kilter's standard output any more.
    pub for_reader: bool,
    /// Risks accepted for values that are given by name.
    pub consent: Consent,
    guard: Option<Guard>,
    held: Option<HeldLayer>,
    catalog: Option<Catalog>,
}

/// What is needed as soon as a setting is to change.
struct Guard {
    guardian: Guardian,
    _experiment: Experiment,
}

struct HeldLayer {
    id: u64,
    asked: Settings,
    kept: Settings,
}

/// What one run needs besides its settings.
pub struct RunSpec<'a> {
    /// The command.
    pub command: &'a [String],
    /// CPUs to pin it to.
    pub cpus: Option<&'a str>,
    /// Its time limit.
    pub timeout_s: Option<f64>,
    /// Where its output goes.
    pub output: Output,
    /// Where its input comes from.
    pub stdin: Stdin,
    /// What to read from the output.
    pub metrics: &'a [Metric],
    /// Whether to count with perf, which costs each new task of the command a little.
    pub counters: bool,
}

impl<'m> Session<'m> {
    /// Prepares an experiment; nothing is locked or written until values are held.
    pub fn new(machine: &'m Machine, as_root: bool) -> Result<Self, Failure> {
        let user = match as_root {
            true => None,
            false => kilter_measure::invoking_user().map_err(Failure::new)?,
        };
        Ok(Session {
            machine,
            user,
            signals: Signals::take()?,
            for_reader: false,
            consent: Consent::default(),
            guard: None,
            held: None,
            catalog: None,
        })
    }

    /// An experiment under the values of `--profile` and `--set`.
    pub fn under(
        machine: &'m Machine,
        settings: &SettingArgs,
        as_root: bool,
    ) -> Result<Self, Failure> {
        let profile = settings.profile.as_deref();
        let planned = args::planned(machine, "run", profile, &settings.set, &settings.consent)?;
        machine.tell_leftovers();
        let mut session = Session::new(machine, as_root)?;
        let changes = planned.plan.changes.iter();
        let asked = changes.map(|change| (change.knob.clone(), change.new.clone()));
        let missing = session.hold_planned(asked.collect(), &planned)?;
        let named = args::named(&machine.catalog()?, &settings.set)?;
        for skipped in missing {
            if named.contains(&skipped.knob) {
                return Err(session.without(&skipped));
            }
            say::warning(format!("{}: {}", skipped.knob, skipped.because.detail));
        }
        Ok(session)
    }

    /// Puts values in force that were given by name. Values that are in force already stay.
    pub fn hold(&mut self, settings: &Settings) -> Result<(), Failure> {
        if self
            .held
            .as_ref()
            .map(|held| &held.asked)
            .unwrap_or(&Settings::new())
            == settings
        {
            return Ok(());
        }
        self.release()?;
        if settings.is_empty() {
            return Ok(());
        }
        if self.catalog.is_none() {
            self.catalog = Some(self.machine.catalog()?);
        }
        let catalog = self.catalog.as_ref().expect("just filled");
        let planned = plan(
            &self.machine.kernel,
            catalog,
            "run",
            settings,
            &self.consent,
        )?;
        if let Some(skip) = planned.plan.skipped.first() {
            return Err(Failure::new(format!(
                "{}: {}",
                skip.knob, skip.because.detail
            )));
        }
        match self.hold_planned(settings.clone(), &planned)?.first() {
            Some(skipped) => Err(self.without(skipped)),
            None => Ok(()),
        }
    }

    /// The failure of an experiment that lacks one of its values; nothing is in force any more.
    fn without(&mut self, skipped: &Skipped) -> Failure {
        let released = self.release().err();
        released.unwrap_or_else(|| {
            Failure::new(format!("{}: {}", skipped.knob, skipped.because.detail))
        })
    }

    /// Puts a plan in force; returns what was to come with other values and did not.
    fn hold_planned(
        &mut self,
        mut asked: Settings,
        planned: &Planned,
    ) -> Result<Vec<Skipped>, Failure> {
        self.release()?;
        if planned.transaction.steps.is_empty() {
            return Ok(Vec::new());
        }
        self.machine.need_root("changing settings")?;
        self.take_guard()?;
        let lock = self.machine.lock()?;
        let begun = begin(
            self.machine,
            &lock,
            "run",
            Some(this_process()),
            &planned.transaction,
        )?;
        let kept = begun
            .written
            .into_iter()
            .map(|written| (written.knob, written.kept))
            .collect();
        asked.retain(|knob, _| !begun.missing.contains(knob));
        self.held = Some(HeldLayer {
            id: begun.id,
            asked,
            kept,
        });
        let changes = planned.plan.changes.iter().cloned();
        Ok(changes
            .filter(|change| begun.missing.contains(&change.knob))
            .map(did_not_appear)
            .collect())
    }

    /// Takes the right to run experiments and starts the guardian, once.
    pub fn take_guard(&mut self) -> Result<(), Failure> {
        if self.guard.is_none() {
            let experiment = self.machine.store.experiment()?;
            let guardian = Guardian::start(&self.machine.kernel)?;
            self.guard = Some(Guard {
                guardian,
                _experiment: experiment,
            });
        }
        Ok(())
    }

    /// Puts the held values back.
    pub fn release(&mut self) -> Result<(), Failure> {
        if let Some(held) = self.held.take() {
            let done = self
                .machine
                .store
                .lock()?
                .undo(&self.machine.kernel, held.id)?;
            tell_troubles(&done);
        }
        Ok(())
    }

    /// Runs a command under the held values and measures it.
    pub fn run(&mut self, spec: &RunSpec<'_>) -> Result<Ran, RunFailure> {
        let metrics = Metrics::compile(spec.metrics)
            .map_err(|error| RunFailure::other(Failure::new(error)))?;
        let mut job = self.job(spec)?;
        job.counters |= metrics.need_counters();
        let guardian = &mut self.guard;
        let watch = |group| {
            if let Some(guard) = guardian {
                guard.guardian.watch(Some(group));
            }
        };
        let outcome = kilter_measure::run(&job, &self.signals, watch);
        if let Some(guard) = &mut self.guard {
            guard.guardian.watch(None);
        }
        let measured = outcome.map_err(RunFailure::Spawn)?;
        let mut record = measured.record(
            self.held
                .as_ref()
                .map(|held| held.kept.clone())
                .unwrap_or_default(),
        );
        record.warnings.extend(self.rounded());
        let metric_problem =
            match metrics.extract(&record, &measured.stdout.bytes(), &measured.stderr.bytes()) {
                Ok(values) => {
                    record.metrics = values;
                    None
                }
                Err(error) => Some(error.to_string()),
            };
        Ok(Ran {
            measured,
            record,
            metric_problem,
        })
    }

    /// Runs a preparation or clean-up, if there is one, without measuring.
    pub fn aside(
        &mut self,
        what: &str,
        command: &[String],
        cpus: Option<&str>,
    ) -> Result<(), Failure> {
        if command.is_empty() {
            return Ok(());
        }
        let spec = RunSpec {
            command,
            cpus,
            timeout_s: None,
            output: Output::Capture,
            stdin: Stdin::Null,
            metrics: &[],
            counters: false,
        };
        let ran = self
            .run(&spec)
            .map_err(|failure| Failure::new(format!("the {what} command: {failure}")))?;
        match ran.record.outcome {
            kilter_api::Outcome::Exited { code: 0 } => Ok(()),
            outcome => {
                let said = format!("{}\n{}", ran.record.stdout_tail, ran.record.stderr_tail);
                Err(Failure::new(format!(
                    "the {what} command `{}` {}; it said:\n{}",
                    command.join(" "),
                    ended(&outcome),
                    said.trim()
                )))
            }
        }
    }

    /// Answers one request of a batch.
    pub fn answer(&mut self, request: &RunRequest) -> Result<Ran, Failure> {
        let changed = self
            .held
            .as_ref()
            .map(|held| &held.asked)
            .unwrap_or(&Settings::new())
            != &request.settings;
        self.hold(&request.settings)?;
        if changed && request.settle_s > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(request.settle_s.min(3600.0)));
        }
        let cpus = request.cpus.as_deref();
        self.aside("preparation", &request.prepare, cpus)?;
        let spec = RunSpec {
            command: &request.command,
            cpus,
            timeout_s: request.timeout_s,
            output: Output::Capture,
            stdin: Stdin::Null,
            metrics: &request.metrics,
            counters: false,
        };
        let mut ran = self
            .run(&spec)
            .map_err(|failure| Failure::new(failure.to_string()))?;
        if let Err(failure) = self.aside("clean-up", &request.cleanup, cpus) {
            ran.record.warnings.push(failure.message().to_owned());
        }
        Ok(ran)
    }

    fn job(&self, spec: &RunSpec<'_>) -> Result<Job, RunFailure> {
        let fail = |error: &dyn std::fmt::Display| RunFailure::other(Failure::new(error));
        let mut job = Job::new(spec.command.iter());
        job.user = self.user.clone();
        job.stdin = spec.stdin;
        job.output = spec.output;
        job.counters = spec.counters;
        job.for_reader = self.for_reader;
        job.cpus = spec
            .cpus
            .map(|list| list.parse::<CpuList>())
            .transpose()
            .map_err(|error| fail(&error))?;
        job.timeout = spec
            .timeout_s
            .map(kilter_measure::timeout_from_secs)
            .transpose()
            .map_err(|error| fail(&error))?;
        Ok(job)
    }

    /// Values that the kernel did not keep as asked.
    fn rounded(&self) -> Vec<String> {
        let Some(held) = &self.held else {
            return Vec::new();
        };
        let differs = |(knob, asked): (&String, &String)| {
            let kept = held.kept.get(knob)?;
            (kept != asked).then(|| format!("{knob}: asked {asked}, the kernel keeps {kept}"))
        };
        held.asked.iter().filter_map(differs).collect()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Err(failure) = self.release() {
            failure.print();
            say::hint("kilter revert");
        }
    }
}

/// A run that took place.
pub struct Ran {
    /// Everything measured.
    pub measured: Measured,
    /// The same as a message, with metrics.
    pub record: RunRecord,
    /// Why a metric could not be read; then the record has none.
    pub metric_problem: Option<String>,
}

/// A run that did not take place.
#[derive(Debug, thiserror::Error)]
pub enum RunFailure {
    /// The command could not be started.
    #[error(transparent)]
    Spawn(SpawnError),
    /// Something in its options.
    #[error("{}", .0.message())]
    Other(Failure),
}

impl RunFailure {
    fn other(failure: Failure) -> Self {
        RunFailure::Other(failure)
    }

    /// The failure with the exit code that env(1) would have.
    pub fn into_failure(self) -> Failure {
        match self {
            RunFailure::Spawn(error) => {
                let code = error.exit_code();
                Failure::new(error).code(code)
            }
            RunFailure::Other(failure) => failure.code(OWN_FAILURE),
        }
    }
}

/// How a run ended, in words.
pub fn ended(outcome: &kilter_api::Outcome) -> String {
    match outcome {
        kilter_api::Outcome::Exited { code } => format!("exited with code {code}"),
        kilter_api::Outcome::Signalled { signal } => format!("was ended by signal {signal}"),
        kilter_api::Outcome::TimedOut => "ran into its time limit".to_owned(),
        kilter_api::Outcome::Interrupted => "was interrupted".to_owned(),
    }
}
