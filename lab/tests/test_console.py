"""Lines end between words on a terminal, and nowhere else; commands are never broken."""

from __future__ import annotations

import io

import pytest
from rich.text import Text

from kilter_lab.console import Console

SENTENCE = "a sentence that is longer than a line of the terminal"
COMMAND = "kilter apply a-profile-with-a-name-that-is-rather-long --dry-run"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a terminal of 30 columns is given, on standard output and on standard error."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    return [seen(text) for text in told()]


def seen(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in Text.from_ansi(text).plain.splitlines())


def told() -> list[str]:
    out, err = io.StringIO(), io.StringIO()
    console = Console(out, err)
    console.data(Text(f"  {SENTENCE}"))
    console.command(COMMAND)
    console.note(SENTENCE)
    console.warn(SENTENCE)
    console.hint(COMMAND)
    return [out.getvalue(), err.getvalue()]


def test_lines_end_between_words_on_a_terminal(written: list[str]) -> None:
    out, err = written
    assert out.startswith("  a sentence that is longer\n")
    assert max(len(line) for line in out.replace(COMMAND, "").splitlines()) <= 30
    assert f"{COMMAND}\n" in out
    assert f"{COMMAND}\n" in err
    assert SENTENCE not in err
    assert SENTENCE in " ".join(err.split())


def test_lines_are_whole_in_a_file() -> None:
    out, err = told()
    assert out == f"  {SENTENCE}\n{COMMAND}\n"
    assert err == f"{SENTENCE}\nwarning: {SENTENCE}\nhint: {COMMAND}\n"
