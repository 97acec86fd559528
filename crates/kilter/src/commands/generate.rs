//! Completions and man pages, made from the flags.

use crate::cli::Cli;
use crate::fail::Outcome;
use clap::CommandFactory;
use std::path::Path;

/// Runs `kilter completions`.
pub fn completions(shell: clap_complete::Shell) -> Outcome {
    clap_complete::generate(shell, &mut Cli::command(), "kilter", &mut std::io::stdout());
    Ok(0)
}

/// Runs `kilter man`: one page a command.
pub fn man(dir: &Path) -> Outcome {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Cli::command(), dir)?;
    Ok(0)
}
