#!/bin/sh
# Puts the broker's jars into ${FCAP_KAFKA_LIB:-$HOME/.cache/fcapd-tests/kafka-4.1.1}, once, and
# prints that folder. Needs Maven and a network, or a Maven repository that holds the jars already.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
lib=${FCAP_KAFKA_LIB:-$HOME/.cache/fcapd-tests/kafka-4.1.1}
if [ ! -e "$lib/.complete" ]; then
    if ! command -v mvn >/dev/null || ! command -v java >/dev/null; then
        echo "no broker jars in $lib, and no Maven or no Java to get them"
        exit 77
    fi
    mkdir -p "$lib"
    mvn -B -q -f "$here/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$lib" -DincludeScope=runtime >&2
    touch "$lib/.complete"
fi
printf '%s\n' "$lib"
