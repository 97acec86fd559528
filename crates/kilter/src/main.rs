//! kilter: find by experiment which kernel settings help, hold them safely, put everything back.
//!
//! This crate is the command line: it parses, asks the pillars, and prints. What each command does
//! lies in [`commands`], one module each.
#![forbid(unsafe_code)]

mod args;
mod cli;
mod commands;
mod experiment;
mod fail;
mod machine;
mod metrics;
mod output;
mod page;
mod question;
mod say;

use clap::Parser;
use cli::{Cli, Command};
use fail::Outcome;
use machine::Machine;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os()
        .next()
        .is_some_and(|name| is_named(&name, "scx_hrrn"))
    {
        return scx_hrrn();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let code = dispatch(&cli).unwrap_or_else(|failure| {
        failure.print();
        match cli.command {
            // 2 would look like the code of the command that was to be run.
            Command::Run(_) if failure.code == 2 => experiment::OWN_FAILURE,
            _ => failure.code,
        }
    });
    ExitCode::from(code)
}

fn is_named(argument: &std::ffi::OsStr, name: &str) -> bool {
    std::path::Path::new(argument).file_name() == Some(name.as_ref())
}

/// Started as `scx_hrrn`: `kilter sched run hrrn` under the name that users of sched_ext expect.
fn scx_hrrn() -> ExitCode {
    let arguments = match cli::ScxHrrn::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let outcome =
        Machine::own().and_then(|machine| commands::sched::start(&machine, &arguments.hrrn));
    ExitCode::from(outcome.unwrap_or_else(|failure| {
        failure.print();
        failure.code
    }))
}

/// Help and version, or an error of usage. `run` keeps low codes for its command.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    let of_run = || {
        // Global options may come first, and only `--root` has a word of its own after it.
        let mut words = std::env::args_os().skip(1);
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("--root") => drop(words.next()),
                Some(option) if option.starts_with('-') => {}
                command => return command == Some("run"),
            }
        }
        false
    };
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if of_run() => ExitCode::from(experiment::OWN_FAILURE),
        code => ExitCode::from(u8::try_from(code).unwrap_or(2)),
    }
}

fn dispatch(cli: &Cli) -> Outcome {
    let machine = Machine::new(cli)?;
    match &cli.command {
        Command::Doctor => commands::doctor::run(&machine),
        Command::Knobs(command) => commands::knobs::run(&machine, command),
        Command::Why { knob } => commands::why::run(&machine, knob),
        Command::Profile(command) => commands::profile::run(&machine, command),
        Command::Run(args) => commands::run::run(&machine, args),
        Command::Bench(args) => commands::bench::run(&machine, args),
        Command::Compare(args) => commands::compare::run(&machine, args),
        Command::Tune(args) => commands::tune::run(&machine, args),
        Command::Audit(args) => commands::audit::run(&machine, args),
        Command::Selftest(args) => commands::selftest::run(&machine, args),
        Command::Report(args) => commands::report::run(&machine, args),
        Command::Apply(args) => commands::apply::run(&machine, args),
        Command::Revert(args) => commands::apply::revert(&machine, args),
        Command::Status => commands::status::status(&machine),
        Command::Verify => commands::status::verify(&machine),
        Command::Export(args) => commands::export::run(&machine, args),
        Command::Import(command) => commands::import::run(&machine, command),
        Command::Diff(args) => commands::profile::diff(&machine, args),
        Command::Evidence(args) => commands::evidence::run(&machine, args),
        Command::Groups(command) => commands::groups::run(&machine, command),
        Command::Hold(args) => commands::hold::run(&machine, args),
        Command::Holder { knob, value } => commands::holder::run(&machine, knob, value),
        Command::Reclaim(command) => commands::reclaim::run(&machine, command),
        Command::Sched(command) => commands::sched::run(&machine, command),
        Command::Load(command) => commands::load::run(command),
        Command::Completions { shell } => commands::generate::completions(*shell),
        Command::Docs { dir } => commands::docs::run(&machine, dir),
        Command::Man { dir } => commands::generate::man(dir),
    }
}
