/* The process's log: leveled lines on standard error, text or JSON, limited for each call site.
 *
 * Always holds: one line is one write(2) of at most FCAP_LOG_LINE_BYTES, so lines of several
 * threads never mix, on a pipe neither; whatever bytes a message carries, the line is valid UTF-8
 * without control characters (and valid JSON). Logging allocates nothing and never fails: a line
 * that standard error does not take is dropped and counted. Only daemon/ and commands/ log.
 * Thread rule: any thread, except fcap_log_init(). */
#ifndef FCAP_LOG_H
#define FCAP_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fcap_log_level { FCAP_LOG_ERROR, FCAP_LOG_WARN, FCAP_LOG_INFO, FCAP_LOG_DEBUG };
enum fcap_log_format { FCAP_LOG_TEXT, FCAP_LOG_JSON };

/* A line with its newline; what does not fit is cut and ends in "...". Linux writes so much to a
 * pipe in one piece. */
#define FCAP_LOG_LINE_BYTES 4096
/* A site may write so many lines in each period; then it is silent until the period ends. */
#define FCAP_LOG_SITE_LINES     10
#define FCAP_LOG_SITE_PERIOD_MS 10000

/* What a call site remembers; zero-initialised, static, made by FCAP_LOG. */
struct fcap_log_site {
    int64_t period_start_ms; /* monotonic */
    uint32_t lines;          /* written in this period */
    uint64_t suppressed;     /* since the last line */
    bool is_listed;
    struct fcap_log_site *next;
    enum fcap_log_level level;
    const char *file;
    int line;
};

struct fcap_log_settings {
    enum fcap_log_format format;
    enum fcap_log_level level; /* finer lines are not written */
    int descriptor;            /* where lines go; 2 in production */
    void (*now)(int64_t *ret_wall_ms, int64_t *ret_monotonic_ms); /* NULL: the system's clocks */
};

/* Takes effect for all later lines. Before the first call: text, INFO, standard error. Only while
 * no other thread logs. */
void fcap_log_init(struct fcap_log_settings settings);

/* Names the calling thread in its lines, for example "worker-0"; cut at 15 bytes. */
void fcap_log_thread(const char *name);

/* True when a line of this level would be written. */
bool fcap_log_is_on(enum fcap_log_level level);

/* One line; use FCAP_LOG. `errno` is kept. */
void fcap_log_write(struct fcap_log_site *site, enum fcap_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes "suppressed N lines of FILE:LINE" for sites that have been silent beyond their period;
 * called about once a second, and with `all` before the process ends. */
void fcap_log_tick(bool all);

/* Lines that the descriptor did not take, since the start. */
uint64_t fcap_log_dropped(void);

/* One line at a level, printf-like, limited for this place in the source. */
#define FCAP_LOG(log_level, ...)                                                                   \
    do {                                                                                           \
        static struct fcap_log_site fcap_log_here = {.file = __FILE__, .line = __LINE__};          \
        if (fcap_log_is_on(log_level)) {                                                           \
            fcap_log_write(&fcap_log_here, log_level, __VA_ARGS__);                                \
        }                                                                                          \
    } while (0)

#define FCAP_ERROR(...) FCAP_LOG(FCAP_LOG_ERROR, __VA_ARGS__)
#define FCAP_WARN(...)  FCAP_LOG(FCAP_LOG_WARN, __VA_ARGS__)
#define FCAP_INFO(...)  FCAP_LOG(FCAP_LOG_INFO, __VA_ARGS__)
#define FCAP_DEBUG(...) FCAP_LOG(FCAP_LOG_DEBUG, __VA_ARGS__)

#endif
