/* One nameless file in blocks; each logical file is a list of them. A descriptor a file would reach
 * the limit on open files, and punching holes is not for every file system. */
#include "fcap/spill.h"

#include "fcap/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_BYTES_MIN = 512, BLOCK_BYTES_MAX = 16 << 20 };

/* A block of a logical file, written and never changed. */
struct block {
    uint64_t hash;
    uint32_t index; /* where it lies, in blocks */
    uint32_t size;  /* bytes used; the whole block but for the last one */
};

struct spill_file {
    struct block *blocks;
    size_t count;
    size_t capacity;
    uint8_t *buffer; /* the block being filled, or NULL */
    size_t used;
    bool is_sealed;
};

struct spill {
    struct fcap_spill port; /* first */
    int descriptor;
    size_t block_bytes;
    struct spill_file *files;
    size_t file_count;
    size_t file_capacity;
    uint32_t block_count; /* of the disk's file */
    uint32_t *free_blocks;
    size_t free_count;
    size_t free_capacity;
    uint8_t *page;             /* the block being read */
    struct fcap_buffer record; /* one that lies in several blocks */
    struct fcap_error error;
};

static struct spill *spill_of(struct fcap_spill *port)
{
    return (struct spill *)port;
}

static void *grown(void *array, size_t *capacity, size_t entry_bytes)
{
    *capacity = *capacity * 2 + 16;
    array = realloc(array, *capacity * entry_bytes);
    FCAP_ASSERT(array != NULL);
    return array;
}

static enum fcap_status fail(struct spill *spill, const char *what, int code)
{
    bool is_full = code == ENOSPC || code == EDQUOT || code == EFBIG;
    return fcap_error_set(&spill->error, is_full ? FCAP_NO_SPACE : FCAP_IO, "spill: %s: %s", what,
                          strerror(code));
}

/* --- writing --- */

static enum fcap_status write_all(struct spill *spill, const uint8_t *data, size_t size,
                                  uint64_t offset)
{
    while (size > 0) {
        ssize_t written = pwrite(spill->descriptor, data, size, (off_t)offset);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return fail(spill, "write", written < 0 ? errno : ENOSPC);
        }
        data += written;
        size -= (size_t)written;
        offset += (uint64_t)written;
    }
    return FCAP_OK;
}

/* Writes what the buffer holds as the file's next block. */
static enum fcap_status flush(struct spill *spill, struct spill_file *file)
{
    if (spill->free_count == 0 && spill->block_count == UINT32_MAX) {
        return fcap_error_set(&spill->error, FCAP_LIMIT, "spill: too many blocks");
    }
    uint32_t index =
        spill->free_count > 0 ? spill->free_blocks[spill->free_count - 1] : spill->block_count;
    enum fcap_status status =
        write_all(spill, file->buffer, file->used, (uint64_t)index * spill->block_bytes);
    if (status != FCAP_OK) {
        return status;
    }
    if (spill->free_count > 0) {
        spill->free_count--;
    } else {
        spill->block_count++;
    }
    if (file->count == file->capacity) {
        file->blocks = grown(file->blocks, &file->capacity, sizeof *file->blocks);
    }
    /* The seed is the place: a whole block of another place is no better than a torn one. */
    uint64_t hash = fcap_hash64((struct fcap_bytes){file->buffer, file->used}, index);
    file->blocks[file->count++] = (struct block){hash, index, (uint32_t)file->used};
    file->used = 0;
    return FCAP_OK;
}

static enum fcap_status append(struct spill *spill, struct spill_file *file, const uint8_t *data,
                               size_t size)
{
    while (size > 0) {
        size_t room = spill->block_bytes - file->used;
        size_t part = size < room ? size : room;
        memcpy(file->buffer + file->used, data, part);
        file->used += part;
        data += part;
        size -= part;
        if (file->used == spill->block_bytes) {
            enum fcap_status status = flush(spill, file);
            if (status != FCAP_OK) {
                return status;
            }
        }
    }
    return FCAP_OK;
}

static enum fcap_status add(struct fcap_spill *port, size_t count, size_t *ret_first)
{
    struct spill *spill = spill_of(port);
    while (spill->file_count + count > spill->file_capacity) {
        spill->files = grown(spill->files, &spill->file_capacity, sizeof *spill->files);
    }
    memset(spill->files + spill->file_count, 0, count * sizeof *spill->files);
    *ret_first = spill->file_count;
    spill->file_count += count;
    return FCAP_OK;
}

static enum fcap_status put(struct fcap_spill *port, size_t file, struct fcap_bytes record)
{
    struct spill *spill = spill_of(port);
    FCAP_ASSERT(file < spill->file_count && !spill->files[file].is_sealed);
    struct spill_file *own = &spill->files[file];
    if (own->buffer == NULL) {
        own->buffer = malloc(spill->block_bytes);
        FCAP_ASSERT(own->buffer != NULL);
    }
    uint8_t head[FCAP_VARINT_MAX];
    size_t head_size = fcap_varint_write(head, record.size);
    enum fcap_status status = append(spill, own, head, head_size);
    return status == FCAP_OK ? append(spill, own, record.data, record.size) : status;
}

static enum fcap_status seal(struct fcap_spill *port, size_t file)
{
    struct spill *spill = spill_of(port);
    FCAP_ASSERT(file < spill->file_count);
    struct spill_file *own = &spill->files[file];
    enum fcap_status status = own->used > 0 ? flush(spill, own) : FCAP_OK;
    free(own->buffer);
    own->buffer = NULL;
    own->is_sealed = true;
    return status;
}

/* --- reading --- */

/* A place in the bytes of one logical file. */
struct cursor {
    struct spill *spill;
    const struct spill_file *file;
    size_t block;
    size_t at; /* in the block */
    bool loaded;
    enum fcap_status status;
};

static bool at_end(const struct cursor *cursor)
{
    return cursor->block == cursor->file->count;
}

static bool load(struct cursor *cursor)
{
    if (cursor->loaded) {
        return true;
    }
    struct spill *spill = cursor->spill;
    const struct block *block = &cursor->file->blocks[cursor->block];
    uint64_t offset = (uint64_t)block->index * spill->block_bytes;
    size_t size = 0;
    while (size < block->size) {
        ssize_t part = pread(spill->descriptor, spill->page + size, block->size - size,
                             (off_t)(offset + size));
        if (part < 0 && errno == EINTR) {
            continue;
        }
        if (part < 0) {
            cursor->status = fail(spill, "read", errno);
            return false;
        }
        if (part == 0) {
            break; /* It was cut: what is missing cannot have the right checksum. */
        }
        size += (size_t)part;
    }
    if (size < block->size ||
        fcap_hash64((struct fcap_bytes){spill->page, size}, block->index) != block->hash) {
        cursor->status = fcap_error_set(&spill->error, FCAP_CORRUPT,
                                        "spill: the disk gave other bytes than it was given");
        return false;
    }
    cursor->loaded = true;
    return true;
}

static void advance(struct cursor *cursor, size_t size)
{
    cursor->at += size;
    if (cursor->at == cursor->file->blocks[cursor->block].size) {
        cursor->block++;
        cursor->at = 0;
        cursor->loaded = false;
    }
}

/* Views of the block where possible, a copy of what lies in several; false: `status` says why. */
static bool take(struct cursor *cursor, size_t size, struct fcap_bytes *ret_bytes)
{
    struct spill *spill = cursor->spill;
    fcap_buffer_clear(&spill->record);
    *ret_bytes = (struct fcap_bytes){(const uint8_t *)"", 0};
    while (size > 0) {
        if (at_end(cursor)) {
            cursor->status =
                fcap_error_set(&spill->error, FCAP_CORRUPT, "spill: a file ends within a record");
            return false;
        }
        if (!load(cursor)) {
            return false;
        }
        size_t left = cursor->file->blocks[cursor->block].size - cursor->at;
        size_t part = size < left ? size : left;
        const uint8_t *data = spill->page + cursor->at;
        advance(cursor, part); /* The page stays as it is until the next load. */
        if (part == size && spill->record.size == 0) {
            *ret_bytes = (struct fcap_bytes){data, part};
            return true;
        }
        fcap_buffer_put(&spill->record, data, part);
        *ret_bytes = fcap_buffer_bytes(&spill->record);
        size -= part;
    }
    return true;
}

static bool take_size(struct cursor *cursor, size_t *ret_size)
{
    uint64_t size = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        struct fcap_bytes byte;
        if (!take(cursor, 1, &byte)) {
            return false;
        }
        size |= (uint64_t)(byte.data[0] & 0x7F) << shift;
        if (byte.data[0] < 0x80) {
            *ret_size = (size_t)size;
            return true;
        }
    }
    cursor->status = fcap_error_set(&cursor->spill->error, FCAP_CORRUPT, "spill: no such size");
    return false;
}

static enum fcap_status read_records(struct fcap_spill *port, size_t file,
                                     fcap_spill_visitor visitor, void *context, uint64_t *position,
                                     bool *ret_end)
{
    struct spill *spill = spill_of(port);
    FCAP_ASSERT(file < spill->file_count && spill->files[file].is_sealed);
    struct cursor cursor = {
        .spill = spill,
        .file = &spill->files[file],
        .block = (size_t)(*position / spill->block_bytes),
        .at = (size_t)(*position % spill->block_bytes),
    };
    FCAP_ASSERT(cursor.block <= cursor.file->count);
    bool goes_on = true;
    while (goes_on && !at_end(&cursor)) {
        size_t size = 0;
        struct fcap_bytes record;
        if (!take_size(&cursor, &size) || !take(&cursor, size, &record)) {
            return cursor.status;
        }
        goes_on = visitor(context, record);
        *position = (uint64_t)cursor.block * spill->block_bytes + cursor.at;
    }
    *ret_end = at_end(&cursor);
    return FCAP_OK;
}

/* --- the rest --- */

static void drop(struct fcap_spill *port, size_t file)
{
    struct spill *spill = spill_of(port);
    FCAP_ASSERT(file < spill->file_count);
    struct spill_file *own = &spill->files[file];
    for (size_t i = 0; i < own->count; i++) {
        if (spill->free_count == spill->free_capacity) {
            spill->free_blocks =
                grown(spill->free_blocks, &spill->free_capacity, sizeof *spill->free_blocks);
        }
        spill->free_blocks[spill->free_count++] = own->blocks[i].index;
    }
    free(own->blocks);
    free(own->buffer);
    *own = (struct spill_file){.is_sealed = true};
}

static uint64_t disk_bytes(struct fcap_spill *port)
{
    return (uint64_t)spill_of(port)->block_count * spill_of(port)->block_bytes;
}

/* A file without a name, also where the file system knows none such (NFS, some overlays). */
static int open_nameless(const char *directory)
{
    int descriptor = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) {
        return descriptor;
    }
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/fcapd-spill-XXXXXX", directory) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    descriptor = mkostemp(path, O_CLOEXEC);
    if (descriptor >= 0 && unlink(path) != 0) {
        int code = errno;
        (void)close(descriptor); /* The reason is the other one. */
        errno = code;
        return -1;
    }
    return descriptor;
}

enum fcap_status fcap_spill_file_open(const char *directory, size_t block_bytes,
                                      struct fcap_spill **ret_spill, struct fcap_error *error)
{
    static const struct fcap_spill_ops ops = {.add = add,
                                              .put = put,
                                              .seal = seal,
                                              .read = read_records,
                                              .drop = drop,
                                              .disk_bytes = disk_bytes};
    FCAP_ASSERT(block_bytes >= BLOCK_BYTES_MIN && block_bytes <= BLOCK_BYTES_MAX);
    int descriptor = open_nameless(directory);
    if (descriptor < 0) {
        return fcap_error_set(error, errno == ENOSPC ? FCAP_NO_SPACE : FCAP_IO,
                              "spill: a file without a name in %s: %s", directory, strerror(errno));
    }
    struct spill *spill = calloc(1, sizeof *spill);
    FCAP_ASSERT(spill != NULL);
    spill->port.ops = &ops;
    spill->descriptor = descriptor;
    spill->block_bytes = block_bytes;
    spill->page = malloc(block_bytes);
    FCAP_ASSERT(spill->page != NULL);
    *ret_spill = &spill->port;
    return FCAP_OK;
}

void fcap_spill_file_close(struct fcap_spill *port)
{
    if (port == NULL) {
        return;
    }
    struct spill *spill = spill_of(port);
    for (size_t i = 0; i < spill->file_count; i++) {
        free(spill->files[i].blocks);
        free(spill->files[i].buffer);
    }
    free(spill->files);
    free(spill->free_blocks);
    free(spill->page);
    fcap_buffer_done(&spill->record);
    (void)close(spill->descriptor); /* Nothing of it is wanted any more. */
    free(spill);
}

const char *fcap_spill_file_error(const struct fcap_spill *port)
{
    return ((const struct spill *)port)->error.text;
}
