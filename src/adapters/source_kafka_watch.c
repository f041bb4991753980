/* Two faults that the client library does not tell of.
 *
 * A partition can stop being fetched while everything else goes on: its end grows, its position
 * does not. So the ends are polled on the helper's thread, and a partition that stands still with
 * its end ahead for stall_timeout is assigned anew, it alone. Whether its queue said "end" counts
 * for nothing: only the polled end does.
 *
 * A topic can be deleted and created again under a reader. All that is seen is that it was unknown
 * for a moment, or that its end went back; then every partition is compared with what was read. One
 * whose start is just being looked up is compared before it starts: its answer may be the old
 * topic's. */
#include "source_kafka_internal.h"

#include "fcap/assert.h"

#include <stdlib.h>

#define EVERY_MS    200
#define DOUBT_MS    1000 /* between two comparisons because of an error */
#define POLLS       5    /* of the ends in one stall_timeout */
#define POLL_MS_MAX 5000

void kafka_watch_error(struct fcap_source_kafka *source, rd_kafka_resp_err_t error)
{
    source->doubt = source->doubt || error == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION ||
                    error == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
                    error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
}

static void look_again(struct fcap_source_kafka *source, int64_t now_ms)
{
    if (!source->doubt || now_ms - source->doubted_ms < DOUBT_MS) {
        return;
    }
    source->doubt = false;
    source->doubted_ms = now_ms;
    for (size_t i = 0; i < source->partition_count; i++) {
        if (source->partitions[i].started) {
            kafka_group_recheck(source, &source->partitions[i]);
        } else {
            source->partitions[i].doubt = true;
        }
    }
}

int64_t kafka_watch_poll_ms(const struct kafka_config *config)
{
    int64_t poll_ms = config->stall_timeout_ms / POLLS;
    return poll_ms < POLL_MS_MAX ? poll_ms : POLL_MS_MAX;
}

/* An answer is fresh for so long. */
static int64_t fresh_ms(const struct fcap_source_kafka *source)
{
    return 3 * kafka_watch_poll_ms(&source->config) + 1000;
}

static void watch_partition(struct fcap_source_kafka *source, struct kafka_partition *partition,
                            const struct kafka_end *end, int64_t passed_ms, int64_t now_ms)
{
    bool is_known = end->answered_ms > 0 && now_ms - end->answered_ms <= fresh_ms(source);
    bool has_moved = partition->next != partition->seen_next;
    bool was_visited = partition->visited;
    partition->seen_next = partition->next;
    partition->visited = false;
    partition->end = is_known ? end->end : -1;
    if (has_moved || (is_known && end->end <= partition->next)) {
        partition->still_ms = 0;
        partition->stuck = false;
    } else if (is_known && was_visited) {
        partition->still_ms += passed_ms;
    }
    if (!partition->started) {
        return;
    }
    if (is_known && end->end < end->asked_next) {
        source->doubt = true; /* No log gets shorter. */
    } else if (partition->still_ms >= source->config.stall_timeout_ms) {
        partition->still_ms = 0;
        partition->stuck = true;
        source->stalls++;
        kafka_group_refetch(source, partition);
    }
}

/* Users move when partitions are added, long before one of them is assigned here. */
static void count_partitions(struct fcap_source_kafka *source)
{
    int32_t count = kafka_shared_partitions(&source->shared);
    if (count > source->told_count && source->handler->counted != NULL) {
        source->told_count = count;
        source->happened = true;
        source->handler->counted(source->handler->context, count);
    }
}

void kafka_watch(struct fcap_source_kafka *source)
{
    int64_t now_ms = fcap_kafka_now_ms();
    int64_t passed_ms = now_ms - source->watched_ms;
    if (source->closing || source->dead != FCAP_OK || passed_ms < EVERY_MS) {
        return;
    }
    source->watched_ms = now_ms;
    count_partitions(source);
    passed_ms = passed_ms < 2 * EVERY_MS ? passed_ms : 2 * EVERY_MS; /* A pause of ours is none. */
    size_t count = source->partition_count;
    if (source->end_capacity < count) {
        source->end_capacity = source->partition_capacity;
        source->ends = reallocarray(source->ends, source->end_capacity, sizeof *source->ends);
        FCAP_ASSERT(source->ends != NULL);
    }
    for (size_t i = 0; i < count; i++) {
        const struct kafka_partition *partition = &source->partitions[i];
        source->ends[i] = (struct kafka_end){.partition = partition->id,
                                             .assignment = partition->assignment,
                                             .next = partition->next,
                                             .end = -1};
    }
    kafka_helper_ends(source->helper, source->ends, count);
    for (size_t i = 0; i < count; i++) {
        watch_partition(source, &source->partitions[i], &source->ends[i], passed_ms, now_ms);
    }
    look_again(source, now_ms);
}
