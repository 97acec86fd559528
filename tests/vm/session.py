"""The tests of one kernel: one boot, or a few where the kernel dies in the middle."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import relay
from .guest import Guest, quoted
from .kernels import Kernel

BOOTS = 4
"""A kernel that died this often is given up."""
LIMIT_S = 1500.0
SILENCE_S = 420.0
"""No single test takes half of it, also on a busy machine."""

REPOSITORY = Path(__file__).parents[2]
TESTS = ("tests/vm/inside", "tests/cli/test_real_kernel.py")
OPTIONS = ("-q", "-p", "no:cacheprovider", "--confcutdir=tests/vm/inside")


@dataclass
class Result:
    """What came of one test in a guest."""

    state: str = "waiting"
    text: str = ""
    seconds: float = 0.0
    done: bool = False


@dataclass
class Account:
    """What the boots of a kernel came to."""

    boots: int = 0
    seconds: float = 0.0
    first_word_s: float = 0.0
    """From the start of the first boot to the first test."""
    stalls: int = 0
    harm: list[str] = field(default_factory=list)
    """Signs of harm in kernel logs."""
    codes: list[int | None] = field(default_factory=list)
    """The exit codes of the guests' test runs."""


class Session:
    """Boots a kernel, runs tests in it, and has their results as they come."""

    def __init__(
        self,
        kernel: Kernel,
        work: Path,
        tests: list[str],
        *,
        kvm: bool = False,
        golden: Path | None = None,
    ) -> None:
        self.kernel = kernel
        self.work = work
        self.kvm = kvm
        self.golden = golden
        """A directory that the guest writes what it found to, for the tests of another day."""
        self.results = {test: Result() for test in tests}
        self.account = Account()
        self._last = ""
        """Why the last guest ended."""
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Boot, in the background."""
        self._thread.start()

    def result(self, test: str) -> Result:
        """What came of a test; waits for it."""
        with self._changed:
            self._changed.wait_for(lambda: self.results[test].done or not self._thread.is_alive())
        result = self.results[test]
        if not result.done:
            result.state, result.text = "failed", "the guest's tests ended without a word of it"
        return result

    def finish(self) -> Account:
        """Waits for the end of everything."""
        self._thread.join()
        return self.account

    def _run(self) -> None:
        try:
            while self._open() and self.account.boots < BOOTS:
                self._boot(self._open())
            for test in self._open():
                self._close(test, "failed", f"it died {BOOTS} times before this test\n{self._last}")
        except Exception as error:
            for test in self._open():
                self._close(test, "failed", f"{type(error).__name__}: {error}")

    def _open(self) -> list[str]:
        return [test for test, result in self.results.items() if not result.done]

    def _boot(self, tests: list[str]) -> None:
        self.account.boots += 1
        work = self.work / f"boot-{self.account.boots}"
        work.mkdir(parents=True, exist_ok=True)
        (work / "tests").write_text("\n".join(tests))
        began = time.monotonic()
        with (work / "output.log").open("w") as output:

            def hear(line: str) -> None:
                report = relay.parse(line)
                if report is None:
                    print(line, file=output, flush=True)
                    return
                if report["state"] == "failed":
                    print(f"{report['test']}\n{report['text']}", file=output, flush=True)
                if self.account.first_word_s == 0.0:
                    self.account.first_word_s = time.monotonic() - began
                self._take(report)

            guest = Guest(self.kernel, work, self.kvm, self.golden)
            ending = guest.run(self._command(work), hear, LIMIT_S, SILENCE_S)
        self.account.seconds += ending.seconds
        self.account.stalls += ending.log.stalls
        self.account.codes.append(ending.code)
        if ending.log.harm:
            self.account.harm.append(ending.log.harm)
        self._blame(tests, ending.why or f"the guest's test run ended with {ending.code}", work)

    def _blame(self, tests: list[str], why: str, work: Path) -> None:
        """The test that ran when the guest died failed; those that never ran are run again."""
        output = (work / "output.log").read_text().splitlines()[-30:]
        text = "\n".join([f"The guest died: {why}", f"Logs: {work}", *output])
        self._last = text
        running = [test for test in tests if self.results[test].state == "started"]
        # A guest that never came to its tests says nothing of them.
        began = any(self.results[test].state != "waiting" for test in tests)
        for test in running or self._open()[:1] if began else []:
            if not self.results[test].done:
                self._close(test, "failed", text)

    def _take(self, report: dict[str, object]) -> None:
        test, state = str(report["test"]), str(report["state"])
        result = self.results.get(test)
        if result is None:
            return
        if state == "started":
            result.state = state
        elif state == "ended":
            if result.state == "started":
                self._close(test, "failed", "the guest told of no result")
            else:
                self._close(test, result.state, result.text)
        elif result.state != "failed":
            result.state = state
            result.text = str(report["text"])
            result.seconds += float(str(report["seconds"]))

    def _close(self, test: str, state: str, text: str) -> None:
        with self._changed:
            result = self.results[test]
            result.state, result.text, result.done = state, text, True
            self._changed.notify_all()

    def _command(self, work: Path) -> str:
        env = {
            "PYTHONPATH": f"{REPOSITORY / 'tests'}:{REPOSITORY / 'lab'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "",
            "KILTER": os.environ.get("KILTER", str(Path(sys.executable).parent / "kilter")),
            "KILTER_GUEST_KIND": self.kernel.kind,
            relay.WANTED: work / "tests",
            relay.CHANNEL: "3",
        }
        if not self.kvm:
            env["KILTER_SLOW"] = "1"
        if self.golden:
            env["KILTER_UPDATE_GOLDEN"] = self.golden
        words = [f"{key}={value}" for key, value in env.items()]
        files = dict.fromkeys(test.partition("::")[0] for test in self.results)
        pytest = [sys.executable, "-m", "pytest", "-p", "vm.relay", *OPTIONS, *files]
        # 3 is the host's; what the tests themselves print is for the log.
        return f"cd {quoted(REPOSITORY)} && exec {quoted('env', *words, *pytest)} 3>&1"
