/* Sending values: queues of users, pushes in flight, and the marks that say what is acknowledged.
 *
 * A queue holds user x windows, never values: the value is encoded when it is sent, so whatever is
 * sent last is newest. Every queued user and every push in flight is an obligation of one mark; a
 * commit waits until all marks up to its own have none left. */
#include "core.h"

#include <stdlib.h>

#define FLIGHTS_MAX 65536

static struct push_queue *queue_of(struct fcap_task *task, enum push_queue_kind kind)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    return kind == QUEUE_CLOSED  ? &task->closed
           : kind == QUEUE_FIRST ? &pipeline->first
           : kind == QUEUE_HELD  ? &pipeline->held
                                 : &pipeline->second;
}

static void queue_append(struct push_queue *queue, struct fcap_user *user)
{
    user->push_next = NULL;
    user->push_previous = queue->tail;
    if (queue->tail != NULL) {
        queue->tail->push_next = user;
    } else {
        queue->head = user;
    }
    queue->tail = user;
    queue->count++;
}

void queue_remove(struct push_queue *queue, struct fcap_user *user)
{
    *(user->push_previous != NULL ? &user->push_previous->push_next : &queue->head) =
        user->push_next;
    *(user->push_next != NULL ? &user->push_next->push_previous : &queue->tail) =
        user->push_previous;
    user->push_next = NULL;
    user->push_previous = NULL;
    queue->count--;
}

static uint64_t *outstanding(struct fcap_pipeline *pipeline, uint64_t mark)
{
    return &pipeline->marks[mark % MARKS_MAX].outstanding;
}

static bool send_user(struct fcap_pipeline *pipeline, struct fcap_user *user);

/* The mutant encodes a value when its user is queued, in the middle of a step. */
static void send_early(struct fcap_user *user)
{
    struct fcap_pipeline *pipeline = user->task->pipeline;
    if (FCAP_MUTANT(QUEUE_VALUE) && user->task->gate_open && pipeline->sink_state.ready) {
        (void)send_user(pipeline, user); /* What stays queued is sent later. */
    }
}

void push_mark(struct fcap_user *user, uint32_t windows, enum push_queue_kind kind)
{
    struct fcap_task *task = user->task;
    struct fcap_pipeline *pipeline = task->pipeline;
    if (windows == 0) {
        return;
    }
    kind = task->gate_open ? kind : QUEUE_CLOSED;
    pipeline->changed = true;
    if (user->push_queue == QUEUE_NONE) {
        user->push_mask = (uint16_t)windows;
        user->push_queue = (uint8_t)kind;
        queue_append(queue_of(task, kind), user);
        if (kind != QUEUE_CLOSED) {
            user->push_mark = pipeline->mark_open;
            ++*outstanding(pipeline, user->push_mark);
        }
        send_early(user);
        return;
    }
    user->push_mask = (uint16_t)(user->push_mask | windows);
    if (kind >= QUEUE_FIRST && kind < (enum push_queue_kind)user->push_queue) { /* Sooner. */
        queue_remove(queue_of(task, user->push_queue), user);
        user->push_queue = (uint8_t)kind;
        queue_append(queue_of(task, kind), user);
    }
    send_early(user);
}

static void keep_oldest(int64_t *oldest_ms, int64_t time_ms)
{
    if (*oldest_ms == 0 || time_ms < *oldest_ms) {
        *oldest_ms = time_ms;
    }
}

void push_note_record(struct fcap_user *user, int64_t timestamp_ms)
{
    if (user->push_queue >= QUEUE_FIRST) {
        keep_oldest(&user->fresh_ms, timestamp_ms);
    }
}

void push_note_due(struct fcap_user *user, int64_t due_ms)
{
    if (user->push_queue >= QUEUE_FIRST) {
        keep_oldest(&user->due_ms, due_ms);
    }
}

/* The delays end with the answer to the last of the user's pushes: all windows are shown then. */
static void hand_over_delays(struct fcap_pipeline *pipeline, struct fcap_user *user)
{
    if (user->flights > 0) {
        struct flight *last =
            &pipeline->flights[(pipeline->flight_next - 1) % pipeline->flight_capacity];
        if (last->user == user) {
            last->fresh_ms = user->fresh_ms;
            last->due_ms = user->due_ms;
        }
    }
    user->fresh_ms = 0;
    user->due_ms = 0;
}

static void observe_delays(struct fcap_pipeline *pipeline, const struct flight *flight)
{
    if (flight->fresh_ms == 0 && flight->due_ms == 0) {
        return;
    }
    int64_t now_ms = pipeline->ports.clock->wall_ms(pipeline->ports.clock);
    if (flight->fresh_ms != 0) {
        fcap_delay_observe(&pipeline->delays.freshness_seconds, now_ms - flight->fresh_ms);
    }
    if (flight->due_ms != 0) {
        fcap_delay_observe(&pipeline->delays.expiry_lateness_seconds, now_ms - flight->due_ms);
    }
}

/* Takes a user out of its queue, with its obligation. */
void push_unqueue(struct fcap_pipeline *pipeline, struct fcap_user *user)
{
    if (user->push_queue == QUEUE_NONE) {
        return;
    }
    queue_remove(queue_of(user->task, user->push_queue), user);
    if (user->push_queue != QUEUE_CLOSED) {
        --*outstanding(pipeline, user->push_mark);
    }
    user->push_queue = QUEUE_NONE;
    user->push_mask = 0;
    user->fresh_ms = 0;
    user->due_ms = 0;
}

/* A push that was not done: its user x window is dirty again, for the mark that waits for it. */
static void push_again(struct fcap_pipeline *pipeline, const struct flight *flight)
{
    struct fcap_user *user = flight->user;
    bool queued = user->push_queue != QUEUE_NONE;
    push_mark(user, 1u << flight->window, QUEUE_SECOND);
    if (flight->fresh_ms != 0) {
        push_note_record(user, flight->fresh_ms);
    }
    if (flight->due_ms != 0) {
        push_note_due(user, flight->due_ms);
    }
    if (!queued || user->push_mark > flight->mark) {
        --*outstanding(pipeline, user->push_mark);
        user->push_mark = flight->mark; /* The flight's obligation becomes the queue's. */
        return;
    }
    --*outstanding(pipeline, flight->mark);
}

static struct flight *flight_add(struct fcap_pipeline *pipeline)
{
    if (pipeline->flight_next - pipeline->flight_first == pipeline->flight_capacity) {
        return NULL;
    }
    return &pipeline->flights[pipeline->flight_next % pipeline->flight_capacity];
}

/* A moment that the wall clock and the server's clock have passed: keys expire by the latter. */
static int64_t safe_now(const struct fcap_pipeline *pipeline)
{
    int64_t redis_ms = pipeline->sink_state.time_ms;
    return redis_ms < pipeline->wall_ms ? redis_ms : pipeline->wall_ms;
}

/* Redis may hold what another owner or an earlier run made of records that this one judged
 * differently: what this one knows says nothing about a key's PXAT. */
static bool may_be_foreign(const struct fcap_task *task)
{
    const struct fcap_pipeline *pipeline = task->pipeline;
    return task->full.active ||
           pipeline->monotonic_ms < task->second.due_ms + pipeline->settings.session_timeout_ms;
}

void push_build(struct fcap_task *task, const struct fcap_user *user, struct fcap_bytes id,
                size_t window, struct fcap_push *push, int64_t *ret_newest_ms, bool *ret_cut)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    const struct fcap_settings *settings = &pipeline->settings;
    const struct fcap_window_meta *meta = &task->meta.windows[window];
    bool partial = user->partial_newest_ms > cursor_of(task, window);
    int64_t newest = user->newest_ms;
    if (partial && user->partial_newest_ms > newest) {
        newest = user->partial_newest_ms;
    }
    fcap_buffer_clear(&pipeline->key);
    fcap_buffer_clear(&pipeline->value);
    *ret_cut = false;
    bool any =
        fcap_value_build(user, settings->window_count, window, &task->ads, task->meta.clock_ms,
                         partial, settings->value_bytes, &pipeline->value, ret_cut);
    if (!partial && !any) {
        newest = user->erased_until_ms > newest ? user->erased_until_ms : newest;
        *push = (struct fcap_push){.kind = FCAP_PUSH_UNLINK};
    } else {
        *push = (struct fcap_push){.kind = FCAP_PUSH_SET};
        push->value = fcap_buffer_bytes(&pipeline->value);
        push->expire_at_ms = newest + meta->length_ms - (FCAP_MUTANT(PXAT_PLUS_ONE) ? 0 : 1);
    }
    *ret_newest_ms = newest;
    fcap_key_build(&pipeline->key_template, id, meta->name, &pipeline->key);
    push->key = fcap_buffer_bytes(&pipeline->key);
}

/* An erasure takes keys away whatever clocks and readiness say: a clock may have been set back. */
static bool is_erased(const struct fcap_user *user)
{
    return user->erased_until_ms != FCAP_TIME_NONE && !FCAP_MUTANT(ERASED_CLOCK);
}

/* Fills the push of one user x window; false when nothing needs to be sent. */
static bool fill_push(struct fcap_user *user, size_t window, struct fcap_push *push)
{
    struct fcap_task *task = user->task;
    struct fcap_pipeline *pipeline = task->pipeline;
    int64_t newest;
    bool cut;
    const struct fcap_window_meta *meta = &task->meta.windows[window];
    bool is_owner = growth_owns(task, user);
    /* Nobody may take another window's key for this one's, nor what an earlier life or another
     * owner has left for a user who was erased since. */
    bool is_gone =
        is_owner ? is_erased(user) : meta->taken || growth_erased(task, user, meta->length_ms);
    if (is_gone && !is_owner) {
        growth_take_away(task, user, window);
    }
    if (!task_window_served(task, window)) {
        /* A complete projection follows when it is ready. What Redis holds of an earlier owner,
         * whose window was complete, lacks the change. */
        fcap_buffer_clear(&pipeline->key);
        fcap_key_build(&pipeline->key_template, fcap_user_id(user), meta->name, &pipeline->key);
        *push = (struct fcap_push){.kind = FCAP_PUSH_UNLINK};
        push->key = fcap_buffer_bytes(&pipeline->key);
        return (is_owner && !FCAP_MUTANT(HELD_LEFT)) || is_gone;
    }
    if (!is_owner && !is_gone) {
        return false; /* Somebody else shows it, or its PXAT ends it. */
    }
    push_build(task, user, fcap_user_id(user), window, push, &newest, &cut);
    if (!is_owner) {
        *push = (struct fcap_push){.kind = FCAP_PUSH_UNLINK, .key = push->key};
        return true;
    }
    if (push->kind == FCAP_PUSH_UNLINK) {
        bool has_passed =
            newest == FCAP_TIME_NONE || newest + meta->length_ms <= safe_now(pipeline) - 1000;
        /* Its PXAT has passed: the key is gone by itself. */
        return !((has_passed && !may_be_foreign(task) && !is_gone) || FCAP_MUTANT(PXAT_ONLY));
    }
    FCAP_COUNT(pipeline->counters.values_cut, cut);
    return true;
}

/* Sends the windows that a user waits for; false when the sink takes no more. */
static bool send_user(struct fcap_pipeline *pipeline, struct fcap_user *user)
{
    struct fcap_sink *sink = pipeline->ports.sink;
    while (user->push_mask != 0) {
        unsigned window = (unsigned)__builtin_ctz(user->push_mask);
        struct fcap_push push;
        if (fill_push(user, window, &push)) {
            struct flight *flight = flight_add(pipeline);
            push.token = pipeline->flight_next;
            if (flight == NULL || sink->ops->push(sink, &push) != FCAP_OK) {
                return false;
            }
            *flight = (struct flight){.task = user->task,
                                      .user = user,
                                      .mark = user->push_mark,
                                      .window = (uint8_t)window};
            pipeline->flight_next++;
            ++*outstanding(pipeline, user->push_mark);
            user->flights++;
            FCAP_POINT(push_queued);
            FCAP_POINT_IF(user->task->full.active, full_pushed);
            FCAP_COUNT(pipeline->counters.push_bytes, push.key.size + push.value.size);
            if (push.kind == FCAP_PUSH_SET) {
                FCAP_COUNT(pipeline->counters.pushes_set, 1);
            } else {
                FCAP_COUNT(pipeline->counters.pushes_unlink, 1);
            }
        }
        user->push_mask = (uint16_t)(user->push_mask & (user->push_mask - 1));
    }
    hand_over_delays(pipeline, user);
    push_unqueue(pipeline, user);
    return true;
}

/* An expiry's key changes again when the user sees something or another event leaves, and in a
 * while both are one write. A clock that was set back holds nothing up. */
static bool is_held(const struct fcap_pipeline *pipeline, const struct fcap_user *user)
{
    return FCAP_MUTANT(HOLD) || (!pipeline->draining && user->due_ms <= pipeline->wall_ms &&
                                 pipeline->wall_ms < user->due_ms + pipeline->hold_ms &&
                                 pipeline->held.count <= pipeline->settings.push_backlog_max / 2);
}

void push_send(struct fcap_pipeline *pipeline)
{
    struct fcap_source *source = pipeline->ports.source;
    if (!pipeline->sink_state.ready || pipeline->doubt_until_ms != 0) {
        return;
    }
    struct push_queue *queues[] = {&pipeline->first, &pipeline->second, &pipeline->held};
    for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++) {
        while (queues[i]->head != NULL) {
            struct fcap_user *user = queues[i]->head;
            if (user->push_next != NULL) {
                __builtin_prefetch(user->push_next->rows); /* Read while this one is built. */
                __builtin_prefetch(user->push_next->push_next);
            }
            if (queues[i] == &pipeline->held && is_held(pipeline, user)) {
                return; /* Those behind it came later. */
            }
            if (!source->ops->may_send(source, user->task->partition) ||
                !send_user(pipeline, user)) {
                return;
            }
        }
    }
}

/* Asks for the task's epoch; false when the sink takes nothing now. */
bool push_epoch(struct fcap_task *task)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct flight *flight = flight_add(pipeline);
    if (flight == NULL) {
        return false;
    }
    fcap_buffer_clear(&pipeline->key);
    fcap_buffer_put_text(&pipeline->key, "fc:epoch:");
    fcap_buffer_put_text(&pipeline->key, pipeline->settings.profile);
    fcap_buffer_put_u8(&pipeline->key, ':');
    fcap_buffer_put_decimal(&pipeline->key, task->partition);
    struct fcap_push push = {.kind = FCAP_PUSH_INCREMENT, .token = pipeline->flight_next};
    push.key = fcap_buffer_bytes(&pipeline->key);
    if (pipeline->ports.sink->ops->push(pipeline->ports.sink, &push) != FCAP_OK) {
        return false;
    }
    *flight = (struct flight){.task = task, .mark = pipeline->mark_open};
    pipeline->flight_next++;
    ++*outstanding(pipeline, pipeline->mark_open);
    task->epoch_asked = true;
    task->epoch_connection = pipeline->sink_state.connection;
    task->epoch_identity = pipeline->sink_state.identity;
    FCAP_POINT(epoch_asked);
    return true;
}

static void take_epoch(struct fcap_task *task, enum fcap_push_result result, int64_t integer)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    task->epoch_asked = false;
    if (result != FCAP_PUSH_DONE) {
        task->epoch = task->gate_open ? task->epoch : 0; /* Readers know the old one. */
        task->epoch_identity = (struct fcap_sink_identity){0};
        return;
    }
    task->epoch = integer;
    if (task->gate_open) {
        task->meta.epoch = (uint64_t)integer; /* gate.c: in another Redis. */
        pipeline->changed = true;
    }
    bool is_first = task->epoch_before == 0 ||
                    !is_same_redis(&task->epoch_before_identity, &task->epoch_identity);
    int64_t before = is_first ? (int64_t)task->meta.epoch : task->epoch_before;
    task->epoch_follows = task->epoch == before + 1 && (is_first || task->epoch_follows);
    task->epoch_before = task->epoch;
    task->epoch_before_identity = task->epoch_identity;
    task->epoch_ms = pipeline->ports.clock->monotonic_ms(pipeline->ports.clock);
}

void push_acked(void *context, uint64_t token, enum fcap_push_result result, int64_t integer)
{
    struct fcap_pipeline *pipeline = context;
    FCAP_ASSERT(token == pipeline->flight_first && token < pipeline->flight_next);
    struct flight *flight = &pipeline->flights[token % pipeline->flight_capacity];
    pipeline->flight_first++;
    if (result == FCAP_PUSH_DONE) {
        FCAP_COUNT(pipeline->counters.acks_done, 1);
    } else if (result == FCAP_PUSH_REFUSED) {
        FCAP_COUNT(pipeline->counters.acks_refused, 1);
    } else {
        FCAP_COUNT(pipeline->counters.acks_unknown, 1);
    }
    if (flight->user == NULL) {
        --*outstanding(pipeline, flight->mark);
        if (flight->task != NULL) {
            take_epoch(flight->task, result, integer);
        }
        return;
    }
    flight->user->flights--;
    if (result == FCAP_PUSH_DONE) {
        observe_delays(pipeline, flight);
        --*outstanding(pipeline, flight->mark);
        FCAP_POINT(push_acked);
    } else {
        push_again(pipeline, flight);
    }
}

/* Forgets the pushes in flight of a task that goes; the users' queues are left by their removal. */
void push_forget(struct fcap_pipeline *pipeline, struct fcap_task *task)
{
    for (uint64_t at = pipeline->flight_first; at < pipeline->flight_next; at++) {
        struct flight *flight = &pipeline->flights[at % pipeline->flight_capacity];
        if (flight->task == task) {
            flight->task = NULL;
            flight->user = NULL;
        }
    }
}

/* Ends the open mark: from here on it can be acknowledged, with what each task claims then. */
void push_close_mark(struct fcap_pipeline *pipeline)
{
    struct mark *mark = &pipeline->marks[pipeline->mark_open % MARKS_MAX];
    mark->claim_count = 0;
    for (struct fcap_task *task = pipeline->tasks; task != NULL; task = task->next) {
        if (!task->gate_open) {
            continue;
        }
        if (mark->claim_count == mark->claim_capacity) {
            mark->claim_capacity = mark->claim_capacity * 2 + 4;
            mark->claims = realloc(mark->claims, mark->claim_capacity * sizeof *mark->claims);
            FCAP_ASSERT(mark->claims != NULL);
        }
        mark->claims[mark->claim_count++] = (struct mark_claim){
            task->partition, task->assignment, task->meta.next_offset, task->meta.clock_ms};
    }
    pipeline->mark_open++;
    FCAP_ASSERT(pipeline->mark_open - pipeline->mark_done < MARKS_MAX);
    *outstanding(pipeline, pipeline->mark_open) = 0;
    pipeline->mark_opened_ms = pipeline->monotonic_ms;
}

void push_settle_marks(struct fcap_pipeline *pipeline)
{
    while (pipeline->mark_done + 1 < pipeline->mark_open &&
           *outstanding(pipeline, pipeline->mark_done + 1) == 0) {
        pipeline->mark_done++;
        struct mark *mark = &pipeline->marks[pipeline->mark_done % MARKS_MAX];
        for (size_t i = 0; i < mark->claim_count; i++) {
            struct fcap_task *task = task_find(pipeline, mark->claims[i].partition);
            if (task != NULL && task->assignment == mark->claims[i].assignment &&
                pipeline->mark_done >= task->claim_mark) {
                task->claimed_next = mark->claims[i].next_offset;
                task->claimed_as_of_ms = mark->claims[i].as_of_ms;
            }
        }
    }
}
