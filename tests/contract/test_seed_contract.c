/* The seed's contract on the fake of backfill's unit tests, and on the adapter with a real
 * redis-server; and what only the latter can get wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "contract/seed_contract.h"
#include "fcap/seed_redis.h"
#include "lab/lab.h"
#include "lab/redis_server.h"
#include "lib/fake_seed.h"
#include "lib/fake_world.h"

/* --- the fake --- */

/* On the server of the sink's fake world. */
static struct fake_seed fake;

static struct fcap_seed *fake_start(void)
{
    fake_world.start();
    fake_seed_init(&fake, fake_world_redis(), fake_world_redis()->clock, "p");
    return &fake.port;
}

static void fake_stop(void)
{
    fake_seed_done(&fake);
    fake_world.stop();
}

static void fake_show(int32_t partition, bool is_shown)
{
    fake.shown_until_ms[partition] = is_shown ? INT64_MAX : 0;
}

static uint64_t fake_increment(int32_t partition)
{
    return fake_seed_increment(&fake, partition);
}

static void fake_set(const char *key, const char *value)
{
    struct fcap_push push = {.kind = FCAP_PUSH_SET,
                             .key = fcap_bytes_of(key),
                             .value = fcap_bytes_of(value),
                             .expire_at_ms = fake_world.now_ms() + 3600 * 1000};
    (void)fake_seed_do(&fake, &push);
}

static const char *fake_get(const char *key, int64_t *ret_expire_at_ms)
{
    static char text[4096];
    struct fcap_bytes value;
    if (!fcap_fake_redis_get(fake_world_redis(), fcap_bytes_of(key), &value, ret_expire_at_ms)) {
        return NULL;
    }
    (void)snprintf(text, sizeof text, "%.*s", (int)value.size, (const char *)value.data);
    return text;
}

/* --- the adapter --- */

enum { COMMAND_MS = 500 };

static struct redis_server server;
static struct fcap_seed_redis *seed;

static bool stop_wanted;

static bool must_stop(void *context)
{
    (void)context;
    return stop_wanted;
}

static void open_seed(const char *user, const char *password, int command_timeout_ms)
{
    struct fcap_seed_redis_settings settings = {.must_stop = must_stop};
    struct fcap_error error;
    fcap_sink_redis_settings_default(&settings.redis);
    settings.redis.port = server.port;
    settings.redis.profile = "p";
    settings.redis.instance = "backfill";
    settings.redis.user = user;
    settings.redis.password = password;
    settings.redis.command_timeout_ms = command_timeout_ms;
    settings.redis.backoff_min_ms = 5;
    stop_wanted = false;
    assert_int_equal(fcap_seed_redis_open(&settings, &seed, &error), FCAP_OK);
}

static struct fcap_seed *real_start(void)
{
    redis_server_start(&server, NULL);
    open_seed(NULL, NULL, COMMAND_MS);
    return fcap_seed_redis_port(seed);
}

static void real_stop(void)
{
    fcap_seed_redis_close(seed);
    seed = NULL;
    redis_server_stop(&server);
}

/* Another profile's are no one's. */
static void real_show(int32_t partition, bool is_shown)
{
    if (is_shown) {
        (void)redis_server_ask(&server, "SET fc:epoch:p:%d:owner %s", partition, "7 one");
    } else {
        (void)redis_server_ask(&server, "DEL fc:epoch:p:%d:owner", partition);
    }
    (void)redis_server_ask(&server, "SET fc:epoch:pp:%d:owner %s", 0, "7 one");
    (void)redis_server_ask(&server, "SET fc:epoch:pp:%d:owner %s", 2, "7 one");
}

static uint64_t real_increment(int32_t partition)
{
    return strtoull(redis_server_ask(&server, "INCR fc:epoch:p:%d", partition), NULL, 10);
}

static void real_set(const char *key, const char *value)
{
    (void)redis_server_ask(&server, "SET %s %s", key, value);
}

static const char *real_get(const char *key, int64_t *ret_expire_at_ms)
{
    static char text[4096];
    const char *value = redis_server_ask(&server, "GET %s", key);
    if (value == NULL) {
        return NULL;
    }
    (void)snprintf(text, sizeof text, "%s", value);
    *ret_expire_at_ms = strtoll(redis_server_ask(&server, "PEXPIRETIME %s", key), NULL, 10);
    return text;
}

static void real_flush(void)
{
    (void)redis_server_ask(&server, "FLUSHALL");
}

static void real_delete_sentinel(void)
{
    (void)redis_server_ask(&server, "DEL fc:id");
}

static void real_restart(bool keep_data)
{
    if (keep_data) {
        (void)redis_server_ask(&server, "SAVE");
    }
    redis_server_kill(&server);
    redis_server_restart(&server, keep_data);
}

/* It answers nothing for a while. */
static void real_down(bool is_down)
{
    if (is_down) {
        redis_server_freeze(&server);
    } else {
        redis_server_thaw(&server);
    }
}

static enum fcap_status look_until(enum fcap_class class)
{
    struct fcap_seed *port = fcap_seed_redis_port(seed);
    struct fcap_seed_time time;
    bool open[8];
    enum fcap_status status = FCAP_UNAVAILABLE;
    for (int i = 0; i < 100; i++) {
        status = port->ops->look(port, 8, open, &time);
        if (fcap_status_class(status) == class) {
            break;
        }
    }
    return status;
}

static int start_real(void **unused)
{
    (void)unused;
    (void)real_start();
    return 0;
}

static int stop_real(void **unused)
{
    (void)unused;
    real_stop();
    return 0;
}

/* More partitions than are asked for at once, in a database that would take long to walk over; and
 * whatever such a key holds, somebody has written it. */
static void test_owners_of_many_partitions(void **unused)
{
    (void)unused;
    enum { MANY = 2500 };
    static bool open[MANY];
    struct fcap_seed *port = fcap_seed_redis_port(seed);
    struct fcap_seed_time time;
    (void)redis_server_ask(&server, "SET fc:epoch:p:0:owner %s", "");
    (void)redis_server_ask(&server, "SET fc:epoch:p:999:owner %s", "7 one");
    (void)redis_server_ask(&server, "SET fc:epoch:p:1000:owner %s", "8 two");
    (void)redis_server_ask(&server, "SET fc:epoch:p:2499:owner %s", "{\"v\":2}");
    (void)redis_server_ask(&server, "SET fc:epoch:p:2500:owner %s", "9 one");
    assert_int_equal(port->ops->look(port, MANY, open, &time), FCAP_OK);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(open[i], i == 0 || i == 999 || i == 1000 || i == 2499);
    }
    const char *calls = redis_server_ask(&server, "INFO commandstats");
    assert_non_null(calls);
    assert_null(strstr(calls, "cmdstat_scan"));
}

/* The answer to a transaction got lost: made again, it knows its own keys. */
static void test_a_lost_answer_is_counted_once(void **unused)
{
    (void)unused;
    struct fcap_seed *port = fcap_seed_redis_port(seed);
    uint64_t epoch;
    size_t written;
    bool is_fenced;
    int64_t until_ms = lab_wall_ms() + 3600 * 1000;
    const struct fcap_seed_key keys[] = {
        {fcap_bytes_of("fc:{a}:1d"), fcap_bytes_of("one"), until_ms},
        {fcap_bytes_of("fc:{b}:1d"), fcap_bytes_of("two"), until_ms},
        {fcap_bytes_of("fc:{c}:1d"), fcap_bytes_of("three"), until_ms},
    };
    assert_int_equal(look_until(FCAP_CLASS_NONE), FCAP_OK);
    assert_int_equal(port->ops->claim(port, 1, &epoch), FCAP_OK);
    /* Its answers are dropped when the server goes on: the connection has been given up. */
    redis_server_freeze(&server);
    assert_int_equal(port->ops->write(port, 1, epoch, keys, 2, &written, &is_fenced),
                     FCAP_UNAVAILABLE);
    redis_server_thaw(&server);
    /* Whether it was done or not: as if it had been. */
    (void)redis_server_ask(&server, "SET fc:{b}:1d live");
    enum fcap_status status = FCAP_UNAVAILABLE;
    for (int i = 0; i < 100 && status == FCAP_UNAVAILABLE; i++) {
        status = port->ops->write(port, 1, epoch, keys, 3, &written, &is_fenced);
    }
    assert_int_equal(status, FCAP_OK);
    assert_int_equal(written, 2);
    assert_string_equal(redis_server_ask(&server, "GET fc:{b}:1d"), "live");
}

static void test_it_can_be_stopped_while_it_waits(void **unused)
{
    (void)unused;
    fcap_seed_redis_close(seed);
    open_seed(NULL, NULL, 10 * 60 * 1000); /* No time-out would end it. */
    assert_int_equal(look_until(FCAP_CLASS_NONE), FCAP_OK);
    redis_server_freeze(&server);
    stop_wanted = true;
    assert_int_equal(look_until(FCAP_CLASS_RETRY), FCAP_UNAVAILABLE);
    redis_server_thaw(&server);
    stop_wanted = false;
    assert_int_equal(look_until(FCAP_CLASS_NONE), FCAP_OK);
}

static void test_a_redis_that_has_not_answered_yet_is_called_so(void **unused)
{
    (void)unused;
    struct fcap_seed_time time;
    bool open[1];
    fcap_seed_redis_close(seed);
    redis_server_freeze(&server);
    open_seed(NULL, NULL, 10 * 60 * 1000);
    struct fcap_seed *port = fcap_seed_redis_port(seed);
    enum fcap_status status = port->ops->look(port, 1, open, &time);
    redis_server_thaw(&server);
    assert_int_equal(status, FCAP_UNAVAILABLE);
    assert_string_equal(fcap_seed_redis_error(seed), "redis: no answer yet");
}

static void test_memory_that_is_full_is_waited_for(void **unused)
{
    (void)unused;
    struct fcap_seed *port = fcap_seed_redis_port(seed);
    uint64_t epoch;
    size_t written;
    bool is_fenced;
    const struct fcap_seed_key key = {fcap_bytes_of("fc:{a}:1d"), fcap_bytes_of("one"),
                                      lab_wall_ms() + 3600 * 1000};
    assert_int_equal(look_until(FCAP_CLASS_NONE), FCAP_OK);
    assert_int_equal(port->ops->claim(port, 1, &epoch), FCAP_OK);
    (void)redis_server_ask(&server, "CONFIG SET maxmemory 1");
    assert_int_equal(port->ops->write(port, 1, epoch, &key, 1, &written, &is_fenced), FCAP_REFUSED);
    assert_non_null(strstr(fcap_seed_redis_error(seed), "OOM"));
    (void)redis_server_ask(&server, "CONFIG SET maxmemory 0");
    assert_int_equal(port->ops->write(port, 1, epoch, &key, 1, &written, &is_fenced), FCAP_OK);
    assert_int_equal(written, 1);
}

/* Each command that it needs beside those of a daemon, found missing before anything is claimed. */
static void test_a_missing_right_is_named(void **unused)
{
    (void)unused;
    static const char *const rights[] = {"watch", "multi", "exec"};
    for (size_t i = 0; i < sizeof rights / sizeof rights[0]; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "user%zu", i);
        assert_string_equal(
            redis_server_ask(&server, "ACL SETUSER %s on >secret ~fc:* +@all -%s", name, rights[i]),
            "OK");
        fcap_seed_redis_close(seed);
        open_seed(name, "secret", COMMAND_MS);
        enum fcap_status status = look_until(FCAP_CLASS_FATAL);
        if (status != FCAP_CONFIG) {
            fail_msg("-%s: %s", rights[i], fcap_seed_redis_error(seed));
        }
        assert_non_null(strstr(fcap_seed_redis_error(seed), "NOPERM"));
        assert_non_null(strstr(fcap_seed_redis_error(seed), rights[i]));
    }
    fcap_seed_redis_close(seed);
    open_seed("user0", "wrong", COMMAND_MS);
    assert_int_equal(look_until(FCAP_CLASS_FATAL), FCAP_CONFIG); /* No patience for that. */
}

static void test_a_cluster_is_refused(void **unused)
{
    (void)unused;
    char port[8]; /* Its own would be beyond 65535 now and then. */
    (void)snprintf(port, sizeof port, "%u", lab_free_port());
    const char *const options[] = {"--cluster-enabled", "yes", "--cluster-port", port, NULL};
    real_stop();
    redis_server_start(&server, options);
    (void)redis_server_ask(&server, "CLUSTER ADDSLOTSRANGE 0 16383");
    open_seed(NULL, NULL, COMMAND_MS);
    assert_int_equal(look_until(FCAP_CLASS_FATAL), FCAP_CONFIG);
    assert_non_null(strstr(fcap_seed_redis_error(seed), "Redis Cluster"));
}

#define REAL(function) cmocka_unit_test_setup_teardown(function, start_real, stop_real)

int main(void)
{
    const struct seed_world fake_redis_world = {
        .name = "seed contract: fake",
        .start = fake_start,
        .stop = fake_stop,
        .show = fake_show,
        .increment = fake_increment,
        .set = fake_set,
        .get = fake_get,
        .flush = fake_world.flush,
        .delete_sentinel = fake_world.delete_sentinel,
        .restart = fake_world.restart,
        .down = fake_world.down,
        .now_ms = fake_world.now_ms,
    };
    const struct seed_world real_world = {
        .name = "seed contract: Redis",
        .start = real_start,
        .stop = real_stop,
        .show = real_show,
        .increment = real_increment,
        .set = real_set,
        .get = real_get,
        .flush = real_flush,
        .delete_sentinel = real_delete_sentinel,
        .restart = real_restart,
        .down = real_down,
        .now_ms = lab_wall_ms,
    };
    const struct CMUnitTest tests[] = {
        REAL(test_owners_of_many_partitions),
        REAL(test_a_lost_answer_is_counted_once),
        REAL(test_it_can_be_stopped_while_it_waits),
        REAL(test_a_redis_that_has_not_answered_yet_is_called_so),
        REAL(test_memory_that_is_full_is_waited_for),
        REAL(test_a_missing_right_is_named),
        REAL(test_a_cluster_is_refused),
    };
    int failed = seed_contract_run(&fake_redis_world);
    failed += seed_contract_run(&real_world);
    return failed + cmocka_run_group_tests_name("seed: Redis", tests, NULL, NULL);
}
