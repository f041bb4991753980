#include "lib/fake_spill.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

struct fake_spill_file {
    struct fcap_buffer bytes; /* be32 size, record, ... */
    bool is_sealed;
};

static struct fake_spill *fake_of(struct fcap_spill *port)
{
    return (struct fake_spill *)port;
}

static enum fcap_status add(struct fcap_spill *port, size_t count, size_t *ret_first)
{
    struct fake_spill *fake = fake_of(port);
    fake->files = realloc(fake->files, (fake->count + count) * sizeof *fake->files);
    FCAP_ASSERT(fake->files != NULL);
    memset(fake->files + fake->count, 0, count * sizeof *fake->files);
    *ret_first = fake->count;
    fake->count += count;
    return FCAP_OK;
}

static enum fcap_status put(struct fcap_spill *port, size_t file, struct fcap_bytes record)
{
    struct fake_spill *fake = fake_of(port);
    FCAP_ASSERT(file < fake->count && !fake->files[file].is_sealed);
    size_t size = record.size + 4;
    if (fake->bytes_max > 0 && fake->bytes + size > fake->bytes_max) {
        return FCAP_NO_SPACE;
    }
    fcap_buffer_put_be32(&fake->files[file].bytes, (uint32_t)record.size);
    fcap_buffer_put_bytes(&fake->files[file].bytes, record);
    fake->bytes += size;
    fake->bytes_top = fake->bytes > fake->bytes_top ? fake->bytes : fake->bytes_top;
    return FCAP_OK;
}

static enum fcap_status seal(struct fcap_spill *port, size_t file)
{
    struct fake_spill *fake = fake_of(port);
    FCAP_ASSERT(file < fake->count);
    fake->files[file].is_sealed = true;
    return FCAP_OK;
}

static enum fcap_status read_records(struct fcap_spill *port, size_t file,
                                     fcap_spill_visitor visitor, void *context, uint64_t *position,
                                     bool *ret_end)
{
    struct fake_spill *fake = fake_of(port);
    FCAP_ASSERT(file < fake->count && fake->files[file].is_sealed);
    if (fake->damaged) {
        return FCAP_CORRUPT;
    }
    const struct fcap_buffer *bytes = &fake->files[file].bytes;
    bool goes_on = true;
    while (goes_on && *position < bytes->size) {
        struct fcap_bytes rest = {bytes->data + *position, bytes->size - (size_t)*position};
        struct fcap_reader reader = fcap_reader_of(rest);
        size_t size = fcap_reader_be32(&reader);
        /* A copy of its own: a view that is kept is found by the sanitizer. */
        uint8_t *copy = malloc(size + 1);
        FCAP_ASSERT(copy != NULL);
        memcpy(copy, fcap_reader_take(&reader, size).data, size);
        FCAP_ASSERT(!reader.failed);
        goes_on = visitor(context, (struct fcap_bytes){copy, size});
        free(copy);
        *position += 4 + size;
    }
    *ret_end = *position == bytes->size;
    return FCAP_OK;
}

static void drop(struct fcap_spill *port, size_t file)
{
    struct fake_spill *fake = fake_of(port);
    FCAP_ASSERT(file < fake->count);
    fake->bytes -= fake->files[file].bytes.size;
    fcap_buffer_done(&fake->files[file].bytes);
    fake->files[file].is_sealed = true;
}

static uint64_t disk_bytes(struct fcap_spill *port)
{
    return fake_of(port)->bytes_top;
}

void fake_spill_init(struct fake_spill *spill)
{
    static const struct fcap_spill_ops ops = {.add = add,
                                              .put = put,
                                              .seal = seal,
                                              .read = read_records,
                                              .drop = drop,
                                              .disk_bytes = disk_bytes};
    *spill = (struct fake_spill){.port = {&ops}};
}

void fake_spill_done(struct fake_spill *spill)
{
    for (size_t i = 0; i < spill->count; i++) {
        fcap_buffer_done(&spill->files[i].bytes);
    }
    free(spill->files);
    *spill = (struct fake_spill){0};
}
