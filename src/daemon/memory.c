#include "memory.h"

/* When the topic cannot be asked: with fewer partitions each queue could be larger, with more the
 * queues together may take more than their share. */
#define PARTITIONS_UNKNOWN 32
#define MIB                (1024.0 * 1024.0)

struct fcap_memory_plan fcap_memory_plan_make(const struct fcap_config *config,
                                              int32_t topic_partitions)
{
    int64_t workers = config->workers;
    int64_t partitions = topic_partitions > 0 ? topic_partitions : PARTITIONS_UNKNOWN;
    struct fcap_memory_plan plan = {
        .workers = workers,
        .budget_bytes = config->memory.budget_bytes,
        .record_cache_bytes = config->memory.record_cache_bytes,
        .worker_cache_bytes = config->memory.record_cache_bytes / workers / 5 * 4,
        .block_cache_bytes = config->memory.block_cache_bytes,
        .write_buffers_bytes = config->memory.write_buffers_bytes,
        .kafka_queues_bytes = config->memory.kafka_queues_bytes,
        .worker_queues_bytes = config->memory.kafka_queues_bytes / workers,
        .worker_partitions = (int32_t)((partitions + workers - 1) / workers),
        .send_buffers_bytes = (workers + 1) * config->redis.send_buffer_bytes,
    };
    if (config->checkpoint.directory != NULL) {
        plan.checkpoint_queue_bytes = config->checkpoint.queue_bytes;
        plan.transfer_bytes = config->materialization.transfer_threads * FCAP_CONFIG_TRANSFER_BYTES;
    }
    plan.working_bytes = plan.budget_bytes - plan.record_cache_bytes - plan.block_cache_bytes -
                         plan.write_buffers_bytes - plan.kafka_queues_bytes -
                         plan.checkpoint_queue_bytes - plan.transfer_bytes;
    return plan;
}

static void print_part(FILE *file, const char *name, int64_t bytes, const char *text)
{
    (void)fprintf(file, "  %-28s %9.1f MiB  %s\n", name, (double)bytes / MIB, text);
}

void fcap_memory_plan_print(FILE *file, const struct fcap_memory_plan *plan)
{
    (void)fprintf(file, "memory: %lld workers share memory.budget\n", (long long)plan->workers);
    print_part(file, "memory.budget", plan->budget_bytes, "the process");
    print_part(file, "memory.record_cache", plan->record_cache_bytes, "decoded user records");
    print_part(file, "  each worker", plan->worker_cache_bytes,
               "kept below; a quarter more while changes wait to be written");
    print_part(file, "memory.block_cache", plan->block_cache_bytes,
               "RocksDB's blocks, indexes, filters");
    print_part(file, "memory.write_buffers", plan->write_buffers_bytes, "RocksDB's write buffers");
    print_part(file, "memory.kafka_queues", plan->kafka_queues_bytes, "fetched, not read yet");
    (void)fprintf(file, "  %-28s %9.1f MiB  shared by %d partitions\n", "  each worker",
                  (double)plan->worker_queues_bytes / MIB, plan->worker_partitions);
    if (plan->checkpoint_queue_bytes > 0) {
        print_part(file, "checkpoint.queue", plan->checkpoint_queue_bytes,
                   "changes that wait for the volume");
        print_part(file, "materialization", plan->transfer_bytes, "threads that send files");
    }
    print_part(file, "working room", plan->working_bytes, "what is left; in it:");
    print_part(file, "  redis.send_buffer", plan->send_buffers_bytes, "all connections together");
}
