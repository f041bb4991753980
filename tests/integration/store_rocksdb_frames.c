#include "integration/store_rocksdb_frames.h"

#include "integration/store_rocksdb_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

/* --- frames -------------------------------------------------------------------------------------
 */

void frames_init(struct frames *frames, uint64_t first)
{
    *frames = (struct frames){.first = first, .lock = PTHREAD_MUTEX_INITIALIZER};
}

void frames_done(struct frames *frames)
{
    for (size_t i = 0; i < frames->count; i++) {
        fcap_batch_done(&frames->batches[i]);
    }
    free(frames->batches);
    *frames = (struct frames){0};
}

static void copy_kept(struct fcap_batch *copy, const struct fcap_batch *batch, const bool *kept)
{
    for (size_t i = 0; i < batch->section_count; i++) {
        const struct fcap_batch_section *section = &batch->sections[i];
        if (!kept[i]) {
            continue;
        }
        fcap_batch_section(copy, section->partition, 0, section->commit);
        for (size_t j = section->first; j < section->first + section->count; j++) {
            fcap_batch_add(copy, batch->entries[j].family, batch->entries[j].change,
                           fcap_batch_key(batch, j), fcap_batch_value(batch, j));
        }
    }
}

static void written(void *context, uint64_t sequence, int64_t written_ms,
                    const struct fcap_batch *batch, const bool *kept)
{
    struct frames *frames = context;
    struct fcap_batch copy = {0};
    copy_kept(&copy, batch, kept);
    (void)pthread_mutex_lock(&frames->lock);
    if (frames->count == frames->capacity) {
        frames->capacity = frames->capacity * 2 + 64;
        frames->batches = realloc(frames->batches, frames->capacity * sizeof *frames->batches);
    }
    frames->misnumbered += sequence != frames->first + frames->count || written_ms <= 0;
    frames->batches[frames->count++] = copy;
    (void)pthread_mutex_unlock(&frames->lock);
}

void frames_follow(struct frames *frames, struct fcap_store_rocksdb *db)
{
    const struct fcap_store_follower follower = {.context = frames, .written = written};
    fcap_store_rocksdb_follow(db, &follower);
}

bool frames_get(struct frames *frames, uint64_t sequence, struct fcap_batch *ret_view)
{
    (void)pthread_mutex_lock(&frames->lock);
    size_t misnumbered = frames->misnumbered;
    bool found = sequence >= frames->first && sequence - frames->first < frames->count;
    if (found) {
        *ret_view = frames->batches[sequence - frames->first];
    }
    (void)pthread_mutex_unlock(&frames->lock);
    assert_int_equal(misnumbered, 0);
    return found;
}

/* --- model --------------------------------------------------------------------------------------
 */

void model_done(struct model *model)
{
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        fake_map_done(&model->families[i]);
    }
}

static void play_entry(struct model *model, const struct fcap_batch *batch, size_t index)
{
    const struct fcap_batch_entry *entry = &batch->entries[index];
    struct fake_map *map = &model->families[entry->family];
    struct fcap_bytes key = fcap_batch_key(batch, index);
    if (entry->change == FCAP_CHANGE_PUT) {
        fake_map_put(map, key, fcap_batch_value(batch, index));
        return;
    }
    size_t at = fake_map_find(map, key);
    if (entry->change == FCAP_CHANGE_DELETE) {
        if (fake_map_holds(map, at, key)) {
            fake_map_remove(map, at);
        }
        return;
    }
    while (at < map->count && fcap_bytes_compare(fcap_buffer_bytes(&map->pairs[at].key),
                                                 fcap_batch_value(batch, index)) < 0) {
        fake_map_remove(map, at);
    }
}

void model_play(struct model *model, struct frames *frames, uint64_t sequence)
{
    assert_true(model->sequence <= sequence);
    while (model->sequence < sequence) {
        struct fcap_batch batch;
        assert_true(frames_get(frames, model->sequence + 1, &batch));
        for (size_t i = 0; i < batch.entry_count; i++) {
            play_entry(model, &batch, i);
        }
        model->sequence++;
    }
}

struct comparison {
    const struct fake_map *map;
    size_t at;
    uint64_t bound; /* pairs of the map whose first 8 bytes are below it may be missing */
    size_t compared;
    char fault[256];
};

static bool may_be_missing(const struct comparison *comparison, struct fcap_bytes key)
{
    struct fcap_reader reader = fcap_reader_of(key);
    return fcap_reader_be64(&reader) < comparison->bound;
}

static bool skip_missing(struct comparison *comparison, struct fcap_bytes key)
{
    const struct fake_map *map = comparison->map;
    while (comparison->at < map->count) {
        struct fcap_bytes next = fcap_buffer_bytes(&map->pairs[comparison->at].key);
        if (key.data != NULL && fcap_bytes_compare(next, key) >= 0) {
            break;
        }
        if (!may_be_missing(comparison, next)) {
            (void)snprintf(comparison->fault, sizeof comparison->fault,
                           "pair %zu of the model is missing", comparison->at);
            return false;
        }
        comparison->at++;
    }
    return true;
}

static bool compare_pair(void *context, struct fcap_bytes key, struct fcap_bytes value)
{
    struct comparison *comparison = context;
    if (key.size >= 2 && memcmp(key.data, "\xff\xff", 2) == 0) {
        return true; /* The store's own. */
    }
    if (!skip_missing(comparison, key)) {
        return false;
    }
    if (!fake_map_holds(comparison->map, comparison->at, key)) {
        (void)snprintf(comparison->fault, sizeof comparison->fault,
                       "a pair before number %zu is not in the model", comparison->at);
        return false;
    }
    if (!fcap_bytes_equal(fcap_buffer_bytes(&comparison->map->pairs[comparison->at].value),
                          value)) {
        (void)snprintf(comparison->fault, sizeof comparison->fault, "pair %zu has another value",
                       comparison->at);
        return false;
    }
    comparison->at++;
    comparison->compared++;
    return true;
}

static uint64_t dropped_through(struct fcap_store *store)
{
    struct fcap_buffer value = {0};
    bool found = false;
    assert_int_equal(store->ops->get(store, FCAP_FAMILY_META,
                                     fcap_bytes_of("\xff\xff"
                                                   "dropped_through"),
                                     &value, &found),
                     FCAP_OK);
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&value));
    uint64_t bound = found ? fcap_reader_be64(&reader) : 0;
    fcap_buffer_done(&value);
    return bound;
}

size_t model_compare(const struct model *model, struct fcap_store *store)
{
    size_t compared = 0;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        struct comparison comparison = {.map = &model->families[i]};
        if (i == FCAP_FAMILY_TIMERS) {
            comparison.bound = dropped_through(store);
        }
        assert_int_equal(store->ops->scan(store, (enum fcap_family)i, FCAP_BYTES_NONE,
                                          FCAP_BYTES_NONE, compare_pair, &comparison),
                         FCAP_OK);
        if (comparison.fault[0] == '\0') {
            (void)skip_missing(&comparison, FCAP_BYTES_NONE);
        }
        if (comparison.fault[0] != '\0') {
            fail_msg("batch %llu, family %s: %s", (unsigned long long)model->sequence,
                     fcap_family_name((enum fcap_family)i), comparison.fault);
        }
        compared += comparison.compared;
    }
    return compared;
}

/* --- writers ------------------------------------------------------------------------------------
 */

static uint64_t draw(struct frame_writer *writer, uint64_t below)
{
    writer->seed ^= writer->seed << 13;
    writer->seed ^= writer->seed >> 7;
    writer->seed ^= writer->seed << 17;
    return (writer->seed >> 11) % below;
}

/* be16 partition and what makes the key another one. */
static struct fcap_bytes draw_key(struct frame_writer *writer, struct fcap_buffer *key,
                                  int32_t partition, enum fcap_family family)
{
    fcap_buffer_clear(key);
    if (family == FCAP_FAMILY_TIMERS) {
        fcap_buffer_put_be64(key, writer->bucket_ms - draw(writer, 8));
    }
    fcap_buffer_put_be16(key, (uint16_t)partition);
    if (family == FCAP_FAMILY_TIMERS) {
        fcap_buffer_put_be64(key, draw(writer, 1000000));
        fcap_buffer_put_be16(key, 0);
    } else if (family == FCAP_FAMILY_META) {
        fcap_buffer_put_text(key, draw(writer, 2) == 0 ? "trail" : "gaps");
    } else {
        fcap_buffer_put_be32(key, (uint32_t)draw(writer, writer->users));
    }
    return fcap_buffer_bytes(key);
}

static void draw_entry(struct frame_writer *writer, struct fcap_batch *batch, int32_t partition)
{
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    enum fcap_family family = (enum fcap_family)draw(writer, FCAP_FAMILY_COUNT);
    uint64_t kind = draw(writer, 200);
    if (kind == 0 && family != FCAP_FAMILY_TIMERS) {
        fcap_buffer_put_be16(&key, (uint16_t)partition);
        fcap_buffer_put_be16(&value, (uint16_t)(partition + 1));
        fcap_batch_add(batch, family, FCAP_CHANGE_DELETE_RANGE, fcap_buffer_bytes(&key),
                       fcap_buffer_bytes(&value));
    } else if (kind < 30) {
        (void)draw_key(writer, &key, partition, family);
        fcap_batch_add(batch, family, FCAP_CHANGE_DELETE, fcap_buffer_bytes(&key), FCAP_BYTES_NONE);
    } else {
        (void)draw_key(writer, &key, partition, family);
        size_t size = (size_t)draw(writer, writer->value_bytes);
        while (value.size < size) {
            fcap_buffer_put_be64(&value, draw(writer, UINT64_MAX));
        }
        fcap_batch_add(batch, family, FCAP_CHANGE_PUT, fcap_buffer_bytes(&key),
                       fcap_buffer_bytes(&value));
    }
    fcap_buffer_done(&value);
    fcap_buffer_done(&key);
}

void frame_writer_fill(struct frame_writer *writer, struct fcap_batch *batch, uint64_t number)
{
    fcap_batch_clear(batch);
    writer->bucket_ms = 1000 + number / 4;
    for (int32_t i = 0; i < 3; i++) {
        uint64_t shape = draw(writer, 4);
        if (shape == 0) {
            continue;
        }
        /* An assignment that never was: the section is refused. */
        fcap_batch_section(batch, writer->partition + i, shape == 1 ? 77 : 1, number);
        for (uint64_t entries = draw(writer, 30); entries > 0; entries--) {
            draw_entry(writer, batch, writer->partition + i);
        }
    }
}

static int64_t now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* Cannot fail. */
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void *write_on(void *context)
{
    struct frame_writer *writer = context;
    struct fcap_store *store = writer->store;
    struct fcap_batch batch = {0};
    for (uint64_t number = 1; !atomic_load(&writer->stops); number++) {
        const struct fcap_batch *done = NULL;
        enum fcap_status result = FCAP_OK;
        frame_writer_fill(writer, &batch, number);
        bool copying = atomic_load(writer->is_copying);
        int64_t started_us = now_us();
        if (store->ops->submit(store, &batch) != FCAP_OK) {
            result = FCAP_BUSY; /* One at a time always has a place. */
        }
        while (done == NULL && result == FCAP_OK) {
            (void)store->ops->completed(store, 1000, &done, &result); /* Always OK. */
        }
        if (result != FCAP_OK) {
            atomic_store(&writer->failure, (int)result);
            break;
        }
        uint64_t spent_us = (uint64_t)(now_us() - started_us);
        size_t class = copying || atomic_load(writer->is_copying);
        writer->counts[class]++;
        writer->us_sum[class] += spent_us;
        writer->us_max[class] = spent_us > writer->us_max[class] ? spent_us : writer->us_max[class];
        for (int32_t i = 0; i < 2; i++) {
            store->ops->release(store, writer->partition + i,
                                (int64_t)(writer->bucket_ms < 100 ? 0 : writer->bucket_ms - 60));
        }
        (void)atomic_fetch_add(&writer->commits, 1);
        (void)nanosleep(&(struct timespec){0, 500000}, NULL); /* The reader has to keep up. */
    }
    fcap_batch_done(&batch);
    return NULL;
}

void frame_writer_start(struct frame_writer *writer)
{
    for (int32_t i = 0; i < 2; i++) {
        int64_t dropped_ms = 0;
        assert_int_equal(
            writer->store->ops->claim(writer->store, writer->partition + i, 1, &dropped_ms),
            FCAP_OK);
    }
    assert_int_equal(pthread_create(&writer->thread, NULL, write_on, writer), 0);
    writer->runs = true;
}

void frame_writer_stop(struct frame_writer *writer)
{
    if (writer->runs) {
        atomic_store(&writer->stops, true);
        (void)pthread_join(writer->thread, NULL); /* It ends by `stops`. */
        writer->runs = false;
    }
}
