#include "transfer.h"

#include "fcap/assert.h"
#include "fcap/point.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void transfer_init(struct transfer *transfer, struct fcap_objects *objects,
                   uint64_t bytes_per_second)
{
    *transfer =
        (struct transfer){.objects = objects, .rate = {.bytes_per_second = bytes_per_second}};
    FCAP_ASSERT(pthread_mutex_init(&transfer->lock, NULL) == 0);
}

void transfer_done(struct transfer *transfer)
{
    free(transfer->jobs);
    (void)pthread_mutex_destroy(&transfer->lock); /* Nobody holds it. */
}

void transfer_clear(struct transfer *transfer, const char *directory)
{
    int size = snprintf(transfer->directory, sizeof transfer->directory, "%s", directory);
    FCAP_ASSERT(size >= 0 && (size_t)size < sizeof transfer->directory);
    (void)pthread_mutex_lock(&transfer->lock); /* A late sender may be looking for work. */
    transfer->has_begun = false;
    transfer->job_count = 0;
    transfer->next = 0;
    transfer->busy = 0;
    transfer->is_cancelled = false;
    transfer->status = FCAP_OK;
    transfer->is_local = false;
    transfer->error.text[0] = '\0';
    transfer->bytes_sent = 0;
    transfer->files_sent = 0;
    (void)pthread_mutex_unlock(&transfer->lock);
}

void transfer_begin(struct transfer *transfer)
{
    (void)pthread_mutex_lock(&transfer->lock);
    transfer->has_begun = true;
    (void)pthread_mutex_unlock(&transfer->lock);
}

struct transfer_job *transfer_add(struct transfer *transfer)
{
    if (transfer->job_count == transfer->job_capacity) {
        transfer->job_capacity = transfer->job_capacity * 2 + 64;
        transfer->jobs = realloc(transfer->jobs, transfer->job_capacity * sizeof transfer->jobs[0]);
        FCAP_ASSERT(transfer->jobs != NULL);
    }
    struct transfer_job *job = &transfer->jobs[transfer->job_count++];
    *job = (struct transfer_job){0};
    return job;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct transfer_job *)a)->file.name,
                  ((const struct transfer_job *)b)->file.name);
}

enum fcap_status transfer_read_directory(struct transfer *transfer, struct fcap_error *error)
{
    DIR *directory = opendir(transfer->directory);
    if (directory == NULL) {
        return fcap_error_set(error, FCAP_IO, "%s: %s", transfer->directory, strerror(errno));
    }
    enum fcap_status status = FCAP_OK;
    for (struct dirent *entry = readdir(directory); entry != NULL && status == FCAP_OK;
         entry = readdir(directory)) {
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (fstatat(dirfd(directory), entry->d_name, &info, 0) != 0 || !S_ISREG(info.st_mode) ||
            strlen(entry->d_name) >= sizeof transfer->jobs->file.name) {
            status = fcap_error_set(error, FCAP_IO, "%s/%s: no file of a snapshot",
                                    transfer->directory, entry->d_name);
            continue;
        }
        struct transfer_job *job = transfer_add(transfer);
        (void)snprintf(job->file.name, sizeof job->file.name, "%s", entry->d_name); /* It fits. */
        job->file.size = (uint64_t)info.st_size;
    }
    (void)closedir(directory);     /* Only read. */
    if (transfer->job_count > 0) { /* One order, whatever the file system's is. */
        qsort(transfer->jobs, transfer->job_count, sizeof transfer->jobs[0], compare_names);
    }
    return status;
}

const struct transfer_job *transfer_find(const struct transfer *transfer, const char *name)
{
    struct transfer_job wanted;
    if (transfer->job_count == 0 || strlen(name) >= sizeof wanted.file.name) {
        return NULL;
    }
    (void)snprintf(wanted.file.name, sizeof wanted.file.name, "%s", name); /* It fits. */
    return bsearch(&wanted, transfer->jobs, transfer->job_count, sizeof transfer->jobs[0],
                   compare_names);
}

/* --- one sender ----------------------------------------------------------------------------- */

static void drop_file(struct transfer *transfer, struct transfer_sender *sender)
{
    if (sender->local != NULL) {
        (void)fclose(sender->local); /* Only read. */
        sender->local = NULL;
    }
    transfer->objects->ops->abandon(transfer->objects, sender->writer);
    sender->writer = NULL;
    (void)fcap_checkpoint_hash_end(&sender->hash); /* Frees it. */
    sender->offset = 0;
    sender->job = NULL;
}

void transfer_sender_done(struct transfer *transfer, struct transfer_sender *sender)
{
    drop_file(transfer, sender);
    free(sender->piece);
    sender->piece = NULL;
}

/* The sender's file is over, well or not. */
static void end_file(struct transfer *transfer, struct transfer_sender *sender,
                     enum fcap_status status, bool is_local, const struct fcap_error *error)
{
    struct transfer_job *job = sender->job;
    const uint64_t sent = sender->writer != NULL || !job->has_twin ? job->file.size : 0;
    drop_file(transfer, sender);
    (void)pthread_mutex_lock(&transfer->lock);
    transfer->busy--;
    if (status != FCAP_OK) {
        if (transfer->status == FCAP_OK) {
            transfer->status = status;
            transfer->is_local = is_local;
            transfer->error = *error;
        }
        transfer->is_cancelled = true;
    } else {
        job->is_done = true;
        if (!job->is_kept) {
            transfer->files_sent++;
            transfer->bytes_sent += sent;
        }
    }
    (void)pthread_mutex_unlock(&transfer->lock);
}

/* Takes the next file that must be looked at. */
static bool take_job(struct transfer *transfer, struct transfer_sender *sender)
{
    (void)pthread_mutex_lock(&transfer->lock);
    if (!transfer->has_begun) {
        (void)pthread_mutex_unlock(&transfer->lock);
        return false;
    }
    while (!transfer->is_cancelled && transfer->next < transfer->job_count &&
           transfer->jobs[transfer->next].is_kept) {
        transfer->jobs[transfer->next++].is_done = true;
    }
    bool found = !transfer->is_cancelled && transfer->next < transfer->job_count;
    if (found) {
        sender->job = &transfer->jobs[transfer->next++];
        transfer->busy++;
    }
    (void)pthread_mutex_unlock(&transfer->lock);
    return found;
}

static enum fcap_status open_file(struct transfer *transfer, struct transfer_sender *sender,
                                  bool *ret_is_local, struct fcap_error *error)
{
    const struct transfer_job *job = sender->job;
    char path[sizeof transfer->directory + sizeof job->file.name + 1];
    (void)snprintf(path, sizeof path, "%s/%s", transfer->directory, job->file.name); /* Fits. */
    if (sender->piece == NULL) {
        sender->piece = malloc(FCAP_CHECKPOINT_PIECE);
        FCAP_ASSERT(sender->piece != NULL);
    }
    *ret_is_local = true;
    if (sender->local == NULL) {
        sender->local = fopen(path, "rbe");
    }
    if (sender->local == NULL) {
        return fcap_error_set(error, FCAP_IO, "%s: %s", path, strerror(errno));
    }
    if (job->has_twin) {
        return FCAP_OK; /* It is compared first. */
    }
    *ret_is_local = false;
    return transfer->objects->ops->begin(transfer->objects, job->file.object, &sender->writer,
                                         error);
}

/* All is read. Gives true when the file is over. */
static bool reached_end(struct transfer *transfer, struct transfer_sender *sender,
                        enum fcap_status *ret_status, struct fcap_error *error)
{
    struct transfer_job *job = sender->job;
    job->file.hash = fcap_checkpoint_hash_end(&sender->hash);
    if (!job->has_twin) {
        FCAP_POINT(checkpoint_file_sent);
        struct fcap_object_writer *writer = sender->writer;
        sender->writer = NULL;
        *ret_status = transfer->objects->ops->finish(transfer->objects, writer, error);
        return true;
    }
    if (job->file.hash == job->twin.hash) {
        job->file = job->twin;
        job->is_kept = true;
        *ret_status = FCAP_OK;
        return true;
    }
    job->has_twin = false; /* Another file of the same name: it is sent after all. */
    rewind(sender->local);
    sender->offset = 0;
    return false;
}

int64_t transfer_rate_pay(struct transfer_rate *rate, size_t size, int64_t now_ms)
{
    if (rate->bytes_per_second == 0) {
        return now_ms;
    }
    if (rate->free_at_us < now_ms * 1000) {
        rate->free_at_us = now_ms * 1000;
    }
    rate->free_at_us += (int64_t)((double)size * 1e6 / (double)rate->bytes_per_second);
    return rate->free_at_us / 1000;
}

static int64_t pay(struct transfer *transfer, size_t size, int64_t now_ms)
{
    (void)pthread_mutex_lock(&transfer->lock);
    int64_t due_ms = transfer_rate_pay(&transfer->rate, size, now_ms);
    (void)pthread_mutex_unlock(&transfer->lock);
    return due_ms;
}

/* Sends a piece of the open file; *ret_sent are its bytes. Gives true when the file is over. */
static bool send_piece(struct transfer *transfer, struct transfer_sender *sender, size_t *ret_sent,
                       enum fcap_status *ret_status, bool *ret_is_local, struct fcap_error *error)
{
    struct transfer_job *job = sender->job;
    *ret_is_local = true;
    size_t size = fread(sender->piece, 1, FCAP_CHECKPOINT_PIECE, sender->local);
    const struct fcap_bytes piece = {sender->piece, size};
    if (ferror(sender->local) || sender->offset + size > job->file.size ||
        (size < FCAP_CHECKPOINT_PIECE && sender->offset + size != job->file.size)) {
        *ret_status = fcap_error_set(error, FCAP_IO, "%s/%s: it cannot be read as it was",
                                     transfer->directory, job->file.name);
        return true;
    }
    *ret_is_local = false;
    fcap_checkpoint_hash_add(&sender->hash, piece);
    sender->offset += size;
    if (sender->writer != NULL && size > 0) {
        *ret_status =
            transfer->objects->ops->write(transfer->objects, sender->writer, piece, error);
        *ret_sent = size;
        FCAP_POINT(checkpoint_file_sending);
        if (*ret_status != FCAP_OK) {
            return true;
        }
    }
    return sender->offset == job->file.size && reached_end(transfer, sender, ret_status, error);
}

int64_t transfer_step(struct transfer *transfer, struct transfer_sender *sender, int64_t now_ms)
{
    enum fcap_status status = FCAP_OK;
    struct fcap_error error = {""};
    bool is_local = false;
    if (sender->job == NULL && !take_job(transfer, sender)) {
        return INT64_MAX;
    }
    (void)pthread_mutex_lock(&transfer->lock);
    bool is_cancelled = transfer->is_cancelled;
    int64_t free_at_ms =
        transfer->rate.bytes_per_second == 0 ? 0 : transfer->rate.free_at_us / 1000;
    (void)pthread_mutex_unlock(&transfer->lock);
    if (is_cancelled) {
        end_file(transfer, sender, FCAP_STOPPED, true, &error);
        return now_ms;
    }
    if (free_at_ms > now_ms) {
        return free_at_ms;
    }
    if (sender->local == NULL || (sender->writer == NULL && !sender->job->has_twin)) {
        status = open_file(transfer, sender, &is_local, &error);
        if (status != FCAP_OK) {
            end_file(transfer, sender, status, is_local, &error);
            return now_ms;
        }
    }
    size_t sent = 0;
    if (send_piece(transfer, sender, &sent, &status, &is_local, &error)) {
        end_file(transfer, sender, status, is_local, &error);
    }
    return pay(transfer, sent, now_ms);
}

void transfer_cancel(struct transfer *transfer)
{
    (void)pthread_mutex_lock(&transfer->lock);
    transfer->is_cancelled = true;
    if (transfer->status == FCAP_OK) {
        transfer->status = FCAP_STOPPED;
        transfer->is_local = true;
    }
    (void)pthread_mutex_unlock(&transfer->lock);
}

bool transfer_is_over(struct transfer *transfer)
{
    (void)pthread_mutex_lock(&transfer->lock);
    while (!transfer->is_cancelled && transfer->next < transfer->job_count &&
           transfer->jobs[transfer->next].is_kept) {
        transfer->jobs[transfer->next++].is_done = true;
    }
    bool is_over =
        transfer->busy == 0 && (transfer->is_cancelled || transfer->next == transfer->job_count);
    (void)pthread_mutex_unlock(&transfer->lock);
    return is_over;
}
