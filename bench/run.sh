#!/bin/sh
# Every benchmark, one after the other, each with its peers in the same run.
set -eu
kilter=$1
python="$(dirname "$kilter")/python3"
here=$(dirname "$0")
for bench in "overhead.py $kilter" "apply.py $kilter" "load.py $kilter" "groups.py $kilter" "reclaim/mechanism.py $kilter" "studies.py" "evidence"; do
    echo "== $bench"
    # shellcheck disable=SC2086 # a script and its arguments
    "$python" "$here"/$bench
    echo
done
