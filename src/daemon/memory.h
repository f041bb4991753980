/* How memory.budget is divided: the one place where each part's share for a worker is decided.
 *
 * The four big parts come from the configuration (memory.*, given or computed there) and take at
 * most nine tenths, after what checkpoints take; the rest is working room: send buffers, commits in
 * flight, the ads' tables, librdkafka, malloc. Thread rule: pure. */
#ifndef FCAP_DAEMON_MEMORY_H
#define FCAP_DAEMON_MEMORY_H

#include "fcap/config.h"

#include <stdint.h>
#include <stdio.h>

struct fcap_memory_plan {
    int64_t workers;
    int64_t budget_bytes;
    int64_t record_cache_bytes;  /* all workers */
    int64_t worker_cache_bytes;  /* one pipeline's cache_bytes: four fifths of its share, because a
                                    cache full of unwritten changes may grow by a quarter */
    int64_t block_cache_bytes;   /* the process */
    int64_t write_buffers_bytes; /* the process */
    int64_t kafka_queues_bytes;  /* all workers */
    int64_t worker_queues_bytes; /* one member's queues together */
    int32_t worker_partitions;   /* partitions that share them */
    int64_t send_buffers_bytes;  /* all Redis connections: the workers' and the reporter's */
    int64_t checkpoint_queue_bytes; /* changes that wait for the volume; 0: no checkpoints */
    int64_t transfer_bytes;         /* all threads that send files of snapshots; 0: none */
    int64_t working_bytes;          /* what is left of the budget */
};

/* `topic_partitions`: of the topic, 0 when not known. A worker's queues are sized for the
 * partitions that it gets when this process is alone in its group. */
struct fcap_memory_plan fcap_memory_plan_make(const struct fcap_config *config,
                                              int32_t topic_partitions);

/* One line for each part. */
void fcap_memory_plan_print(FILE *file, const struct fcap_memory_plan *plan);

#endif
