/* Shared by the sink_redis*.c files only: the sink's struct and the calls between its parts.
 *
 * The flow: sink_redis.c holds the port (push, poll, state) and the stream of commands and replies;
 * sink_redis_open.c opens and closes; sink_redis_connect.c makes and drops connections;
 * sink_redis_resolve.c looks names up; sink_redis_probe.c holds what is asked on each connect and
 * at each heartbeat, sink_redis_answer.c what the answers say; sink_redis_reply.c reads replies and
 * tells errors apart. sink_redis_ask.c lends a ready connection to the seed (seed_redis.c), which
 * sends commands of its own and waits for their answers. Thread rule: the worker's thread, but for
 * `shared`. */
#ifndef FCAP_SINK_REDIS_INTERNAL_H
#define FCAP_SINK_REDIS_INTERNAL_H

#include <pthread.h>
#include <hiredis/hiredis.h>

#include "fcap/sink_redis.h"

/* What a command in flight is. The first three are pushes; the others are the sink's own. */
enum sink_op {
    SINK_OP_PUSH_SET = FCAP_PUSH_SET,
    SINK_OP_PUSH_UNLINK = FCAP_PUSH_UNLINK,
    SINK_OP_PUSH_INCREMENT = FCAP_PUSH_INCREMENT,
    /* The probe, in this order. */
    SINK_OP_AUTH,
    SINK_OP_SELECT,
    SINK_OP_CLIENT_SETNAME,
    SINK_OP_CLIENT_ID,
    SINK_OP_CLIENT_LIST,
    SINK_OP_CLIENT_KILL, /* once for each older connection, and once more to see that we may */
    SINK_OP_INFO,
    SINK_OP_TIME,
    SINK_OP_SENTINEL_SET,
    SINK_OP_SENTINEL_GET,
    SINK_OP_SET_PXAT,
    SINK_OP_INCR,
    SINK_OP_UNLINK,
    SINK_OP_META_KEY,
    SINK_OP_EPOCH_KEY,
    SINK_OP_END, /* the probe is over */
    SINK_OP_ASK, /* somebody else's: see sink_redis_ask.c */
};

enum sink_phase {
    SINK_WAITING,    /* no connection; the next attempt at retry_at_ms */
    SINK_RESOLVING,  /* a thread looks the host name up */
    SINK_CONNECTING, /* connect() is under way */
    SINK_PROBING,    /* one probe command at a time is in flight */
    SINK_READY,
    SINK_RETIRING, /* no new pushes; replaced as soon as nothing is in flight */
};

struct sink_entry {
    uint64_t token;
    enum sink_op op;
};

/* A piece of an answer. Arrays come flat: one of kind ARRAY, then as many pieces as it has. */
struct sink_piece {
    int type;          /* REDIS_REPLY_... */
    long long integer; /* also how many elements an array has */
    size_t offset;     /* of a string, status or error: into the text, NUL-terminated there */
    size_t size;
};

/* The answers to a batch of commands, in order. */
struct sink_pieces {
    struct sink_piece *pieces;
    size_t count;
    size_t capacity;
    struct fcap_buffer text;
};

/* The last reply read; hiredis fills it through our object functions, without allocating one. */
struct sink_reply {
    int type; /* REDIS_REPLY_... */
    long long integer;
    struct fcap_buffer text;    /* string or error; a NUL follows it */
    char elements[2][24];       /* the first two strings of an array */
    struct sink_pieces *pieces; /* every piece is added here as well; NULL: nobody wants them */
};

/* Addresses of a host, each as text that connect() needs no look-up for. */
enum { SINK_ADDRESSES_MAX = 8, SINK_ADDRESS_BYTES = 64 };
struct sink_addresses {
    size_t count;
    char text[SINK_ADDRESSES_MAX][SINK_ADDRESS_BYTES];
};

struct sink_resolver; /* sink_redis_resolve.c */

struct sink_redis {
    struct fcap_sink sink; /* first: the port */

    struct fcap_sink_redis_settings settings; /* its strings are ours */
    char *name; /* of the connection: fcapd:<profile>:<instance>:<worker> */
    char *probe_key;
    char *meta_key;  /* probes the right for fc:meta:*; never made */
    char *epoch_key; /* likewise fc:epoch:* */

    enum sink_phase phase;
    redisContext *context; /* NULL unless connecting or later */
    struct sink_resolver *resolver;
    struct sink_addresses addresses;
    size_t address_next;
    int64_t retry_at_ms;
    int64_t attempt_deadline_ms; /* resolving, connecting, probing */
    unsigned failures;           /* attempts in a row, for the backoff */
    int64_t ready_at_ms;         /* since when the connection is ready */
    uint64_t random;             /* jitter and nothing else */

    /* Commands without a reply: a ring; numbers count up and are never reused. */
    struct sink_entry *ring;
    uint64_t ring_mask; /* its capacity - 1; a power of two */
    uint64_t pushed;    /* number of the next command */
    uint64_t answered;
    size_t pushes_in_flight;
    size_t asks_in_flight; /* commands of sink_redis_ask.c */
    bool asks_lost;        /* the connection broke under them */
    int64_t progress_ms;   /* last reply, or the first command after none were due */
    int64_t polled_ms;     /* end of the last poll */
    int64_t away_ms;       /* how long nobody had polled before this poll */
    bool spared;           /* a timeout was put off because of that, and nothing has come since */
    struct fcap_buffer out;
    size_t out_sent;                   /* bytes of `out` already written */
    enum fcap_sink_redis_error broken; /* the connection is dead; poll() drops it */
    char broken_text[160];
    bool write_blocked; /* the socket takes no more until poll() has looked */
    bool acked;         /* this poll gave an ack */

    struct sink_reply reply;
    uint8_t *read_buffer;

    /* The pause of pushes after refusals. A wave ends with the commands that were sent when it
     * began, so that a thousand refusals in one pipeline are one step of the backoff. */
    int64_t pause_until_ms;
    int pause_ms;
    uint64_t pause_wave;
    enum sink_op pause_op; /* what was refused last */

    /* Probe and heartbeat. */
    struct fcap_buffer kill_ids; /* be64 each */
    size_t kill_next;
    uint32_t refused; /* needs that this probe found refused so far */
    long long own_id; /* CLIENT ID; -1: not known */
    char run_id[48];
    int64_t time_due_ms;
    int64_t identity_due_ms;
    bool time_asked;
    bool identity_asked;
    int64_t time_sent_us;   /* CLOCK_MONOTONIC when TIME was queued */
    int64_t time_offset_us; /* Redis clock - CLOCK_MONOTONIC, from below */
    bool time_fresh;        /* TIME was answered on this connection */

    struct fcap_sink_redis_status now; /* the worker's own copy */
    pthread_mutex_t lock;
    struct fcap_sink_redis_status shared; /* under lock */
};

enum {
    SINK_READ_BYTES = 64 * 1024, /* one recv() */
    SINK_OWN_COMMANDS_MAX = 8,   /* room in the ring beside the pushes; heartbeats are at most 4 */
};

/* sink_redis.c */
extern const struct fcap_sink_ops sink_redis_ops;
int64_t sink_monotonic_us(void);
int64_t sink_monotonic_ms(void);
/* Copies and terminates; cuts what does not fit. */
void sink_copy_text(char *to, size_t capacity, const char *text, size_t size);
/* Queues a command of the sink's own, made of `count` arguments. */
void sink_command(struct sink_redis *sink, enum sink_op op, size_t count,
                  const struct fcap_bytes *arguments);
/* Writes what is queued, as far as the socket takes it. */
void sink_write_out(struct sink_redis *sink);
/* Marks the connection dead; poll() drops it. */
void sink_break(struct sink_redis *sink, enum fcap_sink_redis_error error, const char *text);
/* Counts an error and makes it the current one. */
void sink_error(struct sink_redis *sink, enum fcap_sink_redis_error error, const char *text,
                size_t size);
/* The current error is over. */
void sink_error_over(struct sink_redis *sink);

/* sink_redis_connect.c */
/* Moves the connection on as far as it goes without waiting. */
void sink_connect_step(struct sink_redis *sink);
/* Closes; the next attempt comes after a pause. Gives no acks. */
void sink_disconnect(struct sink_redis *sink);
/* The descriptor to wait for, and the events; -1: none. */
int sink_connect_descriptor(const struct sink_redis *sink, short *ret_events);

/* sink_redis_resolve.c */
/* Starts a look-up on a thread of its own. NULL when there is no thread to be had. */
struct sink_resolver *sink_resolver_start(const char *host);
/* True when it has ended; *ret_addresses is empty then when the name is not known. */
bool sink_resolver_done(struct sink_resolver *resolver, struct sink_addresses *ret_addresses);
/* Readable when it has ended. */
int sink_resolver_descriptor(const struct sink_resolver *resolver);
/* Lets it go; the thread ends by itself. NULL is fine. */
void sink_resolver_release(struct sink_resolver *resolver);

/* sink_redis_probe.c */
/* Sends the probe's first command. */
void sink_probe_start(struct sink_redis *sink);
/* The reply to one of the sink's own commands is in sink->reply. */
void sink_probe_reply(struct sink_redis *sink, enum sink_op op);
/* Sends TIME, INFO and fc:id when they are due. */
void sink_heartbeat(struct sink_redis *sink);

/* Notes that the server refuses `need`; `text` says how. */
void sink_refuse(struct sink_redis *sink, enum fcap_sink_redis_need need, const char *text);

/* sink_redis_answer.c */
/* Takes what is in sink->reply, which is no error. */
void sink_answer_arrived(struct sink_redis *sink, enum sink_op op);

/* sink_redis_ask.c */
/* Polls until the connection is ready for a batch, or wait_ms are over; false then. */
bool sink_ask_ready(struct sink_redis *sink, int wait_ms);
/* Adds a command to the batch; copies. The connection is ready. */
void sink_ask(struct sink_redis *sink, size_t count, const struct fcap_bytes *arguments);
/* Waits for all answers; they are in `pieces` (of the caller; emptied first). False: the connection
 * broke, or `must_stop` said so (then it is broken here); what was done is not known. */
bool sink_ask_wait(struct sink_redis *sink, struct sink_pieces *pieces,
                   bool (*must_stop)(void *context), void *context);
void sink_pieces_done(struct sink_pieces *pieces);

/* sink_redis_reply.c */
extern redisReplyObjectFunctions sink_reply_functions;
enum sink_action { SINK_ACTION_NONE, SINK_ACTION_COUNT, SINK_ACTION_RECONNECT };
enum sink_action sink_error_action(enum fcap_sink_redis_error error);

#endif
