//! Reads numbers from a run: its record's own fields, or what the command printed.

use crate::record_field;
use kilter_api::{Metric, MetricSource, RunRecord};
use regex::{Captures, Regex, RegexBuilder};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Lines that begin with a bracket and yet no document, after which no more is looked for: each one
/// may cost a pass over the rest.
const FAILED_STARTS: usize = 100;

/// Bytes of output that an error shows.
const SHOWN: usize = 600;

/// Why a metric could not be defined, or not be read.
#[derive(Debug, thiserror::Error)]
pub enum MetricError {
    /// The name cannot be one.
    #[error("{0:?} is no name for a metric; use letters, digits, '_', '-' and '.'")]
    Name(String),
    /// Two metrics have one name.
    #[error("two metrics have the name {0:?}")]
    Twice(String),
    /// The regular expression does not compile.
    #[error("metric {name}: the expression {pattern:?} is wrong: {reason}")]
    Pattern {
        /// The metric.
        name: String,
        /// The expression.
        pattern: String,
        /// What is wrong, where.
        reason: String,
    },
    /// The regular expression has no group.
    #[error(
        "metric {name}: the expression {pattern:?} has no group; put the number in parentheses, \
         such as 'Time: ([0-9.]+)'"
    )]
    NoGroup {
        /// The metric.
        name: String,
        /// The expression.
        pattern: String,
    },
    /// The JSON pointer is malformed.
    #[error(
        "metric {name}: {pointer:?} is no JSON pointer; it starts with '/', such as '/jobs/0/read/iops'"
    )]
    Pointer {
        /// The metric.
        name: String,
        /// The pointer.
        pointer: String,
    },
    /// A record has no such field.
    #[error("metric {name}: a record has no number {field:?}; it has {}", record_field::NAMES.join(", "))]
    Field {
        /// The metric.
        name: String,
        /// The field.
        field: String,
    },
    /// This run's record has no such field.
    #[error("metric {name}: this run has no {field}; {reason}")]
    Unmeasured {
        /// The metric.
        name: String,
        /// The field.
        field: String,
        /// What would change it.
        reason: String,
    },
    /// The output does not hold what was asked for.
    #[error("metric {name}: {expression:?} {problem}; the output ends:\n{tail}")]
    NotFound {
        /// The metric.
        name: String,
        /// The expression or pointer.
        expression: String,
        /// What is missing.
        problem: String,
        /// The end of the output.
        tail: String,
    },
    /// What was found is no finite number.
    #[error("metric {name}: {expression:?} found {found:?}, which is not a finite number")]
    NotANumber {
        /// The metric.
        name: String,
        /// The expression or pointer.
        expression: String,
        /// What was found.
        found: String,
    },
}

/// Metrics whose expressions have been checked and compiled; use them for any number of runs.
#[derive(Clone, Debug)]
pub struct Metrics(Vec<Compiled>);

#[derive(Clone, Debug)]
struct Compiled {
    name: String,
    reader: Reader,
}

#[derive(Clone, Debug)]
enum Reader {
    Record(String),
    Regex(Regex),
    Json(String),
}

impl Metrics {
    /// Checks and compiles.
    ///
    /// # Errors
    /// The first metric that cannot work, and why.
    pub fn compile(metrics: &[Metric]) -> Result<Self, MetricError> {
        let mut names = BTreeSet::new();
        let compile = |metric: &Metric| {
            let name = check_name(&metric.name)?;
            if !names.insert(name.clone()) {
                return Err(MetricError::Twice(name));
            }
            Ok(Compiled {
                reader: Reader::of(&name, &metric.source)?,
                name,
            })
        };
        metrics
            .iter()
            .map(compile)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether any of them needs the command's output to be captured.
    #[must_use]
    pub fn need_output(&self) -> bool {
        self.0
            .iter()
            .any(|metric| !matches!(metric.reader, Reader::Record(_)))
    }

    /// Whether any of them needs the counters.
    #[must_use]
    pub fn need_counters(&self) -> bool {
        let is_counter = |metric: &Compiled| matches!(&metric.reader, Reader::Record(field) if field.starts_with(record_field::COUNTERS));
        self.0.iter().any(is_counter)
    }

    /// Reads all of them. Bytes that are no UTF-8 are replaced before matching.
    ///
    /// # Errors
    /// The first metric that could not be read, with the end of the output.
    pub fn extract(
        &self,
        record: &RunRecord,
        stdout: &[u8],
        stderr: &[u8],
    ) -> Result<BTreeMap<String, f64>, MetricError> {
        let output = Output {
            stdout: String::from_utf8_lossy(stdout),
            stderr: String::from_utf8_lossy(stderr),
        };
        let read = |metric: &Compiled| Ok((metric.name.clone(), metric.read(record, &output)?));
        self.0.iter().map(read).collect()
    }
}

fn check_name(name: &str) -> Result<String, MetricError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if !name.is_empty() && name.bytes().all(allowed) {
        Ok(name.to_owned())
    } else {
        Err(MetricError::Name(name.to_owned()))
    }
}

impl Reader {
    fn of(name: &str, source: &MetricSource) -> Result<Self, MetricError> {
        let name = || name.to_owned();
        match source {
            MetricSource::Record { field } if record_field::is_known(field) => {
                Ok(Self::Record(field.clone()))
            }
            MetricSource::Record { field } => Err(MetricError::Field {
                name: name(),
                field: field.clone(),
            }),
            MetricSource::Regex { pattern } => regex(name(), pattern.clone()).map(Self::Regex),
            MetricSource::Json { pointer } if pointer.is_empty() || pointer.starts_with('/') => {
                Ok(Self::Json(pointer.clone()))
            }
            MetricSource::Json { pointer } => Err(MetricError::Pointer {
                name: name(),
                pointer: pointer.clone(),
            }),
        }
    }
}

fn regex(name: String, pattern: String) -> Result<Regex, MetricError> {
    match RegexBuilder::new(&pattern).multi_line(true).build() {
        Ok(regex) if regex.captures_len() > 1 => Ok(regex),
        Ok(_) => Err(MetricError::NoGroup { name, pattern }),
        Err(error) => Err(MetricError::Pattern {
            name,
            pattern,
            reason: error.to_string(),
        }),
    }
}

/// What the command printed.
struct Output<'a> {
    stdout: Cow<'a, str>,
    stderr: Cow<'a, str>,
}

impl Compiled {
    fn read(&self, record: &RunRecord, output: &Output) -> Result<f64, MetricError> {
        match &self.reader {
            Reader::Record(field) => self.record_number(record, field),
            Reader::Regex(regex) => self.text_number(output, regex),
            Reader::Json(pointer) => self.json_number(output, pointer),
        }
    }

    fn record_number(&self, record: &RunRecord, field: &str) -> Result<f64, MetricError> {
        match record_field::value(record, field) {
            Some(value) => self.finite(field, value, || value.to_string()),
            None => Err(MetricError::Unmeasured {
                name: self.name.clone(),
                field: field.to_owned(),
                reason: record_field::why_missing(record, field),
            }),
        }
    }

    fn text_number(&self, output: &Output, regex: &Regex) -> Result<f64, MetricError> {
        let found = last_group(regex, &output.stdout).or_else(|| last_group(regex, &output.stderr));
        match found {
            Some(text) => self.parse(regex.as_str(), text),
            None => Err(self.not_found(regex.as_str(), "matches nothing", output)),
        }
    }

    fn json_number(&self, output: &Output, pointer: &str) -> Result<f64, MetricError> {
        let documents = documents(&output.stdout);
        let found = documents
            .iter()
            .rev()
            .find_map(|document| document.pointer(pointer));
        match found {
            Some(Value::String(text)) => self.parse(pointer, text),
            Some(value) => match value.as_f64() {
                Some(number) => self.finite(pointer, number, || value.to_string()),
                None => self.parse(pointer, &value.to_string()),
            },
            None if !documents.is_empty() => {
                Err(self.not_found(pointer, "points to nothing", output))
            }
            None => Err(self.not_found(
                pointer,
                "needs JSON on standard output, and there is none",
                output,
            )),
        }
    }

    fn parse(&self, expression: &str, text: &str) -> Result<f64, MetricError> {
        self.finite(expression, text.trim().parse().unwrap_or(f64::NAN), || {
            text.to_owned()
        })
    }

    fn finite(
        &self,
        expression: &str,
        value: f64,
        found: impl FnOnce() -> String,
    ) -> Result<f64, MetricError> {
        if value.is_finite() {
            return Ok(value);
        }
        let (name, expression) = (self.name.clone(), expression.to_owned());
        Err(MetricError::NotANumber {
            name,
            expression,
            found: found(),
        })
    }

    fn not_found(&self, expression: &str, problem: &str, output: &Output) -> MetricError {
        MetricError::NotFound {
            name: self.name.clone(),
            expression: expression.to_owned(),
            problem: problem.to_owned(),
            tail: output.tail(),
        }
    }
}

/// The first group that took part in the last match. The group's text may be empty, which is then
/// no number; a match in which no group took part counts as none.
fn last_group<'t>(regex: &Regex, text: &'t str) -> Option<&'t str> {
    let group = |found: Captures<'t>| {
        found
            .iter()
            .skip(1)
            .flatten()
            .next()
            .map(|group| group.as_str())
    };
    regex.captures_iter(text).filter_map(group).last()
}

/// The JSON documents in an output: the whole of it, or, where other lines stand around (tools
/// print warnings before), those that start with a bracket at the beginning of a line.
fn documents(text: &str) -> Vec<Value> {
    if let Ok(whole) = serde_json::from_str(text) {
        return vec![whole];
    }
    let mut found = Vec::new();
    let mut failed = 0;
    let mut rest = text;
    while failed < FAILED_STARTS
        && let Some(start) = document_start(rest)
    {
        rest = &rest[start..];
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter();
        let end = match stream.next() {
            Some(Ok(value)) => {
                found.push(value);
                stream.byte_offset()
            }
            _ => {
                failed += 1;
                1
            }
        };
        let next_line = rest[end..]
            .find('\n')
            .map_or(rest.len(), |newline| end + newline + 1);
        rest = &rest[next_line..];
    }
    found
}

/// Where the first line begins that starts with a bracket. Indented ones are parts of something.
fn document_start(text: &str) -> Option<usize> {
    let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
    starts
        .into_iter()
        .find(|&at| text[at..].starts_with(['{', '[']))
}

impl Output<'_> {
    /// The end of standard output and standard error.
    fn tail(&self) -> String {
        let ends: Vec<_> = [&self.stdout, &self.stderr]
            .map(|text| end_of(text))
            .into_iter()
            .filter(|end| !end.is_empty())
            .collect();
        if ends.is_empty() {
            "(it is empty)".to_owned()
        } else {
            ends.join("\n")
        }
    }
}

fn end_of(text: &str) -> &str {
    let text = text.trim_end();
    let start = text.len().saturating_sub(SHOWN);
    let start = (start..=text.len())
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    &text[start..]
}

#[cfg(test)]
mod tests;
