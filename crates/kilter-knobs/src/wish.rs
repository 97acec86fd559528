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
            Wish::Nearest(number) => {
                numbers && listed && check_value(&spec.name, spec, &number.to_string()).is_ok()
            }
            Wish::First(words) => match &spec.value {
                ValueKind::Choice { choices } => words.iter().all(|word| choices.contains(word)),
                _ => false,
            },
        }
    }

    /// The value among those offered; none if nothing that is offered will do.
    pub fn among(&self, offered: &[String]) -> Option<String> {
        let numbers = || offered.iter().filter_map(|word| word.parse::<i64>().ok());
        let number = match self {
            Wish::Highest => numbers().max(),
            Wish::Lowest => numbers().min(),
            Wish::Nearest(wanted) => {
                numbers().min_by_key(|number| (number.abs_diff(*wanted), -number))
            }
            Wish::First(words) => return words.iter().find(|w| offered.contains(w)).cloned(),
        };
        number.map(|number| number.to_string())
    }
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
        ] {
            assert_eq!(
                Wish::parse(wish).unwrap().among(from).as_deref(),
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
