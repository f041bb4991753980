/* Topics that are created anew and logs that lose their end: which noted record stands where. */
#include "sim.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

static struct sim_life *life_now(struct sim_world *world, int partition)
{
    if (world->life_count[partition] == 0) {
        world->lives[partition][world->life_count[partition]++] = (struct sim_life){.limit = -1};
    }
    return &world->lives[partition][world->life_count[partition] - 1];
}

void sim_life_note(struct sim_world *world, int partition, int64_t noted)
{
    struct sim_life *life = life_now(world, partition);
    if (life->count == life->capacity) {
        life->capacity = life->capacity * 2 + 64;
        life->noted = reallocarray(life->noted, life->capacity, sizeof *life->noted);
        FCAP_ASSERT(life->noted != NULL);
    }
    life->noted[life->count++] = noted;
}

bool sim_life_begin(struct sim_world *world, int partition, int64_t keep)
{
    struct sim_life *old = life_now(world, partition);
    if (world->life_count[partition] == SIM_LIVES_MAX) {
        return false;
    }
    old->limit = (int64_t)world->logs[partition].count;
    world->lives[partition][world->life_count[partition]++] = (struct sim_life){.limit = -1};
    for (int64_t i = 0; i < keep; i++) {
        sim_life_note(world, partition, old->noted[i]);
    }
    return true;
}

void sim_life_done(struct sim_world *world)
{
    for (int p = 0; p < SIM_PARTITIONS_MAX; p++) {
        for (int i = 0; i < world->life_count[p]; i++) {
            free(world->lives[p][i].noted);
        }
    }
}

int64_t sim_noted(const struct sim_world *world, int partition, int life, int64_t offset)
{
    const struct sim_life *of = &world->lives[partition][life];
    if (offset < 0 || world->life_count[partition] == 0) {
        return offset;
    }
    if (offset < (int64_t)of->count) {
        return of->noted[offset];
    }
    int64_t end = of->limit >= 0 ? of->limit : (int64_t)world->logs[partition].count;
    return end + offset - (int64_t)of->count;
}

static int newest_life(const struct sim_world *world, int partition)
{
    return world->life_count[partition] > 0 ? world->life_count[partition] - 1 : 0;
}

int sim_life_of_commit(const struct sim_lineage *lineage, uint64_t commit)
{
    for (size_t i = 0; i < lineage->switch_count; i++) {
        if (lineage->switches[i].commit >= commit) {
            return lineage->switches[i].before;
        }
    }
    return lineage->life;
}

void sim_life_revert(struct sim_lineage *lineage, uint64_t commit)
{
    while (lineage->switch_count > 0 &&
           lineage->switches[lineage->switch_count - 1].commit >= commit) {
        lineage->life = lineage->switches[--lineage->switch_count].before;
    }
}

void sim_life_lose(struct sim_world *world, int partition, struct sim_lineage *lineage,
                   int64_t from, enum sim_decision decision)
{
    const struct sim_life *life = life_now(world, partition);
    int64_t noted = 0; /* What no offset names was in a log that is no more. */
    for (size_t i = 0; i <= life->count; i++) {
        int64_t end = i < life->count ? life->noted[i] : (int64_t)world->logs[partition].count;
        for (noted = noted < from ? from : noted; noted < end; noted++) {
            sim_decide(lineage, noted, decision);
        }
        noted = end + 1;
    }
}

void sim_life_read_on(struct sim_world *world, int partition, struct sim_lineage *lineage,
                      int64_t offset)
{
    const struct sim_life *life = life_now(world, partition);
    for (size_t i = (size_t)offset; i < life->count; i++) {
        size_t noted = (size_t)life->noted[i];
        if (noted < lineage->capacity && lineage->decisions[noted] == SIM_LOST) {
            lineage->decisions[noted] = SIM_ACCEPTED;
        }
    }
}

void sim_life_enter(struct sim_world *world, int partition, struct sim_lineage *lineage,
                    int64_t offset)
{
    lineage->life = newest_life(world, partition);
    lineage->switch_count = 0;
    lineage->may_double = false;
    sim_lineage_begin(world, lineage, sim_noted(world, partition, lineage->life, offset));
    sim_life_lose(world, partition, lineage, 0, SIM_UNREAD);
}

void sim_life_forget(struct sim_lineage *lineage)
{
    if (lineage->before != NULL) {
        free(lineage->before->decisions);
        free(lineage->before);
        lineage->before = NULL;
    }
}

void sim_life_keep(struct sim_lineage *lineage, uint64_t commit)
{
    struct sim_lineage *before = malloc(sizeof *before);
    FCAP_ASSERT(before != NULL && lineage->before == NULL);
    *before = *lineage;
    before->decisions = malloc(lineage->capacity + 1);
    FCAP_ASSERT(before->decisions != NULL);
    if (lineage->capacity > 0) {
        memcpy(before->decisions, lineage->decisions, lineage->capacity);
    }
    lineage->before = before;
    lineage->before_commit = commit;
}

void sim_life_settle(struct sim_world *world, struct sim_lineage *lineage, uint64_t commit)
{
    struct sim_lineage *before = lineage->before;
    if (before != NULL && commit <= lineage->before_commit) {
        free(lineage->decisions); /* Nothing of it was committed: the old state is there. */
        *lineage = *before;
        free(before);
        sim_count(world, SIM_EVENT_AGAIN_LOST, 1);
    } else {
        sim_life_forget(lineage);
    }
}

bool sim_life_is_old(const struct sim_world *world, int partition,
                     const struct sim_lineage *lineage)
{
    return lineage->life != newest_life(world, partition);
}

/* The last record below an offset of a life, markers aside; -1: none. */
static int64_t last_below(const struct sim_world *world, int partition, const struct sim_life *life,
                          int64_t offset)
{
    const struct sim_record *records = world->logs[partition].records;
    int64_t at = offset < (int64_t)life->count ? offset : (int64_t)life->count;
    while (at > 0 && records[life->noted[at - 1]].kind == SIM_SKIP) {
        at--;
    }
    return at > 0 ? life->noted[at - 1] : -1;
}

bool sim_life_is_same_below(const struct sim_world *world, int partition,
                            const struct sim_lineage *lineage, int64_t offset)
{
    const struct sim_life *lives = world->lives[partition];
    return last_below(world, partition, &lives[lineage->life], offset) ==
           last_below(world, partition, &lives[newest_life(world, partition)], offset);
}

/* Something of the user that was read may still count in the window. */
static bool is_named(const struct sim_world *world, int user, const struct sim_lineage *lineage,
                     const struct sim_moment *moment)
{
    const struct sim_log *log = &world->logs[lineage->partition];
    const struct sim_offsets *mine = &world->by_user[lineage->partition][user];
    for (size_t i = 0; i < mine->count && mine->offsets[i] < moment->next; i++) {
        int64_t noted = mine->offsets[i];
        const struct sim_record *record = &log->records[noted];
        bool is_late = (record->kind == SIM_EVENT ? record->time_ms : record->timestamp_ms) <=
                       moment->since_ms;
        bool was_read =
            (size_t)noted >= lineage->capacity || lineage->decisions[noted] == SIM_ACCEPTED;
        if (noted >= lineage->start && was_read && !is_late) {
            return true;
        }
    }
    return false;
}

bool sim_life_is_stray(const struct sim_world *world, int user, const struct sim_lineage *lineage,
                       int64_t pxat_ms, const struct sim_moment *moment)
{
    const struct sim_log *log = &world->logs[lineage->partition];
    const struct sim_offsets *mine = &world->by_user[lineage->partition][user];
    bool may_be = lineage->life > 0 && !is_named(world, user, lineage, moment);
    for (size_t i = 0; i < mine->count && may_be; i++) {
        int64_t noted = mine->offsets[i];
        bool was_read =
            (size_t)noted >= lineage->capacity || lineage->decisions[noted] < SIM_UNREAD;
        for (size_t k = 0; k < SIM_POOL_MAX && !was_read;
             k++) { /* A name may have been another's. */
            if (log->records[noted].time_ms + world->plan.pool_ms[k] - 1 == pxat_ms) {
                return true;
            }
        }
    }
    return false;
}

bool sim_is_renamed(const struct sim_world *world, int user, const struct sim_lineage *lineage,
                    size_t window, int64_t pxat_ms)
{
    const struct sim_record *records = world->logs[lineage->partition].records;
    const struct sim_offsets *mine = &world->by_user[lineage->partition][user];
    for (size_t i = 0; i < mine->count && mine->offsets[i] < lineage->start; i++) {
        for (size_t k = 0; k < SIM_POOL_MAX; k++) {
            int64_t length_ms = world->plan.pool_ms[k];
            if (length_ms != world->settings.windows[window].length_ms &&
                records[mine->offsets[i]].time_ms + length_ms - 1 == pxat_ms) {
                return true;
            }
        }
    }
    return false;
}

void sim_life_switch(struct sim_world *world, int partition, struct sim_lineage *lineage,
                     uint64_t commit)
{
    if (lineage->switch_count == SIM_SWITCHES_MAX) {
        memmove(lineage->switches, lineage->switches + 1,
                (SIM_SWITCHES_MAX - 1) * sizeof lineage->switches[0]);
        lineage->switch_count--;
    }
    lineage->switches[lineage->switch_count++] = (struct sim_switch){commit, lineage->life};
    lineage->life = newest_life(world, partition);
    sim_count(world, SIM_EVENT_OTHER_LOG, 1);
}
