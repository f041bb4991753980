/* Any bytes as a record's value (and, cut, as its key): no crash, no answer outside the contract,
 * and the same answer from every parser of the build. With libFuzzer (FCAP_LIBFUZZER) it searches;
 * without, main() replays the files and folders of its arguments. */
#include "fcap/decode.h"

#include "fcap/assert.h"
#include "fuzz_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIANTS_COUNT 4
#define PARSERS_MAX    2

static const char *const filter_values[] = {"impression", "7", "true"};
static const char *const ignore_users[] = {"0", "nobody"};

static const struct fcap_decode_settings variants[VARIANTS_COUNT] = {
    {
        .user_path = "user_id",
        .ad_path = "ad_id",
        .time_path = "ts",
        .time_format = FCAP_TIME_MILLISECONDS,
        .id_path = "id",
        .ignore_users = ignore_users,
        .ignore_users_count = 2,
        .user_id_bytes_max = 64,
        .ad_id_bytes_max = 32,
        .record_bytes_max = 1000000,
    },
    {
        .user_path = "u.id",
        .ad_path = "u.ad",
        .time_path = "ts",
        .time_format = FCAP_TIME_ISO8601,
        .filter_path = "u.type",
        .filter_values = filter_values,
        .filter_values_count = 3,
        .user_id_bytes_max = 64,
        .ad_id_bytes_max = 32,
        .record_bytes_max = 1000000,
    },
    {
        .user_path = "@key",
        .ad_path = "ad_id",
        .time_path = "ts",
        .time_format = FCAP_TIME_NANOSECONDS,
        .user_id_bytes_max = 64,
        .ad_id_bytes_max = 32,
        .record_bytes_max = 4096,
    },
    {
        .user_path = "user_id",
        .ad_path = "ad_id",
        .time_path = "ts",
        .time_format = FCAP_TIME_MILLISECONDS,
        .is_framed = true,
        .user_id_bytes_max = 64,
        .ad_id_bytes_max = 32,
        .record_bytes_max = 1000000,
    },
};

static void check_id(struct fcap_bytes id, size_t bytes_max)
{
    FCAP_ASSERT(id.size > 0 && id.size <= bytes_max);
    FCAP_ASSERT(memchr(id.data, '\0', id.size) == NULL);
}

static void check_same(enum fcap_reject reject, const struct fcap_event *a,
                       const struct fcap_event *b)
{
    if (reject != FCAP_REJECT_NONE) {
        return;
    }
    FCAP_ASSERT(fcap_bytes_equal(a->user, b->user));
    FCAP_ASSERT(fcap_bytes_equal(a->ad, b->ad));
    FCAP_ASSERT(a->time_ms == b->time_ms);
    FCAP_ASSERT(a->has_id == b->has_id && a->id_hash == b->id_hash);
}

/* One record through every parser, under one variant of the settings. */
static void check_record(size_t variant, const struct fcap_record *record)
{
    static struct fcap_decoder *decoders[VARIANTS_COUNT][PARSERS_MAX];
    struct fcap_event events[PARSERS_MAX] = {{0}};
    enum fcap_reject rejects[PARSERS_MAX];
    for (size_t p = 0; p < PARSERS_MAX && fcap_decode_json_parser(p) != NULL; p++) {
        struct fcap_decoder **decoder = &decoders[variant][p];
        if (*decoder == NULL) {
            struct fcap_decode_settings settings = variants[variant];
            settings.parser = fcap_decode_json_parser(p);
            FCAP_ASSERT(fcap_decode_json_open(&settings, decoder, NULL) == FCAP_OK);
        }
        rejects[p] = (*decoder)->decode(*decoder, record, &events[p]);
        FCAP_ASSERT(rejects[p] == rejects[0]);
        check_same(rejects[p], &events[p], &events[0]);
    }
    if (rejects[0] == FCAP_REJECT_NONE) {
        check_id(events[0].user, variants[variant].user_id_bytes_max);
        if (!events[0].is_tombstone) {
            check_id(events[0].ad, variants[variant].ad_id_bytes_max);
            FCAP_ASSERT(events[0].time_ms >= 0 && events[0].time_ms <= FCAP_DECODE_TIME_MS_MAX);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fcap_bytes key = {data, size < 70 ? size : 70};
    struct fcap_record records[2] = {
        {.timestamp_ms = 1, .timestamp_type = FCAP_TIMESTAMP_CREATE, .key = key},
        {.timestamp_ms = 1, .timestamp_type = FCAP_TIMESTAMP_CREATE, .key = key},
    };
    records[1].value = (struct fcap_bytes){data, size};
    for (size_t variant = 0; variant < VARIANTS_COUNT; variant++) {
        check_record(variant, &records[0]); /* a null value: a tombstone */
        check_record(variant, &records[1]);
    }
    return 0;
}
