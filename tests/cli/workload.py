"""A synthetic workload: its metric is a known function of the knob files, times seeded noise.

It prints its time instead of spending it, so a study of a hundred runs takes seconds.
"""

from __future__ import annotations

from pathlib import Path

from .roots import Root

# One line a run in a file gives each run a noise of its own; twelve uniform numbers make a normal one.
SCRIPT = r"""
echo >> "$1/runs"
while read -r _; do n=$((n + 1)); done < "$1/runs"
vm=$2/proc/sys/vm
read -r swappiness < $vm/swappiness
read -r cluster < $vm/page-cluster
read -r interval < $vm/stat_interval
if [ -e "$1/slow" ]; then sleep 0.05; fi
if [ -e "$1/strict" ] && [ "$interval" -gt 20 ]; then echo "interval too long" >&2; exit 3; fi
exec awk -v seed="$3" -v n="$n" -v effect="$4" -v swappiness="$swappiness" 'BEGIN {
    srand(seed * 100003 + n)
    for (i = 0; i < 32; i++) rand()
    for (i = 0; i < 12; i++) noise += rand()
    low = swappiness < 60 ? (60 - swappiness) / 60 : 0
    printf "Time: %.9f\n", (1 - effect * low) * exp(0.01 * (noise - 6))
}'
"""

METRIC = ("--metric", "time=/Time: ([0-9.]+)/")


class Workload:
    """The command, and how often it ran."""

    def __init__(self, root: Root, directory: Path, effect: float) -> None:
        script = directory / "workload.sh"
        script.write_text(SCRIPT)
        self.directory = directory
        self.command = ["sh", str(script), str(directory), str(root.path), "1", str(effect)]

    def runs(self) -> int:
        """How many runs have begun."""
        file = self.directory / "runs"
        return file.read_text().count("\n") if file.exists() else 0
