/* What every source must do, whichever it is: run on the fake, on librdkafka's mock cluster and on
 * a real broker, so that the simulator does not test a fiction. */
#ifndef FCAP_TESTS_SOURCE_CONTRACT_H
#define FCAP_TESTS_SOURCE_CONTRACT_H

#include "fcap/ports.h"

/* One kind of source, and the topic under it. */
struct source_world {
    const char *name;
    bool has_times;               /* look-ups by time work */
    bool can_trim;                /* and recreate */
    struct fcap_decoder *decoder; /* the suite's; open() hands it to the source */
    /* A fresh topic for each test. */
    void (*create)(struct source_world *world, int32_t partitions);
    /* Appends; what was appended is readable after settle(). */
    void (*append)(struct source_world *world, int32_t partition, struct fcap_bytes key,
                   struct fcap_bytes value, int64_t timestamp_ms);
    void (*settle)(struct source_world *world);
    /* An aborted transaction: `count` + 1 offsets without a record. Only where can_trim. */
    void (*append_aborted)(struct source_world *world, int32_t partition, int count);
    void (*trim)(struct source_world *world, int32_t partition, int64_t log_start);
    /* The topic is deleted and created again, empty. */
    void (*recreate)(struct source_world *world, int32_t partitions);
    /* The only member: it gets all partitions within some polls. */
    struct fcap_source *(*open)(struct source_world *world);
    /* Closes it; what it owns is revoked in peace. */
    void (*close)(struct source_world *world, const struct fcap_source_handler *handler);
    void (*destroy)(struct source_world *world); /* the topic */
};

/* Of the suite, about starts by time: prepares the world, and a test. */
void source_contract_times(struct source_world *world);
void source_contract_B10_timestamps_that_lie(void **state);
void source_contract_cut_log(void **state);

/* Runs the suite; returns the number of failed tests, as cmocka does. */
int source_contract_run(struct source_world *world);

#endif
