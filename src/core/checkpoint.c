/* The manifest's text (docs/DATA.md, "Checkpoints"). Every line has one spelling, so that a
 * manifest that was read is written again byte for byte. */
#include "fcap/checkpoint.h"

#include "fcap/assert.h"
#include "fcap/key.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE "fcap-checkpoint 1\n"
#define LAST_WORD  "end "

enum { HASH_DIGITS = 16, LAST_LINE_BYTES = 4 + HASH_DIGITS + 1, FIELDS_MAX = 5 };

void fcap_checkpoint_done(struct fcap_checkpoint *checkpoint)
{
    if (checkpoint == NULL) {
        return;
    }
    free(checkpoint->files);
    free(checkpoint->segments);
    free(checkpoint->partitions);
    *checkpoint = (struct fcap_checkpoint){0};
}

/* Room for one more behind `count`: doubled at the powers of two. */
static void *grown(void *array, size_t count, size_t entry_bytes)
{
    if ((count & (count - 1)) == 0) {
        array = realloc(array, (count == 0 ? 1 : count * 2) * entry_bytes);
        FCAP_ASSERT(array != NULL);
    }
    return array;
}

void fcap_checkpoint_add_file(struct fcap_checkpoint *checkpoint,
                              const struct fcap_checkpoint_file *file)
{
    checkpoint->files = grown(checkpoint->files, checkpoint->file_count, sizeof *file);
    checkpoint->files[checkpoint->file_count++] = *file;
}

void fcap_checkpoint_add_segment(struct fcap_checkpoint *checkpoint,
                                 const struct fcap_checkpoint_segment *segment)
{
    checkpoint->segments = grown(checkpoint->segments, checkpoint->segment_count, sizeof *segment);
    checkpoint->segments[checkpoint->segment_count++] = *segment;
}

void fcap_checkpoint_set_partition(struct fcap_checkpoint *checkpoint,
                                   const struct fcap_checkpoint_partition *partition)
{
    size_t at = 0;
    while (at < checkpoint->partition_count &&
           checkpoint->partitions[at].partition < partition->partition) {
        at++;
    }
    if (at == checkpoint->partition_count ||
        checkpoint->partitions[at].partition != partition->partition) {
        checkpoint->partitions =
            grown(checkpoint->partitions, checkpoint->partition_count, sizeof *partition);
        memmove(checkpoint->partitions + at + 1, checkpoint->partitions + at,
                (checkpoint->partition_count - at) * sizeof *partition);
        checkpoint->partition_count++;
    }
    checkpoint->partitions[at] = *partition;
}

bool fcap_checkpoint_continues(const struct fcap_checkpoint *log,
                               const struct fcap_checkpoint *snapshot, size_t *ret_first)
{
    const uint64_t sequence = snapshot->snapshot_sequence;
    size_t first = 0;
    if (memcmp(&log->lineage, &snapshot->lineage, sizeof log->lineage) != 0 ||
        log->sequence < sequence) {
        return false;
    }
    while (first < log->segment_count && log->segments[first].last <= sequence) {
        first++;
    }
    *ret_first = first;
    return first < log->segment_count ? log->segments[first].first <= sequence + 1
                                      : log->sequence == sequence;
}

/* --- writing --- */

static void put_line(struct fcap_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put_line(struct fcap_buffer *buffer, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    FCAP_ASSERT(size > 0 && (size_t)size < sizeof line);
    fcap_buffer_put(buffer, line, (size_t)size);
}

void fcap_checkpoint_encode(const struct fcap_checkpoint *checkpoint, struct fcap_buffer *buffer)
{
    size_t start = buffer->size;
    char lineage[FCAP_LINEAGE_TEXT_BYTES];
    fcap_buffer_put_text(buffer, FIRST_LINE);
    put_line(buffer, "number %" PRIu64 "\n", checkpoint->number);
    put_line(buffer, "made %" PRId64 "\n", checkpoint->made_ms);
    put_line(buffer, "profile %s\n", checkpoint->profile);
    put_line(buffer, "instance %s\n", checkpoint->instance);
    put_line(buffer, "lineage %s\n", fcap_lineage_text(&checkpoint->lineage, lineage));
    put_line(buffer, "snapshot %" PRIu64 " %" PRId64 "\n", checkpoint->snapshot_sequence,
             checkpoint->snapshot_ms);
    put_line(buffer, "sequence %" PRIu64 " %" PRId64 "\n", checkpoint->sequence,
             checkpoint->written_ms);
    for (size_t i = 0; i < checkpoint->file_count; i++) {
        const struct fcap_checkpoint_file *file = &checkpoint->files[i];
        put_line(buffer, "file %s %" PRIu64 " %016" PRIx64 " %s\n", file->name, file->size,
                 file->hash, file->object);
    }
    for (size_t i = 0; i < checkpoint->segment_count; i++) {
        const struct fcap_checkpoint_segment *segment = &checkpoint->segments[i];
        put_line(buffer, "segment %" PRIu64 " %" PRIu64 " %" PRIu64 " %016" PRIx64 " %s\n",
                 segment->first, segment->last, segment->size, segment->hash, segment->object);
    }
    for (size_t i = 0; i < checkpoint->partition_count; i++) {
        const struct fcap_checkpoint_partition *partition = &checkpoint->partitions[i];
        put_line(buffer, "partition %" PRId32 " %" PRIu64 " %" PRId64 " %" PRId64 "\n",
                 partition->partition, partition->commit, partition->next_offset,
                 partition->clock_ms);
    }
    struct fcap_bytes bytes = {buffer->data + start, buffer->size - start};
    put_line(buffer, LAST_WORD "%016" PRIx64 "\n", fcap_hash64(bytes, 0));
}

/* --- reading: fields --- */

struct field {
    const char *text; /* no NUL behind it */
    size_t size;
};

static bool read_hexadecimal(struct field field, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (size_t i = 0; i < field.size; i++) {
        char c = field.text[i];
        bool is_digit = c >= '0' && c <= '9';
        if (!is_digit && !(c >= 'a' && c <= 'f')) {
            return false;
        }
        value = value << 4 | (uint64_t)(is_digit ? c - '0' : c - 'a' + 10);
    }
    *ret_value = value;
    return field.size == HASH_DIGITS;
}

static bool read_unsigned(struct field field, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (size_t i = 0; i < field.size; i++) {
        if (field.text[i] < '0' || field.text[i] > '9') {
            return false;
        }
        uint64_t digit = (uint64_t)(field.text[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *ret_value = value;
    return field.size == 1 || (field.size > 1 && field.text[0] != '0');
}

static bool read_signed(struct field field, int64_t *ret_value)
{
    uint64_t value = 0;
    bool is_negative = field.size > 0 && field.text[0] == '-';
    if (is_negative) {
        field.text++;
        field.size--;
    }
    if (!read_unsigned(field, &value) || (is_negative && value == 0) ||
        value > (uint64_t)INT64_MAX + is_negative) {
        return false;
    }
    *ret_value = (int64_t)(is_negative ? 0 - value : value);
    return true;
}

/* A name of an object, or of a part of one when `is_part`. */
static bool read_name(struct field field, bool is_part, char *name, size_t capacity)
{
    if (field.size >= capacity || memchr(field.text, '\0', field.size) != NULL) {
        return false;
    }
    memcpy(name, field.text, field.size);
    name[field.size] = '\0';
    return fcap_object_name_is_valid(name) && (!is_part || strchr(name, '/') == NULL);
}

/* Of a profile or an instance: it may begin with '.'. */
static bool read_owner(struct field field, char name[FCAP_CHECKPOINT_NAME_MAX + 1])
{
    char part[FCAP_CHECKPOINT_NAME_MAX + 2] = "_";
    if (field.size == 0 || field.size > FCAP_CHECKPOINT_NAME_MAX) {
        return false;
    }
    memcpy(name, field.text, field.size);
    name[field.size] = '\0';
    memcpy(part + 1, name, field.size + 1);
    return strlen(name) == field.size && fcap_object_name_is_valid(part) &&
           strchr(name, '/') == NULL;
}

/* --- reading: lines --- */

static bool read_number(struct fcap_checkpoint *checkpoint, const struct field *fields)
{
    return read_unsigned(fields[0], &checkpoint->number);
}

static bool read_made(struct fcap_checkpoint *checkpoint, const struct field *fields)
{
    return read_signed(fields[0], &checkpoint->made_ms);
}

static bool read_profile(struct fcap_checkpoint *checkpoint, const struct field *fields)
{
    return read_owner(fields[0], checkpoint->profile);
}

static bool read_instance(struct fcap_checkpoint *checkpoint, const struct field *fields)
{
    return read_owner(fields[0], checkpoint->instance);
}

static bool read_lineage(struct fcap_checkpoint *checkpoint, const struct field *fields)
{
    uint64_t halves[2];
    if (fields[0].size != 2 * FCAP_LINEAGE_BYTES) {
        return false;
    }
    for (size_t i = 0; i < 2; i++) {
        struct field half = {fields[0].text + HASH_DIGITS * i, HASH_DIGITS};
        if (!read_hexadecimal(half, &halves[i])) {
            return false;
        }
        for (size_t k = 0; k < 8; k++) {
            checkpoint->lineage.bytes[8 * i + k] = (uint8_t)(halves[i] >> (56 - 8 * k));
        }
    }
    return true;
}

static bool read_snapshot(struct fcap_checkpoint *checkpoint, const struct field *fields)
{
    return read_unsigned(fields[0], &checkpoint->snapshot_sequence) &&
           read_signed(fields[1], &checkpoint->snapshot_ms);
}

static bool read_sequence(struct fcap_checkpoint *checkpoint, const struct field *fields)
{
    return read_unsigned(fields[0], &checkpoint->sequence) &&
           read_signed(fields[1], &checkpoint->written_ms) &&
           checkpoint->sequence >= checkpoint->snapshot_sequence;
}

static bool read_file(struct fcap_checkpoint *checkpoint, const struct field *fields)
{
    struct fcap_checkpoint_file file;
    if (!read_name(fields[0], true, file.name, sizeof file.name) ||
        !read_unsigned(fields[1], &file.size) || !read_hexadecimal(fields[2], &file.hash) ||
        !read_name(fields[3], false, file.object, sizeof file.object)) {
        return false;
    }
    size_t count = checkpoint->file_count;
    if (count > 0 && strcmp(file.name, checkpoint->files[count - 1].name) <= 0) {
        return false; /* Two of one name would be two states. */
    }
    fcap_checkpoint_add_file(checkpoint, &file);
    return true;
}

/* The first one may begin before the snapshot, not behind it; each goes on where the one before
 * ended. */
static bool read_segment(struct fcap_checkpoint *checkpoint, const struct field *fields)
{
    struct fcap_checkpoint_segment segment;
    if (!read_unsigned(fields[0], &segment.first) || !read_unsigned(fields[1], &segment.last) ||
        !read_unsigned(fields[2], &segment.size) || !read_hexadecimal(fields[3], &segment.hash) ||
        !read_name(fields[4], false, segment.object, sizeof segment.object)) {
        return false;
    }
    size_t count = checkpoint->segment_count;
    bool follows = count > 0 ? segment.first - 1 == checkpoint->segments[count - 1].last
                             : segment.first - 1 <= checkpoint->snapshot_sequence;
    if (segment.first == 0 || segment.last < segment.first || !follows) {
        return false;
    }
    fcap_checkpoint_add_segment(checkpoint, &segment);
    return true;
}

static bool read_partition(struct fcap_checkpoint *checkpoint, const struct field *fields)
{
    struct fcap_checkpoint_partition partition;
    int64_t number = 0;
    if (!read_signed(fields[0], &number) || number < 0 || number > FCAP_PARTITION_MAX ||
        !read_unsigned(fields[1], &partition.commit) ||
        !read_signed(fields[2], &partition.next_offset) ||
        !read_signed(fields[3], &partition.clock_ms)) {
        return false;
    }
    size_t count = checkpoint->partition_count;
    if (count > 0 && number <= checkpoint->partitions[count - 1].partition) {
        return false;
    }
    partition.partition = (int32_t)number;
    fcap_checkpoint_set_partition(checkpoint, &partition);
    return true;
}

/* In the order of the lines. */
static const struct kind {
    const char *word;
    size_t fields;
    bool is_one; /* exactly one line of it; else as many as there are */
    bool (*read)(struct fcap_checkpoint *checkpoint, const struct field *fields);
} kinds[] = {
    {"number", 1, true, read_number},     {"made", 1, true, read_made},
    {"profile", 1, true, read_profile},   {"instance", 1, true, read_instance},
    {"lineage", 1, true, read_lineage},   {"snapshot", 2, true, read_snapshot},
    {"sequence", 2, true, read_sequence}, {"file", 4, false, read_file},
    {"segment", 5, false, read_segment},  {"partition", 4, false, read_partition},
};

/* Divides a line at its blanks; false: it has not so many fields behind this word. */
static bool divide(const char *line, size_t size, const struct kind *kind,
                   struct field fields[FIELDS_MAX])
{
    size_t word = strlen(kind->word);
    const char *at = line + word;
    const char *end = line + size;
    for (size_t i = 0; i < kind->fields; i++) {
        if (at == end || *at != ' ') {
            return false;
        }
        at++;
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        fields[i] = (struct field){at, (size_t)((blank != NULL ? blank : end) - at)};
        at = fields[i].text + fields[i].size;
    }
    return at == end;
}

static bool is_of(const char *line, size_t size, const struct kind *kind)
{
    size_t word = strlen(kind->word);
    return size > word && memcmp(line, kind->word, word) == 0 && line[word] == ' ';
}

/* The lines between the first and the last; gives the number of the line that is wrong, or 0. */
static size_t read_lines(const char *at, const char *end, struct fcap_checkpoint *checkpoint)
{
    size_t kind = 0;
    size_t number = 2;
    for (; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        struct field fields[FIELDS_MAX];
        size_t size = newline != NULL ? (size_t)(newline - at) : 0;
        while (kind < sizeof kinds / sizeof kinds[0] && !kinds[kind].is_one &&
               !is_of(at, size, &kinds[kind])) {
            kind++;
        }
        if (kind == sizeof kinds / sizeof kinds[0] || !is_of(at, size, &kinds[kind]) ||
            !divide(at, size, &kinds[kind], fields) || !kinds[kind].read(checkpoint, fields)) {
            return number;
        }
        kind += kinds[kind].is_one;
        at += size + 1;
    }
    uint64_t last = checkpoint->segment_count > 0
                        ? checkpoint->segments[checkpoint->segment_count - 1].last
                        : checkpoint->snapshot_sequence;
    bool is_whole = !(kind < sizeof kinds / sizeof kinds[0] && kinds[kind].is_one) &&
                    checkpoint->sequence == last;
    return is_whole ? 0 : number;
}

enum fcap_status fcap_checkpoint_decode(struct fcap_bytes bytes,
                                        struct fcap_checkpoint *ret_checkpoint,
                                        struct fcap_error *error)
{
    static const char first[] = FIRST_LINE;
    const char *text = (const char *)bytes.data;
    uint64_t hash = 0;
    size_t size = bytes.size < LAST_LINE_BYTES ? 0 : bytes.size - LAST_LINE_BYTES;
    struct fcap_bytes hashed = {bytes.data, size};
    if (size == 0 || memcmp(text + size, LAST_WORD, strlen(LAST_WORD)) != 0 ||
        text[bytes.size - 1] != '\n' || text[size - 1] != '\n' ||
        !read_hexadecimal((struct field){text + size + strlen(LAST_WORD), HASH_DIGITS}, &hash) ||
        hash != fcap_hash64(hashed, 0)) {
        return fcap_error_set(error, FCAP_CORRUPT,
                              "manifest: the last line is not the checksum of the others");
    }
    size_t first_bytes = strlen(first);
    size_t version_at = first_bytes - 2; /* One digit and the end of the line. */
    if (size < first_bytes || memcmp(text, first, version_at) != 0) {
        return fcap_error_set(error, FCAP_CORRUPT, "manifest: line 1 is not that of a manifest");
    }
    if (memcmp(text, first, first_bytes) != 0) {
        return fcap_error_set(error, FCAP_FORMAT, "manifest: line 1 tells another version");
    }
    struct fcap_checkpoint checkpoint = {0};
    size_t wrong = read_lines(text + first_bytes, text + size, &checkpoint);
    if (wrong != 0) {
        fcap_checkpoint_done(&checkpoint);
        return fcap_error_set(error, FCAP_CORRUPT,
                              "manifest: line %zu is not what has to stand there", wrong);
    }
    *ret_checkpoint = checkpoint;
    return FCAP_OK;
}
