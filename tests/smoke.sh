#!/bin/sh
# The daemon in a world of its own (mock Kafka, private redis-server), every key compared at the
# end: smoke.sh FCAPD. The audit's line becomes the result; no key compared is a failure.
set -u
fcapd=$1
text=$("$fcapd" demo --no-tty --events 20000 --seconds 15 2>&1)
code=$?
printf '%s\n' "$text"
audit=$(printf '%s\n' "$text" | sed -n 's/^audit: //p' | tail -n 1)
printf 'result: %s\n' "${audit:-no audit}"
case $audit in
'' | '0 '*) exit 1 ;;
*', 0 differ'*) exit $code ;;
*) exit 1 ;;
esac
