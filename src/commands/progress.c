#include "progress.h"

#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_MS     200
#define LINE_MS    5000
#define RATE_MS    500
#define BAR_WIDTH  24
#define SMOOTH     0.3 /* of the newest piece */
#define NUMBER_MAX 32
#define ROW_MAX    800

void fcap_progress_init(struct fcap_progress *progress, const char *name, FILE *file,
                        bool wants_bar)
{
    *progress = (struct fcap_progress){.file = file, .name = name, .rate = -1};
    progress->is_terminal = wants_bar && isatty(fileno(file)) != 0;
}

const char *fcap_progress_number(uint64_t number, char *text)
{
    char digits[NUMBER_MAX];
    size_t count = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0) {
            text[used++] = ',';
        }
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

static void note_rate(struct fcap_progress *progress, int64_t now_ms, uint64_t done)
{
    int64_t since_ms = now_ms - progress->rated_ms;
    if (since_ms < RATE_MS) {
        return;
    }
    double newest = (double)(done - progress->rated) * 1000.0 / (double)since_ms;
    progress->rate = progress->rate < 0 ? newest : progress->rate * (1 - SMOOTH) + newest * SMOOTH;
    progress->rated_ms = now_ms;
    progress->rated = done;
}

static void put_left(const struct fcap_progress *progress, uint64_t left, char *text, size_t size)
{
    text[0] = '\0';
    if (progress->rate >= 1) {
        uint64_t seconds = (uint64_t)((double)left / progress->rate + 0.5);
        (void)snprintf(text, size, ", %llu:%02llu left", (unsigned long long)(seconds / 60),
                       (unsigned long long)(seconds % 60));
    }
}

static void put_counts(const struct fcap_progress *progress, uint64_t done, uint64_t total,
                       const char *what, char *text, size_t size)
{
    char numbers[3][NUMBER_MAX];
    size_t used =
        (size_t)snprintf(text, size, "%s of %s %s", fcap_progress_number(done, numbers[0]),
                         fcap_progress_number(total, numbers[1]), what);
    if (progress->rate >= 0) {
        (void)snprintf(text + used, size - used, ", %s/s",
                       fcap_progress_number((uint64_t)progress->rate, numbers[2]));
    }
}

/* One row of the terminal: what is longer would wrap, and "\r" reaches only its last row. */
static void put_row(struct fcap_progress *progress, const char *text)
{
    struct winsize size;
    int columns = ioctl(fileno(progress->file), TIOCGWINSZ, &size) == 0 && size.ws_col > 1
                      ? size.ws_col - 1
                      : ROW_MAX;
    (void)fprintf(progress->file, "\r\x1b[K%.*s", columns, text);
    (void)fflush(progress->file); /* A terminal that is gone is not our business. */
    progress->is_drawn = true;
}

static void draw(struct fcap_progress *progress, uint64_t done, uint64_t total, const char *counts,
                 const char *end)
{
    char row[ROW_MAX];
    char bar[BAR_WIDTH + 1];
    size_t full = (size_t)((double)done / (double)total * BAR_WIDTH);
    for (size_t i = 0; i < BAR_WIDTH; i++) {
        bar[i] = i < full ? '#' : '-';
    }
    bar[BAR_WIDTH] = '\0';
    (void)snprintf(row, sizeof row, "%-6s [%s] %3.0f%%  %s%s", progress->phase, bar,
                   (double)done / (double)total * 100, counts, end); /* Cut when too long. */
    put_row(progress, row);
}

/* Nothing is counted. */
static void wait_for(struct fcap_progress *progress, const char *what)
{
    if (progress->is_terminal) {
        char row[ROW_MAX];
        (void)snprintf(row, sizeof row, "%-6s %s", progress->phase, what); /* Cut, too. */
        put_row(progress, row);
    } else {
        (void)fprintf(progress->file, "%s: %s: %s\n", progress->name, progress->phase, what);
    }
}

void fcap_progress_at(struct fcap_progress *progress, const char *phase, int64_t now_ms,
                      uint64_t done, uint64_t total, const char *what, const char *note)
{
    bool is_new = progress->phase == NULL || strcmp(progress->phase, phase) != 0;
    if (is_new || done < progress->rated) {
        progress->phase = phase;
        progress->rated_ms = now_ms;
        progress->rated = done;
        progress->rate = -1;
    }
    note_rate(progress, now_ms, done);
    if (total == 0 && note == NULL) {
        return; /* Nothing to be done is done at once. */
    }
    if (!is_new && now_ms - progress->shown_ms < (progress->is_terminal ? BAR_MS : LINE_MS)) {
        return;
    }
    progress->shown_ms = now_ms;
    if (total == 0) {
        wait_for(progress, note);
        return;
    }
    char counts[160];
    char left[400];
    done = done > total ? total : done;
    put_counts(progress, done, total, what, counts, sizeof counts);
    if (note != NULL) {
        (void)snprintf(left, sizeof left, "; %s", note); /* Cut when too long. */
    } else {
        put_left(progress, total - done, left, sizeof left);
    }
    if (progress->is_terminal) {
        draw(progress, done, total, counts, left);
    } else {
        (void)fprintf(progress->file, "%s: %s: %.0f%%, %s%s\n", progress->name, phase,
                      (double)done / (double)total * 100, counts, left);
    }
}

void fcap_progress_say(struct fcap_progress *progress, const char *format, ...)
{
    va_list arguments;
    fcap_progress_done(progress);
    va_start(arguments, format);
    (void)fprintf(progress->file, "%s: ", progress->name);
    (void)vfprintf(progress->file, format, arguments);
    (void)fputc('\n', progress->file);
    va_end(arguments);
    (void)fflush(progress->file);
}

void fcap_progress_done(struct fcap_progress *progress)
{
    if (progress->is_drawn) {
        (void)fputs("\r\x1b[K", progress->file);
        (void)fflush(progress->file);
        progress->is_drawn = false;
    }
}
