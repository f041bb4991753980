/* File systems that a test mounts: in a mount namespace of its own, so that they are gone with the
 * process, however it ends. What is not said to return a failure fails the test. Thread rule: one
 * thread. */
#ifndef FCAP_TESTS_MOUNTS_H
#define FCAP_TESTS_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Enters such a namespace, without root one of users, too. To be called before there is a second
 * thread. False when nothing can be mounted; `why` says it. */
bool mounts_enter(char *why, size_t why_size);

/* A small file system at `path`: "size=1m,nr_inodes=12". */
void mounts_tmpfs(const char *path, const char *options);
/* Its room in bytes from now on; 0: no more than what is in it, so that it is full. */
void mounts_tmpfs_room(const char *path, uint64_t bytes);
/* The folder `from` shows at `path`. */
void mounts_bind(const char *from, const char *path);
/* The file system at `path` may be written, or not; false: it is busy. */
bool mounts_read_only(const char *path, bool is_read_only);
/* Takes away what is mounted at `path`, whoever has files open in it. */
void mounts_detach(const char *path);

#endif
