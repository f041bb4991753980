/* What durability.wal and durability.sync promise, by the real fcapd: it is killed, or the power
 * fails, which takes every byte that no sync has covered. Whatever the state has lost is read from
 * Kafka again, and every count is right. */
#include "disk_world.h"
#include "lab/lab.h"
#include "lib/fault.h"
#include "lib/mounts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct disk_world world;

static int teardown(void **unused)
{
    (void)unused;
    disk_world_close(&world);
    return 0;
}

/* --- without a log -----------------------------------------------------------------------------
 */

static int setup_without_log(void **unused)
{
    (void)unused;
    disk_world_open(&world, "  write_buffers: 1MiB\ndurability:\n  wal: off\n", false);
    return 0;
}

/* Until memtables have been flushed once more; a start may flush the little that it writes. */
static void count_until_a_flush(void)
{
    double flushed = disk_world_metric(&world, "fcapd_store_flush_bytes_total") + 20000;
    int64_t deadline_ms = lab_monotonic_ms() + DISK_WAIT_MS;
    while (disk_world_metric(&world, "fcapd_store_flush_bytes_total") <= flushed) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        disk_world_count(&world, 2000);
    }
}

static void await_committed(void)
{
    int64_t deadline_ms = lab_monotonic_ms() + DISK_WAIT_MS;
    while (disk_world_committed(&world) < disk_world_produced(&world)) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(20);
    }
}

static void test_without_log_the_last_flush_remains(void **unused)
{
    enum { KILLS = 3 };
    int64_t taken = 0;
    (void)unused;
    disk_world_start(&world);
    assert_true(disk_world_metric(&world, "fcapd_store_wal_bytes_total") == 0);
    for (int i = 0; i < KILLS; i++) {
        count_until_a_flush();
        disk_world_count(&world, 300);
        await_committed();
        int64_t committed = disk_world_committed(&world);
        disk_world_kill(&world);
        int64_t stored = disk_world_stored(&world);
        assert_in_range(stored, 1, committed - 1); /* Back at the flush, and not at nothing. */
        taken += committed - stored;
        disk_world_start(&world);
        disk_world_count(&world, 100);
        disk_world_every_key_is_right(&world);
    }
    /* A stop flushes. */
    await_committed();
    disk_world_stop(&world);
    assert_int_equal(disk_world_stored(&world), disk_world_produced(&world));
    print_message("result: without log: %d kills took %lld offsets back, every key right after\n",
                  KILLS, (long long)taken);
    fault_is_proved(&(const struct fault){
        .id = "process-killed-without-log",
        .fault = "kill -9 with `durability.wal: off`",
        .sees = "the start reads from the offsets of the last flush, which all families have in "
                "common; gates open when that is caught up",
        .lost = "nothing: each key equals the definition; the state alone goes back",
        .recovers = "by a start: from Kafka, which must still hold what came since the last flush",
    });
}

/* RocksDB 7.8 does not come out of it by itself, or does not trust itself afterwards. */
static void test_without_log_a_full_volume(void **unused)
{
    static const char says[] = "the state takes no commits: ";
    struct daemon_process *process = &world.run.process;
    int code = -1;
    (void)unused;
    disk_world_must_mount();
    mounts_tmpfs(world.state, "size=1g");
    disk_world_start(&world);
    count_until_a_flush();
    disk_world_mark(&world);
    mounts_tmpfs_room(world.state, 0);
    int64_t deadline_ms = lab_monotonic_ms() + DISK_WAIT_MS;
    while (code < 0 && (daemon_process_get(process, "/readyz", NULL) != 503 ||
                        strstr(process->text, says) == NULL)) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        run_fixture_produce(&world.run, 2000);
        code = daemon_process_wait(process, 50);
    }
    mounts_tmpfs_room(world.state, 1u << 30);
    while (code < 0 && daemon_process_get(process, "/readyz", NULL) != 200) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        code = daemon_process_wait(process, 50);
    }
    print_message("full, without log: %d\n", code);
    if (code >= 0) {
        assert_int_equal(code, 70);
        disk_world_log_says(&world, " failed: write a commit: ");
        disk_world_start(&world);
    }
    disk_world_count(&world, 100);
    disk_world_every_key_is_right(&world);
    disk_world_stop(&world);
    fault_is_proved(&(const struct fault){
        .id = "state-volume-full-without-log",
        .fault = "the volume of `state.directory` is full, with `durability.wal: off`",
        .sees =
            "`/readyz` 503: `the state takes no commits: ...`; when there is space again, or at "
            "once, exit code 70: `worker N failed: write a commit: ...`",
        .lost = "nothing: each key equals the definition; the state alone goes back",
        .recovers = "by a start, with RocksDB 8.1 or newer by itself",
    });
}

/* --- power -------------------------------------------------------------------------------------
 */

static int setup_commit(void **unused)
{
    (void)unused;
    disk_world_open(&world, "durability:\n  sync: commit\n", false);
    return 0;
}

static int setup_interval(void **unused)
{
    (void)unused;
    disk_world_open(&world, "", false); /* What is set when nothing is. */
    return 0;
}

static int setup_never(void **unused)
{
    (void)unused;
    disk_world_open(&world, "durability:\n  sync: never\n", false);
    return 0;
}

/* The machine stops at once. Gives what the state has of it, in offsets. */
static int64_t lose_power(void)
{
    disk_world_kill(&world);
    uint64_t taken = faulty_disk_power_fails(&world.disk, world.state);
    int64_t stored = disk_world_stored(&world);
    print_message("%llu bytes were not synced; the state is at %lld of %lld\n",
                  (unsigned long long)taken, (long long)stored,
                  (long long)disk_world_produced(&world));
    return stored;
}

static void comes_back(void)
{
    disk_world_start(&world);
    disk_world_count(&world, 100);
    disk_world_every_key_is_right(&world);
    disk_world_stop(&world);
}

static void test_sync_commit(void **unused)
{
    enum { ROUNDS = 2 };
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        disk_world_start(&world);
        disk_world_count(&world, 500);
        run_fixture_produce(&world.run, 500); /* In the middle of them. */
        int64_t committed = disk_world_committed(&world);
        int64_t stored = lose_power();
        assert_in_range(stored, committed, disk_world_produced(&world));
    }
    comes_back();
    fault_is_proved(&(const struct fault){
        .id = "machine-power-sync-commit",
        .fault = "power failure with `durability.sync: commit`",
        .sees = "the start goes on from the newest commit",
        .lost = "nothing: no commit, and each key equals the definition",
        .recovers = "by a start",
    });
}

static void test_sync_interval(void **unused)
{
    (void)unused;
    disk_world_start(&world);
    disk_world_count(&world, 500);
    await_committed();
    int64_t committed = disk_world_committed(&world);
    double syncs = disk_world_metric(&world, "fcapd_store_syncs_total");
    disk_world_await_more(&world, "fcapd_store_syncs_total", syncs); /* Of all these. */
    run_fixture_produce(&world.run, 500);
    int64_t stored = lose_power();
    assert_in_range(stored, committed, disk_world_produced(&world));
    comes_back();
    fault_is_proved(&(const struct fault){
        .id = "machine-power-sync-interval",
        .fault = "power failure with `durability.sync: interval`",
        .sees = "the start goes on from the last sync, about `durability.sync_interval` ago",
        .lost = "nothing: each key equals the definition; the state alone goes back",
        .recovers = "by a start: what came since is read from Kafka again",
    });
}

static void test_sync_never(void **unused)
{
    (void)unused;
    disk_world_start(&world);
    disk_world_count(&world, 500);
    disk_world_stop(&world); /* Is whole on disk, or was left to the kernel. */
    disk_world_start(&world);
    disk_world_count(&world, 500);
    await_committed();
    int64_t committed = disk_world_committed(&world);
    int64_t stored = lose_power();
    assert_in_range(stored, 0, committed - 1); /* The power failure takes what it should. */
    comes_back();
    fault_is_proved(&(const struct fault){
        .id = "machine-power-sync-never",
        .fault = "power failure with `durability.sync: never`",
        .sees = "the start goes on from the last flush of RocksDB, or what the kernel had written",
        .lost = "nothing: each key equals the definition; the state alone goes back",
        .recovers = "by a start: from Kafka, which must still hold what came since",
    });
}

int main(int argc, char **argv)
{
#define TEST(name, setup) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_without_log_the_last_flush_remains, setup_without_log),
        TEST(test_without_log_a_full_volume, setup_without_log),
        TEST(test_sync_commit, setup_commit),
        TEST(test_sync_interval, setup_interval),
        TEST(test_sync_never, setup_never),
    };
    if (argc == 2) {
        cmocka_set_test_filter(argv[1]);
    }
    disk_world_enter();
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests_name("durability", tests, NULL, NULL);
}
