//! Values that depend on the machine: the highest frequency, the first scheduler that is offered.

use crate::check::check_value;
use kilter_api::{KnobSpec, ValueKind};

/// A value that is found out where it is applied, among what the machine offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// `highest`: the largest number offered.
    Highest,
    /// `lowest`: the smallest.
    Lowest,
    /// `nearest:N`: the number offered that is closest to N, the larger of two as close.
    Nearest(i64),
    /// `at-least:N`: the value now, or N if that is larger.
    AtLeast(i64),
    /// `at-most:N`: the value now, or N if that is smaller.
    AtMost(i64),
    /// `first:A,B,C`: the first of these words that is offered.
    First(Vec<String>),
}

impl Wish {
    /// The wish that a text is; none for a plain value.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None if text == "highest" => Some(Wish::Highest),
            None if text == "lowest" => Some(Wish::Lowest),
            Some(("nearest", number)) => number.parse().ok().map(Wish::Nearest),
            Some(("at-least", number)) => number.parse().ok().map(Wish::AtLeast),
            Some(("at-most", number)) => number.parse().ok().map(Wish::AtMost),
            Some(("first", words)) => {
                let words = words.split(',').map(str::to_owned);
                Some(Wish::First(words.collect()))
            }
            _ => None,
        }
    }

    /// Whether a knob can be wished for like this: it lists what it offers, and each word is one that
    /// the catalog knows.
    pub fn fits(&self, spec: &KnobSpec) -> bool {
        let numbers = matches!(spec.value, ValueKind::Int { .. });
        let listed = spec.paths.iter().any(|path| !path.offers.is_empty());
        match self {
            Wish::Highest | Wish::Lowest => numbers && listed,
            Wish::Nearest(number) => numbers && listed && in_range(spec, *number),
            Wish::AtLeast(number) | Wish::AtMost(number) => numbers && in_range(spec, *number),
            Wish::First(words) => match &spec.value {
                ValueKind::Choice { choices } => words.iter().all(|word| choices.contains(word)),
                _ => false,
            },
        }
    }

    /// The value among those offered, beside the one now; none if nothing will do.
    pub fn among(&self, offered: &[String], now: &str) -> Option<String> {
        let now = now.parse::<i64>().ok();
        let numbers = || offered.iter().filter_map(|word| word.parse::<i64>().ok());
        let number = match self {
            Wish::Highest => numbers().max(),
            Wish::Lowest => numbers().min(),
            Wish::Nearest(wanted) => {
                numbers().min_by_key(|number| (number.abs_diff(*wanted), -number))
            }
            Wish::AtLeast(number) => now.map(|now| now.max(*number)),
            Wish::AtMost(number) => now.map(|now| now.min(*number)),
            Wish::First(words) => return words.iter().find(|w| offered.contains(w)).cloned(),
        };
        number.map(|number| number.to_string())
    }
}

fn in_range(spec: &KnobSpec, number: i64) -> bool {
    check_value(&spec.name, spec, &number.to_string()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn wishes_are_granted_from_what_is_offered() {
        let frequencies = offered("300000 1324800 1516800 1785600");
        let schedulers = offered("none mq-deadline kyber");
        for (wish, from, granted) in [
            ("highest", &frequencies, Some("1785600")),
            ("lowest", &frequencies, Some("300000")),
            ("nearest:1400000", &frequencies, Some("1324800")),
            ("nearest:1420800", &frequencies, Some("1516800")),
            ("first:cfq,noop,kyber,bfq", &schedulers, Some("kyber")),
            ("first:cfq,bfq", &schedulers, None),
            ("highest", &schedulers, None),
            ("at-least:100", &schedulers, Some("200")),
            ("at-least:300", &schedulers, Some("300")),
            ("at-most:100", &schedulers, Some("100")),
        ] {
            assert_eq!(
                Wish::parse(wish).unwrap().among(from, "200").as_deref(),
                granted,
                "{wish}"
            );
        }
    }

    #[test]
    fn plain_values_are_no_wishes() {
        for plain in ["60", "none", "nearest:x", "0:1400000", ""] {
            assert_eq!(Wish::parse(plain), None, "{plain}");
        }
    }
}
