/* The five ports through which the core meets the world: clock, source, dead letters, store, sink
 * (and the decoder, which is pure). The same core runs in production, in tests and in the
 * simulator; the only difference is who filled the ports.
 *
 * Thread rule: every call on a port, and every handler call that it makes, happens on the worker's
 * own thread; ports do their background work behind that. A port is a struct whose first member is
 * the `ops` pointer; an implementation embeds it as its first member. */
#ifndef FCAP_PORTS_H
#define FCAP_PORTS_H

#include "fcap/batch.h"
#include "fcap/bytes.h"
#include "fcap/event.h"
#include "fcap/status.h"

/* --- clock ------------------------------------------------------------------------------- */

struct fcap_clock {
    /* Milliseconds since the Unix epoch. May step in either direction. */
    int64_t (*wall_ms)(struct fcap_clock *clock);
    /* Milliseconds that never go back; the origin means nothing. */
    int64_t (*monotonic_ms)(struct fcap_clock *clock);
};

/* --- decoder ----------------------------------------------------------------------------- */

struct fcap_decoder {
    /* Finds the event in a record. NONE: *ret_event is filled (a null value gives a tombstone).
     * Any other reason: *ret_event is untouched. Never fails otherwise, allocates at most a
     * bounded amount, and gives the same answer for the same bytes in every build. */
    enum fcap_reject (*decode)(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event);
};

/* --- source: Kafka ------------------------------------------------------------------------ */

/* Where a task wants to start. */
enum fcap_start_kind {
    FCAP_START_OFFSET,   /* at `offset`: the state's next offset */
    FCAP_START_TIME,     /* at the first record whose timestamp is >= `time_ms` */
    FCAP_START_EARLIEST, /* at the log start */
    FCAP_START_LATEST,   /* at the end seen when it is looked up */
    /* As TIME, in the log that the marks speak of: a gap at `offset` is told first. A `time_ms` of
     * 0 means the log's start. */
    FCAP_START_AGAIN,
    /* Not known yet: each poll asks resumed(). Nothing of the partition is read meanwhile. */
    FCAP_START_LATER,
};

/* Evidence of which log was read: the last record below `offset` had this time and this key. */
struct fcap_log_mark {
    int64_t offset;
    int64_t timestamp_ms; /* -1: none */
    uint64_t key_hash;    /* fcap_hash64(key, 0) */
};

#define FCAP_LOG_MARKS_MAX 17

struct fcap_start {
    enum fcap_start_kind kind;
    int64_t offset;
    int64_t time_ms;
    int64_t after_ms;  /* TIME, AGAIN: an event counts when its time is after this, */
    int64_t future_ms; /* and at most this, or later by as much as has passed since it was asked */
    size_t mark_count; /* OFFSET, AGAIN: what is known of the log */
    struct fcap_log_mark marks[FCAP_LOG_MARKS_MAX]; /* by offset, the highest first */
};

/* A start by time leaves out what lies below the offset that was found. Timestamps are the word of
 * whoever wrote the record, so the last ones left out are looked at: true when this one should not
 * be, for it holds an event that counts, or its timestamp is before 2001, which is no time but a
 * unit error, a zero or "none". Then the whole log must be read (docs/decisions/0018). `waited_ms`
 * has passed since the start was asked for; `decoder` NULL: nothing is known of events. Pure but
 * for the decoder. */
#define FCAP_START_LEFT_OUT 1000 /* so many offsets below the start are looked at */
bool fcap_start_misses(const struct fcap_start *start, struct fcap_decoder *decoder,
                       const struct fcap_record *record, int64_t waited_ms);
/* True when the record's timestamp can be the time of its writing: it is the broker's, or it is not
 * of the future and the record's own event does not contradict it. Where all that a cut log (it
 * does not begin at 0) still holds below the start is looked at, and none of it tells, then nothing
 * says how late the records were that retention took: reading begins at the log's start. NULL
 * tells. Pure but for the decoder. */
bool fcap_start_tells(const struct fcap_start *start, struct fcap_decoder *decoder,
                      const struct fcap_record *record);

/* What the source found out before it delivers a partition's first record. */
struct fcap_started {
    int32_t partition;
    int64_t offset;          /* where reading starts */
    int64_t log_start;       /* low watermark */
    int64_t end;             /* end offset (LSO under read_committed) seen at assignment */
    int32_t partition_count; /* of the topic; 0: not known */
    /* A start by time was answered with log_start: it would have missed something. */
    bool timestamps_unusable;
};

/* What may have happened to a partition's records. The source tells the first four
 * (docs/decisions/0007): BELOW_START, retention took `wanted` .. `log_start` - 1; BEYOND_END, the
 * log ends before `wanted`, and no mark tells whether it is the same; RECREATED, another log: no
 * record at a mark is the one that was counted; TRUNCATED, the same log has lost its end, and may
 * have got another one. The core finds out by itself: SHORT_HISTORY, an initial load that could not
 * begin as far back as the longest window reaches (0016); GROWN, the topic has got more partitions,
 * or was created anew with fewer (0015).
 * X(kind, its label, its meaning). The numbers are stored (docs/DATA.md): new ones go to the end.
 */
/* clang-format off */
#define FCAP_GAP_KIND_LIST(X)                                                                    \
    X(BELOW_START,   "below_start",   "retention has taken records that were never read")        \
    X(BEYOND_END,    "beyond_end",    "the log ends before what was read of it")                 \
    X(RECREATED,     "recreated",     "the topic was created anew")                              \
    X(TRUNCATED,     "truncated",     "the log has lost records that had been read")             \
    X(SHORT_HISTORY, "short_history", "reading began later than the longest window reaches back")  \
    X(GROWN,         "grown",         "the number of partitions has changed: users have moved")
/* clang-format on */

enum fcap_gap_kind {
#define X(name, label, text) FCAP_GAP_##name,
    FCAP_GAP_KIND_LIST(X)
#undef X
        FCAP_GAP_KIND_COUNT
};

struct fcap_gap {
    int32_t partition;
    enum fcap_gap_kind kind;
    int64_t wanted;
    int64_t log_start;
    int64_t end;
    int64_t next; /* the lowest offset whose record was certainly not counted */
    int64_t same; /* TRUNCATED: below it the log is the one that was read; else 0 */
};

/* Implemented by the pipeline, called by the source inside poll(). */
struct fcap_source_handler {
    void *context;
    /* New partitions; fills ret_starts[i] for each. `assignments[i]` is a number never used
     * before in this process, and neither was the one below it, which is the handler's. Records
     * follow after started(). */
    void (*assigned)(void *context, const int32_t *partitions, const uint64_t *assignments,
                     size_t count, struct fcap_start *ret_starts);
    /* The start of one partition is known; records follow. */
    void (*started)(void *context, const struct fcap_started *started);
    /* Partitions leave. `lost`: another owner may be at work already, nothing may be written or
     * sent any more. When it returns, pending commits are written or discarded for ever. */
    void (*revoked)(void *context, const int32_t *partitions, size_t count, bool lost);
    /* One record, in offset order for each partition. Returns false when no more records may be
     * delivered in this poll (the source stops after this record and loses none). */
    bool (*record)(void *context, const struct fcap_record *record);
    /* The end of a partition was reached; `offset` is the next offset to come. */
    void (*reached_end)(void *context, int32_t partition, int64_t offset);
    /* Reading cannot go on; returns where to go on instead (degrade), or stops the process by its
     * own means and returns the gap's log start. */
    struct fcap_start (*gap)(void *context, const struct fcap_gap *gap);
    /* Where the task stands: an OFFSET start with its marks, for a look in the middle of reading
     * whether the log is still the same. NULL: nothing is known of it. */
    void (*position)(void *context, int32_t partition, struct fcap_start *ret_start);
    /* The topic has more partitions than were told before, by this or by started(). NULL: not
     * wanted. */
    void (*counted)(void *context, int32_t partition_count);
    /* Of a partition whose start was to be known LATER: true when it is, and filled (not with LATER
     * again). NULL: there are none. */
    bool (*resumed)(void *context, int32_t partition, struct fcap_start *ret_start);
};

struct fcap_source_budget {
    size_t records_max; /* 0: back-pressure; the main queue is served, partition queues are not */
    int timeout_ms;     /* how long to wait when there is nothing */
};

struct fcap_source;
struct fcap_source_ops {
    /* Serves rebalances and delivers records. RETRY: nothing to do but call again. FATAL: the
     * member is fenced or the client is dead. */
    enum fcap_status (*poll)(struct fcap_source *source, const struct fcap_source_handler *handler,
                             struct fcap_source_budget budget);
    /* False when the partition's assignment may be lost: nothing may be sent for it. Design: the
     * last poll of the main queue must be younger than the session timeout, and after a longer gap
     * a heartbeat interval must have passed with the main queue served and no loss reported. */
    bool (*may_send)(struct fcap_source *source, int32_t partition);
    /* A committed next offset, for lag dashboards; behind the commits. May be dropped. */
    void (*publish)(struct fcap_source *source, int32_t partition, int64_t next_offset);
};
struct fcap_source {
    const struct fcap_source_ops *ops;
};

/* --- dead letters -------------------------------------------------------------------------- */

struct fcap_dead_letters;
struct fcap_dead_letters_ops {
    /* Hands a refused record over; copies it. The ticket is larger than every earlier one. BUSY:
     * try again later (policy stall). With policy drop-counted it is dropped and counted instead,
     * and the call gives OK. */
    enum fcap_status (*write)(struct fcap_dead_letters *letters, const struct fcap_record *record,
                              enum fcap_reject reason, uint64_t *ret_ticket);
    /* The largest ticket up to which everything is durable (or dropped by policy). */
    uint64_t (*done)(struct fcap_dead_letters *letters);
};
struct fcap_dead_letters {
    const struct fcap_dead_letters_ops *ops;
};

/* --- store: RocksDB ------------------------------------------------------------------------ */

/* Gets one pair; returns false to stop the scan. The bytes are valid during the call. */
typedef bool (*fcap_store_visitor)(void *context, struct fcap_bytes key, struct fcap_bytes value);

struct fcap_store;
struct fcap_store_ops {
    /* One value, appended to `value` (which is cleared first). Sees all completed commits. */
    enum fcap_status (*get)(struct fcap_store *store, enum fcap_family family,
                            struct fcap_bytes key, struct fcap_buffer *value, bool *ret_found);
    /* Pairs with from <= key < to in key order (`to` empty: to the family's end), at one moment.
     * Always seeks to `from`; never touches keys outside the range. */
    enum fcap_status (*scan)(struct fcap_store *store, enum fcap_family family,
                             struct fcap_bytes from, struct fcap_bytes to,
                             fcap_store_visitor visitor, void *context);
    /* From now on this handle owns the partition under this assignment number; sections of any
     * other number are refused. Waits until no write with an older number is under way. Gives the
     * bucket end below which timers have been dropped here, by this process or an earlier one (0:
     * none). Chunks may be written below it all the same: whatever is dropped after this call, of
     * the partition's or others', is dropped with a larger number, or while the partition is
     * claimed and below what it has released. */
    enum fcap_status (*claim)(struct fcap_store *store, int32_t partition, uint64_t assignment,
                              int64_t *ret_dropped_through_ms);
    /* The partition belongs to nobody here; later sections of it are refused. When it returns no
     * write of it is under way. */
    void (*disclaim)(struct fcap_store *store, int32_t partition);
    /* Starts writing a sealed batch off-thread, in order of submission. Borrows the batch until
     * completed() gives it back. */
    enum fcap_status (*submit)(struct fcap_store *store, const struct fcap_batch *batch);
    /* A finished batch, oldest first; *ret_batch is NULL when none is finished within wait_ms.
     * *ret_result: OK written (refused sections are skipped), RETRY or FATAL: nothing is known to
     * be written; submit it again before anything new. */
    enum fcap_status (*completed)(struct fcap_store *store, int wait_ms,
                                  const struct fcap_batch **ret_batch,
                                  enum fcap_status *ret_result);
    /* Makes every completed commit durable against power loss. Asynchronous: *ret_done tells
     * whether everything completed before the first call that asked for `ticket` is durable. Start
     * with *ticket = 0. */
    enum fcap_status (*sync)(struct fcap_store *store, uint64_t *ticket, bool *ret_done);
    /* This partition's timers whose key starts with a bucket below history_ms (the key's first
     * field, the bucket's start) are no longer needed. The store doesn't know a bucket's width: the
     * caller passes the start of the oldest bucket that it still needs, and vouches that the commit
     * which says so is durable. The store drops whole files below the minimum over all claimed
     * partitions, when it likes; a claimed partition that has not released yet holds all back. */
    void (*release)(struct fcap_store *store, int32_t partition, int64_t history_ms);
};
struct fcap_store {
    const struct fcap_store_ops *ops;
};

/* --- sink: Redis --------------------------------------------------------------------------- */

enum fcap_push_kind {
    FCAP_PUSH_SET,       /* SET key value PXAT expire_at_ms */
    FCAP_PUSH_UNLINK,    /* UNLINK key */
    FCAP_PUSH_INCREMENT, /* INCR key; the ack carries the new value */
};

struct fcap_push {
    enum fcap_push_kind kind;
    struct fcap_bytes key;
    struct fcap_bytes value;
    int64_t expire_at_ms; /* Unix epoch */
    uint64_t token;       /* comes back in the ack */
};

enum fcap_push_result {
    FCAP_PUSH_DONE,    /* the server answered that it did it */
    FCAP_PUSH_REFUSED, /* the server answered with an error: not done */
    FCAP_PUSH_UNKNOWN, /* the connection broke first: perhaps done, perhaps not; never resent */
};

/* Which Redis this is: the run id and the key fc:id, hashed. All zero: not known yet. */
struct fcap_sink_identity {
    uint8_t bytes[16];
};

struct fcap_sink_state {
    bool ready;          /* connected, probed, older connections of our name killed */
    uint64_t connection; /* counts connections; changes when one is replaced */
    struct fcap_sink_identity identity; /* refreshed at each connect and heartbeat */
    bool time_known; /* Redis TIME has been answered on this connection or an earlier one */
    int64_t time_ms; /* Redis TIME now, extrapolated by the monotonic clock */
};

struct fcap_sink_handler {
    void *context;
    /* Exactly one call for each accepted push, in push order. */
    void (*acked)(void *context, uint64_t token, enum fcap_push_result result, int64_t integer);
};

struct fcap_sink;
struct fcap_sink_ops {
    /* Queues one command; copies. BUSY: the send buffer is full or nothing is connected. */
    enum fcap_status (*push)(struct fcap_sink *sink, const struct fcap_push *push);
    /* Writes, reads, reconnects; gives acks to the handler. Waits up to timeout_ms for an answer
     * when some are due, else returns at once. RETRY is information. */
    enum fcap_status (*poll)(struct fcap_sink *sink, const struct fcap_sink_handler *handler,
                             int timeout_ms);
    /* What is known now. */
    void (*state)(struct fcap_sink *sink, struct fcap_sink_state *ret_state);
};
struct fcap_sink {
    const struct fcap_sink_ops *ops;
};

#endif
