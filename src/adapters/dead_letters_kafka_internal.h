/* What the files of the dead-letter producer share. Thread rule: no shared state. */
#ifndef FCAP_DEAD_LETTERS_KAFKA_INTERNAL_H
#define FCAP_DEAD_LETTERS_KAFKA_INTERNAL_H

#include "fcap/dead_letters_kafka.h"

#include <librdkafka/rdkafka.h>

/* Checks the settings and puts them into `conf`; the two numbers with their defaults filled in. */
enum fcap_status kafka_letters_configure(rd_kafka_conf_t *conf,
                                         const struct fcap_dead_letters_kafka_settings *settings,
                                         size_t letters_max, int give_up_ms,
                                         struct fcap_error *error);

#endif
