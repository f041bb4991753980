#include "fcap/mutant.h"
#include "fcap/ports.h"

bool fcap_start_misses(const struct fcap_start *start, struct fcap_decoder *decoder,
                       const struct fcap_record *record, int64_t waited_ms)
{
    struct fcap_event event;
    if (FCAP_MUTANT(STAMPS)) {
        return false;
    }
    if (record->timestamp_ms < FCAP_TIMESTAMP_USABLE_MS) {
        return true;
    }
    if (record->timestamp_type == FCAP_TIMESTAMP_APPEND) {
        return false; /* An event that is later than the broker's own word is refused. */
    }
    /* A tombstone erases only what stands before it, and that is left out with it. */
    return decoder != NULL && decoder->decode(decoder, record, &event) == FCAP_REJECT_NONE &&
           !event.is_tombstone && event.time_ms > start->after_ms &&
           event.time_ms - waited_ms <= start->future_ms;
}

bool fcap_start_tells(const struct fcap_start *start, struct fcap_decoder *decoder,
                      const struct fcap_record *record)
{
    struct fcap_event event;
    if (record->timestamp_type == FCAP_TIMESTAMP_APPEND || decoder == NULL ||
        FCAP_MUTANT(STAMPS_UNTOLD)) {
        return true;
    }
    return record->timestamp_ms >= FCAP_TIMESTAMP_USABLE_MS &&
           record->timestamp_ms <= start->future_ms &&
           decoder->decode(decoder, record, &event) == FCAP_REJECT_NONE && !event.is_tombstone &&
           event.time_ms <= record->timestamp_ms + (start->after_ms - start->time_ms);
}
