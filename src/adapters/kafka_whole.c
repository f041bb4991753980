/* What a record behind something that is missing tells about it. */
#include "kafka_whole.h"

void kafka_whole_short(struct kafka_whole *whole)
{
    whole->since_ms = INT64_MAX;
    whole->is_open = true;
}

void kafka_whole_cut(struct kafka_whole *whole)
{
    kafka_whole_short(whole);
    whole->is_cut = true;
}

/* What is missing was appended before this record. When that was, the broker's clock says; a
 * producer may stamp what happened long ago, and is believed only where reading was to begin, for
 * that was sought by the same timestamps. */
void kafka_whole_record(struct kafka_whole *whole, const struct fcap_start *start,
                        struct fcap_decoder *decoder, const struct fcap_record *record)
{
    if (!whole->is_open || record->timestamp_ms < FCAP_TIMESTAMP_USABLE_MS ||
        !fcap_start_tells(start, decoder, record)) {
        return;
    }
    whole->is_open = false;
    if (!whole->is_cut || record->timestamp_type == FCAP_TIMESTAMP_APPEND) {
        whole->since_ms = record->timestamp_ms;
    }
}
