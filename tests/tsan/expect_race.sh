#!/bin/sh
# Runs `planted race-...` and succeeds only when ThreadSanitizer reports the planted race:
# expect_race.sh <planted> <race-...>
set -u
output=$("$1" "$2" 2>&1)
code=$?
printf '%s\n' "$output"
if [ $code -eq 66 ] && printf '%s\n' "$output" | grep -q 'WARNING: ThreadSanitizer: data race' &&
    printf '%s\n' "$output" | grep -q 'planted_touch'; then
    exit 0
fi
echo "exit code $code: ThreadSanitizer has not reported the race that was planted"
exit 1
