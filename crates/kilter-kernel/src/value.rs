//! How kernel files show values and take them.
//!
//! A value is a word: a decimal number, `0`/`1`, or one of a file's choices. Files dress it up in
//! different ways (`none [mq-deadline] bfq`, `0x0007`, `Y`, `NO_NEXT_BUDDY`); see [`Format`].

use kilter_api::Format;

/// A file's text that does not have the form it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected content `{shown}`: {problem}")]
pub struct ValueError {
    shown: String,
    problem: String,
}

/// The value that a file's text shows. `name` is the feature's name for [`Format::Feature`].
pub fn parse(format: Format, name: &str, text: &str) -> Result<String, ValueError> {
    let text = text.trim_end_matches('\n').trim();
    let fail = |problem: &str| ValueError {
        shown: text.chars().take(60).collect(),
        problem: problem.to_owned(),
    };
    match format {
        Format::Plain => Ok(text.to_owned()),
        Format::Bracketed => between(text, '[', ']').ok_or_else(|| fail("no word in brackets")),
        Format::Parenthesised => {
            between(text, '(', ')').ok_or_else(|| fail("no word in parentheses"))
        }
        Format::YesNo => match text {
            "Y" | "y" | "1" => Ok("1".to_owned()),
            "N" | "n" | "0" => Ok("0".to_owned()),
            _ => Err(fail("neither Y nor N")),
        },
        Format::Hex => match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
        .map(|number| number.to_string())
        .ok_or_else(|| fail("not a number")),
        Format::Spaced => Ok(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        Format::Mask => mask(text).ok_or_else(|| fail("not a set of CPUs")),
        Format::Cpu0 => text
            .split_whitespace()
            .find_map(|pair| pair.strip_prefix("0:"))
            .map(str::to_owned)
            .ok_or_else(|| fail("no number for CPU 0")),
        Format::Feature => text
            .split_whitespace()
            .find_map(|word| match word.strip_prefix("NO_") {
                Some(off) if off == name => Some("0".to_owned()),
                _ if word == name => Some("1".to_owned()),
                _ => None,
            })
            .ok_or_else(|| fail(&format!("this kernel has no feature {name}"))),
    }
}

/// The text to write for a value; always with a newline, which some files insist on.
pub fn written(format: Format, name: &str, value: &str) -> String {
    match format {
        Format::Feature if value == "1" => format!("{name}\n"),
        Format::Feature => format!("NO_{name}\n"),
        Format::YesNo if value == "1" => "Y\n".to_owned(),
        Format::YesNo => "N\n".to_owned(),
        Format::Mask => format!("{}\n", groups_of_eight(value)),
        Format::Cpu0 => format!("0:{value}\n"),
        _ => format!("{value}\n"),
    }
}

/// All words that a file of choices offers now; empty for other formats.
pub fn words(format: Format, text: &str) -> Vec<String> {
    match format {
        Format::Bracketed | Format::Parenthesised => text
            .split_whitespace()
            .map(|word| word.trim_matches(['[', ']', '(', ')']).to_owned())
            .collect(),
        _ => Vec::new(),
    }
}

/// A set of CPUs without commas and leading zeros, in lower case.
fn mask(text: &str) -> Option<String> {
    let digits = text.replace(',', "").to_ascii_lowercase();
    let plain = !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_hexdigit());
    let short = digits.trim_start_matches('0');
    plain.then(|| if short.is_empty() { "0" } else { short }.to_owned())
}

/// The same as the kernel takes it: at most eight digits between commas.
fn groups_of_eight(digits: &str) -> String {
    if !digits.is_ascii() {
        return digits.to_owned();
    }
    let first = digits.len() % 8;
    let mut groups: Vec<&str> = Vec::new();
    if first > 0 {
        groups.push(&digits[..first]);
    }
    let rest = digits.as_bytes()[first..].chunks(8);
    groups.extend(rest.filter_map(|group| std::str::from_utf8(group).ok()));
    groups.join(",")
}

fn between(text: &str, open: char, close: char) -> Option<String> {
    match text.split_once(open) {
        Some((_, rest)) => rest.split_once(close).map(|(word, _)| word.to_owned()),
        // A queue without a choice shows its one word bare (dm and md devices: `none`).
        None => Some(text.to_owned()).filter(|word| !word.is_empty() && !word.contains(' ')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_read() {
        let cases = [
            (Format::Plain, "", "60\n", "60"),
            (Format::Plain, "", "256\t256\t32\t0\n", "256\t256\t32\t0"),
            (
                Format::Bracketed,
                "",
                "none [mq-deadline] kyber bfq \n",
                "mq-deadline",
            ),
            (Format::Bracketed, "", "always [madvise] never\n", "madvise"),
            (
                Format::Parenthesised,
                "",
                "none voluntary (full) \n",
                "full",
            ),
            (Format::Parenthesised, "", "full (lazy) \n", "lazy"),
            (Format::YesNo, "", "Y\n", "1"),
            (Format::YesNo, "", "N\n", "0"),
            (Format::Hex, "", "0x0007\n", "7"),
            (Format::Hex, "", "7\n", "7"),
            (
                Format::Spaced,
                "",
                "4096\t131072\t6291456\n",
                "4096 131072 6291456",
            ),
            (Format::Mask, "", "00000001,0000000F\n", "10000000f"),
            (Format::Mask, "", "00\n", "0"),
            (Format::Cpu0, "", "0:1324800 1:0 2:0\n", "1324800"),
            (
                Format::Feature,
                "NEXT_BUDDY",
                "PLACE_LAG NO_NEXT_BUDDY \n",
                "0",
            ),
            (
                Format::Feature,
                "PLACE_LAG",
                "PLACE_LAG NO_NEXT_BUDDY \n",
                "1",
            ),
        ];
        for (format, name, text, value) in cases {
            assert_eq!(parse(format, name, text).as_deref(), Ok(value), "{text}");
        }
    }

    #[test]
    fn a_feature_name_is_matched_whole() {
        // LAG must not be found inside PLACE_LAG, nor NO_X taken for X.
        assert!(parse(Format::Feature, "LAG", "PLACE_LAG NO_X\n").is_err());
        assert_eq!(
            parse(Format::Feature, "X", "PLACE_LAG NO_X\n").unwrap(),
            "0"
        );
    }

    #[test]
    fn odd_texts_are_errors() {
        assert!(parse(Format::Bracketed, "", "none mq-deadline\n").is_err());
        assert!(parse(Format::Hex, "", "zz\n").is_err());
        assert!(parse(Format::YesNo, "", "\n").is_err());
        assert!(parse(Format::Mask, "", "cpu0\n").is_err());
        assert!(parse(Format::Cpu0, "", "1:0\n").is_err());
    }

    #[test]
    fn what_is_written_ends_in_a_newline() {
        assert_eq!(written(Format::Plain, "", "off"), "off\n");
        assert_eq!(written(Format::Feature, "HRTICK", "0"), "NO_HRTICK\n");
        assert_eq!(written(Format::YesNo, "", "1"), "Y\n");
        assert_eq!(written(Format::Cpu0, "", "1400000"), "0:1400000\n");
        for (mask, text) in [
            ("3", "3"),
            ("10000000f", "1,0000000f"),
            ("ffffffff", "ffffffff"),
        ] {
            assert_eq!(written(Format::Mask, "", mask), format!("{text}\n"));
        }
    }

    #[test]
    fn choices_on_offer_are_listed() {
        assert_eq!(words(Format::Bracketed, "none [bfq] \n"), ["none", "bfq"]);
        assert_eq!(
            words(Format::Parenthesised, "full (lazy)\n"),
            ["full", "lazy"]
        );
    }
}
