#include "lib/fake_source.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

static void *grow(void *old, size_t count, size_t size)
{
    void *new = reallocarray(old, count > 0 ? count : 1, size);
    FCAP_ASSERT(new != NULL);
    return new;
}

/* --- the topic ------------------------------------------------------------------------------ */

static struct fake_log *log_of(const struct fake_topic *topic, int32_t partition)
{
    FCAP_ASSERT(partition >= 0 && partition < topic->partition_count);
    return &topic->logs[partition];
}

void fake_topic_init(struct fake_topic *topic, int32_t partition_count)
{
    *topic = (struct fake_topic){0};
    fake_topic_grow(topic, partition_count);
}

void fake_topic_grow(struct fake_topic *topic, int32_t partition_count)
{
    FCAP_ASSERT(partition_count >= topic->partition_count);
    topic->logs = grow(topic->logs, (size_t)partition_count, sizeof *topic->logs);
    for (int32_t i = topic->partition_count; i < partition_count; i++) {
        topic->logs[i] = (struct fake_log){.held_at = -1};
    }
    topic->partition_count = partition_count;
}

static void drop_records(struct fake_log *log)
{
    for (int64_t i = 0; i < log->end; i++) {
        fcap_buffer_done(&log->records[i].key);
        fcap_buffer_done(&log->records[i].value);
    }
    free(log->records);
    *log = (struct fake_log){.held_at = -1};
}

void fake_topic_done(struct fake_topic *topic)
{
    for (int32_t i = 0; i < topic->partition_count; i++) {
        drop_records(&topic->logs[i]);
    }
    free(topic->logs);
    *topic = (struct fake_topic){0};
}

static struct fake_record *add_record(struct fake_log *log)
{
    if (log->end == log->capacity) {
        log->capacity = log->capacity * 2 + 64;
        log->records = grow(log->records, (size_t)log->capacity, sizeof *log->records);
    }
    struct fake_record *record = &log->records[log->end++];
    *record = (struct fake_record){0};
    return record;
}

int64_t fake_topic_append(struct fake_topic *topic, int32_t partition, struct fcap_bytes key,
                          struct fcap_bytes value, int64_t timestamp_ms,
                          enum fcap_timestamp_type type)
{
    struct fake_log *log = log_of(topic, partition);
    struct fake_record *record = add_record(log);
    record->present = true;
    record->timestamp_ms = timestamp_ms;
    record->timestamp_type = type;
    record->has_key = key.data != NULL;
    record->has_value = value.data != NULL;
    fcap_buffer_put_bytes(&record->key, key);
    fcap_buffer_put_bytes(&record->value, value);
    return log->end - 1;
}

void fake_topic_skip(struct fake_topic *topic, int32_t partition)
{
    (void)add_record(log_of(topic, partition)); /* Not present. */
}

void fake_topic_trim(struct fake_topic *topic, int32_t partition, int64_t log_start)
{
    struct fake_log *log = log_of(topic, partition);
    FCAP_ASSERT(log_start <= log->end);
    if (log_start > log->log_start) {
        log->log_start = log_start;
    }
}

void fake_topic_recreate(struct fake_topic *topic, int32_t partition)
{
    struct fake_log *log = log_of(topic, partition);
    uint64_t changes = log->changes + 1;
    drop_records(log);
    log->changes = changes;
}

void fake_topic_truncate(struct fake_topic *topic, int32_t partition, int64_t end)
{
    struct fake_log *log = log_of(topic, partition);
    FCAP_ASSERT(end >= log->log_start);
    log->changes += end < log->end;
    while (log->end > end) {
        log->end--;
        fcap_buffer_done(&log->records[log->end].key);
        fcap_buffer_done(&log->records[log->end].value);
    }
    log->held_at = log->held_at > end ? end : log->held_at;
}

void fake_topic_hold(struct fake_topic *topic, int32_t partition, int64_t offset)
{
    log_of(topic, partition)->held_at = offset;
}

int64_t fake_topic_end(const struct fake_topic *topic, int32_t partition)
{
    const struct fake_log *log = log_of(topic, partition);
    return log->held_at >= 0 && log->held_at < log->end ? log->held_at : log->end;
}

bool fake_topic_read(const struct fake_topic *topic, int32_t partition, int64_t offset,
                     struct fcap_record *ret_record)
{
    const struct fake_log *log = log_of(topic, partition);
    if (offset < log->log_start || offset >= log->end || !log->records[offset].present) {
        return false;
    }
    static const uint8_t nothing = 0; /* Empty is not null: it needs an address. */
    const struct fake_record *record = &log->records[offset];
    *ret_record = (struct fcap_record){
        .partition = partition,
        .offset = offset,
        .timestamp_ms = record->timestamp_ms,
        .timestamp_type = record->timestamp_type,
    };
    if (record->has_key) {
        ret_record->key = record->key.size > 0 ? fcap_buffer_bytes(&record->key)
                                               : (struct fcap_bytes){&nothing, 0};
    }
    if (record->has_value) {
        ret_record->value = record->value.size > 0 ? fcap_buffer_bytes(&record->value)
                                                   : (struct fcap_bytes){&nothing, 0};
    }
    return true;
}

/* --- a member ------------------------------------------------------------------------------- */

static struct fake_partition *find(const struct fake_source *source, int32_t id)
{
    for (size_t i = 0; i < source->owned_count; i++) {
        if (source->owned[i].id == id) {
            return &source->owned[i];
        }
    }
    return NULL;
}

bool fake_source_owns(const struct fake_source *source, int32_t partition)
{
    return find(source, partition) != NULL;
}

void fake_source_assign(struct fake_source *source, int32_t partition)
{
    for (size_t i = 0; i < source->assigning_count; i++) {
        FCAP_ASSERT(source->assigning[i] != partition);
    }
    source->assigning =
        grow(source->assigning, source->assigning_count + 1, sizeof *source->assigning);
    source->assigning[source->assigning_count++] = partition;
}

void fake_source_revoke(struct fake_source *source, int32_t partition, bool lost)
{
    for (size_t i = 0; i < source->assigning_count; i++) {
        if (source->assigning[i] == partition) {
            source->assigning[i] = source->assigning[--source->assigning_count];
        }
    }
    if (find(source, partition) == NULL) {
        return;
    }
    for (size_t i = 0; i < source->revoking_count; i++) {
        if (source->revoking[i] == partition) {
            source->revoking_lost[i] = source->revoking_lost[i] || lost;
            return;
        }
    }
    size_t count = source->revoking_count + 1;
    source->revoking = grow(source->revoking, count, sizeof *source->revoking);
    source->revoking_lost = grow(source->revoking_lost, count, sizeof *source->revoking_lost);
    source->revoking[count - 1] = partition;
    source->revoking_lost[count - 1] = lost;
    source->revoking_count = count;
}

void fake_source_redeliver(struct fake_source *source, int32_t partition, int64_t count)
{
    struct fake_partition *owned = find(source, partition);
    if (owned != NULL && owned->started) {
        int64_t low = log_of(source->topic, partition)->log_start;
        int64_t next = owned->next - count > low ? owned->next - count : low;
        owned->next = next < owned->next ? next : owned->next; /* Trimmed under us: a gap. */
        owned->end_told = false;
    }
}

/* One call of revoked() for those that go in peace, one for the lost ones. */
static void take_away(struct fake_source *source, const struct fcap_source_handler *handler)
{
    int32_t *ids = grow(NULL, source->revoking_count, sizeof *ids);
    for (int lost = 1; lost >= 0; lost--) {
        size_t count = 0;
        for (size_t i = 0; i < source->revoking_count; i++) {
            if (source->revoking_lost[i] == (lost == 1)) {
                ids[count++] = source->revoking[i];
            }
        }
        if (count > 0) {
            handler->revoked(handler->context, ids, count, lost == 1);
        }
        for (size_t i = 0; i < count; i++) {
            struct fake_partition *gone = find(source, ids[i]);
            *gone = source->owned[--source->owned_count];
        }
    }
    source->revoking_count = 0;
    free(ids);
}

static void give(struct fake_source *source, const struct fcap_source_handler *handler)
{
    size_t count = source->assigning_count;
    int32_t *ids = grow(NULL, count, sizeof *ids);
    uint64_t *numbers = grow(NULL, count, sizeof *numbers);
    struct fcap_start *starts = grow(NULL, count, sizeof *starts);
    memset(starts, 0, count * sizeof *starts);
    source->owned = grow(source->owned, source->owned_count + count, sizeof *source->owned);
    for (size_t i = 0; i < count; i++) {
        ids[i] = source->assigning[i];
        source->topic->assignments += 2;
        numbers[i] = source->topic->assignments;
        FCAP_ASSERT(find(source, ids[i]) == NULL);
        source->owned[source->owned_count++] = (struct fake_partition){
            .id = ids[i],
            .assignment = numbers[i],
            .polls_until_started = source->lookup_polls,
        };
    }
    source->assigning_count = 0;
    handler->assigned(handler->context, ids, numbers, count, starts);
    for (size_t i = 0; i < count; i++) {
        find(source, ids[i])->start = starts[i];
    }
    free(ids);
    free(numbers);
    free(starts);
}

/* The first record with timestamp >= time_ms; the end seen now when there is none. */
static int64_t find_time(const struct fake_source *source, const struct fake_partition *owned)
{
    int64_t end = fake_topic_end(source->topic, owned->id);
    struct fcap_record record;
    for (int64_t at = log_of(source->topic, owned->id)->log_start; at < end; at++) {
        if (fake_topic_read(source->topic, owned->id, at, &record) &&
            record.timestamp_ms >= owned->start.time_ms) {
            return at;
        }
    }
    return end;
}

/* Looks at what a start by time would leave out, further back where it finds no record. */
static void begin_by_time(const struct fake_source *source, const struct fake_partition *owned,
                          struct fcap_started *started)
{
    int64_t offset = find_time(source, owned);
    int64_t at = offset;
    bool any = false;
    bool is_told = started->log_start == 0;
    struct fcap_record record;
    while (at > started->log_start && !started->timestamps_unusable &&
           !(any && offset - at >= FCAP_START_LEFT_OUT)) {
        if (fake_topic_read(source->topic, owned->id, --at, &record)) {
            any = true;
            started->timestamps_unusable =
                fcap_start_misses(&owned->start, source->decoder, &record, 0);
            is_told = is_told || fcap_start_tells(&owned->start, source->decoder, &record);
        }
    }
    bool is_untold = at == started->log_start && !is_told;
    started->offset = started->timestamps_unusable || is_untold ? started->log_start : offset;
}

/* What the log holds of a mark: 1 the record that was counted, -1 another one, 0 nothing to
 * compare. Looked for from the mark down to the log's start. A log that has lost nothing at its
 * start and holds no record below the mark is another one: the mark's would be there. */
static int compare_mark(const struct fake_source *source, int32_t partition,
                        const struct fcap_log_mark *mark)
{
    struct fcap_record record;
    if (mark->offset > fake_topic_end(source->topic, partition)) {
        return 0;
    }
    for (int64_t offset = mark->offset - 1; offset >= 0; offset--) {
        if (fake_topic_read(source->topic, partition, offset, &record)) {
            return record.timestamp_ms == mark->timestamp_ms &&
                           fcap_hash64(record.key, 0) == mark->key_hash
                       ? 1
                       : -1;
        }
    }
    return log_of(source->topic, partition)->log_start == 0 ? -1 : 0;
}

/* True when the log is not the one that the start speaks of. */
static bool find_gap(const struct fake_source *source, const struct fake_partition *owned,
                     struct fcap_gap *gap)
{
    const struct fcap_start *start = &owned->start;
    int64_t other = INT64_MAX; /* the lowest mark with another record */
    gap->wanted = start->offset;
    gap->next = gap->log_start;
    gap->kind = FCAP_GAP_BELOW_START;
    if (start->offset < gap->log_start) {
        return true;
    }
    for (size_t i = 0; i < start->mark_count; i++) {
        int same = compare_mark(source, owned->id, &start->marks[i]);
        if (same > 0) {
            gap->kind = FCAP_GAP_TRUNCATED;
            gap->same = start->marks[i].offset;
            gap->next = other < gap->end ? other : gap->end;
            return other != INT64_MAX || start->offset > gap->end;
        }
        other = same < 0 ? start->marks[i].offset : other;
    }
    gap->kind = other != INT64_MAX ? FCAP_GAP_RECREATED : FCAP_GAP_BEYOND_END;
    return other != INT64_MAX || start->offset > gap->end;
}

/* Finds the start, asks about gaps until there is none, and tells it. */
static void start(struct fake_source *source, const struct fcap_source_handler *handler,
                  struct fake_partition *owned)
{
    const struct fake_log *log = log_of(source->topic, owned->id);
    struct fcap_started started = {.partition = owned->id,
                                   .log_start = log->log_start,
                                   .end = fake_topic_end(source->topic, owned->id),
                                   .partition_count = source->topic->partition_count};
    struct fcap_gap gap = {
        .partition = owned->id, .log_start = started.log_start, .end = started.end};
    while ((owned->start.kind == FCAP_START_OFFSET || owned->start.kind == FCAP_START_AGAIN) &&
           find_gap(source, owned, &gap)) {
        owned->start = handler->gap(handler->context, &gap);
        gap.same = 0;
    }
    switch (owned->start.kind) {
    case FCAP_START_OFFSET:
        started.offset = owned->start.offset;
        break;
    case FCAP_START_TIME:
        begin_by_time(source, owned, &started);
        break;
    case FCAP_START_AGAIN:
        started.offset = started.log_start;
        if (owned->start.time_ms > 0) {
            begin_by_time(source, owned, &started);
        }
        break;
    case FCAP_START_EARLIEST:
        started.offset = started.log_start;
        break;
    case FCAP_START_LATEST:
        started.offset = started.end;
        break;
    case FCAP_START_LATER:
        FCAP_ASSERT(false); /* See is_known(). */
    }
    owned->next = started.offset;
    owned->read_next = started.offset;
    owned->started = true;
    owned->changes = log->changes;
    owned->end_told = false;
    handler->started(handler->context, &started);
}

/* A copy of the record on the heap, spoilt as soon as the handler has seen it. */
static bool deliver(const struct fcap_source_handler *handler, const struct fcap_record *original)
{
    size_t size = original->key.size + original->value.size;
    uint8_t *bytes = grow(NULL, size, 1);
    struct fcap_record record = *original;
    if (record.key.data != NULL) {
        memcpy(bytes, record.key.data, record.key.size);
        record.key.data = bytes;
    }
    if (record.value.data != NULL) {
        memcpy(bytes + record.key.size, record.value.data, record.value.size);
        record.value.data = bytes + record.key.size;
    }
    bool more = handler->record(handler->context, &record);
    memset(bytes, 0xa5, size);
    __asm__ volatile("" : : "r"(bytes) : "memory"); /* The compiler keeps the spoiling. */
    free(bytes);
    return more;
}

/* Up to `count` records of one partition; returns false when the handler wants no more. */
static bool read_some(struct fake_source *source, const struct fcap_source_handler *handler,
                      int32_t id, size_t *count, bool *ret_any)
{
    struct fake_partition *owned = find(source, id);
    struct fcap_record record;
    size_t left = source->turn_records < *count ? source->turn_records : *count;
    if (owned->started && (owned->next < log_of(source->topic, id)->log_start ||
                           owned->changes != log_of(source->topic, id)->changes)) {
        owned->started = false; /* Trimmed or another one: the next poll finds the gap. */
        if (handler->position != NULL) {
            handler->position(handler->context, id, &owned->start);
        }
        owned->start.kind = FCAP_START_OFFSET;
        owned->start.offset = owned->read_next; /* What comes again says nothing of the place. */
    }
    while (owned->started && left > 0 && owned->next < fake_topic_end(source->topic, id)) {
        int64_t offset = owned->next++;
        owned->read_next = owned->next > owned->read_next ? owned->next : owned->read_next;
        if (!fake_topic_read(source->topic, id, offset, &record)) {
            continue;
        }
        owned->end_told = false;
        *ret_any = true;
        left--;
        (*count)--;
        source->records++;
        if (!deliver(handler, &record)) {
            return false;
        }
        owned = find(source, id);
    }
    if (owned->started && !owned->end_told && owned->next >= fake_topic_end(source->topic, id)) {
        owned->end_told = true;
        handler->reached_end(handler->context, id, owned->next);
    }
    return true;
}

/* Asks for a start that was to be known later. */
static bool is_known(const struct fcap_source_handler *handler, struct fake_partition *owned)
{
    struct fcap_start start;
    if (owned->start.kind == FCAP_START_LATER &&
        handler->resumed(handler->context, owned->id, &start)) {
        owned->start = start;
    }
    return owned->start.kind != FCAP_START_LATER;
}

static enum fcap_status poll_source(struct fcap_source *port,
                                    const struct fcap_source_handler *handler,
                                    struct fcap_source_budget budget)
{
    struct fake_source *source = (struct fake_source *)port;
    if (source->fail != FCAP_OK) {
        return source->fail;
    }
    if (source->revoking_count > 0) {
        take_away(source, handler);
    }
    if (source->assigning_count > 0) {
        give(source, handler);
    }
    if (source->told_count < source->topic->partition_count && handler->counted != NULL) {
        source->told_count = source->topic->partition_count;
        handler->counted(handler->context, source->told_count);
    }
    for (size_t i = 0; i < source->owned_count; i++) {
        struct fake_partition *owned = &source->owned[i];
        if (!owned->started && is_known(handler, owned) && owned->polls_until_started-- <= 0) {
            start(source, handler, owned);
        }
    }
    bool any = budget.records_max > 0;
    bool more = true;
    while (any && more && budget.records_max > 0) {
        any = false;
        for (size_t i = 0; i < source->owned_count && more && budget.records_max > 0; i++) {
            source->turn = (source->turn + 1) % source->owned_count;
            more = read_some(source, handler, source->owned[source->turn].id, &budget.records_max,
                             &any);
        }
    }
    return FCAP_OK;
}

static bool may_send(struct fcap_source *port, int32_t partition)
{
    const struct fake_source *source = (const struct fake_source *)port;
    for (size_t i = 0; i < source->revoking_count; i++) {
        if (source->revoking[i] == partition && source->revoking_lost[i]) {
            return false;
        }
    }
    return source->send_allowed && find(source, partition) != NULL;
}

static void publish(struct fcap_source *port, int32_t partition, int64_t next_offset)
{
    struct fake_source *source = (struct fake_source *)port;
    if (partition >= source->published_count) {
        source->published =
            grow(source->published, (size_t)partition + 1, sizeof *source->published);
        for (int32_t i = source->published_count; i <= partition; i++) {
            source->published[i] = -1;
        }
        source->published_count = partition + 1;
    }
    if (may_send(port, partition)) {
        source->published[partition] = next_offset;
    }
}

void fake_source_init(struct fake_source *source, struct fake_topic *topic)
{
    static const struct fcap_source_ops ops = {
        .poll = poll_source, .may_send = may_send, .publish = publish};
    *source = (struct fake_source){
        .port.ops = &ops, .topic = topic, .send_allowed = true, .turn_records = 1};
}

void fake_source_done(struct fake_source *source)
{
    free(source->owned);
    free(source->assigning);
    free(source->revoking);
    free(source->revoking_lost);
    free(source->published);
    *source = (struct fake_source){0};
}
