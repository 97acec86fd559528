//! What kilter says: data on standard output, all else on standard error.

use anstream::{eprintln, println};
use serde::Serialize;
use std::fmt::Display;

/// Bold red.
const ERROR: &str = "\x1b[1;31m";
/// Bold yellow.
const WARNING: &str = "\x1b[1;33m";
/// Bold cyan.
const HINT: &str = "\x1b[1;36m";
const END: &str = "\x1b[0m";

/// A failure.
pub fn error(text: impl Display) {
    eprintln!("{ERROR}error:{END} {}", tame(text));
}

/// Something a reader should know before believing or going on.
pub fn warning(text: impl Display) {
    eprintln!("{WARNING}warning:{END} {}", tame(text));
}

/// The next command to type.
pub fn hint(text: impl Display) {
    eprintln!("{HINT}hint:{END} {}", tame(text));
}

/// News that is no data.
pub fn note(text: impl Display) {
    eprintln!("{}", tame(text));
}

/// A line of data.
pub fn line(text: impl Display) {
    println!("{}", tame(text));
}

/// Data for programs.
pub fn json(data: &impl Serialize) -> Result<(), serde_json::Error> {
    println!("{}", serde_json::to_string_pretty(data)?);
    Ok(())
}

/// Bold, where the terminal can.
pub fn bold(text: impl Display) -> String {
    format!("\x1b[1m{text}{END}")
}

/// Faint, where the terminal can.
pub fn faint(text: impl Display) -> String {
    format!("\x1b[2m{text}{END}")
}

/// Yellow, where the terminal can: something that a reader must not miss.
pub fn attention(text: impl Display) -> String {
    format!("\x1b[33m{text}{END}")
}

/// Columns of the terminal that standard output is, if it is one.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// Prints rows as columns two spaces apart, the first `right` of numbers flush right. Cells may
/// hold styles; their width is that of what is seen.
pub fn table(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| seen(cell))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut text = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width - seen(cell) + 2));
        }
        println!("{}", tame(text.trim_end()));
    }
}

/// A text that cannot take over a terminal, whatever a profile, a kernel file or an argument holds:
/// of control characters only line ends, tabs and styles (`ESC [ … m`) are left.
fn tame(text: impl Display) -> String {
    let text = text.to_string();
    let is_style = |rest: &str| {
        let inner = rest.strip_prefix('[').unwrap_or_default();
        inner
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
            .starts_with('m')
    };
    text.char_indices()
        .map(|(at, c)| match c {
            '\n' | '\t' => c,
            '\x1b' if is_style(&text[at + 1..]) => c,
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

/// Columns that a text takes on a terminal, styles aside.
fn seen(text: &str) -> usize {
    let mut styled = false;
    text.chars()
        .filter(|&c| {
            let visible = !styled && c != '\x1b';
            styled = (styled || c == '\x1b') && c != 'm';
            visible
        })
        .count()
}

/// `1 file`, `2 files`.
pub fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// Reflows paragraphs to the terminal's width, 100 columns at most.
pub fn reflow(text: &str) -> String {
    let width = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(100, |size| size.ws_col);
    let width = usize::from(width).clamp(40, 100);
    let wrap = |paragraph: &str| {
        let mut lines = vec![String::new()];
        for word in paragraph.split_whitespace() {
            let last = lines.last_mut().expect("never empty");
            match last.is_empty() {
                true => last.push_str(word),
                false if last.chars().count() + 1 + word.chars().count() <= width => {
                    last.push(' ');
                    last.push_str(word);
                }
                false => lines.push(word.to_owned()),
            }
        }
        lines.join("\n")
    };
    let paragraphs: Vec<String> = text.split("\n\n").map(wrap).collect();
    paragraphs.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_pass_and_other_control_characters_do_not() {
        let styled = format!("{} {}\n\tx", bold("a"), faint("ü"));
        assert_eq!(tame(&styled), styled);
        let hostile = "\x1b]0;title\x07\x1b[2J\x1b[1;31mred\rover\u{9b}1m\x1b";
        assert_eq!(
            tame(hostile),
            "\u{fffd}]0;title\u{fffd}\u{fffd}[2J\x1b[1;31mred\u{fffd}over\u{fffd}1m\u{fffd}"
        );
    }
}
