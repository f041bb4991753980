/* The counts of many users at one moment, from their records in order of arrival, without timers
 * and without state: what backfill makes of each spilled file.
 *
 * What must hold: a value built here has the bytes that a pipeline whose clock stands at `at_ms`
 * and that started from nothing would push after the same records. The order of one user's records
 * decides (tombstones, duplicates, limits); that of different users only numbers the ads. Memory
 * follows users, their ads and the ids known for duplicates, not events, and stays below a bound.
 * Thread rule: one thread. */
#ifndef FCAP_FOLD_H
#define FCAP_FOLD_H

#include "fcap/event.h"
#include "fcap/pipeline.h"
#include "fcap/status.h"

/* --- ads ----------------------------------------------------------------------------------- */

/* The ads of all partitions, shared by the folds of one backfill. A value names its ads in the
 * order in which their first counted events stand in the partition, and no single file of users
 * knows that order. So all files are folded once into an open table, which learns it; then the
 * table is sealed and gives the final numbers. The whole table is in memory, as the daemon's is. */
struct fcap_fold_ads;

/* Gives an empty, open table. The process ends when memory is exhausted. */
struct fcap_fold_ads *fcap_fold_ads_open(void);

/* Frees it; NULL is fine. Folds that borrow it must be closed before. */
void fcap_fold_ads_close(struct fcap_fold_ads *ads);

/* Numbers the ads of each partition by their first counted events and takes no further ads. Values
 * of folds opened before are no longer defined: close them first. */
void fcap_fold_ads_seal(struct fcap_fold_ads *ads);

/* Memory of the table, bytes. */
size_t fcap_fold_ads_bytes(const struct fcap_fold_ads *ads);

/* --- one fold ------------------------------------------------------------------------------ */

struct fcap_fold_settings {
    const struct fcap_window *windows; /* copied at open */
    size_t window_count;               /* 1 to FCAP_WINDOWS_MAX */
    int64_t at_ms;                     /* T, Unix epoch: counts are those of this moment */
    size_t ads_per_user;               /* limits.ads_per_user */
    size_t value_bytes;                /* limits.value_bytes */
    size_t bytes_max;                  /* memory that users and ids may take */
    bool dedup;                        /* event.id is configured */
    bool check_keyed;          /* kafka.keyed: check; else a user of two partitions is two users */
    struct fcap_fold_ads *ads; /* borrowed; outlives the fold */
};

struct fcap_fold;

/* Gives a fold without users. The process ends when memory is exhausted. */
struct fcap_fold *fcap_fold_open(const struct fcap_fold_settings *settings);

/* Frees it; NULL is fine. */
void fcap_fold_close(struct fcap_fold *fold);

/* Where an event stands in the topic. */
struct fcap_fold_place {
    int32_t partition; /* 0 to FCAP_PARTITION_MAX */
    int64_t offset;    /* >= 0; ads are ordered by it */
};

/* Counts one event or erases its user (a tombstone: an id that is sent again stays known). Borrows
 * the event for the call. OK: *ret_reject is NONE, LATE, DUPLICATE or ADS_LIMIT. LIMIT: it would
 * take more than bytes_max; nothing was changed. STOPPED: the user is known from another partition,
 * nothing was changed. CORRUPT: the table of ads is sealed and lacks the ad. */
enum fcap_status fcap_fold_add(struct fcap_fold *fold, struct fcap_fold_place place,
                               const struct fcap_event *event,
                               enum fcap_reject *ret_reject) FCAP_MUST_USE;

/* Users met, also those without counts. */
size_t fcap_fold_users(const struct fcap_fold *fold);

/* Memory that counts against bytes_max, without the table of ads. */
size_t fcap_fold_bytes(const struct fcap_fold *fold);

/* One of the users, by index, in order of their partitions; the first call puts them in order, and
 * fcap_fold_add may not be called any more. The id is valid until the fold is closed. */
void fcap_fold_user(struct fcap_fold *fold, size_t index, int32_t *ret_partition,
                    struct fcap_bytes *ret_user);

/* What is to be shown of one user and window. */
struct fcap_fold_value {
    int64_t expire_at_ms; /* PXAT, Unix epoch */
    bool is_cut;          /* ads were left out for value_bytes */
};

/* Appends the value of the user of this index in a window; false, and nothing is appended, when
 * there is nothing to show. */
bool fcap_fold_value(struct fcap_fold *fold, size_t index, size_t window,
                     struct fcap_buffer *buffer, struct fcap_fold_value *ret_value);

#endif
