#include "source_kafka_internal.h"

#include "fcap/assert.h"

#include <inttypes.h>

/* One call's time. On 2.0.2 a call can outlast it many times when the broker is away; this thread
 * can wait. */
#define CALL_MS 5000

/* A follower that has just become leader may know an older end until the others have fetched from
 * it, and "beyond the end" throws state away: the end must have stood still for so long, or have
 * been too low for longer, for somebody may be writing to a log that did become shorter. */
#define BEYOND_SETTLED_MS 5000
#define BEYOND_MS         30000

/* Ends are asked for again and again, and what is asked once must not wait for them: the time of
 * one call for all, of one for a single partition, and of all of those together. */
#define ENDS_CALL_MS 1000
#define END_CALL_MS  300
#define ENDS_MS      2000

/* Errors that have not come again for so long are over when the brokers answer. */
#define QUIET_MS 5000

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool is_by_time(const struct kafka_lookup *lookup)
{
    return lookup->start.kind == FCAP_START_TIME || lookup->start.kind == FCAP_START_AGAIN;
}

static void fail(struct kafka_shared *shared, const struct kafka_config *config, const char *what,
                 struct kafka_lookup *lookup, rd_kafka_resp_err_t error)
{
    lookup->failed = true;
    kafka_shared_error(shared, "%s of %s [%" PRId32 "]: %s", what, config->topic, lookup->partition,
                       rd_kafka_err2str(error));
}

/* Ends first, times second: a record that arrives between the two is found by its time. The other
 * way round, "no record is that young" could be followed by an end that already covers one. */
static void find_ends(rd_kafka_t *client, const struct kafka_config *config,
                      struct kafka_shared *shared, struct kafka_lookup *lookups, size_t count)
{
    int64_t until_ms = fcap_kafka_now_ms() + CALL_MS;
    for (size_t i = 0; i < count; i++) {
        if (fcap_kafka_now_ms() >= until_ms) {
            lookups[i].failed = true; /* The next round begins with another one. */
            continue;
        }
        rd_kafka_resp_err_t error =
            rd_kafka_query_watermark_offsets(client, config->topic, lookups[i].partition,
                                             &lookups[i].log_start, &lookups[i].end, CALL_MS);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
            fail(shared, config, "ends", &lookups[i], error);
        }
    }
}

static struct kafka_lookup *find_partition(struct kafka_lookup *lookups, size_t count,
                                           int32_t partition)
{
    for (size_t i = 0; i < count; i++) {
        if (lookups[i].partition == partition) {
            return &lookups[i];
        }
    }
    return NULL;
}

static void find_times(rd_kafka_t *client, const struct kafka_config *config,
                       struct kafka_shared *shared, struct kafka_lookup *lookups, size_t count)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
    for (size_t i = 0; i < count; i++) {
        lookups[i].by_time = lookups[i].log_start;
        bool is_sought = lookups[i].start.kind == FCAP_START_TIME || lookups[i].start.time_ms > 0;
        if (is_by_time(&lookups[i]) && is_sought && !lookups[i].failed) {
            rd_kafka_topic_partition_list_add(list, config->topic, lookups[i].partition)->offset =
                max_of(lookups[i].start.time_ms, 0);
        }
    }
    rd_kafka_resp_err_t error = list->cnt > 0 ? rd_kafka_offsets_for_times(client, list, CALL_MS)
                                              : RD_KAFKA_RESP_ERR_NO_ERROR;
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *found = &list->elems[i];
        struct kafka_lookup *lookup = find_partition(lookups, count, found->partition);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR || found->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            fail(shared, config, "offset by time", lookup,
                 error != RD_KAFKA_RESP_ERR_NO_ERROR ? error : found->err);
            continue;
        }
        /* -1: every record is older, or there is none. It is also the library's word for "wherever
         * the end is later", which would skip what arrives until then. */
        lookup->by_time =
            found->offset < 0 ? lookup->end : max_of(found->offset, lookup->log_start);
    }
    rd_kafka_topic_partition_list_destroy(list);
}

/* Whether an offset beyond the end may be believed now. */
static bool is_settled(struct kafka_lookup *lookup, int64_t now_ms)
{
    if (lookup->beyond_since_ms == 0) {
        lookup->beyond_since_ms = now_ms;
        lookup->settled_end = -1;
    }
    if (lookup->settled_end != lookup->end) {
        lookup->settled_end = lookup->end;
        lookup->settled_ms = now_ms;
    }
    return now_ms - lookup->settled_ms >= BEYOND_SETTLED_MS ||
           now_ms - lookup->beyond_since_ms >= BEYOND_MS;
}

/* What follows from the comparison (docs/decisions/0007). */
static void check_offset(struct kafka_lookup *lookup)
{
    bool is_beyond = lookup->start.offset > lookup->end;
    bool is_other = lookup->other != INT64_MAX;
    lookup->offset = lookup->start.offset;
    lookup->gap_next = lookup->log_start;
    if (lookup->offset < lookup->log_start) {
        lookup->is_gap = true;
        lookup->gap = FCAP_GAP_BELOW_START;
    } else if (is_other || is_beyond) {
        lookup->is_gap = true;
        lookup->gap = is_other ? FCAP_GAP_RECREATED : FCAP_GAP_BEYOND_END;
        if (lookup->same >= 0) {
            lookup->gap = FCAP_GAP_TRUNCATED;
            lookup->gap_next = lookup->other < lookup->end ? lookup->other : lookup->end;
        }
    }
    if (!is_beyond) {
        lookup->beyond_since_ms = 0;
    }
    /* Other records below the end are proof enough. */
    lookup->answered = !is_beyond || is_other || is_settled(lookup, fcap_kafka_now_ms());
}

void kafka_lookup_run(rd_kafka_t *client, const struct kafka_config *config,
                      struct kafka_shared *shared, struct kafka_lookup *lookups, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        lookups[i].failed = false;
        lookups[i].is_gap = false;
        lookups[i].timestamps_unusable = false;
    }
    find_ends(client, config, shared, lookups, count);
    kafka_compare_run(client, config, shared, lookups, count);
    find_times(client, config, shared, lookups, count);
    kafka_times_check(client, config, shared, lookups, count);
    for (size_t i = 0; i < count; i++) {
        if (lookups[i].failed) {
            continue;
        }
        lookups[i].answered = true;
        switch (lookups[i].start.kind) {
        case FCAP_START_OFFSET:
            check_offset(&lookups[i]);
            break;
        case FCAP_START_EARLIEST:
            lookups[i].offset = lookups[i].log_start;
            break;
        case FCAP_START_LATEST:
            lookups[i].offset = lookups[i].end;
            break;
        case FCAP_START_TIME:
            lookups[i].offset = lookups[i].by_time;
            break;
        case FCAP_START_AGAIN:
            check_offset(&lookups[i]);
            lookups[i].offset = lookups[i].by_time;
            break;
        case FCAP_START_LATER:
            FCAP_ASSERT(false); /* It is asked when it is known. */
        }
    }
}

/* One call. No answer says nothing about a partition: the look-ups and the client itself report
 * what is wrong with a broker. */
static bool ask_ends(rd_kafka_t *client, const struct kafka_config *config, struct kafka_end *ends,
                     size_t count, int call_ms)
{
    const int64_t at_end = -1; /* The special time: the end that readers see. */
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
    for (size_t i = 0; i < count; i++) {
        rd_kafka_topic_partition_list_add(list, config->topic, ends[i].partition)->offset = at_end;
    }
    rd_kafka_resp_err_t error = rd_kafka_offsets_for_times(client, list, call_ms);
    for (size_t i = 0; i < count && error == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
        const rd_kafka_topic_partition_t *found =
            rd_kafka_topic_partition_list_find(list, config->topic, ends[i].partition);
        if (found->err == RD_KAFKA_RESP_ERR_NO_ERROR && found->offset >= 0) {
            ends[i].end = found->offset;
            ends[i].answered_ms = fcap_kafka_now_ms();
        }
    }
    rd_kafka_topic_partition_list_destroy(list);
    return error == RD_KAFKA_RESP_ERR_NO_ERROR;
}

void kafka_lookup_ends(rd_kafka_t *client, const struct kafka_config *config,
                       struct kafka_ends_poll *poll, struct kafka_end *ends, size_t count)
{
    if (count == 0 || ask_ends(client, config, ends, count, ENDS_CALL_MS)) {
        return;
    }
    int64_t until_ms = fcap_kafka_now_ms() + ENDS_MS;
    for (size_t i = 0; i < count && count > 1; i++) {
        if (fcap_kafka_now_ms() >= until_ms || poll->must_yield(poll->context)) {
            return;
        }
        (void)ask_ends(client, config, &ends[poll->turn % count], 1, END_CALL_MS);
        poll->turn++;
    }
}

bool kafka_lookup_partitions(rd_kafka_t *client, const struct kafka_config *config,
                             struct kafka_shared *shared)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, config->topic, NULL);
    if (topic == NULL) {
        return false; /* Only when the client is ending. */
    }
    rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, topic, &metadata, CALL_MS);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR && metadata->topic_cnt == 1) {
        error = metadata->topics[0].err;
    }
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        pthread_mutex_lock(&shared->lock);
        shared->snapshot.topic_partitions = metadata->topics[0].partition_cnt;
        /* On an idle topic no record says that the brokers are back. */
        if (shared->snapshot.assigned > 0 && shared->snapshot.waiting == 0 &&
            fcap_kafka_now_ms() - shared->snapshot.error_ms >= QUIET_MS) {
            shared->snapshot.error_since_ms = 0;
        }
        pthread_mutex_unlock(&shared->lock);
    } else {
        kafka_shared_error(shared, "partitions of %s: %s", config->topic, rd_kafka_err2str(error));
    }
    if (metadata != NULL) {
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_topic_destroy(topic);
    return error == RD_KAFKA_RESP_ERR_NO_ERROR;
}
