/* Shared by the RocksDB store's integration tests: directories, commits, child processes. */
#ifndef STORE_ROCKSDB_HELP_H
#define STORE_ROCKSDB_HELP_H

#include "fcap/store_rocksdb.h"

#include <sys/types.h>

enum { HELP_DEADLINE_S = 60 };

/* A new directory, lab_folder_make(); removed with everything in it by help_remove. */
void help_make(char ret_directory[64]);
void help_remove(const char *directory);

/* Small settings for `directory`. */
struct fcap_store_settings help_settings(const char *directory);

/* Opens or fails the test with the error's text. */
struct fcap_store_rocksdb *help_open(const struct fcap_store_settings *settings);

/* Opens and expects `status` and each of the texts (up to three, NULL ends) in the error. */
void help_refused(const struct fcap_store_settings *settings, enum fcap_status status,
                  const char *text, const char *second);

/* Submits and waits; gives the result. */
enum fcap_status help_commit(struct fcap_store *store, const struct fcap_batch *batch);

/* Partition 1's numbered batch under assignment 1: the number as be64 under "n" in all families,
 * and `filler_bytes` that do not compress under a users key of their own. */
void help_number(struct fcap_batch *batch, uint64_t number, size_t filler_bytes);

/* The number that all four families agree on; fails the test when they do not. */
uint64_t help_agreed(struct fcap_store *store);

/* A timer's key. */
struct fcap_bytes help_timer(struct fcap_buffer *key, uint64_t bucket_ms, uint64_t commit);

/* Commits timers in buckets first, first + step ... below last: one of `bytes` each. */
void help_timers(struct fcap_store *store, uint64_t first_ms, uint64_t last_ms, uint64_t step_ms,
                 size_t bytes);

/* Waits until every sync is done. */
void help_sync(struct fcap_store *store);

/* Runs this program again as "<program> <mode> <directory>"; *ret_output reads its stdout. */
pid_t help_spawn(const char *mode, const char *directory, int *ret_output);

/* SIGKILLs (0: waits for its end) and collects. */
void help_kill(pid_t child, bool wait_only);

/* Milliseconds, monotonic. */
int64_t help_now_ms(void);

#endif
