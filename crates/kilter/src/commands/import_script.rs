//! `kilter import script`: a tweak script is run where it can change nothing, and read by what it
//! would have written.

use crate::args;
use crate::fail::Failure;
use crate::machine::{Machine, quote};
use crate::say;
use kilter_knobs::{Catalog, Import, files_of_every_kernel, import_writes};
use kilter_measure::sandbox::{Ending, Limits, Originals, Recording, SandboxError, Script, record};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// The largest script that is read.
const MOST: u64 = 1 << 20;

/// Shells for a script whose own is not here, as on Android; the ones that understand most first.
const SHELLS: [&str; 4] = ["/bin/mksh", "/bin/bash", "/bin/sh", "/system/bin/sh"];

/// A script and how it asks to be run.
pub fn read(file: &Path, timeout: &str, arguments: &[String]) -> Result<Script, Failure> {
    let shown = file.display();
    let fail = |error: std::io::Error| Failure::new(format!("{shown}: {error}"));
    let opened = std::fs::File::open(file).map_err(fail)?;
    if !opened.metadata().map_err(fail)?.is_file() {
        return Err(Failure::new(format!("{shown}: not a plain file")));
    }
    let mut text = Vec::new();
    opened.take(MOST + 1).read_to_end(&mut text).map_err(fail)?;
    if text.len() as u64 > MOST {
        return Err(Failure::new(format!(
            "{shown}: larger than 1 MiB, which no script of settings is"
        )));
    }
    let seconds = args::seconds("--timeout", timeout)?;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err(Failure::new(format!(
            "--timeout {timeout}: from 0.1 s to 1 h"
        )));
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| match c.is_ascii_alphanumeric() || "._-".contains(c) {
        true => c,
        false => '_',
    };
    Ok(Script {
        name: name
            .trim_start_matches('.')
            .chars()
            .map(plain)
            .take(200)
            .collect(),
        interpreter: interpreter(&text, &shown.to_string())?,
        text,
        arguments: arguments.to_vec(),
        limits: Limits {
            wall: Duration::from_secs_f64(seconds),
            ..Limits::default()
        },
    })
}

/// The script's own interpreter where it is here, else a shell.
fn interpreter(text: &[u8], shown: &str) -> Result<Vec<String>, Failure> {
    let first = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    let asked: Vec<String> = match first.strip_prefix("#!") {
        Some(rest) => rest.split_whitespace().map(str::to_owned).collect(),
        None => Vec::new(),
    };
    let here = |program: &str| Path::new(program).is_file();
    if asked.first().is_some_and(|program| here(program)) {
        return Ok(asked);
    }
    let shell = SHELLS.into_iter().find(|shell| here(shell));
    let shell =
        shell.ok_or_else(|| Failure::new(format!("{shown}: no shell is here to run it")))?;
    if let Some(program) = asked.first() {
        say::note(format!(
            "{program} is not on this machine; {shell} runs the script."
        ));
    }
    Ok(vec![shell.to_owned()])
}

/// Runs a script in the sandbox and takes over what it wrote.
pub fn import(
    machine: &Machine,
    catalog: &Catalog,
    script: Script,
    every_kernel: bool,
) -> Result<Import, Failure> {
    let mut originals = Originals::read(machine.kernel.root());
    if every_kernel {
        pretend(machine, catalog, &mut originals);
    }
    let recording = record(&script, &originals).map_err(|error| refused(&error))?;
    let writes = recording.writes.iter();
    let writes = writes.map(|written| (written.path.as_str(), written.text.as_str()));
    let mut import = import_writes(catalog, &machine.kernel, writes, &script.name);
    for file in &recording.files {
        import.leave(
            &script.name,
            file,
            "a file that it made; kilter writes settings only",
        );
    }
    tell(&script, &recording);
    Ok(import)
}

/// Adds what other kernels have, and on a machine without CPU frequencies the way to its policy.
fn pretend(machine: &Machine, catalog: &Catalog, originals: &mut Originals) {
    for (file, text) in files_of_every_kernel(catalog, &machine.kernel) {
        originals.pretend(&file, &text);
    }
    originals.pretend_link("/sys/devices/system/cpu/cpu0/cpufreq", "../cpufreq/policy0");
}

fn refused(error: &SandboxError) -> Failure {
    let failure = Failure::new(error);
    match error.is_namespaces() {
        true => failure.hint(match kilter_kernel::is_root() {
            true => "this kernel or container allows no user namespaces; run it on the host",
            false => "this system allows no user namespaces without root: run it with sudo",
        }),
        false => failure,
    }
}

/// How it ended, where that matters: what a script did not get to is in no profile.
fn tell(script: &Script, recording: &Recording) {
    let limits = &script.limits;
    let cut = match recording.ending {
        Ending::Exited(0) => None,
        Ending::Exited(code) => Some(format!("it ended with code {code}")),
        Ending::Signalled(signal) => Some(format!("signal {signal} ended it")),
        Ending::Time => Some(format!(
            "it was ended after {} s; `--timeout` gives it longer",
            limits.wall.as_secs_f64()
        )),
        Ending::Memory => Some(format!(
            "it was ended for taking more than {} MiB of memory",
            limits.memory >> 20
        )),
        Ending::Output => Some(format!(
            "it was ended for printing more than {} MiB",
            limits.output >> 20
        )),
    };
    let Some(cut) = cut else {
        return;
    };
    say::warning(format!("{}: {cut}", quote(&script.name)));
    let printed = recording.output.lines().rev().take(5);
    let printed: Vec<&str> = printed.collect();
    if !printed.is_empty() {
        say::note("It said, at last of what was kept:");
        for line in printed.iter().rev() {
            let shown: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
            say::note(format!("  {shown}"));
        }
    }
}
