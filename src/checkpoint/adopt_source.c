/* Between source and pipeline: partitions are held back while they are adopted. The pipeline hears
 * of a partition when its state can be loaded, and claims it then under the number that the source
 * gave; until then it is claimed under the number below, so that nothing the adopter writes comes
 * after that. */
#include "fcap/adopter.h"
#include "fcap/assert.h"

#include <stdlib.h>

struct held {
    int32_t partition;
    uint64_t assignment;
    struct fcap_adoption *adoption;
};

struct fcap_adopting {
    struct fcap_source port; /* first */
    struct fcap_source *inner;
    struct fcap_store *store;
    struct fcap_adopter *adopter;
    struct fcap_source_handler front;          /* what the inner source sees */
    const struct fcap_source_handler *handler; /* the pipeline's; of the call under way */
    struct held *held;
    size_t held_count;
};

/* --- the handler -------------------------------------------------------------------------------
 */

static struct held *find(struct fcap_adopting *adopting, int32_t partition)
{
    for (size_t i = 0; i < adopting->held_count; i++) {
        if (adopting->held[i].partition == partition) {
            return &adopting->held[i];
        }
    }
    return NULL;
}

static void let_go(struct fcap_adopting *adopting, struct held *held)
{
    fcap_adoption_end(held->adoption);
    *held = adopting->held[--adopting->held_count];
}

static bool hold(struct fcap_adopting *adopting, int32_t partition, uint64_t assignment)
{
    struct fcap_store_claimed claimed = {.partition = partition, .assignment = assignment - 1};
    if (adopting->store->ops->claim(adopting->store, partition, claimed.assignment,
                                    &claimed.dropped_through_ms) != FCAP_OK) {
        return false; /* The pipeline finds the same, and says so. */
    }
    adopting->held =
        reallocarray(adopting->held, adopting->held_count + 1, sizeof adopting->held[0]);
    FCAP_ASSERT(adopting->held != NULL);
    adopting->held[adopting->held_count++] =
        (struct held){partition, assignment, fcap_adopter_ask(adopting->adopter, &claimed)};
    return true;
}

static void on_assigned(void *context, const int32_t *partitions, const uint64_t *assignments,
                        size_t count, struct fcap_start *ret_starts)
{
    struct fcap_adopting *adopting = context;
    for (size_t i = 0; i < count; i++) {
        if (hold(adopting, partitions[i], assignments[i])) {
            ret_starts[i] = (struct fcap_start){.kind = FCAP_START_LATER};
        } else {
            adopting->handler->assigned(adopting->handler->context, &partitions[i], &assignments[i],
                                        1, &ret_starts[i]);
        }
    }
}

static bool on_resumed(void *context, int32_t partition, struct fcap_start *ret_start)
{
    struct fcap_adopting *adopting = context;
    struct held *held = find(adopting, partition);
    FCAP_ASSERT(held != NULL);
    if (!fcap_adoption_is_over(held->adoption)) {
        return false;
    }
    uint64_t assignment = held->assignment;
    let_go(adopting, held);
    adopting->handler->assigned(adopting->handler->context, &partition, &assignment, 1, ret_start);
    return true;
}

static void on_revoked(void *context, const int32_t *partitions, size_t count, bool lost)
{
    struct fcap_adopting *adopting = context;
    int32_t *rest = calloc(count + 1, sizeof *rest);
    size_t rest_count = 0;
    FCAP_ASSERT(rest != NULL);
    for (size_t i = 0; i < count; i++) {
        struct held *held = find(adopting, partitions[i]);
        if (held == NULL) {
            rest[rest_count++] = partitions[i];
            continue;
        }
        let_go(adopting, held);
        adopting->store->ops->disclaim(adopting->store, partitions[i]);
    }
    if (rest_count > 0) {
        adopting->handler->revoked(adopting->handler->context, rest, rest_count, lost);
    }
    free(rest);
}

static void on_started(void *context, const struct fcap_started *started)
{
    const struct fcap_adopting *adopting = context;
    adopting->handler->started(adopting->handler->context, started);
}

static bool on_record(void *context, const struct fcap_record *record)
{
    const struct fcap_adopting *adopting = context;
    return adopting->handler->record(adopting->handler->context, record);
}

static void on_reached_end(void *context, int32_t partition, int64_t offset)
{
    const struct fcap_adopting *adopting = context;
    adopting->handler->reached_end(adopting->handler->context, partition, offset);
}

static struct fcap_start on_gap(void *context, const struct fcap_gap *gap)
{
    const struct fcap_adopting *adopting = context;
    return adopting->handler->gap(adopting->handler->context, gap);
}

static void on_position(void *context, int32_t partition, struct fcap_start *ret_start)
{
    const struct fcap_adopting *adopting = context;
    if (adopting->handler->position != NULL) {
        adopting->handler->position(adopting->handler->context, partition, ret_start);
    }
}

static void on_counted(void *context, int32_t partition_count)
{
    const struct fcap_adopting *adopting = context;
    if (adopting->handler->counted != NULL) {
        adopting->handler->counted(adopting->handler->context, partition_count);
    }
}

/* --- the port ----------------------------------------------------------------------------------
 */

static enum fcap_status poll_source(struct fcap_source *port,
                                    const struct fcap_source_handler *handler,
                                    struct fcap_source_budget budget)
{
    struct fcap_adopting *adopting = (struct fcap_adopting *)port;
    adopting->handler = handler;
    return adopting->inner->ops->poll(adopting->inner, &adopting->front, budget);
}

static bool may_send(struct fcap_source *port, int32_t partition)
{
    struct fcap_adopting *adopting = (struct fcap_adopting *)port;
    return adopting->inner->ops->may_send(adopting->inner, partition);
}

static void publish(struct fcap_source *port, int32_t partition, int64_t next_offset)
{
    struct fcap_adopting *adopting = (struct fcap_adopting *)port;
    adopting->inner->ops->publish(adopting->inner, partition, next_offset);
}

struct fcap_adopting *fcap_adopting_open(struct fcap_source *inner, struct fcap_store *store,
                                         struct fcap_adopter *adopter)
{
    static const struct fcap_source_ops ops = {
        .poll = poll_source, .may_send = may_send, .publish = publish};
    struct fcap_adopting *adopting = calloc(1, sizeof *adopting);
    FCAP_ASSERT(adopting != NULL);
    adopting->port.ops = &ops;
    adopting->inner = inner;
    adopting->store = store;
    adopting->adopter = adopter;
    adopting->front = (struct fcap_source_handler){.context = adopting,
                                                   .assigned = on_assigned,
                                                   .started = on_started,
                                                   .revoked = on_revoked,
                                                   .record = on_record,
                                                   .reached_end = on_reached_end,
                                                   .gap = on_gap,
                                                   .position = on_position,
                                                   .counted = on_counted,
                                                   .resumed = on_resumed};
    return adopting;
}

struct fcap_source *fcap_adopting_port(struct fcap_adopting *adopting)
{
    return &adopting->port;
}

const struct fcap_source_handler *fcap_adopting_handler(struct fcap_adopting *adopting,
                                                        const struct fcap_source_handler *handler)
{
    adopting->handler = handler;
    return &adopting->front;
}

size_t fcap_adopting_count(const struct fcap_adopting *adopting)
{
    return adopting->held_count;
}

void fcap_adopting_close(struct fcap_adopting *adopting)
{
    if (adopting == NULL) {
        return;
    }
    FCAP_ASSERT(adopting->held_count == 0);
    free(adopting->held);
    free(adopting);
}
