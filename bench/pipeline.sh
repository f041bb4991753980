#!/bin/sh
# pipeline.sh [BUILD_FOLDER] [options of fcapd-bench pipeline]: measures, and writes the result into
# bench/README.md and bench/pipeline.svg. On a quiet machine; about six minutes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../build
if [ $# -gt 0 ] && [ -d "$1" ]; then
    build=$1
    shift
fi
result=$(mktemp)
trap 'rm -f "$result"' EXIT
load=$(cut -d ' ' -f 1 /proc/loadavg)
"$build/fcapd-bench" pipeline --json "$@" >"$result"
cat "$result"
python3 "$here/pipeline_report.py" --result "$result" --load "$load" --options "$*" \
    --readme "$here/README.md" --chart "$here/pipeline.svg"
