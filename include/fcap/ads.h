/* A partition's ads: id <-> number, and the day of the newest event that used each.
 *
 * Numbers are never reused. The whole table is in memory; changed entries go into the next commit.
 * Thread rule: belongs to its worker. */
#ifndef FCAP_ADS_H
#define FCAP_ADS_H

#include "fcap/bytes.h"
#include "fcap/status.h"

#define FCAP_AD_NONE UINT32_MAX

struct fcap_ad {
    uint32_t number;
    int32_t day;   /* event_time / 86,400,000 of the newest event that used it */
    bool dirty;    /* changed since it was last encoded */
    uint16_t size; /* bytes of the id */
    uint8_t bytes[];
};

/* What a value says of an ad: "<id, escaped>": as it stands in the JSON text. Values are built for
 * every change, so the usual short text lies in one cache line, found by number. */
struct fcap_ad_text {
    uint8_t size; /* 0: no such ad; FCAP_AD_TEXT_LONG: `text` holds a pointer */
    uint8_t text[31];
};

#define FCAP_AD_TEXT_LONG 0xFF

struct fcap_ads {
    struct fcap_ad **by_number; /* [number - base]; NULL: dropped */
    struct fcap_ad_text *texts; /* [number - base] */
    uint32_t base;
    size_t span; /* entries of by_number in use */
    size_t span_capacity;
    struct fcap_ad **slots; /* open addressing by id */
    size_t slot_count;
    size_t count;
    uint32_t *dirty; /* numbers of dirty entries */
    size_t dirty_count;
    size_t dirty_capacity;
    size_t bytes; /* memory, for the budget */
};

void fcap_ads_init(struct fcap_ads *ads, uint32_t base);
void fcap_ads_done(struct fcap_ads *ads);

/* The ad of an id, or NULL. */
struct fcap_ad *fcap_ads_find(const struct fcap_ads *ads, struct fcap_bytes id);

/* The ad of a number, or NULL. */
struct fcap_ad *fcap_ads_get(const struct fcap_ads *ads, uint32_t number);

/* Adds an ad that is not there under a number that is not there. */
struct fcap_ad *fcap_ads_add(struct fcap_ads *ads, uint32_t number, struct fcap_bytes id,
                             int32_t day);

/* Raises the day; marks the entry dirty when that changed it. */
void fcap_ads_use(struct fcap_ads *ads, struct fcap_ad *ad, int32_t day);

/* The day of an event time. */
int32_t fcap_ads_day(int64_t time_ms);

/* Marks an entry as changed. */
void fcap_ads_mark(struct fcap_ads *ads, struct fcap_ad *ad);

/* Forgets every entry whose day has ended at `history_ms`; tells each number first. */
void fcap_ads_sweep(struct fcap_ads *ads, int64_t history_ms,
                    void (*visitor)(void *context, uint32_t number), void *context);

struct fcap_bytes fcap_ad_id(const struct fcap_ad *ad);

/* Hints that the text of a number will be wanted. */
static inline void fcap_ads_prefetch(const struct fcap_ads *ads, uint32_t number)
{
    __builtin_prefetch(&ads->texts[number - ads->base]);
}

/* `"<id>":` of a number that is in the table. Valid until the table changes. */
struct fcap_bytes fcap_ads_text(const struct fcap_ads *ads, uint32_t number);

/* Appends `text` as the inside of a JSON string: quotes, backslashes and control characters
 * escaped, everything else as it is. */
void fcap_json_escape(struct fcap_buffer *buffer, struct fcap_bytes text);

/* The stored value: varint day, id. */
void fcap_ad_encode(const struct fcap_ad *ad, struct fcap_buffer *buffer);
bool fcap_ad_decode(struct fcap_bytes value, int32_t *ret_day, struct fcap_bytes *ret_id);

#endif
