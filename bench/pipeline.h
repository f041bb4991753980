/* What the files of fcapd-bench pipeline and load share: the whole way from a real Kafka through
 * the real daemon to a real Redis, under a backlog, at fixed rates, and behind a closed gate; and a
 * topic of days that `run` and `backfill` begin with.
 *
 * pipeline.c          the order of things and the report
 * load.c              the same of fcapd-bench load
 * pipeline_options.c  the command line
 * pipeline_world.c    servers, topic, daemon
 * pipeline_feed.c     produces, and remembers what Kafka has acknowledged
 * pipeline_reading.c  what the daemon and the kernel have counted at one moment
 * pipeline_check.c    every key against the definition
 *
 * Thread rule: main's thread. */
#ifndef FCAP_BENCH_PIPELINE_H
#define FCAP_BENCH_PIPELINE_H

#include "bench.h"

#include "lab/daemon_process.h"
#include "lab/impressions.h"
#include "lab/kafka_broker.h"
#include "lab/redis_reader.h"
#include "lab/redis_server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PIPELINE_WINDOWS    3
#define PIPELINE_RATES_MAX  8
#define PIPELINE_PARTITIONS 64 /* at most */
#define PIPELINE_STAGES_MAX 8
#define PIPELINE_BOUNDS_MAX 256

/* --- options --------------------------------------------------------------------------------- */

struct pipeline_options {
    uint32_t users;
    uint32_t ads;
    uint64_t events;                    /* of the backlog; the closed gate's: 1,000,000 at most */
    uint32_t rates[PIPELINE_RATES_MAX]; /* percent of the drained rate, ascending; 50 is there */
    size_t rate_count;
    int64_t seconds;                      /* how long each rate is measured */
    int64_t rounds;                       /* how often each command loads the topic */
    int64_t windows_ms[PIPELINE_WINDOWS]; /* ascending */
    int32_t partitions;
    uint32_t workers;
    size_t value_bytes;
    double exponent; /* Zipf */
    uint64_t keys_min;
    const char *program; /* the daemon; NULL: fcapd beside this program */
    const char *brokers; /* NULL: a broker of its own */
    const char *redis;   /* host:port; NULL: a server of its own */
    const char *directory;
    bool json;
};

struct world;

/* A command: its help, its options when nothing is said, and what it does. */
struct pipeline_command {
    const char *name;
    const char *usage;
    struct pipeline_options defaults;
    int (*run)(struct world *world); /* measures and tells; gives the exit code */
};

/* main() of a command: its options, a world, what it does there. Gives the exit code. */
int pipeline_main(const struct pipeline_command *command, int argc, char **argv);

/* False: `--help`, or a message was written; *ret_code is the exit code. */
bool pipeline_options_parse(const struct pipeline_command *command, int argc, char **argv,
                            struct pipeline_options *options, int *ret_code);

/* --- feed ------------------------------------------------------------------------------------ */

struct feed;

struct feed *feed_open(const struct pipeline_options *options, const char *brokers,
                       const char *topic);
void feed_close(struct feed *feed);
/* Produces `count` events as fast as it goes, event time and timestamp are now; all are
 * acknowledged when it returns. */
void feed_burst(struct feed *feed, uint64_t count);
/* The same with times that run evenly from span_ms ago to now. */
void feed_history(struct feed *feed, uint64_t count, int64_t span_ms);
/* Produces evenly for duration_ms; what is behind is caught up at once. */
void feed_paced(struct feed *feed, uint64_t per_second, int64_t duration_ms);
/* Waits for acknowledgements. */
void feed_flush(struct feed *feed);

uint64_t feed_count(const struct feed *feed);
/* The end offset of a partition as acknowledged. */
int64_t feed_end(const struct feed *feed, int32_t partition);
/* The newest event time. */
int64_t feed_newest_ms(const struct feed *feed);

struct feed_event {
    int64_t time_ms;
    int64_t offset; /* -1: not acknowledged yet */
    uint32_t user;  /* number of "u<number>" */
    uint16_t ad;    /* the same */
    int16_t partition;
};
/* Of a partition in order of offsets, as the index grows. */
const struct feed_event *feed_event_at(const struct feed *feed, uint64_t index);

/* --- world ----------------------------------------------------------------------------------- */

struct world {
    struct pipeline_options options;
    struct kafka_broker *broker; /* NULL: given */
    struct redis_server redis;   /* pid 0: given */
    struct redis_reader *reader;
    char brokers[256];
    char redis_host[128];
    uint16_t redis_port;
    char topic[64];
    char profile[32];
    char prefix[24]; /* of the keys: <prefix>:{user}:window */
    char window_names[PIPELINE_WINDOWS][16];
    char program[512];
    struct daemon_process daemon;
    struct feed *feed;
};

/* SIGINT and SIGTERM end the process by exit(), which stops and removes what was made. */
void world_end_on_signals(void);
void world_open(struct world *world, const struct pipeline_options *options);
/* Stops and removes everything that it made. */
void world_close(struct world *world);
/* Starts the daemon and waits until all gates are open. */
void world_start(struct world *world);
/* SIGTERM; it must end with 0. */
void world_stop(struct world *world);
/* Nothing is left of what daemons have done: neither state nor keys. None runs. */
void world_forget(struct world *world);
/* Waits until fc:meta claims everything that was acknowledged. */
void world_await_applied(struct world *world);
/* "60s", "1500ms". */
void world_window_name(int64_t length_ms, char *text, size_t size);

/* --- readings -------------------------------------------------------------------------------- */

/* Threads of the daemon by what they do; the rest of the process is OTHER. */
enum thread_group { THREADS_WORKER, THREADS_KAFKA, THREADS_STORE, THREADS_OTHER, THREADS_COUNT };

struct delays {
    double counts[PIPELINE_BOUNDS_MAX]; /* up to and including the bound */
    double bounds_s[PIPELINE_BOUNDS_MAX];
    size_t count;
};

struct reading {
    double wall_s;
    double cpu_s;                    /* the daemon's, all threads, ended ones too */
    double threads_s[THREADS_COUNT]; /* of those that live */
    double redis_cpu_s;
    double broker_cpu_s;
    double feed_cpu_s; /* of this process: it produces */
    double records;
    double events;
    double late;
    double expiries;
    double underflows;
    double writes; /* commands that Redis has done */
    double sets;
    double push_backlog;
    double gates_open;
    double projections; /* partitions whose users all go to Redis once more */
    double stages_s[PIPELINE_STAGES_MAX];
    char stage_names[PIPELINE_STAGES_MAX][16];
    size_t stage_count;
    struct delays freshness;
    struct delays lateness;
};

/* Everything now; false: the daemon does not answer. */
bool reading_take(struct world *world, struct reading *ret_reading);
/* The delay that the share `q` of what came between the readings did not exceed: the upper bound of
 * its bucket, ms; -1: nothing came. */
double reading_quantile_ms(const struct delays *before, const struct delays *after, double q);

/* --- check ----------------------------------------------------------------------------------- */

struct check_result {
    uint64_t compared; /* keys that were there */
    uint64_t absent;   /* user x window without a key, compared too */
    uint64_t mismatches;
    char text[4096]; /* the first of them */
};

/* Reads each user x window from Redis once and compares it with the definition over what Kafka has
 * acknowledged: as it may be now, at its own as_of, and its PXAT; and looks for keys that should
 * not be there. `delay_ms`: no event was counted later than this after its time. Adds to the
 * result. */
void check_all(struct world *world, int64_t delay_ms, struct check_result *result);
/* The same for values that stand still: each is compared as of at_ms. */
void check_at(struct world *world, int64_t at_ms, struct check_result *result);

#endif
