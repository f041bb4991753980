/* Any bytes as a timer chunk: no crash, times never fall, users lie inside the chunk; and what is
 * accepted is written and read again as the same events. */
#include "fcap/chunk.h"

#include "fuzz_main.h"

enum { EVENTS_MAX = 4096 };

static size_t read_all(struct fcap_bytes chunk, int64_t bucket_ms, struct fcap_timer *timers,
                       bool *ret_has_ids, enum fcap_status *ret_status)
{
    struct fcap_chunk_reader reader = {0};
    bool found = true;
    size_t count = 0;
    int64_t last_ms = bucket_ms;
    *ret_status = fcap_chunk_open(&reader, chunk, bucket_ms);
    while (*ret_status == FCAP_OK && found && count < EVENTS_MAX) {
        struct fcap_timer timer;
        *ret_status = fcap_chunk_next(&reader, &timer, &found);
        if (*ret_status != FCAP_OK || !found) {
            break;
        }
        FCAP_ASSERT(timer.time_ms >= last_ms);
        FCAP_ASSERT(timer.user.size > 0 && timer.user.data > chunk.data);
        FCAP_ASSERT(timer.user.data + timer.user.size <= chunk.data + chunk.size);
        last_ms = timer.time_ms;
        timers[count++] = timer;
    }
    *ret_has_ids = reader.has_ids;
    fcap_chunk_reader_done(&reader);
    return count;
}

static void write_all(const struct fcap_timer *timers, size_t count, int64_t bucket_ms,
                      bool has_ids, struct fcap_buffer *buffer)
{
    static uint32_t references[EVENTS_MAX];
    struct fcap_chunk_writer writer;
    fcap_chunk_begin(&writer, buffer, bucket_ms, has_ids);
    for (size_t i = 0; i < count; i++) {
        references[i] = 0;
        for (size_t k = 0; k < i && references[i] == 0; k++) {
            if (fcap_bytes_equal(timers[k].user, timers[i].user)) {
                references[i] = references[k];
            }
        }
        fcap_chunk_add(&writer, &timers[i], &references[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fcap_timer first[EVENTS_MAX];
    static struct fcap_timer second[EVENTS_MAX];
    static const int64_t buckets_ms[] = {0, 1700000000000, INT64_MAX - 1};
    if (size > 8192) {
        return 0; /* write_all() looks at each pair. */
    }
    for (size_t b = 0; b < 3; b++) {
        enum fcap_status status;
        struct fcap_buffer buffer = {0};
        bool has_ids;
        size_t count =
            read_all((struct fcap_bytes){data, size}, buckets_ms[b], first, &has_ids, &status);
        FCAP_ASSERT(status == FCAP_OK || status == FCAP_FORMAT || status == FCAP_CORRUPT);
        if (status == FCAP_OK) {
            write_all(first, count, buckets_ms[b], has_ids, &buffer);
            size_t again =
                read_all(fcap_buffer_bytes(&buffer), buckets_ms[b], second, &has_ids, &status);
            FCAP_ASSERT(status == FCAP_OK && again == count);
            for (size_t i = 0; i < count; i++) {
                FCAP_ASSERT(first[i].time_ms == second[i].time_ms && first[i].ad == second[i].ad);
                FCAP_ASSERT(first[i].id_hash == second[i].id_hash);
                FCAP_ASSERT(fcap_bytes_equal(first[i].user, second[i].user));
            }
        }
        fcap_buffer_done(&buffer);
    }
    return 0;
}
