/* Plain on purpose: for each user the list of records, and a walk over it for each question. */
#include "lab/oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_TEXT UINT32_MAX

/* Texts with numbers in order of first appearance. */
struct texts {
    char **items;
    uint32_t count;
    uint32_t capacity;
    uint32_t *slots; /* number + 1; 0: free */
    uint32_t slot_count;
};

struct record {
    int64_t offset;
    int64_t time_ms;
    int32_t partition;
    uint32_t ad;  /* NO_TEXT: a tombstone */
    uint32_t id;  /* NO_TEXT: none */
    bool is_copy; /* an earlier record is the same event */
};

struct records {
    struct record *items;
    size_t count;
    size_t capacity;
};

struct oracle {
    struct texts users;
    struct texts ads;
    struct texts ids;
    struct records *by_user;
    uint32_t by_user_capacity;
    int64_t *next; /* by partition */
    size_t next_count;
    const struct record **found; /* scratch of a query */
    size_t found_capacity;
    uint64_t *ad_counts; /* scratch: by ad, all 0 between queries */
    uint32_t ad_counts_capacity;
};

static void *grow(void *old, size_t count, size_t item_bytes)
{
    void *memory = realloc(old, (count > 0 ? count : 1) * item_bytes);
    if (memory == NULL) {
        (void)fprintf(stderr, "oracle: out of memory\n");
        abort();
    }
    return memory;
}

/* --- texts ------------------------------------------------------------------------------- */

static uint32_t text_slot(const struct texts *texts, const char *text)
{
    uint64_t hash = 1469598103934665603u;
    for (const char *at = text; *at != '\0'; at++) {
        hash = (hash ^ (uint64_t)(unsigned char)*at) * 1099511628211u;
    }
    uint32_t slot = (uint32_t)(hash ^ (hash >> 32)) & (texts->slot_count - 1);
    while (texts->slots[slot] != 0 && strcmp(texts->items[texts->slots[slot] - 1], text) != 0) {
        slot = (slot + 1) & (texts->slot_count - 1);
    }
    return slot;
}

static uint32_t text_find(const struct texts *texts, const char *text)
{
    if (texts->slot_count == 0) {
        return NO_TEXT;
    }
    uint32_t number = texts->slots[text_slot(texts, text)];
    return number == 0 ? NO_TEXT : number - 1;
}

static uint32_t text_number(struct texts *texts, const char *text)
{
    if (texts->count * 2u >= texts->slot_count) {
        texts->slot_count = texts->slot_count == 0 ? 1024 : texts->slot_count * 2;
        texts->slots = grow(texts->slots, texts->slot_count, sizeof *texts->slots);
        memset(texts->slots, 0, texts->slot_count * sizeof *texts->slots);
        for (uint32_t i = 0; i < texts->count; i++) {
            texts->slots[text_slot(texts, texts->items[i])] = i + 1;
        }
    }
    uint32_t slot = text_slot(texts, text);
    if (texts->slots[slot] == 0) {
        if (texts->count == texts->capacity) {
            texts->capacity = texts->capacity == 0 ? 256 : texts->capacity * 2;
            texts->items = grow(texts->items, texts->capacity, sizeof *texts->items);
        }
        size_t size_bytes = strlen(text) + 1;
        texts->items[texts->count] = grow(NULL, size_bytes, 1);
        memcpy(texts->items[texts->count], text, size_bytes);
        texts->slots[slot] = ++texts->count;
    }
    return texts->slots[slot] - 1;
}

static void texts_done(struct texts *texts)
{
    for (uint32_t i = 0; i < texts->count; i++) {
        free(texts->items[i]);
    }
    free(texts->items);
    free(texts->slots);
}

/* --- the list of records ------------------------------------------------------------------ */

struct oracle *oracle_open(void)
{
    struct oracle *oracle = grow(NULL, 1, sizeof *oracle);
    memset(oracle, 0, sizeof *oracle);
    return oracle;
}

void oracle_close(struct oracle *oracle)
{
    if (oracle == NULL) {
        return;
    }
    for (uint32_t i = 0; i < oracle->users.count; i++) {
        free(oracle->by_user[i].items);
    }
    free(oracle->by_user);
    texts_done(&oracle->users);
    texts_done(&oracle->ads);
    texts_done(&oracle->ids);
    free(oracle->next);
    free(oracle->found);
    free(oracle->ad_counts);
    free(oracle);
}

enum oracle_verdict oracle_skip(struct oracle *oracle, int32_t partition, int64_t offset)
{
    size_t index = (size_t)partition;
    if (index >= oracle->next_count) {
        oracle->next = grow(oracle->next, index + 1, sizeof *oracle->next);
        for (size_t i = oracle->next_count; i <= index; i++) {
            oracle->next[i] = 0;
        }
        oracle->next_count = index + 1;
    }
    if (offset < oracle->next[index]) {
        return ORACLE_REDELIVERED;
    }
    oracle->next[index] = offset + 1;
    return ORACLE_ACCEPTED;
}

/* A partition's records come in the order of their offsets, and whoever knows one knows those
 * before it: so a copy is one in every query. What is erased is still what its copies repeat. */
static bool is_copy(const struct records *records, const struct record *record)
{
    for (size_t i = records->count; i-- > 0;) {
        const struct record *other = &records->items[i];
        if (other->partition == record->partition && other->time_ms == record->time_ms &&
            other->id == record->id) {
            return true;
        }
    }
    return false;
}

/* `may_repeat`: its id was met before. */
static void append(struct oracle *oracle, const char *user, const struct record *record,
                   bool may_repeat)
{
    uint32_t number = text_number(&oracle->users, user);
    if (number >= oracle->by_user_capacity) {
        uint32_t capacity = oracle->by_user_capacity == 0 ? 256 : oracle->by_user_capacity * 2;
        oracle->by_user = grow(oracle->by_user, capacity, sizeof *oracle->by_user);
        memset(oracle->by_user + oracle->by_user_capacity, 0,
               (capacity - oracle->by_user_capacity) * sizeof *oracle->by_user);
        oracle->by_user_capacity = capacity;
    }
    struct records *records = &oracle->by_user[number];
    if (records->count == records->capacity) {
        records->capacity = records->capacity == 0 ? 4 : records->capacity * 2;
        records->items = grow(records->items, records->capacity, sizeof *records->items);
    }
    records->items[records->count] = *record;
    records->items[records->count].is_copy = may_repeat && is_copy(records, record);
    records->count++;
}

enum oracle_verdict oracle_add(struct oracle *oracle, const struct oracle_event *event)
{
    return oracle_add_bounded(oracle, event, event->time_ms, 0);
}

enum oracle_verdict oracle_add_bounded(struct oracle *oracle, const struct oracle_event *event,
                                       int64_t bound_ms, int64_t skew_ms)
{
    if (oracle_skip(oracle, event->partition, event->offset) == ORACLE_REDELIVERED) {
        return ORACLE_REDELIVERED;
    }
    if (event->time_ms - skew_ms > bound_ms) {
        return ORACLE_FUTURE;
    }
    uint32_t ids_before = oracle->ids.count;
    struct record record = {
        .offset = event->offset,
        .time_ms = event->time_ms,
        .partition = event->partition,
        .ad = text_number(&oracle->ads, event->ad),
        .id = event->id == NULL ? NO_TEXT : text_number(&oracle->ids, event->id),
    };
    append(oracle, event->user, &record, record.id != NO_TEXT && record.id < ids_before);
    return ORACLE_ACCEPTED;
}

enum oracle_verdict oracle_tombstone(struct oracle *oracle, int32_t partition, int64_t offset,
                                     const char *user)
{
    if (oracle_skip(oracle, partition, offset) == ORACLE_REDELIVERED) {
        return ORACLE_REDELIVERED;
    }
    struct record record = {.offset = offset, .partition = partition, .ad = NO_TEXT, .id = NO_TEXT};
    append(oracle, user, &record, false);
    return ORACLE_ACCEPTED;
}

/* --- the definition ----------------------------------------------------------------------- */

static const struct records *records_of(const struct oracle *oracle, const char *user)
{
    static const struct records none;
    uint32_t number = text_find(&oracle->users, user);
    return number == NO_TEXT ? &none : &oracle->by_user[number];
}

static bool is_known(const struct oracle_query *query, const struct record *record)
{
    if (query->next == NULL) {
        return true;
    }
    size_t index = (size_t)record->partition;
    return index < query->next_count && record->offset < query->next[index];
}

/* The user's events with time > after_ms that count, in oracle->found. */
static size_t find_events(struct oracle *oracle, const struct oracle_query *query, int64_t after_ms)
{
    const struct records *records = records_of(oracle, query->user);
    int32_t erased_partitions[64];
    size_t erased_count = 0;
    size_t count = 0;

    if (records->count > oracle->found_capacity) {
        oracle->found_capacity = records->count;
        oracle->found = grow(oracle->found, oracle->found_capacity, sizeof(*oracle->found));
    }
    /* Backwards: whatever stands before a tombstone of its partition is erased. */
    for (size_t i = records->count; i-- > 0;) {
        const struct record *record = &records->items[i];
        bool erased = false;
        if (!is_known(query, record)) {
            continue;
        }
        for (size_t k = 0; k < erased_count; k++) {
            erased = erased || erased_partitions[k] == record->partition;
        }
        if (record->ad == NO_TEXT) {
            if (!erased) {
                if (erased_count == sizeof erased_partitions / sizeof erased_partitions[0]) {
                    (void)fprintf(stderr, "oracle: a user erased in more than 64 partitions\n");
                    abort();
                }
                erased_partitions[erased_count++] = record->partition;
            }
        } else if (record->time_ms > after_ms && !erased && !record->is_copy) {
            oracle->found[count++] = record;
        }
    }
    return count;
}

static int64_t history_of(const struct oracle_query *query)
{
    return query->history_ms == 0 ? INT64_MIN : query->history_ms;
}

static int compare_ads(const void *left, const void *right)
{
    return strcmp(((const struct oracle_count *)left)->ad,
                  ((const struct oracle_count *)right)->ad);
}

void oracle_query(struct oracle *oracle, const struct oracle_query *query,
                  struct oracle_counts *ret_counts)
{
    int64_t after_ms = query->at_ms - query->window_ms;
    if (after_ms < history_of(query)) {
        after_ms = history_of(query);
    }
    size_t count = find_events(oracle, query, after_ms);

    if (oracle->ads.count > oracle->ad_counts_capacity) {
        uint32_t old = oracle->ad_counts_capacity;
        oracle->ad_counts_capacity = oracle->ads.count;
        oracle->ad_counts = grow(oracle->ad_counts, oracle->ads.count, sizeof *oracle->ad_counts);
        memset(oracle->ad_counts + old, 0, (oracle->ads.count - old) * sizeof *oracle->ad_counts);
    }
    for (size_t i = 0; i < count; i++) {
        oracle->ad_counts[oracle->found[i]->ad]++;
    }
    ret_counts->count = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t ad = oracle->found[i]->ad;
        if (oracle->ad_counts[ad] == 0) {
            continue; /* Listed already. */
        }
        if (ret_counts->count == ret_counts->capacity) {
            ret_counts->capacity = ret_counts->capacity == 0 ? 16 : ret_counts->capacity * 2;
            ret_counts->rows =
                grow(ret_counts->rows, ret_counts->capacity, sizeof *ret_counts->rows);
        }
        ret_counts->rows[ret_counts->count++] =
            (struct oracle_count){.ad = oracle->ads.items[ad], .count = oracle->ad_counts[ad]};
        oracle->ad_counts[ad] = 0;
    }
    if (ret_counts->count > 1) {
        qsort(ret_counts->rows, ret_counts->count, sizeof *ret_counts->rows, compare_ads);
    }
}

bool oracle_newest(struct oracle *oracle, const struct oracle_query *query, int64_t *ret_newest_ms)
{
    size_t count = find_events(oracle, query, history_of(query));
    if (count == 0) {
        return false;
    }
    int64_t newest_ms = oracle->found[0]->time_ms;
    for (size_t i = 1; i < count; i++) {
        if (oracle->found[i]->time_ms > newest_ms) {
            newest_ms = oracle->found[i]->time_ms;
        }
    }
    *ret_newest_ms = newest_ms;
    return true;
}

void oracle_counts_done(struct oracle_counts *counts)
{
    free(counts->rows);
    *counts = (struct oracle_counts){0};
}

/* --- looking around ------------------------------------------------------------------------ */

size_t oracle_user_count(const struct oracle *oracle)
{
    return oracle->users.count;
}

const char *oracle_user(const struct oracle *oracle, size_t index)
{
    return oracle->users.items[index];
}

size_t oracle_record_count(const struct oracle *oracle, const char *user)
{
    return records_of(oracle, user)->count;
}

struct oracle_record oracle_record_at(const struct oracle *oracle, const char *user, size_t index)
{
    const struct record *record = &records_of(oracle, user)->items[index];
    return (struct oracle_record){.partition = record->partition,
                                  .offset = record->offset,
                                  .is_tombstone = record->ad == NO_TEXT,
                                  .time_ms = record->time_ms};
}

int64_t oracle_next_offset(const struct oracle *oracle, int32_t partition)
{
    size_t index = (size_t)partition;
    return index < oracle->next_count ? oracle->next[index] : 0;
}
