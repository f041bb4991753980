/* The files of a candidate, several at a time, the largest first: each is compared while it is
 * read, and written on the way. The calling thread has the lead: it tells how far all of them are,
 * looks whether the restore was cancelled, and takes a file itself only when it is alone. */
#include "restore_internal.h"

#include "fcap/assert.h"
#include "fcap/point.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 100 /* between two looks of the calling thread */
/* The kernel is told to begin writing after so many bytes: so memory holds little that is not
 * written, and the sync at a file's end is short. */
#define WRITE_BACK_BYTES ((uint64_t)16 << 20)

struct job {
    const struct fcap_checkpoint_file *file;
    enum fcap_status status; /* of the reading */
    bool is_done;
};

struct copying {
    struct restore *restore;
    const char *directory; /* where the files go; NULL: nowhere */
    struct job *jobs;
    size_t job_count;
    struct transfer_rate rate;

    pthread_mutex_t lock; /* guards what follows, the restore's bytes, and jobs' results */
    pthread_cond_t changed;
    size_t next;
    size_t running;          /* threads */
    bool is_over;            /* nothing more is begun */
    enum fcap_status status; /* of the first failure */
    struct fcap_error error;
};

/* A file on its way. */
struct copy {
    struct copying *copying;
    const struct fcap_checkpoint_file *file;
    int local; /* -1: none */
    char path[4096 + sizeof(((struct fcap_checkpoint_file *)NULL)->name) + 1];
    uint8_t *piece;
    uint64_t offset;
    uint64_t written_back;
};

/* The first one is the restore's; the others stop. With the lock held. */
static void fail(struct copying *copying, enum fcap_status status, const struct fcap_error *error)
{
    if (copying->status == FCAP_OK) {
        copying->status = status;
        copying->error = *error;
    }
    copying->is_over = true;
    (void)pthread_cond_broadcast(&copying->changed);
}

static void look_at_cancel(struct copying *copying)
{
    struct fcap_error error;
    if (restore_is_cancelled(copying->restore, &error)) {
        (void)pthread_mutex_lock(&copying->lock);
        fail(copying, FCAP_STOPPED, &error);
        (void)pthread_mutex_unlock(&copying->lock);
    }
}

/* Waits on `changed` for at most so long; somebody's clock jumps do no harm. With the lock held. */
static void wait_ms(struct copying *copying, int64_t ms)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(&copying->changed, &copying->lock, &until); /* Late is fine. */
}

/* Counts what was read and waits until the rate allows more. False: it is over. */
static bool pass(struct copying *copying, size_t size, bool is_alone)
{
    struct fcap_clock *clock = copying->restore->settings->clock;
    int64_t due_ms = 0;
    (void)pthread_mutex_lock(&copying->lock);
    copying->restore->bytes += size;
    if (copying->rate.bytes_per_second > 0) {
        due_ms = transfer_rate_pay(&copying->rate, size, clock->monotonic_ms(clock));
    }
    bool is_over = copying->is_over;
    (void)pthread_mutex_unlock(&copying->lock);
    for (bool is_early = due_ms > 0; is_early && !is_over;) {
        if (is_alone) {
            look_at_cancel(copying);
        }
        (void)pthread_mutex_lock(&copying->lock);
        int64_t left_ms = due_ms - clock->monotonic_ms(clock);
        is_early = left_ms > 0;
        if (is_early && !copying->is_over) {
            wait_ms(copying, left_ms < LOOK_MS ? left_ms : LOOK_MS);
        }
        is_over = copying->is_over;
        (void)pthread_mutex_unlock(&copying->lock);
    }
    return !is_over;
}

static enum fcap_status fail_local(const struct copy *copy, int why, struct fcap_error *error)
{
    return fcap_error_set(error, why == ENOSPC || why == EDQUOT ? FCAP_NO_SPACE : FCAP_IO, "%s: %s",
                          copy->path, strerror(why));
}

static enum fcap_status write_piece(struct copy *copy, size_t size, struct fcap_error *error)
{
    for (size_t done = 0; done < size;) {
        ssize_t part = write(copy->local, copy->piece + done, size - done);
        if (part < 0 && errno != EINTR) {
            return fail_local(copy, errno, error);
        }
        done += part < 0 ? 0 : (size_t)part;
    }
    const uint64_t end = copy->offset + size;
    if (end - copy->written_back >= WRITE_BACK_BYTES) {
        /* Only advice: what fails here fails again when it is synced. */
        (void)sync_file_range(copy->local, (off_t)copy->written_back,
                              (off_t)(end - copy->written_back), SYNC_FILE_RANGE_WRITE);
        copy->written_back = end;
    }
    return FCAP_OK;
}

/* Reads all of it. */
static enum fcap_status copy_pieces(struct copy *copy, bool is_alone, struct fcap_error *error)
{
    struct copying *copying = copy->copying;
    struct fcap_objects *objects = copying->restore->objects;
    const char *object = copy->file->object;
    struct fcap_checkpoint_hash hash = {0};
    enum fcap_status status = FCAP_OK;
    for (size_t size = 1; status == FCAP_OK && size > 0; copy->offset += size) {
        size = 0;
        status = objects->ops->read(objects, object, copy->offset, copy->piece,
                                    FCAP_CHECKPOINT_PIECE, &size, error);
        if (status != FCAP_OK) {
            status = restore_judge(object, status, error);
            break;
        }
        fcap_checkpoint_hash_add(&hash, (struct fcap_bytes){copy->piece, size});
        FCAP_POINT(restore_copying);
        if (copy->local >= 0) {
            status = write_piece(copy, size, error);
        }
        if (is_alone) {
            look_at_cancel(copying);
            restore_tell_progress(copying->restore);
        }
        if (!pass(copying, size, is_alone)) {
            status = FCAP_STOPPED; /* Why is known already. */
        }
    }
    bool is_same =
        fcap_checkpoint_hash_end(&hash) == copy->file->hash && copy->offset == copy->file->size;
    if (status == FCAP_OK && !is_same) {
        status = fcap_error_set(error, FCAP_CORRUPT, "%s: its bytes are not those of %s", object,
                                copy->file->name);
    }
    return status;
}

static enum fcap_status copy_file(struct copying *copying, const struct fcap_checkpoint_file *file,
                                  uint8_t *piece, bool is_alone, struct fcap_error *error)
{
    struct copy copy = {.copying = copying, .file = file, .local = -1, .piece = piece};
    if (copying->directory == NULL) {
        return copy_pieces(&copy, is_alone, error);
    }
    int size = snprintf(copy.path, sizeof copy.path, "%s/%s", copying->directory, copy.file->name);
    FCAP_ASSERT(size > 0 && (size_t)size < sizeof copy.path); /* Both lengths are bounded. */
    copy.local = open(copy.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (copy.local < 0) {
        return fail_local(&copy, errno, error);
    }
    enum fcap_status status = copy_pieces(&copy, is_alone, error);
    if (status == FCAP_OK && fsync(copy.local) != 0) {
        status = fail_local(&copy, errno, error);
    }
    if (close(copy.local) != 0 && status == FCAP_OK) {
        status = fail_local(&copy, errno, error);
    }
    return status;
}

/* Takes one file after the other. */
static void copy_files(struct copying *copying, bool is_alone)
{
    uint8_t *piece = malloc(FCAP_CHECKPOINT_PIECE);
    FCAP_ASSERT(piece != NULL);
    (void)pthread_mutex_lock(&copying->lock);
    while (!copying->is_over && copying->next < copying->job_count) {
        struct job *job = &copying->jobs[copying->next++];
        struct fcap_error error = {""};
        (void)pthread_mutex_unlock(&copying->lock);
        enum fcap_status status = copy_file(copying, job->file, piece, is_alone, &error);
        (void)pthread_mutex_lock(&copying->lock);
        job->status = status;
        job->is_done = true;
        if (status != FCAP_OK) {
            fail(copying, status, &error);
        }
    }
    (void)pthread_mutex_unlock(&copying->lock);
    free(piece);
}

static void *run_copy(void *context)
{
    struct copying *copying = context;
    (void)pthread_setname_np(pthread_self(), "restore");
    copy_files(copying, false);
    (void)pthread_mutex_lock(&copying->lock);
    copying->running--;
    (void)pthread_cond_broadcast(&copying->changed);
    (void)pthread_mutex_unlock(&copying->lock);
    return NULL;
}

/* Starts as many threads as there can be. */
static size_t start(struct copying *copying, pthread_t *threads, size_t wanted)
{
    size_t started = 0;
    (void)pthread_mutex_lock(&copying->lock);
    while (started < wanted && pthread_create(&threads[started], NULL, run_copy, copying) == 0) {
        started++;
    }
    copying->running = started;
    (void)pthread_mutex_unlock(&copying->lock);
    return started;
}

static void lead(struct copying *copying)
{
    (void)pthread_mutex_lock(&copying->lock);
    while (copying->running > 0) {
        wait_ms(copying, LOOK_MS);
        restore_tell_progress(copying->restore);
        (void)pthread_mutex_unlock(&copying->lock);
        look_at_cancel(copying);
        (void)pthread_mutex_lock(&copying->lock);
    }
    (void)pthread_mutex_unlock(&copying->lock);
}

static int compare_jobs(const void *a, const void *b)
{
    const struct fcap_checkpoint_file *left = ((const struct job *)a)->file;
    const struct fcap_checkpoint_file *right = ((const struct job *)b)->file;
    return left->size != right->size ? (left->size < right->size ? 1 : -1)
                                     : strcmp(left->name, right->name);
}

/* Those of the snapshot; without a directory only those that nobody has read yet. */
static void plan(struct copying *copying, const struct fcap_checkpoint *snapshot)
{
    copying->jobs = calloc(snapshot->file_count + 1, sizeof copying->jobs[0]);
    FCAP_ASSERT(copying->jobs != NULL);
    for (size_t i = 0; i < snapshot->file_count; i++) {
        const struct fcap_checkpoint_file *file = &snapshot->files[i];
        if (copying->directory != NULL ||
            object_list_find(&copying->restore->good, file->object) == NULL) {
            copying->jobs[copying->job_count++].file = file;
        }
    }
    if (copying->job_count > 0) {
        qsort(copying->jobs, copying->job_count, sizeof copying->jobs[0], compare_jobs);
    }
}

static void remember(struct copying *copying)
{
    struct restore *restore = copying->restore;
    for (size_t i = 0; i < copying->job_count; i++) {
        const struct job *job = &copying->jobs[i];
        if (job->is_done && job->status == FCAP_OK && copying->directory == NULL) {
            object_list_add(&restore->good, job->file->object, 0);
        } else if (job->is_done && job->status == FCAP_CORRUPT) {
            object_list_add(&restore->bad, job->file->object, 0);
        }
    }
    object_list_sort(&restore->good);
    object_list_sort(&restore->bad);
}

enum fcap_status restore_copy_files(struct restore *restore, const struct fcap_checkpoint *snapshot,
                                    const char *directory, struct fcap_error *error)
{
    const struct fcap_restore_settings *settings = restore->settings;
    struct copying copying = {.restore = restore,
                              .directory = directory,
                              .rate.bytes_per_second = settings->rate_limit_bytes_per_second};
    pthread_condattr_t monotonic;
    FCAP_ASSERT(copying.rate.bytes_per_second == 0 || settings->clock != NULL);
    FCAP_ASSERT(pthread_mutex_init(&copying.lock, NULL) == 0);
    FCAP_ASSERT(pthread_condattr_init(&monotonic) == 0);
    FCAP_ASSERT(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
    FCAP_ASSERT(pthread_cond_init(&copying.changed, &monotonic) == 0);
    (void)pthread_condattr_destroy(&monotonic);
    plan(&copying, snapshot);
    const size_t wanted =
        settings->threads < copying.job_count ? settings->threads : copying.job_count;
    pthread_t *threads = calloc(wanted + 1, sizeof threads[0]);
    FCAP_ASSERT(threads != NULL);
    const size_t started = wanted > 1 ? start(&copying, threads, wanted) : 0;
    if (started > 0) {
        lead(&copying);
    } else {
        copy_files(&copying, true);
    }
    for (size_t i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL); /* It has ended, or is about to. */
    }
    restore_tell_progress(restore);
    remember(&copying);
    if (copying.status != FCAP_OK) {
        (void)fcap_error_set(error, copying.status, "%s", copying.error.text);
    }
    free(threads);
    free(copying.jobs);
    (void)pthread_cond_destroy(&copying.changed);
    (void)pthread_mutex_destroy(&copying.lock); /* Nobody holds it. */
    return copying.status;
}
