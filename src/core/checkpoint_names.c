/* Names of a checkpoint's objects, and the checksum of their bytes. */
#include "fcap/checkpoint.h"

#include "fcap/assert.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MANIFEST "manifest-"
#define SEGMENT  "changelog-"
#define SNAPPED  "file-"

enum { NUMBER_DIGITS = 20 };

static const char *print_name(char name[FCAP_OBJECT_NAME_MAX + 1], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static const char *print_name(char name[FCAP_OBJECT_NAME_MAX + 1], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(name, FCAP_OBJECT_NAME_MAX + 1, format, arguments);
    va_end(arguments);
    FCAP_ASSERT(size > 0 && size <= FCAP_OBJECT_NAME_MAX);
    return name;
}

/* No part of a name begins with '.', and no two names may meet: what begins with '.' gets a '_' in
 * front, and so does what begins with '_'. */
static const char *escape_of(const char *text)
{
    FCAP_ASSERT(text[0] != '\0' && strlen(text) <= FCAP_CHECKPOINT_NAME_MAX);
    return text[0] == '.' || text[0] == '_' ? "_" : "";
}

const char *fcap_checkpoint_prefix(const char *profile, const char *instance,
                                   char name[FCAP_OBJECT_NAME_MAX + 1])
{
    return print_name(name, "%s%s/%s%s/", escape_of(profile), profile, escape_of(instance),
                      instance);
}

const char *fcap_checkpoint_manifest_name(const char *prefix, uint64_t number,
                                          char name[FCAP_OBJECT_NAME_MAX + 1])
{
    return print_name(name, "%s" MANIFEST "%020" PRIu64, prefix, number);
}

const char *fcap_checkpoint_segment_name(const char *prefix, uint64_t first,
                                         const struct fcap_lineage *lineage, uint64_t unique,
                                         char name[FCAP_OBJECT_NAME_MAX + 1])
{
    char text[FCAP_LINEAGE_TEXT_BYTES];
    return print_name(name, "%s" SEGMENT "%s-%020" PRIu64 "-%020" PRIu64, prefix,
                      fcap_lineage_text(lineage, text), first, unique);
}

const char *fcap_checkpoint_file_name(const char *prefix, const char *file,
                                      const struct fcap_lineage *lineage, uint64_t unique,
                                      char name[FCAP_OBJECT_NAME_MAX + 1])
{
    char text[FCAP_LINEAGE_TEXT_BYTES];
    return print_name(name, "%s" SNAPPED "%s-%020" PRIu64 "-%s", prefix,
                      fcap_lineage_text(lineage, text), unique, file);
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

bool fcap_checkpoint_is_own(const char *prefix, const char *name)
{
    if (!starts_with(name, prefix) || strchr(name + strlen(prefix), '/') != NULL) {
        return false;
    }
    const char *last = name + strlen(prefix);
    return starts_with(last, MANIFEST) || starts_with(last, SEGMENT) || starts_with(last, SNAPPED);
}

bool fcap_checkpoint_is_manifest(const char *name, size_t *ret_prefix_size, uint64_t *ret_number)
{
    const char *slash = strrchr(name, '/');
    const char *at = slash != NULL ? slash + 1 : name;
    size_t prefix_size = (size_t)(at - name);
    if (strncmp(at, MANIFEST, strlen(MANIFEST)) != 0 ||
        strlen(at) != strlen(MANIFEST) + NUMBER_DIGITS) {
        return false;
    }
    uint64_t number = 0;
    for (at += strlen(MANIFEST); *at != '\0'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (*at < '0' || *at > '9' || number > (UINT64_MAX - digit) / 10) {
            return false;
        }
        number = number * 10 + digit;
    }
    *ret_prefix_size = prefix_size;
    *ret_number = number;
    return true;
}

void fcap_checkpoint_hash_add(struct fcap_checkpoint_hash *hash, struct fcap_bytes bytes)
{
    while (bytes.size > 0) {
        size_t room = FCAP_CHECKPOINT_PIECE - hash->piece.size;
        struct fcap_bytes part = {bytes.data, bytes.size < room ? bytes.size : room};
        if (part.size == FCAP_CHECKPOINT_PIECE) { /* No copy of whole pieces. */
            hash->hash = fcap_hash64(part, hash->hash);
        } else {
            fcap_buffer_put_bytes(&hash->piece, part);
        }
        if (hash->piece.size == FCAP_CHECKPOINT_PIECE) {
            hash->hash = fcap_hash64(fcap_buffer_bytes(&hash->piece), hash->hash);
            fcap_buffer_clear(&hash->piece);
        }
        bytes.data += part.size;
        bytes.size -= part.size;
    }
}

uint64_t fcap_checkpoint_hash_end(struct fcap_checkpoint_hash *hash)
{
    uint64_t result = hash->piece.size > 0
                          ? fcap_hash64(fcap_buffer_bytes(&hash->piece), hash->hash)
                          : hash->hash;
    fcap_buffer_done(&hash->piece);
    *hash = (struct fcap_checkpoint_hash){0};
    return result;
}
