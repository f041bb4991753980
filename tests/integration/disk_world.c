#include "disk_world.h"

#include "lab/lab.h"
#include "lib/mounts.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cmocka.h>

#define LAG_MS 1500

static const struct run_window hours[] = {{"1h", 3600000}, {"2h", 7200000}, {NULL, 0}};
static char unmountable[128]; /* why; "": something can be mounted */

void disk_world_enter(void)
{
    if (!mounts_enter(unmountable, sizeof unmountable) && unmountable[0] == '\0') {
        lab_die("no reason why nothing can be mounted");
    }
}

void disk_world_must_mount(void)
{
    if (unmountable[0] != '\0') {
        print_message("skipped: %s\n", unmountable);
        skip();
    }
}

void disk_world_open(struct disk_world *world, const char *more, bool has_checkpoints)
{
    char all[2048];
    char checkpoints[512] = "";
    *world = (struct disk_world){0};
    lab_folder_make("volume", world->volume, sizeof world->volume);
    (void)snprintf(world->kept, sizeof world->kept, "%s/kept", world->volume);
    assert_int_equal(mkdir(world->kept, 0700), 0);
    if (has_checkpoints) {
        (void)snprintf(checkpoints, sizeof checkpoints,
                       "checkpoint:\n  directory: %s\n  interval: 1s\n  min_pause: 0s\n"
                       "materialization:\n  interval: 10s\n",
                       world->kept);
    }
    (void)snprintf(all, sizeof all, "%sshutdown:\n  deadline: 10s\n%s", more, checkpoints);
    faulty_disk_open(&world->disk, DISK_FAULT_SHIM);
    run_fixture_init(&world->run, "[1h, 2h]", hours, all);
    (void)snprintf(world->state, sizeof world->state, "%s/state", world->run.process.directory);
    assert_int_equal(mkdir(world->state, 0700), 0);
}

void disk_world_close(struct disk_world *world)
{
    if (world->disk.shared != NULL) {
        faulty_disk_heal(&world->disk);
    }
    if (world->run.process.pid > 0) {
        disk_world_kill(world);
    }
    while (umount2(world->state, MNT_DETACH) == 0) {
    }
    while (umount2(world->kept, MNT_DETACH) == 0) {
    }
    run_fixture_done(&world->run);
    faulty_disk_close(&world->disk);
    lab_folder_remove(world->volume);
}

/* cmocka cuts what is longer than a kilobyte. */
static void tell_log(struct disk_world *world)
{
    (void)fprintf(stderr, "--- log:\n%s\n",
                  daemon_process_log(&world->run.process) + world->log_marked); /* Output only. */
}

void disk_world_begin(struct disk_world *world)
{
    daemon_process_start(&world->run.process, world->disk.environment);
}

void disk_world_start(struct disk_world *world)
{
    disk_world_begin(world);
    daemon_process_await(&world->run.process, "/readyz", 200, DISK_START_MS);
}

void disk_world_stop(struct disk_world *world)
{
    run_fixture_stop(&world->run, DISK_STOP_MS);
}

void disk_world_kill(struct disk_world *world)
{
    daemon_process_signal(&world->run.process, SIGKILL);
    assert_int_equal(daemon_process_wait(&world->run.process, DISK_STOP_MS), 128 + SIGKILL);
}

void disk_world_ends(struct disk_world *world, int code)
{
    int found = daemon_process_wait(&world->run.process, DISK_WAIT_MS);
    if (found != code) {
        (void)daemon_process_get(&world->run.process, "/readyz", NULL);
        print_error("/readyz: %s\n", world->run.process.text);
        tell_log(world);
        fail_msg("exit code %d, not %d", found, code);
    }
}

void disk_world_count(struct disk_world *world, size_t count)
{
    run_fixture_produce(&world->run, count);
    run_fixture_await_applied(&world->run, DISK_WAIT_MS);
}

void disk_world_every_key_is_right(struct disk_world *world)
{
    struct oracle_tally tally = {0};
    run_fixture_compare(&world->run, LAG_MS, &tally);
    run_fixture_passes(&tally, (struct oracle_minimum){100, 100, 0});
}

double disk_world_metric(struct disk_world *world, const char *name)
{
    double value = daemon_process_metric(&world->run.process, name);
    if (value < 0) {
        tell_log(world);
        fail_msg("no %s", name);
    }
    return value;
}

void disk_world_await_more(struct disk_world *world, const char *name, double below)
{
    int64_t deadline_ms = lab_monotonic_ms() + DISK_WAIT_MS;
    while (disk_world_metric(world, name) <= below) {
        if (lab_monotonic_ms() >= deadline_ms) {
            tell_log(world);
            fail_msg("%s is still %f", name, below);
        }
        lab_pause_ms(20);
    }
}

void disk_world_await_ready(struct disk_world *world, int code, const char *text)
{
    struct daemon_process *process = &world->run.process;
    int64_t deadline_ms = lab_monotonic_ms() + DISK_WAIT_MS;
    while (daemon_process_get(process, "/readyz", NULL) != code ||
           strstr(process->text, text) == NULL) {
        if (daemon_process_wait(process, 0) >= 0 || lab_monotonic_ms() >= deadline_ms) {
            print_error("/readyz: %s\n", process->text);
            tell_log(world);
            fail_msg("no %d with \"%s\"", code, text);
        }
        lab_pause_ms(20);
    }
}

void disk_world_mark(struct disk_world *world)
{
    world->log_marked = strlen(daemon_process_log(&world->run.process));
}

void disk_world_log_says(struct disk_world *world, const char *text)
{
    int64_t deadline_ms = lab_monotonic_ms() + DISK_WAIT_MS;
    for (;;) {
        const char *log = daemon_process_log(&world->run.process) + world->log_marked;
        if (strstr(log, text) != NULL) {
            return;
        }
        if (world->run.process.pid == 0 || lab_monotonic_ms() >= deadline_ms) {
            tell_log(world);
            fail_msg("no \"%s\" in the log", text);
        }
        lab_pause_ms(20);
    }
}

/* --- offsets -----------------------------------------------------------------------------------
 */

/* All numbers behind the name. */
static int64_t sum_of(const char *text, const char *name, int wanted)
{
    int64_t sum = 0;
    int count = 0;
    for (const char *at = strstr(text, name); at != NULL; at = strstr(at, name)) {
        at += strlen(name);
        sum += strtoll(at, NULL, 10);
        count++;
    }
    if (count != wanted) {
        fail_msg("%d times %s in %s", count, name, text);
    }
    return sum;
}

int64_t disk_world_stored(struct disk_world *world)
{
    int code = daemon_process_command(&world->run.process, "inspect", NULL, NULL);
    if (code != 0) {
        fail_msg("inspect: %d: %s", code, world->run.process.text);
    }
    return sum_of(world->run.process.text, "\"next\":", RUN_PARTITIONS);
}

int64_t disk_world_committed(struct disk_world *world)
{
    assert_int_equal(daemon_process_get(&world->run.process, "/status", NULL), 200);
    return sum_of(world->run.process.text, "\"committed\":", RUN_PARTITIONS);
}

int64_t disk_world_produced(const struct disk_world *world)
{
    int64_t sum = 0;
    for (int i = 0; i < RUN_PARTITIONS; i++) {
        sum += world->run.next[i];
    }
    return sum;
}
