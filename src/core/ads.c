#include "fcap/ads.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_MIN 64

void fcap_json_escape(struct fcap_buffer *buffer, struct fcap_bytes text)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < text.size; i++) {
        uint8_t byte = text.data[i];
        if (byte == '"' || byte == '\\') {
            fcap_buffer_put_u8(buffer, '\\');
            fcap_buffer_put_u8(buffer, byte);
        } else if (byte < 0x20) {
            fcap_buffer_put_text(buffer, "\\u00");
            fcap_buffer_put_u8(buffer, (uint8_t)hex[byte >> 4]);
            fcap_buffer_put_u8(buffer, (uint8_t)hex[byte & 15]);
        } else {
            fcap_buffer_put_u8(buffer, byte);
        }
    }
}

void fcap_ads_init(struct fcap_ads *ads, uint32_t base)
{
    *ads = (struct fcap_ads){.base = base, .slot_count = SLOTS_MIN};
    ads->slots = calloc(ads->slot_count, sizeof(struct fcap_ad *));
    FCAP_ASSERT(ads->slots != NULL);
}

void fcap_ads_done(struct fcap_ads *ads)
{
    for (size_t i = 0; i < ads->span; i++) {
        free(ads->by_number[i]);
    }
    free(ads->by_number);
    free(ads->slots);
    free(ads->dirty);
    *ads = (struct fcap_ads){0};
}

struct fcap_bytes fcap_ad_id(const struct fcap_ad *ad)
{
    return (struct fcap_bytes){ad->bytes, ad->size};
}

struct fcap_bytes fcap_ad_escaped(const struct fcap_ad *ad)
{
    bool same = ad->escaped_size == ad->size;
    return (struct fcap_bytes){ad->bytes + (same ? 0 : ad->size), ad->escaped_size};
}

static size_t slot_of(const struct fcap_ads *ads, struct fcap_bytes id)
{
    return fcap_hash64(id, 0) & (ads->slot_count - 1);
}

struct fcap_ad *fcap_ads_find(const struct fcap_ads *ads, struct fcap_bytes id)
{
    for (size_t at = slot_of(ads, id); ads->slots[at] != NULL;
         at = (at + 1) & (ads->slot_count - 1)) {
        if (fcap_bytes_equal(fcap_ad_id(ads->slots[at]), id)) {
            return ads->slots[at];
        }
    }
    return NULL;
}

struct fcap_ad *fcap_ads_get(const struct fcap_ads *ads, uint32_t number)
{
    if (number < ads->base || number - ads->base >= ads->span) {
        return NULL;
    }
    return ads->by_number[number - ads->base];
}

static void place(struct fcap_ads *ads, struct fcap_ad *ad)
{
    size_t at = slot_of(ads, fcap_ad_id(ad));
    while (ads->slots[at] != NULL) {
        at = (at + 1) & (ads->slot_count - 1);
    }
    ads->slots[at] = ad;
}

static void rebuild_slots(struct fcap_ads *ads, size_t slot_count)
{
    free(ads->slots);
    ads->slot_count = slot_count;
    ads->slots = calloc(slot_count, sizeof(struct fcap_ad *));
    FCAP_ASSERT(ads->slots != NULL);
    for (size_t i = 0; i < ads->span; i++) {
        if (ads->by_number[i] != NULL) {
            place(ads, ads->by_number[i]);
        }
    }
}

/* Room for `number`; numbers may come in any order when the table is loaded. */
static void reserve_number(struct fcap_ads *ads, uint32_t number)
{
    FCAP_ASSERT(number >= ads->base);
    size_t wanted = (size_t)(number - ads->base) + 1;
    if (wanted > ads->span_capacity) {
        ads->span_capacity = wanted + wanted / 2 + 16;
        ads->by_number = realloc(ads->by_number, ads->span_capacity * sizeof(struct fcap_ad *));
        FCAP_ASSERT(ads->by_number != NULL);
    }
    while (ads->span < wanted) {
        ads->by_number[ads->span++] = NULL;
    }
}

struct fcap_ad *fcap_ads_add(struct fcap_ads *ads, uint32_t number, struct fcap_bytes id,
                             int32_t day)
{
    FCAP_ASSERT(id.size > 0 && id.size <= UINT16_MAX / 6);
    struct fcap_buffer escaped = {0};
    fcap_json_escape(&escaped, id);
    size_t extra = escaped.size == id.size ? 0 : escaped.size;
    struct fcap_ad *ad = malloc(sizeof *ad + id.size + extra);
    FCAP_ASSERT(ad != NULL);
    *ad = (struct fcap_ad){.number = number, .day = day};
    ad->size = (uint16_t)id.size;
    ad->escaped_size = (uint16_t)escaped.size;
    memcpy(ad->bytes, id.data, id.size);
    if (extra > 0) {
        memcpy(ad->bytes + id.size, escaped.data, extra);
    }
    fcap_buffer_done(&escaped);
    reserve_number(ads, number);
    FCAP_ASSERT(ads->by_number[number - ads->base] == NULL);
    ads->by_number[number - ads->base] = ad;
    ads->count++;
    ads->bytes += sizeof *ad + id.size + extra + 4 * sizeof(struct fcap_ad *);
    if (ads->count * 2 > ads->slot_count) {
        rebuild_slots(ads, ads->slot_count * 2);
    } else {
        place(ads, ad);
    }
    return ad;
}

void fcap_ads_mark(struct fcap_ads *ads, struct fcap_ad *ad)
{
    if (ad->dirty) {
        return;
    }
    ad->dirty = true;
    if (ads->dirty_count == ads->dirty_capacity) {
        ads->dirty_capacity = ads->dirty_capacity * 2 + 16;
        ads->dirty = realloc(ads->dirty, ads->dirty_capacity * sizeof *ads->dirty);
        FCAP_ASSERT(ads->dirty != NULL);
    }
    ads->dirty[ads->dirty_count++] = ad->number;
}

void fcap_ads_use(struct fcap_ads *ads, struct fcap_ad *ad, int32_t day)
{
    if (day > ad->day) {
        ad->day = day;
        fcap_ads_mark(ads, ad);
    }
}

#define DAY_MS 86400000ll

int32_t fcap_ads_day(int64_t time_ms)
{
    return (int32_t)(time_ms / DAY_MS);
}

void fcap_ads_sweep(struct fcap_ads *ads, int64_t history_ms,
                    void (*visitor)(void *context, uint32_t number), void *context)
{
    size_t before = ads->count;
    for (size_t i = 0; i < ads->span; i++) {
        struct fcap_ad *ad = ads->by_number[i];
        if (ad == NULL || (ad->day + 1) * DAY_MS - 1 > history_ms) {
            continue;
        }
        visitor(context, ad->number);
        size_t escaped = ad->escaped_size == ad->size ? 0 : ad->escaped_size;
        ads->bytes -= sizeof *ad + ad->size + escaped + 4 * sizeof(struct fcap_ad *);
        ads->by_number[i] = NULL;
        ads->count--;
        free(ad);
    }
    if (ads->count != before) {
        rebuild_slots(ads, ads->slot_count);
    }
}

void fcap_ad_encode(const struct fcap_ad *ad, struct fcap_buffer *buffer)
{
    fcap_buffer_put_varint(buffer, (uint64_t)ad->day);
    fcap_buffer_put_bytes(buffer, fcap_ad_id(ad));
}

bool fcap_ad_decode(struct fcap_bytes value, int32_t *ret_day, struct fcap_bytes *ret_id)
{
    struct fcap_reader reader = fcap_reader_of(value);
    uint64_t day = fcap_reader_varint(&reader);
    if (reader.failed || day > INT32_MAX || fcap_reader_left(&reader) == 0) {
        return false;
    }
    *ret_day = (int32_t)day;
    *ret_id = fcap_reader_take(&reader, fcap_reader_left(&reader));
    return true;
}
