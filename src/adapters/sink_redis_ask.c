/* A ready connection, lent to somebody who sends commands of his own and waits for the answers.
 *
 * The sink's heartbeats must be off meanwhile (their intervals as long as they can be): a command
 * of theirs between MULTI and EXEC would become part of the transaction. */
#include <stdlib.h>
#include <time.h>

#include "fcap/assert.h"
#include "sink_redis_internal.h"

enum { SLICE_MS = 50 /* between two looks at whether to stop */ };

static void ignore_ack(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    (void)context; /* Nothing is pushed here. */
    (void)token;
    (void)result;
    (void)integer;
}

static void poll_sink(struct sink_redis *sink, int wait_ms)
{
    const struct fcap_sink_handler handler = {NULL, ignore_ack};
    (void)sink->sink.ops->poll(&sink->sink, &handler, wait_ms); /* The phase tells. */
}

bool sink_ask_ready(struct sink_redis *sink, int wait_ms)
{
    FCAP_ASSERT(sink->asks_in_flight == 0 && sink->pushes_in_flight == 0);
    int64_t until_ms = sink_monotonic_ms() + wait_ms;
    poll_sink(sink, 0);
    while (sink->phase != SINK_READY && sink_monotonic_ms() < until_ms) {
        int64_t left_ms = until_ms - sink_monotonic_ms();
        if (sink->phase == SINK_WAITING && sink->retry_at_ms - sink_monotonic_ms() < left_ms) {
            left_ms = sink->retry_at_ms - sink_monotonic_ms();
        }
        if (sink->phase == SINK_WAITING && left_ms > 0) {
            struct timespec pause = {left_ms / 1000, left_ms % 1000 * 1000000};
            (void)nanosleep(&pause, NULL); /* Woken early by a signal: as good. */
        }
        poll_sink(sink, (int)(left_ms < 1 ? 1 : left_ms));
    }
    sink->asks_lost = false;
    return sink->phase == SINK_READY;
}

void sink_ask(struct sink_redis *sink, size_t count, const struct fcap_bytes *arguments)
{
    sink_command(sink, SINK_OP_ASK, count, arguments);
    sink->asks_in_flight++;
}

bool sink_ask_wait(struct sink_redis *sink, struct sink_pieces *pieces,
                   bool (*must_stop)(void *context), void *context)
{
    pieces->count = 0;
    fcap_buffer_clear(&pieces->text);
    sink->reply.pieces = pieces;
    while (sink->asks_in_flight > 0 && !sink->asks_lost) {
        if (must_stop != NULL && must_stop(context)) {
            sink_break(sink, FCAP_SINK_REDIS_ERROR_CLOSED, "given up");
        }
        poll_sink(sink, SLICE_MS);
    }
    sink->reply.pieces = NULL;
    return !sink->asks_lost;
}

void sink_pieces_done(struct sink_pieces *pieces)
{
    free(pieces->pieces);
    fcap_buffer_done(&pieces->text);
    *pieces = (struct sink_pieces){0};
}
