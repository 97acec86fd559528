//! `kilter audit`: what of a profile carries its effect.

use super::knobs::reason;
use super::lab::{asked, measure, work};
use crate::args;
use crate::cli::Audit;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use kilter_api::{
    AuditLine, AuditRequest, LabRequest, Plan, Settings, Unavailable, UnavailableReason,
};
use kilter_knobs::{Consent, plan, profile_values, reason_for};

/// Runs `kilter audit`.
pub fn run(machine: &Machine, args: &Audit) -> Outcome {
    let (profile, values) = profile_values(&machine.places, &args.profile)?;
    let work = work(machine, &args.work)?;
    let asked = asked(machine, &work, &args.work, &args.decide)?.accepting(&args.consent);
    let settings: Settings = values
        .iter()
        .map(|(knob, value)| (knob.clone(), value.value.clone()))
        .collect();
    machine.clear_leftovers()?;
    let planned = plan(
        &machine.kernel,
        &machine.catalog()?,
        &profile.name,
        &settings,
        &Consent::from(&args.consent),
    )?;
    let (mut lines, left_out) = split(planned.plan);
    for line in &mut lines {
        line.why = reason_for(&values, &line.knob).to_owned();
    }
    if lines.is_empty() {
        return Err(nothing(&profile.name, &left_out));
    }
    let request = AuditRequest {
        context: asked.context,
        options: asked.options,
        question: asked.question,
        profile: profile.name,
        lines,
        left_out,
        command: work.command,
        workload: work.workload,
        max_runs: args.max_runs,
        budget_s: args::budget(args.budget.as_deref())?,
    };
    machine.need_root("auditing a profile")?;
    measure(machine, &LabRequest::Audit(Box::new(request)))
}

/// Knobs that change nothing here, with the reason.
type LeftOut = Vec<(String, String)>;

/// The lines that change something here, and the rest; both by name.
fn split(plan: Plan) -> (Vec<AuditLine>, LeftOut) {
    // What comes only with another line cannot be tried without it.
    let (late, changes): (Vec<_>, Vec<_>) = plan
        .changes
        .into_iter()
        .partition(|change| !change.appears_with.is_empty());
    let late = late
        .into_iter()
        .map(|change| (change.knob, format!("appears with {}", change.appears_with)));
    let (changed, same): (Vec<_>, Vec<_>) = changes
        .into_iter()
        .partition(|change| change.old != change.new);
    let line = |change: kilter_api::Change| AuditLine {
        knob: change.knob,
        old: change.old,
        new: change.new,
        why: String::new(),
    };
    let mut lines: Vec<AuditLine> = changed.into_iter().map(line).collect();
    lines.sort_by(|a, b| a.knob.cmp(&b.knob));
    let same = same
        .into_iter()
        .map(|change| (change.knob, format!("already {}", change.old)));
    let skipped = plan
        .skipped
        .into_iter()
        .map(|skip| (skip.knob, short(skip.because)));
    let mut left_out: LeftOut = same.chain(late).chain(skipped).collect();
    left_out.sort();
    (lines, left_out)
}

/// The reason in a table: one or two words where they say it all; `knobs show` has the rest.
fn short(because: Unavailable) -> String {
    match because.reason {
        UnavailableReason::NotPermitted | UnavailableReason::Unsupported => because.detail,
        plain => reason(plain).to_owned(),
    }
}

fn nothing(profile: &str, left_out: &LeftOut) -> Failure {
    let failure = Failure::new(format!(
        "{profile} changes nothing here, so there is nothing to audit{}",
        left_out
            .iter()
            .map(|(knob, why)| format!("\n  {knob}: {why}"))
            .collect::<String>()
    ));
    failure.hint(format!("kilter diff {profile}"))
}
