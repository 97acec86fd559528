#!/bin/sh
# Tunes a real workload on this machine's kernel, shows the verdict, and checks that every setting
# that kilter knows is as it was.
set -eu
kilter=$1
study=demo-$(date +%Y%m%d-%H%M%S)
before=$(mktemp) after=$(mktemp)
trap 'rm -f "$before" "$after"' EXIT

settings() { # every knob that kilter could have written, with its value
    "$kilter" knobs list --all --json | "$(dirname "$kilter")/python3" -c '
import json, sys
for knob in json.load(sys.stdin):
    if knob["state"]["state"] == "present":
        print(knob["name"], knob["state"]["value"])'
}

settings > "$before"
echo "Tuning a copy of 128 MB of memory on this machine, for at most three minutes."
"$kilter" tune --study "$study" --budget 3m --report kilter-report.html -- \
    perf bench mem memcpy --size 128MB --nr_loops 2
settings > "$after"
if diff "$before" "$after"; then
    echo "Every one of $(wc -l < "$before") settings is as it was."
else
    echo "error: settings differ from before (above: < before, > after)" >&2
    exit 1
fi
