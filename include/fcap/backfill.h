/* The plan of `fcapd backfill`: records in, Redis keys out, once, at one moment, in bounded memory
 * however long the history is.
 *
 *     read    records are judged by the rules of `run` and spilled to disk, by users
 *     wait    until every owner that was at work before us would have shown itself
 *     check   at T, each file is folded for nothing: whatever is wrong is found before Redis is
 *             touched, files that do not fit in memory are split, ads get their numbers
 *     write   each file is folded again and its values are written, behind the fence
 *
 * What must hold: no key of a partition with an open gate is written, an existing key is never
 * overwritten, and all windows of a user are written in one transaction. Whoever opens a gate has
 * incremented the partition's epoch (at most OPENING_MS before), and shows itself in Redis within
 * SHOWN_MS: so a partition that shows no owner is claimed by an increment of our own; owners
 * from then on are known by the epoch, which each transaction compares, and will project
 * everything, since theirs is not the next one; owners from before by what they show, once both
 * times have passed, and a session timeout where there may be one that was stopped. Not provided
 * for: one that is stopped again and again, each time before it has shown itself, and one that is
 * stopped about the time when Redis is emptied. No I/O but by the ports; time comes in. Thread
 * rule: one thread.
 */
#ifndef FCAP_BACKFILL_H
#define FCAP_BACKFILL_H

#include "fcap/event.h"
#include "fcap/pipeline.h"
#include "fcap/seed.h"
#include "fcap/spill.h"
#include "fcap/status.h"

/* From an owner's INCR to its first write: an older epoch opens no gate. */
#define FCAP_BACKFILL_OPENING_MS 1000
/* From there until it shows itself: its interval, and room for a slow moment. */
#define FCAP_BACKFILL_SHOWN_MS 4000
/* Between two looks for owners, at least; a look that takes long is made less often. */
#define FCAP_BACKFILL_LOOK_MS 1000
/* How far the clocks may be behind the begin before it is no use to wait for them. */
#define FCAP_BACKFILL_CLOCK_MS 60000
/* Keys of one transaction; a user's windows are not torn apart for it. */
#define FCAP_BACKFILL_KEYS_MAX 500

/* All borrowed; they outlive the backfill. */
struct fcap_backfill_ports {
    struct fcap_decoder *decoder;
    struct fcap_seed *seed;
    struct fcap_spill *spill;
};

/* Both clocks, read anew for each call, after the one before has returned. */
struct fcap_moment {
    int64_t wall_ms;      /* Unix epoch; may step in either direction */
    int64_t monotonic_ms; /* never goes back; the origin means nothing */
};

struct fcap_backfill;

/* Gives a backfill. Of the settings of `run` it takes: windows (those asked for), profile,
 * key_pattern, future_skew_ms, seek_slack_ms, check_keyed, user_from_key, serve_incomplete, dedup,
 * cache_bytes (what one fold may take), ads_per_user, value_bytes, session_timeout_ms (of the
 * daemons). CONFIG: the key pattern cannot be used. */
enum fcap_status fcap_backfill_open(const struct fcap_settings *settings,
                                    const struct fcap_backfill_ports *ports,
                                    struct fcap_backfill **ret_backfill,
                                    struct fcap_error *ret_error) FCAP_MUST_USE;

/* Frees it; NULL is fine. What was written stays; a claim needs no undoing. */
void fcap_backfill_close(struct fcap_backfill *backfill);

/* Why a call failed. Valid until the next call. */
const char *fcap_backfill_error(const struct fcap_backfill *backfill);

/* Whose own words say more about it. */
enum fcap_backfill_port { FCAP_BACKFILL_IN_CORE, FCAP_BACKFILL_IN_SEED, FCAP_BACKFILL_IN_SPILL };
enum fcap_backfill_port fcap_backfill_failed_in(const struct fcap_backfill *backfill);

/* The first call: looks who is at work and claims the other partitions. `records` is about how many
 * will be read (end - start, summed). T0 is this moment. RETRY: Redis is away, call it again.
 * LIMIT: the state of `run` has no room for so many partitions. */
enum fcap_status fcap_backfill_begin(struct fcap_backfill *backfill, int32_t partitions,
                                     uint64_t records, struct fcap_moment now) FCAP_MUST_USE;

/* From which record timestamp a partition is to be read: T0 less the longest window, the skew that
 * a producer's clock may have, and the slack. Unix epoch. */
int64_t fcap_backfill_seek_ms(const struct fcap_backfill *backfill);

/* False: the partition's gate is open, or was meanwhile; its records need not be read. */
bool fcap_backfill_wants(const struct fcap_backfill *backfill, int32_t partition);

/* One record, in offset order for each partition; borrowed for the call. Judged at once: a bad one
 * is counted, not reported. NO_SPACE: the disk is full. STOPPED: the topic is not keyed by user.
 * After a failure nothing but close makes sense; Redis is untouched. */
enum fcap_status fcap_backfill_record(struct fcap_backfill *backfill,
                                      const struct fcap_record *record,
                                      struct fcap_moment now) FCAP_MUST_USE;

/* To be called at least each second while records are read: looks for owners when it is time. RETRY
 * is information. FOREIGN: Redis was replaced or emptied; FATAL. */
enum fcap_status fcap_backfill_tick(struct fcap_backfill *backfill,
                                    struct fcap_moment now) FCAP_MUST_USE;

/* Every partition that is wanted has been read to the end that was seen at the begin.
 * complete_since_ms[p]: where the log began later than was sought, from when on nothing is missing
 * (its first record's time, the skew and the slack); else FCAP_TIME_NONE. A window that reaches
 * back beyond it is left out for that partition, or written with `serve_incomplete`. NULL: nothing
 * is missing anywhere. NO_SPACE, FATAL: as fcap_backfill_record. */
enum fcap_status fcap_backfill_read_done(struct fcap_backfill *backfill,
                                         const int64_t *complete_since_ms) FCAP_MUST_USE;

/* A bounded piece of what is left: waits (which costs no time here; see the report), folds, or
 * makes one transaction. The caller may stop between any two calls. RETRY: Redis is away, the same
 * is tried again by the next call; it is for the caller to pause and to give up. FATAL before
 * WRITING: Redis is untouched. LIMIT: one user's records do not fit in cache_bytes. STOPPED: not
 * keyed by user. FOREIGN: as tick. UNAVAILABLE also: the clocks are far behind the begin. */
enum fcap_status fcap_backfill_step(struct fcap_backfill *backfill, struct fcap_moment now,
                                    bool *ret_done) FCAP_MUST_USE;

enum fcap_backfill_phase {
    FCAP_BACKFILL_OPENED,
    FCAP_BACKFILL_READING,
    FCAP_BACKFILL_WAITING,
    FCAP_BACKFILL_CHECKING,
    FCAP_BACKFILL_WRITING,
    FCAP_BACKFILL_DONE,
};

/* What became of a partition. */
enum fcap_backfill_fate {
    FCAP_BACKFILL_CLAIMED, /* ours to write */
    FCAP_BACKFILL_OPEN,    /* left alone: it had an owner */
    FCAP_BACKFILL_FENCED,  /* left alone from then on: another owner took it */
};

/* Where it stands; the last one is the summary. */
struct fcap_backfill_report {
    enum fcap_backfill_phase phase;
    int64_t wait_ms; /* WAITING: about this long, as far as known; 0: for the clocks */
    uint64_t done;   /* CHECKING: records folded; WRITING: and written, by half each */
    uint64_t total;  /* of these */
    int64_t at_ms;   /* T, Unix epoch; 0: not taken yet */
    int32_t partitions;
    int32_t partitions_open;
    int32_t partitions_fenced;
    uint64_t records; /* read */
    uint64_t rejects[FCAP_REJECT_COUNT];
    uint64_t tombstones;
    uint64_t events;          /* counted at T, also of partitions that were left alone */
    uint64_t users;           /* shown: with at least one key */
    uint64_t keys_written;    /* did not exist before */
    uint64_t keys_kept;       /* existed */
    uint64_t keys_passed;     /* were not written: their PXAT has passed */
    uint64_t keys_incomplete; /* were not written: the log does not reach back far enough */
    uint64_t values_cut;      /* limits.value_bytes */
    uint32_t incomplete_mask; /* windows that some partition cannot fill */
    uint64_t splits;          /* files that did not fit in memory */
    uint64_t spill_bytes;     /* most room taken on disk */
    size_t fold_bytes;        /* most memory of a fold */
    size_t ads_bytes;         /* memory of the table of ads */
};

void fcap_backfill_report(const struct fcap_backfill *backfill,
                          struct fcap_backfill_report *ret_report);

/* What became of a partition so far. */
enum fcap_backfill_fate fcap_backfill_fate(const struct fcap_backfill *backfill, int32_t partition);

#endif
