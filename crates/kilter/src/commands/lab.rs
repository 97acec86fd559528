//! `kilter compare`, `tune` and `report`: requests to the Python lab, checked here.

use crate::args;
use crate::cli::{Compare, Report, ReportFormat, Required, RunArgs, Tune, VerdictArgs};
use crate::commands::doctor::other_tuners;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::say;
use kilter_api::{
    CompareRequest, LabContext, LabRequest, Question, ReportRequest, RunOptions, Settings,
    TuneRequest,
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreter beside this binary: the wheel installs both.
pub fn interpreter() -> Result<PathBuf, Failure> {
    let binary = std::env::current_exe()?;
    let python = binary.parent().unwrap_or(Path::new("/")).join("python3");
    match python.exists() {
        true => Ok(python),
        false => Err(Failure::new(format!(
            "there is no Python beside {}, so compare, tune and report cannot run",
            binary.display()
        ))
        .hint("python3 -m venv kilter-venv && kilter-venv/bin/pip install kilter")),
    }
}

/// Becomes the lab, which reads the request from its standard input: a hundred knobs with their
/// reasons are longer than the kernel lets an argument be.
fn ask(request: &LabRequest) -> Outcome {
    let python = interpreter()?;
    let file = memfd_create("kilter-request", MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let mut text = File::from(file);
    text.write_all(&serde_json::to_vec(request)?)?;
    text.rewind()?;
    // -I: nothing is imported from the working directory or the user's site, which matters to root.
    let error = Command::new(&python)
        .args(["-I", "-m", "kilter_lab"])
        .stdin(text)
        .exec();
    Err(Failure::new(format!("{}: {error}", python.display())))
}

fn context(machine: &Machine, as_root: bool, seed: Option<u64>) -> Result<LabContext, Failure> {
    let mut kilter = vec![args::this_binary()?];
    if !machine.is_real() {
        kilter.extend([
            "--root".to_owned(),
            machine.kernel.root().display().to_string(),
        ]);
    }
    let batch_options = if as_root {
        vec!["--as-root".to_owned()]
    } else {
        Vec::new()
    };
    Ok(LabContext {
        kilter,
        batch_options,
        json: machine.json,
        seed: seed.unwrap_or_else(fresh_seed),
    })
}

/// A seed that fits into 32 bits, so that a person can type it again.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id()) & 0xffff_ffff
}

fn warn_of_others(machine: &Machine) {
    let others = other_tuners(machine);
    if !others.is_empty() {
        say::warning(format!(
            "{} may change settings meanwhile; stop it while you measure",
            others.join(", ")
        ));
    }
    let scheduler = kilter_measure::fingerprint(machine.kernel.root()).sched_ext;
    if !scheduler.is_empty() {
        say::warning(format!(
            "the BPF scheduler {scheduler} is loaded: sched.* knobs do not govern its tasks"
        ));
    }
}

fn question(verdict: &VerdictArgs) -> Result<Question, Failure> {
    Ok(Question {
        alpha: 0.05,
        detect_percent: 2.0,
        region_percent: region(verdict)?,
        objectives: 1,
        guards: Vec::new(),
        require_better: verdict.require == Some(Required::Better),
    })
}

fn region(verdict: &VerdictArgs) -> Result<f64, Failure> {
    match verdict.region {
        percent if percent > 0.0 && percent < 50.0 => Ok(percent),
        percent => Err(Failure::new(format!(
            "--region {percent}: the range is above 0 to below 50 percent"
        ))),
    }
}

/// Runs `kilter compare`.
pub fn compare(machine: &Machine, args: &Compare) -> Outcome {
    let mut options = args::run_options(&args.run)?;
    let (base, arms) = match args.commands.as_slice() {
        [] => arms_of_settings(machine, args, &mut options)?,
        [one] => {
            return Err(Failure::new(format!("`{one}`: one command is not a comparison")).hint("kilter compare 'COMMAND A' 'COMMAND B', or kilter compare --with KNOB=VALUE -- COMMAND"));
        }
        commands => arms_of_commands(machine, args, commands)?,
    };
    if arms
        .iter()
        .chain([&base])
        .any(|arm| !arm.settings.is_empty())
    {
        machine.need_root("comparing settings")?;
    }
    warn_of_others(machine);
    machine.tell_leftovers();
    let request = CompareRequest {
        context: context(machine, args.run.as_root, args.verdict.seed)?,
        options,
        base,
        arms,
        question: question(&args.verdict)?,
        old: Settings::new(),
        workload: args.workload.clone().unwrap_or_default(),
        blocks: Some(args.blocks),
        max_runs: None,
        budget_s: None,
        export: args.export.as_deref().map(export).transpose()?,
    };
    ask(&LabRequest::Compare(request))
}

type Arms = (kilter_api::Arm, Vec<kilter_api::Arm>);

fn arms_of_settings(
    machine: &Machine,
    args: &Compare,
    options: &mut RunOptions,
) -> Result<Arms, Failure> {
    let command = workload_or_command(
        machine,
        args.workload.as_deref(),
        &args.command,
        &args.run,
        options,
    )?;
    if args.with.is_empty() {
        return Err(Failure::new("nothing to compare with")
            .hint("kilter compare --with vm.swappiness=10 -- COMMAND"));
    }
    let arm = |text: &String| args::arm(machine, text, command.clone(), &args.consent);
    Ok((
        arm(&args.base)?,
        args.with.iter().map(arm).collect::<Result<_, _>>()?,
    ))
}

fn arms_of_commands(
    machine: &Machine,
    args: &Compare,
    commands: &[String],
) -> Result<Arms, Failure> {
    let arm = |text: &String| {
        let command = args::split(text, args.run.shell)?;
        let arm = args::arm(machine, &args.base, command, &args.consent)?;
        Ok(kilter_api::Arm {
            label: text.clone(),
            ..arm
        })
    };
    let mut arms = commands
        .iter()
        .map(arm)
        .collect::<Result<Vec<_>, Failure>>()?;
    Ok((arms.remove(0), arms))
}

/// The command after `--`, or the workload's, which brings its preparation, and its metrics where
/// none were given.
fn workload_or_command(
    machine: &Machine,
    workload: Option<&str>,
    words: &[String],
    run: &RunArgs,
    options: &mut RunOptions,
) -> Result<Vec<String>, Failure> {
    let Some(name) = workload else {
        return args::command(words, run.shell);
    };
    let workload = args::workload(machine, name)?;
    if run.metric.is_empty() {
        options.metrics = workload.metrics;
    }
    options.prepare = workload.prepare;
    options.cleanup = workload.cleanup;
    Ok(workload.command)
}

fn export(path: &Path) -> Result<String, Failure> {
    let ending = path.extension().and_then(|ending| ending.to_str());
    if !matches!(ending, Some("csv" | "json")) {
        return Err(Failure::new(format!(
            "--export {}: the name must end in .csv or .json",
            path.display()
        )));
    }
    absolute(path)
}

fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    absolute
        .into_os_string()
        .into_string()
        .map_err(|path| Failure::new(format!("{}: the path is not UTF-8", path.display())))
}

/// Runs `kilter tune`.
pub fn tune(machine: &Machine, args: &Tune) -> Outcome {
    let mut options = args::run_options(&args.run)?;
    let command = workload_or_command(
        machine,
        args.workload.as_deref(),
        &args.command,
        &args.run,
        &mut options,
    )?;
    let space = super::space::space(machine, args)?;
    let budget_s = match (&args.budget, args.trials) {
        (Some(text), _) => Some(args::seconds("--budget", text)?),
        (None, Some(_)) => None,
        (None, None) => Some(600.0),
    };
    let state_dir = machine.places.studies();
    let mut request = TuneRequest {
        context: context(machine, args.run.as_root, args.verdict.seed)?,
        options,
        study: study_name(args.study.as_deref(), &command)?,
        storage: storage(machine, args.storage.as_deref())?,
        state_dir: absolute(&state_dir)?,
        command,
        knobs: space.knobs,
        fixed: space.fixed,
        at_most: space.at_most,
        known: space.known,
        trials: args.trials,
        budget_s,
        question: question(&args.verdict)?,
        workload: args.workload.clone().unwrap_or_default(),
        evidence: Vec::new(),
        report: args.report.as_deref().map(absolute).transpose()?,
    };
    // Everything asked for makes sense: only now is the machine touched.
    machine.need_root("tuning")?;
    interpreter()?;
    std::fs::create_dir_all(&state_dir)
        .map_err(|error| Failure::new(format!("{}: {error}", state_dir.display())))?;
    warn_of_others(machine);
    super::space::fit_to_kernel(machine, &mut request.knobs)?;
    ask(&LabRequest::Tune(Box::new(request)))
}

fn study_name(given: Option<&str>, command: &[String]) -> Result<String, Failure> {
    if let Some(name) = given {
        return match kilter_knobs::valid_name(name) {
            true => Ok(name.to_owned()),
            false => Err(Failure::new(format!(
                "--study {name}: at most 64 lower-case letters, digits, `-`, `_`, `.`, beginning with a letter or digit"
            ))),
        };
    }
    let program = Path::new(&command[0])
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("study");
    let plain: String = program
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(24)
        .collect();
    let plain = plain.trim_matches('-');
    let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
    Ok(format!(
        "{}-{time}",
        if plain.is_empty() { "study" } else { plain }
    ))
}

fn storage(machine: &Machine, given: Option<&str>) -> Result<String, Failure> {
    match given {
        Some(url) if url.contains("://") => Ok(url.to_owned()),
        Some(url) => Err(Failure::new(format!("--storage {url}: not a database URL"))
            .hint("--storage sqlite:////path/studies.db, --storage postgresql://HOST/DATABASE")),
        None => Ok(format!(
            "sqlite:///{}",
            absolute(&machine.places.state.join("studies.db"))?
        )),
    }
}

/// Runs `kilter report`.
pub fn report(machine: &Machine, args: &Report) -> Outcome {
    let format = match args.format {
        ReportFormat::Html => kilter_api::ReportFormat::Html,
        ReportFormat::Md => kilter_api::ReportFormat::Md,
        ReportFormat::Json => kilter_api::ReportFormat::Json,
    };
    let on_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let output = match &args.output {
        None if format == kilter_api::ReportFormat::Html && on_terminal => {
            Some(PathBuf::from(format!("{}.html", args.study)))
        }
        output => output.clone(),
    };
    if !kilter_knobs::valid_name(&args.study) {
        return Err(Failure::new(format!(
            "`{}` is no name of a study",
            args.study
        )));
    }
    let request = ReportRequest {
        context: context(machine, false, None)?,
        study: args.study.clone(),
        storage: storage(machine, args.storage.as_deref())?,
        format,
        output: output.as_deref().map(absolute).transpose()?,
    };
    ask(&LabRequest::Report(request))
}
