#include "fcap/event.h"

#include "fcap/assert.h"
#include "fcap/mutant.h"

enum destination { SKIP, DEAD };

static const struct {
    enum destination destination;
    const char *label;
    const char *text;
} rejects[FCAP_REJECT_COUNT] = {
#define X(name, where, label, text) {where, label, text},
    FCAP_REJECT_LIST(X)
#undef X
};

const char *fcap_reject_label(enum fcap_reject reject)
{
    FCAP_ASSERT(reject < FCAP_REJECT_COUNT);
    return rejects[reject].label;
}

const char *fcap_reject_text(enum fcap_reject reject)
{
    FCAP_ASSERT(reject < FCAP_REJECT_COUNT);
    return rejects[reject].text;
}

bool fcap_reject_is_dead(enum fcap_reject reject)
{
    FCAP_ASSERT(reject < FCAP_REJECT_COUNT);
    return rejects[reject].destination == DEAD;
}

bool fcap_is_future(const struct fcap_record *record, int64_t event_time_ms,
                    struct fcap_future_rule rule)
{
    int64_t bound_ms = rule.bound_ms;
    if (record->timestamp_type == FCAP_TIMESTAMP_APPEND && record->timestamp_ms >= 0 &&
        record->timestamp_ms < bound_ms && !FCAP_MUTANT(FUTURE_WALL)) {
        bound_ms = record->timestamp_ms;
    }
    return event_time_ms > bound_ms + rule.skew_ms;
}
