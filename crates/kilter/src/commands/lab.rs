//! What the commands share that ask the Python lab: a request, checked here, and how it is handed
//! over.

use crate::cli::{ConsentArgs, DecideArgs, WorkArgs};
use crate::commands::doctor::other_tuners;
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use crate::{args, metrics, question, say};
use kilter_api::{LabContext, LabRequest, Metric, Question, RunOptions};
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
            "there is no Python beside {}, so compare, tune, audit, selftest and report cannot run",
            binary.display()
        ))
        .hint("python3 -m venv kilter-venv && kilter-venv/bin/pip install kilter")),
    }
}

/// Becomes the lab, which reads the request from its standard input: a hundred knobs with their
/// reasons are longer than the kernel lets an argument be.
pub fn ask(request: &LabRequest) -> Outcome {
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

/// Becomes the lab to measure this machine, after saying what could spoil the numbers.
pub fn measure(machine: &Machine, request: &LabRequest) -> Outcome {
    interpreter()?;
    warn_of_others(machine);
    machine.tell_leftovers();
    ask(request)
}

/// How the lab reaches this binary, and what it is to make of its answers.
pub fn context(machine: &Machine, as_root: bool, seed: Option<u64>) -> Result<LabContext, Failure> {
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

/// What is executed again and again.
#[derive(Debug, Default)]
pub struct Work {
    /// The command.
    pub command: Vec<String>,
    /// The workload's name, or empty for a command.
    pub workload: String,
    metrics: Vec<Metric>,
    prepare: Vec<String>,
    cleanup: Vec<String>,
    needs_root: bool,
}

/// The command after `--`, or a workload of the catalog, which brings its preparation and metrics.
pub fn work(machine: &Machine, args: &WorkArgs) -> Result<Work, Failure> {
    match args.workload.as_deref() {
        Some(name) => workload(machine, name),
        None => Ok(Work {
            command: args::command(&args.command, args.run.shell)?,
            ..Work::default()
        }),
    }
}

/// A workload of the catalog.
pub fn workload(machine: &Machine, name: &str) -> Result<Work, Failure> {
    let workload = args::workload(machine, name)?;
    Ok(Work {
        command: workload.command,
        workload: workload.name,
        metrics: workload.metrics,
        prepare: workload.prepare,
        cleanup: workload.cleanup,
        needs_root: workload.needs_root,
    })
}

/// The parts that all requests about numbers have.
#[derive(Debug)]
pub struct Asked {
    /// How to reach the binary.
    pub context: LabContext,
    /// How runs are made.
    pub options: RunOptions,
    /// What is asked of the numbers.
    pub question: Question,
}

impl Asked {
    /// With risks that are accepted in the runs too, not only where they are planned.
    pub fn accepting(mut self, consent: &ConsentArgs) -> Self {
        if !consent.allow.is_empty() {
            let words: Vec<&str> = consent.allow.iter().map(|risk| risk.word()).collect();
            let options = ["--allow".to_owned(), words.join(",")];
            self.context.batch_options.extend(options);
        }
        self
    }
}

/// Checks what is common to all commands that give verdicts.
pub fn asked(
    machine: &Machine,
    work: &Work,
    WorkArgs { run, precision, .. }: &WorkArgs,
    decide: &DecideArgs,
) -> Result<Asked, Failure> {
    let mut measured = metrics::measured(&run.metric, &decide.also, &work.metrics)?;
    let question = question::question(precision, decide, &mut measured)?;
    let mut options = args::run_options(run)?;
    if run.prepare.is_none() {
        options.prepare.clone_from(&work.prepare);
    }
    if run.cleanup.is_none() {
        options.cleanup.clone_from(&work.cleanup);
    }
    options.metrics = measured.metrics;
    Ok(Asked {
        context: context(machine, run.as_root || work.needs_root, precision.seed)?,
        options,
        question,
    })
}

/// An absolute path as text.
pub fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    absolute
        .into_os_string()
        .into_string()
        .map_err(|path| Failure::new(format!("{}: the path is not UTF-8", path.display())))
}

/// Where the studies lie: a URL for SQLAlchemy.
pub fn storage(machine: &Machine, given: Option<&str>) -> Result<String, Failure> {
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
