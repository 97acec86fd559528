"""What the workloads need, made on the host before the first boot."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
FUNCTIONS = 12
"""Of the C program that is compiled: a second or so of work in an emulated guest."""
FUNCTION = """
static double f%d(const double *a, int n) {
    double s = %d;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            s += a[i] * a[j] / (1.0 + s * s) - (i ^ j) %% 7;
    return s;
}
"""


def source() -> str:
    """A C program with something to optimise."""
    numbers = range(FUNCTIONS)
    calls = " + ".join(f"f{number}(a, n)" for number in numbers)
    functions = "".join(FUNCTION % (number, number) for number in numbers)
    return f"{functions}\ndouble all(const double *a, int n) {{ return {calls}; }}\n"


def prepare(place: Path) -> None:
    """The program to compile, and the task that draws."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "program.c").write_text(source())
    words = ["cc", "-O2", "-Wall", "-Werror", str(HERE / "frames.c"), "-o", str(place / "frames")]
    subprocess.run(words, check=True)
