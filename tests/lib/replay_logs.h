/* Reads the three real logs of the shared data folder as streams of (user, ad, time).
 *
 * What must hold: events come sorted by time; events of one millisecond keep the file's order.
 * The folder is not part of the repository: FCAP_SHARED_DATA names it. Thread rule: plain data. */
#ifndef FCAP_TEST_REPLAY_LOGS_H
#define FCAP_TEST_REPLAY_LOGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum replay_kind {
    REPLAY_OBD,    /* obd_random_men.csv: 10,000 impressions. No user id: "user" is the tuple of
                      the four user features, a cohort (230 of them), hotter than real users. */
    REPLAY_OTTO,   /* otto_sessions.jsonl: 862 events of 20 users, clicks, carts and orders alike */
    REPLAY_TAOBAO, /* taobao_ad_train_sample.csv: 100 impressions within 3 s */
};

struct replay_event {
    const char *user; /* valid until replay_log_close() */
    const char *ad;
    int64_t time_ms; /* Unix epoch */
};

/* Start with {0}. */
struct replay_log {
    struct replay_event *events;
    size_t count;
    size_t capacity;
    char **texts;
    size_t text_count;
    size_t text_capacity;
};

/* The folder of the logs, or NULL when FCAP_SHARED_DATA is unset or names no folder. */
const char *replay_folder(void);

/* Reads one log. False: ret_error (of error_bytes) says file, line and reason. */
bool replay_log_open(enum replay_kind kind, const char *folder, struct replay_log *ret_log,
                     char *ret_error, size_t error_bytes);

/* Frees everything; {0} is fine. */
void replay_log_close(struct replay_log *log);

/* Splits one CSV line (no line end) in place: fields separated by commas; a field in double quotes
 * may hold commas and doubled quotes. Returns the number of fields, or 0 when the line is broken or
 * has more than fields_max. */
size_t replay_csv_split(char *line, char **ret_fields, size_t fields_max);

/* "2019-11-24 00:03:13.442536+00:00" or "2017-05-06 00:00:00" (UTC) in milliseconds; half a
 * millisecond goes to the even one. False when it is neither. */
bool replay_time_parse(const char *text, int64_t *ret_time_ms);

#endif
