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
mod say;

use clap::Parser;
use cli::{Cli, Command};
use fail::Outcome;
use machine::Machine;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let code = dispatch(&cli).unwrap_or_else(|failure| {
        failure.print();
        failure.code
    });
    ExitCode::from(code)
}

fn dispatch(cli: &Cli) -> Outcome {
    let machine = Machine::new(cli)?;
    match &cli.command {
        Command::Doctor => commands::doctor::run(&machine),
        Command::Knobs(command) => commands::knobs::run(&machine, command),
        Command::Profile(command) => commands::profile::run(&machine, command),
        Command::Run(args) => commands::run::run(&machine, args),
        Command::Bench(args) => commands::bench::run(&machine, args),
        Command::Compare(args) => commands::lab::compare(&machine, args),
        Command::Tune(args) => commands::lab::tune(&machine, args),
        Command::Report(args) => commands::lab::report(&machine, args),
        Command::Apply(args) => commands::apply::run(&machine, args),
        Command::Revert(args) => commands::apply::revert(&machine, args),
        Command::Status => commands::status::status(&machine),
        Command::Verify => commands::status::verify(&machine),
        Command::Diff(args) => commands::profile::diff(&machine, args),
        Command::Evidence(command) => commands::evidence::run(&machine, command),
        Command::Load(command) => commands::load::run(command),
        Command::Completions { shell } => commands::generate::completions(*shell),
        Command::Man { dir } => commands::generate::man(dir),
    }
}
