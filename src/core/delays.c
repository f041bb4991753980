#include "fcap/delays.h"

#include "fcap/counters.h"

int64_t fcap_delay_bound_ms(size_t bucket)
{
    if (bucket < FCAP_DELAY_LINEAR) {
        return (int64_t)bucket;
    }
    size_t octave = (bucket - FCAP_DELAY_LINEAR) / FCAP_DELAY_PARTS;
    size_t part = (bucket - FCAP_DELAY_LINEAR) % FCAP_DELAY_PARTS;
    int64_t width = (int64_t)(FCAP_DELAY_LINEAR / FCAP_DELAY_PARTS) << octave;
    return (int64_t)(FCAP_DELAY_PARTS + part + 1) * width - 1;
}

static size_t bucket_of_delay(uint64_t delay_ms)
{
    if (delay_ms < FCAP_DELAY_LINEAR) {
        return (size_t)delay_ms;
    }
    size_t power = 63 - (size_t)__builtin_clzll(delay_ms); /* At least 4. */
    size_t part = (size_t)(delay_ms >> (power - 3)) % FCAP_DELAY_PARTS;
    size_t bucket = FCAP_DELAY_LINEAR + (power - 4) * FCAP_DELAY_PARTS + part;
    return bucket < FCAP_DELAY_BUCKETS ? bucket : FCAP_DELAY_BUCKETS;
}

void fcap_delay_observe(struct fcap_delay_histogram *histogram, int64_t delay_ms)
{
    uint64_t delay = delay_ms > 0 ? (uint64_t)delay_ms : 0;
    FCAP_COUNT(histogram->counts[bucket_of_delay(delay)], 1);
    FCAP_COUNT(histogram->sum_ms, delay);
}

const char *fcap_stage_name(enum fcap_stage stage)
{
    static const char *const names[] = {
#define X(name, text) #name,
        FCAP_STAGE_LIST(X)
#undef X
    };
    return names[stage];
}
