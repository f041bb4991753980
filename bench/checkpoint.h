/* What the files of fcapd-bench checkpoint share. Thread rule: main's thread, but for the watcher,
 * which the store's writer calls. */
#ifndef FCAP_BENCH_CHECKPOINT_H
#define FCAP_BENCH_CHECKPOINT_H

#include "engine.h"

#include "fcap/checkpointer.h"
#include "fcap/restore.h"

#include <pthread.h>

#define CHECKPOINT_STAGES_MAX    5
#define CHECKPOINT_INTERVAL_MS   250
#define CHECKPOINT_COMMIT_EVENTS 1000
#define CHECKPOINT_COUNT_MIN     3 /* checkpoints, and snapshots, that a measurement must see */
#define CHECKPOINT_TOLERANCE     1.2
#define CHECKPOINT_ROUNDS_MAX    9

struct checkpoint_options {
    uint64_t users; /* of the first stage */
    uint64_t growth;
    uint64_t ads; /* a user, and events of one visit */
    uint64_t rate;
    uint64_t rate_limit_mib;
    uint64_t steps;  /* timed in a round, of each part */
    uint64_t rounds; /* of all parts in turn */
    bool json;
    const char *directory;
};

/* One key that a batch has changed. */
struct checkpoint_change {
    uint64_t key; /* hash of family and key */
    uint64_t sequence;
    uint64_t size; /* key and value, bytes */
};

/* The store's follower: notes what batches change, and tells the checkpointer. */
struct watcher {
    struct fcap_store_follower next;
    pthread_mutex_t lock;
    struct checkpoint_change *changes;
    size_t count;
    size_t capacity;
    struct fcap_checkpoint_state_ops ops; /* the store's, but for follow() */
};

struct step_times {
    uint32_t *us;
    size_t count;
    size_t capacity;
};

struct step_quantiles {
    size_t count;
    double rate; /* events a second that came in meanwhile */
    double p50_us;
    double p99_us;
    double p999_us;
    double max_us;
};

enum checkpoint_part {
    CHECKPOINT_OFF,
    CHECKPOINT_CHANGELOG,
    CHECKPOINT_SNAPSHOTS,
    CHECKPOINT_PARTS
};

struct stage {
    uint64_t users;
    uint64_t events; /* in the state's history, at the stage's end */
    uint64_t live_bytes;
    uint64_t compaction_bytes;
    /* Changelog alone: an interval at the nominal rate. */
    uint64_t checkpoints;
    uint64_t checkpoint_events; /* that all of them cover */
    double changelog_bytes;
    double manifest_bytes;
    double changed_bytes;
    double changed_keys;
    double checkpoint_ms;
    double checkpoint_ms_max;
    /* The first snapshot since the state has grown, then one after the other. */
    uint64_t first_files;
    uint64_t first_bytes;
    uint64_t first_ms;
    uint64_t snapshots;
    double snapshot_files;
    double snapshot_files_kept;
    double snapshot_bytes;
    double snapshot_ms;
    uint64_t restored_bytes;
    double restore_s;
    bool is_equal; /* what was restored, key by key */
};

struct checkpoint_bench {
    struct world world; /* first */
    struct checkpoint_options options;
    char state_directory[512];
    char objects_directory[512];
    char restored_directory[512];
    struct fcap_store_settings store_settings;
    struct fcap_objects *objects;
    uint32_t *visits; /* the history: user after user */
    size_t visit_count;
    size_t visit_capacity;
    uint64_t users;  /* so far */
    uint64_t cursor; /* the next one that comes back */
    struct stage stages[CHECKPOINT_STAGES_MAX];
    size_t stage_count;
    double replay_s;
    /* On the state of the last stage: all rounds together, and the p99 of each. */
    struct step_quantiles steps[CHECKPOINT_PARTS];
    double p99_us[CHECKPOINT_PARTS][CHECKPOINT_ROUNDS_MAX];
    uint64_t snapshots_timed;
    bool is_timed; /* steps are; nobody but the checkpointer follows the batches */
    struct fcap_error error;
};

/* What is seen while steps are taken. */
struct watch {
    struct step_times *times; /* NULL: nobody asks how long they took */
    struct fcap_checkpoint_metrics begin;
    struct fcap_checkpoint_metrics now;
    double duration_ms; /* of all checkpoints */
    double duration_ms_max;
    uint64_t number;
};

/* A running store with its pipeline and, if wanted, a checkpointer. */
struct running {
    struct fcap_store_rocksdb *db;
    struct fcap_pipeline *pipeline;
    struct fcap_checkpoint_state_rocksdb state;
    struct fcap_checkpointer *checkpointer; /* NULL: off */
    struct watcher watcher;
};

/* checkpoint_options.c */
bool checkpoint_options_parse(int argc, char **argv, struct checkpoint_options *options);

/* checkpoint_run.c: opening and closing, and steps. */
void checkpoint_bench_init(struct checkpoint_bench *bench);
/* So many warm up, so many are measured at least, and so many the short window holds. */
uint64_t checkpoint_phase_events(const struct checkpoint_options *options);
/* So many come in an interval at the nominal rate. */
uint64_t checkpoint_interval_events(const struct checkpoint_options *options);
/* The events of so many new users, or of users that come back, are next. */
void checkpoint_add_new(struct checkpoint_bench *bench, uint64_t count);
void checkpoint_add_returning(struct checkpoint_bench *bench, uint64_t count);
/* `snapshot_interval_ms`: 0: no checkpointer. close() is always called. */
enum fcap_status checkpoint_open(struct checkpoint_bench *bench, struct running *running,
                                 int64_t snapshot_interval_ms);
/* Commits everything, ends the checkpointer, closes. Gives the first failure, `status` if it is
 * one. */
enum fcap_status checkpoint_close(struct checkpoint_bench *bench, struct running *running,
                                  enum fcap_status status);
/* Steps until all events are taken. */
enum fcap_status checkpoint_run_all(struct checkpoint_bench *bench, struct running *running);
/* Takes the events of one small step and waits for its time. Gives how long it took, waiting for
 * the store included, for its time not. */
enum fcap_status checkpoint_turn(struct checkpoint_bench *bench, struct running *running,
                                 double *due_s, double *ret_s);
double checkpoint_seconds(void);

/* checkpoint.c: a running one warms up, and waits for a first checkpoint and snapshot; then takes
 * steps: enough events for a phase and enough of what the part is about, or, when they are timed,
 * so many steps that count. */
enum fcap_status checkpoint_warm_up(struct checkpoint_bench *bench, struct running *running);
enum fcap_status checkpoint_measure(struct checkpoint_bench *bench, struct running *running,
                                    enum checkpoint_part part, struct watch *watch);
extern const int64_t checkpoint_snapshot_interval_ms[CHECKPOINT_PARTS + 1];

/* checkpoint_pauses.c: times the steps of all parts. */
enum fcap_status checkpoint_time_steps(struct checkpoint_bench *bench);

/* checkpoint_watch.c */
void watcher_init(struct watcher *watcher);
void watcher_done(struct watcher *watcher);
/* Puts itself between the store and whoever follows this state. */
void watcher_follow(struct watcher *watcher, struct running *running);
/* Keys and bytes that the batches after `from`, up to `through`, have changed, each key once. */
void watcher_changed(struct watcher *watcher, uint64_t from, uint64_t through, double *ret_keys,
                     double *ret_bytes);
void step_times_add(struct step_times *times, double seconds);
/* Sorts them. */
struct step_quantiles step_times_quantiles(struct step_times *times);
void step_times_done(struct step_times *times);

/* checkpoint_report.c */
void checkpoint_print(const struct checkpoint_bench *bench);
/* Says what is not as it must be; true when all is well. */
bool checkpoint_is_well(const struct checkpoint_bench *bench);

#endif
