#include "integration/store_rocksdb_help.h"

#include "lab/lab.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

int64_t help_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* Cannot fail. */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void help_make(char ret_directory[64])
{
    lab_folder_make("fcap-store", ret_directory, 64);
}

void help_remove(const char *directory)
{
    char path[64];
    (void)snprintf(path, sizeof path, "%s", directory); /* Fits: ours. */
    lab_folder_remove(path);
    assert_int_equal(access(directory, F_OK), -1);
}

struct fcap_store_settings help_settings(const char *directory)
{
    struct fcap_store_settings settings;
    fcap_store_settings_default(&settings);
    settings.directory = directory;
    settings.block_cache_bytes = 8 << 20;
    settings.release_step_ms = 1;
    settings.release_pause_ms = 0;
    return settings;
}

struct fcap_store_rocksdb *help_open(const struct fcap_store_settings *settings)
{
    struct fcap_error error = {""};
    struct fcap_store_rocksdb *db = NULL;
    if (fcap_store_rocksdb_open(settings, &db, &error) != FCAP_OK) {
        fail_msg("%s", error.text);
    }
    return db;
}

void help_refused(const struct fcap_store_settings *settings, enum fcap_status status,
                  const char *text, const char *second)
{
    struct fcap_error error = {""};
    struct fcap_store_rocksdb *db = NULL;
    enum fcap_status got = fcap_store_rocksdb_open(settings, &db, &error);
    const char *texts[] = {"open store: ", text, second};
    if (got != status) {
        fcap_store_rocksdb_close(db);
        fail_msg("got \"%s\" (%s), wanted \"%s\"", fcap_status_text(got), error.text,
                 fcap_status_text(status));
    }
    assert_null(db);
    for (size_t i = 0; i < 3; i++) {
        if (texts[i] != NULL && strstr(error.text, texts[i]) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", error.text, texts[i]);
        }
    }
}

enum fcap_status help_commit(struct fcap_store *store, const struct fcap_batch *batch)
{
    const struct fcap_batch *done = NULL;
    enum fcap_status result = FCAP_OK;
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    assert_int_equal(store->ops->submit(store, batch), FCAP_OK);
    while (done == NULL && help_now_ms() < deadline_ms) {
        assert_int_equal(store->ops->completed(store, 100, &done, &result), FCAP_OK);
    }
    assert_ptr_equal(done, batch);
    return result;
}

void help_number(struct fcap_batch *batch, uint64_t number, size_t filler_bytes)
{
    struct fcap_buffer value = {0};
    struct fcap_buffer filler = {0};
    uint64_t random = number * 0x9E3779B97F4A7C15u + 1;
    fcap_batch_clear(batch);
    fcap_batch_section(batch, 1, 1, number);
    fcap_buffer_put_be64(&value, number);
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        fcap_batch_add(batch, (enum fcap_family)i, FCAP_CHANGE_PUT, fcap_bytes_of("n"),
                       fcap_buffer_bytes(&value));
    }
    while (filler.size < filler_bytes) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        fcap_buffer_put_be64(&filler, random);
    }
    if (filler_bytes > 0) {
        fcap_batch_add(batch, FCAP_FAMILY_USERS, FCAP_CHANGE_PUT, fcap_buffer_bytes(&value),
                       fcap_buffer_bytes(&filler));
    }
    fcap_buffer_done(&filler);
    fcap_buffer_done(&value);
}

uint64_t help_agreed(struct fcap_store *store)
{
    struct fcap_buffer value = {0};
    uint64_t agreed = 0;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        bool found = false;
        assert_int_equal(
            store->ops->get(store, (enum fcap_family)i, fcap_bytes_of("n"), &value, &found),
            FCAP_OK);
        struct fcap_reader reader = fcap_reader_of(fcap_buffer_bytes(&value));
        uint64_t number = found ? fcap_reader_be64(&reader) : 0;
        if (i > 0 && number != agreed) {
            fail_msg("family %s is at %llu, others at %llu", fcap_family_name((enum fcap_family)i),
                     (unsigned long long)number, (unsigned long long)agreed);
        }
        agreed = number;
    }
    fcap_buffer_done(&value);
    return agreed;
}

struct fcap_bytes help_timer(struct fcap_buffer *key, uint64_t bucket_ms, uint64_t commit)
{
    fcap_buffer_clear(key);
    fcap_buffer_put_be64(key, bucket_ms);
    fcap_buffer_put_be16(key, 1);
    fcap_buffer_put_be64(key, commit);
    fcap_buffer_put_be16(key, 0);
    return fcap_buffer_bytes(key);
}

void help_timers(struct fcap_store *store, uint64_t first_ms, uint64_t last_ms, uint64_t step_ms,
                 size_t bytes)
{
    struct fcap_batch batch = {0};
    struct fcap_buffer key = {0};
    struct fcap_buffer value = {0};
    uint64_t random = first_ms + 88172645463325252u;
    for (uint64_t bucket = first_ms; bucket < last_ms;) {
        fcap_batch_clear(&batch);
        fcap_batch_section(&batch, 1, 1, bucket);
        for (size_t i = 0; i < 100 && bucket < last_ms; i++, bucket += step_ms) {
            fcap_buffer_clear(&value);
            while (value.size < bytes) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                fcap_buffer_put_be64(&value, random);
            }
            fcap_batch_add(&batch, FCAP_FAMILY_TIMERS, FCAP_CHANGE_PUT, help_timer(&key, bucket, 1),
                           fcap_buffer_bytes(&value));
        }
        assert_int_equal(help_commit(store, &batch), FCAP_OK);
    }
    fcap_buffer_done(&value);
    fcap_buffer_done(&key);
    fcap_batch_done(&batch);
}

void help_sync(struct fcap_store *store)
{
    uint64_t ticket = 0;
    bool done = false;
    int64_t deadline_ms = help_now_ms() + HELP_DEADLINE_S * 1000;
    while (!done && help_now_ms() < deadline_ms) {
        assert_int_equal(store->ops->sync(store, &ticket, &done), FCAP_OK);
        struct timespec pause = {0, 200000};
        (void)nanosleep(&pause, NULL); /* Polling; cut short is fine. */
    }
    assert_true(done);
}

pid_t help_spawn(const char *mode, const char *directory, int *ret_output)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)execl("/proc/self/exe", "test", mode, directory, (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]); /* The child's end. */
    *ret_output = ends[0];
    return child;
}

void help_kill(pid_t child, bool wait_only)
{
    int status = 0;
    if (!wait_only) {
        assert_int_equal(kill(child, SIGKILL), 0);
    }
    while (waitpid(child, &status, 0) < 0) {
        assert_int_equal(errno, EINTR);
    }
}
