//! `kilter bench`: a workload of the catalog, measured.

use crate::args;
use crate::cli::Bench;
use crate::experiment::{RunSpec, Session, ended};
use crate::fail::{Failure, Outcome};
use crate::machine::{Machine, quote};
use crate::say;
use kilter_api::{Direction, Metric, RunRecord, Workload, WorkloadInfo};
use kilter_knobs::Catalog;
use kilter_measure::{Output, Stdin};
use std::io::{IsTerminal, Write};

/// Runs the command.
pub fn run(machine: &Machine, args: &Bench) -> Outcome {
    match &args.workload {
        Some(name) if !args.list => bench(machine, name, args),
        _ => list(machine),
    }
}

fn list(machine: &Machine) -> Outcome {
    let workloads = Catalog::workloads(&machine.places)?;
    let infos: Vec<WorkloadInfo> = workloads
        .into_iter()
        .map(|workload| WorkloadInfo {
            installed: installed(&workload),
            workload,
        })
        .collect();
    if machine.json {
        say::json(&infos)?;
        return Ok(0);
    }
    let mut rows = vec![
        ["workload", "", "measures", "summary"]
            .map(say::bold)
            .to_vec(),
    ];
    rows.extend(infos.iter().map(|info| {
        let here = match info.installed {
            true => String::new(),
            false => say::faint(format!("apt install {}", info.workload.package)),
        };
        let measures: Vec<&str> = info
            .workload
            .metrics
            .iter()
            .map(|metric| metric.name.as_str())
            .take(3)
            .collect();
        vec![
            info.workload.name.clone(),
            here,
            measures.join(", "),
            info.workload.summary.clone(),
        ]
    }));
    say::table(&rows);
    Ok(0)
}

/// The program that has to be there: of a command beside a built-in load, the command's.
pub fn program_of(workload: &Workload) -> &str {
    let words = &workload.command;
    let beside = words.get(1..3).is_some_and(|two| two == ["load", "beside"]);
    let at = match beside {
        true => words
            .iter()
            .position(|word| word == "--")
            .map_or(0, |at| at + 1),
        false => 0,
    };
    words.get(at).map_or("", String::as_str)
}

/// Whether the workload's program is on the path.
pub fn installed(workload: &Workload) -> bool {
    let program = program_of(workload);
    if program.is_empty() {
        return false;
    }
    if program == "kilter" || program.contains('/') {
        return true;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn bench(machine: &Machine, name: &str, args: &Bench) -> Outcome {
    let workload = args::workload(machine, name)?;
    let mut session = Session::under(machine, &args.settings, args.as_root || workload.needs_root)?;
    let mut records = Vec::new();
    for number in 1..=args.runs {
        progress(number, args.runs, name);
        records.push(one(&mut session, &workload)?);
    }
    progress(0, args.runs, name);
    session.release()?;
    records[0].fingerprint = Some(kilter_measure::fingerprint(machine.kernel.root()));
    match machine.json {
        true => say::json(&records)?,
        false => print(&workload, &records),
    }
    Ok(0)
}

fn one(session: &mut Session<'_>, workload: &Workload) -> Result<RunRecord, Failure> {
    session.aside("preparation", &workload.prepare, None)?;
    let spec = RunSpec {
        command: &workload.command,
        cpus: None,
        timeout_s: Some(600.0),
        output: Output::Capture,
        stdin: Stdin::Null,
        metrics: &workload.metrics,
        counters: false,
    };
    let ran = session
        .run(&spec)
        .map_err(|failure| failure.into_failure())?;
    session.aside("clean-up", &workload.cleanup, None)?;
    match (ran.record.outcome.clone(), ran.metric_problem) {
        (kilter_api::Outcome::Exited { code: 0 }, None) => Ok(ran.record),
        (kilter_api::Outcome::Exited { code: 0 }, Some(problem)) => Err(Failure::new(problem)),
        (outcome, _) => Err(Failure::new(format!(
            "`{}` {}; it said:\n{}",
            workload.command.join(" "),
            ended(&outcome),
            ran.record.stderr_tail.trim()
        ))),
    }
}

fn progress(number: u32, of: u32, name: &str) {
    if std::io::stderr().is_terminal() {
        match number {
            0 => eprint!("\r\x1b[K"),
            _ => eprint!("\r{name}: run {number} of {of} … "),
        }
        let _ = std::io::stderr().flush();
    }
}

fn print(workload: &Workload, records: &[RunRecord]) {
    say::line(format!(
        "{} — {}",
        say::bold(&workload.name),
        workload.summary
    ));
    say::line(say::faint(
        workload
            .command
            .iter()
            .map(|word| quote(word))
            .collect::<Vec<_>>()
            .join(" "),
    ));
    say::line("");
    let mut rows = vec![
        ["metric", "median", "lowest", "highest", "unit", ""]
            .map(say::bold)
            .to_vec(),
    ];
    rows.extend(workload.metrics.iter().map(|metric| row(metric, records)));
    say::table(&rows);
    let mut warnings: Vec<&String> = records.iter().flat_map(|record| &record.warnings).collect();
    warnings.sort();
    warnings.dedup();
    warnings.into_iter().for_each(say::warning);
}

fn row(metric: &Metric, records: &[RunRecord]) -> Vec<String> {
    let mut values: Vec<f64> = records
        .iter()
        .filter_map(|record| record.metrics.get(&metric.name).copied())
        .collect();
    values.sort_by(f64::total_cmp);
    let middle = match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    };
    let better = match metric.direction {
        Direction::Min => "less is better",
        Direction::Max => "more is better",
    };
    let number = |value: Option<f64>| value.map(short).unwrap_or_default();
    vec![
        metric.name.clone(),
        short(middle),
        number(values.first().copied()),
        number(values.last().copied()),
        metric.unit.clone(),
        say::faint(better),
    ]
}

/// Four significant digits.
fn short(value: f64) -> String {
    let digits = if value == 0.0 {
        0.0
    } else {
        value.abs().log10().floor()
    };
    let decimals = (3.0 - digits).clamp(0.0, 9.0) as usize;
    format!("{value:.decimals$}")
}
