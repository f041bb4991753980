/* objects_writer DIRECTORY DONE rename|link COUNT: writes so many objects, takes the lock and
 * sweeps before, and appends to the file DONE the number of each that is finished. It has the named
 * points, and may do without renameat2. Ended by whoever started it, mostly. */
#include "fcap/objects.h"
#include "integration/objects_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_link;

int __real_renameat2(int from, const char *name, int to, const char *new_name, unsigned int flags);
int __wrap_renameat2(int from, const char *name, int to, const char *new_name, unsigned int flags);

int __wrap_renameat2(int from, const char *name, int to, const char *new_name, unsigned int flags)
{
    if (is_link) {
        errno = EINVAL;
        return -1;
    }
    return __real_renameat2(from, name, to, new_name, flags);
}

static bool note_number(void *context, const char *name, uint64_t size)
{
    unsigned number = 0;
    (void)size;
    if (sscanf(name, OBJECTS_WRITER_FORMAT, &number) == 1) {
        *(unsigned *)context = number + 1;
    }
    return true;
}

static bool write_one(struct fcap_objects *objects, unsigned number, struct fcap_error *error)
{
    static uint8_t bytes[OBJECTS_WRITER_BYTES_MAX];
    char name[64];
    struct fcap_object_writer *writer = NULL;
    size_t size = objects_writer_size(number);
    objects_writer_fill(number, bytes);
    (void)snprintf(name, sizeof name, OBJECTS_WRITER_FORMAT, number);
    if (objects->ops->begin(objects, name, &writer, error) != FCAP_OK) {
        return false;
    }
    for (size_t at = 0; at < size; at += OBJECTS_WRITER_PIECE) {
        size_t left = size - at;
        struct fcap_bytes piece = {bytes + at,
                                   left < OBJECTS_WRITER_PIECE ? left : OBJECTS_WRITER_PIECE};
        if (objects->ops->write(objects, writer, piece, error) != FCAP_OK) {
            objects->ops->abandon(objects, writer);
            return false;
        }
    }
    return objects->ops->finish(objects, writer, error) == FCAP_OK;
}

static bool note_done(const char *path, unsigned number)
{
    char line[16];
    int size = snprintf(line, sizeof line, "%u\n", number);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    bool done = file >= 0 && write(file, line, (size_t)size) == size;
    return file >= 0 && close(file) == 0 && done;
}

int main(int argument_count, char **arguments)
{
    struct fcap_objects *objects = NULL;
    struct fcap_object_lock *lock = NULL;
    struct fcap_error error = {{0}};
    unsigned next = 1;
    if (argument_count != 5) {
        return 64;
    }
    is_link = strcmp(arguments[3], "link") == 0;
    bool good = fcap_objects_directory_open(arguments[1], false, &objects, &error) == FCAP_OK &&
                objects->ops->lock(objects, OBJECTS_WRITER_PREFIX, "objects_writer", &lock,
                                   &error) == FCAP_OK &&
                objects->ops->sweep(objects, OBJECTS_WRITER_PREFIX, &error) == FCAP_OK &&
                objects->ops->list(objects, "", note_number, &next, &error) == FCAP_OK;
    unsigned end = next + (unsigned)strtoul(arguments[4], NULL, 10);
    for (; good && next < end; next++) {
        good = write_one(objects, next, &error) && note_done(arguments[2], next);
    }
    if (!good) {
        (void)fprintf(stderr, "objects_writer: %s\n", error.text);
    }
    if (objects != NULL) {
        objects->ops->unlock(objects, lock);
    }
    fcap_objects_directory_close(objects);
    return good ? 0 : 1;
}
