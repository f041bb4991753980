#include "source_kafka_internal.h"

#include "fcap/point.h"

#include <string.h>

/* Why a second client and another group: on a real broker a commit from a live member during a
 * rebalance gives ILLEGAL_GENERATION and costs it the partitions that it keeps. A client that never
 * subscribes commits as a stranger, which a group without members accepts. */

bool kafka_publish_send(rd_kafka_t *client, const struct kafka_config *config,
                        struct kafka_shared *shared, struct kafka_progress *progress, size_t count)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
    for (size_t i = 0; i < count; i++) {
        if (progress[i].is_new) {
            rd_kafka_topic_partition_list_add(list, config->topic, progress[i].partition)->offset =
                progress[i].next;
        }
    }
    bool any = list->cnt > 0;
    if (any) {
        FCAP_POINT(offsets_sending);
        rd_kafka_resp_err_t error = rd_kafka_commit(client, list, 1 /* asynchronously */);
        FCAP_POINT(offsets_sent);
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
            kafka_publish_answered(shared, error, list);
        }
    }
    rd_kafka_topic_partition_list_destroy(list);
    return any;
}

void kafka_publish_answered(struct kafka_shared *shared, rd_kafka_resp_err_t error,
                            const rd_kafka_topic_partition_list_t *offsets)
{
    if (error == RD_KAFKA_RESP_ERR__NO_OFFSET) {
        return; /* Nothing was to be committed. */
    }
    uint64_t count = offsets != NULL ? (uint64_t)offsets->cnt : 0;
    pthread_mutex_lock(&shared->lock);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        shared->snapshot.published += count;
    } else {
        shared->snapshot.publish_errors += count;
    }
    pthread_mutex_unlock(&shared->lock);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        kafka_shared_error(shared, "progress offsets: %s", rd_kafka_err2str(error));
    }
}
