/* From the configuration to the settings of each part; no decisions but these translations.
 *
 * Everything given borrows from the configuration and from the caller's storage. Thread rule:
 * pure. */
#ifndef FCAP_DAEMON_COMPOSE_H
#define FCAP_DAEMON_COMPOSE_H

#include "fcap/checkpointer.h"
#include "fcap/config.h"
#include "fcap/dead_letters_kafka.h"
#include "fcap/decode.h"
#include "fcap/pipeline.h"
#include "fcap/restore.h"
#include "fcap/sink_redis.h"
#include "fcap/source_kafka.h"
#include "fcap/store_rocksdb.h"
#include "memory.h"

/* Room for texts and lists that settings point to; outlives them. */
struct fcap_compose_room {
    struct fcap_source_kafka_property properties[256];
    char instance_id[256];
    char probe_key[1024];
};

/* How long the topic must keep records so that a lost state can be read again: the longest window
 * and limits.max_future_skew. */
int64_t fcap_compose_retention_ms(const struct fcap_config *config);

void fcap_compose_core(const struct fcap_config *config, const struct fcap_memory_plan *plan,
                       struct fcap_settings *ret_settings);

void fcap_compose_store(const struct fcap_config *config, const struct fcap_memory_plan *plan,
                        struct fcap_store_settings *ret_settings);

/* Only when checkpoint.directory is configured; clock and tell are left to the caller. */
void fcap_compose_checkpointer(const struct fcap_config *config,
                               struct fcap_checkpointer_settings *ret_settings);

/* Whose checkpoints and how fast; the rest is left to the caller. */
void fcap_compose_restore(const struct fcap_config *config,
                          struct fcap_restore_settings *ret_settings);

void fcap_compose_decoder(const struct fcap_config *config,
                          struct fcap_decode_settings *ret_settings);

/* `worker` is part of the connection's name: connections of one name close each other. */
void fcap_compose_sink(const struct fcap_config *config, unsigned worker,
                       struct fcap_compose_room *room,
                       struct fcap_sink_redis_settings *ret_settings);

void fcap_compose_source(const struct fcap_config *config, const struct fcap_memory_plan *plan,
                         unsigned worker, struct fcap_compose_room *room,
                         struct fcap_source_kafka_settings *ret_settings);

/* Only when kafka.dead_letter.topic is configured. */
void fcap_compose_letters(const struct fcap_config *config, struct fcap_compose_room *room,
                          struct fcap_dead_letters_kafka_settings *ret_settings);

#endif
