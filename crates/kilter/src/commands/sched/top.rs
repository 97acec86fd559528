//! `kilter sched top`: the running scheduler, live.

use super::status::ask;
use super::{not_running, report};
use crate::fail::{Failure, Outcome};
use crate::machine::Machine;
use kilter_api::SchedRun;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Bar, BarChart, BarGroup, Block, Cell, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Two readings and the time between them.
struct Picture {
    before: SchedRun,
    now: SchedRun,
    seconds: f64,
}

/// Runs `kilter sched top`.
pub fn run(machine: &Machine, interval: f64) -> Outcome {
    let Some(first) = ask(machine)? else {
        return Err(not_running());
    };
    if !std::io::stdout().is_terminal() {
        return Err(Failure::new("`kilter sched top` draws on a terminal")
            .hint("kilter sched run hrrn --monitor"));
    }
    let mut terminal = ratatui::init();
    let outcome = watch(
        machine,
        &mut terminal,
        first,
        Duration::from_secs_f64(interval),
    );
    ratatui::restore();
    outcome
}

fn watch(
    machine: &Machine,
    terminal: &mut DefaultTerminal,
    first: SchedRun,
    interval: Duration,
) -> Outcome {
    let mut picture = Picture {
        before: first.clone(),
        now: first,
        seconds: interval.as_secs_f64(),
    };
    let mut then = Instant::now();
    loop {
        terminal.draw(|frame| draw(frame, &picture))?;
        while let Some(left) = interval.checked_sub(then.elapsed()) {
            if event::poll(left)? {
                match event::read()? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return Ok(0),
                        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                            return Ok(0);
                        }
                        _ => {}
                    },
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
        }
        let seconds = then.elapsed().as_secs_f64();
        if seconds < 0.05 {
            continue;
        }
        let Some(now) = ask(machine)? else {
            return Err(Failure::new("hrrn has ended").code(1));
        };
        then = Instant::now();
        let before = std::mem::replace(&mut picture.now, now);
        picture = Picture {
            before,
            seconds,
            now: picture.now,
        };
    }
}

fn draw(frame: &mut Frame<'_>, picture: &Picture) {
    let cpus = picture.now.cpus.len() as u16;
    let [head, table, charts] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(cpus.saturating_add(4).min(frame.area().height / 2)),
        Constraint::Fill(1),
    ])
    .areas(frame.area());
    let [waits, ratios] = Layout::horizontal([Constraint::Percentage(50); 2]).areas(charts);
    draw_head(frame, head, picture);
    draw_cpus(frame, table, picture);
    let total = report::since(&picture.now.total, &picture.before.total);
    draw_histogram(frame, waits, " wait for a CPU ", &total.waits, report::time);
    draw_histogram(frame, ratios, " R of picked tasks ", &total.ratios, short);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let run = &picture.now;
    let words = |map: Vec<String>| map.join("  ");
    let params = run
        .params
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let options = run.options.iter().map(|(name, on)| format!("{name}: {on}"));
    let lines = vec![
        Line::from(format!("process {}, since {}", run.pid, run.since)),
        Line::from(words(params.collect())),
        Line::from(words(options.collect())),
    ];
    let title = Line::styled("hrrn", Style::new().add_modifier(Modifier::BOLD));
    let block = Block::new()
        .title(title)
        .title(Line::from("q ends").right_aligned());
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_cpus(frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
    let row = |name: &str, now, before| {
        let mut cells = report::row(name, &report::since(now, before));
        // Counts of the interval, by the second.
        for cell in [2, 4, 5, 6, 7, 8] {
            let count: f64 = cells[cell].parse().unwrap_or(0.0);
            cells[cell] = format!("{:.0}", count / picture.seconds);
        }
        Row::new(cells.into_iter().map(Cell::from))
    };
    let cpus = picture
        .now
        .cpus
        .iter()
        .zip(&picture.before.cpus)
        .enumerate();
    let mut rows: Vec<Row<'_>> = cpus
        .map(|(cpu, (now, before))| row(&cpu.to_string(), now, before))
        .collect();
    rows.push(row("all", &picture.now.total, &picture.before.total));
    let mut heads = report::heads();
    for head in [2, 4, 5, 6, 7, 8] {
        heads[head].push_str("/s");
    }
    let head = Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD));
    let widths = [Constraint::Length(10); 12];
    let table = Table::new(rows, widths)
        .header(head)
        .block(Block::bordered());
    frame.render_widget(table, area);
}

fn draw_histogram(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &'static str,
    buckets: &[u64],
    name: impl Fn(u64) -> String,
) {
    let first = buckets.iter().position(|&count| count > 0).unwrap_or(0);
    let bars: Vec<Bar<'_>> = (first..buckets.len())
        .map(|n| {
            let label = format!("≥ {}", name(1 << n));
            Bar::default().label(label).value(buckets[n])
        })
        .collect();
    let chart = BarChart::default()
        .block(Block::bordered().title(title))
        .direction(ratatui::layout::Direction::Horizontal)
        .bar_width(1)
        .bar_gap(0)
        .data(BarGroup::default().bars(&bars));
    frame.render_widget(chart, area);
}

/// A number in a few characters.
fn short(number: u64) -> String {
    match number {
        n if n < 10_000 => n.to_string(),
        n if n < 10_000_000 => format!("{} k", n / 1_000),
        n if n < 10_000_000_000 => format!("{} M", n / 1_000_000),
        n => format!("{} G", n / 1_000_000_000),
    }
}
