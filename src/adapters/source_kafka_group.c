#include "source_kafka_internal.h"

#include "fcap/assert.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Never used before in this process, over all workers. */
static atomic_uint_fast64_t assignments;

struct kafka_partition *kafka_partition_find(struct fcap_source_kafka *source, int32_t id)
{
    for (size_t i = 0; i < source->partition_count; i++) {
        if (source->partitions[i].id == id) {
            return &source->partitions[i];
        }
    }
    return NULL;
}

static struct kafka_partition *add_partition(struct fcap_source_kafka *source, int32_t id)
{
    FCAP_ASSERT(kafka_partition_find(source, id) == NULL);
    if (source->partition_count == source->partition_capacity) {
        source->partition_capacity = source->partition_capacity * 2 + 8;
        source->partitions = reallocarray(source->partitions, source->partition_capacity,
                                          sizeof *source->partitions);
        FCAP_ASSERT(source->partitions != NULL);
    }
    struct kafka_partition *partition = &source->partitions[source->partition_count++];
    *partition = (struct kafka_partition){
        .id = id,
        .end = -1,
        .assignment = atomic_fetch_add(&assignments, 2) + 2,
    };
    return partition;
}

static void release_queue(struct kafka_partition *partition)
{
    if (partition->queue != NULL) {
        rd_kafka_queue_destroy(partition->queue);
        partition->queue = NULL;
    }
}

static void remove_partition(struct fcap_source_kafka *source, struct kafka_partition *partition)
{
    kafka_helper_cancel(source->helper, partition->id, partition->assignment);
    release_queue(partition);
    *partition = source->partitions[--source->partition_count];
}

/* Gets the queue and puts the partition on the list of those to be fetched from `offset`. The
 * queue must be unforwarded before the assign call, or its first messages go to the main queue. */
static void add_to_fetch(struct fcap_source_kafka *source, struct kafka_partition *partition,
                         int64_t offset, rd_kafka_topic_partition_list_t *list)
{
    FCAP_ASSERT(partition->queue == NULL);
    partition->queue =
        rd_kafka_queue_get_partition(source->client, source->config.topic, partition->id);
    FCAP_ASSERT(partition->queue != NULL); /* NULL only on a producer. */
    rd_kafka_queue_forward(partition->queue, NULL);
    rd_kafka_topic_partition_list_add(list, source->config.topic, partition->id)->offset = offset;
    partition->fetched_from = offset;
    partition->parked = false;
}

static void check_call(struct fcap_source_kafka *source, const char *what, rd_kafka_error_t *error)
{
    if (error == NULL) {
        return;
    }
    kafka_shared_error(&source->shared, "%s: %s", what, rd_kafka_error_string(error));
    if (!source->closing) {
        /* The client's idea of what we own and ours differ now: start over. */
        source->dead = FCAP_IO;
    }
    rd_kafka_error_destroy(error);
}

static void ask(struct fcap_source_kafka *source, struct kafka_partition *partition,
                struct fcap_start start, bool is_trusted)
{
    struct kafka_lookup lookup = {.partition = partition->id,
                                  .assignment = partition->assignment,
                                  .start = start,
                                  .asked_ms = fcap_kafka_now_ms(),
                                  .is_trusted = is_trusted};
    partition->started = false;
    partition->answer = lookup;
    kafka_helper_ask(source->helper, &lookup);
}

/* --- rebalances --------------------------------------------------------------------------- */

static void on_assign(struct fcap_source_kafka *source, rd_kafka_topic_partition_list_t *list)
{
    size_t count = source->closing || source->handler == NULL ? 0 : (size_t)list->cnt;
    rd_kafka_topic_partition_list_t *fetch = rd_kafka_topic_partition_list_new(list->cnt);
    int32_t *ids = calloc(count + 1, sizeof *ids);
    uint64_t *numbers = calloc(count + 1, sizeof *numbers);
    struct fcap_start *starts = calloc(count + 1, sizeof *starts);
    FCAP_ASSERT(ids != NULL && numbers != NULL && starts != NULL);
    for (size_t i = 0; i < count; i++) {
        struct kafka_partition *partition = add_partition(source, list->elems[i].partition);
        ids[i] = partition->id;
        numbers[i] = partition->assignment;
    }
    if (count > 0) {
        source->handler->assigned(source->handler->context, ids, numbers, count, starts);
        source->happened = true;
    }
    for (size_t i = 0; i < count; i++) {
        struct kafka_partition *partition = kafka_partition_find(source, ids[i]);
        if (starts[i].kind == FCAP_START_OFFSET && starts[i].offset >= 0) {
            /* Fetched ahead while its ends are looked up; not read before started(). */
            add_to_fetch(source, partition, starts[i].offset, fetch);
        }
        partition->held = starts[i].kind == FCAP_START_LATER;
        if (!partition->held) {
            ask(source, partition, starts[i], false);
        }
    }
    /* Must be called even with an empty list: it is the answer that the group waits for. */
    check_call(source, "assign", rd_kafka_incremental_assign(source->client, fetch));
    rd_kafka_topic_partition_list_destroy(fetch);
    free(ids);
    free(numbers);
    free(starts);
}

static void on_revoke(struct fcap_source_kafka *source, rd_kafka_topic_partition_list_t *list,
                      bool lost)
{
    rd_kafka_topic_partition_list_t *fetched = rd_kafka_topic_partition_list_new(list->cnt);
    int32_t *ids = calloc((size_t)list->cnt + 1, sizeof *ids);
    FCAP_ASSERT(ids != NULL);
    size_t count = 0;
    for (int i = 0; i < list->cnt; i++) {
        if (kafka_partition_find(source, list->elems[i].partition) != NULL) {
            ids[count++] = list->elems[i].partition;
        }
    }
    source->lost = source->lost || lost; /* may_send() must say no inside of revoked(). */
    if (count > 0) {
        source->lost_count += lost ? count : 0;
        source->happened = true;
        if (source->handler != NULL) {
            source->handler->revoked(source->handler->context, ids, count, lost);
        }
    }
    for (size_t i = 0; i < count; i++) {
        struct kafka_partition *partition = kafka_partition_find(source, ids[i]);
        if (partition->queue != NULL) {
            rd_kafka_topic_partition_list_add(fetched, source->config.topic, partition->id);
        }
    }
    /* Only what the client fetches: naming any other is an error for the whole list. */
    check_call(source, "unassign", rd_kafka_incremental_unassign(source->client, fetched));
    for (size_t i = 0; i < count; i++) {
        remove_partition(source, kafka_partition_find(source, ids[i]));
    }
    source->lost = false;
    rd_kafka_topic_partition_list_destroy(fetched);
    free(ids);
}

void kafka_group_rebalance(rd_kafka_t *client, rd_kafka_resp_err_t error,
                           rd_kafka_topic_partition_list_t *list, void *opaque)
{
    struct fcap_source_kafka *source = opaque;
    source->rebalances++;
    if (error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        on_assign(source, list);
    } else if (error == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS) {
        /* Read first: every assign call resets it. */
        bool lost = rd_kafka_assignment_lost(client) != 0 || source->lost || source->suspect;
        on_revoke(source, list, lost);
    } else {
        kafka_shared_error(&source->shared, "rebalance: %s", rd_kafka_err2str(error));
        kafka_group_abandon(source);
        (void)rd_kafka_assign(client, NULL); /* Whatever happened: nothing is ours. */
    }
}

void kafka_group_abandon(struct fcap_source_kafka *source)
{
    size_t count = source->partition_count;
    if (count == 0) {
        return;
    }
    int32_t *ids = calloc(count, sizeof *ids);
    FCAP_ASSERT(ids != NULL);
    for (size_t i = 0; i < count; i++) {
        ids[i] = source->partitions[i].id;
    }
    source->lost = true;
    source->lost_count += count;
    source->happened = true;
    if (source->handler != NULL) {
        source->handler->revoked(source->handler->context, ids, count, true);
    }
    while (source->partition_count > 0) {
        remove_partition(source, &source->partitions[0]);
    }
    source->lost = false;
    free(ids);
}

/* --- starts and gaps ---------------------------------------------------------------------- */

static void take_answers(struct fcap_source_kafka *source)
{
    struct kafka_lookup answer;
    while (kafka_helper_answer(source->helper, &answer)) {
        struct kafka_partition *partition = kafka_partition_find(source, answer.partition);
        if (partition != NULL && partition->assignment == answer.assignment) {
            partition->answer = answer;
        }
    }
}

static void ask_after_gap(struct fcap_source_kafka *source, struct kafka_partition *partition)
{
    const struct kafka_lookup *answer = &partition->answer;
    struct fcap_gap gap = {.partition = partition->id,
                           .kind = answer->gap,
                           .wanted = answer->start.offset,
                           .log_start = answer->log_start,
                           .end = answer->end,
                           .next = answer->gap_next,
                           .same = answer->gap == FCAP_GAP_TRUNCATED ? answer->same : 0};
    source->gaps++;
    source->happened = true;
    partition->parked = true; /* What was fetched ahead may be of the log that is gone. */
    ask(source, partition, source->handler->gap(source->handler->context, &gap), false);
}

/* The topic went away while the start was being looked up. The same question, and never trusted:
 * what stands at the offset may be another log's. */
static void ask_again(struct fcap_source_kafka *source, struct kafka_partition *partition)
{
    partition->doubt = false;
    partition->parked = true;
    ask(source, partition, partition->answer.start, false);
}

static void tell_started(struct fcap_source_kafka *source, struct kafka_partition *partition)
{
    const struct kafka_lookup *answer = &partition->answer;
    struct fcap_started started = {.partition = partition->id,
                                   .offset = answer->offset,
                                   .log_start = answer->log_start,
                                   .end = answer->end,
                                   .partition_count = kafka_shared_partitions(&source->shared),
                                   .timestamps_unusable = answer->timestamps_unusable};
    partition->next = answer->offset;
    partition->started = true;
    source->happened = true;
    source->good = true;
    source->told_count = started.partition_count;
    source->handler->started(source->handler->context, &started);
}

/* Assign calls outside a rebalance callback have two traps. They wipe away "lost", so a REVOKE that
 * is served right after one is taken for a lost one. And an unassign call answers a REVOKE that
 * waits in the main queue, so that queue is emptied right before. */
static bool may_reassign(struct fcap_source_kafka *source)
{
    return !source->lost && rd_kafka_assignment_lost(source->client) == 0 &&
           kafka_gate_open(&source->gate, fcap_kafka_now_ms());
}

/* True when the answer is there but the client does not fetch from the right place. */
static bool must_reassign(const struct kafka_partition *partition)
{
    return !partition->started && partition->answer.answered && !partition->answer.is_gap &&
           (partition->queue == NULL || partition->parked ||
            partition->fetched_from != partition->answer.offset);
}

static void reassign(struct fcap_source_kafka *source)
{
    rd_kafka_topic_partition_list_t *leave = rd_kafka_topic_partition_list_new(8);
    rd_kafka_topic_partition_list_t *fetch = rd_kafka_topic_partition_list_new(8);
    for (size_t i = 0; i < source->partition_count; i++) {
        struct kafka_partition *partition = &source->partitions[i];
        if (!must_reassign(partition)) {
            continue;
        }
        if (partition->queue != NULL) {
            rd_kafka_topic_partition_list_add(leave, source->config.topic, partition->id);
            release_queue(partition);
        }
        add_to_fetch(source, partition, partition->answer.offset, fetch);
    }
    if (leave->cnt > 0) {
        check_call(source, "unassign", rd_kafka_incremental_unassign(source->client, leave));
    }
    check_call(source, "assign", rd_kafka_incremental_assign(source->client, fetch));
    rd_kafka_topic_partition_list_destroy(leave);
    rd_kafka_topic_partition_list_destroy(fetch);
    source->suspect = true;
    (void)kafka_serve(source); /* A dead client is found again by the next round. */
    source->suspect = false;
}

/* Starts that were to be known later. */
static void ask_handler(struct fcap_source_kafka *source)
{
    for (size_t i = 0; i < source->partition_count; i++) {
        struct kafka_partition *partition = &source->partitions[i];
        struct fcap_start start;
        if (partition->held &&
            source->handler->resumed(source->handler->context, partition->id, &start)) {
            FCAP_ASSERT(start.kind != FCAP_START_LATER);
            partition->held = false;
            source->happened = true;
            ask(source, partition, start, false);
        }
    }
}

void kafka_group_start(struct fcap_source_kafka *source)
{
    bool any = false;
    ask_handler(source);
    take_answers(source);
    for (size_t i = 0; i < source->partition_count; i++) {
        struct kafka_partition *partition = &source->partitions[i];
        if (!partition->started && partition->answer.answered && partition->doubt) {
            ask_again(source, partition);
        } else if (!partition->started && partition->answer.answered && partition->answer.is_gap) {
            ask_after_gap(source, partition);
        }
        any = any || must_reassign(partition);
    }
    if (any) {
        if (may_reassign(source) && kafka_serve(source) && may_reassign(source)) {
            reassign(source);
        }
    }
    for (size_t i = 0; i < source->partition_count && source->dead == FCAP_OK; i++) {
        struct kafka_partition *partition = &source->partitions[i];
        if (!partition->started && partition->answer.answered && !partition->answer.is_gap &&
            !must_reassign(partition)) {
            tell_started(source, partition);
        }
    }
}

/* From where the partition stands, with what the handler knows of the log. */
static void ask_from_here(struct fcap_source_kafka *source, struct kafka_partition *partition,
                          bool is_trusted)
{
    struct fcap_start start = {.kind = FCAP_START_OFFSET};
    if (source->handler->position != NULL) {
        source->handler->position(source->handler->context, partition->id, &start);
    }
    start.kind = FCAP_START_OFFSET;
    start.offset = partition->next;
    ask(source, partition, start, is_trusted);
}

void kafka_group_restart(struct fcap_source_kafka *source, struct kafka_partition *partition)
{
    partition->parked = true;
    ask_from_here(source, partition, false);
}

void kafka_group_refetch(struct fcap_source_kafka *source, struct kafka_partition *partition)
{
    partition->parked = true;
    ask_from_here(source, partition, true);
}

void kafka_group_recheck(struct fcap_source_kafka *source, struct kafka_partition *partition)
{
    partition->parked = true; /* What was fetched ahead may be of the log that is gone. */
    ask_from_here(source, partition, false);
}
