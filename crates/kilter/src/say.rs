//! What kilter says: data on standard output, all else on standard error.

use anstream::{eprintln, println};
use serde::Serialize;
use std::fmt::Display;
use std::os::fd::AsFd;

/// Bold red.
const ERROR: &str = "\x1b[1;31m";
/// Bold yellow.
const WARNING: &str = "\x1b[1;33m";
/// Bold cyan.
const HINT: &str = "\x1b[1;36m";
const END: &str = "\x1b[0m";

/// Columns that a text in a table's last column takes at the least.
const LEAST_ROOM: usize = 24;

/// A failure.
pub fn error(text: impl Display) {
    note(format!("{ERROR}error:{END} {text}"));
}

/// Something a reader should know before believing or going on.
pub fn warning(text: impl Display) {
    note(format!("{WARNING}warning:{END} {text}"));
}

/// The next command to type; never broken, so that it can be copied.
pub fn hint(text: impl Display) {
    eprintln!("{HINT}hint:{END} {}", tame(text));
}

/// News that is no data.
pub fn note(text: impl Display) {
    eprintln!("{}", broken(&tame(text), width_of(std::io::stderr())));
}

/// A line of data.
pub fn line(text: impl Display) {
    println!("{}", broken(&tame(text), columns()));
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
    width_of(std::io::stdout())
}

fn width_of(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// On a terminal, at most so many columns of a text; the whole of it elsewhere.
pub fn cut_for_terminal(text: String, most: usize) -> String {
    match columns() {
        Some(_) => cut(&text, most),
        None => text,
    }
}

/// At most so many columns of a text, at least one.
pub fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Prints rows as columns two spaces apart. Cells may hold styles; their width is that of what is
/// seen. On a terminal that is too narrow, the last column is wrapped within its own width, or goes
/// below its row where hardly any width is left to it.
pub fn table(rows: &[Vec<String>]) {
    for line in laid_out(rows, columns()) {
        println!("{}", tame(line));
    }
}

fn laid_out(rows: &[Vec<String>], terminal: Option<usize>) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| seen(cell))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let last = columns.saturating_sub(1);
    let before: usize = widths.iter().take(last).map(|width| width + 2).sum();
    let left = terminal.map_or(usize::MAX, |terminal| terminal.saturating_sub(before));
    let needed = widths.last().copied().unwrap_or(0);
    let below = needed > left && left < LEAST_ROOM && last > 0;
    let (indent, room) = match terminal {
        Some(terminal) if below => (4, terminal.saturating_sub(4).max(LEAST_ROOM)),
        _ => (before, left.max(LEAST_ROOM)),
    };
    let mut lines = Vec::new();
    for row in rows {
        let (cells, text) = row.split_at(row.len().min(last));
        let mut line: String = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell}{:1$}", "", width - seen(cell) + 2))
            .collect();
        let pieces = text.first().map(|text| wrapped(text, room));
        let mut pieces = pieces.unwrap_or_default().into_iter();
        if !below {
            line.extend(pieces.next());
        }
        lines.push(line.trim_end().to_owned());
        lines.extend(pieces.map(|piece| format!("{:indent$}{piece}", "")));
    }
    lines
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

/// Reflows paragraphs to the terminal's width, 100 columns at most, `indent` of them blank.
pub fn reflow(text: &str, indent: usize) -> String {
    let width = columns().unwrap_or(100).clamp(40, 100) - indent;
    let paragraph = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let lines = wrapped(&words.join(" "), width).into_iter();
        let lines: Vec<String> = lines.map(|line| format!("{:indent$}{line}", "")).collect();
        lines.join("\n")
    };
    let paragraphs: Vec<String> = text.split("\n\n").map(paragraph).collect();
    paragraphs.join("\n\n")
}

/// The text for a terminal: its lines end between words.
fn broken(text: &str, terminal: Option<usize>) -> String {
    let Some(width) = terminal else {
        return text.to_owned();
    };
    let lines = text.split('\n').flat_map(|line| wrapped(line, width));
    lines.collect::<Vec<_>>().join("\n")
}

/// Lines of whole words; one that is longer than `width` has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(last) if seen(last) + 1 + seen(word) <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(table: &[&[&str]]) -> Vec<Vec<String>> {
        let row = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        table.iter().map(row).collect()
    }

    #[test]
    fn the_last_column_is_wrapped_where_the_terminal_ends() {
        let rows = rows(&[
            &["name", "summary"],
            &[
                "one",
                "a text that is longer than its terminal leaves room for",
            ],
            &["twenty", "short"],
        ]);
        let wide = [
            "name    summary",
            "one     a text that is longer than its terminal leaves room for",
            "twenty  short",
        ];
        assert_eq!(laid_out(&rows, None), wide);
        assert_eq!(laid_out(&rows, Some(63)), wide);
        assert_eq!(
            laid_out(&rows, Some(40)),
            [
                "name    summary",
                "one     a text that is longer than its",
                "        terminal leaves room for",
                "twenty  short",
            ]
        );
        assert_eq!(
            laid_out(&rows, Some(31)),
            [
                "name",
                "    summary",
                "one",
                "    a text that is longer than",
                "    its terminal leaves room",
                "    for",
                "twenty",
                "    short",
            ]
        );
    }

    #[test]
    fn rows_of_fewer_cells_and_styles_keep_their_columns() {
        let rows = [
            vec![bold("a"), "b".to_owned(), "c d".to_owned()],
            vec!["longer".to_owned()],
        ];
        assert_eq!(
            laid_out(&rows, Some(4)),
            [
                format!("{}       b\n", bold("a")).trim_end(),
                "    c d",
                "longer",
            ]
        );
        assert_eq!(laid_out(&[], Some(80)), Vec::<String>::new());
    }

    #[test]
    fn lines_end_between_words() {
        assert_eq!(wrapped("a bb  ccc", 80), ["a bb  ccc"]);
        assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrapped("overlong a", 4), ["overlong", "a"]);
        assert_eq!(
            wrapped(&format!("{} b", faint("aa")), 4),
            [format!("{} b", faint("aa"))]
        );
        let text = "  two lines\n\nand more\n";
        assert_eq!(broken(text, None), text);
        assert_eq!(broken(text, Some(6)), "  two\nlines\n\nand\nmore\n");
    }

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
