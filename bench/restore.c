/* fcapd-bench restore: how fast a state comes back from its checkpoint, with one thread and with
 * several, and how fast the changelog is applied. One checkpoint, all ways in one run. */
#include "bench.h"

#include "fcap/assert.h"
#include "fcap/checkpointer.h"
#include "fcap/clock_os.h"
#include "fcap/restore.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define VALUE_BYTES 1000

struct restore_options {
    uint64_t mib;       /* of the snapshot */
    uint64_t batches;   /* of the changelog */
    uint64_t batch_kib; /* of each */
    uint64_t threads;
    const char *directory;
    bool json;
};

struct restore_bench {
    struct restore_options options;
    char root[400];
    char state[512];
    char kept[512];
    char restored[512];
    struct fcap_store_settings store;
    struct fcap_objects *objects;
    uint64_t random;
    struct fcap_error error;
};

/* One restore. */
struct way {
    uint64_t threads;
    double verify_s;
    double files_s;
    double apply_s;
    struct fcap_restore_report report;
};

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* This clock always exists. */
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* --- the checkpoint --------------------------------------------------------------------------- */

static uint64_t draw(struct restore_bench *bench)
{
    bench->random ^= bench->random << 13;
    bench->random ^= bench->random >> 7;
    bench->random ^= bench->random << 17;
    return bench->random;
}

/* Values that nothing makes smaller, under keys in no order. */
static void fill(struct restore_bench *bench, struct fcap_batch *batch, uint64_t number,
                 uint64_t bytes)
{
    struct fcap_buffer value = {0};
    fcap_batch_clear(batch);
    fcap_batch_section(batch, 1, 1, number);
    for (uint64_t size = 0; size < bytes; size += VALUE_BYTES) {
        char key[32];
        (void)snprintf(key, sizeof key, "%016" PRIx64, draw(bench)); /* It fits. */
        fcap_buffer_clear(&value);
        while (value.size < VALUE_BYTES) {
            fcap_buffer_put_be64(&value, draw(bench));
        }
        fcap_batch_add(batch, FCAP_FAMILY_USERS, FCAP_CHANGE_PUT, fcap_bytes_of(key),
                       fcap_buffer_bytes(&value));
    }
    fcap_buffer_done(&value);
}

static enum fcap_status commit(struct fcap_store *store, const struct fcap_batch *batch)
{
    const struct fcap_batch *done = NULL;
    enum fcap_status result = FCAP_OK;
    enum fcap_status status = store->ops->submit(store, batch);
    while (status == FCAP_OK && done == NULL) {
        status = store->ops->completed(store, 100, &done, &result);
    }
    return status == FCAP_OK ? result : status;
}

static enum fcap_status write_batches(struct restore_bench *bench, struct fcap_store *store,
                                      struct fcap_checkpointer *checkpointer, uint64_t count,
                                      uint64_t bytes)
{
    struct fcap_batch batch = {0};
    enum fcap_status status = FCAP_OK;
    for (uint64_t i = 1; i <= count && status == FCAP_OK; i++) {
        fill(bench, &batch, i, bytes);
        status = commit(store, &batch);
        for (int k = 0; k < 4 && checkpointer != NULL; k++) {
            (void)fcap_checkpointer_step(checkpointer); /* When it is due does not matter. */
        }
    }
    fcap_batch_done(&batch);
    return status;
}

static struct fcap_checkpoint_metrics metrics_of(struct fcap_checkpointer *checkpointer)
{
    struct fcap_checkpoint_metrics metrics;
    fcap_checkpointer_metrics(checkpointer, &metrics);
    return metrics;
}

static void tell(void *context, enum fcap_checkpointer_level level, const char *text)
{
    (void)context;
    if (level != FCAP_CHECKPOINTER_INFO) {
        (void)fprintf(stderr, "fcapd-bench restore: %s\n", text);
    }
}

/* The state is there; a snapshot of it, and a changelog behind. */
static enum fcap_status keep(struct restore_bench *bench, struct fcap_store_rocksdb *db)
{
    const struct restore_options *options = &bench->options;
    const struct fcap_checkpointer_settings settings = {.profile = "bench",
                                                        .instance = "bench",
                                                        .interval_ms = INT32_MAX,
                                                        .materialization_interval_ms = INT32_MAX,
                                                        .transfer_threads = 1,
                                                        .retain = 1,
                                                        .queue_bytes_max = 64u << 20,
                                                        .clock = fcap_clock_os(),
                                                        .tell = tell};
    struct fcap_checkpoint_state_rocksdb state;
    struct fcap_checkpointer *checkpointer = NULL;
    fcap_checkpoint_state_rocksdb_init(&state, db, &bench->store);
    enum fcap_status status = fcap_checkpointer_open(&settings, bench->objects, &state.state,
                                                     &checkpointer, &bench->error);
    while (status == FCAP_OK && metrics_of(checkpointer).snapshots == 0) {
        (void)fcap_checkpointer_step(checkpointer); /* Told when it fails. */
    }
    if (status == FCAP_OK) {
        status = write_batches(bench, fcap_store_rocksdb_handle(db), checkpointer, options->batches,
                               options->batch_kib << 10);
    }
    if (status == FCAP_OK) {
        status = fcap_checkpointer_stop(checkpointer, INT32_MAX);
    }
    fcap_checkpointer_close(checkpointer);
    fcap_checkpoint_state_done(&state.state);
    return status;
}

static enum fcap_status make(struct restore_bench *bench)
{
    struct fcap_store_rocksdb *db = NULL;
    int64_t dropped_ms = 0;
    fcap_store_settings_default(&bench->store);
    bench->store.directory = bench->state;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        bench->store.families[i].target_file_bytes = 16u << 20;
        bench->store.families[i].write_buffer_bytes = 16u << 20;
    }
    enum fcap_status status =
        fcap_objects_directory_open(bench->kept, false, &bench->objects, &bench->error);
    if (status == FCAP_OK) {
        status = fcap_store_rocksdb_open(&bench->store, &db, &bench->error);
    }
    if (status == FCAP_OK) {
        struct fcap_store *store = fcap_store_rocksdb_handle(db);
        status = store->ops->claim(store, 1, 1, &dropped_ms);
    }
    if (status == FCAP_OK) {
        status = write_batches(bench, fcap_store_rocksdb_handle(db), NULL, bench->options.mib,
                               (uint64_t)1 << 20);
    }
    if (status == FCAP_OK) {
        status = keep(bench, db);
    }
    fcap_store_rocksdb_close(db);
    return status;
}

/* --- the ways --------------------------------------------------------------------------------- */

/* Of what is clean; so reads are the volume's, not the memory's, where the two differ. */
static int forget_pages(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    int file = kind == FTW_F ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    (void)info;
    (void)walk;
    if (file >= 0) {
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED); /* Only a wish. */
        (void)close(file);                                    /* Only read. */
    }
    return 0;
}

struct watch {
    uint64_t files_end; /* bytes that have been read when all files are */
    double files_began_s;
    double files_ended_s;
    uint64_t files_begin;
};

static void see(void *context, uint64_t bytes, uint64_t bytes_all)
{
    struct watch *watch = context;
    (void)bytes_all;
    if (bytes <= watch->files_begin) {
        watch->files_began_s = seconds();
    }
    if (bytes <= watch->files_end) {
        watch->files_ended_s = seconds();
    }
}

static enum fcap_status run(struct restore_bench *bench, struct way *way)
{
    struct fcap_checkpoint_place_rocksdb place;
    struct watch watch = {0};
    struct fcap_restore_settings settings = {.profile = "bench",
                                             .instance = "bench",
                                             .threads = (size_t)way->threads,
                                             .clock = fcap_clock_os()};
    fcap_checkpoint_place_rocksdb_init(&place, &bench->store);
    (void)nftw(bench->kept, forget_pages, 16, FTW_PHYS); /* What stays is only faster. */
    double began_s = seconds();
    enum fcap_status status = fcap_restore(&settings, bench->objects, &way->report, &bench->error);
    way->verify_s = seconds() - began_s;
    if (status != FCAP_OK) {
        return status;
    }
    bench_remove_tree(bench->restored);
    (void)nftw(bench->kept, forget_pages, 16, FTW_PHYS);
    settings.directory = bench->restored;
    settings.place = &place.place;
    settings.progress = see;
    settings.context = &watch;
    watch.files_begin = way->report.segment_bytes;
    watch.files_end = way->report.segment_bytes + way->report.file_bytes;
    watch.files_began_s = watch.files_ended_s = seconds();
    status = fcap_restore(&settings, bench->objects, &way->report, &bench->error);
    way->files_s = watch.files_ended_s - watch.files_began_s;
    way->apply_s = seconds() - watch.files_ended_s;
    return status;
}

static void print(const struct restore_bench *bench, const struct way *ways, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct way *way = &ways[i];
        const double mib = (double)way->report.file_bytes / 1048576;
        const char *format =
            bench->options.json
                ? "{\"threads\": %" PRIu64 ", \"files\": %" PRIu64
                  ", \"mib\": %.1f, \"restored_mib_per_s\": %.1f, \"verified_mib_per_s\": %.1f, "
                  "\"batches_per_s\": %.0f, \"batches_mib_per_s\": %.1f, \"against_one\": %.2f}\n"
                : "%" PRIu64 " threads: %" PRIu64 " files, %.1f MiB, restored %.1f MiB/s, verified "
                  "%.1f MiB/s; then %.0f batches/s, "
                  "%.1f MiB/s of the changelog; %.2f times as fast as one thread\n";
        (void)printf(format, way->threads, way->report.files, mib, mib / way->files_s,
                     (mib + (double)way->report.segment_bytes / 1048576) / way->verify_s,
                     (double)way->report.batches / way->apply_s,
                     (double)way->report.segment_bytes / 1048576 / way->apply_s,
                     ways[0].files_s / way->files_s);
    }
}

/* --- options ---------------------------------------------------------------------------------- */

static bool parse(int argc, char **argv, struct restore_options *options)
{
    *options = (struct restore_options){.mib = 512, .batches = 500, .batch_kib = 100, .threads = 4};
    const struct {
        const char *name;
        uint64_t *target;
        uint64_t most;
    } numbers[] = {
        {"--mib", &options->mib, 1 << 20},
        {"--batches", &options->batches, 10000000},
        {"--batch-kib", &options->batch_kib, 1 << 16},
        {"--threads", &options->threads, 64},
    };
    for (int i = 0; i < argc; i++) {
        bool is_good = strcmp(argv[i], "--json") == 0;
        options->json = options->json || is_good;
        if (!is_good && i + 1 < argc && strcmp(argv[i], "--dir") == 0) {
            options->directory = argv[++i];
            continue;
        }
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0] && !is_good && i + 1 < argc;
             k++) {
            char *end;
            unsigned long long number = strtoull(argv[i + 1], &end, 10);
            if (strcmp(argv[i], numbers[k].name) == 0 && *end == '\0' && number > 0 &&
                number <= numbers[k].most) {
                *numbers[k].target = number;
                is_good = true;
                i++;
                break;
            }
        }
        if (!is_good) {
            (void)fputs("usage: fcapd-bench restore [--mib 512] [--batches 500] [--batch-kib 100] "
                        "[--threads 4] [--dir DIR] [--json]\n",
                        stderr);
            return false;
        }
    }
    return true;
}

int bench_restore(int argc, char **argv)
{
    static struct restore_bench bench = {.random = 88172645463325252u};
    struct way ways[2] = {{.threads = 1}, {0}};
    if (!parse(argc, argv, &bench.options)) {
        return 2;
    }
    ways[1].threads = bench.options.threads;
    const char *temporary = getenv("TMPDIR");
    (void)snprintf(bench.root, sizeof bench.root, "%s/fcapd-bench-XXXXXX",
                   bench.options.directory != NULL ? bench.options.directory
                   : temporary != NULL             ? temporary
                                                   : "/tmp");
    if (mkdtemp(bench.root) == NULL) {
        (void)fprintf(stderr, "fcapd-bench restore: %s cannot be made\n", bench.root);
        return 1;
    }
    (void)snprintf(bench.state, sizeof bench.state, "%s/state", bench.root);
    (void)snprintf(bench.kept, sizeof bench.kept, "%s/kept", bench.root);
    (void)snprintf(bench.restored, sizeof bench.restored, "%s/restored", bench.root);
    enum fcap_status status = make(&bench);
    for (size_t i = 0; i < 2 && status == FCAP_OK; i++) {
        status = run(&bench, &ways[i]);
    }
    fcap_objects_directory_close(bench.objects);
    bench_remove_tree(bench.root);
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "fcapd-bench restore: %s: %s\n", fcap_status_text(status),
                      bench.error.text);
        return 1;
    }
    print(&bench, ways, 2);
    return 0;
}
