//! From words on the command line to checked values.

use crate::cli::{ConsentArgs, RunArgs};
use crate::commands::bench::{installed, program_of};
use crate::fail::Failure;
use crate::machine::{Machine, parse_settings};
use crate::say;
use kilter_api::{Arm, Metric, MetricSource, RunOptions, Settings, Workload};
use kilter_knobs::{Catalog, Consent, Planned, plan, resolve_profile};
use kilter_measure::Counters;

/// A time with a unit (`90s`, `5m`, `1h30m`, `200ms`), or plain seconds; in seconds.
pub fn seconds(option: &str, text: &str) -> Result<f64, Failure> {
    let seconds = match text.trim().parse::<f64>() {
        Ok(plain) => Some(plain),
        Err(_) => text
            .trim()
            .parse::<jiff::SignedDuration>()
            .ok()
            .map(|time| time.as_secs_f64()),
    };
    match seconds {
        Some(seconds) if seconds.is_finite() && (0.0..=31_536_000.0).contains(&seconds) => {
            Ok(seconds)
        }
        _ => Err(Failure::new(format!(
            "{option} {text}: not a time; write it like 90s, 5m or 1h30m (at most a year)"
        ))),
    }
}

/// A time that something may take: above zero.
pub fn budget(text: Option<&str>) -> Result<Option<f64>, Failure> {
    let positive = |text: &str| match seconds("--budget", text)? {
        0.0 => Err(Failure::new(
            "--budget 0: nothing can be measured in no time",
        )),
        seconds => Ok(seconds),
    };
    text.map(positive).transpose()
}

/// A command that is one string: split into words, or given to a shell.
pub fn split(text: &str, shell: bool) -> Result<Vec<String>, Failure> {
    if shell {
        return Ok(vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()]);
    }
    let words = shell_words::split(text)
        .map_err(|_| Failure::new(format!("`{text}`: a quotation mark is not closed")))?;
    match words.is_empty() {
        true => Err(Failure::new("the command is empty").hint("kilter run -- COMMAND")),
        false => Ok(words),
    }
}

/// A command given after `--`.
pub fn command(words: &[String], shell: bool) -> Result<Vec<String>, Failure> {
    match words {
        [] => {
            Err(Failure::new("no command is given")
                .hint("put it after `--`: … -- COMMAND ARGUMENTS"))
        }
        [first, ..] if first.is_empty() => {
            Err(Failure::new("the command is empty")
                .hint("put it after `--`: … -- COMMAND ARGUMENTS"))
        }
        [one] if shell => split(one, true),
        _ if shell => Err(Failure::new("--shell takes the command as one string")
            .hint("… --shell -- 'COMMAND | COMMAND'")),
        words => Ok(words.to_vec()),
    }
}

/// How runs are made, without their metrics.
pub fn run_options(args: &RunArgs) -> Result<RunOptions, Failure> {
    let time = |option, text: &Option<String>| {
        text.as_deref()
            .map(|text| seconds(option, text))
            .transpose()
    };
    let words = |text: &Option<String>| {
        text.as_deref()
            .map(|text| split(text, args.shell))
            .transpose()
    };
    if let Some(list) = &args.cpus {
        list.parse::<kilter_measure::CpuList>()
            .map_err(|error| Failure::new(format!("--cpus {list}: {error}")))?;
    }
    Ok(RunOptions {
        metrics: Vec::new(),
        prepare: words(&args.prepare)?.unwrap_or_default(),
        cleanup: words(&args.cleanup)?.unwrap_or_default(),
        timeout_s: time("--timeout", &args.timeout)?,
        settle_s: time("--settle", &args.settle)?.unwrap_or(0.0),
        cpus: args.cpus.clone(),
    })
}

/// A workload of the catalog that can run here, with its placeholders filled and this binary in
/// place of `kilter`.
pub fn workload(machine: &Machine, name: &str) -> Result<Workload, Failure> {
    let mut workload = kilter_knobs::Catalog::workload(&machine.places, name)?;
    for words in [
        &mut workload.command,
        &mut workload.prepare,
        &mut workload.cleanup,
    ] {
        for word in words.iter_mut() {
            *word = word.replace("{cpus}", &cpus().to_string());
        }
        if let Some(first) = words.first_mut().filter(|first| *first == "kilter") {
            *first = this_binary()?;
        }
    }
    if !installed(&workload) {
        return Err(Failure::new(format!(
            "{name}: `{}` is not installed",
            program_of(&workload)
        ))
        .hint(format!("sudo apt install {}", workload.package)));
    }
    leave_out_missing_counters(&mut workload);
    if workload.needs_root {
        machine.need_root(&format!("the workload {name}"))?;
    }
    Ok(workload)
}

/// Leaves out the metrics of counters that this machine does not have; virtual machines have few.
fn leave_out_missing_counters(workload: &mut Workload) {
    let counter = |metric: &Metric| match &metric.source {
        MetricSource::Record { field } => field.strip_prefix("counters.").map(str::to_owned),
        _ => None,
    };
    if !workload
        .metrics
        .iter()
        .any(|metric| counter(metric).is_some())
    {
        return;
    }
    let counters = Counters::open();
    let here: Vec<&str> = counters
        .names()
        .map(|name| name.trim_end_matches(":u"))
        .collect();
    workload
        .metrics
        .retain(|metric| counter(metric).is_none_or(|name| here.contains(&name.as_str())));
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// This binary, by its absolute path.
pub fn this_binary() -> Result<String, Failure> {
    let path = std::env::current_exe()
        .map_err(|error| Failure::new(format!("/proc/self/exe: {error}")))?;
    path.into_os_string().into_string().map_err(|path| {
        Failure::new(format!(
            "{}: the path of kilter is not UTF-8",
            path.display()
        ))
    })
}

/// Settings of `--profile` and `--set`, planned.
pub fn planned(
    machine: &Machine,
    name: &str,
    profile: Option<&str>,
    set: &[String],
    consent: &ConsentArgs,
) -> Result<Planned, Failure> {
    let given = parse_settings(set)?;
    if profile.is_none() && given.is_empty() {
        return Ok(Planned::default());
    }
    let mut settings = match profile {
        Some(profile) => resolve_profile(&machine.places, profile)?.1,
        None => Settings::new(),
    };
    settings.extend(given.clone());
    let planned = plan(
        &machine.kernel,
        &machine.catalog()?,
        name,
        &settings,
        &Consent::from(consent),
    )?;
    refuse_skipped(&machine.catalog()?, &planned, &given)?;
    Ok(planned)
}

/// A knob that was asked for by name and cannot be set is an error; one of a profile is skipped.
fn refuse_skipped(catalog: &Catalog, planned: &Planned, given: &Settings) -> Result<(), Failure> {
    let named = own_names(catalog, given);
    for skip in &planned.plan.skipped {
        if named.contains(&skip.knob) {
            return Err(
                Failure::new(format!("{}: {}", skip.knob, skip.because.detail))
                    .hint(format!("kilter knobs show {}", skip.knob)),
            );
        }
    }
    Ok(())
}

/// The knobs that `--set` names.
pub fn named(catalog: &Catalog, set: &[String]) -> Result<Vec<String>, Failure> {
    Ok(own_names(catalog, &parse_settings(set)?))
}

/// A knob has other names too, and the plan has its own.
fn own_names(catalog: &Catalog, given: &Settings) -> Vec<String> {
    let own = |name: &String| {
        let known = catalog.resolve(name);
        known.map_or(name.clone(), |(known, _)| known)
    };
    given.keys().map(own).collect()
}

/// What is compared: `current`, a profile, or `KNOB=VALUE,…`; and the values that its knobs have
/// now.
pub fn arm(
    machine: &Machine,
    text: &str,
    command: Vec<String>,
    consent: &ConsentArgs,
) -> Result<(Arm, Settings), Failure> {
    let planned = match text {
        "current" => Planned::default(),
        text if text.contains('=') => {
            let set: Vec<String> = text.split(',').map(str::to_owned).collect();
            planned(machine, "run", None, &set, consent)?
        }
        profile => planned(machine, "run", Some(profile), &[], consent)?,
    };
    if !planned.plan.skipped.is_empty() {
        say::warning(format!(
            "{text}: {} cannot be set here and are left out: `kilter apply --dry-run {text}` tells why",
            say::count(planned.plan.skipped.len(), "knob")
        ));
    }
    let mut arm_settings = Settings::new();
    let mut old = Settings::new();
    for change in planned.plan.changes {
        // What comes with another knob has no value now.
        if change.appears_with.is_empty() {
            old.insert(change.knob.clone(), change.old);
        }
        arm_settings.insert(change.knob, change.new);
    }
    let arm = Arm {
        label: text.to_owned(),
        settings: arm_settings,
        command,
    };
    Ok((arm, old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, wanted) in [
            ("90s", 90.0),
            ("5m", 300.0),
            ("1h30m", 5400.0),
            ("200ms", 0.2),
            ("2.5", 2.5),
            ("0", 0.0),
        ] {
            assert!(
                (seconds("--budget", text).unwrap() - wanted).abs() < 1e-9,
                "{text}"
            );
        }
        for bad in ["", "-1", "abc", "5 parsecs", "1e99", "NaN", "inf"] {
            assert!(seconds("--budget", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn commands_are_words_unless_a_shell_is_asked_for() {
        assert_eq!(
            split("make -j 'a b'", false).unwrap(),
            ["make", "-j", "a b"]
        );
        assert_eq!(split("a | b", true).unwrap(), ["sh", "-c", "a | b"]);
        assert!(split("", false).is_err() && split("a 'b", false).is_err());
    }
}
