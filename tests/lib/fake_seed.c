#include "lib/fake_seed.h"

#include "fcap/assert.h"

#include "lib/random_log.h"

#include <stdio.h>

enum { POLLS_MAX = 10 };

static struct fake_seed *fake_of(struct fcap_seed *port)
{
    return (struct fake_seed *)port;
}

static void acked(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    struct fake_seed *seed = context;
    (void)token;
    seed->is_acked = result == FCAP_PUSH_DONE;
    seed->integer = integer;
}

static bool poll_sink(struct fake_seed *seed)
{
    const struct fcap_sink_handler handler = {seed, acked};
    struct fcap_sink *sink = &seed->sink.sink;
    struct fcap_sink_state state = {0};
    for (int i = 0; i < POLLS_MAX; i++) {
        (void)sink->ops->poll(sink, &handler, 0); /* RETRY is information. */
        sink->ops->state(sink, &state);
        if (state.ready && seed->sink.in_flight == 0) {
            return true;
        }
    }
    return false;
}

int64_t fake_seed_do(struct fake_seed *seed, const struct fcap_push *push)
{
    struct fcap_sink *sink = &seed->sink.sink;
    FCAP_ASSERT(poll_sink(seed));
    seed->is_acked = false;
    FCAP_ASSERT(sink->ops->push(sink, push) == FCAP_OK);
    FCAP_ASSERT(poll_sink(seed) && seed->is_acked);
    return seed->integer;
}

static struct fcap_bytes epoch_key(const struct fake_seed *seed, int32_t partition, char text[64])
{
    (void)snprintf(text, 64, "fc:epoch:%s:%d", seed->profile, partition);
    return fcap_bytes_of(text);
}

uint64_t fake_seed_epoch(struct fake_seed *seed, int32_t partition)
{
    char text[64];
    struct fcap_bytes value;
    int64_t expire_at_ms;
    if (!fcap_fake_redis_get(seed->redis, epoch_key(seed, partition, text), &value,
                             &expire_at_ms)) {
        return 0;
    }
    uint64_t epoch = 0;
    for (size_t i = 0; i < value.size; i++) {
        epoch = epoch * 10 + (uint64_t)(value.data[i] - '0');
    }
    return epoch;
}

uint64_t fake_seed_increment(struct fake_seed *seed, int32_t partition)
{
    char text[64];
    struct fcap_push push = {.kind = FCAP_PUSH_INCREMENT, .key = epoch_key(seed, partition, text)};
    return (uint64_t)fake_seed_do(seed, &push);
}

/* What every call begins with. */
static enum fcap_status reach(struct fake_seed *seed)
{
    if (seed->redis->down || random_below(&seed->random, 2000) < seed->unavailable ||
        !poll_sink(seed)) {
        return FCAP_UNAVAILABLE;
    }
    if (!seed->has_looked) {
        seed->has_looked = true;
        seed->run_id = seed->redis->run_id;
        seed->sentinel = seed->redis->sentinel;
    }
    bool is_same = seed->redis->run_id == seed->run_id && seed->redis->sentinel == seed->sentinel;
    if (!is_same && !seed->ignores_identity) {
        seed->foreign++;
        return FCAP_FOREIGN;
    }
    return FCAP_OK;
}

/* It was done, and the answer got lost. */
static enum fcap_status answer(struct fake_seed *seed)
{
    return random_below(&seed->random, 2000) < seed->unavailable ? FCAP_UNAVAILABLE : FCAP_OK;
}

static enum fcap_status look(struct fcap_seed *port, int32_t count, bool *ret_open,
                             struct fcap_seed_time *ret_time)
{
    struct fake_seed *seed = fake_of(port);
    FCAP_ASSERT(count <= FAKE_SEED_PARTITIONS_MAX);
    enum fcap_status status = reach(seed);
    status = status == FCAP_OK ? answer(seed) : status;
    if (status != FCAP_OK) {
        return status;
    }
    int64_t now_ms = seed->redis->clock->wall_ms(seed->redis->clock);
    for (int32_t i = 0; i < count; i++) {
        ret_open[i] = seed->shown_until_ms[i] > now_ms && !seed->is_blind;
    }
    *ret_time = (struct fcap_seed_time){.time_ms = now_ms, .cost_ms = seed->look_cost_ms};
    seed->looks++;
    return FCAP_OK;
}

static enum fcap_status claim(struct fcap_seed *port, int32_t partition, uint64_t *ret_epoch)
{
    struct fake_seed *seed = fake_of(port);
    enum fcap_status status = reach(seed);
    if (status != FCAP_OK) {
        return status;
    }
    if (seed->claims_nothing) {
        *ret_epoch = fake_seed_epoch(seed, partition);
        return FCAP_OK;
    }
    *ret_epoch = fake_seed_increment(seed, partition);
    seed->claims++;
    return answer(seed);
}

static enum fcap_status write_keys(struct fcap_seed *port, int32_t partition, uint64_t epoch,
                                   const struct fcap_seed_key *keys, size_t count,
                                   size_t *ret_written, bool *ret_fenced)
{
    struct fake_seed *seed = fake_of(port);
    enum fcap_status status = reach(seed);
    if (status != FCAP_OK) {
        return status;
    }
    *ret_written = 0;
    *ret_fenced = fake_seed_epoch(seed, partition) != epoch && !seed->ignores_epoch;
    if (*ret_fenced) {
        seed->fenced++;
        return answer(seed);
    }
    seed->transactions++;
    if (seed->transaction != NULL) {
        seed->transaction(seed->context, partition, keys, count);
    }
    for (size_t i = 0; i < count; i++) {
        struct fcap_bytes value;
        int64_t expire_at_ms;
        if (!seed->overwrites &&
            fcap_fake_redis_get(seed->redis, keys[i].key, &value, &expire_at_ms)) {
            continue;
        }
        struct fcap_push push = {.kind = FCAP_PUSH_SET,
                                 .key = keys[i].key,
                                 .value = keys[i].value,
                                 .expire_at_ms = keys[i].expire_at_ms};
        (void)fake_seed_do(seed, &push); /* No number. */
        ++*ret_written;
    }
    return answer(seed);
}

void fake_seed_init(struct fake_seed *seed, struct fcap_fake_redis *redis, struct fcap_clock *clock,
                    const char *profile)
{
    static const struct fcap_seed_ops ops = {look, claim, write_keys};
    *seed = (struct fake_seed){.port = {&ops}, .redis = redis, .profile = profile, .random = 1};
    fcap_fake_sink_open(&seed->sink, redis, clock, "fcapd-backfill");
}

void fake_seed_done(struct fake_seed *seed)
{
    fcap_fake_sink_close(&seed->sink);
}
