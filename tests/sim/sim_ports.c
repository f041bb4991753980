/* The fakes' ports with an ear on them: what was read, what was refused, what is sent. */
#include "sim.h"

#include <string.h>

struct sim_lineage *sim_lineage_of(struct sim_worker *worker, int partition)
{
    return &worker->world->processes[worker->process].lineages[partition];
}

struct find {
    int32_t partition;
    bool found;
    struct fcap_task_report report;
};

static void find_report(void *context, const struct fcap_task_report *report)
{
    struct find *find = context;
    if (report->partition == find->partition) {
        find->found = true;
        find->report = *report;
    }
}

bool sim_report(struct sim_worker *worker, int partition, struct fcap_task_report *ret_report)
{
    struct find find = {.partition = partition};
    if (!worker->open) {
        return false;
    }
    fcap_pipeline_report(worker->pipeline, find_report, &find);
    if (find.found) {
        /* From offsets of the log that the task reads to noted records. */
        int life = sim_lineage_of(worker, partition)->life;
        const struct sim_world *world = worker->world;
        *ret_report = find.report;
        ret_report->next_offset = sim_noted(world, partition, life, find.report.next_offset);
        ret_report->claimed_next = sim_noted(world, partition, life, find.report.claimed_next);
        ret_report->committed_offset =
            sim_noted(world, partition, life, find.report.committed_offset);
    }
    return find.found;
}

void sim_note_gate(struct sim_worker *worker, int partition)
{
    struct sim_world *world = worker->world;
    struct sim_task *task = &worker->tasks[partition];
    if (task->gate_open) {
        return;
    }
    task->gate_open = true;
    task->gate_opened_ms = world->monotonic_ms;
    sim_note(world, "the gate of %d is open at worker %d", partition, worker->index);
    struct fcap_sink_state state;
    worker->sink.sink.ops->state(&worker->sink.sink, &state);
    int64_t age_ms = world->monotonic_ms - task->epoch_ms;
    /* Where a step looks at clocks often, time passes in it, also after this. */
    if (age_ms - world->processes[worker->process].clock.passed_ms > FCAP_BACKFILL_OPENING_MS ||
        (task->epoch_connection != state.connection &&
         task->epoch_connection != worker->polled_connection)) {
        sim_fail(world, "the gate of %d opens on an epoch of %lld ms ago, connection %llu of %llu",
                 partition, (long long)age_ms, (unsigned long long)task->epoch_connection,
                 (unsigned long long)state.connection);
    }
    for (int user = 0; user < world->plan.users && world->stepped_back; user++) {
        if (sim_partition_of(world, user) == partition) {
            /* A wall clock set back across a restart is the stated exception. */
            for (size_t i = 0; i < FCAP_WINDOWS_MAX; i++) {
                world->shown_as_of_ms[user][i] = SIM_NEVER;
            }
        }
    }
}

/* --- the source --- */

static struct fcap_log_mark highest_mark(const struct fcap_start *start)
{
    return start->mark_count > 0 ? start->marks[0] : (struct fcap_log_mark){0};
}

/* Two records can be alike by time and key; then nobody can tell. */
static bool looks_the_same(const struct sim_world *world, int partition,
                           const struct fcap_log_mark *mark)
{
    struct fcap_record record;
    int64_t offset = mark->offset - 1;
    while (offset >= 0 && !fake_topic_read(&world->topic, partition, offset, &record)) {
        offset--;
    }
    return offset >= 0 && record.timestamp_ms == mark->timestamp_ms &&
           fcap_hash64(record.key, 0) == mark->key_hash;
}

static void on_assigned(void *context, const int32_t *partitions, const uint64_t *assignments,
                        size_t count, struct fcap_start *ret_starts)
{
    struct sim_worker *worker = context;
    worker->handler.assigned(worker->handler.context, partitions, assignments, count, ret_starts);
    for (size_t i = 0; i < count; i++) {
        sim_count(
            worker->world, SIM_EVENT_STALE_STATE,
            ret_starts[i].kind != FCAP_START_OFFSET && ret_starts[i].kind != FCAP_START_AGAIN &&
                fake_store_holds(worker->world->processes[worker->process].store, partitions[i]));
        sim_note(worker->world, "worker %d takes %d: start kind %d at %lld", worker->index,
                 partitions[i], (int)ret_starts[i].kind, (long long)ret_starts[i].offset);
        worker->tasks[partitions[i]] = (struct sim_task){.known = true,
                                                         .assignment = assignments[i],
                                                         .start = ret_starts[i].kind,
                                                         .future_ms = ret_starts[i].future_ms,
                                                         .mark = highest_mark(&ret_starts[i])};
        struct fcap_task_report report;
        if (sim_report(worker, partitions[i], &report)) {
            sim_life_settle(worker->world, sim_lineage_of(worker, partitions[i]), report.commit);
            sim_life_revert(sim_lineage_of(worker, partitions[i]), report.commit);
        }
    }
}

/* A state that goes on in another life without a gap: all that it had read is there. */
static void meet_another_log(struct sim_worker *worker, const struct fcap_started *started)
{
    struct sim_world *world = worker->world;
    int partition = started->partition;
    struct sim_lineage *lineage = sim_lineage_of(worker, partition);
    struct fcap_task_report report;
    if (!sim_life_is_old(world, partition, lineage) || !sim_report(worker, partition, &report)) {
        return;
    }
    if (!sim_life_is_same_below(world, partition, lineage, started->offset) &&
        worker->tasks[partition].mark.offset >= started->offset &&
        (worker->tasks[partition].mark.offset > started->end ||
         !looks_the_same(world, partition, &worker->tasks[partition].mark)) &&
        started->offset > started->log_start) {
        sim_fail(world, "partition %d: nobody noticed that its log is another one", partition);
    }
    int64_t from = sim_noted(world, partition, lineage->life, started->offset);
    sim_life_switch(world, partition, lineage, report.commit);
    int64_t to = sim_noted(world, partition, lineage->life, started->offset);
    for (int64_t at = from; at < to; at++) {
        sim_decide(lineage, at, SIM_UNREAD);
    }
    sim_life_lose(world, partition, lineage, from, SIM_UNREAD);
}

static void on_started(void *context, const struct fcap_started *started)
{
    struct sim_worker *worker = context;
    struct sim_task *task = &worker->tasks[started->partition];
    sim_note(worker->world, "partition %d starts at %lld of %lld .. %lld", started->partition,
             (long long)started->offset, (long long)started->log_start, (long long)started->end);
    bool is_new = task->start != FCAP_START_OFFSET;
    if (is_new) {
        struct sim_process *process = &worker->world->processes[worker->process];
        struct sim_lineage *lineage = &process->lineages[started->partition];
        struct fcap_task_report report;
        if (task->start == FCAP_START_AGAIN && sim_report(worker, started->partition, &report)) {
            sim_life_keep(lineage, report.commit);
            sim_count(worker->world, SIM_EVENT_AGAIN, 1);
        }
        sim_life_enter(worker->world, started->partition, lineage, started->offset);
        int64_t told_ms = process->clock.told_ms;
        lineage->future_ms = task->future_ms;
        lineage->begun_ms = told_ms > worker->redis_told_ms ? told_ms : worker->redis_told_ms;
        task->start = FCAP_START_OFFSET; /* Should it be told again. */
        sim_count(worker->world, SIM_EVENT_REPLAYED, 1);
    }
    meet_another_log(worker, started);
    sim_life_read_on(worker->world, started->partition, sim_lineage_of(worker, started->partition),
                     started->offset);
    task->started = true;
    task->began = sim_noted(worker->world, started->partition,
                            sim_lineage_of(worker, started->partition)->life, started->offset);
    worker->handler.started(worker->handler.context, started);
    if (is_new) {
        sim_note_blind(worker, started->partition);
    }
}

static void on_counted(void *context, int32_t partition_count)
{
    struct sim_worker *worker = context;
    sim_note(worker->world, "worker %d sees %d partitions", worker->index, partition_count);
    worker->counted = partition_count;
    worker->handler.counted(worker->handler.context, partition_count);
}

static void on_revoked(void *context, const int32_t *partitions, size_t count, bool lost)
{
    struct sim_worker *worker = context;
    worker->handler.revoked(worker->handler.context, partitions, count, lost);
    for (size_t i = 0; i < count; i++) {
        sim_note(worker->world, "worker %d gives %d back%s", worker->index, partitions[i],
                 lost ? " (lost)" : "");
        worker->tasks[partitions[i]] = (struct sim_task){0};
    }
    worker->users_seen = 0;
}

/* The future rule, from the record alone and the clocks that the worker has read: its own and that
 * of Redis, whichever is later. */
static bool is_future(const struct sim_world *world, const struct sim_record *record, int64_t wall,
                      int64_t redis)
{
    int64_t bound = wall < redis ? redis : wall;
    if (world->plan.timestamps == FCAP_TIMESTAMP_APPEND && record->timestamp_ms < bound) {
        bound = record->timestamp_ms;
    }
    return record->kind == SIM_EVENT && record->time_ms > bound + world->settings.future_skew_ms;
}

/* Where records are read twice, a tombstone erases once more what stands behind it in the topic. */
static void erase_again(struct sim_world *world, struct sim_lineage *lineage, int64_t at)
{
    int partition = lineage->partition;
    const struct sim_log *log = &world->logs[partition];
    const struct sim_record *tombstone = &log->records[at];
    const struct sim_offsets *mine = &world->by_user[partition][tombstone->user];
    for (size_t i = 0; i < mine->count && tombstone->kind == SIM_TOMBSTONE; i++) {
        int64_t noted = mine->offsets[i];
        if (noted > at && noted < world->read_next[partition] && lineage->may_double) {
            sim_decide(lineage, noted, SIM_UNREAD); /* Until it is read again. */
        }
    }
}

static bool on_record(void *context, const struct fcap_record *record)
{
    struct sim_worker *worker = context;
    struct sim_world *world = worker->world;
    struct sim_lineage *lineage = sim_lineage_of(worker, record->partition);
    struct fcap_task_report before;
    int64_t at = sim_noted(world, record->partition, lineage->life, record->offset);
    bool fresh = sim_report(worker, record->partition, &before) && at >= before.next_offset;
    int64_t wall = world->processes[worker->process].clock.told_ms;
    int64_t redis = worker->redis_told_ms;
    const struct sim_record *noted = &world->logs[record->partition].records[at];
    bool was_refused = (size_t)at < lineage->capacity && lineage->decisions[at] == SIM_REFUSED;
    if (fresh) {
        sim_decide(lineage, at, SIM_ACCEPTED); /* A dead letter says otherwise. */
        int64_t *read_next = &world->read_next[record->partition];
        *read_next = at < *read_next ? *read_next : at + 1;
        erase_again(world, lineage, at);
    }
    worker->reading = true;
    bool more = worker->handler.record(worker->handler.context, record);
    worker->reading = false;
    if (fcap_pipeline_error(worker->pipeline)[0] != '\0') {
        return more; /* It has not been looked at. */
    }
    if (!fresh) {
        sim_note(world, "record %d/%lld again", record->partition, (long long)record->offset);
    }
    if (fresh) {
        bool refused = lineage->decisions[at] == SIM_REFUSED;
        sim_note(world, "record %d/%lld: %s u%d a%d e=%+lld ts=%+lld id=%u%s%s", record->partition,
                 (long long)record->offset,
                 noted->kind == SIM_EVENT       ? "event"
                 : noted->kind == SIM_TOMBSTONE ? "tombstone"
                                                : "junk",
                 noted->user, noted->ad, (long long)(noted->time_ms - world->plan.start_ms),
                 (long long)(noted->timestamp_ms - world->plan.start_ms), noted->id,
                 noted->is_copy ? " copy" : "", refused ? " future" : "");
        if (was_refused && !refused && world->revised_next[record->partition][noted->user] <= at) {
            world->revised_next[record->partition][noted->user] = at + 1;
        }
        if (refused != is_future(world, noted, wall, redis)) {
            sim_fail(world, "record %d/%lld: refused as future %d, by definition %d",
                     record->partition, (long long)record->offset, refused, !refused);
        }
    }
    return more;
}

static void on_reached_end(void *context, int32_t partition, int64_t offset)
{
    struct sim_worker *worker = context;
    worker->handler.reached_end(worker->handler.context, partition, offset);
}

static struct fcap_start on_gap(void *context, const struct fcap_gap *gap)
{
    struct sim_worker *worker = context;
    struct sim_world *world = worker->world;
    struct sim_lineage *lineage = sim_lineage_of(worker, gap->partition);
    struct fcap_task_report report = {0};
    (void)sim_report(worker, gap->partition, &report); /* It is there: it asks. */
    struct fcap_start start = worker->handler.gap(worker->handler.context, gap);
    int64_t from = sim_noted(world, gap->partition, lineage->life, gap->wanted);
    /* Without a mark that the log still covers, a shortened one is taken for another. */
    lineage->may_double =
        lineage->may_double || gap->kind == FCAP_GAP_BEYOND_END ||
        (gap->kind == FCAP_GAP_RECREATED &&
         sim_life_is_same_below(world, gap->partition, lineage, gap->log_start + 1));
    bool is_old = sim_life_is_old(world, gap->partition, lineage);
    /* When retention has taken every mark, nothing tells that the log is another one, too. */
    enum sim_decision gone = is_old && gap->kind == FCAP_GAP_BELOW_START ? SIM_UNREAD : SIM_LOST;
    if (is_old) {
        sim_life_switch(world, gap->partition, lineage, report.commit);
        sim_life_lose(world, gap->partition, lineage, from, gone);
    }
    int64_t to = sim_noted(world, gap->partition, lineage->life, start.offset);
    sim_note(worker->world, "gap in %d: %lld wanted, goes on at %lld", gap->partition,
             (long long)gap->wanted, (long long)start.offset);
    for (int64_t at = from; at < to; at++) {
        sim_decide(lineage, at, gone);
    }
    return start;
}

static void on_position(void *context, int32_t partition, struct fcap_start *ret_start)
{
    struct sim_worker *worker = context;
    worker->handler.position(worker->handler.context, partition, ret_start);
    worker->tasks[partition].mark = highest_mark(ret_start);
}

static enum fcap_status poll_source(struct fcap_source *port,
                                    const struct fcap_source_handler *handler,
                                    struct fcap_source_budget budget)
{
    struct sim_worker *worker = (struct sim_worker *)port;
    worker->handler = *handler;
    struct fcap_source_handler ear = {
        worker,         on_assigned, on_started,  on_revoked, on_record,
        on_reached_end, on_gap,      on_position, on_counted,
    };
    return worker->source.port.ops->poll(&worker->source.port, &ear, budget);
}

static bool may_send(struct fcap_source *port, int32_t partition)
{
    struct sim_worker *worker = (struct sim_worker *)port;
    worker->sending = partition; /* It is asked before each user. */
    return worker->source.port.ops->may_send(&worker->source.port, partition);
}

static void publish(struct fcap_source *port, int32_t partition, int64_t next_offset)
{
    struct sim_worker *worker = (struct sim_worker *)port;
    worker->source.port.ops->publish(&worker->source.port, partition, next_offset);
}

/* --- the sink --- */

/* fc:epoch:<profile>:<partition> */
static void note_epoch(struct sim_worker *worker, const struct fcap_push *command)
{
    struct fcap_sink_state state;
    int partition = command->key.data[command->key.size - 1] - '0';
    struct sim_task *task = &worker->tasks[partition];
    worker->sink.sink.ops->state(&worker->sink.sink, &state);
    task->epoch_asked = true;
    task->epoch_token = command->token;
    task->epoch_connection = state.connection;
}

static enum fcap_status push(struct fcap_sink *port, const struct fcap_push *command)
{
    struct sim_worker *worker = ((struct sim_sink *)port)->worker;
    enum fcap_status status = worker->sink.sink.ops->push(&worker->sink.sink, command);
    if (status == FCAP_OK && command->kind == FCAP_PUSH_INCREMENT) {
        note_epoch(worker, command);
    }
    if (status == FCAP_OK) {
        sim_check_push(worker, command);
    }
    return status;
}

static void on_acked(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    struct sim_worker *worker = context;
    worker->sink_handler.acked(worker->sink_handler.context, token, result, integer);
    for (int p = 0; p < SIM_PARTITIONS_MAX; p++) {
        struct sim_task *task = &worker->tasks[p];
        if (task->epoch_asked && task->epoch_token == token) {
            task->epoch_asked = false;
            task->epoch_ms = worker->world->monotonic_ms; /* As the task has just read it. */
        }
    }
}

static enum fcap_status poll_sink(struct fcap_sink *port, const struct fcap_sink_handler *handler,
                                  int timeout_ms)
{
    struct sim_worker *worker = ((struct sim_sink *)port)->worker;
    struct fcap_sink_state state;
    worker->sink.sink.ops->state(&worker->sink.sink, &state);
    worker->polled_connection = state.connection; /* It may break now. */
    worker->sink_handler = *handler;
    struct fcap_sink_handler ear = {worker, on_acked};
    return worker->sink.sink.ops->poll(&worker->sink.sink, &ear, timeout_ms);
}

static void sink_state(struct fcap_sink *port, struct fcap_sink_state *ret_state)
{
    struct sim_worker *worker = ((struct sim_sink *)port)->worker;
    worker->sink.sink.ops->state(&worker->sink.sink, ret_state);
    worker->redis_told_ms = ret_state->time_ms;
}

/* --- dead letters --- */

static enum fcap_status write_letter(struct fcap_dead_letters *base,
                                     const struct fcap_record *record, enum fcap_reject reason,
                                     uint64_t *ret_ticket)
{
    struct sim_letters *letters = (struct sim_letters *)base;
    struct sim_world *world = letters->worker->world;
    if (reason == FCAP_REJECT_FUTURE && letters->worker->reading) { /* Not a later try. */
        struct sim_lineage *lineage = sim_lineage_of(letters->worker, record->partition);
        sim_decide(lineage, sim_noted(world, record->partition, lineage->life, record->offset),
                   SIM_REFUSED);
    }
    if (world->monotonic_ms < world->letters_busy_ms) {
        return FCAP_BUSY;
    }
    *ret_ticket = ++letters->ticket;
    return FCAP_OK;
}

/* A letter is durable some calls later. */
static uint64_t letters_done(struct fcap_dead_letters *base)
{
    struct sim_letters *letters = (struct sim_letters *)base;
    if (letters->done < letters->ticket &&
        letters->worker->world->monotonic_ms >= letters->worker->world->letters_busy_ms) {
        letters->done++;
    }
    return letters->done;
}

void sim_ports_init(struct sim_worker *worker)
{
    static const struct fcap_source_ops source_ops = {poll_source, may_send, publish};
    static const struct fcap_sink_ops sink_ops = {push, poll_sink, sink_state};
    static const struct fcap_dead_letters_ops letters_ops = {write_letter, letters_done};
    worker->source_port.ops = &source_ops;
    worker->sink_port.port.ops = &sink_ops;
    worker->sink_port.worker = worker;
    worker->letters = (struct sim_letters){.letters.ops = &letters_ops, .worker = worker};
}
