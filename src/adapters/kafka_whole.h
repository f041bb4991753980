/* Since when nothing is missing of what backfill reads of a partition: the rule of `run`
 * (src/core/log.c, docs/decisions/0016). Thread rule: one thread. */
#ifndef FCAP_ADAPTERS_KAFKA_WHOLE_H
#define FCAP_ADAPTERS_KAFKA_WHOLE_H

#include "fcap/event.h"
#include "fcap/meta.h"
#include "fcap/ports.h"

#include <stdbool.h>

struct kafka_whole {
    int64_t since_ms; /* FCAP_TIME_NONE: ever; INT64_MAX: nothing has told yet */
    bool is_open;     /* the next record with a usable time may tell */
    bool is_cut;      /* only the broker's clock may */
};

/* Nothing is missing. */
#define KAFKA_WHOLE ((struct kafka_whole){.since_ms = FCAP_TIME_NONE})

/* The log begins where reading does and may have held more. */
void kafka_whole_short(struct kafka_whole *whole);
/* What was to be read is gone. */
void kafka_whole_cut(struct kafka_whole *whole);
/* A record that was read, by a start that was asked for; its timestamp counts when nothing is known
 * against the topic's, and the record itself says that it can be the time of its writing
 * (fcap_start_tells). */
void kafka_whole_record(struct kafka_whole *whole, const struct fcap_start *start,
                        struct fcap_decoder *decoder, const struct fcap_record *record);

#endif
