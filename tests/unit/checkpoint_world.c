#include "checkpoint_world.h"

#include "../../src/checkpoint/checkpointer_internal.h"
#include "fcap/assert.h"
#include "fcap/key.h"
#include "fcap/meta.h"
#include "lib/random_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct checkpoint_world world;

uint32_t world_random(uint32_t bound)
{
    return random_below(&world.random, bound);
}

/* --- objects --------------------------------------------------------------------------------- */

/* The store's writer and the checkpointer's other thread go on while one of its threads waits. */
static void others_get_on(void *unused)
{
    (void)unused;
    const enum world_actor actor = world.actor;
    if (actor == WORLD_NOBODY || world.is_nested || world_random(1000) >= world.meanwhile) {
        return;
    }
    world.is_nested = true; /* One deep. */
    for (uint32_t steps = 1 + world_random(12); steps > 0; steps--) {
        if (world_random(4) == 0) {
            world_write(1 + world_random((uint32_t)world.entries_max), 200, world_random(200));
        } else {
            world_let(actor == WORLD_SHIPPER ? WORLD_MATERIALISER : WORLD_SHIPPER);
        }
    }
    world.is_nested = false;
}

/* Time passes, others get on, and faults come by chance. */
static void before_call(void *context, enum fake_objects_call call, const char *name)
{
    (void)context;
    world.calls++;
    if (world.during != NULL) {
        world.during(call, name);
    }
    others_get_on(NULL);
    if (call == FAKE_OBJECTS_WRITE) {
        world.now_ms += world.write_ms;
        world.wall_ms += world.write_ms;
    }
    bool fails = world.calls == world.fail_at;
    if (world.faults > 0 && world_random(1000) < world.faults) {
        fails = true;
        if (call == FAKE_OBJECTS_FINISH && world_random(2) == 0) {
            fake_objects_fail_late(&world.objects, FCAP_IO);
            return;
        }
    }
    if (fails) {
        fake_objects_fail(&world.objects, call, 1,
                          world_random(2) == 0 ? FCAP_IO : FCAP_UNAVAILABLE);
    }
}

struct find {
    const char *text;
    size_t index; /* of the wanted one */
    size_t count;
    char name[FCAP_OBJECT_NAME_MAX + 1];
};

static bool visit(void *context, const char *name, uint64_t size)
{
    struct find *find = context;
    (void)size;
    if (strstr(name, find->text) != NULL && find->count++ == find->index) {
        (void)snprintf(find->name, sizeof find->name, "%s", name);
    }
    return true;
}

static void look(struct find *find)
{
    fake_objects_watch(&world.objects, NULL, NULL);
    fake_objects_away(&world.objects, FCAP_OK);
    struct fcap_objects *port = &world.objects.port;
    assert_int_equal(port->ops->list(port, "", visit, find, NULL), FCAP_OK);
    fake_objects_watch(&world.objects, before_call, NULL);
}

size_t world_count(const char *text)
{
    struct find find = {.text = text};
    look(&find);
    return find.count;
}

const char *world_find(const char *text, size_t index)
{
    static struct find find;
    find = (struct find){.text = text, .index = index};
    look(&find);
    return find.name[0] != '\0' ? find.name : NULL;
}

struct fcap_buffer world_read(const char *name)
{
    struct fcap_buffer bytes = {0};
    struct fcap_objects *port = &world.objects.port;
    fake_objects_watch(&world.objects, NULL, NULL);
    for (size_t size = 1; size > 0; bytes.size += size) {
        assert_int_equal(port->ops->read(port, name, bytes.size, fcap_buffer_reserve(&bytes, 65536),
                                         65536, &size, NULL),
                         FCAP_OK);
    }
    fake_objects_watch(&world.objects, before_call, NULL);
    return bytes;
}

void world_damage(const char *name, enum world_damage_kind kind)
{
    struct fcap_buffer bytes = world_read(name);
    switch (kind) {
    case WORLD_FLIPPED:
        fake_objects_flip(&world.objects, name, world_random((uint32_t)bytes.size * 8));
        break;
    case WORLD_CUT:
        fake_objects_cut(&world.objects, name, world_random((uint32_t)bytes.size));
        break;
    default:
        fake_objects_lose(&world.objects, name);
        break;
    }
    fcap_buffer_done(&bytes);
}

void world_make(const char *name, struct fcap_bytes bytes)
{
    struct fcap_object_writer *writer = NULL;
    struct fcap_objects *port = &world.objects.port;
    assert_int_equal(port->ops->begin(port, name, &writer, NULL), FCAP_OK);
    assert_int_equal(port->ops->write(port, writer, bytes, NULL), FCAP_OK);
    assert_int_equal(port->ops->finish(port, writer, NULL), FCAP_OK);
}

/* --- the world ------------------------------------------------------------------------------- */

static int64_t clock_wall_ms(struct fcap_clock *clock)
{
    (void)clock;
    return world.wall_ms;
}

static int64_t clock_monotonic_ms(struct fcap_clock *clock)
{
    (void)clock;
    return world.now_ms;
}

static void tell(void *context, enum fcap_checkpointer_level level, const char *text)
{
    (void)context;
    (void)level;
    if (world.told_count == 64) {
        memmove(world.told[0], world.told[1], 63 * sizeof world.told[0]);
        world.told_count--;
    }
    (void)snprintf(world.told[world.told_count++], sizeof world.told[0], "%s", text);
}

static void restore_tell(void *context, const char *text)
{
    tell(context, FCAP_CHECKPOINTER_WARN, text);
}

bool world_was_told(const char *text)
{
    bool was_told = false;
    for (size_t i = 0; i < world.told_count && !was_told; i++) {
        was_told = strstr(world.told[i], text) != NULL;
    }
    return was_told;
}

void checkpoint_world_init(uint64_t seed)
{
    const char *tmp = getenv("TMPDIR");
    world = (struct checkpoint_world){.clock = {clock_wall_ms, clock_monotonic_ms},
                                      .now_ms = 1000000,
                                      .wall_ms = WORLD_NOW_MS,
                                      .random = seed,
                                      .restoring = {.profile = "days", .instance = "pod-0"}};
    (void)snprintf(world.directory, sizeof world.directory, "%.80s/fcap-checkpoint-XXXXXX",
                   tmp == NULL ? "/tmp" : tmp);
    assert_non_null(mkdtemp(world.directory));
    (void)snprintf(world.state_directory, sizeof world.state_directory, "%s/state",
                   world.directory);
    fake_objects_init(&world.objects);
    fake_objects_watch(&world.objects, before_call, NULL);
    fake_state_init(&world.state, world.state_directory, seed + 2, &world.wall_ms);
    world.has_state = true;
    world.entries_max = 30;
    world.settings = (struct fcap_checkpointer_settings){
        .profile = "days",
        .instance = "pod-0",
        .interval_ms = 120000,
        .min_pause_ms = 30000,
        .materialization_interval_ms = 600000,
        .transfer_threads = 2,
        .retain = 2,
        .queue_bytes_max = 1 << 20,
        .clock = &world.clock,
        .tell = tell,
    };
}

void checkpoint_world_done(void)
{
    struct fcap_error error;
    fcap_checkpointer_close(world.checkpointer);
    world_lose_state();
    fake_objects_done(&world.objects);
    for (size_t i = 0; i < world.change_count; i++) {
        fcap_buffer_done(&world.history[i].key);
        fcap_buffer_done(&world.history[i].value);
    }
    free(world.history);
    assert_int_equal(fcap_checkpoint_remove_directory(world.directory, &error), FCAP_OK);
}

int checkpoint_world_setup(void **unused)
{
    (void)unused;
    checkpoint_world_init(1);
    return 0;
}

int checkpoint_world_teardown(void **unused)
{
    (void)unused;
    checkpoint_world_done();
    return 0;
}

void world_open(void)
{
    struct fcap_error error = {""};
    assert_null(world.checkpointer);
    memset(world.due_ms, 0, sizeof world.due_ms);
    world.state.meanwhile = world.state.meanwhile != NULL ? world.state.meanwhile : others_get_on;
    enum fcap_status status = fcap_checkpointer_open(
        &world.settings, &world.objects.port, &world.state.state, &world.checkpointer, &error);
    if (status != FCAP_OK) {
        fail_msg("%s", error.text);
    }
}

void world_kill(void)
{
    fcap_checkpointer_close(world.checkpointer);
    world.checkpointer = NULL;
    fake_objects_crash(&world.objects);
    assert_int_equal(fake_objects_litter(&world.objects), 0); /* It has given back all. */
}

void world_stop(void)
{
    assert_int_equal(fcap_checkpointer_stop(world.checkpointer, 1000), FCAP_OK);
    world_kill();
}

static bool has_ended(enum world_actor actor)
{
    return actor == WORLD_SHIPPER ? world.checkpointer->is_final_done
                                  : world.checkpointer->has_given_up;
}

static bool *woken(enum world_actor actor)
{
    return actor == WORLD_SHIPPER ? &world.checkpointer->ship_is_woken
                                  : &world.checkpointer->materialize_is_woken;
}

static int64_t next_ms(enum world_actor actor)
{
    return has_ended(actor) ? INT64_MAX : *woken(actor) ? world.now_ms : world.due_ms[actor];
}

/* As the threads do it (src/checkpoint/threads.c): a wake-up that is missing shows. */
void world_let(enum world_actor actor)
{
    const enum world_actor before = world.actor;
    if (has_ended(actor) && actor == WORLD_MATERIALISER) {
        checkpointer_drop_snapshot(world.checkpointer); /* So its thread ends. */
    } else if (next_ms(actor) <= world.now_ms) {
        *woken(actor) = false;
        world.actor = world.is_nested ? WORLD_NOBODY : actor;
        world.due_ms[actor] = actor == WORLD_SHIPPER ? checkpointer_ship(world.checkpointer)
                                                     : checkpointer_materialize(world.checkpointer);
        world.actor = before;
    }
}

int64_t world_step(void)
{
    world_let(WORLD_SHIPPER);
    world_let(WORLD_MATERIALISER);
    int64_t ship_ms = next_ms(WORLD_SHIPPER);
    int64_t materialize_ms = next_ms(WORLD_MATERIALISER);
    return ship_ms < materialize_ms ? ship_ms : materialize_ms;
}

void world_rest(void)
{
    for (int i = 0; i < 100000; i++) {
        if (world_step() > world.now_ms) {
            return;
        }
    }
    fail_msg("it never rests");
}

void world_pass(int64_t ms)
{
    const int64_t end_ms = world.now_ms + ms;
    for (int i = 0; i < 1000000; i++) {
        int64_t due_ms = world_step();
        if (due_ms <= world.now_ms) {
            continue;
        }
        if (world.now_ms >= end_ms) {
            return; /* It took its time. */
        }
        int64_t next_ms = due_ms < end_ms ? due_ms : end_ms;
        world.wall_ms += next_ms - world.now_ms;
        world.now_ms = next_ms;
        if (due_ms >= end_ms) {
            world_rest();
            return;
        }
    }
    fail_msg("it never rests");
}

struct fcap_checkpoint_metrics world_metrics(void)
{
    struct fcap_checkpoint_metrics metrics;
    fcap_checkpointer_metrics(world.checkpointer, &metrics);
    return metrics;
}

/* --- batches and their history --------------------------------------------------------------- */

static void remember(enum fcap_family family, enum fcap_change change, struct fcap_bytes key,
                     struct fcap_bytes value)
{
    if (world.change_count == world.change_capacity) {
        world.change_capacity = world.change_capacity * 2 + 256;
        world.history = realloc(world.history, world.change_capacity * sizeof world.history[0]);
        FCAP_ASSERT(world.history != NULL);
    }
    struct world_change *at = &world.history[world.change_count++];
    *at = (struct world_change){.sequence = world.state.position.sequence + 1,
                                .family = family,
                                .change = change,
                                .hash = fcap_hash64(key, 0)};
    fcap_buffer_put_bytes(&at->key, key);
    fcap_buffer_put_bytes(&at->value, value);
}

void world_forget_after(uint64_t sequence)
{
    while (world.change_count > 0 && world.history[world.change_count - 1].sequence > sequence) {
        world.change_count--;
        fcap_buffer_done(&world.history[world.change_count].key);
        fcap_buffer_done(&world.history[world.change_count].value);
    }
}

static void add(struct fcap_batch *batch, enum fcap_family family, enum fcap_change change,
                struct fcap_bytes key, struct fcap_bytes value)
{
    fcap_batch_add(batch, family, change, key, value);
    remember(family, change, key, value);
}

static void add_meta(struct fcap_batch *batch, int32_t partition)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    struct fcap_meta meta = {.next_offset = (int64_t)world.state.position.sequence * 10,
                             .clock_ms = world.wall_ms,
                             .commit = world.state.position.sequence + 1,
                             .bucket_ms = 1000};
    fcap_key_meta(&key, partition, FCAP_META_NAME);
    fcap_meta_encode(&meta, &value);
    bool is_leaving = world_random(20) == 0;
    add(batch, FCAP_FAMILY_META, is_leaving ? FCAP_CHANGE_DELETE : FCAP_CHANGE_PUT,
        fcap_buffer_bytes(&key), is_leaving ? FCAP_BYTES_NONE : fcap_buffer_bytes(&value));
    fcap_buffer_done(&key);
    fcap_buffer_done(&value);
}

void world_write(size_t entries, uint32_t keys, size_t bytes)
{
    static struct fcap_batch batch;
    struct fcap_buffer value = {0};
    int32_t partition = (int32_t)world_random(3);
    fcap_batch_clear(&batch);
    fcap_batch_section(&batch, partition, 1, world.state.position.sequence + 1);
    add_meta(&batch, partition);
    for (size_t i = 0; i < entries; i++) {
        char key[32];
        char end[32];
        uint32_t number = world_random(keys);
        uint32_t kind = world_random(20);
        (void)snprintf(key, sizeof key, "%c%08u", (char)('a' + partition), number);
        (void)snprintf(end, sizeof end, "%c%08u", (char)('a' + partition), number + 3);
        fcap_buffer_clear(&value);
        for (size_t k = 0; k < bytes; k++) {
            fcap_buffer_put_u8(&value, (uint8_t)world_random(256));
        }
        if (kind == 0) {
            add(&batch, FCAP_FAMILY_USERS, FCAP_CHANGE_DELETE_RANGE, fcap_bytes_of(key),
                fcap_bytes_of(end));
        } else if (kind < 3) {
            add(&batch, FCAP_FAMILY_USERS, FCAP_CHANGE_DELETE, fcap_bytes_of(key), FCAP_BYTES_NONE);
        } else {
            add(&batch, kind < 10 ? FCAP_FAMILY_USERS : FCAP_FAMILY_ADS, FCAP_CHANGE_PUT,
                fcap_bytes_of(key), fcap_buffer_bytes(&value));
        }
    }
    fake_state_write(&world.state, &batch);
    fcap_buffer_done(&value);
    fcap_batch_done(&batch);
}

/* What the history makes of one key: by looking at all that was ever written, newest first. */
static const struct world_change *newest_of(enum fcap_family family, struct fcap_bytes key,
                                            uint64_t sequence)
{
    const uint64_t hash = fcap_hash64(key, 0);
    for (size_t i = world.change_count; i > 0; i--) {
        const struct world_change *at = &world.history[i - 1];
        struct fcap_bytes from = fcap_buffer_bytes(&at->key);
        if (at->sequence > sequence || at->family != family ||
            (at->hash != hash && at->change != FCAP_CHANGE_DELETE_RANGE)) {
            continue;
        }
        if (at->change == FCAP_CHANGE_DELETE_RANGE
                ? fcap_bytes_compare(from, key) <= 0 &&
                      fcap_bytes_compare(key, fcap_buffer_bytes(&at->value)) < 0
                : fcap_bytes_equal(from, key)) {
            return at;
        }
    }
    return NULL;
}

void world_compare(const struct fake_state *state)
{
    const uint64_t sequence = state->position.sequence;
    size_t expected = 0;
    for (size_t i = 0; i < state->map.count; i++) {
        struct fcap_bytes key = fcap_buffer_bytes(&state->map.pairs[i].key);
        enum fcap_family family = (enum fcap_family)key.data[0];
        const struct world_change *change =
            newest_of(family, (struct fcap_bytes){key.data + 1, key.size - 1}, sequence);
        assert_non_null(change);
        assert_int_equal(change->change, FCAP_CHANGE_PUT);
        assert_true(fcap_bytes_equal(fcap_buffer_bytes(&change->value),
                                     fcap_buffer_bytes(&state->map.pairs[i].value)));
    }
    /* Every change that is the last word about its key, and gave it a value. */
    for (size_t i = 0; i < world.change_count; i++) {
        const struct world_change *at = &world.history[i];
        expected += at->sequence <= sequence && at->change == FCAP_CHANGE_PUT &&
                    newest_of(at->family, fcap_buffer_bytes(&at->key), sequence) == at;
    }
    assert_int_equal(state->map.count, expected);
}

/* --- restoring ------------------------------------------------------------------------------- */

void world_lose_state(void)
{
    struct fcap_error error;
    assert_int_equal(fcap_checkpoint_remove_directory(world.state_directory, &error), FCAP_OK);
    if (world.has_state) {
        fake_state_done(&world.state);
        world.has_state = false;
    }
}

static enum fcap_status restore(const char *directory, struct fcap_checkpoint_place *place,
                                struct fcap_restore_report *ret_report, struct fcap_error *error)
{
    struct fcap_restore_settings settings = world.restoring;
    settings.directory = directory;
    settings.place = place;
    settings.tell = restore_tell;
    return fcap_restore(&settings, &world.objects.port, ret_report, error);
}

enum fcap_status world_try_restore(struct fcap_restore_report *ret_report, struct fcap_error *error)
{
    struct fake_place place;
    fake_place_init(&place, 1000 + world.random);
    enum fcap_status status = restore(world.state_directory, &place.place, ret_report, error);
    assert_false(place.is_open);
    return status;
}

enum fcap_status world_verify(struct fcap_restore_report *ret_report, struct fcap_error *error)
{
    return restore(NULL, NULL, ret_report, error);
}

struct fcap_restore_report world_restore(void)
{
    struct fcap_restore_report report = {0};
    struct fcap_error error = {""};
    assert_null(world.checkpointer);
    assert_false(world.has_state);
    if (world_try_restore(&report, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    fake_state_load(&world.state, world.state_directory, &world.wall_ms);
    world.has_state = true;
    assert_int_equal(world.state.position.sequence, report.sequence);
    world_compare(&world.state);
    world_forget_after(report.sequence);
    return report;
}

/* --- the newest manifest --------------------------------------------------------------------- */

static void object_is_whole(const char *name, uint64_t size, uint64_t hash)
{
    struct fcap_checkpoint_hash own = {0};
    struct fcap_buffer bytes = world_read(name);
    assert_int_equal(bytes.size, size);
    fcap_checkpoint_hash_add(&own, fcap_buffer_bytes(&bytes));
    assert_true(fcap_checkpoint_hash_end(&own) == hash);
    fcap_buffer_done(&bytes);
}

static void partitions_are_right(const struct fcap_checkpoint *checkpoint)
{
    size_t expected = 0;
    for (int32_t partition = 0; partition < 3; partition++) {
        struct fcap_buffer key = {0};
        struct fcap_meta meta;
        fcap_key_meta(&key, partition, FCAP_META_NAME);
        const struct world_change *change =
            newest_of(FCAP_FAMILY_META, fcap_buffer_bytes(&key), checkpoint->sequence);
        fcap_buffer_done(&key);
        if (change == NULL || change->change != FCAP_CHANGE_PUT) {
            continue;
        }
        assert_int_equal(fcap_meta_decode(fcap_buffer_bytes(&change->value), &meta), FCAP_OK);
        assert_true(expected < checkpoint->partition_count);
        const struct fcap_checkpoint_partition *at = &checkpoint->partitions[expected++];
        assert_int_equal(at->partition, partition);
        assert_int_equal(at->commit, meta.commit);
        assert_int_equal(at->next_offset, meta.next_offset);
        assert_int_equal(at->clock_ms, meta.clock_ms);
    }
    assert_int_equal(checkpoint->partition_count, expected);
}

struct fcap_checkpoint world_newest(void)
{
    struct fcap_checkpoint checkpoint = {0};
    struct fcap_error error = {""};
    size_t count = world_count("/pod-0/manifest-");
    assert_true(count > 0);
    struct fcap_buffer bytes = world_read(world_find("/pod-0/manifest-", count - 1));
    if (fcap_checkpoint_decode(fcap_buffer_bytes(&bytes), &checkpoint, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    fcap_buffer_done(&bytes);
    for (size_t i = 0; i < checkpoint.file_count; i++) {
        object_is_whole(checkpoint.files[i].object, checkpoint.files[i].size,
                        checkpoint.files[i].hash);
    }
    for (size_t i = 0; i < checkpoint.segment_count; i++) {
        object_is_whole(checkpoint.segments[i].object, checkpoint.segments[i].size,
                        checkpoint.segments[i].hash);
    }
    partitions_are_right(&checkpoint);
    return checkpoint;
}
