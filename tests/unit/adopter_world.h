/* An adopter on a state and objects in memory, with time that the test moves. Included by one file
 * of a program, behind cmocka. Thread rule: one thread. */
#ifndef ADOPTER_WORLD_H
#define ADOPTER_WORLD_H

#include "fcap/adopter.h"
#include "lib/fake_objects.h"

#include <stdio.h>
#include <string.h>

#define NOW_MS    INT64_C(1700000000000)
#define FAR       (FCAP_ADOPT_RECORDS + 1)
#define PARTITION 3

static struct world {
    struct fcap_clock clock;
    int64_t now_ms;
    struct fake_objects objects;
    struct fcap_adopt_state state;
    struct fcap_store_partition here;
    enum fcap_status results[16]; /* of the calls of take(), in this order */
    size_t takes;
    char taken[16][32]; /* "instance log/snapshot first" */
    bool kept[16];
    bool empties;         /* what is here is gone after a try that failed */
    void (*within)(void); /* called in each take() */
    bool went_on;         /* what go_on() said then */
    struct fcap_adopter *adopter;
    struct fcap_adoption *adoption;
    char told[32][512];
    size_t told_count;
    size_t rests;
} world;

static inline int64_t clock_ms(struct fcap_clock *clock)
{
    (void)clock;
    return world.now_ms;
}

static inline enum fcap_status state_look(struct fcap_adopt_state *state, int32_t partition,
                                          struct fcap_store_partition *ret_here,
                                          struct fcap_error *error)
{
    (void)state;
    (void)error;
    assert_int_equal(partition, PARTITION);
    *ret_here = world.here;
    return FCAP_OK;
}

static inline enum fcap_status state_take(struct fcap_adopt_state *state,
                                          const struct fcap_adopt_candidate *candidate,
                                          const struct fcap_adopt_order *order,
                                          struct fcap_adopt_taken *ret_taken,
                                          struct fcap_error *error)
{
    (void)state;
    assert_true(world.takes < 16);
    (void)snprintf(world.taken[world.takes], sizeof world.taken[0], "%s %d/%d %zu",
                   candidate->log->instance, (int)candidate->log->number,
                   (int)candidate->snapshot->number, candidate->first);
    world.kept[world.takes] = order->keeps;
    enum fcap_status status = world.results[world.takes++];
    order->changes(order->claimed.context);
    if (world.within != NULL) {
        world.within();
    }
    world.went_on = order->claimed.go_on(order->claimed.context);
    if (status != FCAP_OK) {
        world.here.found = world.here.found && !world.empties;
        return fcap_error_set(error, status, "planted");
    }
    *ret_taken = (struct fcap_adopt_taken){.users = 5, .bytes = 700, .batches = 2};
    return FCAP_OK;
}

static inline void state_rest(struct fcap_adopt_state *state)
{
    (void)state;
    world.rests++;
}

static inline void tell(void *context, enum fcap_checkpointer_level level, const char *text)
{
    (void)context;
    (void)level;
    assert_true(world.told_count < 32);
    (void)snprintf(world.told[world.told_count++], sizeof world.told[0], "%s", text);
}

static inline void told(const char *part)
{
    for (size_t i = 0; i < world.told_count; i++) {
        if (strstr(world.told[i], part) != NULL) {
            return;
        }
    }
    fail_msg("not told: %s; last: %s", part,
             world.told_count > 0 ? world.told[world.told_count - 1] : "nothing");
}

static inline int set_up_chosen(int64_t chosen_ms)
{
    static const struct fcap_adopt_state_ops ops = {state_look, state_take, state_rest};
    world = (struct world){.clock = {clock_ms, clock_ms}, .now_ms = NOW_MS, .state = {&ops}};
    fake_objects_init(&world.objects);
    const struct fcap_adopter_settings settings = {
        .profile = "days", .clock = &world.clock, .chosen_ms = chosen_ms, .tell = tell};
    world.adopter = fcap_adopter_open(&settings, &world.state, &world.objects.port);
    return 0;
}

static inline int set_up(void **unused)
{
    (void)unused;
    return set_up_chosen(0);
}

static inline int tear_down(void **unused)
{
    (void)unused;
    if (world.adoption != NULL) {
        fcap_adoption_end(world.adoption);
    }
    assert_int_equal(fcap_adopter_stop(world.adopter, 0), FCAP_OK);
    fcap_adopter_close(world.adopter);
    fake_objects_done(&world.objects);
    return 0;
}

static inline void put(const char *name, struct fcap_bytes bytes)
{
    struct fcap_object_writer *writer = NULL;
    struct fcap_objects *objects = &world.objects.port;
    assert_int_equal(objects->ops->begin(objects, name, &writer, NULL), FCAP_OK);
    assert_int_equal(objects->ops->write(objects, writer, bytes, NULL), FCAP_OK);
    assert_int_equal(objects->ops->finish(objects, writer, NULL), FCAP_OK);
}

/* A checkpoint with one file and one segment. */
struct kept {
    const char *instance;
    uint64_t number;
    uint64_t snapshot;
    uint64_t first; /* of the segment */
    uint64_t last;
    int64_t next_offset;
    int64_t clock_ms;
    uint64_t file_bytes; /* 0: there is no file */
    int64_t written_ms;  /* 0: now */
};

static inline void keep(const struct kept *kept)
{
    char name[FCAP_OBJECT_NAME_MAX + 1];
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    struct fcap_buffer bytes = {0};
    struct fcap_checkpoint checkpoint = {.number = kept->number,
                                         .made_ms = NOW_MS,
                                         .snapshot_sequence = kept->snapshot,
                                         .sequence = kept->last,
                                         .written_ms =
                                             kept->written_ms != 0 ? kept->written_ms : NOW_MS};
    (void)snprintf(checkpoint.profile, sizeof checkpoint.profile, "days");
    (void)snprintf(checkpoint.instance, sizeof checkpoint.instance, "%s", kept->instance);
    (void)fcap_checkpoint_prefix("days", kept->instance, prefix);
    if (kept->file_bytes > 0) {
        struct fcap_checkpoint_file file = {.name = "000007.sst", .size = kept->file_bytes};
        (void)snprintf(file.object, sizeof file.object, "%sfile-%d", prefix, (int)kept->snapshot);
        fcap_checkpoint_add_file(&checkpoint, &file);
    }
    struct fcap_checkpoint_segment segment = {.first = kept->first, .last = kept->last, .size = 4};
    (void)snprintf(segment.object, sizeof segment.object, "%schangelog-%d", prefix,
                   (int)kept->first);
    fcap_checkpoint_add_segment(&checkpoint, &segment);
    fcap_checkpoint_set_partition(
        &checkpoint, &(struct fcap_checkpoint_partition){.partition = PARTITION,
                                                         .commit = 1,
                                                         .next_offset = kept->next_offset,
                                                         .clock_ms = kept->clock_ms});
    fcap_checkpoint_encode(&checkpoint, &bytes);
    (void)fcap_checkpoint_manifest_name(prefix, kept->number, name);
    put(name, fcap_buffer_bytes(&bytes));
    fcap_buffer_clear(&bytes);
    size_t size = 0;
    uint8_t byte = 0;
    if (world.objects.port.ops->read(&world.objects.port, segment.object, 0, &byte, 1, &size,
                                     NULL) != FCAP_OK) {
        put(segment.object, fcap_bytes_of("1234"));
    }
    fcap_buffer_done(&bytes);
    fcap_checkpoint_done(&checkpoint);
}

static inline void ask(void)
{
    world.adoption = fcap_adopter_ask(
        world.adopter, &(struct fcap_store_claimed){.partition = PARTITION, .assignment = 7});
}

static inline bool is_over(void)
{
    return fcap_adoption_is_over(world.adoption);
}

static inline struct fcap_adopter_metrics metrics(void)
{
    struct fcap_adopter_metrics now;
    fcap_adopter_metrics(world.adopter, &now);
    return now;
}

#endif
