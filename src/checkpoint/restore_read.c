/* Reading objects back, with all that tells whether they are what they should be. */
#include "restore_internal.h"

#include <inttypes.h>
#include <string.h>

enum fcap_status restore_judge(const char *name, enum fcap_status status, struct fcap_error *error)
{
    if (status == FCAP_UNAVAILABLE || status == FCAP_TIMEOUT || status == FCAP_BUSY) {
        return status;
    }
    fcap_error_prefix(error, name);
    return FCAP_CORRUPT;
}

void restore_tell_progress(struct restore *restore)
{
    if (restore->settings->progress != NULL) {
        restore->settings->progress(restore->settings->context, restore->bytes, restore->bytes_all);
    }
}

bool restore_is_cancelled(const struct restore *restore, struct fcap_error *error)
{
    const struct fcap_restore_settings *settings = restore->settings;
    if (settings->is_cancelled == NULL || !settings->is_cancelled(settings->context)) {
        return false;
    }
    (void)fcap_error_set(error, FCAP_STOPPED, "the restore was stopped before its end");
    return true;
}

/* --- segments -------------------------------------------------------------------------------- */

struct segment_reading {
    struct restore *restore;
    const struct fcap_checkpoint_segment *segment;
    struct fcap_checkpoint_hash hash;
    struct fcap_buffer bytes; /* read, not used */
    uint64_t offset;          /* of what is to be read next */
    struct fcap_changelog_reader reader;
    struct fcap_changelog_frame frame;
    uint64_t last; /* the last frame's number; 0: none yet */
};

/* Reads the next piece behind what is left. *ret_end: there is none. */
static enum fcap_status read_more(struct segment_reading *reading, bool *ret_end,
                                  struct fcap_error *error)
{
    struct fcap_objects *objects = reading->restore->objects;
    const char *name = reading->segment->object;
    size_t size = 0;
    if (restore_is_cancelled(reading->restore, error)) {
        return FCAP_STOPPED;
    }
    uint8_t *at = fcap_buffer_reserve(&reading->bytes, FCAP_CHECKPOINT_PIECE);
    enum fcap_status status =
        objects->ops->read(objects, name, reading->offset, at, FCAP_CHECKPOINT_PIECE, &size, error);
    if (status != FCAP_OK) {
        return restore_judge(name, status, error);
    }
    fcap_checkpoint_hash_add(&reading->hash, (struct fcap_bytes){at, size});
    reading->bytes.size += size;
    reading->offset += size;
    *ret_end = size == 0;
    reading->restore->bytes += size;
    restore_tell_progress(reading->restore);
    return FCAP_OK;
}

static void use_up(struct fcap_buffer *bytes, size_t used)
{
    bytes->size -= used;
    memmove(bytes->data, bytes->data + used, bytes->size);
}

/* Gives every whole frame that has been read. */
static enum fcap_status give_frames(struct segment_reading *reading,
                                    const struct fcap_lineage *lineage, restore_batch batch,
                                    void *context, struct fcap_error *error)
{
    const struct fcap_checkpoint_segment *segment = reading->segment;
    size_t used = 0;
    enum fcap_status status = FCAP_OK;
    while (status == FCAP_OK) {
        size_t part = 0;
        const struct fcap_bytes rest = {reading->bytes.data + used, reading->bytes.size - used};
        enum fcap_changelog_result result =
            fcap_changelog_read(&reading->reader, rest, &part, &reading->frame);
        used += part;
        if (result == FCAP_CHANGELOG_MORE) {
            break;
        }
        bool is_ours = memcmp(&reading->reader.lineage, lineage, sizeof *lineage) == 0;
        if (result != FCAP_CHANGELOG_FRAME || !is_ours ||
            (reading->last == 0 && reading->frame.sequence != segment->first)) {
            status = fcap_error_set(error, FCAP_CORRUPT, "%s: damaged behind batch %" PRIu64,
                                    segment->object, reading->last);
            continue;
        }
        reading->last = reading->frame.sequence;
        if (batch != NULL) {
            status = batch(context, &reading->frame, error);
        }
    }
    use_up(&reading->bytes, used);
    return status;
}

enum fcap_status restore_read_segment(struct restore *restore,
                                      const struct fcap_checkpoint_segment *segment,
                                      const struct fcap_lineage *lineage, restore_batch batch,
                                      void *context, struct fcap_error *error)
{
    struct segment_reading reading = {.restore = restore, .segment = segment};
    bool is_end = false;
    enum fcap_status status = FCAP_OK;
    while (status == FCAP_OK && !is_end) {
        status = read_more(&reading, &is_end, error);
        if (status == FCAP_OK) {
            status = give_frames(&reading, lineage, batch, context, error);
        }
    }
    uint64_t hash = fcap_checkpoint_hash_end(&reading.hash);
    if (status == FCAP_OK && (reading.last != segment->last || reading.bytes.size > 0 ||
                              reading.offset != segment->size || hash != segment->hash)) {
        status = fcap_error_set(error, FCAP_CORRUPT,
                                "%s: it ends with batch %" PRIu64 " and %" PRIu64
                                " bytes, or its checksum is another",
                                segment->object, reading.last, reading.offset);
    }
    fcap_buffer_done(&reading.bytes);
    fcap_batch_done(&reading.frame.batch);
    return status;
}
