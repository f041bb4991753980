#include "standing.h"

static enum fcap_status source_poll(struct fcap_source *port,
                                    const struct fcap_source_handler *handler,
                                    struct fcap_source_budget budget)
{
    struct fcap_standing_source *source = (struct fcap_standing_source *)port;
    struct fcap_start start = {0};
    (void)budget;
    if (source->is_given) {
        return FCAP_OK;
    }
    source->is_given = true;
    handler->assigned(handler->context, &source->partition, &source->assignment, 1, &start);
    source->is_whole = start.kind == FCAP_START_OFFSET;
    if (source->is_whole) {
        const struct fcap_started started = {
            .partition = source->partition, .offset = start.offset, .end = start.offset};
        handler->started(handler->context, &started);
    }
    return FCAP_OK;
}

static bool source_may_send(struct fcap_source *port, int32_t partition)
{
    (void)port; /* What is sent is fenced. */
    (void)partition;
    return true;
}

static void source_publish(struct fcap_source *port, int32_t partition, int64_t next_offset)
{
    (void)port; /* Nothing was read. */
    (void)partition;
    (void)next_offset;
}

void fcap_standing_source_init(struct fcap_standing_source *source, int32_t partition,
                               uint64_t assignment)
{
    static const struct fcap_source_ops ops = {source_poll, source_may_send, source_publish};
    *source = (struct fcap_standing_source){
        .port = {&ops}, .partition = partition, .assignment = assignment, .is_whole = true};
}

static struct fcap_store *inner(struct fcap_store *port)
{
    return ((struct fcap_standing_store *)port)->store;
}

static enum fcap_status store_get(struct fcap_store *port, enum fcap_family family,
                                  struct fcap_bytes key, struct fcap_buffer *value, bool *ret_found)
{
    return inner(port)->ops->get(inner(port), family, key, value, ret_found);
}

static enum fcap_status store_scan(struct fcap_store *port, enum fcap_family family,
                                   struct fcap_bytes from, struct fcap_bytes to,
                                   fcap_store_visitor visitor, void *context)
{
    return inner(port)->ops->scan(inner(port), family, from, to, visitor, context);
}

static enum fcap_status store_claim(struct fcap_store *port, int32_t partition, uint64_t assignment,
                                    int64_t *ret_dropped_through_ms)
{
    return inner(port)->ops->claim(inner(port), partition, assignment, ret_dropped_through_ms);
}

static void store_disclaim(struct fcap_store *port, int32_t partition)
{
    inner(port)->ops->disclaim(inner(port), partition);
}

static enum fcap_status store_submit(struct fcap_store *port, const struct fcap_batch *batch)
{
    return inner(port)->ops->submit(inner(port), batch);
}

static enum fcap_status store_completed(struct fcap_store *port, int wait_ms,
                                        const struct fcap_batch **ret_batch,
                                        enum fcap_status *ret_result)
{
    return inner(port)->ops->completed(inner(port), wait_ms, ret_batch, ret_result);
}

static enum fcap_status store_sync(struct fcap_store *port, uint64_t *ticket, bool *ret_done)
{
    (void)port; /* Asked for before a release alone. */
    (void)ticket;
    *ret_done = false;
    return FCAP_OK;
}

static void store_release(struct fcap_store *port, int32_t partition, int64_t history_ms)
{
    (void)port;
    (void)partition;
    (void)history_ms;
}

void fcap_standing_store_init(struct fcap_standing_store *standing, struct fcap_store *store)
{
    static const struct fcap_store_ops ops = {.get = store_get,
                                              .scan = store_scan,
                                              .claim = store_claim,
                                              .disclaim = store_disclaim,
                                              .submit = store_submit,
                                              .completed = store_completed,
                                              .sync = store_sync,
                                              .release = store_release};
    *standing = (struct fcap_standing_store){.port = {&ops}, .store = store};
}
