/* Keys of our pattern that no user accounts for: all keys of the database are walked over. */
#include "verify_internal.h"

#include "fcap/assert.h"
#include "fcap/clock_os.h"

#include <stdlib.h>
#include <string.h>

#define ASK_BYTES 8000

struct unknown {
    struct verify *verify;
    struct fcap_buffer keys;  /* be16 size, bytes of the key; be16 size, bytes of its user */
    struct fcap_buffer known; /* users, be16 size, bytes: those that some partition knows */
};

/* --- keys that were compared --- */

static uint64_t *place_of(const struct seen_keys *seen, uint64_t hash)
{
    size_t at = (size_t)hash & (seen->slot_count - 1);
    while (seen->slots[at] != 0 && seen->slots[at] != hash) {
        at = (at + 1) & (seen->slot_count - 1);
    }
    return &seen->slots[at];
}

static uint64_t hash_of(struct fcap_bytes key)
{
    uint64_t hash = fcap_hash64(key, 2);
    return hash == 0 ? 1 : hash;
}

void verify_seen_add(struct seen_keys *seen, struct fcap_bytes key)
{
    if (seen->count >= VERIFY_SEEN_MAX) {
        return;
    }
    if (seen->count * 2 >= seen->slot_count) {
        struct seen_keys larger = {.slot_count =
                                       seen->slot_count == 0 ? 4096 : seen->slot_count * 2};
        larger.slots = calloc(larger.slot_count, sizeof *larger.slots);
        FCAP_ASSERT(larger.slots != NULL);
        for (size_t i = 0; i < seen->slot_count; i++) {
            if (seen->slots[i] != 0) {
                *place_of(&larger, seen->slots[i]) = seen->slots[i];
            }
        }
        free(seen->slots);
        seen->slots = larger.slots;
        seen->slot_count = larger.slot_count;
    }
    uint64_t *place = place_of(seen, hash_of(key));
    seen->count += *place == 0;
    *place = hash_of(key);
}

bool verify_seen_has(const struct seen_keys *seen, struct fcap_bytes key)
{
    return seen->slot_count > 0 && *place_of(seen, hash_of(key)) != 0;
}

/* --- the others --- */

static void put_sized(struct fcap_buffer *buffer, struct fcap_bytes bytes)
{
    fcap_buffer_put_be16(buffer, (uint16_t)bytes.size);
    fcap_buffer_put_bytes(buffer, bytes);
}

static struct fcap_bytes take_sized(struct fcap_reader *reader)
{
    return fcap_reader_take(reader, fcap_reader_be16(reader));
}

static void take_key(void *context, struct fcap_bytes key)
{
    struct unknown *unknown = context;
    const struct fcap_config *config = unknown->verify->config;
    struct fcap_buffer user = {0};
    if (verify_seen_has(&unknown->verify->seen, key)) {
        return;
    }
    for (size_t i = 0; i < config->windows_count && key.size <= UINT16_MAX; i++) {
        if (fcap_key_parse(&unknown->verify->keys, key, config->windows[i].name, &user)) {
            put_sized(&unknown->keys, key);
            put_sized(&unknown->keys, fcap_buffer_bytes(&user));
            break;
        }
    }
    fcap_buffer_done(&user);
}

static enum fcap_status ask_for(struct unknown *unknown, struct fcap_buffer *users)
{
    struct fcap_buffer blocks = {0};
    struct fcap_values values;
    enum fcap_status status = fcap_verify_source_users(
        unknown->verify->source, fcap_buffer_bytes(users), &blocks, &unknown->verify->error);
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&blocks));
    while (status == FCAP_OK && fcap_values_read(&reader, &values)) {
        struct fcap_values_entry entry;
        if (fcap_values_next(&values, &entry)) {
            put_sized(&unknown->known, entry.user);
        }
    }
    fcap_buffer_clear(users);
    fcap_buffer_done(&blocks);
    return status;
}

/* Fills `known` for the users of `keys`. */
static enum fcap_status ask(struct unknown *unknown)
{
    struct fcap_buffer users = {0};
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&unknown->keys));
    enum fcap_status status = FCAP_OK;
    fcap_buffer_clear(&unknown->known);
    while (fcap_reader_left(&reader) > 0 && status == FCAP_OK) {
        (void)take_sized(&reader); /* The key. */
        put_sized(&users, take_sized(&reader));
        if (users.size >= ASK_BYTES || fcap_reader_left(&reader) == 0) {
            status = ask_for(unknown, &users);
        }
    }
    fcap_buffer_done(&users);
    return status;
}

static int compare(const void *a, const void *b)
{
    return fcap_bytes_compare(*(const struct fcap_bytes *)a, *(const struct fcap_bytes *)b);
}

/* Leaves in `keys` only those whose user is not in `known`. */
static void keep_unknown(struct unknown *unknown)
{
    struct fcap_buffer kept = {0};
    size_t count = 0;
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&unknown->known));
    struct fcap_bytes *known = calloc(unknown->known.size / 3 + 1, sizeof *known);
    FCAP_ASSERT(known != NULL);
    while (fcap_reader_left(&reader) > 0) {
        known[count++] = take_sized(&reader); /* Two bytes and at least one. */
    }
    qsort(known, count, sizeof *known, compare);
    reader = fcap_reader_of(fcap_buffer_bytes(&unknown->keys));
    while (fcap_reader_left(&reader) > 0) {
        struct fcap_bytes key = take_sized(&reader);
        struct fcap_bytes user = take_sized(&reader);
        if (bsearch(&user, known, count, sizeof *known, compare) == NULL) {
            put_sized(&kept, key);
            put_sized(&kept, user);
        }
    }
    free(known);
    fcap_buffer_done(&unknown->keys);
    unknown->keys = kept;
}

/* Those of `keys` that are still there; some expire meanwhile. `lines` gets one for each. */
static enum fcap_status keep_present(struct unknown *unknown, struct fcap_buffer *lines,
                                     size_t *ret_count)
{
    struct verify *verify = unknown->verify;
    struct fcap_buffer kept = {0};
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&unknown->keys));
    enum fcap_status status = FCAP_OK;
    fcap_buffer_clear(lines);
    *ret_count = 0;
    while (fcap_reader_left(&reader) > 0 && status == FCAP_OK) {
        struct fcap_redis_seen seen;
        int64_t redis_ms;
        struct fcap_bytes key = take_sized(&reader);
        struct fcap_bytes user = take_sized(&reader);
        status = fcap_redis_client_read(verify->client, &key, 1, &seen, &redis_ms, &verify->error);
        if (status == FCAP_OK && seen.is_there) {
            put_sized(&kept, key);
            put_sized(&kept, user);
            verify_put_line(lines, key, "is of a user whom the state does not know", &seen, NULL);
            ++*ret_count;
        }
    }
    fcap_buffer_done(&unknown->keys);
    unknown->keys = kept;
    return status;
}

/* Unknown before and after it was seen: no event has made it in between. */
static enum fcap_status judge(struct unknown *unknown)
{
    struct fcap_buffer lines = {0};
    size_t count = 0;
    enum fcap_status status = ask(unknown);
    for (int i = 0; i < 2 && status == FCAP_OK; i++) {
        keep_unknown(unknown);
        status = keep_present(unknown, &lines, &count);
        if (status == FCAP_OK && i == 0 && count > 0) {
            status = ask(unknown);
        }
    }
    if (status == FCAP_OK && count > 0) {
        verify_report(unknown->verify, &lines, count);
        unknown->verify->unknown += count;
    }
    fcap_buffer_done(&lines);
    fcap_buffer_clear(&unknown->keys);
    return status;
}

enum fcap_status verify_unknown_keys(struct verify *verify)
{
    struct unknown unknown = {.verify = verify};
    struct fcap_buffer pattern = {0};
    uint64_t cursor = 0;
    enum fcap_status status;
    fcap_key_match(&verify->keys, &pattern);
    do {
        fcap_progress_at(verify->progress, "verify", fcap_clock_os_monotonic_ms(), 0, 0, "keys",
                         "walks over all keys of the database");
        status = fcap_redis_client_scan(verify->client, fcap_buffer_bytes(&pattern), &cursor,
                                        take_key, &unknown, &verify->error);
        status = status == FCAP_OK ? judge(&unknown) : status;
    } while (status == FCAP_OK && cursor != 0);
    fcap_buffer_done(&pattern);
    fcap_buffer_done(&unknown.keys);
    fcap_buffer_done(&unknown.known);
    return status;
}
