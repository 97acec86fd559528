"""What happens in the guest: a search of the article's, one of kilter's, or the truth about all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from parameters import ALL, FIXED, RETRY, SWITCHES

FILES = 4
FUNCTIONS = 4
FEATURES = "sched.features."
SEPARATOR = "\x1e"
"""Before a line that is meant for the host."""
NEVER = "hang"
"""The risk of knobs that kilter never searches."""


def project(place: Path) -> list[str]:
    """A C program of a few files; the command that builds it, as the article builds Linux."""
    function = (
        "double f%d(const double *a, int n) { double s = %d; for (int i = 0; i < n; i++) "
        "for (int j = 0; j < i; j++) s += a[i] * a[j] / (1 + s * s) - (i ^ j) %% 7; return s; }\n"
    )
    objects = [f"part{number}.o" for number in range(FILES)]
    for number in range(FILES):
        numbers = range(number * FUNCTIONS, (number + 1) * FUNCTIONS)
        (place / f"part{number}.c").write_text("".join(function % (n, n) for n in numbers))
    (place / "Makefile").write_text(
        f"all: {' '.join(objects)}\n%.o: %.c\n\t@cc -O1 -c $< -o $@\n"
        f"clean:\n\t@rm -f {' '.join(objects)}\n"
    )
    jobs = (os.cpu_count() or 1) + 1
    return ["make", "--silent", "-C", str(place), f"-j{jobs}"]


@dataclass
class Knob:
    """A parameter that this kernel has."""

    name: str
    file: Path
    default: str
    risk: str

    def write(self, value: str) -> None:
        """Set it; features are words."""
        if self.name.startswith(FEATURES):
            word = self.name.removeprefix(FEATURES)
            value = word if value == "1" else f"NO_{word}"
        self.file.write_text(value)


def here(kilter: str) -> dict[str, Knob]:
    """The article's parameters that this kernel has."""
    listed = subprocess.run(
        [kilter, "--json", "knobs", "list", "--all"], capture_output=True, text=True, check=True
    )
    return {
        knob["name"]: Knob(knob["name"], Path(state["path"]), state["value"], knob["spec"]["risk"])
        for knob in json.loads(listed.stdout)
        if knob["name"] in ALL | FIXED and (state := knob["state"])["state"] == "present"
    }


def clean_and_build(build: list[str]) -> float:
    """Seconds that a build takes."""
    subprocess.run([*build, "clean"], check=True)
    begun = time.monotonic()
    subprocess.run(build, check=True)
    return time.monotonic() - begun


@dataclass
class Claim:
    """What a search ended with."""

    who: str
    settings: dict[str, str]
    says: str
    builds: int
    seconds: float


def article(
    who: str, knobs: dict[str, Knob], names: list[str], trials: int, build: list[str], seed: int
) -> Claim:
    """One build a trial, the fastest is the result, beside one build under the defaults."""
    clean_and_build(build)  # For the caches, as the article did.
    default = clean_and_build(build)
    begun = time.monotonic()

    def objective(trial: optuna.Trial) -> float:
        for name in names:
            low, high = ALL[name]
            if name.startswith(FEATURES):
                value = trial.suggest_categorical(name, ["1", "0"])
            else:
                value = str(trial.suggest_int(name, low, high))
            knobs[name].write(value)
        return clean_and_build(build)

    for name in FIXED:
        knobs[name].write(FIXED[name])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    try:
        study.optimize(objective, n_trials=trials, callbacks=[progress])
    finally:
        for knob in [*(knobs[name] for name in names), *(knobs[name] for name in FIXED)]:
            knob.write(knob.default)
    change = (study.best_value / default - 1) * 100
    says = f"{default:.2f} s → {study.best_value:.2f} s: {change:+.1f} %"
    settings = FIXED | {name: str(value) for name, value in study.best_params.items()}
    return Claim(who, settings, says, trials + 2, time.monotonic() - begun)


def progress(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
    """A line now and then: a search takes many minutes."""
    if trial.number % 16 == 15:
        print(f"  {trial.number + 1} trials, fastest {study.best_value:.2f} s", flush=True)


def kilters(
    who: str, kilter: str, names: list[str], seconds: float, build: list[str], seed: int
) -> Claim:
    """``kilter tune`` with the same knobs, ranges, fixed values and time."""
    ranges = [
        option
        for name in names
        if name not in SWITCHES
        for option in ("--range", f"{name}={ALL[name][0]}..{ALL[name][1]}")
    ]
    words = [kilter, "--json", "tune", "--knobs", ",".join(names), *ranges]
    words += [option for name, value in FIXED.items() for option in ("--fix", f"{name}={value}")]
    words += ["--seed", str(seed), "--budget", f"{max(60, round(seconds))}s"]
    words += ["--study", who.replace(" ", "-"), "--prepare", " ".join([*build, "clean"])]
    told = run([*words, "--", *build])
    return Claim(who, told["winner"], told["sentence"], len(told["runs"]), told["seconds"])


def truth(
    kilter: str, claims: list[Claim], most: int, build: list[str], seed: int
) -> dict[str, str]:
    """What each claim is worth: all of them and the defaults, interleaved."""
    arms = [
        option
        for claim in claims
        for option in ("--with", ",".join(f"{k}={v}" for k, v in coupled(claim.settings).items()))
    ]
    words = [kilter, "--json", "compare", "--allow", NEVER, *arms]
    words += ["--max-runs", str(most), "--seed", str(seed)]
    told = run([*words, "--prepare", " ".join([*build, "clean"]), "--", *build])
    said = {}
    for claim, arm in zip(claims, told["arms"], strict=True):
        verdict = arm["verdicts"][0]
        change, low, high = (100 * (verdict[key] - 1) for key in ("ratio", "low", "high"))
        conclusion = arm["conclusion"]
        said[claim.who] = f"{change:+.1f} % ({low:+.1f} to {high:+.1f}), {conclusion}"
    return said


def coupled(settings: dict[str, str]) -> dict[str, str]:
    """The same for the scheduler, as kilter takes it.

    A latency below the minimal granularity acts like one that equals it: slices are of the
    granularity as soon as two tasks wait (``__sched_period`` in Linux's fair.c).
    """
    latency, least = "sched.latency_ns", "sched.min_granularity_ns"
    if latency not in settings or least not in settings:
        return settings
    return settings | {latency: str(max(int(settings[latency]), int(settings[least])))}


def run(words: list[str]) -> Any:
    """The JSON that kilter prints; its progress goes on to this program's output."""
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"error: {' '.join(words[:4])} … ended with {done.returncode}")
    return json.loads(done.stdout)


def main() -> None:
    """One step, told in a file of JSON: a search, or the truth about all."""
    step = json.loads(Path(sys.argv[1]).read_text())
    kilter, seed = step["kilter"], step["seed"]
    knobs = here(kilter)
    names = [name for name in (ALL if step["about"] == "all" else RETRY) if name in knobs]
    with tempfile.TemporaryDirectory() as directory:
        build = project(Path(directory))
        match step["who"]:
            case "article":
                claim = article(
                    "article " + step["about"], knobs, names, step["trials"], build, seed
                )
                tell(asdict(claim))
            case "kilter":
                safe = [name for name in names if knobs[name].risk != NEVER]
                who = "kilter " + step["about"]
                tell(asdict(kilters(who, kilter, safe, step["seconds"], build, seed)))
            case "truth":
                claims = [Claim(**claim) for claim in step["claims"]]
                tell(truth(kilter, claims, step["most"], build, seed))
            case "here":
                risky = [name for name in names if knobs[name].risk == NEVER]
                tell({"here": names, "risky": risky})


def tell(found: dict[str, Any]) -> None:
    """A line for the host."""
    print(f"{SEPARATOR}{json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main()
