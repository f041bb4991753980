#include "demo/view.h"

#include "lab/lab.h"
#include "lab/oracle_value.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TTY_MS    500
#define PLAIN_MS  1000
#define COUNT_MS  1000 /* between two countings of keys */
#define COUNT_MAX 20   /* in a Redis of somebody else: of the time, at most one part in so many */

void demo_view_open(struct demo_view *view, bool no_tty)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *term = getenv("TERM");
    *view = (struct demo_view){.begun_ms = lab_monotonic_ms()};
    view->is_tty =
        !no_tty && isatty(STDOUT_FILENO) != 0 && (term == NULL || strcmp(term, "dumb") != 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0') {
            view->has_utf8 = strstr(value, "UTF-8") != NULL || strstr(value, "utf8") != NULL;
            break;
        }
    }
    view->drawn_ms = view->begun_ms;
}

/* --- numbers --------------------------------------------------------------------------------- */

static void count_key(void *context, const char *key)
{
    struct demo_view *view = context;
    const char *end = strrchr(key, ':');
    for (size_t i = 0; end != NULL && i < DEMO_WINDOWS; i++) {
        view->keys[i] += strcmp(end + 1, demo_windows[i].name) == 0;
    }
}

/* SCAN walks the whole database, which may be a large one of somebody else's. */
static void count_keys(struct demo_view *view, struct demo_world *world)
{
    char pattern[96];
    int64_t now_ms = lab_monotonic_ms();
    int64_t every_ms = world->redis.pid > 0 ? 0 : view->counting_took_ms * COUNT_MAX;
    if (view->counted_ms > 0 &&
        now_ms - view->counted_ms < (every_ms > COUNT_MS ? every_ms : COUNT_MS)) {
        return;
    }
    (void)snprintf(pattern, sizeof pattern, "%s*", world->key_prefix);
    memset(view->keys, 0, sizeof view->keys);
    redis_reader_scan(world->reader, pattern, count_key, view);
    view->counted_ms = lab_monotonic_ms();
    view->counting_took_ms = view->counted_ms - now_ms;
    for (size_t i = 0; i < DEMO_WINDOWS; i++) {
        view->history[i][view->history_count % DEMO_HISTORY] = view->keys[i];
    }
    view->history_count++;
}

static double sample(const struct demo_world *world, const char *name, const char *label)
{
    double value = daemon_process_sample(&world->daemon, name, label);
    return value < 0 ? 0 : value;
}

static void take_rate(struct demo_view *view, const struct demo_world *world, int64_t now_ms)
{
    double records = sample(world, "fcapd_records_total", NULL);
    double seconds = (double)(now_ms - view->drawn_ms) / 1000;
    view->rate = seconds > 0 ? (records - view->records) / seconds : 0;
    view->records = records;
}

/* Digits in groups of three; `room` holds it. */
static const char *grouped(uint64_t number, char room[32])
{
    char digits[24];
    int size = snprintf(digits, sizeof digits, "%" PRIu64, number);
    size_t used = 0;
    for (int i = 0; i < size; i++) {
        if (i > 0 && (size - i) % 3 == 0) {
            room[used++] = ',';
        }
        room[used++] = digits[i];
    }
    room[used] = '\0';
    return room;
}

/* A median in ms, "-" before the first measurement. */
static const char *median(const struct demo_measured *measured, bool is_signed, char room[32])
{
    int64_t ms = demo_measured_median(measured);
    if (measured->count == 0) {
        return "-";
    }
    (void)snprintf(room, 32, is_signed ? "%+" PRId64 " ms" : "%" PRId64 " ms", ms);
    return room;
}

struct user_counts {
    uint64_t sum[DEMO_WINDOWS];
    char top[160]; /* of the longest window: "a7 x12" */
};

static void read_user(struct demo_world *world, const char *user, struct user_counts *ret_counts)
{
    *ret_counts = (struct user_counts){0};
    for (size_t i = 0; i < DEMO_WINDOWS; i++) {
        char key[4096];
        struct oracle_value value = {0};
        const char *reason = NULL;
        uint64_t most = 0;
        demo_world_key(world, user, i, key, sizeof key);
        const char *text = redis_reader_text(world->reader, key);
        if (text != NULL && oracle_value_parse(text, strlen(text), &value, &reason)) {
            for (size_t k = 0; k < value.counts.count; k++) {
                const struct oracle_count *row = &value.counts.rows[k];
                ret_counts->sum[i] += row->count;
                if (row->count > most) {
                    most = row->count;
                    (void)snprintf(ret_counts->top, sizeof ret_counts->top, "%.40s x%" PRIu64,
                                   row->ad, row->count);
                }
            }
        }
        oracle_value_done(&value);
    }
}

/* --- the live view --------------------------------------------------------------------------- */

static void line(struct demo_view *view, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void line(struct demo_view *view, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    (void)fputs("\033[K\n", stdout);
    view->lines++;
}

static void draw_curve(const struct demo_view *view, size_t window, char *ret, size_t size)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[] = {" ", ".", ".", ":", ":", "+", "+", "#", "#"};
    uint64_t most = 1;
    size_t shown = view->history_count < DEMO_HISTORY ? view->history_count : DEMO_HISTORY;
    size_t used = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < shown; i++) {
        most = view->history[window][i] > most ? view->history[window][i] : most;
    }
    for (size_t i = view->history_count - shown; i < view->history_count && used + 4 < size; i++) {
        uint64_t keys = view->history[window][i % DEMO_HISTORY];
        size_t height = (size_t)((keys * 8 + most - 1) / most);
        used += (size_t)snprintf(ret + used, size - used, "%s",
                                 view->has_utf8 ? blocks[height] : plain[height]);
    }
}

static void draw_users(struct demo_view *view, struct demo_world *world,
                       const struct demo_feed *feed)
{
    for (size_t i = 0; i < DEMO_WATCHED; i++) {
        struct user_counts counts;
        if (feed->watched[i][0] == '\0') {
            continue;
        }
        read_user(world, feed->watched[i], &counts);
        line(view, "  user %-14.14s %8" PRIu64 " %8" PRIu64 " %8" PRIu64 "   most seen: %.40s",
             feed->watched[i], counts.sum[0], counts.sum[1], counts.sum[2],
             counts.top[0] == '\0' ? "-" : counts.top);
    }
}

static void draw(struct demo_view *view, struct demo_world *world, const struct demo_feed *feed,
                 const struct demo_probe *probe, const char *phase)
{
    static const char rejected[] = "fcapd_records_rejected_total";
    char room[4][32];
    char curve[DEMO_HISTORY * 4 + 1];
    double lag = sample(world, "fcapd_partition_lag_records", NULL);
    if (view->lines > 0) {
        (void)printf("\033[%dA", view->lines);
    } else {
        (void)fputs("\033[?25l", stdout);
    }
    view->lines = 0;
    (void)fputs("\033[?7l", stdout); /* A line that is too wide is cut, not wrapped. */
    line(view, "%s", "");
    line(view, "  %5.1f s   %s%s", (double)(lab_monotonic_ms() - view->begun_ms) / 1000, phase,
         feed->held ? " (the producer waits for the daemon)" : "");
    line(view, "  %s impressions read, %s/s, lag %s; %s counts expired",
         grouped((uint64_t)view->records, room[0]), grouped((uint64_t)view->rate, room[1]),
         grouped((uint64_t)lag, room[2]),
         grouped((uint64_t)sample(world, "fcapd_expiries_total", NULL), room[3]));
    line(view, "  refused: %.0f late for every window, %.0f duplicates, %.0f malformed",
         sample(world, rejected, "reason=\"late\""),
         sample(world, rejected, "reason=\"duplicate\""),
         sample(world, rejected, NULL) - sample(world, rejected, "reason=\"late\"") -
             sample(world, rejected, "reason=\"duplicate\""));
    line(view,
         "  by a probe in Redis: counts after %s (at most %" PRId64 " ms); leaves at its end %s",
         median(&probe->freshness, false, room[0]), probe->freshness.max_ms,
         median(&probe->lateness, true, room[1]));
    line(view, "%s", "");
    for (size_t i = 0; i < DEMO_WINDOWS; i++) {
        draw_curve(view, i, curve, sizeof curve);
        line(view, "  users with counts, %4s %8s  %s", demo_windows[i].name,
             grouped(view->keys[i], room[0]), curve);
    }
    line(view, "%s", "");
    line(view, "  %-19s %8s %8s %8s", "impressions in last", demo_windows[0].name,
         demo_windows[1].name, demo_windows[2].name);
    draw_users(view, world, feed);
    line(view, "%s", "");
    (void)fputs("\033[?7h", stdout);
}

/* --- plain lines ----------------------------------------------------------------------------- */

static void print(struct demo_view *view, struct demo_world *world, const struct demo_feed *feed,
                  const struct demo_probe *probe, const char *phase)
{
    char room[7][32];
    struct user_counts counts;
    read_user(world, feed->watched[0], &counts);
    (void)printf("%6.1f s  %-8s %7s/s  lag %-6s users %s %-6s %s %-6s %s %-6s  fresh %-7s expiry "
                 "%-7s %.20s: %" PRIu64 " %" PRIu64 " %" PRIu64 "%s\n",
                 (double)(lab_monotonic_ms() - view->begun_ms) / 1000, phase,
                 grouped((uint64_t)view->rate, room[0]),
                 grouped((uint64_t)sample(world, "fcapd_partition_lag_records", NULL), room[1]),
                 demo_windows[0].name, grouped(view->keys[0], room[2]), demo_windows[1].name,
                 grouped(view->keys[1], room[3]), demo_windows[2].name,
                 grouped(view->keys[2], room[4]), median(&probe->freshness, false, room[5]),
                 median(&probe->lateness, true, room[6]), feed->watched[0], counts.sum[0],
                 counts.sum[1], counts.sum[2], feed->held ? "  (held back)" : "");
}

void demo_view_step(struct demo_view *view, struct demo_world *world, const struct demo_feed *feed,
                    const struct demo_probe *probe, const char *phase)
{
    int64_t now_ms = lab_monotonic_ms();
    if (now_ms - view->drawn_ms < (view->is_tty ? TTY_MS : PLAIN_MS) || !demo_world_look(world)) {
        return;
    }
    take_rate(view, world, now_ms);
    view->drawn_ms = now_ms;
    count_keys(view, world);
    if (view->is_tty) {
        draw(view, world, feed, probe, phase);
    } else {
        print(view, world, feed, probe, phase);
    }
    (void)fflush(stdout);
}

void demo_view_say(struct demo_view *view, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    (void)fputs("\n", stdout);
    (void)fflush(stdout);
    view->lines = 0; /* Drawn anew below. */
}
