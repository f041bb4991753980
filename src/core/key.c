#include "fcap/key.h"

#include "fcap/assert.h"

static void put_partition(struct fcap_buffer *buffer, int32_t partition)
{
    FCAP_ASSERT(partition >= 0 && partition <= 0xFFFF);
    fcap_buffer_put_be16(buffer, (uint16_t)partition);
}

void fcap_key_user(struct fcap_buffer *buffer, int32_t partition, struct fcap_bytes user)
{
    put_partition(buffer, partition);
    fcap_buffer_put_bytes(buffer, user);
}

void fcap_key_chunk(struct fcap_buffer *buffer, struct fcap_chunk_key key)
{
    FCAP_ASSERT(key.bucket_ms >= 0);
    fcap_buffer_put_i64(buffer, key.bucket_ms);
    put_partition(buffer, key.partition);
    fcap_buffer_put_be64(buffer, key.commit);
    fcap_buffer_put_be16(buffer, key.part);
}

void fcap_key_ad(struct fcap_buffer *buffer, int32_t partition, uint32_t number)
{
    put_partition(buffer, partition);
    fcap_buffer_put_be32(buffer, number);
}

void fcap_key_meta(struct fcap_buffer *buffer, int32_t partition, const char *name)
{
    put_partition(buffer, partition);
    fcap_buffer_put_text(buffer, name);
}

void fcap_key_redo(struct fcap_buffer *buffer, int32_t partition, uint64_t commit)
{
    fcap_key_meta(buffer, partition, "redo");
    fcap_buffer_put_be64(buffer, commit);
}

bool fcap_key_read_user(struct fcap_bytes key, int32_t *ret_partition, struct fcap_bytes *ret_user)
{
    struct fcap_reader reader = fcap_reader_of(key);
    int32_t partition = fcap_reader_be16(&reader);
    if (reader.failed || fcap_reader_left(&reader) == 0) {
        return false;
    }
    *ret_partition = partition;
    *ret_user = fcap_reader_take(&reader, fcap_reader_left(&reader));
    return true;
}

bool fcap_key_read_chunk(struct fcap_bytes key, struct fcap_chunk_key *ret_key)
{
    struct fcap_reader reader = fcap_reader_of(key);
    struct fcap_chunk_key read = {0};
    read.bucket_ms = fcap_reader_i64(&reader);
    read.partition = fcap_reader_be16(&reader);
    read.commit = fcap_reader_be64(&reader);
    read.part = fcap_reader_be16(&reader);
    if (reader.failed || fcap_reader_left(&reader) != 0 || read.bucket_ms < 0) {
        return false;
    }
    *ret_key = read;
    return true;
}

bool fcap_key_read_ad(struct fcap_bytes key, int32_t *ret_partition, uint32_t *ret_number)
{
    struct fcap_reader reader = fcap_reader_of(key);
    int32_t partition = fcap_reader_be16(&reader);
    uint32_t number = fcap_reader_be32(&reader);
    if (reader.failed || fcap_reader_left(&reader) != 0) {
        return false;
    }
    *ret_partition = partition;
    *ret_number = number;
    return true;
}
