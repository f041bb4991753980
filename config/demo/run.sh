#!/bin/sh
# Builds fcapd and runs its demo: sh config/demo/run.sh [arguments of `fcapd demo`, see --help]
#
# Installs the Debian packages that it lacks when it is root, otherwise names them; builds into
# build/; then everything runs in a private world that is gone afterwards.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
top=$(CDPATH='' cd -- "$here/../.." && pwd)
mkdir -p "$top/build"
log=$top/build/demo.log
: >"$log"

step() { # NAME COMMAND...: quiet unless it fails
    name=$1
    shift
    echo "$name ..."
    "$@" >>"$log" 2>&1 && return 0
    echo "$name: failed; the end of $log:" >&2
    tail -n 40 "$log" >&2
    exit 1
}

install() {
    apt-get -q update || true # A third party's archive may be away.
    DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "$@"
}

# "host" packages serve the tests only.
release=$(. /etc/os-release 2>/dev/null; echo "${VERSION_ID:-}")
missing=
while read -r package where command; do
    case $package in '' | '#'*) continue ;; esac
    case $where in all | "$release") ;; *) continue ;; esac
    if [ -n "$command" ] && command -v "$command" >/dev/null; then
        continue
    fi
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
        missing="$missing $package"
done <"$top/tests/packages.txt"
if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ]; then
        echo "please install first, as root: apt-get install$missing" >&2
        exit 1
    fi
    # shellcheck disable=SC2086
    step "installing$missing" install $missing
fi

configure() ( # In a subshell: paths in our arguments are relative to where we are.
    cd "$top" && cmake --preset default
)
[ -e "$top/build/build.ninja" ] || step "configuring" configure
step "building (a minute or two the first time)" cmake --build "$top/build" --target fcapd
exec "$top/build/fcapd" demo "$@"
