/* What the files of the pipeline share; nobody else includes this.
 *
 * apply.c counts records, expire.c moves the clock, push.c sends values, commit.c makes batches,
 * encode.c fills them, gate.c decides what may be sent, keyed.c looks whether the topic is keyed by
 * user, task.c loads and drops tasks, begin.c says what with, log.c knows which log was read,
 * growth.c where users are when partitions were added, redo.c brings records up to date after a
 * crash, rebuild.c shows everything again by request, pipeline.c runs the steps. */
#ifndef FCAP_CORE_H
#define FCAP_CORE_H

#include "fcap/ads.h"
#include "fcap/assert.h"
#include "fcap/chunk.h"
#include "fcap/counters.h"
#include "fcap/delays.h"
#include "fcap/gaps.h"
#include "fcap/key.h"
#include "fcap/meta.h"
#include "fcap/mutant.h"
#include "fcap/pipeline.h"
#include "fcap/point.h"
#include "fcap/trail.h"
#include "fcap/user.h"
#include "fcap/value.h"

#include "id_set.h"

#include <string.h>

#define COMMITS_MAX 2    /* in flight */
#define MARKS_MAX   4096 /* open points of acknowledgement */
#define NO_OFFSET   (-1)
#define CLOCKS_MAX  64 /* commits whose T is remembered; above the longest deferral */
#define DEFER_MAX   48 /* commits that a changed record may wait */

/* --- timers --- */

/* An event of the commit that has not been encoded yet. */
struct open_event {
    int64_t time_ms;
    struct fcap_user *user; /* dirty, hence cached, until the commit is encoded */
    uint64_t id_hash;
    uint32_t ad; /* FCAP_AD_VOID: voided by a tombstone, still known for dedup */
};

/* An event read back from committed chunks, commits in flight and open events alike. */
struct timeline_event {
    int64_t time_ms;
    uint64_t commit;
    uint64_t id_hash;
    uint64_t user_hash; /* as in the cache */
    size_t user_offset; /* into `users` */
    uint32_t user_size;
    uint32_t ad;
};

/* The events of one bucket ahead of one window's cursor, in time order. */
struct timeline {
    struct timeline_event *events;
    size_t count;
    size_t capacity;
    size_t next;        /* events before this one have left */
    int64_t through_ms; /* last millisecond of the loaded bucket */
    bool loaded;
    struct fcap_buffer users;
};

void timeline_clear(struct timeline *timeline);
void timeline_done(struct timeline *timeline);
static inline struct fcap_bytes timeline_user(const struct timeline *timeline,
                                              const struct timeline_event *event)
{
    return (struct fcap_bytes){timeline->users.data + event->user_offset, event->user_size};
}

/* --- dedup --- */

struct dedup_bucket {
    int64_t bucket_ms;
    struct id_set known;
    uint64_t used; /* for eviction of the oldest use */
};

#define DEDUP_BUCKETS_MAX 64

struct dedup {
    struct dedup_bucket buckets[DEDUP_BUCKETS_MAX];
    size_t count;
    uint64_t tick;
};

/* --- push queues --- */

enum push_queue_kind {
    QUEUE_NONE,
    QUEUE_CLOSED, /* the task's gate is closed */
    QUEUE_FIRST,  /* increments: what a cap needs soonest */
    QUEUE_SECOND, /* repairs, and all that waits for them */
    QUEUE_HELD,   /* expiries: they wait a little for a change that would send them anyway */
};

struct push_queue {
    struct fcap_user *head;
    struct fcap_user *tail;
    size_t count;
};

/* A push without an answer yet. */
struct flight {
    struct fcap_task *task; /* NULL: the task has gone */
    struct fcap_user *user; /* NULL: an epoch, or the task has gone */
    uint64_t mark;
    int64_t fresh_ms; /* as in the user, of the user's last window; 0: none */
    int64_t due_ms;
    uint8_t window;
};

/* --- tasks --- */

/* A list of user ids to be projected once more. */
struct second_look {
    struct fcap_buffer ids; /* be16 size, bytes */
    bool all;               /* too many to list: a complete projection instead */
    bool armed;
    bool left;      /* one was due when the state was loaded: nobody knows its users any more */
    bool showing;   /* a complete projection, the look's, is under way */
    int64_t due_ms; /* monotonic */
};

struct full_projection {
    bool active;
    bool scanned;     /* every user has been queued */
    uint64_t mark;    /* done when this mark is acknowledged */
    uint32_t windows; /* mask */
    uint64_t users;   /* queued so far */
    uint32_t served;  /* those of them that are shown; of the others keys are unlinked */
    struct fcap_sink_identity identity;
    struct fcap_buffer next_key;
};

/* Of a state that --replay-from-kafka reads anew: what must not be lost by it. */
struct replay {
    bool is_open;              /* not judged yet: until then nothing of the task is written */
    int64_t since_ms;          /* the old state is complete from here on */
    int64_t next_offset;       /* where it stood, */
    int64_t last_timestamp_ms; /* behind a record of this time */
    struct fcap_start by_time; /* where reading begins when retention took what it had not read */
};

struct fcap_task {
    struct fcap_pipeline *pipeline;
    struct fcap_task *next; /* by partition */
    int32_t partition;
    uint64_t assignment;
    struct fcap_meta meta; /* meta.windows is in configured order */
    struct fcap_trail trail;
    bool trail_changed; /* since it was encoded */
    struct fcap_gaps lost;
    bool lost_changed;      /* since it was encoded */
    bool lost_is_open;      /* the next record tells of what time the newest spans are */
    int64_t lost_before_ms; /* complete_since before these */
    struct fcap_window_numbers numbers;
    struct timeline timelines[FCAP_WINDOWS_MAX];
    struct timeline build; /* scratch of the builder and of dedup */
    struct fcap_ads ads;
    struct dedup dedup;
    struct open_event *open;
    size_t open_count;
    size_t open_capacity;
    uint64_t open_commit; /* number of the commit that is being filled */
    struct clock_point {
        int64_t clock_ms;   /* T */
        int64_t history_ms; /* H */
    } clocks[CLOCKS_MAX];   /* at the end of commit number % CLOCKS_MAX */
    uint64_t first_round;   /* round of commit number `first_commit` */
    uint64_t first_commit;
    int64_t committed_offset;
    int64_t synced_history_ms;  /* H as last released to the store */
    int64_t release_history_ms; /* H of the newest written commit */
    uint64_t sync_ticket;
    bool sync_wanted;
    bool has_state; /* the store held a meta record */
    bool stale;     /* what the store holds is deleted by the first commit; unread until then */
    bool started;   /* the source said where reading starts */
    bool start_untrusted; /* read from the log start: a start by time would have missed something */
    bool reached;         /* the end offset seen at assignment */
    bool looked_at;       /* an earlier run found its topic keyed: it has shown whole windows */
    bool keyed_waits;     /* counted in settings.keyed_look */
    size_t look_records;  /* read under this assignment while it was counted */
    int64_t look_until_ms; /* monotonic; it waits no longer for the others; 0: it does not wait */
    bool gate_open;
    int64_t loaded_ms; /* T when it was loaded */
    int64_t start_offset;
    int64_t end_offset;
    int64_t log_start;
    int64_t sought_ms; /* history start of an initial load */
    int64_t floor_ms;  /* of a state that begins: timers had been dropped through here; 0: none */
    struct replay replay;
    int64_t epoch; /* 0: none that may open the gate */
    bool epoch_asked;
    bool epoch_follows;        /* on the one in `meta`: nobody else has asked for one since */
    int64_t epoch_ms;          /* when it was answered, monotonic */
    uint64_t epoch_connection; /* the sink's, that it was asked on */
    struct fcap_sink_identity epoch_identity; /* the Redis that was asked; none: it refused */
    int64_t epoch_before; /* the newest that was answered under this assignment; 0: none, */
    struct fcap_sink_identity epoch_before_identity; /* and the Redis that answered it */
    bool clock_held;
    struct push_queue closed; /* users touched while the gate is closed */
    bool closed_lost;         /* some were forgotten by a commit: project everything */
    struct second_look second;
    struct full_projection full;
    uint32_t rebuild;        /* windows that were asked for once more and are not all shown yet */
    uint64_t rebuild_from;   /* not before this commit is written, which remembers it */
    uint64_t written_commit; /* the newest; 0: none under this assignment */
    int64_t claimed_next;
    int64_t claimed_as_of_ms;
    uint64_t claim_mark; /* claims of earlier marks speak of another log */
    uint64_t gaps;
    struct fcap_gap last_gap;
    int64_t swept_day; /* ads are swept once a day of H */
};

/* --- commits --- */

struct commit {
    struct fcap_batch batch;
    uint64_t round;
    uint64_t mark;   /* every push up to here must be acknowledged */
    uint64_t ticket; /* every dead letter up to here must be durable */
    bool submitted;
    struct fcap_sink_identity identity; /* the Redis that acknowledges what it covers */
    struct fcap_user **users;           /* encoded in it */
    size_t user_count;
    size_t user_capacity;
    struct commit_task {
        int32_t partition;
        uint64_t assignment;
        uint64_t number;
        int64_t next_offset;
        int64_t history_ms;
        int64_t clock_before_ms; /* for a mutant */
        size_t meta_entry;
        size_t first_chunk; /* entries of its timer chunks */
        size_t chunk_count;
    } * tasks;
    size_t task_count;
    size_t task_capacity;
};

struct mark {
    uint64_t outstanding;
    struct mark_claim {
        int32_t partition;
        uint64_t assignment;
        int64_t next_offset;
        int64_t as_of_ms;
    } * claims;
    size_t claim_count;
    size_t claim_capacity;
};

struct held_letter {
    bool active;
    struct fcap_record record;
    struct fcap_buffer bytes; /* key, value */
    enum fcap_reject reason;
};

struct fcap_pipeline {
    struct fcap_settings settings;
    struct fcap_ports ports;
    struct fcap_source_handler source_handler;
    struct fcap_sink_handler sink_handler;
    struct fcap_key_template key_template;
    struct fcap_counters counters;
    struct fcap_delays delays;
    int64_t stage_ns; /* when the stage under way began; 0: this step is not measured */
    struct fcap_error error;
    enum fcap_status failure; /* FATAL once something cannot go on */

    struct fcap_task *tasks;
    size_t task_count;
    struct fcap_cache cache;
    uint32_t partition_count; /* of the topic, as told last; 0: not told yet */
    struct fcap_meta growth;  /* the newest that was seen while it runs: `grown_ms` and so on */

    /* Once a step: time stands still. */
    int64_t wall_ms;
    int64_t monotonic_ms;
    struct fcap_sink_state sink_state;

    struct push_queue first;
    struct push_queue second;
    struct push_queue held;
    int64_t hold_ms;    /* how long an expiry stays in `held` */
    struct mark *marks; /* ring */
    uint64_t mark_open;
    uint64_t mark_done; /* every mark <= this is acknowledged */
    int64_t mark_opened_ms;
    struct flight *flights; /* ring, in push order */
    size_t flight_capacity;
    uint64_t flight_first;
    uint64_t flight_next;

    uint64_t round; /* of the open commit; starts at 1 */
    struct fcap_user *dirty_head;
    struct fcap_user *dirty_tail;
    size_t dirty_count;
    size_t open_count;                  /* open events of all tasks */
    struct commit commits[COMMITS_MAX]; /* [0] is the oldest */
    size_t commit_count;
    int64_t commit_begun_ms;
    int64_t retry_at_ms; /* a failed commit waits until then */
    bool changed;        /* something is worth a commit */
    struct held_letter letter;
    int64_t doubt_until_ms; /* a user stands in two partitions; monotonic; 0: none does */
    uint64_t letter_ticket; /* the newest ticket */

    size_t records_left; /* of this step */
    size_t work_left;
    uint64_t flight_before; /* the first push of this step */
    size_t timers_read;     /* from buckets, in this step */
    bool left_over;         /* T could not move as far as it may */
    bool backpressure;
    const char *stall;
    bool draining;
    bool gave_up;             /* a drain ran into its deadline; no step since */
    bool flush_all;           /* the next commit writes every changed record */
    bool hurries;             /* the next commit does not wait for its interval */
    uint64_t part_serial;     /* numbers the chunk parts being written */
    struct fcap_buffer key;   /* scratch */
    struct fcap_buffer value; /* scratch */
    struct timeline scratch;
    struct fcap_chunk_reader chunk_reader;
};

/* The cursor of a window: events at or before it have left. */
static inline int64_t cursor_of(const struct fcap_task *task, size_t window)
{
    int64_t cursor = task->meta.clock_ms - task->meta.windows[window].length_ms;
    if (task->meta.history_ms > cursor && !FCAP_MUTANT(LONGER)) {
        return task->meta.history_ms;
    }
    return cursor;
}

static inline int64_t longest_window(const struct fcap_meta *meta)
{
    int64_t longest = 0;
    for (size_t i = 0; i < meta->window_count; i++) {
        longest = meta->windows[i].length_ms > longest ? meta->windows[i].length_ms : longest;
    }
    return longest;
}

static inline int64_t shortest_configured(const struct fcap_settings *settings)
{
    int64_t shortest = settings->windows[0].length_ms;
    for (size_t i = 1; i < settings->window_count; i++) {
        if (settings->windows[i].length_ms < shortest) {
            shortest = settings->windows[i].length_ms;
        }
    }
    return shortest;
}

/* Users that wait to be sent, those apart that are held back. */
static inline size_t push_waiting(const struct fcap_pipeline *pipeline)
{
    return pipeline->first.count + pipeline->second.count;
}

static inline bool is_same_redis(const struct fcap_sink_identity *a,
                                 const struct fcap_sink_identity *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The later of the wall clock and Redis TIME: whichever of them is behind, this one is not. */
int64_t core_latest_ms(const struct fcap_pipeline *pipeline);

/* Every failure of a port or of stored bytes ends the worker; a restart replays from the store. */
enum fcap_status core_fail(struct fcap_pipeline *pipeline, enum fcap_status status,
                           const char *what);

/* Tells whoever watches that a long task goes on. */
static inline void core_alive(const struct fcap_pipeline *pipeline)
{
    if (pipeline->settings.alive != NULL) {
        pipeline->settings.alive(pipeline->settings.alive_context);
    }
}

/* task.c */
struct fcap_task *task_find(struct fcap_pipeline *pipeline, int32_t partition);
enum fcap_status task_open(struct fcap_pipeline *pipeline, int32_t partition, uint64_t assignment,
                           struct fcap_start *ret_start);
void task_drop(struct fcap_pipeline *pipeline, struct fcap_task *task);
/* A user's record, from the cache or the store. */
enum fcap_status task_user(struct fcap_task *task, struct fcap_bytes id,
                           struct fcap_user **ret_user);
/* The same with the hash at hand. */
enum fcap_status task_user_hashed(struct fcap_task *task, struct fcap_bytes id, uint64_t hash,
                                  struct fcap_user **ret_user);
bool task_window_ready(const struct fcap_task *task, size_t window);
/* When it will be ready if nothing else is lost; NONE: it always was complete. */
int64_t task_window_ready_at(const struct fcap_task *task, size_t window);
/* Its values go to Redis: it is ready, or was shown before a gap, or incomplete ones are served. */
bool task_window_served(const struct fcap_task *task, size_t window);
void user_urge(struct fcap_user *user);  /* it must be written by the open commit */
void user_touch(struct fcap_user *user); /* it must be written */
void user_clean(struct fcap_user *user); /* it is */

/* begin.c */
enum fcap_status begin_task(struct fcap_task *task, int64_t dropped_ms,
                            struct fcap_start *ret_start);
void begin_encode_floor(struct fcap_task *task, struct commit *commit);
/* Whether a replay loses history is judged when the log tells: at its start, its first record, or
 * its end. A refusal is a failure of the pipeline. */
void begin_replay_started(struct fcap_task *task);
void begin_replay_record(struct fcap_task *task); /* It has been counted. */
void begin_replay_end(struct fcap_task *task);
struct fcap_start begin_replay_gap(struct fcap_task *task, const struct fcap_gap *gap);

/* apply.c */
bool apply_record(struct fcap_pipeline *pipeline, const struct fcap_record *record);
bool apply_held_letter(struct fcap_pipeline *pipeline);

/* keyed.c */
/* False: the record shows that the topic is not keyed by user; the pipeline has failed. */
bool keyed_check(struct fcap_task *task, const struct fcap_record *record,
                 const struct fcap_event *event);
/* Is the user known from another partition? Then nothing is shown until that is explained; */
void keyed_look_at(struct fcap_task *task, struct fcap_bytes user);
/* or the pipeline fails after a while. */
enum fcap_status keyed_doubt(struct fcap_pipeline *pipeline);
/* A task is loaded, goes, or was read a little: has enough of it been looked at? */
enum fcap_status keyed_begin(struct fcap_task *task);
void keyed_drop(struct fcap_task *task);
void keyed_look_on(struct fcap_task *task);
/* The other new ones have been looked at, or are waited for no longer. */
bool keyed_others_are_looked_at(struct fcap_task *task);

/* dedup.c */
enum fcap_status dedup_check(struct fcap_task *task, struct fcap_bytes user, int64_t time_ms,
                             uint64_t id_hash, bool *ret_duplicate);
void dedup_add(struct fcap_task *task, struct fcap_bytes user, int64_t time_ms, uint64_t id_hash);
void dedup_done(struct dedup *dedup);

/* expire.c */
enum fcap_status timeline_collect(struct fcap_task *task, int64_t bucket_ms, int64_t after_ms,
                                  int64_t through_ms, struct timeline *timeline);
/* Tells whether some timer lies after this moment; there is little to read, ahead of now. */
enum fcap_status timeline_any_after(struct fcap_task *task, int64_t after_ms, bool *ret_found);
void timeline_insert(struct timeline *timeline, const struct timeline_event *event,
                     struct fcap_bytes user);
enum fcap_status expire_task(struct fcap_task *task);
enum fcap_status build_task(struct fcap_task *task);
int64_t bucket_of(const struct fcap_task *task, int64_t time_ms);
int64_t clock_target(struct fcap_task *task);

/* push.c */
void push_mark(struct fcap_user *user, uint32_t windows, enum push_queue_kind queue);
/* The user's next push shows a record of this time (Unix epoch), */
void push_note_record(struct fcap_user *user, int64_t timestamp_ms);
/* or that an event has left a window at that time. */
void push_note_due(struct fcap_user *user, int64_t due_ms);
void push_unqueue(struct fcap_pipeline *pipeline, struct fcap_user *user);
void push_forget(struct fcap_pipeline *pipeline, struct fcap_task *task);
void push_send(struct fcap_pipeline *pipeline);
void push_close_mark(struct fcap_pipeline *pipeline);
void push_settle_marks(struct fcap_pipeline *pipeline);
bool push_epoch(struct fcap_task *task);
/* What Redis should hold of one user x window: SET with its value, or UNLINK when nothing counts;
 * *ret_newest_ms is the time that the key lives by. Key and value lie in the pipeline's scratch;
 * `id` is the user's, whose record need not be a cached one. */
void push_build(struct fcap_task *task, const struct fcap_user *user, struct fcap_bytes id,
                size_t window, struct fcap_push *push, int64_t *ret_newest_ms, bool *ret_cut);
void push_acked(void *context, uint64_t token, enum fcap_push_result result, int64_t integer);
void queue_remove(struct push_queue *queue, struct fcap_user *user);

/* gate.c */
enum fcap_status gate_step(struct fcap_task *task);
/* Opens gates whose epoch has just been answered: the next step may be far off, and it too old. */
enum fcap_status gate_answered(struct fcap_pipeline *pipeline);
/* A complete projection is under way, or due. */
bool gate_projects(const struct fcap_task *task);
void gate_reached(struct fcap_task *task, int64_t offset);
void gate_remember(struct fcap_task *task, const struct fcap_user *user);
/* The sink's state was read: is it another Redis? */
void gate_meet_redis(struct fcap_pipeline *pipeline);
/* Every window is to be projected completely. */
void gate_forget_projections(struct fcap_task *task);
/* Everything is shown once more, from now on. */
void gate_rebuild(struct fcap_task *task);
/* A user is shown once more, and again when a late writer may have come in between. */
void gate_rebuild_user(struct fcap_task *task, struct fcap_user *user);
uint32_t gate_windows_served(const struct fcap_task *task);
/* Those of which the connected Redis holds everything. */
uint32_t gate_windows_projected(const struct fcap_task *task);

/* commit.c */
enum fcap_status commit_step(struct fcap_pipeline *pipeline, int wait_ms);
void commit_forget(struct fcap_pipeline *pipeline, struct fcap_task *task);
void commit_meet_redis(struct fcap_pipeline *pipeline);
void commit_done(struct commit *commit);
const struct commit_task *commit_find(const struct commit *commit, const struct fcap_task *task);

/* encode.c */
void encode_task(struct fcap_task *task, struct commit *commit, size_t *user);
/* The meta record in this entry says of no Redis any more that it holds all of a window. */
void encode_unprojected(struct commit *commit, size_t entry);

/* growth.c */
/* An empty task begins: has its partition been added, or may its users have moved away? */
enum fcap_status growth_begin(struct fcap_task *task, struct fcap_start *start);
/* A task is loaded: does a growth that is not settled yet need more time by now? */
void growth_load(struct fcap_task *task);
/* The source says how many partitions there are, with a task's start or in between. */
void growth_started(struct fcap_task *task, int32_t partition_count);
void growth_see(struct fcap_pipeline *pipeline, int32_t partition_count);
/* Windows are incomplete until they have passed the moment up to which users may have moved. */
void growth_raise(struct fcap_task *task);
/* When that moment has passed, everything is projected once. */
void growth_step(struct fcap_task *task);
/* The user has not moved away, as far as can be known: its keys may be written. */
bool growth_owns(const struct fcap_task *task, const struct fcap_user *user);
/* The user of whom that is not known was erased since, and a key may still show it. */
bool growth_erased(const struct fcap_task *task, const struct fcap_user *user, int64_t length_ms);
/* A key is being taken away of a user who may be elsewhere: the window is incomplete until it has
 * passed what may have been in it. */
void growth_take_away(struct fcap_task *task, const struct fcap_user *user, size_t window);
/* Up to when an erasure holds at least that was sent at this moment: T, as a rule. */
int64_t growth_erased_at(const struct fcap_task *task, int64_t sent_ms);
/* An event of this time tells where its user belongs. */
bool growth_may_tell(const struct fcap_task *task, int64_t time_ms);

/* log.c */
enum fcap_status log_load(struct fcap_task *task);
void log_encode(struct fcap_task *task, struct commit *commit);
/* An OFFSET start at the task's next offset, with what is known of the log. */
void log_position(const struct fcap_task *task, struct fcap_start *ret_start);
struct fcap_start log_gap(struct fcap_pipeline *pipeline, const struct fcap_gap *gap);
/* No record that exists by now may be later than this: what is lost lies before it. */
int64_t log_latest_event_ms(const struct fcap_pipeline *pipeline);
/* A state begins with an initial load: what of its history stands before the first record? */
void log_begin(struct fcap_task *task, const struct fcap_started *started);
/* Notes a span that is missing: windows are incomplete until T - L has passed this moment, or, in
 * the same log, the record that follows. The caller gives kind, offsets, `from_ms` and `to_ms`:
 * -1 waits for that record. */
void log_lose(struct fcap_task *task, const struct fcap_lost_span *span);
/* The first record whose timestamp can be the time of its writing behind the open
 * spans tells of what time they are. */
void log_settle(struct fcap_task *task, const struct fcap_record *record);

/* redo.c */
enum fcap_status redo_task(struct fcap_task *task);

/* inspect.c */
/* The user's newest record: the cached one, else what the store holds, read into `stored`, which is
 * cleared by the caller. NULL: it cannot be read. *ret_known: a record is there. */
struct fcap_user *inspect_user(struct fcap_task *task, struct fcap_bytes id,
                               struct fcap_user *stored, bool *ret_known);

#endif
