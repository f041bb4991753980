/* fcapd-bench checkpoint: what checkpoints cost while a state grows.
 *
 * Users come, each seen once with all of their ads, until the state has 1, 2, 5, 10 and 20 times as
 * many. At each of these stages users come back at the same rate, first with a checkpointer that
 * ships the changelog, then with one that takes snapshot after snapshot. What was shipped is
 * compared with what the batches have changed, and what a restore gives with the state. Then the
 * same history is replayed from nothing, and on its state steps are timed: checkpoint_pauses.c. */
#include "checkpoint.h"

#include "fcap/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_S 600 /* for checkpoints and snapshots, before it is given up */

static const uint64_t shares[CHECKPOINT_STAGES_MAX] = {1, 2, 5, 10, 20}; /* of 20 */

/* --- what is kept ---------------------------------------------------------------------------- */

struct newest {
    struct fcap_checkpoint_segment *segments; /* owned */
    size_t segment_count;
    uint64_t number;
    uint64_t sequence;
    uint64_t events; /* that it covers: all offsets together */
};

static bool take_newest(void *context, const struct fcap_checkpoint *checkpoint)
{
    struct newest *newest = context;
    newest->segments = calloc(checkpoint->segment_count + 1, sizeof newest->segments[0]);
    FCAP_ASSERT(newest->segments != NULL);
    memcpy(newest->segments, checkpoint->segments,
           checkpoint->segment_count * sizeof newest->segments[0]);
    newest->segment_count = checkpoint->segment_count;
    newest->number = checkpoint->number;
    newest->sequence = checkpoint->sequence;
    for (size_t i = 0; i < checkpoint->partition_count; i++) {
        newest->events += (uint64_t)checkpoint->partitions[i].next_offset;
    }
    return false;
}

/* The newest checkpoint, as it is kept, and the metrics just then. */
static enum fcap_status look(struct checkpoint_bench *bench, struct running *running,
                             struct newest *newest, struct fcap_checkpoint_metrics *metrics)
{
    for (;;) {
        *newest = (struct newest){0};
        fcap_checkpointer_metrics(running->checkpointer, metrics);
        enum fcap_status status =
            fcap_restore_list(bench->objects, "bench", "bench", take_newest, newest, &bench->error);
        if (status != FCAP_OK || newest->number == metrics->number) {
            return status;
        }
        free(newest->segments); /* Another one was completed in between. */
    }
}

/* --- one part -------------------------------------------------------------------------------- */

static void note_durations(struct watch *watch)
{
    if (watch->now.number != watch->number) {
        double ms = (double)watch->now.duration_ms;
        watch->number = watch->now.number;
        watch->duration_ms += ms;
        watch->duration_ms_max = ms > watch->duration_ms_max ? ms : watch->duration_ms_max;
    }
}

static bool has_enough(const struct checkpoint_bench *bench, const struct watch *watch,
                       enum checkpoint_part part)
{
    if (watch->times != NULL) {
        return watch->times->count >= bench->options.steps;
    }
    return part == CHECKPOINT_CHANGELOG
               ? watch->now.checkpoints >= watch->begin.checkpoints + CHECKPOINT_COUNT_MIN
               : watch->now.snapshots >= watch->begin.snapshots + CHECKPOINT_COUNT_MIN;
}

enum fcap_status checkpoint_measure(struct checkpoint_bench *bench, struct running *running,
                                    enum checkpoint_part part, struct watch *watch)
{
    uint64_t phase = watch->times != NULL ? 0 : checkpoint_phase_events(&bench->options);
    uint64_t end = bench->world.made + phase;
    double begin_s = checkpoint_seconds();
    double due_s = begin_s;
    enum fcap_status status = FCAP_OK;
    watch->now = watch->begin;
    watch->number = watch->begin.number;
    while (status == FCAP_OK && (bench->world.made < end || !has_enough(bench, watch, part))) {
        double spent_s = 0;
        bool was_running = watch->now.snapshot_running > 0;
        status = checkpoint_turn(bench, running, &due_s, &spent_s);
        if (running->checkpointer != NULL) {
            fcap_checkpointer_metrics(running->checkpointer, &watch->now);
            note_durations(watch);
        }
        bool counts =
            part != CHECKPOINT_SNAPSHOTS || was_running || watch->now.snapshot_running > 0;
        if (watch->times != NULL && counts) {
            step_times_add(watch->times, spent_s);
        }
        if (checkpoint_seconds() - begin_s > WAIT_S) {
            return fcap_error_set(&bench->error, FCAP_TIMEOUT, "no checkpoint or snapshot in time");
        }
    }
    return status;
}

enum fcap_status checkpoint_warm_up(struct checkpoint_bench *bench, struct running *running)
{
    checkpoint_add_returning(bench, checkpoint_phase_events(&bench->options) / bench->options.ads);
    enum fcap_status status = checkpoint_run_all(bench, running);
    double begin_s = checkpoint_seconds();
    struct fcap_checkpoint_metrics metrics = {0};
    while (status == FCAP_OK && running->checkpointer != NULL) {
        fcap_checkpointer_metrics(running->checkpointer, &metrics);
        if (metrics.number > 0 && metrics.checkpoints > 0 && metrics.snapshot_running == 0) {
            break;
        }
        if (metrics.stopped > 0 || checkpoint_seconds() - begin_s > WAIT_S) {
            status = fcap_error_set(&bench->error, FCAP_TIMEOUT, "there is no checkpoint");
        }
        (void)usleep(1000);
    }
    return status;
}

/* What the batches after `from`, up to `through`, have changed; a key counts once in as many of
 * them as an interval has at the nominal rate, however long the intervals were. */
static void add_changes(struct checkpoint_bench *bench, struct running *running,
                        struct stage *stage, uint64_t from, uint64_t through)
{
    uint64_t batches = checkpoint_interval_events(&bench->options) / CHECKPOINT_COMMIT_EVENTS;
    batches = batches > 0 ? batches : 1;
    while (from < through) {
        uint64_t end = through - from > batches ? from + batches : through;
        double keys = 0;
        double bytes = 0;
        watcher_changed(&running->watcher, from, end, &keys, &bytes);
        stage->changed_keys += keys;
        stage->changed_bytes += bytes;
        from = end;
    }
}

/* Compares what was shipped since `from` with what was changed; both for an interval at the nominal
 * rate. */
static enum fcap_status reckon(struct checkpoint_bench *bench, struct running *running,
                               struct stage *stage, const struct newest *from,
                               const struct fcap_checkpoint_metrics *before)
{
    struct newest to;
    struct fcap_checkpoint_metrics after;
    enum fcap_status status = look(bench, running, &to, &after);
    if (status != FCAP_OK) {
        return status;
    }
    for (size_t i = 0; i < to.segment_count; i++) {
        const struct fcap_checkpoint_segment *segment = &to.segments[i];
        stage->changelog_bytes += segment->last > from->sequence ? (double)segment->size : 0;
    }
    add_changes(bench, running, stage, from->sequence, to.sequence);
    stage->checkpoints = to.number - from->number;
    stage->checkpoint_events = to.events - from->events;
    free(to.segments);
    if (stage->checkpoints == 0 || stage->checkpoint_events == 0 || after.holes > 0) {
        return fcap_error_set(&bench->error, FCAP_REFUSED, "the changelog has a hole");
    }
    double nominal =
        (double)checkpoint_interval_events(&bench->options) / (double)stage->checkpoint_events;
    stage->manifest_bytes =
        ((double)(after.bytes_total - before->bytes_total) - stage->changelog_bytes) /
        (double)stage->checkpoints;
    stage->changelog_bytes *= nominal;
    stage->changed_keys *= nominal;
    stage->changed_bytes *= nominal;
    return FCAP_OK;
}

static void note_snapshots(struct stage *stage, const struct watch *watch)
{
    double count = (double)(watch->now.snapshots - watch->begin.snapshots);
    stage->snapshots = watch->now.snapshots - watch->begin.snapshots;
    stage->snapshot_files = (double)(watch->now.files_sent - watch->begin.files_sent) / count;
    stage->snapshot_files_kept = (double)(watch->now.files_kept - watch->begin.files_kept) / count;
    stage->snapshot_bytes =
        (double)(watch->now.snapshot_bytes_total - watch->begin.snapshot_bytes_total) / count;
    stage->snapshot_ms = (double)watch->now.snapshot_duration_ms; /* of the last one */
}

static enum fcap_status measure_part(struct checkpoint_bench *bench, struct running *running,
                                     struct stage *stage, enum checkpoint_part part)
{
    struct newest from = {0};
    struct watch watch = {0};
    enum fcap_status status = checkpoint_warm_up(bench, running);
    if (status == FCAP_OK) {
        status = look(bench, running, &from, &watch.begin);
    }
    if (status == FCAP_OK && part == CHECKPOINT_CHANGELOG) {
        stage->first_files = watch.begin.files_sent;
        stage->first_bytes = watch.begin.snapshot_bytes_total;
        stage->first_ms = watch.begin.snapshot_duration_ms;
    }
    if (status == FCAP_OK) {
        status = checkpoint_measure(bench, running, part, &watch);
    }
    if (status == FCAP_OK && part == CHECKPOINT_CHANGELOG) {
        status = reckon(bench, running, stage, &from, &watch.begin);
        stage->checkpoint_ms =
            watch.duration_ms / (double)(watch.now.checkpoints - watch.begin.checkpoints);
        stage->checkpoint_ms_max = watch.duration_ms_max;
    }
    if (status == FCAP_OK && part == CHECKPOINT_SNAPSHOTS) {
        note_snapshots(stage, &watch);
    }
    free(from.segments);
    return status;
}

/* --- restore and replay ---------------------------------------------------------------------- */

struct content {
    uint64_t hash;
    uint64_t count;
};

static bool add_content(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct content *content = context;
    if (key.size >= 2 && key.data[0] == 0xff && key.data[1] == 0xff) {
        return true; /* The store's own keys tell the two apart. */
    }
    content->hash = fcap_hash64(value, fcap_hash64(key, content->hash));
    content->count++;
    return true;
}

static enum fcap_status read_content(struct checkpoint_bench *bench, const char *directory,
                                     struct content *ret_content)
{
    struct fcap_store_settings settings = bench->store_settings;
    struct fcap_store_rocksdb *db = NULL;
    const uint8_t from[] = {0};
    *ret_content = (struct content){0};
    settings.directory = directory;
    enum fcap_status status = fcap_store_rocksdb_open_read_only(&settings, &db, &bench->error);
    for (int family = 0; status == FCAP_OK && family < FCAP_FAMILY_COUNT; family++) {
        struct fcap_store *store = fcap_store_rocksdb_handle(db);
        status = store->ops->scan(store, (enum fcap_family)family, (struct fcap_bytes){from, 1},
                                  (struct fcap_bytes){from, 0}, add_content, ret_content);
    }
    fcap_store_rocksdb_close(db);
    return status;
}

static enum fcap_status restore(struct checkpoint_bench *bench, struct stage *stage)
{
    struct fcap_checkpoint_place_rocksdb place;
    struct fcap_restore_report report = {0};
    struct content here;
    struct content there;
    fcap_checkpoint_place_rocksdb_init(&place, &bench->store_settings);
    const struct fcap_restore_settings settings = {.profile = "bench",
                                                   .instance = "bench",
                                                   .directory = bench->restored_directory,
                                                   .place = &place.place};
    double begin_s = checkpoint_seconds();
    enum fcap_status status = fcap_restore(&settings, bench->objects, &report, &bench->error);
    stage->restore_s = checkpoint_seconds() - begin_s;
    stage->restored_bytes = report.file_bytes + report.segment_bytes;
    if (status == FCAP_OK) {
        status = read_content(bench, bench->state_directory, &here);
    }
    if (status == FCAP_OK) {
        status = read_content(bench, bench->restored_directory, &there);
    }
    if (status == FCAP_OK) {
        stage->is_equal =
            here.hash == there.hash && here.count == there.count && here.count >= stage->users;
    }
    bench_remove_tree(bench->restored_directory);
    return status;
}

/* As a start without a state finds the topic: all of it is there, and the clock is late. */
static enum fcap_status replay(struct checkpoint_bench *bench)
{
    struct running running;
    struct world *world = &bench->world;
    uint64_t ends[16];
    FCAP_ASSERT(world->options.partitions <= sizeof ends / sizeof ends[0]);
    memcpy(ends, world->offsets, world->options.partitions * sizeof ends[0]);
    memset(world->offsets, 0, world->options.partitions * sizeof ends[0]);
    world->ends = ends;
    world->made = 0;
    bench_remove_tree(bench->state_directory);
    double begin_s = checkpoint_seconds();
    enum fcap_status status = checkpoint_open(bench, &running, 0);
    if (status == FCAP_OK) {
        status = checkpoint_run_all(bench, &running);
    }
    status = checkpoint_close(bench, &running, status);
    bench->replay_s = checkpoint_seconds() - begin_s;
    world->ends = NULL;
    return status;
}

/* --- the run --------------------------------------------------------------------------------- */

static uint64_t live_bytes(const struct fcap_store_metrics *metrics)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        bytes += metrics->live_bytes[i];
    }
    return bytes;
}

const int64_t checkpoint_snapshot_interval_ms[CHECKPOINT_PARTS + 1] = {0, 86400000, 100, 0};

/* One opening of the store. The part is CHECKPOINT_PARTS: the state grows, nothing is measured. */
static enum fcap_status run_part(struct checkpoint_bench *bench, struct stage *stage,
                                 enum checkpoint_part part)
{
    struct running running;
    struct fcap_store_metrics metrics = {0};
    enum fcap_status status =
        checkpoint_open(bench, &running, checkpoint_snapshot_interval_ms[part]);
    if (status == FCAP_OK) {
        status = part == CHECKPOINT_PARTS ? checkpoint_run_all(bench, &running)
                                          : measure_part(bench, &running, stage, part);
    }
    if (status == FCAP_OK) {
        fcap_store_rocksdb_metrics(running.db, &metrics);
        stage->live_bytes = live_bytes(&metrics);
        stage->compaction_bytes += metrics.compaction_write_bytes;
    }
    return checkpoint_close(bench, &running, status);
}

static enum fcap_status run_stage(struct checkpoint_bench *bench, uint64_t users)
{
    struct stage *stage = &bench->stages[bench->stage_count++];
    checkpoint_add_new(bench, users - bench->users);
    stage->users = users;
    enum fcap_status status = run_part(bench, stage, CHECKPOINT_PARTS);
    for (int part = CHECKPOINT_CHANGELOG; part < CHECKPOINT_PARTS && status == FCAP_OK; part++) {
        status = run_part(bench, stage, (enum checkpoint_part)part);
    }
    stage->events = bench->world.made;
    return status == FCAP_OK ? restore(bench, stage) : status;
}

static enum fcap_status run(struct checkpoint_bench *bench)
{
    enum fcap_status status = fcap_objects_directory_open(bench->objects_directory, false,
                                                          &bench->objects, &bench->error);
    for (size_t i = 0; i < CHECKPOINT_STAGES_MAX && status == FCAP_OK; i++) {
        uint64_t share = shares[i] * bench->options.growth;
        if (i == 0 || share > 20) { /* The first has one part; those below it are none. */
            status = run_stage(bench, bench->options.users * (i == 0 ? 20 : share) / 20);
        }
    }
    if (status == FCAP_OK) {
        status = replay(bench);
    }
    if (status == FCAP_OK) {
        status = checkpoint_time_steps(bench);
    }
    fcap_objects_directory_close(bench->objects);
    return status;
}

int bench_checkpoint(int argc, char **argv)
{
    char directory[] = "/tmp/fcapd-bench-XXXXXX";
    struct checkpoint_bench *bench = calloc(1, sizeof *bench);
    FCAP_ASSERT(bench != NULL);
    if (!checkpoint_options_parse(argc, argv, &bench->options)) {
        free(bench);
        return 2;
    }
    const char *base = bench->options.directory != NULL ? bench->options.directory : directory;
    if (base == directory && mkdtemp(directory) == NULL) {
        (void)fputs("fcapd-bench checkpoint: /tmp: no temporary directory can be made\n", stderr);
        free(bench);
        return 1;
    }
    /* What is cut is refused. */
    (void)snprintf(bench->state_directory, sizeof bench->state_directory, "%s/state", base);
    (void)snprintf(bench->objects_directory, sizeof bench->objects_directory, "%s/kept", base);
    (void)snprintf(bench->restored_directory, sizeof bench->restored_directory, "%s/restored",
                   base);
    checkpoint_bench_init(bench);
    enum fcap_status status = run(bench);
    if (base == directory) {
        bench_remove_tree(directory);
    }
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "fcapd-bench checkpoint: %s\n", bench->error.text);
    } else {
        checkpoint_print(bench);
    }
    bool is_well = status == FCAP_OK && checkpoint_is_well(bench);
    free(bench->visits);
    free(bench->world.offsets);
    free(bench);
    return is_well ? 0 : 1;
}
