/* The keys of checkpoints: what makes no sense together is told, with the key and the cure; and
 * what checkpoints take of memory.budget. */
#include "config_fixture.h"

#define MIB         (INT64_C(1) << 20)
#define DIRECTORY   "checkpoint: {directory: /mnt/kept}\n"
#define WITH(keys)  LEAST "checkpoint: {directory: /mnt/kept, " keys "}\n"
#define SENDS(keys) LEAST DIRECTORY "materialization: {" keys "}\n"

static void what_makes_no_sense_together_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        const char *wanted; /* NULL: nothing is told */
    } cases[] = {
        {LEAST DIRECTORY, NULL},
        {WITH("interval: 2m, min_pause: 2m"), NULL},
        {WITH("interval: 2m, min_pause: 121s"), "checkpoint.min_pause: is longer than"},
        {WITH("interval: 10s"), "checkpoint.min_pause: is longer than"},
        {SENDS("interval: 2m"), NULL},
        {SENDS("interval: 119s"), "materialization.interval: is shorter than"},
        {WITH("retain: 2"), NULL},
        {WITH("retain: 1"), "checkpoint.retain: with 1"},
        {WITH("scrub_interval: 1d"), NULL},
        {WITH("scrub_interval: 0s"), "checkpoint.scrub_interval: with 0"},
        {LEAST "checkpoint: {interval: 1m}\n", "checkpoint.interval: has no effect without"},
        {LEAST "materialization: {transfer_threads: 3}\n",
         "materialization.transfer_threads: has no effect without"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct loaded loaded = load(cases[i].yaml);
        char *text = printed(&loaded.report);
        bool is_told =
            cases[i].wanted != NULL ? strstr(text, cases[i].wanted) != NULL : text[0] == '\0';
        if (loaded.status != FCAP_OK || !is_told) {
            fail_msg("%s: %s", cases[i].yaml, text);
        }
        assert_int_equal(loaded.report.warnings, cases[i].wanted != NULL);
        free(text);
        unload(&loaded);
    }
}

static void they_do_not_lie_in_the_state(void **state)
{
    (void)state;
    assert_refused(LEAST "state: {directory: /d}\ncheckpoint: {directory: /d}\n",
                   "test.yaml:4:25: checkpoint.directory: is state.directory; checkpoints need a "
                   "volume that outlives the machine\n");
}

static int64_t shared(const struct fcap_config *config)
{
    return config->memory.record_cache_bytes + config->memory.block_cache_bytes +
           config->memory.write_buffers_bytes + config->memory.kafka_queues_bytes;
}

static void their_memory_is_part_of_the_budget(void **state)
{
    (void)state;
    struct loaded without = load(LEAST "memory: {budget: 2000MiB}\n");
    struct loaded with = load(LEAST DIRECTORY "memory: {budget: 2000MiB}\n");
    assert_int_equal(without.config.checkpoint.queue_bytes, 64 * MIB); /* Every auto has a value. */
    assert_int_equal(with.config.checkpoint.queue_bytes, 64 * MIB);
    const int64_t taken = with.config.checkpoint.queue_bytes +
                          with.config.materialization.transfer_threads * FCAP_CONFIG_TRANSFER_BYTES;
    assert_in_range(shared(&without.config) - shared(&with.config), taken, taken + 4 * MIB);
    unload(&without);
    unload(&with);

    /* A small budget has a small queue, and is still one. */
    with = load(LEAST DIRECTORY "memory: {budget: 128MiB}\n");
    assert_int_equal(with.status, FCAP_OK);
    assert_int_equal(with.config.checkpoint.queue_bytes, 8 * MIB);
    unload(&with);
    with = load(LEAST DIRECTORY "memory: {budget: 64MiB}\n");
    assert_int_equal(with.status, FCAP_OK);
    unload(&with);

    /* What is given counts, or is refused with its names. */
    with = load(WITH("queue: 100MiB") "memory: {budget: 2000MiB}\n");
    assert_int_equal(with.config.checkpoint.queue_bytes, 100 * MIB);
    unload(&with);
    with = load(WITH("queue: 2000MiB") "memory: {budget: 2000MiB}\n");
    char *text = printed(&with.report);
    assert_int_equal(with.status, FCAP_CONFIG);
    assert_non_null(strstr(text, "memory.budget: "));
    assert_non_null(strstr(text, "of checkpoint.queue and materialization.transfer_threads"));
    free(text);
    unload(&with);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_makes_no_sense_together_is_told),
        cmocka_unit_test(they_do_not_lie_in_the_state),
        cmocka_unit_test(their_memory_is_part_of_the_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
