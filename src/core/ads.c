#include "fcap/ads.h"

#include "fcap/assert.h"
#include "fcap/mutant.h"

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
    ads->bytes = ads->slot_count * sizeof(struct fcap_ad *);
}

/* A text of its own memory: pointer and size. */
struct long_text {
    uint8_t *data;
    size_t size;
};

static struct long_text long_of(const struct fcap_ad_text *text)
{
    struct long_text held;
    memcpy(&held, text->text, sizeof held);
    return held;
}

static void free_text(struct fcap_ad_text *text)
{
    if (text->size == FCAP_AD_TEXT_LONG) {
        free(long_of(text).data);
    }
    text->size = 0;
}

void fcap_ads_done(struct fcap_ads *ads)
{
    for (size_t i = 0; i < ads->span; i++) {
        free(ads->by_number[i]);
        free_text(&ads->texts[i]);
    }
    free(ads->by_number);
    free(ads->texts);
    free(ads->slots);
    free(ads->dirty);
    *ads = (struct fcap_ads){0};
}

struct fcap_bytes fcap_ad_id(const struct fcap_ad *ad)
{
    return (struct fcap_bytes){ad->bytes, ad->size};
}

struct fcap_bytes fcap_ads_text(const struct fcap_ads *ads, uint32_t number)
{
    FCAP_ASSERT(number - ads->base < ads->span);
    const struct fcap_ad_text *text = &ads->texts[number - ads->base];
    FCAP_ASSERT(text->size != 0); /* A counted ad has an entry as long as it counts. */
    if (text->size == FCAP_AD_TEXT_LONG) {
        struct long_text held = long_of(text);
        return (struct fcap_bytes){held.data, held.size};
    }
    return (struct fcap_bytes){text->text, text->size};
}

static void set_text(struct fcap_ad_text *text, struct fcap_bytes id)
{
    struct fcap_buffer built = {0};
    fcap_buffer_put_u8(&built, '"');
    fcap_json_escape(&built, id);
    fcap_buffer_put_text(&built, "\":");
    if (built.size <= sizeof text->text) {
        text->size = (uint8_t)built.size;
        memcpy(text->text, built.data, built.size);
        fcap_buffer_done(&built);
        return;
    }
    struct long_text held = {built.data, built.size}; /* Takes the buffer's memory. */
    text->size = FCAP_AD_TEXT_LONG;
    memcpy(text->text, &held, sizeof held);
}

/* Memory that an entry takes beside the tables, about. */
static size_t entry_bytes(const struct fcap_ad *ad)
{
    return sizeof *ad + ad->size + 16;
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
    ads->bytes += (slot_count - ads->slot_count) * sizeof(struct fcap_ad *);
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
        size_t entry = sizeof(struct fcap_ad *) + sizeof(struct fcap_ad_text);
        ads->bytes += (wanted + wanted / 2 + 16 - ads->span_capacity) * entry;
        ads->span_capacity = wanted + wanted / 2 + 16;
        ads->by_number = realloc(ads->by_number, ads->span_capacity * sizeof(struct fcap_ad *));
        ads->texts = realloc(ads->texts, ads->span_capacity * sizeof *ads->texts);
        FCAP_ASSERT(ads->by_number != NULL && ads->texts != NULL);
    }
    while (ads->span < wanted) {
        ads->texts[ads->span].size = 0;
        ads->by_number[ads->span++] = NULL;
    }
}

struct fcap_ad *fcap_ads_add(struct fcap_ads *ads, uint32_t number, struct fcap_bytes id,
                             int32_t day)
{
    FCAP_ASSERT(id.size > 0 && id.size <= UINT16_MAX);
    struct fcap_ad *ad = malloc(sizeof *ad + id.size);
    FCAP_ASSERT(ad != NULL);
    *ad = (struct fcap_ad){.number = number, .day = day, .size = (uint16_t)id.size};
    memcpy(ad->bytes, id.data, id.size);
    reserve_number(ads, number);
    FCAP_ASSERT(ads->by_number[number - ads->base] == NULL);
    ads->by_number[number - ads->base] = ad;
    set_text(&ads->texts[number - ads->base], id);
    ads->count++;
    ads->bytes += entry_bytes(ad);
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

/* Numbers are never used again, so the table would grow for ever: what was dropped at its lower end
 * makes room for new ones. */
static void forget_lowest(struct fcap_ads *ads)
{
    size_t gone = 0;
    while (gone < ads->span && ads->by_number[gone] == NULL && !FCAP_MUTANT(AD_REUSE)) {
        gone++;
    }
    ads->span -= gone;
    ads->base += (uint32_t)gone;
    memmove(ads->by_number, ads->by_number + gone, ads->span * sizeof(struct fcap_ad *));
    memmove(ads->texts, ads->texts + gone, ads->span * sizeof *ads->texts);
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
        ads->bytes -= entry_bytes(ad);
        ads->by_number[i] = NULL;
        free_text(&ads->texts[i]);
        ads->count--;
        free(ad);
    }
    if (ads->count != before) {
        forget_lowest(ads);
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
    size_t size = fcap_reader_left(&reader);
    if (reader.failed || day > INT32_MAX || size == 0 || size > UINT16_MAX) {
        return false;
    }
    *ret_day = (int32_t)day;
    *ret_id = fcap_reader_take(&reader, size);
    return true;
}
