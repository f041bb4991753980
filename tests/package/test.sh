#!/bin/sh
# tests/package/test.sh BUILD: installs below a prefix, makes the .deb, looks into it, and runs the
# program of each. Exit code 77: a tool is missing.
set -eu
build=$1
for tool in cmake cpack dpkg-deb dpkg-shlibdeps file; do
    command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 77; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/fcapd-package-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
checks=0

failed() {
    echo "FAILED: $*"
    exit 1
}
has() { # FILE PATTERN
    grep -Eq -- "$2" "$1" || { cat "$1"; failed "no line like $2"; }
    checks=$((checks + 1))
}

# The program works where it was put: its version, and a configuration that is good but for what it
# must be told.
runs() { # BINARY PROFILES
    "$1" version >"$work/version" || failed "$1 version"
    has "$work/version" '^fcapd +[0-9]+\.[0-9]+\.[0-9]+'
    for profile in minutes hours days; do
        HOSTNAME=here FCAPD_KAFKA_BROKERS=127.0.0.1:1 FCAPD_REDIS_HOST=127.0.0.1 \
            "$1" check --offline -c "$2/$profile.yaml" --set "state.directory=$work/none" \
            >"$work/check" 2>&1 || { cat "$work/check"; failed "$1 check of $profile.yaml"; }
        has "$work/check" '^check: 0 failures'
    done
    code=0
    "$1" check --offline -c "$2/minutes.yaml" --set windows=never >"$work/check" 2>&1 || code=$?
    [ $code -eq 78 ] || failed "a wrong configuration gives $code"
    checks=$((checks + 1))
}

# --- below a prefix ---
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || failed "cmake --install"
runs "$work/prefix/bin/fcapd" "$work/prefix/etc/fcapd"
[ -f "$work/prefix/share/doc/fcapd/OPERATING.md" ] || failed "no documents"
DESTDIR=$work/destination cmake --install "$build" --prefix /usr >"$work/install.log" ||
    failed "cmake --install with DESTDIR"
[ -x "$work/destination/usr/bin/fcapd" ] || failed "no usr/bin/fcapd below DESTDIR"
[ -f "$work/destination/etc/fcapd/days.yaml" ] || failed "no etc/fcapd below DESTDIR"

# --- the package ---
(cd "$work" && cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/cpack") \
    >"$work/cpack.log" 2>&1 || { cat "$work/cpack.log"; failed cpack; }
package=$(find "$work/cpack" -maxdepth 1 -name 'fcapd_*.deb')
[ -f "$package" ] || { cat "$work/cpack.log"; failed "no package"; }
dpkg-deb -c "$package" >"$work/contents"
for file in usr/bin/fcapd etc/fcapd/fcapd.yaml etc/fcapd/minutes.yaml etc/fcapd/hours.yaml \
    etc/fcapd/days.yaml usr/share/doc/fcapd/copyright usr/share/doc/fcapd/CONFIG.md \
    usr/share/doc/fcapd/OPERATING.md; do
    has "$work/contents" "^-r..r..r.. root/root .* \./$file\$"
done
has "$work/contents" '^-rwxr-xr-x root/root .* \./usr/bin/fcapd$'
files=$(grep -c '^-' "$work/contents")
! grep -E '^-' "$work/contents" | grep -Ev ' \./(usr/bin/fcapd|etc/fcapd/|usr/share/doc/fcapd/)' ||
    failed "what is that doing in the package?"

dpkg-deb -I "$package" >"$work/control"
has "$work/control" '^ Package: fcapd$'
has "$work/control" "^ Version: $("$build/fcapd" version | awk 'NR == 1 { print $2 }')\$"
has "$work/control" "^ Architecture: $(dpkg --print-architecture)\$"
for library in libc6 librdkafka1 librocksdb libhiredis libyaml-0-2 libmicrohttpd; do
    has "$work/control" "^ Depends: .*$library"
done
dpkg-deb -e "$package" "$work/scripts"
for profile in fcapd minutes hours days; do
    has "$work/scripts/conffiles" "^/etc/fcapd/$profile\.yaml\$"
done
[ -x "$work/scripts/postinst" ] || failed "postinst cannot be run"
sh -n "$work/scripts/postinst"
dpkg-deb -x "$package" "$work/root"
runs "$work/root/usr/bin/fcapd" "$work/root/etc/fcapd"
! grep -rl -- "$build" "$work/root/etc" "$work/root/usr/share" || failed "names the build folder"
echo "result: $(basename "$package"): $files files, $checks checks"
