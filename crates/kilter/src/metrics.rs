//! Metrics: from `--metric`, `--also` and a workload to what is measured, the deciding ones first.

use crate::fail::Failure;
use kilter_api::{Direction, Metric, MetricSource};

/// What a person may type.
const EXAMPLES: &str =
    "--metric user_s, --metric 'time=/Time: ([0-9.]+)/', --metric 'iops=json:/jobs/0/iops:max'";

/// Metrics of a run, in the lab's order.
#[derive(Debug)]
pub struct Measured {
    /// First those that decide, then those that are only shown.
    pub metrics: Vec<Metric>,
    /// How many decide.
    pub objectives: u32,
}

/// The metrics of a single run, as given.
pub fn plain(texts: &[String]) -> Result<Vec<Metric>, Failure> {
    match texts {
        [] => Ok(Vec::new()),
        texts => Ok(measured(texts, &[], &[])?.metrics),
    }
}

/// What is measured: `decide` decides, or else the workload's first metric, or else wall time;
/// `also` and the workload's others are shown.
pub fn measured(
    decide: &[String],
    also: &[String],
    workload: &[Metric],
) -> Result<Measured, Failure> {
    let mut metrics: Vec<Metric> = Vec::new();
    let given = decide.iter().map(|text| ("--metric", text));
    let mut objectives = decide.len();
    if decide.is_empty() {
        metrics.push(workload.first().cloned().unwrap_or(of_record("wall_s")));
        objectives = 1;
    }
    for (option, text) in given.chain(also.iter().map(|text| ("--also", text))) {
        let metric = parse(option, text, workload)?;
        if metrics.iter().any(|other| other.name == metric.name) {
            let name = &metric.name;
            return Err(Failure::new(format!(
                "{option} {text}: {name} is measured already; every metric has a name of its own"
            )));
        }
        metrics.push(metric);
    }
    for metric in workload {
        if metrics.iter().all(|other| other.name != metric.name) {
            metrics.push(metric.clone());
        }
    }
    Ok(Measured {
        metrics,
        objectives: u32::try_from(objectives).unwrap_or(u32::MAX),
    })
}

/// A number of the run's record; less of each is better.
pub fn of_record(field: &str) -> Metric {
    let unit = match field.rsplit('_').next() {
        Some("s") => "s",
        Some("kib") => "KiB",
        _ => "",
    };
    Metric {
        name: field.to_owned(),
        source: MetricSource::Record {
            field: field.to_owned(),
        },
        direction: Direction::Min,
        unit: unit.to_owned(),
    }
}

/// Whether every run's record has, or may have, a number of this name.
pub fn is_of_record(field: &str) -> bool {
    kilter_measure::Metrics::compile(&[of_record(field)]).is_ok()
}

/// `NAME`, `NAME=/REGEX/` or `NAME=json:/POINTER`, with the direction behind a colon.
fn parse(option: &str, text: &str, workload: &[Metric]) -> Result<Metric, Failure> {
    let (body, direction) = match text.rsplit_once(':') {
        Some((body, "max")) => (body, Some(Direction::Max)),
        Some((body, "min")) => (body, Some(Direction::Min)),
        _ => (text, None),
    };
    let mut metric = match body.split_once('=') {
        None => workload
            .iter()
            .find(|metric| metric.name == body)
            .cloned()
            .unwrap_or(of_record(body)),
        Some((name, source)) => Metric {
            name: name.to_owned(),
            source: source_of(option, text, source)?,
            direction: Direction::Min,
            unit: String::new(),
        },
    };
    metric.direction = direction.unwrap_or(metric.direction);
    match kilter_measure::Metrics::compile(std::slice::from_ref(&metric)) {
        Ok(_) => Ok(metric),
        Err(error) => {
            let own: Vec<&str> = workload.iter().map(|own| own.name.as_str()).collect();
            let own = match own.as_slice() {
                [] => String::new(),
                names => format!("; the workload has {}", names.join(", ")),
            };
            Err(Failure::new(format!("{option} {text}: {error}{own}")).hint(EXAMPLES))
        }
    }
}

fn source_of(option: &str, text: &str, source: &str) -> Result<MetricSource, Failure> {
    if let Some(pointer) = source.strip_prefix("json:") {
        return Ok(MetricSource::Json {
            pointer: pointer.to_owned(),
        });
    }
    match source
        .strip_prefix('/')
        .and_then(|rest| rest.strip_suffix('/'))
    {
        Some(pattern) => Ok(MetricSource::Regex {
            pattern: pattern.to_owned(),
        }),
        None => Err(Failure::new(format!(
            "{option} {text}: write NAME, NAME=/REGEX/ or NAME=json:/POINTER, and `:max` behind it \
             where more is better"
        ))
        .hint(EXAMPLES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn names(measured: &Measured) -> Vec<&str> {
        let names = measured.metrics.iter().map(|metric| metric.name.as_str());
        names.collect()
    }

    fn workload() -> Vec<Metric> {
        let json = |name: &str, direction| Metric {
            name: name.into(),
            source: MetricSource::Json {
                pointer: format!("/{name}"),
            },
            direction,
            unit: "1/s".into(),
        };
        vec![json("p99", Direction::Min), json("rate", Direction::Max)]
    }

    #[test]
    fn metrics_are_fields_expressions_or_pointers() {
        let metric = |text: &str| parse("--metric", text, &[]).unwrap();
        assert_eq!(
            metric("user_s").source,
            MetricSource::Record {
                field: "user_s".into()
            }
        );
        let regex = metric("t=/Time: ([0-9.]+)/:max");
        assert_eq!(
            (regex.direction, regex.source),
            (
                Direction::Max,
                MetricSource::Regex {
                    pattern: "Time: ([0-9.]+)".into()
                }
            )
        );
        assert_eq!(
            metric("x=json:/a/0").source,
            MetricSource::Json {
                pointer: "/a/0".into()
            }
        );
        for bad in ["nonesuch", "t=/no group/", "t=/(/", "t=plain", "=/(x)/"] {
            assert!(parse("--metric", bad, &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_metric_decides_and_all_others_are_shown_behind() {
        let of = |decide: &[&str], also: &[&str], workload: &[Metric]| {
            measured(&texts(decide), &texts(also), workload).unwrap()
        };
        let found = of(&[], &[], &[]);
        assert_eq!((names(&found), found.objectives), (vec!["wall_s"], 1));
        let found = of(&["user_s", "sys_s"], &["max_rss_kib"], &[]);
        assert_eq!(names(&found), ["user_s", "sys_s", "max_rss_kib"]);
        assert_eq!(found.objectives, 2);
        let found = of(&[], &["wall_s"], &workload());
        assert_eq!(names(&found), ["p99", "wall_s", "rate"]);
        assert_eq!(found.objectives, 1);
    }

    #[test]
    fn a_workload_defines_its_metrics_and_a_direction_given_wins() {
        let found = measured(&texts(&["rate"]), &[], &workload()).unwrap();
        assert_eq!(found.metrics[0], workload()[1]);
        assert_eq!((names(&found), found.objectives), (vec!["rate", "p99"], 1));
        let turned = measured(&texts(&["rate:min"]), &[], &workload()).unwrap();
        assert_eq!(turned.metrics[0].direction, Direction::Min);
        let own = measured(&texts(&["p99=/(x)/"]), &[], &workload()).unwrap();
        assert_eq!(names(&own), ["p99", "rate"]);
        assert_ne!(own.metrics[0].source, workload()[0].source);
    }

    #[test]
    fn no_name_occurs_twice() {
        for (decide, also) in [
            (vec!["wall_s", "wall_s:max"], vec![]),
            (vec!["wall_s"], vec!["wall_s"]),
            (vec![], vec!["wall_s"]),
            (vec!["x=/(a)/", "x=json:/a"], vec![]),
        ] {
            let failure = measured(&texts(&decide), &texts(&also), &[]).unwrap_err();
            assert!(failure.message().contains("is measured already"));
        }
    }
}
