/* What the tests of gaps share: a topic that loses records on purpose, a daemon with a window of 4
 * s and one of an hour on it, and what must be said of a loss in every place. Thread rule: one
 * thread. */
#ifndef FCAP_TESTS_GAPS_FIXTURE_H
#define FCAP_TESTS_GAPS_FIXTURE_H

#include "run_fixture.h"

#define GAPS_WAIT_MS  40000
#define GAPS_LAG_MS   5000
#define GAPS_SKEW_MS  500   /* limits.max_future_skew: a short window passes a gap soon */
#define GAPS_SLACK_MS 60000 /* of the initial seek */
#define GAPS_SHORT_MS INT64_C(4000)
#define GAPS_LONG_MS  INT64_C(3600000)
#define GAPS_USERS    5 /* in each partition */

struct gaps_world {
    struct run_fixture fixture;
    int64_t written[RUN_PARTITIONS];     /* offsets of the topic as it is now */
    int64_t ever[RUN_PARTITIONS];        /* records ever: the oracle knows one endless log */
    int64_t stamps[RUN_PARTITIONS][200]; /* of the topic as it is now, by offset */
    int64_t last_stamps[RUN_PARTITIONS]; /* the last of the topic as it was before; -1: none */
};
extern struct gaps_world gaps;

/* Environments of the daemon. */
extern const char *const gaps_degrading[];
extern const char *const gaps_stopping[];

/* Makes topic, Redis and configuration with further YAML; a test's setup ends with it. */
int gaps_setup(const char *more);
int gaps_teardown(void **unused);

/* --- the topic --- */

/* `count` impressions of now in a partition; `lost`: they will never be read. */
void gaps_produce(int32_t partition, int count, bool lost);
/* The same number in each partition. */
void gaps_produce_all(int count);
/* The first `count` of the topic as it was: the oracle has them. */
void gaps_produce_again(int32_t partition, int count);
/* Another topic of the same name; `config` as in kafka_create_topic(). */
void gaps_recreate(const char *const *config);
/* Retention takes everything below an offset. */
void gaps_delete_below(int32_t partition, int64_t offset);

/* --- the daemon --- */

/* Starts it with on_gap: degrade, and waits until it is ready. */
void gaps_start(void);
/* Stops it in peace. */
void gaps_stop(void);
/* It ends by itself with 70, and says this in its log. */
void gaps_expect_stop(const char *text);
/* What fc:meta says of a partition; NULL: nothing. Valid until the next look. */
const char *gaps_meta(int32_t partition);
/* Waits until fc:meta claims everything that was written. */
void gaps_await_read(void);
/* Compares every key of both windows with the definition. */
void gaps_compare(void);
/* Whether the first user of a partition has a key. */
bool gaps_is_shown(int32_t partition, const char *window);
/* Whether a partition's text of fc:meta calls the window ready. */
bool gaps_is_ready(const char *text, const char *window);

/* --- what is lost --- */

/* As it must stand everywhere; -1 as documented. */
struct gaps_lost {
    const char *kind;
    int64_t first;
    int64_t last;
    int64_t next;
    int64_t from_ms;
    int64_t to_ms;
    bool is_same_log; /* the record behind it bounds its time */
};

/* The beginning of its text, up to the moment when it was noticed. */
void gaps_put_lost(const struct gaps_lost *lost, char text[320]);
/* Everything that is said of it agrees: fc:meta, /status, metrics and log. It was noticed after
 * `before_ms`. Gives its `since`. */
int64_t gaps_expect_lost(int32_t partition, const struct gaps_lost *lost, int64_t before_ms);
/* fcapd_gaps_total counts so many of this kind, and no others. */
void gaps_expect_counted(const char *kind, int count);
/* Watches fc:meta: it never calls the short window ready before its moment by Redis' clock, and
 * then does; the long one waits. */
void gaps_watch_readiness(int32_t partition, int64_t since_ms);

#endif
