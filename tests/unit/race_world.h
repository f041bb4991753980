/* The daemons beside a backfill: a model of what `run` does to Redis, one owner for each partition,
 * and the log that they read.
 *
 * A gate opens at most a second after its INCR was answered; fc:meta names it within 2.2 s and for
 * 10 s; an epoch that is not the next one after the stored one, or another Redis, makes it project
 * everything; a process that was stopped goes on for up to a session timeout, and asks anew after
 * that; woken, and after Redis was emptied, it shows itself before it is stopped. Values are
 * computed by brute force. Thread rule: one thread, one world. */
#ifndef FCAP_TESTS_RACE_WORLD_H
#define FCAP_TESTS_RACE_WORLD_H

#include "fcap/backfill.h"
#include "lab/oracle.h"
#include "lab/oracle_check.h"

#include "lib/fake_seed.h"
#include "lib/fake_spill.h"

enum {
    RACE_PARTITIONS = 3,
    RACE_USERS = 4, /* of each partition */
    RACE_ADS = 3,
    RACE_WINDOWS = 2,
    RACE_RECORDS_MAX = 800,
    RACE_SESSION_MS = 15000,
};

extern const struct fcap_window race_windows[RACE_WINDOWS];

struct race_shown {
    bool is_there;
    int64_t expire_at_ms;
    char text[64];
};

enum race_state { RACE_DOWN, RACE_LOADING, RACE_ASKED, RACE_OPEN };

/* The owner of one partition. */
struct race_owner {
    enum race_state state;
    bool is_stopped;
    bool is_unseen; /* fc:meta has not named it since it woke, or since Redis was emptied */
    int64_t stopped_ms;
    int64_t wake_ms;
    int64_t asked_ms;
    int64_t open_ms;
    int64_t meta_ms; /* next time that it publishes */
    size_t next;     /* records applied */
    size_t target;   /* of loading */
    uint64_t epoch;
    bool touched[RACE_USERS]; /* while the gate is closed */
    struct race_shown shown[RACE_USERS][RACE_WINDOWS];
    uint64_t projected; /* sentinel of the Redis that holds everything; 0: none */
    int64_t look_ms;    /* when it looks at the sentinel again */
    /* Committed. */
    size_t kept_next;
    uint64_t kept_epoch;
    uint64_t kept_projected;
    struct race_shown kept_shown[RACE_USERS][RACE_WINDOWS];
};

struct race_entry {
    int64_t time_ms;
    int user;
    int ad;
    bool is_tombstone;
};

/* What may be wrong, and what was seen to happen. */
struct race_score {
    uint64_t worlds; /* that were run */
    size_t worlds_wrong;
    size_t beside_open; /* transactions of a partition whose gate is open */
    size_t overwritten; /* values of a living owner, or any that existed */
    size_t revived;     /* keys that their owner has erased or never had */
    size_t lost;        /* keys of an owner that are gone */
    size_t false_values;
    size_t written;
    size_t kept;
    size_t finished;
    size_t killed;
    size_t foreign;
    size_t fenced;
    size_t open;
    size_t erased; /* tombstones applied by an owner after backfill had read the log */
};

/* One world. */
struct race_world {
    struct fcap_clock clock;
    int64_t now_ms;
    uint64_t random;
    struct fcap_fake_redis redis;
    struct fake_seed seed;
    struct fake_seed daemon; /* the client of all owners */
    struct fake_spill spill;
    struct race_entry logs[RACE_PARTITIONS][RACE_RECORDS_MAX];
    size_t ends[RACE_PARTITIONS];
    struct race_owner owners[RACE_PARTITIONS];
    struct fcap_backfill *backfill;
    bool is_reading;
    size_t read_to[RACE_PARTITIONS];
    size_t read_next[RACE_PARTITIONS];
    int64_t begin_ms;
    int64_t read_until_ms;
    int64_t ahead_ms; /* planted: how far its monotonic clock is ahead after the first step */
    bool forgets_session;
    bool opens_late;
    bool is_over;
    struct oracle *oracle;
    struct oracle_tally tally;
    struct race_score score;
    struct {
        char key[64];
        bool existed;
        uint64_t hash; /* of what was there */
    } touched[FCAP_BACKFILL_KEYS_MAX + FCAP_WINDOWS_MAX];
    size_t touched_count;
};

extern struct race_world race;

/* The clock of everybody. */
int64_t race_now_ms(struct fcap_clock *clock);
/* A number from 0 to bound - 1. */
uint32_t race_draw(uint32_t bound);
/* A key in Redis now. */
bool race_get(const char *key, struct fcap_bytes *ret_value);
void race_key(int partition, int user, int window, char key[64]);

/* A record more in the partition's log. */
void race_produce(int partition);
/* A process starts, from what was committed. */
void race_load(int partition);
/* The owner does what is due, or what chance wants. */
void race_step_owner(int partition);
/* This Redis holds all that it has sent. Emptied, it has no sentinel for a moment. */
bool race_holds_all(const struct race_owner *owner);
/* It may go on sending without asking anybody, and this Redis holds what it has sent: one that was
 * emptied meanwhile gets everything back within 2 s, whatever else was put there. */
bool race_is_live(const struct race_owner *owner);

#endif
