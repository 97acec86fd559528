//! `kilter report`: what a study found, as a page or as data.

use super::lab::{absolute, ask, context, storage};
use crate::cli::{Report, ReportFormat};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use kilter_api::{LabRequest, ReportRequest};
use std::path::PathBuf;

/// Runs `kilter report`.
pub fn run(machine: &Machine, args: &Report) -> Outcome {
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
