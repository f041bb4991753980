/* The deterministic simulator: one seed is one world, in which the real core runs on fake ports.
 *
 * A world has one topic, one Redis, one or two processes with a store each, and workers (pipelines)
 * that own partitions of the topic. The simulator owns every clock and draws every fault from the
 * seed. A seed goes through safety (faults, checks after most steps), liveness (faults off: it must
 * settle), rest (every key, also those that should not exist) and promptness (1 ms around due
 * moments).
 *
 * Not injected: a store that loses a synced batch or returns wrong bytes; commands done twice or
 * acknowledged out of order by Redis; a broker that reorders or changes records, or loses some that
 * were sent to Redis and not committed; a new log that nobody notices; partitions that are added
 * while clocks or timestamps are wrong; abandoned connections of our own name (the adapter's
 * tests have that one: ZOMBIE); two configurations of windows at work at the same time; memory
 * that runs out. Thread rule: one thread. */
#ifndef FCAP_TESTS_SIM_H
#define FCAP_TESTS_SIM_H

#include "fcap/backfill.h"
#include "fcap/meta.h"
#include "fcap/mutant.h"
#include "fcap/pipeline.h"
#include "lib/fake_sink.h"
#include "lib/fake_source.h"
#include "lib/fake_store.h"

#define SIM_PARTITIONS_MAX 4
#define SIM_USERS_MAX      8
#define SIM_ADS_MAX        64
#define SIM_POOL_MAX       5 /* window lengths to choose from */
#define SIM_WORKERS_MAX    4
#define SIM_PROCESSES_MAX  2
#define SIM_NEVER          INT64_MIN

/* --- what is counted --- */

/* clang-format off */
#define SIM_FAULT_LIST(X)                                                                        \
    X(CRASH,            60,  "processes killed")                                                 \
    X(MACHINE_CRASH,    40,  "machines lost power, with commits that were not synced")           \
    X(STOP,             30,  "processes stopped in peace")                                       \
    X(LONG_DOWNTIME,    30,  "long downtimes")                                                   \
    X(WINDOW_CHANGE,    60,  "restarts with other windows")                                      \
    X(MOVE,             80,  "partitions moved")                                                 \
    X(LOSE,             40,  "partitions lost and given again")                                  \
    X(PAUSE,            40,  "workers stopped while another owner took over")                    \
    X(MAY_NOT_SEND,     60,  "spells in which nothing may be sent")                              \
    X(COMMIT_FAIL,      150, "commits failed before they were applied")                          \
    X(COMMIT_LIE,       150, "commits applied but reported failed")                              \
    X(COMMIT_DELAY,     400, "commits that took their time")                                     \
    X(SYNC_DELAY,       300, "syncs that took their time")                                       \
    X(LINGER,           300, "timers that might have been dropped and stayed")                   \
    X(REDIS_EMPTY,      30,  "Redis restarted empty")                                            \
    X(REDIS_FLUSH,      30,  "FLUSHALL on living connections")                                   \
    X(REDIS_FAILOVER,   30,  "failovers that lost the newest commands")                          \
    X(REDIS_OLD,        20,  "old snapshots restored")                                           \
    X(REDIS_DOWN,       40,  "Redis away for a while")                                           \
    X(REDIS_FULL,       30,  "spells in which Redis refused SET")                                \
    X(BREAK,            80,  "connections broken with commands in flight")                       \
    X(ABANDONED,        500, "connections of another owner that worked on after they were left") \
    X(SINK_SLOW,        400, "polls in which Redis was slow")                                    \
    X(SINK_BUSY,        150, "pushes answered BUSY")                                             \
    X(SINK_REFUSE,      80,  "commands refused")                                                 \
    X(WALL_BACK,        60,  "wall clocks set back")                                             \
    X(WALL_FORWARD,     60,  "wall clocks set forward")                                          \
    X(REDIS_CLOCK,      50,  "Redis clocks set")                                                 \
    X(REDELIVER,        60,  "records delivered again")                                          \
    X(HOLD,             50,  "partitions without a leader or with an open transaction")          \
    X(SLOW_LOOKUP,      300, "starts that were looked up for long")                              \
    X(LETTERS_BUSY,     60,  "dead-letter topics that took nothing for a while")                 \
    X(TIGHT_CACHE,      500, "worlds with a cache of a few users")                               \
    X(TRIM,             30,  "records taken by retention")                                       \
    X(RECREATE,         12,  "topics created anew")                                              \
    X(TRUNCATE,         80,  "logs that lost their end")                                         \
    X(GROW,             80,  "partitions added to the topic")

/* What must have happened in a run of many seeds, beside the faults. */
#define SIM_EVENT_LIST(X)                                                                        \
    X(CRASH_BEFORE_COMMIT,  "crashes between ack and commit")                                    \
    X(LOST_COMMITS,         "commits lost with a machine")                                       \
    X(REFUSED_SECTIONS,     "sections of an ended assignment refused by a store")                \
    X(REPLAYED,             "partitions that started without state and looked back")             \
    X(STALE_STATE,          "states kept unassigned until their timers had been dropped")        \
    X(AGAIN,                "states read anew for a longer window")                              \
    X(AGAIN_LOST,           "states that a crash or a refusal kept from being read anew")        \
    X(AGAIN_REFUSED,        "processes that would have lost history by it")                      \
    X(CLOSED_COMMIT,        "commits with a gate closed")                                        \
    X(SECOND_LOOK,          "second looks that came due")                                        \
    X(UNKNOWN_ACK,          "pushes of unknown fate")                                            \
    X(REFUSED_ACK,          "pushes refused")                                                    \
    X(EVICTION,             "records evicted")                                                   \
    X(BACKPRESSURE,         "steps without records")                                             \
    X(CLOCK_HELD,           "steps in which T waited for Redis TIME")                            \
    X(TIME_UNKNOWN,         "steps before the first Redis TIME")                                 \
    X(FULL_PROJECTION,      "complete projections")                                              \
    X(BUILT,                "events added to windows being built")                               \
    X(REDO,                 "timer events redone")                                               \
    X(DROPPED,              "timers dropped")                                                    \
    X(FUTURE,               "records refused as future")                                         \
    X(LATE,                 "records late for every window")                                     \
    X(DUPLICATE,            "duplicates")                                                        \
    X(REDELIVERED,          "records below the next offset")                                     \
    X(TOMBSTONE,            "tombstones")                                                        \
    X(MALFORMED,            "malformed records")                                                 \
    X(UNLINK,               "UNLINK sent")                                                       \
    X(GAP,                  "gaps")                                                              \
    X(OTHER_LOG,            "states that met another log, or less of theirs")                    \
    X(ADS_LIMIT,            "records beyond the limit of ads")                                   \
    X(REBUILT,              "partitions rebuilt after another hand had changed keys")            \
    X(STALE_PRODUCER,       "records by producers that had not learned of new partitions")       \
    X(GROWN_KEY,            "keys compared that other partitions than now had written")
/* clang-format on */

enum sim_fault {
#define X(name, rate, text) SIM_FAULT_##name,
    SIM_FAULT_LIST(X)
#undef X
        SIM_FAULT_COUNT
};

enum sim_event {
#define X(name, text) SIM_EVENT_##name,
    SIM_EVENT_LIST(X)
#undef X
        SIM_EVENT_COUNT
};

/* The score of a run of seeds. */
struct sim_score {
    uint64_t seeds;
    uint64_t steps;
    uint64_t checks[6]; /* by enum sim_check */
    uint64_t faults[SIM_FAULT_COUNT];
    uint64_t events[SIM_EVENT_COUNT];
};

enum sim_check {
    SIM_CHECK_PUSH,   /* a value when it is sent */
    SIM_CHECK_STATE,  /* a record against the definition */
    SIM_CHECK_CLAIM,  /* a key against what readers are told */
    SIM_CHECK_COMMIT, /* a key before the commit that covers it is written */
    SIM_CHECK_REST,   /* a key at rest */
    SIM_CHECK_PROMPT, /* a key around a due moment */
};

/* --- the topic and its definition --- */

enum sim_kind { SIM_SKIP, SIM_EVENT, SIM_TOMBSTONE, SIM_MALFORMED };

struct sim_record {
    enum sim_kind kind;
    int user;
    int ad;
    int64_t time_ms;
    uint32_t id;
    bool is_copy; /* some earlier record has this id */
    int64_t timestamp_ms;
    uint64_t serial;     /* in which order records came to the topic */
    int64_t appended_ms; /* true time */
};

struct sim_log {
    struct sim_record *records; /* by offset */
    size_t count;
    size_t capacity;
};

/* A topic may be created anew, or lose its end: another life begins. Records are noted in one list
 * for ever; this says which of them stands at which offset of one life. */
struct sim_life {
    int64_t *noted;
    size_t count;
    size_t capacity;
    int64_t limit; /* the first record noted in the next life; -1: this one goes on */
};

#define SIM_LIVES_MAX    32
#define SIM_SWITCHES_MAX 64

struct sim_offsets {
    int32_t *offsets;
    size_t count;
    size_t capacity;
};

/* What one process's state of one partition consists of. Decisions that the definition leaves to
 * the moment of reading (the future rule with CreateTime) are noted as they are made; a record
 * that is read again after a crash is decided again. */
struct sim_lineage {
    int partition;
    int64_t start;      /* the first record that was read */
    int64_t future_ms;  /* a later event was no reason to read a record before it */
    int64_t begun_ms;   /* the later of the clocks that its worker had read when it began */
    uint8_t *decisions; /* by noted record, enum sim_decision */
    size_t capacity;
    int life; /* of the log that its offsets speak of */
    struct sim_switch {
        uint64_t commit; /* commits after this one speak of the next life */
        int before;
    } switches[SIM_SWITCHES_MAX];
    size_t switch_count;
    bool may_double; /* nothing was left to compare with: records may have been read twice */
    struct sim_lineage *before; /* the state that is being read anew, until that is committed */
    uint64_t before_commit;     /* its newest commit */
};

/* What a window holds of a state: records below `next` (noted) with later times. */
struct sim_moment {
    int64_t since_ms;
    int64_t next;
};

enum sim_decision {
    SIM_ACCEPTED,
    SIM_REFUSED, /* by the future rule */
    SIM_UNREAD,  /* it went with its log, which this state has not read */
    SIM_LOST,    /* retention took it first, or it went with the log that was being read */
};

struct sim_counts {
    uint32_t ads[SIM_ADS_MAX];
    bool any;
    int64_t newest_ms; /* of what counts; SIM_NEVER: nothing */
};

/* --- workers --- */

struct sim_task {
    bool known; /* assigned, and not revoked */
    uint64_t assignment;
    enum fcap_start_kind start;
    int64_t future_ms;         /* of a start by time */
    struct fcap_log_mark mark; /* the highest that it knew at its start; offset 0: none */
    bool started;
    int64_t began; /* the first record (noted) that this assignment reads */
    int64_t next;
    bool gate_open;
    int64_t gate_opened_ms; /* monotonic */
    bool epoch_asked;
    uint64_t epoch_token; /* of the push that asked for the epoch last */
    int64_t epoch_ms;     /* when it was answered, monotonic */
    uint64_t epoch_connection;
    bool second_seen;
};

struct sim_world;

struct sim_clock {
    struct fcap_clock clock; /* first */
    struct sim_world *world;
    int64_t offset_ms; /* wall clock - true time */
    int64_t told_ms;   /* the wall clock as it was read last */
    unsigned reads;    /* since the step began */
    int64_t passed_ms; /* by these, since then */
};

struct sim_letters {
    struct fcap_dead_letters letters; /* first */
    struct sim_worker *worker;
    uint64_t ticket;
    uint64_t done;
};

struct sim_worker {
    struct fcap_source source_port; /* first */
    struct sim_world *world;
    int index;
    int process;
    bool open;
    int counted;  /* partitions, as it was told last */
    bool reading; /* a record is being delivered */
    int sending;  /* the partition of the push under way */
    bool left;    /* a partition was lost while commands of it were in flight */
    bool paused;
    int64_t paused_until_ms; /* monotonic */
    int64_t silent_until_ms; /* may not send until then */
    int64_t stepped_ms;      /* when it was served last, monotonic */
    struct fcap_pipeline *pipeline;
    struct fake_source source;
    struct fcap_source_handler handler; /* what the pipeline gave */
    struct sim_sink {
        struct fcap_sink port; /* first */
        struct sim_worker *worker;
    } sink_port;
    struct fcap_fake_sink sink;
    struct fcap_sink_handler sink_handler; /* what the pipeline gave */
    uint64_t polled_connection;            /* the one that was served last */
    int64_t redis_told_ms;                 /* Redis TIME as it was told last */
    struct sim_letters letters;
    struct fcap_counters seen; /* counters as they were summed up last */
    size_t users_seen;         /* cached users then; 0 after some have gone with their task */
    struct sim_task tasks[SIM_PARTITIONS_MAX];
};

struct sim_process {
    bool up;
    int64_t up_at_ms; /* monotonic; when it comes back */
    struct fake_store *store;
    struct fake_store_hooks hooks;
    struct sim_clock clock;
    struct fake_store_counts seen;
    struct sim_lineage lineages[SIM_PARTITIONS_MAX];
    bool closing; /* commits are not written any more */
};

struct sim_window {
    int64_t length_ms;
    char name[FCAP_WINDOW_NAME_MAX + 1];
};

/* How one seed's world looks; drawn, or set by a scenario. */
struct sim_plan {
    int partitions;
    int processes;
    int workers_each;
    int users;
    int ads;
    int64_t pool_ms[SIM_POOL_MAX]; /* window lengths to choose from */
    int64_t step_ms;               /* usual passing of time */
    int64_t jump_ms;               /* rare passing of time */
    enum fcap_timestamp_type timestamps;
    bool timestamps_lie;
    bool limit_ads;
    int64_t start_ms;      /* true time at the beginning */
    int64_t wall_error_ms; /* clocks are set wrong by up to this */
    size_t actions;
    unsigned rates[SIM_FAULT_COUNT]; /* in 1/10000 of an action (or as sim_faults.c says); 0: off */
};

struct sim_world {
    uint64_t seed;
    uint64_t random;
    bool trace;
    bool failed;
    bool quiet; /* liveness: no faults */
    char reason[1024];
    struct sim_plan plan;
    struct fcap_settings settings;
    struct sim_score *score;

    int64_t true_ms;
    int64_t monotonic_ms;
    struct sim_clock redis_clock;
    bool stepped_back;       /* some clock did */
    int64_t redis_latest_ms; /* the latest that Redis' clock has ever shown */
    struct fcap_fake_redis redis;
    int64_t redis_up_ms;   /* down until */
    int64_t redis_room_ms; /* full until */
    size_t saved_step;     /* when the last snapshot was taken; 0: none */
    uint64_t late_done;    /* commands done for abandoned connections */
    int64_t late_ms;       /* when the last one was, monotonic */
    int64_t letters_busy_ms;

    struct fake_topic topic;
    struct sim_log logs[SIM_PARTITIONS_MAX];
    struct sim_life lives[SIM_PARTITIONS_MAX][SIM_LIVES_MAX];
    int life_count[SIM_PARTITIONS_MAX];
    struct sim_offsets by_user[SIM_PARTITIONS_MAX][SIM_USERS_MAX];
    int64_t held_until_ms[SIM_PARTITIONS_MAX];
    uint32_t next_id;
    uint64_t serial;
    int grown_from;     /* partitions before some were added last; 0: never */
    int64_t learned_ms; /* then every producer knew of them, true time */
    bool is_blind;      /* an old partition came to a process that could not know of it, or slept */

    struct sim_process processes[SIM_PROCESSES_MAX];
    struct sim_worker workers[SIM_WORKERS_MAX];
    int worker_count;
    int owner[SIM_PARTITIONS_MAX];  /* worker; -1: none */
    int wanted[SIM_PARTITIONS_MAX]; /* worker that it goes to; -1: none in particular */

    /* Behind the newest record of a user that was refused when it was read first and accepted when
     * it was read again. */
    int64_t revised_next[SIM_PARTITIONS_MAX][SIM_USERS_MAX];
    int64_t read_next[SIM_PARTITIONS_MAX]; /* behind the newest record (noted) that anybody read */
    uint64_t kept_at_cut; /* commits in the store when a log lost its end last; 0: never */
    int64_t shown_as_of_ms[SIM_USERS_MAX][FCAP_WINDOWS_MAX];
    size_t step;

    uint64_t hand_random;               /* of sim_rebuild.c */
    bool spoilt[SIM_PARTITIONS_MAX];    /* another hand has changed keys: they may be wrong */
    uint64_t asked[SIM_PARTITIONS_MAX]; /* for a rebuild: this assignment */
};

/* --- sim.c: life --- */
uint64_t sim_draw(struct sim_world *world, uint64_t bound); /* 0 .. bound - 1 */
bool sim_chance(struct sim_world *world, unsigned per_10000);
int64_t sim_between(struct sim_world *world, int64_t low, int64_t high);
void sim_fail(struct sim_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_note(struct sim_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_count(struct sim_world *world, enum sim_event event, uint64_t amount);
/* A world without processes running; `plan` is copied. */
void sim_open(struct sim_world *world, uint64_t seed, const struct sim_plan *plan,
              struct sim_score *score);
void sim_close(struct sim_world *world);
void sim_start_process(struct sim_world *world, int process);
/* Everything in memory is gone; the machine loses `lose` commits too. */
void sim_crash(struct sim_world *world, int process, size_t lose);
/* One step of a worker, with the checks that belong to it. */
void sim_step_worker(struct sim_world *world, struct sim_worker *worker);
void sim_pass_time(struct sim_world *world, int64_t ms);
/* What the group coordinator does: gives partitions without owner to workers. */
void sim_coordinate(struct sim_world *world);
void sim_choose_windows(struct sim_world *world);
int64_t sim_longest(const struct sim_world *world);

/* --- sim_plan.c --- */
void sim_plan_draw(uint64_t seed, struct sim_plan *ret_plan, struct fcap_settings *ret_settings);
void sim_settings_draw(struct sim_world *world);

/* --- sim_growth.c --- */
void sim_grow(struct sim_world *world);
/* To so many partitions; all producers know of them at that (true) time. */
void sim_grow_to(struct sim_world *world, int count, int64_t learned_ms);
/* The partition that a record of the user goes to now: producers learn one after the other. */
int sim_place(struct sim_world *world, int user);
/* Whether the key must be what the user's partition says: nobody else may have written it. */
bool sim_is_certain(struct sim_world *world, size_t window);
/* Notes an old owner that has slept on what it was sending. */
void sim_note_sleep(struct sim_worker *worker);
/* Notes an old partition whose new owner knows nothing of the growth. */
void sim_note_blind(struct sim_worker *worker, int partition);
/* Nobody who was erased is there, whether windows are ready or not. */
void sim_check_erased(struct sim_world *world);

/* --- sim_topic.c --- */
void sim_produce(struct sim_world *world);
/* Appends one record; `timestamp_ms` SIM_NEVER: as the plan says. */
int64_t sim_append(struct sim_world *world, const struct sim_record *record);
int sim_partition_of(const struct sim_world *world, int user);
struct fcap_decoder *sim_decoder(void);
void sim_user_name(int user, char ret_name[8]);
/* A record before the first that was read would belong to the state: a window is ready only when
 * none of these can lie in it, whatever the timestamps say. */
bool sim_is_missed(const struct sim_world *world, const struct sim_lineage *lineage,
                   const struct sim_record *record);
/* The definition, by brute force: what of the user's records below `next` counts at T. */
void sim_define(const struct sim_world *world, const struct sim_lineage *lineage, int user,
                int64_t window_ms, int64_t clock_ms, int64_t next, struct sim_counts *ret_counts);
void sim_lineage_begin(struct sim_world *world, struct sim_lineage *lineage, int64_t start);
void sim_decide(struct sim_lineage *lineage, int64_t offset, enum sim_decision decision);

/* --- sim_life.c --- */
/* The record stands at the end of the log as it is now. */
void sim_life_note(struct sim_world *world, int partition, int64_t noted);
/* Another life, which begins with the first `keep` records; false: there were too many. */
bool sim_life_begin(struct sim_world *world, int partition, int64_t keep);
void sim_life_done(struct sim_world *world);
/* The noted record at an offset of a life; at its end: the next one to be noted then. */
int64_t sim_noted(const struct sim_world *world, int partition, int life, int64_t offset);
/* Of which life a state's commit speaks; what a state that ends with this commit speaks of. */
int sim_life_of_commit(const struct sim_lineage *lineage, uint64_t commit);
void sim_life_revert(struct sim_lineage *lineage, uint64_t commit);
/* A lineage begins; has the log changed since; is it the same below an offset; it goes over. */
void sim_life_enter(struct sim_world *world, int partition, struct sim_lineage *lineage,
                    int64_t offset);
/* Records from `from` on that the log does not hold any more will never be read. */
void sim_life_lose(struct sim_world *world, int partition, struct sim_lineage *lineage,
                   int64_t from, enum sim_decision decision);
/* What a run that was undone has left out is read after all, from this offset on. */
void sim_life_read_on(struct sim_world *world, int partition, struct sim_lineage *lineage,
                      int64_t offset);
/* A state is about to be read anew; what has become of that when the partition is assigned again,
 * its newest commit being `commit`. */
void sim_life_keep(struct sim_lineage *lineage, uint64_t commit);
void sim_life_settle(struct sim_world *world, struct sim_lineage *lineage, uint64_t commit);
void sim_life_forget(struct sim_lineage *lineage);
bool sim_life_is_old(const struct sim_world *world, int partition,
                     const struct sim_lineage *lineage);
bool sim_life_is_same_below(const struct sim_world *world, int partition,
                            const struct sim_lineage *lineage, int64_t offset);
/* A key may show records that this state passed over with a log that is no more: another owner or
 * an earlier run had read them. Where this state has nothing of the user in the window, it stays
 * until it expires. A state that knows a mark of that log is told the gap, and its windows are
 * ready when the key has expired; one that has none cannot tell (docs/decisions/0007). */
bool sim_life_is_stray(const struct sim_world *world, int user, const struct sim_lineage *lineage,
                       int64_t pxat_ms, const struct sim_moment *moment);
/* A key may be another window's, which had the name before, of an event that this state never read:
 * it began without knowing of that window (docs/OPERATING.md, "Changing windows"). */
bool sim_is_renamed(const struct sim_world *world, int user, const struct sim_lineage *lineage,
                    size_t window, int64_t pxat_ms);
void sim_life_switch(struct sim_world *world, int partition, struct sim_lineage *lineage,
                     uint64_t commit);

/* --- sim_ports.c --- */
void sim_ports_init(struct sim_worker *worker);
struct sim_lineage *sim_lineage_of(struct sim_worker *worker, int partition);
bool sim_report(struct sim_worker *worker, int partition, struct fcap_task_report *ret_report);
/* Notes that a gate has opened, at the first sign of it. */
void sim_note_gate(struct sim_worker *worker, int partition);

/* --- sim_check.c --- */
bool sim_value_parse(struct fcap_bytes value, int64_t *ret_as_of_ms, struct sim_counts *ret_counts,
                     bool *ret_partial);
void sim_check_push(struct sim_worker *worker, const struct fcap_push *push);
void sim_check_commit(struct sim_world *world, int process, const struct fcap_batch *batch);
void sim_check_state(struct sim_worker *worker, int user);
void sim_check_claims(struct sim_worker *worker);
/* Clocks of another process let it count what this state had refused as future before it got the
 * partition (again), or would have refused where it left it out when it began: nothing of such a
 * user is known here, and the key stays until its PXAT. */
bool sim_is_refused(struct sim_worker *worker, int user, size_t window, int64_t pxat_ms);
void sim_check_rest(struct sim_world *world, enum sim_check check);
bool sim_counts_equal(const struct sim_counts *a, const struct sim_counts *b);

/* --- sim_faults.c --- */
void sim_fault(struct sim_world *world);
enum fake_store_fate sim_commit_fate(void *context, const struct fcap_batch *batch);
void sim_hooks_init(struct sim_world *world, int process);
void sim_sink_faults(struct sim_world *world, struct sim_worker *worker);
void sim_end_faults(struct sim_world *world);
void sim_time_faults(struct sim_world *world); /* spells that end */
/* The partition's owner is about to lose it, or to be asked for it. */
void sim_take(struct sim_world *world, int partition, bool lost);

/* --- sim_rebuild.c --- */
void sim_rebuild(struct sim_world *world);

/* --- sim_phases.c --- */
/* Runs one seed through all phases; false: it failed, and world->reason says why. */
bool sim_run(struct sim_world *world);
void sim_settle(struct sim_world *world);

/* --- scenarios.c --- */
/* Worlds that are spoilt, which the checkers must notice. Runs one; false: it failed. */
size_t sim_scenario_count(void);
const char *sim_scenario_name(size_t index);
bool sim_scenario_run(size_t index, bool trace, struct sim_score *score, char reason[1024]);

/* --- directed.c --- */
/* Worlds in which one rule of the core decides, each caught by its mutant. Runs one; false: it
 * failed. */
size_t sim_directed_count(void);
const char *sim_directed_name(size_t index);
bool sim_directed_run(size_t index, bool trace, struct sim_score *score, char reason[1024]);

#endif
