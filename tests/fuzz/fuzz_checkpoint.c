/* Any bytes as a manifest, and as the lines of one whose checksum is right: no crash, and what is
 * accepted is written again byte for byte and names nothing outside. */
#include "fcap/checkpoint.h"

#include "fuzz_main.h"

static void check(struct fcap_bytes bytes)
{
    struct fcap_checkpoint checkpoint;
    struct fcap_buffer buffer = {0};
    enum fcap_status status = fcap_checkpoint_decode(bytes, &checkpoint, NULL);
    FCAP_ASSERT(status == FCAP_OK || status == FCAP_FORMAT || status == FCAP_CORRUPT);
    if (status != FCAP_OK) {
        return;
    }
    fcap_checkpoint_encode(&checkpoint, &buffer);
    FCAP_ASSERT(fcap_bytes_equal(fcap_buffer_bytes(&buffer), bytes));
    uint64_t last = checkpoint.snapshot_sequence;
    for (size_t i = 0; i < checkpoint.segment_count; i++) {
        const struct fcap_checkpoint_segment *segment = &checkpoint.segments[i];
        FCAP_ASSERT(i == 0 ? segment->first <= last + 1 : segment->first == last + 1);
        FCAP_ASSERT(segment->last >= segment->first);
        FCAP_ASSERT(fcap_object_name_is_valid(segment->object));
        last = segment->last;
    }
    FCAP_ASSERT(last == checkpoint.sequence);
    for (size_t i = 0; i < checkpoint.file_count; i++) {
        FCAP_ASSERT(fcap_object_name_is_valid(checkpoint.files[i].object));
        FCAP_ASSERT(fcap_object_name_is_valid(checkpoint.files[i].name));
        FCAP_ASSERT(strchr(checkpoint.files[i].name, '/') == NULL);
    }
    for (size_t i = 1; i < checkpoint.partition_count; i++) {
        FCAP_ASSERT(checkpoint.partitions[i].partition > checkpoint.partitions[i - 1].partition);
    }
    char prefix[FCAP_OBJECT_NAME_MAX + 1];
    (void)fcap_checkpoint_prefix(checkpoint.profile, checkpoint.instance, prefix);
    prefix[strlen(prefix) - 1] = '\0';
    FCAP_ASSERT(fcap_object_name_is_valid(prefix));
    fcap_buffer_done(&buffer);
    fcap_checkpoint_done(&checkpoint);
}

static void check_lines(struct fcap_bytes lines)
{
    struct fcap_buffer buffer = {0};
    char end[32];
    fcap_buffer_put_bytes(&buffer, lines);
    (void)snprintf(end, sizeof end, "end %016llx\n", (unsigned long long)fcap_hash64(lines, 0));
    fcap_buffer_put_text(&buffer, end);
    check(fcap_buffer_bytes(&buffer));
    fcap_buffer_done(&buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[FCAP_OBJECT_NAME_MAX + 2];
    size_t part = size < sizeof name - 1 ? size : sizeof name - 1;
    size_t prefix_size = 0;
    uint64_t number;
    memcpy(name, data, part);
    name[part] = '\0';
    if (fcap_checkpoint_is_manifest(name, &prefix_size, &number)) {
        char again[FCAP_OBJECT_NAME_MAX + 1];
        char prefix[FCAP_OBJECT_NAME_MAX + 2];
        memcpy(prefix, name, prefix_size);
        prefix[prefix_size] = '\0';
        FCAP_ASSERT(strlen(name) > FCAP_OBJECT_NAME_MAX ||
                    strcmp(fcap_checkpoint_manifest_name(prefix, number, again), name) == 0);
    }
    check((struct fcap_bytes){data, size});
    check_lines((struct fcap_bytes){data, size});
    return 0;
}
