#include "dead_letters_kafka_internal.h"
#include "kafka_properties.h"

#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static const char all_replicas[] =
    "a letter counts as written only when all in-sync replicas have it";

/* clang-format off */
static const struct fcap_kafka_refusal refusals[] = {
    {"bootstrap.servers",        "use kafka.brokers"},
    {"metadata.broker.list",     "use kafka.brokers"},
    {"acks",                     all_replicas},
    {"request.required.acks",    all_replicas},
    {"enable.idempotence",       "chosen by what the broker allows"},
    {"transactional.id",         "letters are not written in transactions"},
    {"message.timeout.ms",       "follows from kafka.dead_letter_policy"},
    {"delivery.timeout.ms",      "follows from kafka.dead_letter_policy"},
    {"delivery.report.only.error", "a letter counts as written only when it was reported"},
};
/* clang-format on */

enum fcap_status kafka_letters_configure(rd_kafka_conf_t *conf,
                                         const struct fcap_dead_letters_kafka_settings *settings,
                                         size_t letters_max, int give_up_ms,
                                         struct fcap_error *error)
{
    enum fcap_status status =
        fcap_kafka_check_topic("kafka.dead_letter_topic", settings->topic, error);
    if (status != FCAP_OK) {
        return status;
    }
    if (settings->brokers == NULL || settings->brokers[0] == '\0') {
        return fcap_error_set(error, FCAP_CONFIG, "kafka.brokers: at least one broker is needed");
    }
    if (settings->source_topic != NULL && strcmp(settings->source_topic, settings->topic) == 0) {
        return fcap_error_set(error, FCAP_CONFIG,
                              "kafka.dead_letter_topic: \"%s\" is the topic that is read: each "
                              "refused record would come back",
                              settings->topic);
    }
    status = fcap_kafka_set(conf, "bootstrap.servers", settings->brokers, error);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"linger.ms", 20},
        /* Our own bounds are the ones that count. */
        {"queue.buffering.max.messages", (int64_t)letters_max + 1},
        {"queue.buffering.max.kbytes", 2097151},
        {"message.max.bytes", 100000000},
        /* 0: the client never gives up by itself; what it still reports comes back to us. */
        {"message.timeout.ms", settings->policy == FCAP_DEAD_LETTERS_DROP ? give_up_ms : 0},
        {"reconnect.backoff.max.ms", 1000},
        /* So soon is a missing topic an error that can be seen. */
        {"topic.metadata.propagation.max.ms", 3000},
    };
    for (size_t i = 0; i < COUNT(numbers) && status == FCAP_OK; i++) {
        status = fcap_kafka_set_number(conf, numbers[i].name, numbers[i].value, error);
    }
    if (status == FCAP_OK) {
        status = fcap_kafka_set(conf, "acks", "all", error);
    }
    if (status == FCAP_OK) {
        status = fcap_kafka_set_properties(conf, settings->properties, settings->property_count,
                                           refusals, COUNT(refusals), error);
    }
    return status;
}
