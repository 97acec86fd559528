"""Evidence: kept, listed, marked, and moved from machine to machine, whatever is in the file."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import schemas
from .program import Done, argv
from .roots import Root
from .test_output import on_terminal

KERNEL = "6.12.107-amd64"
SAMPLE: dict[str, Any] = json.loads((schemas.SCHEMAS / "samples/evidence.0.json").read_text())
LEDGER = "var/lib/kilter/evidence.jsonl"


@pytest.fixture
def root(make_root: Callable[[str], Root]) -> Root:
    """A machine that says which kernel it runs."""
    made = make_root("eevdf")
    made.put("proc/sys/kernel/osrelease", KERNEL)
    return made


def machine_of(root: Root) -> str:
    """The identity that kilter gives this root under its kernel."""
    identity: str = root.json("doctor")["fingerprint"]["id"]
    return identity


def own(root: Root, **changes: Any) -> dict[str, Any]:
    """A verdict measured here and now, with changes."""
    line = {**copy.deepcopy(SAMPLE), "machine": machine_of(root), "kernel": KERNEL, "workload": ""}
    return {**line, **changes}


def keep(root: Root, *lines: dict[str, Any]) -> None:
    """Record verdicts as the lab does."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = root("evidence", "record", input=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def ledger(root: Root) -> str:
    """The file, byte by byte; empty for none."""
    path = root.path / LEDGER
    return path.read_bytes().decode("latin-1") if path.exists() else ""


def document(*lines: dict[str, Any], **changes: Any) -> str:
    """A document as ``evidence export`` prints it."""
    return json.dumps({"kilter_evidence": 1, "evidence": list(lines), **changes})


def bring(root: Root, text: str | bytes, code: int = 0) -> Done:
    """Import a document from a file."""
    path = root.path.parent / "document.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    done = root("evidence", "import", path)
    assert done.returncode == code, done
    return done


def test_what_is_recorded_says_which_kilter_judged(root: Root) -> None:
    keep(root, own(root, version=""), own(root, version="0.0.1"))
    version = root("--version").stdout.split()[1]
    assert {one["version"] for one in root.json("evidence")} == {version, "0.0.1"}


def test_an_empty_ledger_is_said_so(root: Root) -> None:
    assert "No evidence yet." in root("evidence").stdout
    assert "No evidence yet on vm.swappiness." in root("evidence", "vm.swappiness").stdout
    assert root.json("evidence") == []
    assert root.json("evidence", "export") == {"kilter_evidence": 1, "evidence": []}
    assert "Evidence: none yet" in root("knobs", "show", "vm.swappiness").stdout
    assert ledger(root) == ""


def test_a_slip_in_a_name_is_told_and_a_known_name_never_is(root: Root) -> None:
    for command in (["evidence"], ["evidence", "list"], ["evidence", "export"]):
        done = root(*command, "vm.swapiness")
        assert (done.returncode, done.stdout) == (2, "")
        assert "did you mean vm.swappiness?" in done.stderr
    assert root("evidence", "vm.nothing*").returncode == 0
    keep(root, own(root, arm={"vm.of_a_later_catalog": "1"}))
    assert "vm.of_a_later_catalog → 1" in root("evidence", "vm.of_a_later_catalog").stdout


def test_verdicts_of_one_experiment_stand_together(root: Root) -> None:
    other = copy.deepcopy(SAMPLE["verdict"])
    other |= {"metric": "max_rss_kib", "verdict": "no-difference"}
    other |= {"ratio": 1.001, "low": 0.998, "high": 1.004}
    older = own(root, when="2025-12-31T00:00:00Z", runs=0, study="")
    page = own(root, arm={"vm.page-cluster": "0"}, old={"vm.page-cluster": "3"})
    keep(root, page, own(root), own(root, verdict=other), older)
    lines = root("evidence").stdout.splitlines()
    assert lines[0] == "vm.page-cluster 3 → 0"
    at = lines.index("vm.swappiness 60 → 10")
    assert lines[at - 1] == ""
    assert lines[at + 1] == "  2026-01-02  make -j2  (40 runs, study make)"
    assert [line.split()[0] for line in lines[at + 2 : at + 4]] == ["wall_s", "max_rss_kib"]
    assert lines[at + 4] == "  2025-12-31  make -j2"
    columns = {line.index("(") for line in lines if "…" in line}
    assert len(columns) == 1, "intervals are aligned"
    assert root("evidence", "list").stdout == root("evidence").stdout
    only = root("evidence", "vm.page-cluster").stdout
    assert "swappiness" not in only
    assert root("evidence", "vm.*").stdout == root("evidence").stdout


def test_only_what_changed_is_evidence_on_a_knob(root: Root) -> None:
    held = own(
        root,
        base={"vm.stat_interval": "9", "vm.page-cluster": "1"},
        arm={"vm.stat_interval": "9", "vm.swappiness": "1"},
    )
    keep(root, held)
    assert root.json("evidence", "vm.stat_interval") == []
    assert len(root.json("evidence", "vm.swappiness")) == 1
    assert len(root.json("evidence", "vm.page-cluster")) == 1
    heading = root("evidence").stdout.splitlines()[0]
    assert heading == "vm.page-cluster 1 → current, vm.swappiness 60 → 1"


def test_what_is_not_from_here_is_marked(root: Root) -> None:
    here = own(root)
    elsewhere = own(root, machine="0123456789ab", when="2026-01-03T00:00:00Z")
    far = {**SAMPLE, "when": "2026-01-05T00:00:00Z", "kernel": "5.10.1"}
    root.put("proc/sys/kernel/osrelease", "6.1.0")
    older_kernel = own(root, kernel="6.1.0", when="2026-01-04T00:00:00Z")
    root.put("proc/sys/kernel/osrelease", KERNEL)
    keep(root, here, elsewhere, older_kernel, far)
    listed = root.json("evidence")
    schemas.check_each("known-evidence", listed)
    assert [(one["same_machine"], one["same_kernel"]) for one in listed] == [
        (False, False), (True, False), (False, True), (True, True),
    ]  # fmt: skip
    for command in (["evidence"], ["knobs", "show", "vm.swappiness"]):
        text = root(*command).stdout
        marks = [line.strip() for line in text.splitlines() if line.strip().startswith("another")]
        assert marks == [
            "another machine (AMD EPYC 7763), another kernel: 5.10.1",
            "another kernel: 6.1.0",
            "another machine (AMD EPYC 7763)",
        ], text
    (shown,) = root.json("knobs", "show", "vm.swappiness")
    assert shown["evidence"] == listed
    root.put("proc/sys/kernel/osrelease", "7.0.0")
    assert not any(one["same_kernel"] for one in root.json("evidence"))
    assert f"another kernel: {KERNEL}" in root("evidence").stdout


def test_a_profile_of_another_kernel_is_marked(root: Root) -> None:
    profile = {
        "name": "mine",
        "set": {"vm.swappiness": {"value": "10"}},
        "evidence": {
            "study": "s", "command": ["make"], "kernel": "5.10.1", "machine": "0123456789ab",
            "when": "2026-01-02T03:04:05Z", "verdict": SAMPLE["verdict"],
        },
    }  # fmt: skip
    assert root("profile", "save", input=json.dumps(profile)).returncode == 0
    shown = root("profile", "show", "mine").stdout
    assert "another machine, another kernel: 5.10.1" in shown


def test_a_knob_cites_the_latest_and_says_where_the_rest_is(root: Root) -> None:
    keep(root, *(own(root, when=f"2026-01-{day:02}T00:00:00Z") for day in range(1, 9)))
    shown = root("knobs", "show", "vm.swappiness").stdout
    assert shown.index("2026-01-08") < shown.index("2026-01-04")
    assert "2026-01-03" not in shown
    assert "And 3 older verdicts: kilter evidence vm.swappiness" in shown
    (details,) = root.json("knobs", "show", "vm.swappiness")
    assert len(details["evidence"]) == 8


def test_lines_of_an_older_form_are_read_and_others_are_counted(root: Root) -> None:
    new = ("old", "workload", "runs", "cpu", "version", "imported")
    older = {key: value for key, value in own(root).items() if key not in new}
    for field in ("looks", "more_blocks"):
        older["verdict"] = {k: v for k, v in older["verdict"].items() if k != field}
    path = root.put(LEDGER, json.dumps(older))
    with path.open("a") as file:
        file.write('{"of": "a later kilter"}\n\nnonsense\n')
    done = root("evidence")
    assert "vm.swappiness → 10" in done.stdout
    assert f"warning: {path}: 2 lines cannot be read" in done.stderr
    assert len(root.json("evidence")) == 1


def test_export_and_import_are_each_others_inverse(root: Root, make_root: Any) -> None:
    script = own(root, command=["sh", "-c", "one\n\ttwo"], arm={"vm.page-cluster": "0"})
    keep(root, own(root), script)
    done = root("evidence", "export")
    assert done.stderr == ""
    schemas.check("evidence-document", json.loads(done.stdout))
    other = make_root("cfs")
    other.put("proc/sys/kernel/osrelease", "6.1.0")
    other.put("proc/meminfo", "MemTotal: 8000000 kB")
    told = bring(other, done.stdout)
    assert told.stdout == "2 verdicts: 2 new, 0 here already.\n"
    listed = other.json("evidence")
    assert all(one["imported"] and not one["same_machine"] for one in listed)
    text = other("evidence").stdout
    assert f"another machine (AMD EPYC 7763), another kernel: {KERNEL}, imported" in text
    assert r"sh -c 'one\n\ttwo'" in text
    before = ledger(other)
    assert bring(other, done.stdout).stdout == "2 verdicts: 0 new, 2 here already.\n"
    assert ledger(other) == before
    # Home again: they are its own, and are not doubled.
    home = bring(root, other("evidence", "export").stdout)
    assert home.stdout == "2 verdicts: 0 new, 2 here already.\n"
    assert not any("imported" in one for one in root.json("evidence"))


def test_an_import_reads_standard_input_and_speaks_json(root: Root) -> None:
    text = document(SAMPLE, SAMPLE, {**SAMPLE, "when": "2026-01-03T00:00:00Z"})
    done = root("--json", "evidence", "import", "-", input=text)
    told = json.loads(done.stdout)
    schemas.check("evidence-imported", told)
    assert told == {"new": 2, "known": 1}
    assert "imported" in root("evidence").stdout


def test_an_export_may_be_of_one_knob_and_go_to_a_file(root: Root, tmp_path: Path) -> None:
    keep(root, own(root), own(root, arm={"vm.page-cluster": "0"}))
    file = tmp_path / "out.json"
    done = root("evidence", "export", "vm.page-cluster", "--output", file)
    assert (done.returncode, done.stdout) == (0, "")
    assert "Wrote 1 verdict to" in done.stderr
    assert f"kilter evidence import {file}" in done.stderr
    (line,) = json.loads(file.read_text())["evidence"]
    assert line["arm"] == {"vm.page-cluster": "0"}
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


def damaged(**changes: Any) -> str:
    """A document whose second verdict is damaged."""
    return document(SAMPLE, {**copy.deepcopy(SAMPLE), **changes})


def judged(**changes: Any) -> str:
    """The same for its numbers."""
    return damaged(verdict={**SAMPLE["verdict"], **changes})


BAD: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "empty": ("", ("not a document of evidence",)),
    "binary": (bytes(range(256)) * 64, ("not a document of evidence",)),
    "not UTF-8": (b'{"kilter_evidence": "\xff\xfe"}', ("not a document of evidence",)),
    "a list": (json.dumps([SAMPLE]), ("not a document of evidence",)),
    "the ledger itself": (json.dumps(SAMPLE) + "\n", ("kilter_evidence",)),
    "a later form": (document(SAMPLE, kilter_evidence=2), ("form 2", "reads form 1")),
    "a wrong form": (document(SAMPLE, kilter_evidence="1"), ("invalid type",)),
    "more fields": (document(SAMPLE, colour=1), ("unknown field `colour`",)),
    "deep": ("[" * 200_000, ("not a document of evidence",)),
    "cut off": (document(SAMPLE)[:-20], ("EOF",)),
    "an unknown field": (damaged(colour="red"), ("unknown field `colour`",)),
    "a hostile field": (damaged(**{"\x1b]0;x\x07": 1}), (r"\u{1b}]0;x\u{7}",)),
    "a missing field": (document({"when": "x"}), ("missing field",)),
    "no date": (damaged(when="yesterday"), ("verdict 2: when", "`yesterday`")),
    "a hostile date": (damaged(when="\x1b[2J"), ("verdict 2: when", r"\u{1b}[2J")),
    "no machine": (damaged(machine=""), ("verdict 2: machine is empty",)),
    "a hostile kernel": (damaged(kernel="6\x1b[8m"), ("verdict 2: kernel", r"\u{1b}")),
    "a hostile CPU": (damaged(cpu="x\ny"), ("verdict 2: cpu", r"\u{a}")),
    "a turned CPU": (damaged(cpu="a\u202eb"), ("verdict 2: cpu", r"\u{202e}")),
    "a long study": (damaged(study="x" * 5000), ("verdict 2: study is longer than 4096",)),
    "no command": (damaged(command=[]), ("verdict 2: command",)),
    "a hostile command": (damaged(command=["a\x07"]), ("verdict 2: command",)),
    "a path for a knob": (damaged(arm={"../../x": "1"}), ("`../../x` is no name of a knob",)),
    "a hostile value": (damaged(arm={"vm.x": "\x1b[A"}), ("verdict 2: arm holds",)),
    "a hostile metric": (judged(metric="\r"), ("verdict 2: verdict.metric",)),
    "a ratio of 0": (judged(ratio=0), ("verdict.ratio is 0",)),
    "a ratio below": (judged(low=-0.5), ("verdict.low is -0.5",)),
    "no number": (judged(ratio=None), ("invalid type: null",)),
    "too large": (judged(high=1e999), ("not a document of evidence",)),
    "ends turned": (judged(low=1.5, high=1.2), ("verdict.low is above verdict.high",)),
    "no confidence": (judged(confidence=1), ("verdict.confidence is 1",)),
    "a wide region": (judged(region_percent=50), ("region_percent is 50",)),
    "a lie": (judged(verdict="worse"), ("its verdict is not what its interval says",)),
    "an unknown verdict": (judged(verdict="great"), ("unknown variant `great`",)),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_a_bad_document_is_refused_whole(
    root: Root, case: tuple[str | bytes, tuple[str, ...]]
) -> None:
    text, says = case
    keep(root, own(root))
    before = ledger(root)
    done = bring(root, text, code=2)
    assert done.stdout == ""
    assert f"error: {root.path.parent / 'document.json'}: " in done.stderr
    for word in says:
        assert word in done.stderr, f"{word!r} is not in {done.stderr!r}"
    assert len(done.stderr) < 1000
    assert not set(done.stderr) & set("\x1b\x07\r\u202e")
    assert ledger(root) == before


def test_a_document_of_100_mb_is_refused_without_being_read(root: Root, tmp_path: Path) -> None:
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.write(b'{"kilter_evidence": 1, "evidence": [')
        file.truncate(100 << 20)
    limited = ("bash", "-c", 'ulimit -v 200000; exec "$@"', "-")
    done = root("evidence", "import", huge, prefix=limited)
    assert done.returncode == 2, done
    assert f"error: {huge}: larger than 16 MiB" in done.stderr
    endless = root("evidence", "import", "/dev/zero")
    assert endless.returncode == 2
    assert "larger than 16 MiB" in endless.stderr


@pytest.mark.parametrize(
    ("file", "says"), [("/no/such/file", "No such file"), ("/tmp", "Is a directory")]
)
def test_what_is_no_document_is_named(root: Root, file: str, says: str) -> None:
    done = root("evidence", "import", file)
    assert done.returncode == 2
    assert f"error: {file}: {says}" in done.stderr
    assert ledger(root) == ""


def test_a_ledger_that_was_tampered_with_cannot_take_over_a_terminal(root: Root) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\r\nback\u202e"
    line = own(
        root,
        command=[hostile],
        arm={"vm.swappiness": hostile},
        kernel=hostile,
        cpu=hostile,
        study=hostile,
        workload=hostile,
        when=hostile,
        verdict={**SAMPLE["verdict"], "metric": hostile},
    )
    root.put(LEDGER, json.dumps(line))
    for args in (["evidence"], ["knobs", "show", "vm.swappiness"]):
        shown = on_terminal(argv(*args, root=root.path), {"TERM": "xterm"})
        assert "hidden" in shown
        for code in ("\x1b]", "\x1b[2J", "\x1b[8m", "\x07", "\u202e", "\rback"):
            assert code not in shown.replace("\r\n", "\n"), (args, code)


def test_an_export_is_written_whole_and_follows_no_link(root: Root, tmp_path: Path) -> None:
    keep(root, own(root))
    victim = tmp_path / "victim"
    victim.write_text("precious")
    link = tmp_path / "link.json"
    link.symlink_to(victim)
    assert root("evidence", "export", "-o", link).returncode == 0
    assert victim.read_text() == "precious"
    assert not link.is_symlink()
    assert json.loads(link.read_text())["kilter_evidence"] == 1
    for target, says in [
        ("/dev/null", "not a file"),
        (tmp_path, "not a file"),
        ("/no/such/dir/x.json", "No such file"),
        ("/proc/x.json", ""),
    ]:
        done = root("evidence", "export", "-o", target)
        assert done.returncode == 2, done
        assert f"error: --output {target}: " in done.stderr
        assert says in done.stderr
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_full_disk_is_told_and_the_ledger_stays_readable(root: Root) -> None:
    state = root.path / "var/lib/kilter"
    state.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "kilter-test", state], check=True)
    try:
        keep(root, own(root))
        many = [own(root, when=f"2026-02-01T00:00:{n % 60:02}Z", runs=n) for n in range(500)]
        done = bring(root, document(*many), code=2)
        assert str(state / "evidence.jsonl") in done.stderr
        assert len(root.json("evidence")) >= 1
        # Space comes back: the same document again brings what is missing, and nothing twice.
        subprocess.run(["mount", "-o", "remount,size=4m", state], check=True)
        bring(root, document(*many))
        assert len(root.json("evidence")) == 501
    finally:
        subprocess.run(["umount", state], check=True)


def test_two_imports_at_once_add_everything_once(root: Root, tmp_path: Path) -> None:
    file = tmp_path / "many.json"
    many = [{**SAMPLE, "runs": number} for number in range(300)]
    file.write_text(document(*many))
    words = argv("evidence", "import", file, root=root.path)
    started = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [child.wait(60) for child in started] == [0] * 4
    assert len(root.json("evidence")) == 300
