//! What is asked of the numbers: the error allowed, the region, the guards.

use crate::cli::{DecideArgs, PrecisionArgs, Required};
use crate::fail::Failure;
use crate::metrics::{Measured, is_of_record, of_record};
use kilter_api::{Bound, Direction, Guard, Metric, Question};

/// The highest limit of a guard, in percent.
const MOST: f64 = 1000.0;

/// The question. A guard on a number of the record that nobody asked for adds it to what is
/// measured.
pub fn question(
    precision: &PrecisionArgs,
    decide: &DecideArgs,
    measured: &mut Measured,
) -> Result<Question, Failure> {
    let mut guards: Vec<Guard> = Vec::new();
    for text in &decide.guard {
        let guard = guard(text, &mut measured.metrics)?;
        if guards.iter().any(|other| other.metric == guard.metric) {
            return Err(Failure::new(format!(
                "--guard '{text}': {} has a limit already",
                guard.metric
            )));
        }
        guards.push(guard);
    }
    Ok(Question {
        alpha: alpha(&precision.alpha)?,
        detect_percent: percent("--detect", &precision.detect)?,
        region_percent: percent("--region", &precision.region)?,
        objectives: measured.objectives,
        guards,
        require_better: decide.require == Some(Required::Better),
    })
}

fn alpha(text: &str) -> Result<f64, Failure> {
    match text.trim().parse::<f64>() {
        Ok(alpha) if alpha > 0.0 && alpha <= 0.5 => Ok(alpha),
        Ok(_) => Err(Failure::new(format!(
            "--alpha {text}: the range is above 0 to 0.5"
        ))),
        Err(_) => Err(Failure::new(format!(
            "--alpha {text}: not a number; write a chance above 0 to 0.5, like 0.05"
        ))),
    }
}

/// A percentage above 0 to below 50; the sign may be left out.
fn percent(option: &str, text: &str) -> Result<f64, Failure> {
    let number = text.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 50.0 => Ok(percent),
        Ok(_) => Err(Failure::new(format!(
            "{option} {text}: the range is above 0 to below 50 percent"
        ))),
        Err(_) => Err(Failure::new(format!(
            "{option} {text}: not a number; write percent, like 1.5"
        ))),
    }
}

/// `NAME <= +5%`, against what is measured.
fn guard(text: &str, metrics: &mut Vec<Metric>) -> Result<Guard, Failure> {
    let wrong = |what: String| {
        Failure::new(format!("--guard '{text}': {what}"))
            .hint("--guard 'p99 <= +5%' where less is better, --guard 'iops >= -5%' where more is")
    };
    let guard = parse(text).map_err(wrong)?;
    let known = metrics.iter().find(|metric| metric.name == guard.metric);
    let direction = match known {
        Some(metric) => metric.direction,
        None if is_of_record(&guard.metric) => {
            let metric = of_record(&guard.metric);
            let direction = metric.direction;
            metrics.push(metric);
            direction
        }
        None => {
            let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
            return Err(wrong(format!(
                "{} is not measured; measured are {}, and every number of a run can be guarded \
                 (wall_s, user_s, sys_s, max_rss_kib, …). Add others with --also",
                guard.metric,
                names.join(", ")
            )));
        }
    };
    let name = &guard.metric;
    match (direction, guard.bound) {
        (Direction::Min, Bound::AtMost) | (Direction::Max, Bound::AtLeast) => Ok(guard),
        (Direction::Min, Bound::AtLeast) => Err(wrong(format!(
            "less of {name} is better, so a guard limits its rise: write `{name} <= +5%` \
             (or measure it with `:max` if more is better)"
        ))),
        (Direction::Max, Bound::AtMost) => Err(wrong(format!(
            "more of {name} is better, so a guard limits its fall: write `{name} >= -5%`"
        ))),
    }
}

/// The text alone. An error says what is wrong in it.
fn parse(text: &str) -> Result<Guard, String> {
    let (name, bound, limit) = if let Some((name, limit)) = text.split_once("<=") {
        (name, Bound::AtMost, limit)
    } else if let Some((name, limit)) = text.split_once(">=") {
        (name, Bound::AtLeast, limit)
    } else {
        return Err("it holds neither `<=` nor `>=`".to_owned());
    };
    let (name, limit) = (name.trim(), limit.trim());
    if name.is_empty() {
        return Err("no metric is named before the sign".to_owned());
    }
    let Some(number) = limit.strip_suffix('%').map(str::trim_end) else {
        return Err(format!(
            "the limit `{limit}` has no `%`: it is a change against the base in percent"
        ));
    };
    // The standard library also reads `inf` and `nan`.
    let plain = |c: char| c.is_ascii_digit() || "+-.".contains(c);
    match number.parse::<f64>() {
        Ok(percent) if number.chars().all(plain) => {
            if percent > -100.0 && percent <= MOST {
                Ok(Guard {
                    metric: name.to_owned(),
                    bound,
                    percent,
                })
            } else {
                Err(format!(
                    "the limit `{limit}` is out of range: from above -100 % to {MOST} %"
                ))
            }
        }
        _ => Err(format!("the limit `{limit}` is no number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::measured;
    use proptest::prelude::*;

    fn metrics() -> Vec<Metric> {
        let texts = ["p99=/(x)/".to_owned(), "iops=/(x)/:max".to_owned()];
        measured(&texts, &[], &[]).unwrap().metrics
    }

    fn limit(text: &str) -> (String, Bound, f64) {
        let guard = guard(text, &mut metrics()).unwrap();
        (guard.metric, guard.bound, guard.percent)
    }

    #[test]
    fn guards_are_read_with_and_without_spaces_and_signs() {
        let p99 = |percent| ("p99".to_owned(), Bound::AtMost, percent);
        for text in ["p99 <= +5%", "p99<=5%", " p99  <=  5 % ", "p99<=+5.0%"] {
            assert_eq!(limit(text), p99(5.0), "{text}");
        }
        assert_eq!(limit("p99 <= -5%"), p99(-5.0));
        assert_eq!(limit("p99 <= 0%"), p99(0.0));
        assert_eq!(limit("iops >= -5%"), ("iops".into(), Bound::AtLeast, -5.0));
    }

    #[test]
    fn nonsense_says_what_is_wrong_and_how_to_write_it() {
        for (text, says) in [
            ("", "neither `<=` nor `>=`"),
            ("p99 < 5%", "neither `<=` nor `>=`"),
            ("<= 5%", "no metric is named"),
            ("p99 <=", "has no `%`"),
            ("p99 <= 5", "has no `%`"),
            ("p99 <= %", "is no number"),
            ("p99 <= five%", "`five%` is no number"),
            ("p99 <= nan%", "is no number"),
            ("p99 <= inf%", "is no number"),
            ("p99 <= 1e1%", "is no number"),
            ("p99 <= 5% <= 6%", "is no number"),
            ("p99 <= -100%", "out of range: from above -100 % to 1000 %"),
            ("p99 <= 1001%", "out of range"),
            ("p98 <= 5%", "p98 is not measured; measured are p99, iops"),
            ("p99 >= -5%", "less of p99 is better"),
            ("iops <= +5%", "more of iops is better"),
        ] {
            let failure = guard(text, &mut metrics()).unwrap_err();
            let message = failure.message();
            assert!(message.starts_with(&format!("--guard '{text}': ")));
            assert!(message.contains(says), "{text}: {message}");
            assert!(
                failure
                    .hint_text()
                    .unwrap()
                    .contains("--guard 'p99 <= +5%'")
            );
        }
    }

    #[test]
    fn a_guarded_number_of_the_record_is_measured_too() {
        let mut all = metrics();
        guard("max_rss_kib <= +10%", &mut all).unwrap();
        assert_eq!(all.last(), Some(&of_record("max_rss_kib")));
        guard("max_rss_kib <= +10%", &mut all).unwrap();
        assert_eq!(all.len(), 3);
    }

    #[test]
    fn numbers_have_their_ranges() {
        for (text, wanted) in [("0.05", 0.05), ("0.5", 0.5), (" 1e-3", 0.001)] {
            assert_eq!(alpha(text).unwrap(), wanted, "{text}");
        }
        for bad in ["0", "-0.1", "0.51", "5", "5%", "nan", "", "x"] {
            assert!(alpha(bad).is_err(), "{bad}");
        }
        for (text, wanted) in [("1", 1.0), ("2.5%", 2.5), ("0.1 %", 0.1)] {
            assert_eq!(percent("--detect", text).unwrap(), wanted, "{text}");
        }
        for bad in ["0", "50", "-1", "inf", "nan", "", "%", "x"] {
            assert!(percent("--detect", bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn what_is_written_is_read(
            name in "[a-z][a-z0-9_.-]{0,12}",
            percent in -99.0..1000.0f64,
            at_most: bool,
            gaps in prop::array::uniform4(" {0,2}"),
        ) {
            let [a, b, c, d] = gaps;
            let sign = if at_most { "<=" } else { ">=" };
            let text = format!("{a}{name}{b}{sign}{c}{percent:+}{d}%");
            let guard = parse(&text).unwrap();
            prop_assert_eq!(guard.metric, name);
            prop_assert_eq!(guard.bound == Bound::AtMost, at_most);
            prop_assert_eq!(guard.percent, percent);
        }
    }
}
