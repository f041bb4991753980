#!/bin/sh
# tests/package/installed.sh BUILD: dpkg itself installs, upgrades, removes and purges the package, in a
# root that is this machine's with an overlay in memory: nothing of it stays. Needs root. Exit
# code 77: cannot be done here.
set -eu
build=$1
cannot() {
    echo "skipped: $*"
    exit 77
}
failed() {
    echo "FAILED: $*"
    exit 1
}
[ "$(id -u)" = 0 ] || cannot "needs root"
for tool in cpack dpkg dpkg-shlibdeps setpriv; do
    command -v $tool >/dev/null || cannot "needs $tool"
done
if [ -z "${FCAP_PACKAGE_WORK:-}" ]; then
    unshare --mount true 2>/dev/null || cannot "needs a mount namespace (unshare --mount)"
    work=$(mktemp -d "${TMPDIR:-/tmp}/fcapd-installed-XXXXXX")
    trap 'rmdir "$work"' EXIT
    trap 'exit 1' INT TERM HUP
    FCAP_PACKAGE_WORK=$work unshare --mount --propagation private sh "$0" "$@"
    exit
fi

work=$FCAP_PACKAGE_WORK
mount -t tmpfs tmpfs "$work"
mkdir "$work/upper" "$work/overlay" "$work/root"
mount -t overlay overlay "$work/root" \
    -o "lowerdir=/,upperdir=$work/upper,workdir=$work/overlay" 2>/dev/null ||
    cannot "needs overlay mounts"
mount --bind /proc "$work/root/proc"
mount --bind /dev "$work/root/dev"
(cd "$work" && cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/cpack") \
    >"$work/cpack.log" 2>&1 || { cat "$work/cpack.log"; failed cpack; }
mkdir -p "$work/root/package"
cp "$work"/cpack/fcapd_*.deb "$work/root/package/fcapd.deb"

in_root() {
    chroot "$work/root" env PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
}
dpkg_does() {
    in_root dpkg "$@" >"$work/dpkg.log" 2>&1 </dev/null ||
        { cat "$work/dpkg.log"; failed "dpkg $*"; }
}
dpkg_does --install /package/fcapd.deb
in_root getent passwd fcapd | grep -q ':/var/lib/fcapd:/usr/sbin/nologin$' || failed "no account"
in_root fcapd version | grep -q '^fcapd ' || failed "fcapd version"
[ "$(in_root stat -c '%U:%G %a' /var/lib/fcapd)" = 'fcapd:fcapd 750' ] || failed /var/lib/fcapd
in_root setpriv --reuid fcapd --regid fcapd --clear-groups \
    sh -c 'touch /var/lib/fcapd/state && cat /etc/fcapd/days.yaml' >/dev/null ||
    failed "the account cannot write its state or read its configuration"

# An upgrade keeps what the operator wrote, the account, and the state.
echo '# ours' >>"$work/root/etc/fcapd/days.yaml"
id=$(in_root id -u fcapd)
dpkg_does --install /package/fcapd.deb
[ "$(tail -n 1 "$work/root/etc/fcapd/days.yaml")" = '# ours' ] || failed "days.yaml was replaced"
[ "$(in_root id -u fcapd)" = "$id" ] || failed "another account"

dpkg_does --remove fcapd
[ ! -e "$work/root/usr/bin/fcapd" ] || failed "the program is still there"
[ -f "$work/root/etc/fcapd/days.yaml" ] || failed "remove took the configuration"
dpkg_does --purge fcapd
[ ! -e "$work/root/etc/fcapd" ] || failed "purge left the configuration"
[ -e "$work/root/var/lib/fcapd/state" ] || failed "purge took the state"
echo "result: installed, upgraded, removed and purged by dpkg"
