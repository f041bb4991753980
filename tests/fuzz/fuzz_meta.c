/* Any bytes as a meta record, a record of gaps, an ad or a key: no crash, and an accepted record or
 * key is written again byte for byte; a meta record of the older version as one that is. */
#include "fcap/ads.h"
#include "fcap/gaps.h"
#include "fcap/key.h"
#include "fcap/meta.h"

#include "fuzz_main.h"

enum { META_OLDER = 1 };

static void check_meta(struct fcap_bytes bytes)
{
    static struct fcap_meta meta;
    struct fcap_buffer buffer = {0};
    enum fcap_status status = fcap_meta_decode(bytes, &meta);
    FCAP_ASSERT(status == FCAP_OK || status == FCAP_FORMAT || status == FCAP_CORRUPT);
    if (status == FCAP_OK) {
        fcap_meta_encode(&meta, &buffer);
        if (bytes.data[0] == META_OLDER) {
            check_meta(fcap_buffer_bytes(&buffer)); /* Of the newest version now. */
        } else {
            FCAP_ASSERT(fcap_bytes_equal(fcap_buffer_bytes(&buffer), bytes));
        }
    }
    fcap_buffer_done(&buffer);
}

static void check_gaps(struct fcap_bytes bytes)
{
    struct fcap_gaps gaps;
    struct fcap_buffer buffer = {0};
    enum fcap_status status = fcap_gaps_decode(bytes, &gaps);
    FCAP_ASSERT(status == FCAP_OK || status == FCAP_FORMAT || status == FCAP_CORRUPT);
    if (status == FCAP_OK) {
        fcap_gaps_encode(&gaps, &buffer);
        FCAP_ASSERT(fcap_bytes_equal(fcap_buffer_bytes(&buffer), bytes));
    }
    fcap_buffer_done(&buffer);
}

static void check_keys(struct fcap_bytes bytes)
{
    struct fcap_buffer key = {0};
    struct fcap_chunk_key chunk;
    struct fcap_bytes user;
    int32_t partition;
    uint32_t number;
    if (fcap_key_read_chunk(bytes, &chunk)) {
        fcap_key_chunk(&key, chunk);
        FCAP_ASSERT(fcap_bytes_equal(fcap_buffer_bytes(&key), bytes));
    }
    fcap_buffer_clear(&key);
    if (fcap_key_read_user(bytes, &partition, &user)) {
        fcap_key_user(&key, partition, user);
        FCAP_ASSERT(fcap_bytes_equal(fcap_buffer_bytes(&key), bytes));
    }
    fcap_buffer_clear(&key);
    if (fcap_key_read_ad(bytes, &partition, &number)) {
        fcap_key_ad(&key, partition, number);
        FCAP_ASSERT(fcap_bytes_equal(fcap_buffer_bytes(&key), bytes));
    }
    fcap_buffer_done(&key);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fcap_bytes bytes = {data, size};
    struct fcap_bytes id;
    int32_t day;
    check_meta(bytes);
    check_gaps(bytes);
    check_keys(bytes);
    if (fcap_ad_decode(bytes, &day, &id)) {
        FCAP_ASSERT(day >= 0 && id.size > 0 && id.size <= UINT16_MAX);
    }
    return 0;
}
