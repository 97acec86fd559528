"""What a reader sees of a report, in a real browser.

Chromium is driven over its debugging pipe (file descriptors 3 and 4, messages that end in NUL),
so that nothing but Debian's ``chromium`` package is needed. Tests are skipped where it is missing.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import test_front
from report_samples import EVIL, SAMPLES, better, large, traded

from kilter_lab import report
from kilter_lab.report_text import visible
from kilter_lab.study import StudyData

CHROMIUM = shutil.which("chromium")
PATIENCE_S = 60.0
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
]
WIDE, NARROW = (1280, 900), (375, 800)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here; apt-get install chromium brings it"
)


class Browser:
    """A headless Chromium with one page."""

    def __init__(self, home: Path) -> None:
        assert CHROMIUM is not None
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # A shell moves the pipe's ends to descriptors 3 and 4, where Chromium wants them.
        script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", CHROMIUM, *OPTIONS, f"--user-data-dir={home}"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._number = 0
        self._rest = b""
        self.session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """Ends the browser."""
        with contextlib.suppress(OSError, AssertionError):
            self.session = None
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the debugging protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda reply: reply.get("id") == self._number)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _until(self, wanted: Any) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            message = self._next(deadline)
            if message.get("method") == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(message["params"]))
            if wanted(message):
                return message

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._read], [], [], max(0.0, left))
            assert ready, "chromium does not answer"
            chunk = os.read(self._read, 1 << 20)
            assert chunk, "chromium has ended"
            self._rest += chunk
        line, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def open(
        self, page: Path, size: tuple[int, int] = WIDE, *, dark: bool = False, script: bool = False
    ) -> None:
        """Opens a page in a window of this size, with JavaScript off unless asked for."""
        width, height = size
        self.requests.clear()
        self.errors.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=size == NARROW,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url=page.as_uri())
        self._until(lambda message: message.get("method") == "Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """What an expression gives in the page (the debugger may, where the page may not)."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Saves what is seen, or the whole page, as PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


def page_of(data: StudyData, folder: Path) -> Path:
    path = folder / "report.html"
    report.write(data, path)
    return path


@pytest.mark.parametrize("name", SAMPLES)
def test_the_verdict_sentence_is_read_first(browser: Browser, tmp_path: Path, name: str) -> None:
    data = SAMPLES[name]()
    browser.open(page_of(data, tmp_path))
    seen = " ".join(browser.value("document.body.innerText").split())
    wanted = " ".join(visible(data.sentence).split()) or "Still running."
    assert seen.startswith(wanted)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_the_page_never_scrolls_sideways(
    browser: Browser, tmp_path: Path, name: str, size: tuple[int, int]
) -> None:
    browser.open(page_of(SAMPLES[name](), tmp_path), size)
    root = "document.documentElement"
    assert browser.value(f"{root}.clientWidth") <= size[0]
    assert browser.value(f"{root}.scrollWidth - {root}.clientWidth") <= 0
    # mobile browsers widen the layout instead of scrolling
    assert browser.value("window.innerWidth") == size[0]


def test_wide_tables_scroll_in_their_own_box(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(better(), tmp_path), NARROW)
    box = "document.querySelector('.trials').parentElement"
    assert browser.value(f"{box}.scrollWidth > {box}.clientWidth")
    assert browser.value(f"getComputedStyle({box}).overflowX") == "auto"


def test_the_verdict_table_needs_no_javascript(browser: Browser, tmp_path: Path) -> None:
    path = page_of(traded(), tmp_path)
    browser.open(path, script=False)
    rows = browser.value(
        "[...document.querySelectorAll('.verdicts tbody tr')]"
        ".filter(row => row.checkVisibility()).map(row => row.innerText)"
    )
    assert len(rows) == 4
    assert rows[0].startswith("wall")
    assert "✓ better" in rows[0]
    assert "✗ worse" in rows[1]
    assert "✗ broken" in rows[2]
    assert "guard: <= +2 %" in rows[2]
    assert "not judged" in rows[3]
    assert "<script" not in path.read_text()


@pytest.mark.parametrize("name", ["better", "hostile"])
def test_nothing_is_loaded_from_elsewhere(browser: Browser, tmp_path: Path, name: str) -> None:
    path = page_of(SAMPLES[name](), tmp_path)
    browser.open(path, script=True)
    assert browser.requests == [path.as_uri()]
    links = browser.value(
        "[...document.querySelectorAll('[src], [href]')]"
        ".map(node => node.getAttribute('src') ?? node.getAttribute('href'))"
    )
    assert links
    assert all(link.startswith("#") for link in links)


def test_hostile_texts_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(SAMPLES["hostile"](), tmp_path), script=True)
    assert browser.value("document.querySelectorAll('script, b').length") == 0
    shown = " ".join(visible(EVIL).split())
    for spot in ("h1", ".verdicts th[scope=row]", ".values td:nth-child(2)", ".values code"):
        text = browser.value(f'document.querySelector("main {spot}").innerText')
        assert shown in " ".join(text.split()), spot
    chart = browser.value("document.querySelector('#arms svg').textContent")
    assert "<script>" in chart


def test_a_large_study_stays_within_the_limit(browser: Browser, tmp_path: Path) -> None:
    path = page_of(large(), tmp_path)
    assert path.stat().st_size <= report.LARGEST_PAGE
    browser.open(path, NARROW)
    assert browser.value("document.querySelectorAll('.trials tbody tr').length") > 0
    assert browser.value("document.documentElement.scrollWidth") <= NARROW[0]


def test_charts_show_one_width_and_name_themselves(browser: Browser, tmp_path: Path) -> None:
    path = page_of(better(), tmp_path)
    for size, shown in ((WIDE, "wide"), (NARROW, "narrow")):
        browser.open(path, size)
        charts = browser.value(
            "[...document.querySelectorAll('figure svg')].filter(s => s.checkVisibility())"
            ".map(s => [s.getAttribute('class'),"
            " document.getElementById(s.getAttribute('aria-labelledby')).innerText,"
            " document.getElementById(s.getAttribute('aria-describedby')).innerText])"
        )
        assert [name for name, _, _ in charts] == [shown] * 7
        assert all(title and text for _, title, text in charts)
    assert browser.value(
        "[...document.querySelectorAll('[id]')].length"
        " === new Set([...document.querySelectorAll('[id]')].map(n => n.id)).size"
    )


def test_the_page_is_legible_in_the_dark(browser: Browser, tmp_path: Path) -> None:
    path = page_of(traded(), tmp_path)
    spots = (
        "body",
        ".small",
        ".word.good",
        ".word.bad",
        ".word.soft",
        ".statement .big",
        "summary",
    )
    for dark in (False, True):
        browser.open(path, dark=dark)
        for spot in spots:
            assert contrast(browser, spot) >= 4.5, (spot, dark)
        assert contrast(browser, "figure svg.wide text", "fill") >= 4.5
        for mark in ("--base", "--winner", "--warn"):
            assert contrast(browser, "main", mark) >= 3.0, (mark, dark)


def contrast(browser: Browser, spot: str, part: str = "color") -> float:
    """WCAG contrast of an element's colour, or a variable's, with what lies behind it."""
    style = f"getComputedStyle(document.querySelector('{spot}'))"
    ink = browser.value(f"{style}.getPropertyValue('{part}').trim()")
    paper = browser.value(
        f"(() => {{ for (let n = document.querySelector('{spot}'); n; n = n.parentElement) {{"
        " const c = getComputedStyle(n).backgroundColor;"
        " if (c !== 'rgba(0, 0, 0, 0)') return c; } })()"
    )
    light, deep = sorted((luminance(ink), luminance(paper)), reverse=True)
    return (light + 0.05) / (deep + 0.05)


def luminance(colour: str) -> float:
    digits = colour.removeprefix("#")
    parts = (
        [float(part) / 255 for part in colour[4:-1].split(",")]
        if digits == colour
        else [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    )
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a study that two metrics decided, with a front of several candidates."""
    folder = tmp_path_factory.mktemp("several")
    asked = test_front.several_asked(folder)
    _, data = test_front.go(asked, test_front.machine(1))
    assert len(data.front) > 1
    return page_of(data, folder)


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_several_metrics_are_seen_side_by_side(
    browser: Browser, several: Path, size: tuple[int, int]
) -> None:
    browser.open(several, size, script=True)
    root = "document.documentElement"
    assert browser.value(f"{root}.scrollWidth - {root}.clientWidth") <= 0
    chart = browser.value(
        "[...document.querySelectorAll('#front figure svg')].filter(s => s.checkVisibility())"
        ".map(s => [s.getBoundingClientRect().width, s.getBoundingClientRect().right])"
    )
    assert len(chart) == 1
    assert chart[0][0] > 250
    assert chart[0][1] <= size[0]
    for table, wanted in (
        ("#front table", ["wall", "latency"]),
        (".pruning", ["wall without", "latency without"]),
        (".importance", ["Share in wall", "Share in latency"]),
    ):
        heads = browser.value(
            f"[...document.querySelectorAll('{table} thead th')]"
            ".filter(h => h.checkVisibility()).map(h => h.innerText)"
        )
        for text in wanted:
            assert any(head.startswith(text) for head in heads), (table, heads)
    assert browser.value("document.querySelectorAll('#front tbody tr').length") > 1
    assert browser.errors == []
