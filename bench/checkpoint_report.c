/* The table, the object, and what must hold. */
#include "checkpoint.h"

#include <stdio.h>

static const char *const part_names[CHECKPOINT_PARTS] = {"off", "changelog", "snapshots"};

/* --- what must hold: counts, never times ------------------------------------------------------
 */

static double shipped(const struct stage *stage)
{
    return stage->changelog_bytes + stage->manifest_bytes;
}

/* The largest over the smallest. */
static double flatness(const struct checkpoint_bench *bench)
{
    double least = shipped(&bench->stages[0]);
    double most = least;
    for (size_t i = 1; i < bench->stage_count; i++) {
        double bytes = shipped(&bench->stages[i]);
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
    }
    return most / least;
}

static double growth(const struct checkpoint_bench *bench)
{
    return (double)bench->stages[bench->stage_count - 1].live_bytes /
           (double)bench->stages[0].live_bytes;
}

static bool complain(const char *what, double value)
{
    (void)fprintf(stderr, "fcapd-bench checkpoint: %s (%.2f)\n", what, value);
    return false;
}

static bool is_stage_well(const struct stage *stage)
{
    bool is_well = true;
    double ratio = shipped(stage) / stage->changed_bytes;
    if (!(ratio <= CHECKPOINT_TOLERANCE && ratio >= 1 / CHECKPOINT_TOLERANCE)) {
        is_well = complain("bytes shipped are not those that were changed", ratio);
    }
    if (stage->compaction_bytes == 0) {
        is_well = complain("nothing was compacted", 0);
    }
    if (!stage->is_equal) {
        is_well = complain("what was restored is not the state", (double)stage->users);
    }
    return is_well;
}

bool checkpoint_is_well(const struct checkpoint_bench *bench)
{
    bool is_well = true;
    for (size_t i = 0; i < bench->stage_count; i++) {
        is_well = is_stage_well(&bench->stages[i]) && is_well;
    }
    if (!(flatness(bench) <= CHECKPOINT_TOLERANCE)) {
        is_well = complain("bytes shipped are not flat", flatness(bench));
    }
    if (!(growth(bench) >= (double)bench->options.growth / 2)) {
        is_well = complain("the state has not grown", growth(bench));
    }
    return is_well;
}

/* --- for people ------------------------------------------------------------------------------ */

static void print_bytes(const struct checkpoint_bench *bench)
{
    (void)printf("An interval of %d ms at %llu events a second\n\n", CHECKPOINT_INTERVAL_MS,
                 (unsigned long long)bench->options.rate);
    (void)printf("| users | SST MB | changelog KB | manifest KB | changed keys | keys x size KB | "
                 "shipped / changed | ms mean / max |\n");
    (void)printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < bench->stage_count; i++) {
        const struct stage *stage = &bench->stages[i];
        (void)printf("| %llu | %.1f | %.1f | %.1f | %.0f | %.1f | %.2f | %.0f / %.0f |\n",
                     (unsigned long long)stage->users, (double)stage->live_bytes / 1e6,
                     stage->changelog_bytes / 1e3, stage->manifest_bytes / 1e3, stage->changed_keys,
                     stage->changed_bytes / 1e3, shipped(stage) / stage->changed_bytes,
                     stage->checkpoint_ms, stage->checkpoint_ms_max);
    }
}

static void print_snapshots(const struct checkpoint_bench *bench)
{
    (void)printf(
        "\n| users | first snapshot files, MB, ms | one after the other: files sent / kept, "
        "MB, ms | restore s, MB |\n");
    (void)printf("| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < bench->stage_count; i++) {
        const struct stage *stage = &bench->stages[i];
        (void)printf("| %llu | %llu, %.1f, %llu | %.0f / %.0f, %.1f, %.0f | %.2f, %.1f |\n",
                     (unsigned long long)stage->users, (unsigned long long)stage->first_files,
                     (double)stage->first_bytes / 1e6, (unsigned long long)stage->first_ms,
                     stage->snapshot_files, stage->snapshot_files_kept, stage->snapshot_bytes / 1e6,
                     stage->snapshot_ms, stage->restore_s, (double)stage->restored_bytes / 1e6);
    }
}

static void print_steps(const struct checkpoint_bench *bench)
{
    const struct stage *last = &bench->stages[bench->stage_count - 1];
    (void)printf("\nrestore %.2f s, replay of the same %llu events %.2f s; bytes shipped %.2f "
                 "between the most and the least, SST bytes grown %.1f times\n",
                 last->restore_s, (unsigned long long)last->events, bench->replay_s,
                 flatness(bench), growth(bench));
    (void)printf("\n%llu users, %llu rounds in turn, %llu snapshots\n\n",
                 (unsigned long long)last->users, (unsigned long long)bench->options.rounds,
                 (unsigned long long)bench->snapshots_timed);
    (void)printf(
        "| steps of 40 events, checkpointer | events/s | count | p50 us | p99 us | p99.9 us "
        "| max us | p99 / off | p99 us of each round |\n");
    (void)printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t part = 0; part < CHECKPOINT_PARTS; part++) {
        const struct step_quantiles *steps = &bench->steps[part];
        (void)printf("| %s | %.0f | %zu | %.0f | %.0f | %.0f | %.0f | %.2f |", part_names[part],
                     steps->rate, steps->count, steps->p50_us, steps->p99_us, steps->p999_us,
                     steps->max_us, steps->p99_us / bench->steps[CHECKPOINT_OFF].p99_us);
        for (uint64_t i = 0; i < bench->options.rounds; i++) {
            (void)printf(" %.0f", bench->p99_us[part][i]);
        }
        (void)printf(" |\n");
    }
}

/* --- for programs ---------------------------------------------------------------------------- */

static void print_member(const char *name, double value, const char *end)
{
    (void)printf("\"%s\":%.3f%s", name, value, end);
}

static void print_stage(const struct stage *stage)
{
    const struct {
        const char *name;
        double value;
    } members[] = {
        {"users", (double)stage->users},
        {"events", (double)stage->events},
        {"live_bytes", (double)stage->live_bytes},
        {"compaction_bytes", (double)stage->compaction_bytes},
        {"checkpoints", (double)stage->checkpoints},
        {"changelog_bytes", stage->changelog_bytes},
        {"manifest_bytes", stage->manifest_bytes},
        {"changed_keys", stage->changed_keys},
        {"changed_bytes", stage->changed_bytes},
        {"checkpoint_ms", stage->checkpoint_ms},
        {"checkpoint_ms_max", stage->checkpoint_ms_max},
        {"first_files", (double)stage->first_files},
        {"first_bytes", (double)stage->first_bytes},
        {"first_ms", (double)stage->first_ms},
        {"snapshots", (double)stage->snapshots},
        {"snapshot_files", stage->snapshot_files},
        {"snapshot_files_kept", stage->snapshot_files_kept},
        {"snapshot_bytes", stage->snapshot_bytes},
        {"snapshot_ms", stage->snapshot_ms},
        {"restored_bytes", (double)stage->restored_bytes},
        {"restore_s", stage->restore_s},
        {"restored_is_equal", stage->is_equal},
    };
    (void)putchar('{');
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        print_member(members[i].name, members[i].value,
                     i + 1 < sizeof members / sizeof members[0] ? "," : "}");
    }
}

static void print_part(const struct checkpoint_bench *bench, size_t part)
{
    const struct step_quantiles *steps = &bench->steps[part];
    (void)printf("\"steps_%s\":{", part_names[part]);
    print_member("count", (double)steps->count, ",");
    print_member("rate", steps->rate, ",");
    print_member("p50_us", steps->p50_us, ",");
    print_member("p99_us", steps->p99_us, ",");
    print_member("p999_us", steps->p999_us, ",");
    print_member("max_us", steps->max_us, ",");
    print_member("p99_ratio", steps->p99_us / bench->steps[CHECKPOINT_OFF].p99_us, "},");
}

static void print_json(const struct checkpoint_bench *bench)
{
    (void)printf("{\"stages\":[");
    for (size_t i = 0; i < bench->stage_count; i++) {
        print_stage(&bench->stages[i]);
        (void)printf("%s", i + 1 < bench->stage_count ? "," : "],");
    }
    for (size_t part = 0; part < CHECKPOINT_PARTS; part++) {
        print_part(bench, part);
    }
    print_member("snapshots_timed", (double)bench->snapshots_timed, ",");
    print_member("flatness", flatness(bench), ",");
    print_member("growth", growth(bench), ",");
    print_member("replay_s", bench->replay_s, "}\n");
}

void checkpoint_print(const struct checkpoint_bench *bench)
{
    print_bytes(bench);
    print_snapshots(bench);
    print_steps(bench);
    if (bench->options.json) {
        print_json(bench);
    }
}
