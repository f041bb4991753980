#include "fcap/log.h"

#include "fcap/utf8.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void system_clocks(int64_t *ret_wall_ms, int64_t *ret_monotonic_ms);

static struct fcap_log_settings current = {FCAP_LOG_TEXT, FCAP_LOG_INFO, STDERR_FILENO,
                                           system_clocks};
static uint64_t dropped;
static _Thread_local char thread_name[16] = "main";

/* Guards the sites. It is never held during a write: a stuck standard error holds up only the
 * thread that writes to it. */
static pthread_mutex_t sites_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fcap_log_site *sites; /* those that ever suppressed a line */

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static void system_clocks(int64_t *ret_wall_ms, int64_t *ret_monotonic_ms)
{
    struct timespec wall, monotonic;
    (void)clock_gettime(CLOCK_REALTIME, &wall); /* Both clocks always exist on Linux. */
    (void)clock_gettime(CLOCK_MONOTONIC, &monotonic);
    *ret_wall_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    *ret_monotonic_ms = (int64_t)monotonic.tv_sec * 1000 + monotonic.tv_nsec / 1000000;
}

void fcap_log_init(struct fcap_log_settings settings)
{
    if (settings.now == NULL) {
        settings.now = system_clocks;
    }
    current = settings;
}

void fcap_log_thread(const char *name)
{
    (void)snprintf(thread_name, sizeof thread_name, "%s", name); /* Cutting is meant. */
    (void)pthread_setname_np(pthread_self(), thread_name);       /* Too long: it has none. */
}

bool fcap_log_is_on(enum fcap_log_level level)
{
    return level <= current.level;
}

uint64_t fcap_log_dropped(void)
{
    return __atomic_load_n(&dropped, __ATOMIC_RELAXED);
}

/* --- one line ------------------------------------------------------------------------------- */

struct line {
    char text[FCAP_LOG_LINE_BYTES];
    size_t size;
    size_t limit; /* what an escaped message may fill; its end and the newline come after */
    bool is_cut;
};

static void put(struct line *line, const char *text, size_t size)
{
    if (line->is_cut || size > line->limit - line->size) {
        line->is_cut = true;
        return;
    }
    memcpy(line->text + line->size, text, size);
    line->size += size;
}

/* Appends a message so that it is valid UTF-8 on one line, and inside JSON quotes too. */
static void put_escaped(struct line *line, const char *message, size_t size)
{
    bool is_json = current.format == FCAP_LOG_JSON;
    const uint8_t *at = (const uint8_t *)message;
    const uint8_t *end = at + size;
    while (at < end && !line->is_cut) {
        char escape[8];
        size_t sequence = fcap_utf8_sequence(at, (size_t)(end - at));
        int length = 0;
        if (sequence == 0 && is_json) {
            length = snprintf(escape, sizeof escape, "\xEF\xBF\xBD"); /* U+FFFD */
        } else if (sequence == 0 || *at < 0x20 || *at == 0x7F) {
            length = *at == '\n'   ? snprintf(escape, sizeof escape, "\\n")
                     : *at == '\t' ? snprintf(escape, sizeof escape, "\\t")
                     : is_json     ? snprintf(escape, sizeof escape, "\\u%04x", *at)
                                   : snprintf(escape, sizeof escape, "\\x%02x", *at);
        } else if (is_json && (*at == '"' || *at == '\\')) {
            length = snprintf(escape, sizeof escape, "\\%c", *at);
        }
        if (length > 0) {
            put(line, escape, (size_t)length);
        } else {
            put(line, (const char *)at, sequence);
        }
        at += sequence == 0 ? 1 : sequence;
    }
}

static void put_head(struct line *line, enum fcap_log_level level, int64_t wall_ms)
{
    char head[160];
    struct tm parts = {0};
    time_t seconds = (time_t)(wall_ms / 1000);
    char date[32];
    (void)gmtime_r(&seconds, &parts); /* Fails only for years beyond int. */
    size_t date_size = strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
    const char *form = current.format == FCAP_LOG_JSON
                           ? "{\"time\":\"%.*s.%03dZ\",\"level\":\"%s\",\"thread\":\""
                           : "%.*s.%03dZ %-5s [";
    int size = snprintf(head, sizeof head, form, (int)date_size, date, (int)(wall_ms % 1000),
                        level_names[level]);
    put(line, head, (size_t)size);
    put_escaped(line, thread_name, strlen(thread_name));
    put(line, current.format == FCAP_LOG_JSON ? "\",\"message\":\"" : "] ",
        current.format == FCAP_LOG_JSON ? 13 : 2);
}

static void write_line(enum fcap_log_level level, int64_t wall_ms, const char *message, size_t size)
{
    const char *tail = current.format == FCAP_LOG_JSON ? "\"}\n" : "\n";
    struct line line;
    line.size = 0;
    line.is_cut = false;
    line.limit = sizeof line.text - strlen("...\"}\n");
    put_head(&line, level, wall_ms);
    put_escaped(&line, message, size);
    if (line.is_cut) {
        memcpy(line.text + line.size, "...", 3);
        line.size += 3;
    }
    memcpy(line.text + line.size, tail, strlen(tail));
    line.size += strlen(tail);
    ssize_t written;
    do {
        written = write(current.descriptor, line.text, line.size);
    } while (written < 0 && errno == EINTR);
    if (written < 0 || (size_t)written < line.size) {
        __atomic_fetch_add(&dropped, 1, __ATOMIC_RELAXED);
    }
}

/* --- limits --------------------------------------------------------------------------------- */

/* Counts a line of the site. False: it is silent now. *ret_suppressed: lines that must be told
 * about first. */
static bool site_may_write(struct fcap_log_site *site, enum fcap_log_level level, int64_t now_ms,
                           uint64_t *ret_suppressed)
{
    bool may_write = true;
    *ret_suppressed = 0;
    (void)pthread_mutex_lock(&sites_lock); /* Cannot fail: a plain mutex, never held twice. */
    site->level = level;
    if (site->lines == 0 || now_ms - site->period_start_ms >= FCAP_LOG_SITE_PERIOD_MS) {
        site->period_start_ms = now_ms;
        site->lines = 0;
        *ret_suppressed = site->suppressed;
        site->suppressed = 0;
    }
    if (site->lines < FCAP_LOG_SITE_LINES) {
        site->lines++;
    } else {
        may_write = false;
        site->suppressed++;
        if (!site->is_listed) {
            site->is_listed = true;
            site->next = sites;
            sites = site;
        }
    }
    (void)pthread_mutex_unlock(&sites_lock);
    return may_write;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static void write_suppressed(const struct fcap_log_site *site, enum fcap_log_level level,
                             uint64_t suppressed, int64_t wall_ms)
{
    char message[256];
    int size = snprintf(message, sizeof message, "suppressed %llu lines of %s:%d",
                        (unsigned long long)suppressed, base_name(site->file), site->line);
    write_line(level, wall_ms, message,
               (size_t)size < sizeof message ? (size_t)size : sizeof message - 1);
}

void fcap_log_write(struct fcap_log_site *site, enum fcap_log_level level, const char *format, ...)
{
    int error = errno;
    int64_t wall_ms, monotonic_ms;
    uint64_t suppressed;
    current.now(&wall_ms, &monotonic_ms);
    if (site_may_write(site, level, monotonic_ms, &suppressed)) {
        char message[FCAP_LOG_LINE_BYTES];
        va_list arguments;
        va_start(arguments, format);
        int size = vsnprintf(message, sizeof message, format, arguments);
        va_end(arguments);
        if (suppressed > 0) {
            write_suppressed(site, level, suppressed, wall_ms);
        }
        if (size >= 0) {
            write_line(level, wall_ms, message,
                       (size_t)size < sizeof message ? (size_t)size : sizeof message - 1);
        }
    }
    errno = error;
}

void fcap_log_tick(bool all)
{
    int64_t wall_ms, monotonic_ms;
    current.now(&wall_ms, &monotonic_ms);
    (void)pthread_mutex_lock(&sites_lock);
    struct fcap_log_site *site = sites;
    (void)pthread_mutex_unlock(&sites_lock);
    /* Sites are only ever put in front, so the list from here on stays as it is. */
    for (; site != NULL; site = site->next) {
        uint64_t suppressed = 0;
        enum fcap_log_level level = FCAP_LOG_INFO;
        (void)pthread_mutex_lock(&sites_lock);
        if (all || monotonic_ms - site->period_start_ms >= FCAP_LOG_SITE_PERIOD_MS) {
            suppressed = site->suppressed;
            level = site->level;
            site->suppressed = 0;
        }
        (void)pthread_mutex_unlock(&sites_lock);
        if (suppressed > 0) {
            write_suppressed(site, level, suppressed, wall_ms);
        }
    }
}
