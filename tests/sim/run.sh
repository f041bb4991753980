#!/bin/sh
# The simulator's clean run: kept seeds, scenarios, a fixed range with coverage, and one seed that
# the commit chooses. Usage: run.sh path/to/sim [SEEDS]: with SEEDS (a slow build) that many, ten
# times as many in a full run; fewer than 600 are too few to ask for coverage.
set -eu
sim=$1
here=$(dirname "$0")
seeds=${2:-600}
if [ "${FCAP_TEST_FULL:-0}" = 1 ]; then
    seeds=$((${2:-1000} * 10))
fi
coverage=--coverage
[ "$seeds" -ge 600 ] || coverage=
commit=$(git -C "$here" rev-parse --short=8 HEAD 2>/dev/null || echo 0)
jobs=${FCAP_TEST_JOBS:-1}
# shellcheck disable=SC2086
"$sim" --file "$here/seeds.txt" --scenarios --seeds "$seeds" --first 1 --jobs "$jobs" $coverage
"$sim" --seeds 10 --first "$((0x$commit))"
