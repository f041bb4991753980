#!/bin/sh
# Builds the tree in a Debian 13 root with -Werror and runs the tests labelled unit, contract,
# fuzz (corpora only; the JSON decoders are compared here, where both are built) and smoke: the
# daemon itself with a mock Kafka and a redis-server of Debian 13.
#
# The root is made once by debootstrap and kept under ${XDG_CACHE_HOME:-$HOME/.cache}/fcapd-tests;
# the mirror is the one that this machine's own apt uses. Needs root. Mounts live in a namespace of
# their own and vanish with it. Exit code: 0 all passed, 1 something failed, 77 cannot be done here.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
top=$(dirname -- "$here")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/fcapd-tests
suite=trixie
jobs=${FCAP_TEST_JOBS:-$(nproc)}
timeout_s=${FCAP_TEST_TIMEOUT:-600}

cannot() {
    printf '%s\n' "$*"
    exit 77
}

[ "$(id -u)" = 0 ] || cannot "needs root"
command -v debootstrap >/dev/null || cannot "needs debootstrap"
if [ "${FCAP_IN_NAMESPACE:-}" != 1 ]; then
    unshare --mount true 2>/dev/null || cannot "needs a mount namespace (unshare --mount)"
    FCAP_IN_NAMESPACE=1 exec unshare --mount --propagation private sh "$0" "$@"
fi

# The first Debian archive that apt fetches package lists from; apt tells their origin only when it
# has the lists.
find_mirror() {
    apt-get indextargets --format '$(REPO_URI) $(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
        awk '$2 == "Debian" && $1 !~ /security/ { print $1; exit }'
}
mirror=$(find_mirror)
if [ -z "$mirror" ]; then
    apt-get -q update || true # A third party's archive may be away.
    mirror=$(find_mirror)
fi
[ -n "$mirror" ] || cannot "apt knows no Debian archive on this machine"

packages=$(awk '!/^#/ && NF && ($2 == "all" || $2 == "13") { print $1 }' "$here/packages.txt")
mkdir -p "$cache"
exec 9>"$cache/debian13.lock"
flock 9

# A change of the list makes a new root.
stamp=$(printf '%s\n' "$suite" "$packages" | cksum | cut -d ' ' -f 1)
root=$cache/debian13-$stamp
if [ ! -e "$root/.complete" ]; then
    rm -rf "$cache"/debian13-*
    debootstrap --variant=minbase "$suite" "$root" "$mirror"
    mount --bind /proc "$root/proc"
    cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
    # What apt needs to reach the mirror from here, it needs in there too.
    for file in /etc/apt/apt.conf.d/*proxy* /etc/hosts; do
        [ ! -e "$file" ] || cp "$file" "$root$file"
    done
    printf 'exit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive chroot "$root" sh -c '
        apt-get -q update && apt-get -q -y install --no-install-recommends "$@"' sh $packages
    umount "$root/proc"
    touch "$root/.complete"
fi

# The tree as it stands, without what git ignores; the build folder is kept between runs.
copy=$root/fcapd
mkdir -p "$copy" "$root/fcapd-build" "$root/shared-data"
find "$copy" -mindepth 1 -delete
if git -C "$top" rev-parse --git-dir >/dev/null 2>&1; then
    (cd "$top" && git ls-files -z --cached --others --exclude-standard |
        xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh |
        tar --null --files-from=- -cf -) | tar -C "$copy" --no-same-owner -xf -
else
    tar -C "$top" --exclude='./build*' -cf - . | tar -C "$copy" --no-same-owner -xf -
fi

mount --bind /proc "$root/proc"
mount --bind /dev "$root/dev"
mount --bind /dev/pts "$root/dev/pts" # for tests on a terminal
mount -t tmpfs tmpfs "$root/tmp"
shared=
if [ -n "${FCAP_SHARED_DATA:-}" ] && [ -d "$FCAP_SHARED_DATA" ]; then
    mount --bind "$FCAP_SHARED_DATA" "$root/shared-data"
    shared=/shared-data
fi
status=0
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 CI="${CI:-}" \
    FCAP_SHARED_DATA="$shared" FCAP_TEST_FULL="${FCAP_TEST_FULL:-}" FCAP_TEST_JOBS="$jobs" \
    FCAP_TEST_BROKERS="${FCAP_TEST_BROKERS:-}" FCAP_TEST_TIMEOUT="$timeout_s" \
    chroot "$root" sh -c '
        cmake -S /fcapd -B /fcapd-build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFCAP_WERROR=ON \
            -DFCAP_TEST_TIMEOUT="$FCAP_TEST_TIMEOUT" &&
        ninja -C /fcapd-build -j "$FCAP_TEST_JOBS" &&
        echo "with: $(/fcapd-build/fcapd version | awk "NR > 1 && NF { \$1 = \$1; printf \"%s%s\", sep, \$0; sep = \"; \" }")" &&
        cd /fcapd-build && ctest -V -L "^(unit|contract|fuzz|smoke)\$" -j "$FCAP_TEST_JOBS" --timeout "$FCAP_TEST_TIMEOUT"' || status=1
exit $status
