#include "fcap/seed_redis.h"

#include "fcap/assert.h"
#include "fcap/point.h"
#include "seed_redis_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    READY_MS = 1000,     /* a call waits so long for a connection */
    COMMANDS_MAX = 4096, /* of one batch: a transaction and a look at its keys */
    CHANGES_MAX = 3,     /* a watched key that changes again and again */
};

struct fcap_seed_redis *seed_redis_of(struct fcap_seed *port)
{
    return (struct fcap_seed_redis *)port;
}

/* --- asking --- */

void seed_ask(struct fcap_seed_redis *seed, const char *first, const char *second,
              const char *third)
{
    const char *texts[] = {first, second, third};
    struct fcap_bytes arguments[3];
    size_t count = 0;
    while (count < 3 && texts[count] != NULL) {
        arguments[count] = fcap_bytes_of(texts[count]);
        count++;
    }
    sink_ask(seed->sink, count, arguments);
}

const char *seed_text(const struct fcap_seed_redis *seed, const struct sink_piece *piece)
{
    return (const char *)seed->pieces.text.data + piece->offset;
}

/* What a refusal means for us. */
static enum fcap_status judge(struct fcap_seed_redis *seed, const struct sink_piece *piece)
{
    const char *text = seed_text(seed, piece);
    enum fcap_sink_redis_error kind = fcap_sink_redis_error_of(text, piece->size);
    enum fcap_status status = FCAP_REFUSED;
    if (strncmp(text, "EXECABORT", strlen("EXECABORT")) == 0 && strstr(text, "NOPERM") != NULL) {
        kind = FCAP_SINK_REDIS_ERROR_NOPERM; /* EXEC itself is what may not be done. */
    }
    switch (kind) {
    case FCAP_SINK_REDIS_ERROR_NOPERM:
    case FCAP_SINK_REDIS_ERROR_SYNTAX:
    case FCAP_SINK_REDIS_ERROR_UNKNOWN_COMMAND:
    case FCAP_SINK_REDIS_ERROR_MOVED:
    case FCAP_SINK_REDIS_ERROR_CROSSSLOT:
    case FCAP_SINK_REDIS_ERROR_WRONGTYPE:
        status = FCAP_CONFIG; /* It will not pass by itself. */
        break;
    default:
        break;
    }
    if (sink_error_action(kind) == SINK_ACTION_RECONNECT) {
        sink_break(seed->sink, kind, text); /* Perhaps another server answers the next time. */
    }
    return fcap_error_set(&seed->error, status, "redis: %s (%s)", text,
                          fcap_sink_redis_error_cure(kind));
}

/* Waits for a batch. OK: all answers are there, none of them an error. */
enum fcap_status seed_answered(struct fcap_seed_redis *seed)
{
    struct sink_redis *sink = seed->sink;
    if (!sink_ask_wait(sink, &seed->pieces, seed->must_stop, seed->context)) {
        return fcap_error_set(&seed->error, FCAP_UNAVAILABLE, "redis: %s (%s)",
                              sink->now.error_text, fcap_sink_redis_error_cure(sink->now.error));
    }
    for (size_t i = 0; i < seed->pieces.count; i++) {
        if (seed->pieces.pieces[i].type == REDIS_REPLY_ERROR) {
            return judge(seed, &seed->pieces.pieces[i]); /* The first one is the cause. */
        }
    }
    return FCAP_OK;
}

/* An answer of another shape than the command has: somebody else speaks there. */
enum fcap_status seed_strange(struct fcap_seed_redis *seed, const char *command)
{
    sink_break(seed->sink, FCAP_SINK_REDIS_ERROR_PROTOCOL, command);
    return fcap_error_set(&seed->error, FCAP_UNAVAILABLE, "redis: the answer to %s cannot be read",
                          command);
}

/* --- the connection --- */

/* What no patience would mend, before the first connection has passed its probe. */
static bool is_hopeless(const struct fcap_sink_redis_status *status)
{
    switch (status->error) {
    case FCAP_SINK_REDIS_ERROR_PROBE:
    case FCAP_SINK_REDIS_ERROR_NOAUTH:
    case FCAP_SINK_REDIS_ERROR_WRONGPASS:
    case FCAP_SINK_REDIS_ERROR_AUTH_UNEXPECTED:
    case FCAP_SINK_REDIS_ERROR_DENIED:
    case FCAP_SINK_REDIS_ERROR_DATABASE:
    case FCAP_SINK_REDIS_ERROR_MOVED:
        return true;
    default:
        return false;
    }
}

static enum fcap_status refuse_cluster(struct fcap_seed_redis *seed)
{
    return fcap_error_set(&seed->error, FCAP_CONFIG,
                          "redis: this is a node of a Redis Cluster, which is not supported: a "
                          "transaction watches keys of several slots; use a single primary");
}

static enum fcap_status explain_away(struct fcap_seed_redis *seed)
{
    const struct fcap_sink_redis_status *now = &seed->sink->now;
    if (now->is_cluster) {
        return refuse_cluster(seed);
    }
    enum fcap_status status = !seed->was_ready && is_hopeless(now) ? FCAP_CONFIG : FCAP_UNAVAILABLE;
    if (now->error == FCAP_SINK_REDIS_ERROR_NONE) {
        return fcap_error_set(&seed->error, status, "redis: no answer yet");
    }
    if (now->error == FCAP_SINK_REDIS_ERROR_PROBE) {
        for (size_t i = 0; i < FCAP_SINK_REDIS_NEED_COUNT; i++) {
            if ((now->refused_needs >> i & 1) != 0) {
                return fcap_error_set(&seed->error, status,
                                      "redis: %s is refused (%s); the promise it carries: %s",
                                      fcap_sink_redis_need_command((enum fcap_sink_redis_need)i),
                                      now->refused_text[i],
                                      fcap_sink_redis_need_promise((enum fcap_sink_redis_need)i));
            }
        }
    }
    return fcap_error_set(&seed->error, status, "redis: %s (%s)", now->error_text,
                          fcap_sink_redis_error_cure(now->error));
}

static enum fcap_status foreign(struct fcap_seed_redis *seed)
{
    return fcap_error_set(&seed->error, FCAP_FOREIGN,
                          "redis: another Redis answers, or it was emptied (run id and fc:id)");
}

/* That the account may do all of it is found out before anything is claimed. */
static enum fcap_status try_commands(struct fcap_seed_redis *seed)
{
    seed_ask(seed, "WATCH", "fc:id", NULL);
    seed_ask(seed, "MULTI", NULL, NULL);
    seed_ask(seed, "EXEC", NULL, NULL);
    seed_ask(seed, "UNWATCH", NULL, NULL);
    enum fcap_status status = seed_answered(seed);
    seed->is_allowed = status == FCAP_OK;
    return status;
}

/* What every call begins with: a connection to the Redis of the first look. */
enum fcap_status seed_reach(struct fcap_seed_redis *seed)
{
    struct sink_redis *sink = seed->sink;
    uint64_t connection = sink->now.state.connection;
    bool is_stopping = seed->must_stop != NULL && seed->must_stop(seed->context);
    if (!sink_ask_ready(sink, is_stopping ? 0 : READY_MS)) {
        return explain_away(seed);
    }
    seed->was_ready = true;
    seed->is_watching = seed->is_watching && sink->now.state.connection == connection;
    if (sink->now.is_cluster) {
        return refuse_cluster(seed);
    }
    if (!seed->is_allowed) {
        enum fcap_status status = try_commands(seed);
        if (status != FCAP_OK) {
            return status;
        }
    }
    bool is_same = memcmp(&seed->identity, &sink->now.state.identity, sizeof seed->identity) == 0;
    return seed->has_looked && !is_same ? foreign(seed) : FCAP_OK;
}

/* The piece is fc:id; the first look's is kept, and all others must be the same. */
enum fcap_status seed_check_sentinel(struct fcap_seed_redis *seed, const struct sink_piece *piece)
{
    bool is_there = piece->type == REDIS_REPLY_STRING;
    struct fcap_bytes text = {(const uint8_t *)seed_text(seed, piece), piece->size};
    if (!seed->has_looked && is_there) {
        fcap_buffer_clear(&seed->sentinel);
        fcap_buffer_put_bytes(&seed->sentinel, text);
        return FCAP_OK;
    }
    if (!is_there || !fcap_bytes_equal(text, fcap_buffer_bytes(&seed->sentinel))) {
        return seed->has_looked
                   ? foreign(seed)
                   : fcap_error_set(&seed->error, FCAP_UNAVAILABLE, "redis: fc:id has just gone");
    }
    return FCAP_OK;
}

/* --- claim and write --- */

static void epoch_key(const struct fcap_seed_redis *seed, int32_t partition, char *text)
{
    (void)snprintf(text, SEED_KEY_BYTES, "fc:epoch:%s:%d", seed->sink->settings.profile, partition);
}

/* Watches the two keys and looks at them; further GETs may follow in the same batch. */
static void ask_watch(struct fcap_seed_redis *seed, const char *epoch)
{
    if (seed->is_watching) {
        seed_ask(seed, "UNWATCH", NULL, NULL);
    }
    seed_ask(seed, "WATCH", epoch, "fc:id");
    seed_ask(seed, "GET", epoch, NULL);
    seed_ask(seed, "GET", "fc:id", NULL);
}

/* The answers to the latter, less those before: *ret_first is the place of the epoch's value. */
static enum fcap_status take_watch(struct fcap_seed_redis *seed, size_t more, size_t *ret_first)
{
    size_t skipped = seed->is_watching ? 2 : 1;
    enum fcap_status status = seed_answered(seed);
    if (status != FCAP_OK) {
        return status;
    }
    seed->is_watching = true;
    if (seed->pieces.count != skipped + 2 + more) {
        return seed_strange(seed, "WATCH");
    }
    *ret_first = skipped;
    return seed_check_sentinel(seed, &seed->pieces.pieces[skipped + 1]);
}

/* The piece behind so many QUEUED is the answer to EXEC. Nil: a watched key has changed. */
static const struct sink_piece *take_exec(const struct fcap_seed_redis *seed, size_t queued)
{
    return seed->pieces.count < queued + 2 ? NULL : &seed->pieces.pieces[queued + 1];
}

static enum fcap_status changed_again(struct fcap_seed_redis *seed)
{
    return fcap_error_set(&seed->error, FCAP_UNAVAILABLE,
                          "redis: the epoch of a partition changes all the time");
}

static enum fcap_status claim(struct fcap_seed *port, int32_t partition, uint64_t *ret_epoch)
{
    struct fcap_seed_redis *seed = seed_redis_of(port);
    char epoch[SEED_KEY_BYTES];
    epoch_key(seed, partition, epoch);
    enum fcap_status status = seed_reach(seed);
    for (int i = 0; i < CHANGES_MAX && status == FCAP_OK; i++) {
        size_t first;
        ask_watch(seed, epoch);
        status = take_watch(seed, 0, &first);
        if (status != FCAP_OK) {
            break;
        }
        seed_ask(seed, "MULTI", NULL, NULL);
        seed_ask(seed, "INCR", epoch, NULL);
        seed_ask(seed, "EXEC", NULL, NULL);
        status = seed_answered(seed);
        seed->is_watching = false;
        const struct sink_piece *exec = status == FCAP_OK ? take_exec(seed, 1) : NULL;
        if (exec != NULL && exec->type == REDIS_REPLY_ARRAY && exec->integer == 1 &&
            exec[1].type == REDIS_REPLY_INTEGER) {
            *ret_epoch = (uint64_t)exec[1].integer;
            return FCAP_OK;
        }
        if (status == FCAP_OK && (exec == NULL || exec->type != REDIS_REPLY_NIL)) {
            return seed_strange(seed, "EXEC");
        }
    }
    return status == FCAP_OK ? changed_again(seed) : status;
}

/* SET key value PXAT time NX for each. */
static void ask_sets(struct fcap_seed_redis *seed, const struct fcap_seed_key *keys, size_t count)
{
    seed_ask(seed, "MULTI", NULL, NULL);
    for (size_t i = 0; i < count; i++) {
        char time[24];
        (void)snprintf(time, sizeof time, "%lld", (long long)keys[i].expire_at_ms); /* It fits. */
        const struct fcap_bytes arguments[] = {
            fcap_bytes_of("SET"),  keys[i].key,         keys[i].value,
            fcap_bytes_of("PXAT"), fcap_bytes_of(time), fcap_bytes_of("NX"),
        };
        sink_ask(seed->sink, sizeof arguments / sizeof arguments[0], arguments);
    }
    sink_write_out(seed->sink); /* A failure is found while the answers are awaited. */
    FCAP_POINT(backfill_queued);
    seed_ask(seed, "EXEC", NULL, NULL);
}

/* Which keys hold what we would write: after a transaction that may have been done. */
static void note_ours(struct fcap_seed_redis *seed, const struct fcap_seed_key *keys, size_t count,
                      size_t first)
{
    for (size_t i = 0; i < count && seed->is_unknown; i++) {
        const struct sink_piece *piece = &seed->pieces.pieces[first + i];
        struct fcap_bytes value = {(const uint8_t *)seed_text(seed, piece), piece->size};
        seed->ours[i] = piece->type == REDIS_REPLY_STRING && fcap_bytes_equal(value, keys[i].value);
    }
}

/* *ret_changed: a watched key has changed, and nothing was done. */
static enum fcap_status execute(struct fcap_seed_redis *seed, const struct fcap_seed_key *keys,
                                size_t count, size_t *ret_written, bool *ret_changed)
{
    bool was_unknown = seed->is_unknown;
    ask_sets(seed, keys, count);
    seed->is_unknown = true;
    enum fcap_status status = seed_answered(seed);
    seed->is_watching = false;
    if (status != FCAP_OK) {
        return status;
    }
    FCAP_POINT(backfill_executed);
    const struct sink_piece *exec = take_exec(seed, count);
    *ret_changed = exec != NULL && exec->type == REDIS_REPLY_NIL;
    if (*ret_changed) {
        seed->is_unknown = was_unknown;
        return FCAP_OK;
    }
    if (exec == NULL || exec->type != REDIS_REPLY_ARRAY || exec->integer != (long long)count ||
        seed->pieces.count != 2 * count + 2) {
        return seed_strange(seed, "EXEC");
    }
    *ret_written = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_new = exec[1 + i].type == REDIS_REPLY_STATUS;
        *ret_written += is_new || (was_unknown && seed->ours[i]);
    }
    seed->is_unknown = false;
    return FCAP_OK;
}

static enum fcap_status write_once(struct fcap_seed_redis *seed, const char *epoch_name,
                                   uint64_t epoch, const struct fcap_seed_key *keys, size_t count,
                                   size_t *ret_written, bool *ret_fenced, bool *ret_changed)
{
    size_t first;
    size_t looks = seed->is_unknown ? count : 0;
    ask_watch(seed, epoch_name);
    for (size_t i = 0; i < looks; i++) {
        const struct fcap_bytes arguments[] = {fcap_bytes_of("GET"), keys[i].key};
        sink_ask(seed->sink, 2, arguments);
    }
    enum fcap_status status = take_watch(seed, looks, &first);
    if (status != FCAP_OK) {
        return status;
    }
    const struct sink_piece *piece = &seed->pieces.pieces[first];
    bool is_there = piece->type == REDIS_REPLY_STRING;
    *ret_fenced = (is_there ? strtoull(seed_text(seed, piece), NULL, 10) : 0) != epoch;
    if (*ret_fenced) {
        return FCAP_OK;
    }
    note_ours(seed, keys, count, first + 2);
    return execute(seed, keys, count, ret_written, ret_changed);
}

static enum fcap_status write_keys(struct fcap_seed *port, int32_t partition, uint64_t epoch,
                                   const struct fcap_seed_key *keys, size_t count,
                                   size_t *ret_written, bool *ret_fenced)
{
    struct fcap_seed_redis *seed = seed_redis_of(port);
    char name[SEED_KEY_BYTES];
    FCAP_ASSERT(2 * count + 16 <= COMMANDS_MAX);
    epoch_key(seed, partition, name);
    if (count > seed->ours_capacity) {
        seed->ours = reallocarray(seed->ours, count, sizeof *seed->ours);
        FCAP_ASSERT(seed->ours != NULL);
        seed->ours_capacity = count;
    }
    *ret_written = 0;
    *ret_fenced = false;
    FCAP_POINT(backfill_writing);
    enum fcap_status status = seed_reach(seed);
    for (int i = 0; i < CHANGES_MAX && status == FCAP_OK; i++) {
        bool is_changed = false;
        status = write_once(seed, name, epoch, keys, count, ret_written, ret_fenced, &is_changed);
        if (status == FCAP_OK && !is_changed) {
            return FCAP_OK;
        }
    }
    return status == FCAP_OK ? changed_again(seed) : status;
}

/* --- open and close --- */

enum fcap_status fcap_seed_redis_open(const struct fcap_seed_redis_settings *settings,
                                      struct fcap_seed_redis **ret_seed, struct fcap_error *error)
{
    static const struct fcap_seed_ops ops = {seed_look, claim, write_keys};
    struct fcap_sink_redis_settings redis = settings->redis;
    struct fcap_sink *sink = NULL;
    if (strlen(redis.profile) + 32 > SEED_KEY_BYTES) {
        return fcap_error_set(error, FCAP_CONFIG, "profile: too long");
    }
    /* Nothing of the sink's own may get between MULTI and EXEC. */
    redis.time_interval_ms = INT_MAX;
    redis.identity_interval_ms = INT_MAX;
    redis.commands_in_flight_max = COMMANDS_MAX;
    redis.backoff_max_ms = 2000;
    enum fcap_status status = fcap_sink_redis_open(&redis, error, &sink);
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_seed_redis *seed = calloc(1, sizeof *seed);
    FCAP_ASSERT(seed != NULL);
    seed->port.ops = &ops;
    seed->sink = (struct sink_redis *)sink;
    seed->must_stop = settings->must_stop;
    seed->context = settings->context;
    *ret_seed = seed;
    return FCAP_OK;
}

void fcap_seed_redis_close(struct fcap_seed_redis *seed)
{
    if (seed == NULL) {
        return;
    }
    fcap_sink_redis_close(&seed->sink->sink);
    sink_pieces_done(&seed->pieces);
    fcap_buffer_done(&seed->sentinel);
    free(seed->ours);
    free(seed);
}

struct fcap_seed *fcap_seed_redis_port(struct fcap_seed_redis *seed)
{
    return &seed->port;
}

const char *fcap_seed_redis_error(const struct fcap_seed_redis *seed)
{
    return seed->error.text;
}

void fcap_seed_redis_status(struct fcap_seed_redis *seed, struct fcap_sink_redis_status *ret_status)
{
    fcap_sink_redis_status(&seed->sink->sink, ret_status);
}
