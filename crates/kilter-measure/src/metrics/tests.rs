use super::*;
use crate::record_field::tests::record;
use kilter_api::Direction;
use proptest::prelude::*;

fn metric(name: &str, source: MetricSource) -> Metric {
    Metric {
        name: name.into(),
        source,
        direction: Direction::Min,
        unit: String::new(),
    }
}

fn by_regex(pattern: &str) -> Vec<Metric> {
    vec![metric(
        "m",
        MetricSource::Regex {
            pattern: pattern.into(),
        },
    )]
}

fn by_json(pointer: &str) -> Vec<Metric> {
    vec![metric(
        "m",
        MetricSource::Json {
            pointer: pointer.into(),
        },
    )]
}

fn read(metrics: &[Metric], stdout: &[u8], stderr: &[u8]) -> Result<f64, MetricError> {
    let values = Metrics::compile(metrics)?.extract(&record(), stdout, stderr)?;
    Ok(values["m"])
}

#[test]
fn the_last_match_of_standard_output_counts_before_standard_error() {
    let metrics = by_regex("^Time: ([0-9.]+)$");
    assert_eq!(
        read(&metrics, b"Time: 1\nTime: 2.5\n", b"Time: 9\n").unwrap(),
        2.5
    );
    assert_eq!(read(&metrics, b"nothing\n", b"Time: 9\n").unwrap(), 9.0);
    assert_eq!(
        read(&metrics, b"\xFF\xFE\nTime: 3\n\xFF", b"").unwrap(),
        3.0
    );
}

#[test]
fn the_first_group_that_took_part_counts() {
    let metrics = by_regex("real ([0-9.]+)|user ([0-9.]+)");
    assert_eq!(read(&metrics, b"real 1 user 2", b"").unwrap(), 2.0);
    assert_eq!(
        read(&by_regex("x(?:=([0-9]+))?"), b"x=4 x", b"").unwrap(),
        4.0
    );
}

#[test]
fn a_missing_match_names_the_metric_and_shows_the_tail() {
    let error = read(
        &by_regex("Time: ([0-9]+)"),
        b"first\nusage: bench\n",
        b"bad flag\n",
    );
    let text = error.unwrap_err().to_string();
    for part in ["metric m", "Time: ([0-9]+)", "usage: bench\nbad flag"] {
        assert!(text.contains(part), "{text}");
    }
    let text = read(&by_regex("(1)"), b"", b"").unwrap_err().to_string();
    assert!(text.ends_with("(it is empty)"), "{text}");
    let long = "ä".repeat(5000);
    let text = read(&by_regex("(1)"), long.as_bytes(), b"")
        .unwrap_err()
        .to_string();
    assert!(text.len() < 2 * SHOWN, "{}", text.len());
}

#[test]
fn only_finite_numbers_count() {
    for text in [
        "nan", "inf", "-inf", "NaN", "infinity", "1e999", "1,234", "", "x", "0x10",
    ] {
        let error = read(&by_regex("v=(.*)"), format!("v={text}").as_bytes(), b"").unwrap_err();
        assert!(
            matches!(error, MetricError::NotANumber { .. }),
            "{text}: {error}"
        );
    }
    assert_eq!(
        read(&by_regex("v=(.*)"), b"v= -1.5e3 ", b"").unwrap(),
        -1500.0
    );
}

#[test]
fn json_is_found_among_other_lines() {
    let metrics = by_json("/jobs/0/iops");
    let document = br#"{"jobs": [{"iops": 12.5}]}"#;
    assert_eq!(read(&metrics, document, b"").unwrap(), 12.5);
    let mixed = [
        b"warning: {slow}\n[not json\n".as_slice(),
        document,
        b"\nbye\n",
    ]
    .concat();
    assert_eq!(read(&metrics, &mixed, b"").unwrap(), 12.5);
    let lines = b"{\"v\": 1}\n{\"v\": 2}\n{\"other\": 3}\n";
    assert_eq!(read(&by_json("/v"), lines, b"").unwrap(), 2.0);
    assert_eq!(
        read(&by_json("/v"), br#"{"v": " 7.5 "}"#, b"").unwrap(),
        7.5
    );
    assert_eq!(read(&by_json("/a~1b"), br#"{"a/b": 4}"#, b"").unwrap(), 4.0);
}

#[test]
fn json_that_does_not_hold_the_number() {
    let error = read(&by_json("/v"), b"{\"w\": 1}", b"")
        .unwrap_err()
        .to_string();
    assert!(error.contains("points to nothing"), "{error}");
    let error = read(&by_json("/v"), b"{\"v\": 1", b"")
        .unwrap_err()
        .to_string();
    assert!(error.contains("there is none"), "{error}");
    for value in ["null", "true", "[1]", "\"fast\"", "{}"] {
        let document = format!("{{\"v\": {value}}}");
        let error = read(&by_json("/v"), document.as_bytes(), b"").unwrap_err();
        assert!(
            matches!(error, MetricError::NotANumber { .. }),
            "{value}: {error}"
        );
    }
    let deep = [b'['; 100_000];
    assert!(read(&by_json("/0"), &deep, b"").is_err());
}

#[test]
fn fields_of_the_record() {
    let field = |name: &str| vec![metric("m", MetricSource::Record { field: name.into() })];
    assert_eq!(read(&field("wall_s"), b"", b"").unwrap(), 2.5);
    assert_eq!(read(&field("machine.steal_s"), b"", b"").unwrap(), 10.5);
    assert_eq!(read(&field("counters.cycles"), b"", b"").unwrap(), 17.5);
    let error = read(&field("counters.instructions"), b"", b"")
        .unwrap_err()
        .to_string();
    assert!(error.contains("cycles"), "{error}");
    let error = read(&field("walls"), b"", b"").unwrap_err().to_string();
    assert!(error.contains("wall_s"), "{error}");
    assert!(
        Metrics::compile(&field("counters.cycles"))
            .unwrap()
            .need_counters()
    );
    assert!(!Metrics::compile(&field("wall_s")).unwrap().need_output());
    assert!(Metrics::compile(&by_json("/v")).unwrap().need_output());
}

#[test]
fn definitions_that_cannot_work_are_refused_beforehand() {
    let error = |metrics: &[Metric]| Metrics::compile(metrics).unwrap_err().to_string();
    assert!(error(&by_regex("Time: ([0-9]+")).contains("Time: ([0-9]+"));
    assert!(error(&by_regex("Time: (?:[0-9]+)")).contains("no group"));
    assert!(error(&by_json("jobs/0")).contains("starts with '/'"));
    assert!(error(&[by_json("/a"), by_json("/b")].concat()).contains("two metrics"));
    let unnamed = metric(
        "a b",
        MetricSource::Record {
            field: "wall_s".into(),
        },
    );
    assert!(error(&[unnamed]).contains("a b"));
    assert!(error(&by_regex("(a{1000}{1000})")).contains("size limit"));
}

proptest! {
    #[test]
    fn a_printed_number_is_read_back(value in prop::num::f64::NORMAL, noise in "[^0-9{\\[]{0,40}") {
        let text = format!("{noise}\nscore = {value}\n{noise}");
        prop_assert_eq!(read(&by_regex(r"^score = (\S+)$"), text.as_bytes(), b"").unwrap(), value);
        let json = format!("{noise}\n{{\"score\": {value}}}\n{noise}");
        let found = read(&by_json("/score"), json.as_bytes(), b"").unwrap();
        prop_assert!((found - value).abs() <= value.abs() * 1e-15);
    }

    #[test]
    fn any_output_gives_a_finite_number_or_an_error(
        stdout in prop::collection::vec(any::<u8>(), 0..200),
        pattern in prop::sample::select(vec!["(.*)", "([0-9.e+-]+)", "(\\w+)$", "()"]),
    ) {
        for metrics in [by_regex(pattern), by_json("/v"), by_json("")] {
            if let Ok(value) = read(&metrics, &stdout, &stdout) {
                prop_assert!(value.is_finite());
            }
        }
    }

    #[test]
    fn any_text_with_brackets_terminates(text in "[\\[{}\\]\"a:1,\n ]{0,200}") {
        let _ = read(&by_json("/a"), text.as_bytes(), b"");
    }
}
