/* XXH64 from its published specification (Yann Collet). Part of the stored format: pinned by the
 * test vectors in tests/unit/test_bytes.c. */
#include "fcap/bytes.h"

#include <string.h>

#define PRIME_1 0x9E3779B185EBCA87ull
#define PRIME_2 0xC2B2AE3D27D4EB4Full
#define PRIME_3 0x165667B19E3779F9ull
#define PRIME_4 0x85EBCA77C2B2AE63ull
#define PRIME_5 0x27D4EB2F165667C5ull

static uint64_t rotate(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

static uint64_t little_64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

static uint32_t little_32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    return value;
}

static uint64_t round_of(uint64_t lane, uint64_t input)
{
    return rotate(lane + input * PRIME_2, 31) * PRIME_1;
}

static uint64_t merge(uint64_t hash, uint64_t lane)
{
    return (hash ^ round_of(0, lane)) * PRIME_1 + PRIME_4;
}

static uint64_t stripes(const uint8_t **at, const uint8_t *end, uint64_t seed)
{
    uint64_t lanes[4] = {seed + PRIME_1 + PRIME_2, seed + PRIME_2, seed, seed - PRIME_1};
    for (; end - *at >= 32; *at += 32) {
        for (int i = 0; i < 4; i++) {
            lanes[i] = round_of(lanes[i], little_64(*at + 8 * i));
        }
    }
    uint64_t hash =
        rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
    for (int i = 0; i < 4; i++) {
        hash = merge(hash, lanes[i]);
    }
    return hash;
}

uint64_t fcap_hash64(struct fcap_bytes bytes, uint64_t seed)
{
    static const uint8_t nothing[1];
    const uint8_t *at = bytes.data != NULL ? bytes.data : nothing;
    const uint8_t *end = at + bytes.size;
    uint64_t hash = bytes.size >= 32 ? stripes(&at, end, seed) : seed + PRIME_5;
    hash += bytes.size;
    for (; end - at >= 8; at += 8) {
        hash = rotate(hash ^ round_of(0, little_64(at)), 27) * PRIME_1 + PRIME_4;
    }
    if (end - at >= 4) {
        hash = rotate(hash ^ little_32(at) * PRIME_1, 23) * PRIME_2 + PRIME_3;
        at += 4;
    }
    for (; at < end; at++) {
        hash = rotate(hash ^ *at * PRIME_5, 11) * PRIME_1;
    }
    hash = (hash ^ hash >> 33) * PRIME_2;
    hash = (hash ^ hash >> 29) * PRIME_3;
    return hash ^ hash >> 32;
}
