#include "mounts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool write_text(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    bool done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0) {
        (void)close(file); /* Written or not. */
    }
    return done;
}

static bool can_mount(void)
{
    const char *tmp = getenv("TMPDIR");
    char place[256];
    (void)snprintf(place, sizeof place, "%s/fcap-mount-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(place) == NULL) {
        return false;
    }
    bool can = mount("none", place, "tmpfs", 0, "size=1m") == 0 && umount2(place, 0) == 0;
    int code = errno;
    (void)rmdir(place); /* It is empty. */
    errno = code;
    return can;
}

bool mounts_enter(char *why, size_t why_size)
{
    char uid[64];
    char gid[64];
    (void)snprintf(uid, sizeof uid, "0 %u 1", (unsigned)geteuid());
    (void)snprintf(gid, sizeof gid, "0 %u 1", (unsigned)getegid());
    if (unshare(CLONE_NEWNS) != 0 &&
        (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 || !write_text("/proc/self/setgroups", "deny") ||
         !write_text("/proc/self/uid_map", uid) || !write_text("/proc/self/gid_map", gid))) {
        (void)snprintf(why, why_size, "no mount namespace: %s", strerror(errno));
        return false;
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || !can_mount()) {
        (void)snprintf(why, why_size, "no mount of a tmpfs: %s", strerror(errno));
        return false;
    }
    return true;
}

void mounts_tmpfs(const char *path, const char *options)
{
    if (mount("none", path, "tmpfs", 0, options) != 0) {
        fail_msg("mount %s: %s", path, strerror(errno));
    }
}

void mounts_tmpfs_room(const char *path, uint64_t bytes)
{
    struct statvfs info;
    char options[64];
    assert_int_equal(statvfs(path, &info), 0);
    uint64_t used = (uint64_t)(info.f_blocks - info.f_bfree) * info.f_frsize;
    (void)snprintf(options, sizeof options, "size=%" PRIu64, bytes == 0 ? used : bytes);
    if (mount(NULL, path, NULL, MS_REMOUNT, options) != 0) {
        fail_msg("remount %s, %s: %s", path, options, strerror(errno));
    }
}

void mounts_bind(const char *from, const char *path)
{
    if (mount(from, path, NULL, MS_BIND, NULL) != 0) {
        fail_msg("bind %s: %s", path, strerror(errno));
    }
}

bool mounts_read_only(const char *path, bool is_read_only)
{
    unsigned long flags = MS_REMOUNT | MS_BIND | (is_read_only ? MS_RDONLY : 0ul);
    if (mount(NULL, path, NULL, flags, NULL) == 0) {
        return true;
    }
    if (errno != EBUSY) {
        fail_msg("remount %s: %s", path, strerror(errno));
    }
    return false;
}

void mounts_detach(const char *path)
{
    if (umount2(path, MNT_DETACH) != 0) {
        fail_msg("unmount %s: %s", path, strerror(errno));
    }
}
