/* What objects_writer writes and test_objects_directory looks for. */
#ifndef FCAP_TESTS_OBJECTS_WRITER_H
#define FCAP_TESTS_OBJECTS_WRITER_H

#include <stddef.h>
#include <stdint.h>

#define OBJECTS_WRITER_PREFIX "w/deep/"
#define OBJECTS_WRITER_FORMAT OBJECTS_WRITER_PREFIX "o-%06u"

enum { OBJECTS_WRITER_PIECE = 8192, OBJECTS_WRITER_BYTES_MAX = 60000 };

/* Bytes of object `number`. */
static inline size_t objects_writer_size(unsigned number)
{
    return (size_t)number * 7919 % OBJECTS_WRITER_BYTES_MAX;
}

static inline void objects_writer_fill(unsigned number, uint8_t bytes[OBJECTS_WRITER_BYTES_MAX])
{
    for (size_t i = 0; i < objects_writer_size(number); i++) {
        bytes[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
    }
}

#endif
