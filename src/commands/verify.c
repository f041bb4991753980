/* `fcapd rebuild --verify`: every key of every user against what it should hold, and keys that no
 * user accounts for.
 *
 * While a daemon runs, counts change between two looks. A key is called different only when what it
 * should hold was the same before and after it was read, with nothing of the user on its way to
 * Redis at either moment. */
#include "daemon/compose.h"
#include "fcap/ads.h"
#include "fcap/assert.h"
#include "fcap/clock_os.h"
#include "fcap/rebuild.h"
#include "fcap/value.h"
#include "verify_compare.h"
#include "verify_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS     30 /* in which a user that changes all the while is looked at */
#define PAUSE_MS   20
#define BETWEEN_MS 5    /* two blocks of a running daemon */
#define ASK_BYTES  8000 /* of users in one request */
#define SHOWN      300  /* bytes of a value in a line */

/* --- lines --- */

static void put_escaped(struct fcap_buffer *line, struct fcap_bytes text)
{
    bool is_cut = text.size > SHOWN;
    fcap_json_escape(line, (struct fcap_bytes){text.data, is_cut ? SHOWN : text.size});
    fcap_buffer_put_text(line, is_cut ? "..." : "");
}

static void put_until(struct fcap_buffer *line, int64_t expire_at_ms)
{
    if (expire_at_ms == FCAP_REDIS_FOREVER) {
        fcap_buffer_put_text(line, " for ever");
    } else {
        fcap_buffer_put_text(line, " until ");
        fcap_buffer_put_decimal(line, expire_at_ms);
    }
}

void verify_put_line(struct fcap_buffer *line, struct fcap_bytes key, const char *text,
                     const struct fcap_redis_seen *seen, const struct fcap_values_window *wanted)
{
    put_escaped(line, key);
    fcap_buffer_put_text(line, " ");
    fcap_buffer_put_text(line, text);
    if (seen->is_there && !seen->is_other) {
        fcap_buffer_put_text(line, ": there is ");
        fcap_buffer_put(line, seen->value.data,
                        seen->value.size > SHOWN ? SHOWN : seen->value.size);
        put_until(line, seen->expire_at_min_ms);
    }
    if (wanted != NULL && wanted->value.data != NULL) {
        fcap_buffer_put_text(line, "; should be ");
        fcap_buffer_put(line, wanted->value.data,
                        wanted->value.size > SHOWN ? SHOWN : wanted->value.size);
        put_until(line, wanted->expire_at_ms);
    }
    fcap_buffer_put_text(line, "\n");
}

void verify_report(struct verify *verify, const struct fcap_buffer *lines, size_t keys)
{
    fcap_progress_done(verify->progress);
    if (verify->different < VERIFY_LINES_MAX) {
        (void)fwrite(lines->data, 1, lines->size, stdout); /* An error shows at the end. */
    }
    verify->different += keys;
    if (verify->different >= VERIFY_LINES_MAX && !verify->is_cut) {
        verify->is_cut = true;
        (void)printf("... further ones are only counted\n");
    }
}

/* --- users to look at again --- */

static void drop_suspects(struct suspects *suspects)
{
    for (size_t i = 0; i < suspects->count; i++) {
        fcap_buffer_done(&suspects->rows[i].user);
        fcap_buffer_done(&suspects->rows[i].lines);
    }
    suspects->count = 0;
}

static void add_suspect(struct suspects *suspects, struct suspect *suspect)
{
    if (suspects->count == suspects->capacity) {
        suspects->capacity = suspects->capacity * 2 + 64;
        suspects->rows = realloc(suspects->rows, suspects->capacity * sizeof suspects->rows[0]);
        FCAP_ASSERT(suspects->rows != NULL);
    }
    suspects->rows[suspects->count++] = *suspect;
    *suspect = (struct suspect){0};
}

static const struct suspect *find_suspect(const struct suspects *suspects, int32_t partition,
                                          struct fcap_bytes user, uint64_t hash)
{
    for (size_t i = 0; i < suspects->count; i++) {
        const struct suspect *suspect = &suspects->rows[i];
        if (suspect->hash == hash && suspect->partition == partition &&
            fcap_bytes_equal(fcap_buffer_bytes(&suspect->user), user)) {
            return suspect;
        }
    }
    return NULL;
}

/* --- comparing --- */

/* Users whose keys are read together. Views into the blocks. */
struct batch {
    struct batch_user {
        int32_t partition;
        int64_t clock_ms;
        bool waits;
        struct fcap_bytes user;
        uint64_t wanted_hash;
        size_t first; /* of its keys */
        size_t count;
    } users[VERIFY_KEYS_MAX];
    size_t user_count;
    struct fcap_values_window windows[VERIFY_KEYS_MAX + FCAP_WINDOWS_MAX];
    struct fcap_bytes keys[VERIFY_KEYS_MAX + FCAP_WINDOWS_MAX];
    struct fcap_redis_seen seen[VERIFY_KEYS_MAX + FCAP_WINDOWS_MAX];
    size_t key_count;
    struct fcap_buffer scratch;
};

static void judge_user(struct verify *verify, const struct batch *batch,
                       const struct batch_user *user, int64_t redis_ms)
{
    struct suspect suspect = {.partition = user->partition,
                              .hash = fcap_hash64(user->user, 0),
                              .wanted_hash = user->wanted_hash,
                              .waits = user->waits,
                              .is_only_later = true};
    for (size_t i = user->first; i < user->first + user->count; i++) {
        int64_t as_of_ms;
        enum fcap_difference difference = fcap_difference_find(
            &batch->windows[i], user->clock_ms, &batch->seen[i], redis_ms, &as_of_ms);
        if (difference == FCAP_DIFFERENCE_NONE) {
            continue;
        }
        suspect.keys++;
        suspect.is_only_later = suspect.is_only_later && difference == FCAP_DIFFERENCE_LATER;
        suspect.as_of_ms = as_of_ms > suspect.as_of_ms ? as_of_ms : suspect.as_of_ms;
        verify_put_line(&suspect.lines, batch->keys[i], fcap_difference_text(difference),
                        &batch->seen[i], &batch->windows[i]);
    }
    if (suspect.keys == 0) {
        verify->right += user->count;
    } else if (!fcap_verify_source_is_running(verify->source)) {
        verify_report(verify, &suspect.lines, suspect.keys);
        verify->right += user->count - suspect.keys;
        fcap_buffer_done(&suspect.lines);
    } else {
        suspect.all_keys = user->count;
        fcap_buffer_put_bytes(&suspect.user, user->user);
        add_suspect(&verify->suspects, &suspect);
    }
}

static enum fcap_status judge_batch(struct verify *verify, struct batch *batch)
{
    int64_t redis_ms;
    if (batch->user_count == 0) {
        return FCAP_OK;
    }
    enum fcap_status status = fcap_redis_client_read(verify->client, batch->keys, batch->key_count,
                                                     batch->seen, &redis_ms, &verify->error);
    for (size_t i = 0; i < batch->user_count && status == FCAP_OK; i++) {
        judge_user(verify, batch, &batch->users[i], redis_ms);
    }
    batch->user_count = 0;
    batch->key_count = 0;
    return status;
}

static void gather(struct batch *batch, struct fcap_values *values,
                   const struct fcap_values_entry *entry, uint32_t compared, struct seen_keys *seen)
{
    struct batch_user *user = &batch->users[batch->user_count++];
    *user = (struct batch_user){.partition = values->partition,
                                .clock_ms = values->clock_ms,
                                .waits = entry->waits,
                                .user = entry->user,
                                .first = batch->key_count};
    fcap_buffer_clear(&batch->scratch);
    for (size_t i = 0; i < FCAP_WINDOWS_MAX; i++) {
        if ((values->served >> i & 1) == 0) {
            continue;
        }
        struct fcap_values_window *window = &batch->windows[batch->key_count];
        fcap_values_next_window(values, window);
        if ((compared >> i & 1) != 0) {
            if (window->value.data != NULL) {
                verify_seen_add(seen, window->key);
            }
            batch->keys[batch->key_count++] = window->key;
            user->count++;
            fcap_difference_put_wanted(window, &batch->scratch);
        }
    }
    user->wanted_hash = fcap_hash64(fcap_buffer_bytes(&batch->scratch), 1);
}

/* The user was looked at before: what it should hold is the same still, and was all the while. */
static bool is_settled(struct verify *verify, const struct batch_user *user)
{
    const struct suspect *before =
        find_suspect(&verify->before, user->partition, user->user, fcap_hash64(user->user, 0));
    if (before == NULL || before->waits || user->waits ||
        before->wanted_hash != user->wanted_hash) {
        return false;
    }
    size_t wrong = before->keys;
    if (before->is_only_later && before->as_of_ms <= user->clock_ms) {
        wrong = 0; /* It was written once more in between. */
    } else {
        verify_report(verify, &before->lines, wrong);
    }
    verify->right += before->all_keys - wrong;
    return true;
}

static enum fcap_status judge_block(struct verify *verify, struct fcap_values *values,
                                    struct batch *batch)
{
    struct fcap_values_entry entry;
    bool is_running = fcap_verify_source_is_running(verify->source);
    uint32_t compared = values->served & (is_running ? values->projected : UINT32_MAX);
    enum fcap_status status = FCAP_OK;
    if (is_running && !values->gate_open) {
        compared = 0;
    }
    verify->skipped_windows = verify->skipped_windows || compared != values->served;
    while (status == FCAP_OK && fcap_values_next(values, &entry)) {
        if (entry.is_elsewhere) {
            continue; /* It should hold whatever its new partition says. */
        }
        gather(batch, values, &entry, compared, &verify->seen);
        if (is_settled(verify, &batch->users[batch->user_count - 1])) {
            batch->user_count--;
            batch->key_count = batch->users[batch->user_count].first;
        }
        if (batch->key_count >= VERIFY_KEYS_MAX || batch->user_count == VERIFY_KEYS_MAX) {
            status = judge_batch(verify, batch);
        }
    }
    status = status == FCAP_OK ? judge_batch(verify, batch) : status;
    return status == FCAP_OK && values->entries.failed
               ? fcap_error_set(&verify->error, FCAP_CORRUPT, "a damaged block of values")
               : status;
}

static enum fcap_status judge_blocks(struct verify *verify, const struct fcap_buffer *blocks)
{
    static struct batch batch;
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(blocks));
    struct fcap_values values;
    enum fcap_status status = FCAP_OK;
    batch.user_count = 0;
    batch.key_count = 0;
    while (status == FCAP_OK && fcap_values_read(&reader, &values)) {
        status = judge_block(verify, &values, &batch);
    }
    fcap_buffer_done(&batch.scratch);
    return status == FCAP_OK && reader.failed
               ? fcap_error_set(&verify->error, FCAP_CORRUPT, "a damaged block of values")
               : status;
}

/* Asks for the users that were suspect, and judges again. */
static enum fcap_status look_again(struct verify *verify)
{
    struct fcap_buffer users = {0};
    struct fcap_buffer blocks = {0};
    enum fcap_status status = FCAP_OK;
    const struct suspects *before = &verify->before;
    for (size_t i = 0; i < before->count && status == FCAP_OK; i++) {
        fcap_buffer_put_be16(&users, (uint16_t)before->rows[i].user.size);
        fcap_buffer_put_bytes(&users, fcap_buffer_bytes(&before->rows[i].user));
        if (users.size >= ASK_BYTES || i + 1 == before->count) {
            status = fcap_verify_source_users(verify->source, fcap_buffer_bytes(&users), &blocks,
                                              &verify->error);
            fcap_buffer_clear(&users);
        }
    }
    status = status == FCAP_OK ? judge_blocks(verify, &blocks) : status;
    fcap_buffer_done(&users);
    fcap_buffer_done(&blocks);
    return status;
}

enum fcap_status verify_blocks(struct verify *verify, const struct fcap_buffer *blocks)
{
    enum fcap_status status = judge_blocks(verify, blocks);
    for (int i = 0; i < ROUNDS && verify->suspects.count > 0 && status == FCAP_OK; i++) {
        struct suspects empty = verify->before;
        verify->before = verify->suspects;
        verify->suspects = empty;
        if (i > 0) {
            (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
        }
        status = look_again(verify);
        drop_suspects(&verify->before);
    }
    for (size_t i = 0; i < verify->suspects.count; i++) {
        verify->unsettled += verify->suspects.rows[i].all_keys;
    }
    drop_suspects(&verify->suspects);
    return status;
}

/* --- all of it --- */

static void show(const struct verify *verify, int32_t partition)
{
    char number[32];
    char note[96];
    (void)snprintf(note, sizeof note, "partition %" PRId32 ", %s keys compared so far", partition,
                   fcap_progress_number(verify->right + verify->different, number));
    fcap_progress_at(verify->progress, "verify", fcap_clock_os_monotonic_ms(), 0, 0, "keys", note);
}

static enum fcap_status verify_partition(struct verify *verify, int32_t partition)
{
    struct fcap_buffer after = {0};
    struct fcap_buffer blocks = {0};
    enum fcap_status status;
    bool is_done = false;
    do {
        struct fcap_values values;
        show(verify, partition);
        fcap_buffer_clear(&blocks);
        status = fcap_verify_source_page(verify->source, partition, fcap_buffer_bytes(&after),
                                         &blocks, &verify->error);
        struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&blocks));
        if (status == FCAP_OK && !fcap_values_read(&reader, &values)) {
            (void)fprintf(stderr, "fcapd: partition %d has left the daemon meanwhile\n", partition);
            verify->left_out++;
            break;
        }
        status = status == FCAP_OK ? verify_blocks(verify, &blocks) : status;
        if (status == FCAP_OK && fcap_verify_source_is_running(verify->source)) {
            /* The worker has other things to do. */
            (void)nanosleep(&(struct timespec){.tv_nsec = BETWEEN_MS * 1000000L}, NULL);
        }
        if (status == FCAP_OK) {
            is_done = values.next.size == 0;
            verify->partitions += is_done;
            fcap_buffer_clear(&after);
            fcap_buffer_put_bytes(&after, values.next);
        }
    } while (status == FCAP_OK && !is_done);
    fcap_buffer_done(&after);
    fcap_buffer_done(&blocks);
    return status;
}

/* Which partitions there are; those that cannot be compared now are named. */
static enum fcap_status verify_everything(struct verify *verify)
{
    struct fcap_buffer blocks = {0};
    struct fcap_values values;
    uint32_t partition_count = 0;
    enum fcap_status status = fcap_verify_source_parts(verify->source, &blocks, &verify->error);
    struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&blocks));
    while (status == FCAP_OK && fcap_values_read(&reader, &values)) {
        bool is_running = fcap_verify_source_is_running(verify->source);
        partition_count =
            values.partition_count > partition_count ? values.partition_count : partition_count;
        if (is_running && !values.gate_open) {
            (void)fprintf(stderr, "fcapd: partition %d is not compared: its gate is closed\n",
                          values.partition);
            verify->left_out++;
            continue;
        }
        if (is_running && (values.served & ~values.projected) != 0) {
            (void)fprintf(
                stderr, "fcapd: partition %d: windows that are being projected are not compared\n",
                values.partition);
        }
        status = verify_partition(verify, values.partition);
    }
    fcap_buffer_done(&blocks);
    if (status != FCAP_OK) {
        return status;
    }
    bool is_empty = verify->partitions == 0 && verify->left_out == 0;
    if (is_empty && fcap_verify_source_is_running(verify->source)) {
        (void)fprintf(stderr, "fcapd: no partition is assigned to the daemon now; see /readyz\n");
    } else if (is_empty) {
        (void)fprintf(stderr, "fcapd: there is no partition that could be compared\n");
    }
    verify->left_out += verify->partitions == 0;
    bool is_whole = verify->left_out == 0 && partition_count == verify->partitions;
    if (!is_whole && !is_empty) {
        (void)fprintf(
            stderr,
            "fcapd: %zu of %u partitions were compared: keys of users that nobody knows cannot "
            "be told from keys of the others, and were not looked for\n",
            verify->partitions, partition_count);
    }
    return is_whole ? verify_unknown_keys(verify) : FCAP_OK;
}

static enum fcap_status verify_user(struct verify *verify, struct fcap_bytes user)
{
    struct fcap_buffer users = {0};
    struct fcap_buffer blocks = {0};
    fcap_buffer_put_be16(&users, (uint16_t)user.size);
    fcap_buffer_put_bytes(&users, user);
    enum fcap_status status = fcap_verify_source_users(verify->source, fcap_buffer_bytes(&users),
                                                       &blocks, &verify->error);
    if (status == FCAP_OK && blocks.size == 0) {
        (void)fprintf(stderr, "fcapd: no partition here knows the user\n");
        verify->left_out++;
    }
    status = status == FCAP_OK ? verify_blocks(verify, &blocks) : status;
    fcap_buffer_done(&users);
    fcap_buffer_done(&blocks);
    return status;
}

static int finish(const struct verify *verify, enum fcap_status status)
{
    fcap_progress_done(verify->progress);
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "fcapd: %s\n", verify->error.text);
        return fcap_daemon_exit_code(status);
    }
    (void)printf("%" PRIu64 " keys are right, %" PRIu64 " differ, of them %" PRIu64
                 " of users that the state does not know; %" PRIu64
                 " changed too often to be compared\n",
                 verify->right, verify->different, verify->unknown, verify->unsettled);
    if (verify->different > 0) {
        return FCAP_EXIT_DIFFERS;
    }
    bool is_all = verify->left_out == 0 && verify->unsettled == 0 && !verify->skipped_windows;
    return is_all ? FCAP_EXIT_OK : FCAP_EXIT_TEMPORARY;
}

int fcap_verify(const struct fcap_rebuild_job *job, bool is_running)
{
    const struct fcap_config *config = job->config;
    const struct fcap_ask_patience patience = {job->progress, job->patience_ms};
    struct fcap_compose_room room;
    struct fcap_sink_redis_settings redis;
    struct verify verify = {.config = config, .progress = job->progress};
    fcap_compose_sink(config, 0, &room, &redis);
    enum fcap_status status = fcap_redis_client_open(&redis, &verify.client, &verify.error);
    if (status == FCAP_OK) {
        status =
            fcap_key_template_init(&verify.keys, config->redis.key, config->profile, &verify.error);
    }
    if (status == FCAP_OK) {
        status = fcap_verify_source_open(config, is_running, patience, verify.client,
                                         &verify.source, &verify.error);
    }
    if (status == FCAP_OK) {
        status = job->user == NULL ? verify_everything(&verify)
                                   : verify_user(&verify, fcap_bytes_of(job->user));
    }
    int exit_code = finish(&verify, status);
    fcap_verify_source_close(verify.source);
    fcap_key_template_done(&verify.keys);
    fcap_redis_client_close(verify.client);
    free(verify.seen.slots);
    free(verify.suspects.rows);
    free(verify.before.rows);
    return exit_code;
}
