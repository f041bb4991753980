#include "lib/replay_logs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FIELDS_MAX 64

static void *grow(void *old, size_t count, size_t item_bytes)
{
    void *memory = realloc(old, (count > 0 ? count : 1) * item_bytes);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

const char *replay_folder(void)
{
    struct stat status;
    const char *folder = getenv("FCAP_SHARED_DATA");
    if (folder == NULL || folder[0] == '\0' || stat(folder, &status) != 0 ||
        !S_ISDIR(status.st_mode)) {
        return NULL;
    }
    return folder;
}

static void add_event(struct replay_log *log, const char *user, const char *ad, int64_t time_ms)
{
    const char *given[2] = {user, ad};
    char *kept[2];
    for (int i = 0; i < 2; i++) {
        if (log->text_count == log->text_capacity) {
            log->text_capacity = log->text_capacity == 0 ? 256 : log->text_capacity * 2;
            log->texts = grow(log->texts, log->text_capacity, sizeof *log->texts);
        }
        size_t bytes = strlen(given[i]) + 1;
        kept[i] = grow(NULL, bytes, 1);
        memcpy(kept[i], given[i], bytes);
        log->texts[log->text_count++] = kept[i];
    }
    if (log->count == log->capacity) {
        log->capacity = log->capacity == 0 ? 256 : log->capacity * 2;
        log->events = grow(log->events, log->capacity, sizeof *log->events);
    }
    log->events[log->count++] =
        (struct replay_event){.user = kept[0], .ad = kept[1], .time_ms = time_ms};
}

/* --- CSV and times -------------------------------------------------------------------------- */

size_t replay_csv_split(char *line, char **ret_fields, size_t fields_max)
{
    size_t count = 0;
    char *at = line;
    for (;;) {
        if (count == fields_max) {
            return 0;
        }
        if (*at != '"') {
            ret_fields[count++] = at;
            at += strcspn(at, ",");
        } else {
            char *out = ++at;
            ret_fields[count++] = out;
            while (*at != '\0' && (at[0] != '"' || at[1] == '"')) {
                at += *at == '"' ? 1 : 0;
                *out++ = *at++;
            }
            if (*at != '"') {
                return 0;
            }
            at++;
            *out = '\0';
        }
        if (*at == '\0') {
            return count;
        }
        if (*at != ',') {
            return 0;
        }
        *at++ = '\0';
    }
}

/* Days since 1970-01-01 of the proleptic Gregorian calendar, counted from March so that the leap
 * day comes last. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t months_since_march = (month + 9) % 12;
    int64_t day_of_year = (153 * months_since_march + 2) / 5 + day - 1;
    return y * 365 + y / 4 - y / 100 + y / 400 + day_of_year - 719468;
}

bool replay_time_parse(const char *text, int64_t *ret_time_ms)
{
    int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, used = 0;
    int64_t fraction_us = 0;
    int64_t unit_us = 100000;
    if (sscanf(text, "%4d-%2d-%2d %2d:%2d:%2d%n", &year, &month, &day, &hour, &minute, &second,
               &used) != 6 ||
        used != 19 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 ||
        second > 59) {
        return false;
    }
    const char *at = text + used;
    if (*at == '.') {
        for (at++; *at >= '0' && *at <= '9'; at++) {
            fraction_us += (*at - '0') * unit_us;
            unit_us /= 10;
        }
    }
    if (*at != '\0' && strcmp(at, "+00:00") != 0) {
        return false;
    }
    int64_t seconds = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    int64_t rest_us = fraction_us % 1000;
    int64_t time_ms = seconds * 1000 + fraction_us / 1000;
    bool up = rest_us > 500 || (rest_us == 500 && time_ms % 2 != 0);
    *ret_time_ms = time_ms + (up ? 1 : 0);
    return true;
}

static bool add_obd(struct replay_log *log, char **fields, size_t count)
{
    char user[256];
    int64_t time_ms = 0;
    if (count < 10 || !replay_time_parse(fields[1], &time_ms)) {
        return false;
    }
    (void)snprintf(user, sizeof user, "%s-%s-%s-%s", fields[6], fields[7], fields[8], fields[9]);
    add_event(log, user, fields[2], time_ms);
    return true;
}

static bool add_taobao(struct replay_log *log, char **fields, size_t count)
{
    int64_t time_ms = 0;
    if (count != 19 || !replay_time_parse(fields[1], &time_ms)) {
        return false;
    }
    add_event(log, fields[2], fields[3], time_ms);
    return true;
}

/* --- one JSON shape -------------------------------------------------------------------------- */

/* {"session":N,"events":[{"aid":N,"ts":N,"type":"..."},...]}: blanks are allowed between tokens. */
static const char *expect(const char *at, const char *text)
{
    if (at == NULL) {
        return NULL;
    }
    at += strspn(at, " \t");
    size_t size = strlen(text);
    return strncmp(at, text, size) == 0 ? at + size : NULL;
}

static const char *digits(const char *at, char *ret_text, size_t text_bytes)
{
    if (at == NULL) {
        return NULL;
    }
    at += strspn(at, " \t");
    size_t size = strspn(at, "0123456789");
    if (size == 0 || size >= text_bytes) {
        return NULL;
    }
    memcpy(ret_text, at, size);
    ret_text[size] = '\0';
    return at + size;
}

static bool add_otto(struct replay_log *log, const char *line)
{
    char session[24];
    char aid[24];
    char ts[24];
    const char *at = expect(expect(expect(line, "{"), "\"session\""), ":");
    at = digits(at, session, sizeof session);
    at = expect(expect(expect(expect(at, ","), "\"events\""), ":"), "[");
    do {
        at = digits(expect(expect(expect(at, "{"), "\"aid\""), ":"), aid, sizeof aid);
        at = digits(expect(expect(expect(at, ","), "\"ts\""), ":"), ts, sizeof ts);
        at = expect(expect(expect(expect(at, ","), "\"type\""), ":"), "\"");
        if (at == NULL) {
            return false;
        }
        at = expect(expect(at + strspn(at, "abcdefghijklmnopqrstuvwxyz"), "\""), "}");
        if (at == NULL) {
            return false;
        }
        add_event(log, session, aid, strtoll(ts, NULL, 10));
        line = expect(at, ",");
        at = line == NULL ? at : line;
    } while (line != NULL);
    at = expect(expect(at, "]"), "}");
    return at != NULL && *at == '\0';
}

/* --- files ------------------------------------------------------------------------------------ */

struct source {
    const char *name;
    bool has_header;
};

static const struct source sources[] = {
    [REPLAY_OBD] = {"obd_random_men.csv", true},
    [REPLAY_OTTO] = {"otto_sessions.jsonl", false},
    [REPLAY_TAOBAO] = {"taobao_ad_train_sample.csv", true},
};

static bool add_line(struct replay_log *log, enum replay_kind kind, char *line)
{
    char *fields[FIELDS_MAX];
    if (kind == REPLAY_OTTO) {
        return add_otto(log, line);
    }
    size_t count = replay_csv_split(line, fields, FIELDS_MAX);
    return kind == REPLAY_OBD ? add_obd(log, fields, count) : add_taobao(log, fields, count);
}

/* Stable: a merge of halves keeps the order of equal times. */
static void sort_events(struct replay_event *events, struct replay_event *spare, size_t count)
{
    if (count < 2) {
        return;
    }
    size_t half = count / 2;
    sort_events(events, spare, half);
    sort_events(events + half, spare, count - half);
    memcpy(spare, events, half * sizeof *events);
    size_t left = 0;
    size_t right = half;
    for (size_t out = 0; left < half; out++) {
        bool take_left = right == count || spare[left].time_ms <= events[right].time_ms;
        events[out] = take_left ? spare[left++] : events[right++];
    }
}

bool replay_log_open(enum replay_kind kind, const char *folder, struct replay_log *ret_log,
                     char *ret_error, size_t error_bytes)
{
    struct replay_log log = {0};
    char path[4096];
    char *line = NULL;
    size_t line_capacity = 0;
    uint64_t number = 0;
    ssize_t size = 0;
    bool good = false;

    (void)snprintf(path, sizeof path, "%s/%s", folder, sources[kind].name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        (void)snprintf(ret_error, error_bytes, "%.3000s: cannot be opened", path);
        goto out;
    }
    while ((size = getline(&line, &line_capacity, file)) >= 0) {
        number++;
        line[strcspn(line, "\r\n")] = '\0';
        if ((number == 1 && sources[kind].has_header) || line[0] == '\0') {
            continue;
        }
        if (!add_line(&log, kind, line)) {
            (void)snprintf(ret_error, error_bytes, "%.3000s:%" PRIu64 ": not of the known form",
                           path, number);
            goto out;
        }
    }
    if (ferror(file) != 0) {
        (void)snprintf(ret_error, error_bytes, "%.3000s: cannot be read", path);
        goto out;
    }
    struct replay_event *spare = grow(NULL, log.count, sizeof *spare);
    sort_events(log.events, spare, log.count);
    free(spare);
    *ret_log = log;
    log = (struct replay_log){0};
    good = true;
out:
    replay_log_close(&log);
    free(line);
    if (file != NULL) {
        (void)fclose(file);
    }
    return good;
}

void replay_log_close(struct replay_log *log)
{
    for (size_t i = 0; i < log->text_count; i++) {
        free(log->texts[i]);
    }
    free(log->texts);
    free(log->events);
    *log = (struct replay_log){0};
}
