#include "demo/feed.h"

#include "lab/lab.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_MAX   5000
#define SEED       20251130
#define VALUE_MAX  16384
#define LONGEST_MS (demo_windows[DEMO_WINDOWS - 1].length_ms)

double demo_feed_wave(double share)
{
    const double turn = 4 * 3.14159265358979323846; /* Two waves: its derivative is 1 - cos. */
    return share <= 0 ? 0 : share >= 1 ? 1 : share - sin(turn * share) / turn;
}

/* --- JSON ------------------------------------------------------------------------------------ */

struct out {
    char *at;
    char *end;
};

static void put(struct out *out, const char *text)
{
    size_t size = strlen(text);
    if (size < (size_t)(out->end - out->at)) {
        memcpy(out->at, text, size + 1);
        out->at += size;
    } else {
        out->at = out->end; /* Full: nothing more is taken. */
    }
}

static void put_escaped(struct out *out, const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        char escaped[8] = {*at, '\0'};
        if (*at == '"' || *at == '\\') {
            (void)snprintf(escaped, sizeof escaped, "\\%c", *at);
        } else if ((unsigned char)*at < 0x20) {
            (void)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)(unsigned char)*at);
        }
        put(out, escaped);
    }
}

size_t demo_feed_json(const char *user, const char *ad, int64_t time_ms, const char *id, char *ret,
                      size_t size)
{
    struct out out = {ret, ret + size};
    char number[24];
    (void)snprintf(number, sizeof number, "%" PRId64, time_ms);
    put(&out, "{\"user_id\":\"");
    put_escaped(&out, user);
    put(&out, "\",\"ad_id\":\"");
    put_escaped(&out, ad);
    put(&out, "\",\"ts\":");
    put(&out, number);
    put(&out, ",\"id\":\"");
    put_escaped(&out, id);
    put(&out, "\"}");
    return out.at == out.end ? 0 : (size_t)(out.at - ret);
}

/* --- open ------------------------------------------------------------------------------------ */

static void open_generator(struct demo_feed *feed)
{
    /* As many sessions as make each some 20 s long, so that counts within the windows matter. */
    double sessions = feed->options->rate * 20 / 6;
    const struct impressions_options options = {
        .seed = SEED,
        .users = 20000,
        .user_exponent = 0.8,
        .ads = 300,
        .ad_exponent = 0.8,
        .sessions = sessions < 16     ? 16
                    : sessions > 8000 ? 8000
                                      : (uint32_t)sessions,
        .session_length = 6,
        .jitter_ms = 30,
        .late_permille = 20,
        .late_ms_max = LONGEST_MS + LONGEST_MS / 5,
        .duplicate_permille = 10,
        .malformed_permille = 2,
    };
    static const char *const watched[DEMO_WATCHED] = {"u1", "u10", "u100", "u1000"};
    feed->generator = impressions_open(&options);
    feed->total = feed->options->events;
    feed->seconds = feed->options->seconds;
    for (size_t i = 0; i < DEMO_WATCHED; i++) {
        (void)snprintf(feed->watched[i], sizeof feed->watched[i], "%s", watched[i]);
    }
}

struct busy {
    const char *user;
    size_t count;
};

static int compare_users(const void *left, const void *right)
{
    return strcmp(((const struct busy *)left)->user, ((const struct busy *)right)->user);
}

static int compare_busy(const void *left_item, const void *right_item)
{
    const struct busy *left = left_item;
    const struct busy *right = right_item;
    return left->count != right->count ? (left->count > right->count ? -1 : 1)
                                       : strcmp(left->user, right->user);
}

/* The busiest, the second, one after a tenth and one after half of the users. */
static void choose_watched(struct demo_feed *feed)
{
    const struct demo_input *input = &feed->input;
    struct busy *users = calloc(input->count, sizeof *users);
    size_t count = 0;
    lab_check(users != NULL);
    for (size_t i = 0; i < input->count; i++) {
        users[i] = (struct busy){input->rows[i].user, 1};
    }
    qsort(users, input->count, sizeof *users, compare_users);
    for (size_t i = 0; i < input->count; i++) {
        if (count > 0 && strcmp(users[count - 1].user, users[i].user) == 0) {
            users[count - 1].count++;
        } else {
            users[count++] = users[i];
        }
    }
    qsort(users, count, sizeof *users, compare_busy);
    const size_t ranks[DEMO_WATCHED] = {0, 1, count / 10, count / 2};
    for (size_t i = 0; i < DEMO_WATCHED; i++) {
        bool is_new = ranks[i] < count && (i == 0 || ranks[i] > ranks[i - 1]);
        if (is_new) {
            (void)snprintf(feed->watched[i], sizeof feed->watched[i], "%s", users[ranks[i]].user);
        }
    }
    (void)printf("input   %s: %zu rows, %zu users", feed->options->input, input->count, count);
    free(users);
}

static bool open_input(struct demo_feed *feed)
{
    char error[1200];
    struct demo_input *input = &feed->input;
    if (!demo_input_open(feed->options->input, feed->options->map, feed->options->events, input,
                         error, sizeof error)) {
        (void)fprintf(stderr, "fcapd demo: %s\n", error);
        return false;
    }
    double span_s = (double)(input->rows[input->count - 1].time_ms - input->rows[0].time_ms) / 1000;
    double wanted_s = feed->options->rate > 0 ? (double)input->count / feed->options->rate
                                              : feed->options->seconds;
    feed->scale = span_s > wanted_s ? wanted_s / span_s : 1;
    feed->seconds = span_s * feed->scale;
    feed->total = input->count;
    choose_watched(feed);
    (void)printf(", %.0f s of log in %.1f s\n", span_s, feed->seconds);
    if (input->skipped > 0) {
        (void)printf("        %" PRIu64 " rows cannot be used; the first: %s\n", input->skipped,
                     input->reason);
    }
    return true;
}

bool demo_feed_open(struct demo_feed *feed, const struct demo_options *options)
{
    *feed = (struct demo_feed){.options = options};
    if (options->input != NULL) {
        return open_input(feed);
    }
    open_generator(feed);
    return true;
}

void demo_feed_close(struct demo_feed *feed)
{
    impressions_close(feed->generator);
    demo_input_close(&feed->input);
}

/* --- steps ----------------------------------------------------------------------------------- */

static bool send_generated(struct demo_feed *feed, struct demo_world *world, int64_t now_ms)
{
    char value[IMPRESSIONS_VALUE_MAX];
    struct impression *next = &feed->pending;
    if (!feed->has_pending) {
        impressions_next(feed->generator, now_ms, next);
        feed->has_pending = true;
    }
    if (!demo_world_has_room(world, next->user)) {
        return false;
    }
    feed->has_pending = false;
    demo_world_send(world, &(struct demo_record){
                               .user = next->user,
                               .ad = next->ad,
                               .id = next->id,
                               .time_ms = next->time_ms,
                               .counts = next->kind != IMPRESSION_MALFORMED,
                               .value = value,
                               .value_size = impressions_json(feed->generator, next, value),
                           });
    return true;
}

static int64_t row_due_ms(const struct demo_feed *feed, uint64_t index)
{
    const struct demo_row *rows = feed->input.rows;
    return (int64_t)((double)(rows[index].time_ms - rows[0].time_ms) * feed->scale);
}

/* begun_ms: the Unix epoch at which the first row's time is put. */
static bool send_row(struct demo_feed *feed, struct demo_world *world, int64_t begun_ms)
{
    char value[VALUE_MAX];
    char id[32];
    const struct demo_row *row = &feed->input.rows[feed->sent];
    int64_t time_ms = begun_ms + row_due_ms(feed, feed->sent);
    if (!demo_world_has_room(world, row->user)) {
        return false;
    }
    (void)snprintf(id, sizeof id, "row%" PRIu64, row->number); /* Equal rows are not duplicates. */
    size_t size = demo_feed_json(row->user, row->ad, time_ms, id, value, sizeof value);
    lab_check(size > 0);
    demo_world_send(world, &(struct demo_record){.user = row->user,
                                                 .ad = row->ad,
                                                 .id = id,
                                                 .time_ms = time_ms,
                                                 .counts = true,
                                                 .value = value,
                                                 .value_size = size});
    return true;
}

void demo_feed_step(struct demo_feed *feed, struct demo_world *world, int64_t passed_ms,
                    int64_t now_ms)
{
    double share = feed->seconds > 0 ? (double)passed_ms / 1000 / feed->seconds : 1;
    uint64_t due = (uint64_t)ceil((double)feed->total * demo_feed_wave(share));
    feed->held = false;
    for (int i = 0; i < STEP_MAX && feed->sent < feed->total; i++) {
        bool is_due =
            feed->generator != NULL ? feed->sent < due : row_due_ms(feed, feed->sent) <= passed_ms;
        if (!is_due) {
            return;
        }
        feed->held = feed->generator != NULL ? !send_generated(feed, world, now_ms)
                                             : !send_row(feed, world, now_ms - passed_ms);
        if (feed->held) {
            return;
        }
        feed->sent++;
    }
}
