"""How reports are written: whole or not at all, where they were asked for."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path
from typing import Literal

import pytest
from report_samples import nothing_helps, one_run

from kilter_lab import report
from kilter_lab.errors import LabError
from kilter_lab.messages import LabContext, ReportRequest
from kilter_lab.study import StudyData


def test_a_page_is_written_whole_and_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    old = os.umask(0o022)
    try:
        report.write(one_run(), path)
    finally:
        os.umask(old)
    assert path.read_text() == report.to_html(one_run())
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(report.ReportError, match="No space left on device"):
        report.write(one_run(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(report.ReportError, match="is a directory") as caught:
        report.write(one_run(), tmp_path)
    assert caught.value.hint is not None
    assert str(tmp_path / "report.html") in caught.value.hint


@pytest.mark.parametrize("name", ["missing/report.html", "file/report.html", "a\0b", "x" * 300])
def test_an_impossible_path_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(report.ReportError, match="cannot write the report to"):
        report.write_bytes(b"x", tmp_path / name)


def test_a_device_is_written_to_and_a_link_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        report.write_bytes(b"page", pipe)
        assert os.read(reader, 10) == b"page"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    report.write_bytes(b"page", link)
    assert target.read_text() == "old"
    assert link.read_bytes() == b"page"
    assert not link.is_symlink()


def request(form: Literal["html", "md", "json"], output: str | None) -> ReportRequest:
    return ReportRequest(
        LabContext(["kilter"], 1), "hackbench-1", "sqlite:///x", format=form, output=output
    )


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> StudyData:
    data = nothing_helps()

    def load_study(storage: str, name: str) -> StudyData:
        assert (storage, name) == ("sqlite:///x", "hackbench-1")
        return data

    monkeypatch.setattr("kilter_lab.studies.load_study", load_study)
    return data


def test_the_command_writes_the_form_that_was_asked_for(
    stored: StudyData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: dict[Literal["html", "md", "json"], bytes] = {
        "html": report.to_html(stored).encode(),
        "md": report.to_markdown(stored).encode(),
        "json": report.to_json(stored),
    }
    for form, content in expected.items():
        path = tmp_path / form
        assert report.run(request(form, str(path))) == 0
        assert path.read_bytes() == content
        printed = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed))
        assert report.run(request(form, None)) == 0
        assert printed.getvalue() == content


def test_a_study_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    missing = request("html", str(tmp_path / "report.html"))
    missing.storage = f"sqlite:///{tmp_path / 'studies.db'}"
    with pytest.raises(LabError, match="hackbench-1"):
        report.run(missing)
    assert not (tmp_path / "report.html").exists()


def test_a_reader_who_leaves_early_ends_the_command_quietly(
    stored: StudyData, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        with pytest.raises(BrokenPipeError):
            report.run(request("html", None))
        gone.flush()
