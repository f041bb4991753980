/* See machine_loss.h. */
#include "machine_loss.h"

#include "lab/lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define LOOK_MS 200

/* --- life ------------------------------------------------------------------------------------ */

void machine_init(struct machine *machine, const struct history_options *options,
                  const char *materialization)
{
    static const char without[] = "event:\n  id: id\nshutdown:\n  deadline: 20s\n";
    struct history_options own = *options;
    struct fcap_error error = {""};
    memset(machine, 0, sizeof *machine);
    lab_folder_make("checkpoints", machine->folder, sizeof machine->folder);
    (void)snprintf(machine->directory, sizeof machine->directory, "%s/kept", machine->folder);
    int size = snprintf(machine->more, sizeof machine->more,
                        "%scheckpoint:\n  directory: %s\n  interval: 1s\n  min_pause: 0s\n"
                        "materialization:\n  interval: 10s\n%s",
                        without, machine->directory, materialization);
    assert_in_range(size, 1, (int)sizeof machine->more - 1);
    machine->more_without = without;
    own.live.more = machine->more;
    history_init(&machine->history, &own);
    history_produce(&machine->history);
    /* The daemon would make it, too. */
    if (fcap_objects_directory_open(machine->directory, false, &machine->objects, &error) !=
        FCAP_OK) {
        fail_msg("%s", error.text);
    }
}

void machine_done(struct machine *machine)
{
    history_done(&machine->history);
    fcap_objects_directory_close(machine->objects);
    machine->objects = NULL;
    lab_folder_remove(machine->folder);
}

static struct daemon_process *process_of(struct machine *machine)
{
    return &machine->history.live.process;
}

/* What this life has said so far. Valid until the next call or page. */
static const char *log_of(struct machine *machine)
{
    const char *log = daemon_process_log(process_of(machine));
    return strlen(log) > machine->log_size ? log + machine->log_size : "";
}

static void print_log(struct machine *machine)
{
    enum { END_BYTES = 6000, PIECE = 500 }; /* cmocka cuts longer lines */
    const char *log = log_of(machine);
    size_t size = strlen(log);
    print_error("--- log:\n");
    for (size_t at = size > END_BYTES ? size - END_BYTES : 0; at < size; at += PIECE) {
        print_error("%.*s", PIECE, log + at);
    }
    print_error("\n");
}

/* Ends the test with what the daemon said. */
#define machine_fail(machine, ...)                                                                 \
    do {                                                                                           \
        print_log(machine);                                                                        \
        fail_msg(__VA_ARGS__);                                                                     \
    } while (0)

static void look_at_metrics(struct machine *machine)
{
    struct daemon_process *process = process_of(machine);
    if (daemon_process_get(process, "/metrics", NULL) != 200) {
        return; /* It starts. */
    }
    for (int32_t i = 0; i < machine->history.options.live.partitions; i++) {
        char label[32];
        (void)snprintf(label, sizeof label, "partition=\"%d\"", i);
        int64_t next =
            (int64_t)daemon_process_sample(process, "fcapd_partition_next_offset", label);
        machine->applied[i] = next > machine->applied[i] ? next : machine->applied[i];
    }
    machine->expired = daemon_process_sample(process, "fcapd_expiries_total", NULL);
    double underflows = daemon_process_sample(process, "fcapd_underflows_total", NULL);
    double gaps = daemon_process_sample(process, "fcapd_gaps_total", NULL);
    if (underflows > 0 || gaps > 0) {
        machine_fail(machine, "%.0f underflows, %.0f gaps", underflows, gaps);
    }
}

static void check_alive(struct machine *machine)
{
    struct daemon_process *process = process_of(machine);
    if (process->pid == 0 || machine->armed) {
        return;
    }
    int code = daemon_process_wait(process, 0);
    if (code != -1) {
        machine_fail(machine, "it has ended by itself: %d", code);
    }
    look_at_metrics(machine);
}

void machine_tick(struct machine *machine)
{
    history_tick(&machine->history);
    if (lab_monotonic_ms() - machine->looked_ms >= LOOK_MS) {
        check_alive(machine);
        machine->looked_ms = lab_monotonic_ms();
    }
}

static void tick(void *context)
{
    machine_tick(context);
}

void machine_go_on(struct machine *machine, int64_t ms)
{
    int64_t until_ms = lab_monotonic_ms() + ms;
    while (lab_monotonic_ms() < until_ms) {
        machine_tick(machine);
    }
}

/* --- lives ----------------------------------------------------------------------------------- */

void machine_configure(struct machine *machine, bool keeps)
{
    const struct live_options *options = &machine->history.options.live;
    live_configure(&machine->history.live,
                   &(struct live_change){.windows = options->windows,
                                         .lengths = options->lengths,
                                         .more = keeps ? machine->more : machine->more_without});
}

static void begin_life(struct machine *machine)
{
    char path[128];
    struct stat info;
    (void)snprintf(path, sizeof path, "%s/log", process_of(machine)->directory);
    machine->log_size = stat(path, &info) == 0 ? (size_t)info.st_size : 0;
    machine->armed = false;
    machine->expired = 0;
    machine->started_ms = lab_monotonic_ms();
    machine->since_ms = lab_wall_ms();
}

void machine_start(struct machine *machine, const char *points)
{
    begin_life(machine);
    if (points != NULL) {
        stop_start_unarmed(&machine->stop, process_of(machine), "run", points);
    } else {
        daemon_process_start(process_of(machine), NULL);
    }
}

void machine_die_starting(struct machine *machine, const char *points)
{
    begin_life(machine);
    machine->armed = true;
    stop_start(&machine->stop, process_of(machine), "run", points);
    stop_await(&machine->stop, tick, machine);
    stop_kill(&machine->stop);
}

static bool is_served(const struct machine *machine)
{
    const struct live *live = &machine->history.live;
    for (int32_t i = 0; i < live->options.partitions; i++) {
        if (!live->last[i].is_ready || live->last[i].as_of_ms < machine->since_ms) {
            return false;
        }
    }
    return true;
}

/* The number behind `before` in the text, or right before `after`. */
static uint64_t number_behind(const char *text, const char *before)
{
    const char *at = text == NULL ? NULL : strstr(text, before);
    return at == NULL ? 0 : strtoull(at + strlen(before), NULL, 10);
}

static uint64_t number_before(const char *text, const char *after)
{
    const char *at = text == NULL ? NULL : strstr(text, after);
    while (at != NULL && at > text && at[-1] >= '0' && at[-1] <= '9') {
        at--;
    }
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

void machine_await_served(struct machine *machine, struct machine_start *ret_start)
{
    struct daemon_process *process = process_of(machine);
    int64_t until_ms = machine->started_ms + MACHINE_WAIT_MS;
    *ret_start = (struct machine_start){0};
    while (ret_start->ready_ms == 0 || !is_served(machine)) {
        if (ret_start->ready_ms == 0 && daemon_process_get(process, "/readyz", NULL) == 200) {
            ret_start->ready_ms = lab_monotonic_ms() - machine->started_ms;
        }
        if (lab_monotonic_ms() > until_ms) {
            (void)daemon_process_get(process, "/readyz", NULL);
            print_error("/readyz: %.2000s\n", process->text == NULL ? "" : process->text);
            machine_fail(machine, "not everything is served");
        }
        machine_tick(machine);
    }
    ret_start->served_ms = lab_monotonic_ms() - machine->started_ms;
    double read = daemon_process_metric(process, "fcapd_records_total");
    assert_true(read >= 0);
    ret_start->read = (uint64_t)read;
    const char *line = strstr(log_of(machine), MACHINE_RESTORED);
    ret_start->number = number_behind(line, MACHINE_RESTORED);
    ret_start->batches = number_before(line, " batches of the changelog");
}

void machine_await_checkpoints(struct machine *machine, unsigned count)
{
    int64_t until_ms = lab_monotonic_ms() + MACHINE_WAIT_MS;
    while (daemon_process_metric(process_of(machine), "fcapd_checkpoint_completed_total") < count) {
        if (lab_monotonic_ms() > until_ms) {
            machine_fail(machine, "there are no %u checkpoints", count);
        }
        machine_tick(machine);
    }
}

void machine_kill_at_point(struct machine *machine)
{
    check_alive(machine);
    machine->armed = true;
    stop_arm(&machine->stop);
    stop_await(&machine->stop, tick, machine);
    stop_kill(&machine->stop);
}

void machine_kill(struct machine *machine)
{
    check_alive(machine);
    daemon_process_signal(process_of(machine), SIGKILL);
    assert_int_equal(daemon_process_wait(process_of(machine), MACHINE_WAIT_MS), 128 + SIGKILL);
}

/* --- what is lost ---------------------------------------------------------------------------- */

static bool take_newest(void *context, const struct fcap_checkpoint *checkpoint)
{
    struct machine_kept *kept = context;
    kept->number = checkpoint->number;
    kept->sequence = checkpoint->sequence;
    kept->snapshot_sequence = checkpoint->snapshot_sequence;
    for (size_t i = 0; i < checkpoint->partition_count; i++) {
        const struct fcap_checkpoint_partition *partition = &checkpoint->partitions[i];
        assert_in_range(partition->partition, 0, LIVE_PARTITIONS_MAX - 1);
        kept->next[partition->partition] = partition->next_offset;
    }
    return false; /* The newest comes first. */
}

void machine_look(struct machine *machine, struct machine_kept *ret_kept)
{
    struct fcap_error error = {""};
    *ret_kept = (struct machine_kept){0};
    assert_int_equal(process_of(machine)->pid, 0);
    if (fcap_restore_list(machine->objects, "test", "one", take_newest, ret_kept, &error) !=
        FCAP_OK) {
        fail_msg("%s", error.text);
    }
}

void machine_lose(struct machine *machine)
{
    char path[96];
    struct stat info;
    assert_int_equal(process_of(machine)->pid, 0);
    (void)snprintf(path, sizeof path, "%s/state", process_of(machine)->directory);
    assert_int_equal(stat(path, &info), 0);
    lab_folder_remove(path);
}

void machine_empty_redis(struct machine *machine)
{
    const char *answer = redis_server_ask(&machine->history.live.redis, "FLUSHALL");
    assert_true(answer != NULL && strcmp(answer, "OK") == 0);
}

uint64_t machine_delete_records(struct machine *machine, const struct machine_kept *kept)
{
    uint64_t deleted = 0;
    const struct live *live = &machine->history.live;
    for (int32_t i = 0; i < live->options.partitions; i++) {
        int64_t low = 0;
        int64_t end = 0;
        kafka_ends(kafka_test_brokers(), live->topic, i, &low, &end);
        assert_true(kept->next[i] <= live->read[i] && kept->next[i] <= end);
        if (kept->next[i] > low) {
            kafka_delete_records(kafka_test_brokers(), live->topic, i, kept->next[i]);
            deleted += (uint64_t)(kept->next[i] - low);
        }
    }
    return deleted;
}
