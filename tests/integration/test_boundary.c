/* The exact millisecond, on the real core and the real store: an event counts at T = event time +
 * L - 1 and not at + L, whatever the order of arrival and the borders of batches; and on a real
 * Redis a key is gone at PXAT + 1 ms with nobody touching it. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/clock_os.h"
#include "fcap/sink_redis.h"
#include "integration/virtual_world.h"
#include "lab/redis_server.h"
#include "lab/lab.h"

#define MINUTE_MS 60000ll

/* --- B11: every order of arrival, every border between batches ------------------------------ */

enum { EVENTS = 4, ORDERS = 24, BORDERS = 8, CASES = ORDERS * BORDERS };

static const int64_t times_ms[EVENTS] = {1000000, 1000000, 1000000, 1000001};
static char users[CASES][8]; /* one a case, each in a partition of its own */
static struct virtual_event events[CASES * EVENTS];

/* The order-th permutation of four. */
static void permute(size_t order, size_t ret_indexes[EVENTS])
{
    size_t left[EVENTS] = {0, 1, 2, 3};
    for (size_t i = 0, radix = 6; i < EVENTS; i++) {
        size_t pick = order / radix;
        order %= radix;
        ret_indexes[i] = left[pick];
        memmove(&left[pick], &left[pick + 1], (EVENTS - 1 - pick) * sizeof left[0]);
        radix = i < 2 ? radix / (3 - i) : 1;
    }
}

/* The i-th event of a case arrives at the moment that its borders say: a set bit is a border. All
 * cases share the moments, and there is a commit after each. */
static void make_cases(void)
{
    size_t at = 0;
    for (size_t moment = 0; moment < EVENTS; moment++) {
        for (size_t i = 0; i < CASES; i++) {
            size_t indexes[EVENTS];
            size_t when = 0;
            permute(i / BORDERS, indexes);
            (void)snprintf(users[i], sizeof users[i], "u%zu", i); /* Fits. */
            for (size_t k = 0; k < EVENTS; k++) {
                when += k > 0 && (i % BORDERS >> (k - 1) & 1) != 0;
                if (when == moment) {
                    events[at++] = (struct virtual_event){.arrival_ms = 1000010 + (int64_t)moment,
                                                          .time_ms = times_ms[indexes[k]],
                                                          .user = users[i],
                                                          .ad = "a",
                                                          .partition = (int32_t)i};
                }
            }
        }
    }
    assert_int_equal(at, CASES * EVENTS);
}

static unsigned compared; /* values and counts, in this test function */

static void check_cases(struct virtual_world *world, int64_t now_ms, unsigned count)
{
    virtual_world_run_to(world, now_ms);
    compared += 2 * CASES;
    for (size_t i = 0; i < CASES; i++) {
        const struct virtual_key *key = virtual_world_key(world, users[i], "1m");
        if (count == 0) {
            assert_null(key);
            continue;
        }
        char counts[32];
        (void)snprintf(counts, sizeof counts, "\"counts\":{\"a\":%u}}", count); /* Fits. */
        assert_non_null(key);
        assert_non_null(strstr(key->value, counts));
        assert_int_equal(key->expire_at_ms, 1060000); /* newest + L - 1 */
    }
    /* The engine's own counts, not only what Redis was told. */
    for (int32_t i = 0; i < CASES; i++) {
        struct fcap_buffer value = {0};
        assert_true(fcap_pipeline_inspect(world->pipeline, i, fcap_bytes_of(users[i]), 0, &value));
        fcap_buffer_put_u8(&value, 0);
        char counts[32];
        (void)snprintf(counts, sizeof counts, count == 0 ? "{}}" : "{\"a\":%u}}", count);
        assert_non_null(strstr((const char *)value.data, counts));
        fcap_buffer_done(&value);
    }
}

/* `restart`: what is between two batches: a commit and a crash, or nothing but a step. */
static void run_cases(bool restart)
{
    struct virtual_world *world = virtual_world_make();
    world->partition_count = CASES;
    world->now_ms = 1000009;
    virtual_world_window(world, "1m", MINUTE_MS);
    make_cases();
    virtual_world_events(world, events, CASES * EVENTS);
    virtual_world_start(world);
    for (int64_t moment = 0; moment < EVENTS; moment++) {
        virtual_world_run_to(world, 1000010 + moment);
        if (restart) {
            virtual_world_stop(world, moment % 2 == 0);
            virtual_world_start(world);
        }
    }
    compared = 0;
    check_cases(world, 1059999, 4);
    check_cases(world, 1060000, 1);
    check_cases(world, 1060001, 0);
    assert_int_equal(virtual_world_live_keys(world), 0);
    print_message("result: four events around a border in %d orders%s: %u values, 0 wrong\n", CASES,
                  restart ? ", with restarts" : "", compared);
    virtual_world_free(world);
}

static void test_orders_and_steps(void **state)
{
    (void)state;
    run_cases(false);
}

static void test_orders_and_restarts(void **state)
{
    (void)state;
    run_cases(true);
}

static void test_permutations(void **state)
{
    bool seen[256] = {false};
    (void)state;
    for (size_t order = 0; order < ORDERS; order++) {
        size_t indexes[EVENTS];
        unsigned mask = 0;
        permute(order, indexes);
        for (size_t i = 0; i < EVENTS; i++) {
            mask |= 1u << indexes[i];
        }
        size_t code = indexes[0] | indexes[1] << 2 | indexes[2] << 4 | indexes[3] << 6;
        assert_int_equal(mask, 15);
        assert_false(seen[code]);
        seen[code] = true;
    }
}

/* --- each window of several ----------------------------------------------------------------- */

static void test_each_window(void **state)
{
    static const struct {
        const char *name;
        int64_t length_ms;
    } windows[] = {{"1ms", 1},      {"7s", 7000},     {"1m", MINUTE_MS}, {"30m", 1800000},
                   {"1h", 3600000}, {"1d", 86400000}, {"7d", 604800000}};
    enum { COUNT = sizeof windows / sizeof windows[0] };
    static const struct virtual_event one = {
        .arrival_ms = 1700000000123, .time_ms = 1700000000123, .user = "u", .ad = "a"};
    struct virtual_world *world = virtual_world_make();
    (void)state;
    world->now_ms = one.time_ms - 1;
    world->settings.bucket_ms = 20000; /* Not even the length of two windows. */
    world->settings.slice_ms = 60000;
    for (size_t i = 0; i < COUNT; i++) {
        virtual_world_window(world, windows[i].name, windows[i].length_ms);
    }
    virtual_world_events(world, &one, 1);
    virtual_world_start(world);
    for (size_t i = 0; i < COUNT; i++) {
        for (int64_t step = -1; step <= 0; step++) {
            int64_t now_ms = one.time_ms + windows[i].length_ms + step;
            virtual_world_run_to(world, now_ms);
            for (size_t k = 0; k < COUNT; k++) {
                const struct virtual_key *key = virtual_world_key(world, "u", windows[k].name);
                bool counts = one.time_ms > now_ms - windows[k].length_ms; /* the definition */
                assert_int_equal(key != NULL, counts);
                assert_true(key == NULL || strstr(key->value, "{\"a\":1}") != NULL);
                assert_true(key == NULL ||
                            key->expire_at_ms == one.time_ms + windows[k].length_ms - 1);
            }
        }
        if (i % 2 == 1) {
            virtual_world_stop(world, false);
            virtual_world_start(world);
        }
    }
    print_message("result: L - 1 ms counts, L does not, for %d windows: %d values, 0 wrong\n",
                  COUNT, COUNT * COUNT * 2);
    virtual_world_free(world);
}

/* --- the store's own keys --------------------------------------------------------------------- */

struct pairs {
    struct fcap_buffer text; /* hex of key = hex of value, a line each */
};

static void put_hex(struct fcap_buffer *buffer, struct fcap_bytes bytes)
{
    char text[4];
    for (size_t i = 0; i < bytes.size; i++) {
        (void)snprintf(text, sizeof text, "%02x", bytes.data[i]); /* Fits. */
        fcap_buffer_put_text(buffer, text);
    }
}

static bool note_pair(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct pairs *pairs = context;
    put_hex(&pairs->text, key);
    fcap_buffer_put_text(&pairs->text, " = ");
    put_hex(&pairs->text, value);
    fcap_buffer_put_text(&pairs->text, "\n");
    return true;
}

/* The pairs under ffff; valid until the next call. */
static const char *own_pairs(struct virtual_world *world)
{
    static struct pairs pairs;
    struct fcap_store *store = fcap_store_rocksdb_handle(world->db);
    struct fcap_bytes own = {(const uint8_t *)"\xff\xff", 2};
    fcap_buffer_clear(&pairs.text);
    assert_int_equal(
        store->ops->scan(store, FCAP_FAMILY_META, own, FCAP_BYTES_NONE, note_pair, &pairs),
        FCAP_OK);
    fcap_buffer_put_u8(&pairs.text, 0);
    return (const char *)pairs.text.data;
}

/* docs/DATA.md, "Keys of the store itself": ffff and the name. */
static void test_store_keys(void **state)
{
    static const char created[] = "ffff637265617465645f6279 = "; /* created_by */
    static const char format[] = "ffff666f726d6174 = 00000002\n";
    static const char lineage[] = "ffff6c696e65616765 = ";
    static const char synced[] = "ffff73796e6365645f6174 = "; /* synced_at, once that was done */
    struct fcap_store_position position;
    char sequence[64]; /* the number of the newest batch */
    static const struct virtual_event one = {
        .arrival_ms = 3600000, .time_ms = 3600000, .user = "u", .ad = "a"};
    struct virtual_world *world = virtual_world_make();
    (void)state;
    world->now_ms = one.time_ms - 1;
    virtual_world_window(world, "1m", MINUTE_MS);
    virtual_world_events(world, &one, 1);
    virtual_world_start(world);
    virtual_world_run_to(world, one.time_ms);
    const char *pairs = own_pairs(world);
    assert_ptr_equal(strstr(pairs, created), pairs);
    assert_non_null(strstr(pairs, "666361706420")); /* "fcapd " and the version */
    const char *line = strchr(pairs, '\n') + 1;
    assert_ptr_equal(strstr(line, format), line);
    line += strlen(format);
    assert_ptr_equal(strstr(line, lineage), line);
    line += strlen(lineage);
    assert_int_equal(strspn(line, "0123456789abcdef"), 2 * FCAP_LINEAGE_BYTES);
    line = strchr(line, '\n') + 1;
    fcap_store_rocksdb_position(world->db, &position);
    (void)snprintf(sequence, sizeof sequence, "ffff73657175656e6365 = %016" PRIx64 "\n",
                   position.sequence);
    assert_ptr_equal(strstr(line, sequence), line);
    line += strlen(sequence);
    assert_true(*line == '\0' || strstr(line, synced) == line);
    virtual_world_free(world);
}

/* --- a real Redis --------------------------------------------------------------------------- */

static struct redis_server server;

static int start_server(void **state)
{
    (void)state;
    redis_server_start(&server, NULL);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    redis_server_stop(&server);
    return 0;
}

static struct fcap_sink *open_sink(void)
{
    struct fcap_sink_redis_settings settings;
    struct fcap_error error = {""};
    struct fcap_sink *sink = NULL;
    fcap_sink_redis_settings_default(&settings);
    settings.host = "127.0.0.1";
    settings.port = server.port;
    settings.profile = "test";
    settings.instance = "boundary";
    if (fcap_sink_redis_open(&settings, &error, &sink) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    return sink;
}

/* The server's time and whether the key is there, at one moment: a script's clock stands still. */
static bool look(const char *key, int64_t *ret_ms)
{
    const char *answer = redis_server_ask(
        &server, "EVAL %s 1 %s",
        "local t = redis.call('TIME') return (t[1] * 1000 + math.floor(t[2] / 1000)) .. ' ' .. "
        "redis.call('EXISTS', KEYS[1])",
        key);
    long long ms;
    int there;
    assert_int_equal(sscanf(answer, "%lld %d", &ms, &there), 2);
    *ret_ms = ms;
    return there == 1;
}

static void test_redis_forgets_by_itself(void **state)
{
    enum { LENGTH_MS = 1500 };
    struct virtual_world *world = virtual_world_make();
    struct fcap_sink *sink = open_sink();
    int64_t event_ms = lab_wall_ms();
    struct virtual_event event[2] = {{event_ms, event_ms, "seen", "a", 0},
                                     {event_ms, event_ms, "unseen", "a", 0}};
    (void)state;
    world->clock = fcap_clock_os();
    world->sink = sink;
    virtual_world_window(world, "w", LENGTH_MS);
    virtual_world_events(world, event, 2);
    virtual_world_start(world);
    int64_t give_up_ms = lab_monotonic_ms() + 30000;
    while (redis_server_ask(&server, "GET fc:{unseen}:w") == NULL ||
           redis_server_ask(&server, "GET fc:{seen}:w") == NULL) {
        virtual_world_step(world);
        if (lab_monotonic_ms() > give_up_ms) {
            fail_msg("no value arrived");
        }
    }
    /* The daemon is gone; from here on nobody corrects anything. */
    virtual_world_free(world);
    fcap_sink_redis_close(sink);
    int64_t expire_at_ms = event_ms + LENGTH_MS - 1;
    assert_int_equal(strtoll(redis_server_ask(&server, "PEXPIRETIME fc:{seen}:w"), NULL, 10),
                     expire_at_ms);
    int64_t last_there_ms = 0;
    int64_t first_gone_ms = 0;
    while (first_gone_ms == 0) {
        int64_t at_ms;
        bool there = look("fc:{seen}:w", &at_ms);
        assert_int_equal(there, at_ms <= expire_at_ms);
        *(there ? &last_there_ms : &first_gone_ms) = at_ms;
    }
    print_message("result: PXAT %lld: there at %+lld ms, gone at %+lld ms\n",
                  (long long)expire_at_ms, (long long)(last_there_ms - expire_at_ms),
                  (long long)(first_gone_ms - expire_at_ms));
    assert_true(last_there_ms > 0);
    assert_null(redis_server_ask(&server, "GET fc:{unseen}:w")); /* the first look at it since */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutations),
        cmocka_unit_test(test_orders_and_steps),
        cmocka_unit_test(test_orders_and_restarts),
        cmocka_unit_test(test_each_window),
        cmocka_unit_test(test_store_keys),
        cmocka_unit_test_setup_teardown(test_redis_forgets_by_itself, start_server, stop_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
