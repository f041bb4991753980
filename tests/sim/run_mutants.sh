#!/bin/sh
# Every planted fault must be caught. Usage: run_mutants.sh path/to/sim_mutants
set -eu
seeds=10000
if [ "${FCAP_TEST_FULL:-0}" = 1 ]; then
    seeds=20000
fi
exec "$1" --seeds "$seeds" --jobs "${FCAP_TEST_JOBS:-1}"
