/* What must hold: of every value that is sent, of every record, of every key. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

/* --- reading values and keys --- */

struct text {
    const char *at;
    const char *end;
};

static bool take_text(struct text *text, const char *wanted)
{
    size_t size = strlen(wanted);
    if ((size_t)(text->end - text->at) < size || memcmp(text->at, wanted, size) != 0) {
        return false;
    }
    text->at += size;
    return true;
}

static bool take_number(struct text *text, int64_t *ret_number)
{
    int64_t number = 0;
    const char *begin = text->at;
    while (text->at < text->end && *text->at >= '0' && *text->at <= '9') {
        number = number * 10 + (*text->at++ - '0');
    }
    *ret_number = number;
    return text->at > begin;
}

bool sim_value_parse(struct fcap_bytes value, int64_t *ret_as_of_ms, struct sim_counts *ret_counts,
                     bool *ret_partial)
{
    struct text text = {(const char *)value.data, (const char *)value.data + value.size};
    *ret_counts = (struct sim_counts){.newest_ms = SIM_NEVER};
    if (!take_text(&text, "{\"v\":1,\"as_of\":") || !take_number(&text, ret_as_of_ms) ||
        !take_text(&text, ",\"counts\":{")) {
        return false;
    }
    while (!take_text(&text, "}")) {
        int64_t ad;
        int64_t count;
        if ((ret_counts->any && !take_text(&text, ",")) || !take_text(&text, "\"a") ||
            !take_number(&text, &ad) || !take_text(&text, "\":") || !take_number(&text, &count) ||
            ad >= SIM_ADS_MAX || count <= 0 || ret_counts->ads[ad] != 0) {
            return false;
        }
        ret_counts->ads[ad] = (uint32_t)count;
        ret_counts->any = true;
    }
    *ret_partial = take_text(&text, ",\"partial\":true");
    return take_text(&text, "}") && text.at == text.end;
}

static void show(const struct sim_counts *counts, char text[256])
{
    size_t used = 0;
    text[0] = '\0';
    for (int ad = 0; ad < SIM_ADS_MAX && used < 200; ad++) {
        if (counts->ads[ad] > 0) {
            used += (size_t)snprintf(text + used, 256 - used, "%sa%d:%u", used > 0 ? " " : "", ad,
                                     counts->ads[ad]);
        }
    }
}

static void fail_counts(struct sim_world *world, const char *where, int user, size_t window,
                        int64_t clock_ms, const struct sim_counts *want,
                        const struct sim_counts *got)
{
    char wanted[256];
    char gotten[256];
    show(want, wanted);
    show(got, gotten);
    sim_fail(world, "%s: user u%d window %s (%lld ms) at T=+%lld: definition {%s}, found {%s}",
             where, user, world->settings.windows[window].name,
             (long long)world->settings.windows[window].length_ms,
             (long long)(clock_ms - world->plan.start_ms), wanted, gotten);
}

/* fc:{u<user>}:<window>, or none of ours. */
static bool parse_key(const struct sim_world *world, struct fcap_bytes key, int *ret_user,
                      size_t *ret_window)
{
    struct text text = {(const char *)key.data, (const char *)key.data + key.size};
    int64_t user;
    if (!take_text(&text, "fc:{u") || !take_number(&text, &user) || !take_text(&text, "}:")) {
        return false;
    }
    for (size_t i = 0; i < world->settings.window_count; i++) {
        struct text rest = text;
        if (take_text(&rest, world->settings.windows[i].name) && rest.at == rest.end) {
            *ret_user = (int)user;
            *ret_window = i;
            return true;
        }
    }
    return false;
}

static size_t build_key(const struct sim_world *world, int user, size_t window, char key[64])
{
    return (size_t)snprintf(key, 64, "fc:{u%d}:%s", user, world->settings.windows[window].name);
}

/* --- a value when it is sent --- */

static void check_set(struct sim_worker *worker, const struct fcap_push *push, int user,
                      size_t window, const struct fcap_task_report *report)
{
    struct sim_world *world = worker->world;
    struct sim_counts got;
    int64_t as_of;
    bool partial;
    int64_t length = world->settings.windows[window].length_ms;
    if (!sim_value_parse(push->value, &as_of, &got, &partial)) {
        sim_fail(world, "push: a value that cannot be read: %.*s", (int)push->value.size,
                 (const char *)push->value.data);
        return;
    }
    int64_t *shown = &world->shown_as_of_ms[user][window];
    if (as_of < *shown && sim_is_certain(world, window)) {
        sim_fail(world, "push: as_of of u%d %s goes back from +%lld to +%lld", user,
                 world->settings.windows[window].name, (long long)(*shown - world->plan.start_ms),
                 (long long)(as_of - world->plan.start_ms));
    }
    *shown = as_of;
    if (world->plan.limit_ads || (report->ready_mask >> window & 1) == 0) {
        return; /* Not for the definition to judge. */
    }
    struct sim_counts want;
    sim_define(world, sim_lineage_of(worker, report->partition), user, length, as_of,
               report->next_offset, &want);
    if (as_of != report->clock_ms || partial || !got.any) {
        sim_fail(world, "push: u%d %s: as_of +%lld at T=+%lld%s%s", user,
                 world->settings.windows[window].name, (long long)(as_of - world->plan.start_ms),
                 (long long)(report->clock_ms - world->plan.start_ms), partial ? ", partial" : "",
                 got.any ? "" : ", empty");
    }
    if (!sim_counts_equal(&want, &got)) {
        fail_counts(world, "push", user, window, as_of, &want, &got);
    } else if (push->expire_at_ms != want.newest_ms + length - 1) {
        sim_fail(world, "push: u%d %s: PXAT +%lld, definition +%lld", user,
                 world->settings.windows[window].name,
                 (long long)(push->expire_at_ms - world->plan.start_ms),
                 (long long)(want.newest_ms + length - 1 - world->plan.start_ms));
    }
}

void sim_check_push(struct sim_worker *worker, const struct fcap_push *push)
{
    struct sim_world *world = worker->world;
    struct fcap_task_report report;
    int user;
    size_t window;
    if (push->kind == FCAP_PUSH_INCREMENT) {
        return;
    }
    if (!parse_key(world, push->key, &user, &window) ||
        !sim_report(worker, worker->sending, &report) || !report.gate_open) {
        sim_fail(world, "push: %.*s must not be written now", (int)push->key.size,
                 (const char *)push->key.data);
        return;
    }
    sim_note_gate(worker, report.partition);
    world->score->checks[SIM_CHECK_PUSH]++;
    sim_note(world, "worker %d pushes %.*s %.*s pxat %+lld", worker->index, (int)push->key.size,
             (const char *)push->key.data, (int)push->value.size, (const char *)push->value.data,
             (long long)(push->expire_at_ms - world->plan.start_ms));
    if (push->kind == FCAP_PUSH_SET) {
        check_set(worker, push, user, window, &report);
        return;
    }
    sim_count(world, SIM_EVENT_UNLINK, 1);
    struct sim_counts want;
    struct sim_counts none = {.newest_ms = SIM_NEVER};
    sim_define(world, sim_lineage_of(worker, report.partition), user,
               world->settings.windows[window].length_ms, report.clock_ms, report.next_offset,
               &want);
    if (want.any && !world->plan.limit_ads && (report.ready_mask >> window & 1) != 0) {
        fail_counts(world, "unlink", user, window, report.clock_ms, &want, &none);
    }
}

/* False: it has lost the partition, or will be told so by its next poll. */
static bool is_owner(const struct sim_worker *worker, int partition)
{
    for (size_t i = 0; i < worker->source.revoking_count; i++) {
        if (worker->source.revoking[i] == partition) {
            return false;
        }
    }
    return worker->world->owner[partition] == worker->index;
}

/* --- a record --- */

/* Whatever is missing from a window that is not ready: nothing counts twice. */
static void check_no_doubles(struct sim_worker *worker, int user, size_t window,
                             const struct fcap_task_report *report, const struct sim_counts *got)
{
    struct sim_world *world = worker->world;
    const struct sim_log *log = &world->logs[report->partition];
    const struct sim_offsets *mine = &world->by_user[report->partition][user];
    struct sim_counts most = {.newest_ms = SIM_NEVER};
    if (sim_lineage_of(worker, report->partition)->may_double) {
        return;
    }
    for (size_t i = 0; i < mine->count; i++) {
        const struct sim_record *record = &log->records[mine->offsets[i]];
        bool is_in = record->time_ms > report->clock_ms - world->settings.windows[window].length_ms;
        most.ads[record->ad] += record->kind == SIM_EVENT && is_in;
    }
    for (int ad = 0; ad < SIM_ADS_MAX; ad++) {
        if (got->ads[ad] > most.ads[ad]) {
            fail_counts(world, "more than there ever was", user, window, report->clock_ms, &most,
                        got);
            return;
        }
    }
}

/* What a gap took must lie behind a window that claims to be ready, whatever stamps say. An event
 * that clocks which are behind would have refused as future was never to be counted. */
static void check_nothing_lost(struct sim_worker *worker, int user, size_t window,
                               const struct fcap_task_report *report)
{
    struct sim_world *world = worker->world;
    const struct sim_lineage *lineage = sim_lineage_of(worker, report->partition);
    const struct sim_log *log = &world->logs[report->partition];
    const struct sim_offsets *mine = &world->by_user[report->partition][user];
    int64_t skew_ms = world->settings.future_skew_ms - world->plan.wall_error_ms;
    int64_t begin_ms = report->clock_ms - world->settings.windows[window].length_ms;
    for (size_t i = 0; i < mine->count; i++) {
        size_t noted = (size_t)mine->offsets[i];
        const struct sim_record *record = &log->records[noted];
        bool is_lost = noted < lineage->capacity && lineage->decisions[noted] == SIM_LOST;
        if (is_lost && record->kind == SIM_EVENT && record->time_ms > begin_ms &&
            record->time_ms <= record->appended_ms + skew_ms) {
            sim_fail(world, "state: window %s is ready, but lost an event of u%d at %+lld",
                     world->settings.windows[window].name, user,
                     (long long)(record->time_ms - world->plan.start_ms));
        }
    }
}

void sim_check_state(struct sim_worker *worker, int user)
{
    struct sim_world *world = worker->world;
    int partition = sim_partition_of(world, user);
    struct fcap_task_report report;
    if (world->plan.limit_ads || world->failed || !worker->tasks[partition].started ||
        !is_owner(worker, partition) || !sim_report(worker, partition, &report)) {
        return; /* An old owner that was not told yet reads what the new one writes. */
    }
    char name[8];
    sim_user_name(user, name);
    struct fcap_buffer value = {0};
    for (size_t window = 0; window < world->settings.window_count; window++) {
        struct sim_counts want;
        struct sim_counts got;
        int64_t as_of;
        bool partial;
        bool is_ready = (report.ready_mask >> window & 1) != 0;
        fcap_buffer_clear(&value);
        if (!fcap_pipeline_inspect(worker->pipeline, partition, fcap_bytes_of(name), window,
                                   &value) ||
            !sim_value_parse(fcap_buffer_bytes(&value), &as_of, &got, &partial)) {
            sim_fail(world, "state: u%d cannot be read", user);
            break;
        }
        if (!is_ready) {
            check_no_doubles(worker, user, window, &report, &got);
            continue;
        }
        check_nothing_lost(worker, user, window, &report);
        world->score->checks[SIM_CHECK_STATE]++;
        sim_define(world, sim_lineage_of(worker, partition), user,
                   world->settings.windows[window].length_ms, report.clock_ms, report.next_offset,
                   &want);
        if (!sim_counts_equal(&want, &got)) {
            fail_counts(world, "state", user, window, report.clock_ms, &want, &got);
        }
    }
    fcap_buffer_done(&value);
}

/* --- a key --- */

/* From which state on a key may show, and up to which. */
struct range {
    int64_t clock_from;
    int64_t clock_to;
    int64_t next_from;
    int64_t next_to;
};

struct seen {
    bool present;
    int64_t as_of;
    int64_t pxat;
    struct sim_counts counts;
};

/* True when the key may look like this over the records below `next` at some T of the range. */
static bool is_right_at(struct sim_world *world, const struct sim_lineage *lineage, int user,
                        size_t window, const struct seen *seen, const struct range *range,
                        int64_t next)
{
    int64_t length = world->settings.windows[window].length_ms;
    const struct sim_log *log = &world->logs[lineage->partition];
    const struct sim_offsets *mine = &world->by_user[lineage->partition][user];
    int64_t from = range->clock_from;
    if (seen->present && seen->as_of > from) {
        from = seen->as_of;
    }
    if (from > range->clock_to && world->stepped_back) {
        from = range->clock_to; /* Shown under a clock that was ahead of this one. */
    }
    for (size_t i = 0; i <= mine->count; i++) {
        int64_t clock = i == 0 ? from : log->records[mine->offsets[i - 1]].time_ms + length;
        struct sim_counts want;
        if (clock < from || clock > range->clock_to) {
            continue;
        }
        sim_define(world, lineage, user, length, clock, next, &want);
        bool gone =
            !seen->present && want.any && want.newest_ms + length - 1 < world->redis_latest_ms;
        if (gone || sim_counts_equal(&want, &seen->counts)) {
            return true;
        }
    }
    return false;
}

static bool look(struct sim_world *world, int user, size_t window, struct seen *ret_seen)
{
    char key[64];
    size_t size = build_key(world, user, window, key);
    struct fcap_bytes value;
    bool partial;
    *ret_seen = (struct seen){.counts.newest_ms = SIM_NEVER};
    ret_seen->present = fcap_fake_redis_get(
        &world->redis, (struct fcap_bytes){(const uint8_t *)key, size}, &value, &ret_seen->pxat);
    return !ret_seen->present ||
           sim_value_parse(value, &ret_seen->as_of, &ret_seen->counts, &partial);
}

/* Shown by an earlier owner for records that this one never had to read, and past its PXAT by T,
 * which may be one second ahead of Redis: nobody knows that there is a key to unlink. */
static bool is_unknown(const struct sim_world *world, const struct sim_lineage *lineage, int user,
                       size_t window, const struct seen *seen)
{
    const struct sim_log *log = &world->logs[lineage->partition];
    const struct sim_offsets *mine = &world->by_user[lineage->partition][user];
    int64_t redis_ms = world->true_ms + world->redis_clock.offset_ms;
    int64_t newest = seen->pxat + 1 - world->settings.windows[window].length_ms;
    for (size_t i = 0; i < mine->count; i++) {
        if (mine->offsets[i] >= lineage->start &&
            log->records[mine->offsets[i]].time_ms == newest) {
            return false;
        }
    }
    return seen->pxat < redis_ms + 1000;
}

bool sim_is_refused(struct sim_worker *worker, int user, size_t window, int64_t pxat_ms)
{
    struct sim_world *world = worker->world;
    int partition = sim_partition_of(world, user);
    const struct sim_lineage *lineage = sim_lineage_of(worker, partition);
    const struct sim_offsets *mine = &world->by_user[partition][user];
    int64_t newest = pxat_ms + 1 - world->settings.windows[window].length_ms;
    for (size_t i = 0; i < mine->count && world->plan.processes > 1; i++) {
        size_t noted = (size_t)mine->offsets[i];
        bool was_refused = mine->offsets[i] < worker->tasks[partition].began &&
                           noted < lineage->capacity && lineage->decisions[noted] == SIM_REFUSED;
        bool would_be = mine->offsets[i] < lineage->start &&
                        newest > lineage->begun_ms + world->settings.future_skew_ms;
        if ((was_refused || would_be) && world->logs[partition].records[noted].time_ms == newest) {
            return true;
        }
    }
    return false;
}

static void check_key(struct sim_worker *worker, int user, size_t window, const char *where,
                      const struct range *range)
{
    struct sim_world *world = worker->world;
    int partition = sim_partition_of(world, user);
    const struct sim_lineage *lineage = sim_lineage_of(worker, partition);
    const struct sim_offsets *mine = &world->by_user[partition][user];
    struct seen seen;
    if (!look(world, user, window, &seen)) {
        sim_fail(world, "%s: u%d holds a value that cannot be read", where, user);
        return;
    }
    if (is_right_at(world, lineage, user, window, &seen, range, range->next_from)) {
        return;
    }
    for (size_t i = mine->count; i-- > 0;) {
        int64_t next = mine->offsets[i] + 1;
        if (next > range->next_from && next <= range->next_to &&
            is_right_at(world, lineage, user, window, &seen, range, next)) {
            return;
        }
    }
    if (seen.present && is_unknown(world, lineage, user, window, &seen)) {
        return;
    }
    struct sim_moment last = {range->clock_to - world->settings.windows[window].length_ms,
                              range->next_from}; /* What came since may not be shown yet. */
    if (seen.present && sim_life_is_stray(world, user, lineage, seen.pxat, &last)) {
        return;
    }
    if (seen.present &&
        (seen.pxat < world->redis_latest_ms || seen.pxat < range->clock_to - 1000)) {
        return; /* It had been gone by Redis' clock, or by what T knew of it: set back since. */
    }
    struct sim_counts want;
    sim_define(world, lineage, user, world->settings.windows[window].length_ms, range->clock_to,
               range->next_to, &want);
    if (seen.present && !want.any &&
        (sim_is_refused(worker, user, window, seen.pxat) ||
         sim_is_renamed(world, user, lineage, window, seen.pxat))) {
        return;
    }
    fail_counts(world, where, user, window, range->clock_to, &want, &seen.counts);
}

static bool is_same_redis(const struct sim_world *world, const struct fcap_sink_identity *identity)
{
    struct fcap_buffer bytes = {0};
    fcap_buffer_put_be64(&bytes, world->redis.run_id);
    fcap_buffer_put_be64(&bytes, world->redis.sentinel);
    bool same = memcmp(bytes.data, identity->bytes, sizeof identity->bytes) == 0;
    fcap_buffer_done(&bytes);
    return same;
}

/* An abandoned connection of another owner has worked since the gate opened, and the second look
 * that repairs it is not over: keys may be old. */
static bool is_disturbed(const struct sim_worker *worker, int partition)
{
    const struct sim_world *world = worker->world;
    const struct sim_task *task = &worker->tasks[partition];
    struct fcap_pipeline_sizes sizes;
    if (world->late_ms == SIM_NEVER || world->late_ms < task->gate_opened_ms) {
        return false;
    }
    fcap_pipeline_sizes(worker->pipeline, &sizes);
    return !task->second_seen || sizes.push_backlog > 0 || sizes.flights > 0;
}

void sim_check_claims(struct sim_worker *worker)
{
    struct sim_world *world = worker->world;
    struct fcap_sink_state state;
    if (!worker->open || worker->paused || world->plan.limit_ads || world->failed) {
        return;
    }
    worker->sink.sink.ops->state(&worker->sink.sink, &state);
    if (!is_same_redis(world, &state.identity)) {
        return; /* It does not know yet. */
    }
    for (int user = 0; user < world->plan.users; user++) {
        int partition = sim_partition_of(world, user);
        struct fcap_task_report report;
        if (world->spoilt[partition] || !worker->tasks[partition].known ||
            !is_owner(worker, partition) || !sim_report(worker, partition, &report) ||
            report.claimed_next < 0 || is_disturbed(worker, partition)) {
            continue;
        }
        struct range range = {report.claimed_as_of_ms, report.clock_ms, report.claimed_next,
                              report.next_offset};
        for (size_t window = 0; window < world->settings.window_count; window++) {
            if (((report.ready_mask & report.projected_mask) >> window & 1) != 0 &&
                sim_is_certain(world, window)) {
                world->score->checks[SIM_CHECK_CLAIM]++;
                check_key(worker, user, window, "claim", &range);
            }
        }
    }
}

/* --- a commit --- */

static struct sim_worker *worker_of(struct sim_world *world, int process, int partition,
                                    uint64_t assignment)
{
    for (int i = 0; i < world->worker_count; i++) {
        struct sim_worker *worker = &world->workers[i];
        if (worker->open && !worker->paused && worker->process == process &&
            worker->tasks[partition].known && worker->tasks[partition].assignment == assignment &&
            is_owner(worker, partition)) {
            return worker;
        }
    }
    return NULL;
}

static bool read_meta(const struct fcap_batch *batch, const struct fcap_batch_section *section,
                      struct fcap_meta *ret_meta)
{
    for (size_t i = section->first; i < section->first + section->count; i++) {
        const struct fcap_batch_entry *entry = &batch->entries[i];
        struct fcap_bytes key = fcap_batch_key(batch, i);
        if (entry->family == FCAP_FAMILY_META && entry->change == FCAP_CHANGE_PUT &&
            key.size == 2 + strlen(FCAP_META_NAME) &&
            memcmp(key.data + 2, FCAP_META_NAME, key.size - 2) == 0) {
            return fcap_meta_decode(fcap_batch_value(batch, i), ret_meta) == FCAP_OK;
        }
    }
    return false;
}

static void check_section(struct sim_worker *worker, const struct fcap_meta *meta, int partition)
{
    struct sim_world *world = worker->world;
    struct fcap_task_report report;
    if (!sim_report(worker, partition, &report)) {
        return;
    }
    const struct sim_lineage *lineage = sim_lineage_of(worker, partition);
    int64_t next =
        sim_noted(world, partition, sim_life_of_commit(lineage, meta->commit), meta->next_offset);
    struct range range = {meta->clock_ms, report.clock_ms, next, report.next_offset};
    bool closed = !report.gate_open || meta->epoch != (uint64_t)report.epoch; /* when encoded */
    if (closed) {
        sim_count(world, SIM_EVENT_CLOSED_COMMIT, 1);
        if (world->plan.processes > 1) {
            return; /* Redis may show what another process made of newer records. */
        }
    }
    if (is_disturbed(worker, partition) || world->spoilt[partition]) {
        return;
    }
    for (int user = partition; user < world->plan.users; user += world->plan.partitions) {
        const struct sim_offsets *mine = &world->by_user[partition][user];
        int64_t newest = mine->count > 0 ? mine->offsets[mine->count - 1] : -1;
        if (world->revised_next[partition][user] > next || (closed && newest >= next)) {
            continue; /* Redis may show what an earlier run made of a record that this commit does
                         not cover; it will be read again, and the user shown again. */
        }
        for (size_t i = 0; i < meta->window_count; i++) {
            if (is_same_redis(world, &meta->windows[i].projected_to) &&
                (report.ready_mask >> i & 1) != 0 && sim_is_certain(world, i)) {
                world->score->checks[SIM_CHECK_COMMIT]++;
                check_key(worker, user, i, "commit ahead of Redis", &range);
            }
        }
    }
}

/* A batch is about to be written: Redis must hold what it covers. */
void sim_check_commit(struct sim_world *world, int process, const struct fcap_batch *batch)
{
    for (size_t i = 0; i < batch->section_count && !world->plan.limit_ads; i++) {
        const struct fcap_batch_section *section = &batch->sections[i];
        struct sim_worker *worker =
            worker_of(world, process, section->partition, section->assignment);
        struct fcap_meta meta;
        if (worker == NULL) {
            continue;
        }
        if (!read_meta(batch, section, &meta)) {
            sim_fail(world, "a commit of partition %d without meta", section->partition);
            continue;
        }
        sim_note(world, "commit %llu of %d: next %lld, T=+%lld, redo from %llu",
                 (unsigned long long)meta.commit, section->partition, (long long)meta.next_offset,
                 (long long)(meta.clock_ms - world->plan.start_ms),
                 (unsigned long long)meta.redo_from);
        check_section(worker, &meta, section->partition);
    }
}
