//! The shell script: plain enough to be read whole, for dash, bash, busybox and Android's mksh.

use super::Item;
use crate::catalog::fill;
use crate::wish::Wish;
use kilter_api::{Format, Profile};
use std::collections::BTreeSet;
use std::fmt::Write;

/// What every script does, whatever it sets.
const RUNTIME: &str = include_str!("script.sh");

/// Values that are found out where the script runs.
const WISHES: &str = include_str!("wish.sh");

/// The script that puts a profile in force, and takes it back with `--revert`.
pub fn shell_script(profile: &Profile, items: &[Item], shell: &str) -> String {
    let mut text = format!(
        "#!{shell}\n# {}: {}\n# Made by kilter {}. As root: sh FILE; to undo it: sh FILE --revert\n",
        profile.name,
        one_line(&profile.summary),
        env!("CARGO_PKG_VERSION"),
    );
    let evidence = match &profile.evidence {
        Some(evidence) => format!(
            "measured on kernel {} with `{}`",
            evidence.kernel,
            one_line(&evidence.command.join(" "))
        ),
        None => "none; what each line claims stands above it".to_owned(),
    };
    let _ = write!(text, "# Evidence: {evidence}\nname={}\n", profile.name);
    let needed = needed(items);
    text.push_str(&with_tags(RUNTIME, &needed));
    if needed.contains("wish") {
        text.push_str(&with_tags(WISHES, &needed));
    }
    text.push_str("\nsettings() {\n");
    for item in items {
        setting(&mut text, item);
    }
    text.push_str("}\n\n# Some schedulers' values last over CPU hotplug only if this is written after them.\nagain() {\n");
    let commits = items
        .iter()
        .any(|item| item.spec.couplings.commit.is_some());
    text.push_str(if commits { AGAIN } else { "  :\n}\n" });
    text.push_str(MAIN);
    text
}

const AGAIN: &str = r#"  for file in "$root/sys/kernel/debug/sched/tunable_scaling" "$root/proc/sys/kernel/sched_tunable_scaling"; do
    [ ! -f "$file" ] || give plain '' "$file" "$(cat "$file")"
  done
}
"#;

const MAIN: &str = r#"
case ${1:-} in
  '') ;;
  --revert) revert ;;
  *) echo "usage: sh $0 [--revert]" >&2 && exit 2 ;;
esac
if command -v getprop >/dev/null 2>&1; then # Android: its init would write over this
  until [ "$(getprop sys.boot_completed)" = 1 ]; do sleep 1; done
  sleep 90
fi
for mode in remember first last; do settings; done
again
exit "$failed"
"#;

fn setting(text: &mut String, item: &Item) {
    if item.spec.paths.is_empty() || is_process(item) {
        let _ = writeln!(text, "  # {} is left out: no file holds it", item.knob);
        return;
    }
    if !item.why.is_empty() {
        let _ = writeln!(text, "  # {}", one_line(&item.why));
    }
    let word = item.knob.rsplit('.').next().unwrap_or(&item.knob);
    let formats: Vec<Format> = item.patterns().map(|(_, place)| place.format).collect();
    let format = formats.first().copied().unwrap_or_default();
    let value = item.value.as_deref().unwrap_or_default();
    let _ = write!(
        text,
        "  put {} {word} {}",
        format_word(format),
        quoted(value)
    );
    for (pattern, _) in item
        .patterns()
        .filter(|(pattern, _)| !pattern.starts_with("/run/"))
    {
        let _ = write!(text, " {}", quoted(&pattern));
    }
    text.push('\n');
    // Files without a knob that the write resets: remembered too.
    let resets = &item.spec.couplings.resets_files;
    if item.value.is_some() && !resets.is_empty() {
        let patterns = resets
            .iter()
            .map(|pattern| fill(pattern, item.instance.as_deref()));
        let words: Vec<String> = patterns.map(|pattern| quoted(&pattern)).collect();
        let _ = writeln!(text, "  also {}", words.join(" "));
    }
}

/// What the script must be able to do for these items.
fn needed(items: &[Item]) -> BTreeSet<&'static str> {
    let mut needed = BTreeSet::new();
    for item in items {
        needed.extend(item.patterns().map(|(_, place)| format_word(place.format)));
        if item.value.is_some() && !item.spec.couplings.resets_files.is_empty() {
            needed.insert("also");
        }
        let kind = match item.value.as_deref().and_then(Wish::parse) {
            None => continue,
            Some(Wish::First(_)) => "first",
            Some(Wish::AtLeast(_) | Wish::AtMost(_)) => "relative",
            Some(Wish::Highest | Wish::Lowest | Wish::Nearest(_)) => "list",
        };
        needed.extend(["wish", kind]);
    }
    needed
}

/// The lines of a text, without those that are tagged for something that is not needed.
fn with_tags(text: &str, needed: &BTreeSet<&'static str>) -> String {
    let lines = text
        .lines()
        .filter_map(|line| match line.rsplit_once(" #@") {
            Some((line, tag)) => needed.contains(tag).then_some(line),
            None => Some(line),
        });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Whether a process of kilter's holds the value.
pub(super) fn is_process(item: &Item) -> bool {
    let mut patterns = item.patterns();
    patterns.all(|(pattern, _)| pattern.starts_with("/run/"))
}

fn format_word(format: Format) -> &'static str {
    match format {
        Format::Plain => "plain",
        Format::Bracketed => "bracketed",
        Format::Parenthesised => "parenthesised",
        Format::YesNo => "yes-no",
        Format::Hex => "hex",
        Format::Spaced => "spaced",
        Format::Mask => "mask",
        Format::Cpu0 => "cpu0",
        Format::Feature => "feature",
    }
}

/// A text that ends no comment.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A word as a shell needs it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::of_profile;
    use super::*;

    #[test]
    fn ktweaks_script_stays_short() {
        let profile = Profile {
            name: "ktweak-script".into(),
            ..Profile::default()
        };
        let script = shell_script(&profile, &of_profile("ktweak-script"), "/bin/sh");
        let code = script
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .count();
        assert!(code <= 200, "{code} lines without comments");
        assert!(script.contains("  put feature NEXT_BUDDY '1' '/sys/kernel/debug/sched/features'"));
    }

    #[test]
    fn a_reason_cannot_leave_its_comment() {
        let mut items = of_profile("battery");
        items[0].why = "x\nrm -rf /\n".into();
        let script = shell_script(&Profile::default(), &items, "/bin/sh");
        assert!(!script.lines().any(|line| line.starts_with("rm")));
    }
}
