#!/bin/sh
# Runs a build of fuzz_crash.c (a search that begins with nothing, or a replay of an input) and
# succeeds only when AddressSanitizer reports the planted fault: must_crash.sh PROGRAM ARGUMENT...
set -u
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
program=$(realpath -- "$1")
shift
cd "$folder" || exit 1 # libFuzzer leaves the input that crashed.
output=$("$program" "$@" 2>&1)
code=$?
printf '%s\n' "$output"
if [ $code -ne 0 ] && printf '%s\n' "$output" | grep -q 'AddressSanitizer: heap-buffer-overflow'; then
    exit 0
fi
echo "exit code $code: the planted fault was not found"
exit 1
