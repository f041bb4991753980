/* The real fcapd on a volume for its checkpoints that is full, read-only, gone, failing or silent:
 * counting goes on, it is said that checkpoints are behind, and they go on by themselves; then the
 * machine and the records are lost, and every count comes back from them. */
#include "disk_world.h"
#include "lab/lab.h"
#include "lib/fault.h"
#include "lib/mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define NOTHING   "nothing: each key equals the definition, also after the machine was lost later"
#define BY_ITSELF "by itself, with a checkpoint of everything that was missed"
#define SEES                                                                                       \
    "`/readyz` stays 200, with `tries fail` under `checkpoints`; `fcapd_checkpoint_failing` is 1 " \
    "and `fcapd_checkpoint_age_seconds` grows; a warning names the volume: "
#define ROOM_BYTES (1u << 30)

static struct disk_world world;

static int setup(void **unused)
{
    (void)unused;
    disk_world_open(&world, "", true);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    disk_world_close(&world);
    return 0;
}

/* A first checkpoint of 500. */
static void begin(void)
{
    disk_world_start(&world);
    disk_world_count(&world, 500);
    disk_world_await_more(&world, "fcapd_checkpoint_completed_total", 0);
    disk_world_mark(&world);
}

/* While the volume is not well: counting goes on, and is right. */
static void goes_on(const char *says)
{
    run_fixture_produce(&world.run, 200);
    disk_world_await_more(&world, "fcapd_checkpoint_failing", 0);
    double completed = disk_world_metric(&world, "fcapd_checkpoint_completed_total");
    disk_world_count(&world, 500);
    disk_world_await_ready(&world, 200, "tries fail");
    disk_world_log_says(&world, "counting goes on, and this is tried again");
    disk_world_log_says(&world, world.kept);
    disk_world_log_says(&world, says);
    disk_world_every_key_is_right(&world);
    assert_true(disk_world_metric(&world, "fcapd_checkpoint_completed_total") == completed);
}

/* The machine is lost, and the records with it. */
static void lose_machine(void)
{
    char state[sizeof world.state];
    (void)snprintf(state, sizeof state, "%s", world.state);
    lab_folder_remove(state);
    for (int32_t i = 0; i < RUN_PARTITIONS; i++) {
        kafka_delete_records(kafka_test_brokers(), world.run.topic, i, world.run.next[i]);
    }
}

/* The volume is well again. */
static void comes_back(void)
{
    double completed = disk_world_metric(&world, "fcapd_checkpoint_completed_total");
    disk_world_await_more(&world, "fcapd_checkpoint_completed_total", completed);
    int64_t deadline_ms = lab_monotonic_ms() + DISK_WAIT_MS;
    while (disk_world_metric(&world, "fcapd_checkpoint_failing") > 0) {
        assert_true(lab_monotonic_ms() < deadline_ms);
        lab_pause_ms(50);
    }
    disk_world_log_says(&world, "checkpoints: all is well again");
    disk_world_count(&world, 100);
    disk_world_stop(&world);
    lose_machine();
    disk_world_mark(&world);
    disk_world_start(&world);
    disk_world_log_says(&world, "was restored in");
    disk_world_every_key_is_right(&world);
    disk_world_stop(&world);
}

static void test_a_full_volume(void **unused)
{
    (void)unused;
    disk_world_must_mount();
    mounts_tmpfs(world.kept, "size=1g");
    begin();
    mounts_tmpfs_room(world.kept, 0);
    goes_on("No space left on device");
    mounts_tmpfs_room(world.kept, ROOM_BYTES);
    comes_back();
    fault_is_proved(&(const struct fault){
        .id = "checkpoint-volume-full",
        .fault = "the volume of `checkpoint.directory` is full",
        .sees = SEES "`No space left on device`",
        .lost = NOTHING,
        .recovers = BY_ITSELF,
    });
}

static void test_a_volume_that_goes(void **unused)
{
    char place[128];
    (void)unused;
    disk_world_must_mount();
    (void)snprintf(place, sizeof place, "%s/disk", world.volume);
    assert_int_equal(mkdir(place, 0700), 0);
    mounts_bind(place, world.kept);
    begin();
    mounts_detach(world.kept);
    goes_on(".fcap-objects");
    mounts_bind(place, world.kept);
    comes_back();
    fault_is_proved(&(const struct fault){
        .id = "checkpoint-volume-gone",
        .fault = "the volume of `checkpoint.directory` is unmounted while fcapd runs",
        .sees = SEES "its mark `.fcap-objects` is not there",
        .lost = NOTHING,
        .recovers = BY_ITSELF,
    });
}

static void test_calls_that_fail(void **unused)
{
    static const struct {
        struct disk_codes codes;
        const char *says;
        struct fault fault;
    } failures[] = {
        {{.write = EROFS, .sync = EROFS, .make = EROFS},
         "Read-only file system",
         {"checkpoint-volume-read-only", "the volume of `checkpoint.directory` becomes read-only",
          SEES "`Read-only file system`", NOTHING, BY_ITSELF}},
        {{.write = EIO},
         "Input/output error",
         {"checkpoint-write-error", "writing to the volume of `checkpoint.directory` fails",
          SEES "`Input/output error`", NOTHING, BY_ITSELF}},
        {{.sync = EIO},
         "Input/output error",
         {"checkpoint-sync-error", "syncing files of `checkpoint.directory` fails",
          SEES "`Input/output error`", NOTHING, BY_ITSELF}},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        begin();
        faulty_disk_fail(&world.disk, world.kept, "", failures[i].codes);
        goes_on(failures[i].says);
        faulty_disk_heal(&world.disk);
        comes_back();
        fault_is_proved(&failures[i].fault);
    }
}

/* A file system of the network whose server is silent. */
static void test_a_volume_that_hangs(void **unused)
{
    (void)unused;
    begin();
    faulty_disk_hang(&world.disk, world.kept);
    double before = disk_world_metric(&world, "fcapd_checkpoint_completed_total");
    disk_world_count(&world, 500);
    disk_world_every_key_is_right(&world);
    assert_int_equal(daemon_process_get(&world.run.process, "/readyz", NULL), 200);
    assert_int_equal(daemon_process_get(&world.run.process, "/livez", NULL), 200);
    assert_true(disk_world_metric(&world, "fcapd_checkpoint_completed_total") <= before + 1);
    faulty_disk_heal(&world.disk);
    disk_world_await_more(&world, "fcapd_checkpoint_completed_total", before + 1);
    disk_world_count(&world, 100);
    /* And it does not hold up a stop. */
    faulty_disk_hang(&world.disk, world.kept);
    run_fixture_produce(&world.run, 100);
    daemon_process_signal(&world.run.process, SIGTERM);
    disk_world_ends(&world, 0);
    disk_world_log_says(&world, "does not answer; the last changes are not kept there");
    faulty_disk_heal(&world.disk);
    disk_world_start(&world);
    disk_world_count(&world, 100);
    disk_world_every_key_is_right(&world);
    disk_world_stop(&world);
    fault_is_proved(&(const struct fault){
        .id = "checkpoint-volume-hangs",
        .fault = "calls on the volume of `checkpoint.directory` do not come back",
        .sees =
            "`/readyz` and `/livez` stay 200; `fcapd_checkpoint_age_seconds` grows; a stop waits "
            "at most `shutdown.deadline` and says `does not answer; the last changes are not "
            "kept there`",
        .lost = "nothing: each key equals the definition",
        .recovers = BY_ITSELF,
    });
}

/* One bit of the newest object of this kind. */
static void flip(const char *kind, char ret_name[300])
{
    char path[400];
    struct stat info;
    char byte = 0;
    (void)snprintf(path, sizeof path, "%s/test/one", world.kept);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    ret_name[0] = '\0';
    struct timespec newest = {0};
    for (const struct dirent *at = readdir(folder); at != NULL; at = readdir(folder)) {
        if (strncmp(at->d_name, kind, strlen(kind)) != 0) {
            continue;
        }
        assert_int_equal(fstatat(dirfd(folder), at->d_name, &info, 0), 0);
        bool is_newer = info.st_mtim.tv_sec != newest.tv_sec
                            ? info.st_mtim.tv_sec > newest.tv_sec
                            : info.st_mtim.tv_nsec > newest.tv_nsec;
        if (is_newer) {
            newest = info.st_mtim;
            (void)snprintf(ret_name, 300, "%s", at->d_name);
        }
    }
    assert_int_equal(closedir(folder), 0);
    assert_true(ret_name[0] != '\0');
    (void)snprintf(path, sizeof path, "%s/test/one/%s", world.kept, ret_name);
    int file = open(path, O_RDWR | O_CLOEXEC);
    assert_true(file >= 0 && fstat(file, &info) == 0 && info.st_size > 0);
    assert_int_equal(pread(file, &byte, 1, info.st_size / 2), 1);
    byte = (char)(byte ^ 1);
    assert_int_equal(pwrite(file, &byte, 1, info.st_size / 2), 1);
    assert_int_equal(close(file), 0);
}

static void test_objects_that_are_damaged(void **unused)
{
    static const char *const kinds[] = {"manifest-", "changelog-"};
    char name[300];
    (void)unused;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        begin();
        double number = disk_world_metric(&world, "fcapd_checkpoint_number");
        disk_world_count(&world, 300);
        disk_world_await_more(&world, "fcapd_checkpoint_number", number);
        disk_world_count(&world, 300);
        disk_world_stop(&world); /* With a last checkpoint. */
        flip(kinds[i], name);
        char state[sizeof world.state];
        (void)snprintf(state, sizeof state, "%s", world.state);
        lab_folder_remove(state);
        disk_world_mark(&world);
        disk_world_start(&world);
        disk_world_log_says(&world, name);
        disk_world_log_says(&world, "was restored in");
        disk_world_count(&world, 100);
        disk_world_every_key_is_right(&world);
        disk_world_stop(&world);
    }
    fault_is_proved(&(const struct fault){
        .id = "checkpoint-damaged",
        .fault =
            "a bit of the newest manifest, or of the newest piece of the changelog, has changed",
        .sees = "nothing before it is read; when the machine is lost the log names the object, and "
                "then the checkpoint that was taken instead: `was restored in`",
        .lost = "nothing that Kafka holds: each key equals the definition",
        .recovers = "by itself: from the checkpoint before, and what came since from Kafka",
    });
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_full_volume),
        TEST(test_a_volume_that_goes),
        TEST(test_calls_that_fail),
        TEST(test_a_volume_that_hangs),
        TEST(test_objects_that_are_damaged),
    };
    if (argc == 2) {
        cmocka_set_test_filter(argv[1]);
    }
    disk_world_enter();
    (void)kafka_test_brokers(); /* Skips the program when there is none. */
    return cmocka_run_group_tests_name("disk_faults_checkpoint", tests, NULL, NULL);
}
