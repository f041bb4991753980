/* How long steps take without a checkpointer, with one that ships the changelog, and with one that
 * takes snapshot after snapshot: on the same state, at the same rate, in turn, round after round,
 * each time with another part first. Each part of each round opens the store anew, warms up alike,
 * and times as many steps as the others. */
#include "checkpoint.h"

#define UNTIMED_SHARE 4 /* a quarter as many steps go before, at the same rate */

/* Steps at the rate that nobody times: what the warm-up has left to be compacted is done. */
static enum fcap_status settle(struct checkpoint_bench *bench, struct running *running)
{
    double due_s = checkpoint_seconds();
    enum fcap_status status = FCAP_OK;
    for (uint64_t i = 0; i < bench->options.steps / UNTIMED_SHARE && status == FCAP_OK; i++) {
        double spent_s = 0;
        status = checkpoint_turn(bench, running, &due_s, &spent_s);
    }
    return status;
}

struct part_times {
    struct step_times times; /* of all rounds */
    double seconds;
    uint64_t events;
};

static enum fcap_status time_part(struct checkpoint_bench *bench, enum checkpoint_part part,
                                  uint64_t round, struct part_times *all)
{
    struct running running;
    struct step_times times = {0};
    struct watch watch = {.times = &times};
    enum fcap_status status =
        checkpoint_open(bench, &running, checkpoint_snapshot_interval_ms[part]);
    if (status == FCAP_OK) {
        status = checkpoint_warm_up(bench, &running);
    }
    if (status == FCAP_OK) {
        status = settle(bench, &running);
    }
    if (status == FCAP_OK && running.checkpointer != NULL) {
        fcap_checkpointer_metrics(running.checkpointer, &watch.begin);
    }
    double begin_s = checkpoint_seconds();
    uint64_t made = bench->world.made;
    if (status == FCAP_OK) {
        status = checkpoint_measure(bench, &running, part, &watch);
    }
    all->seconds += checkpoint_seconds() - begin_s;
    all->events += bench->world.made - made;
    for (size_t i = 0; i < times.count; i++) {
        step_times_add(&all->times, (times.us[i] + 0.5) / 1e6);
    }
    bench->p99_us[part][round] = step_times_quantiles(&times).p99_us;
    bench->snapshots_timed += watch.now.snapshots - watch.begin.snapshots;
    step_times_done(&times);
    return checkpoint_close(bench, &running, status);
}

enum fcap_status checkpoint_time_steps(struct checkpoint_bench *bench)
{
    struct part_times all[CHECKPOINT_PARTS] = {0};
    enum fcap_status status = FCAP_OK;
    bench->is_timed = true;
    for (uint64_t round = 0; round < bench->options.rounds; round++) {
        for (uint64_t i = 0; i < CHECKPOINT_PARTS && status == FCAP_OK; i++) {
            enum checkpoint_part part = (enum checkpoint_part)((round + i) % CHECKPOINT_PARTS);
            status = time_part(bench, part, round, &all[part]);
        }
    }
    for (size_t part = 0; part < CHECKPOINT_PARTS; part++) {
        bench->steps[part] = step_times_quantiles(&all[part].times);
        bench->steps[part].rate = (double)all[part].events / all[part].seconds;
        step_times_done(&all[part].times);
    }
    return status;
}
