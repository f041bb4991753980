/* The JSON event decoder: finds user, ad, time, event id and filter field in one Kafka record.
 *
 * Always holds: the same bytes give the same answer in every build (yyjson or yajl), and one
 * record costs bounded memory and bounded stack, whatever its nesting. Thread rule: one decoder
 * for each worker; it is never shared between threads. */
#ifndef FCAP_DECODE_H
#define FCAP_DECODE_H

#include "fcap/ports.h"

/* Containers inside one another, the outermost object included; one more is DEPTH. */
#define FCAP_DECODE_DEPTH_MAX 256
/* The latest time that is accepted: 9999-12-31T23:59:59.999Z. */
#define FCAP_DECODE_TIME_MS_MAX INT64_C(253402300799999)

/* How the time field of the body is written.
 *
 * Integers may also stand in a string that holds nothing but digits. Microseconds and nanoseconds
 * are cut to whole milliseconds. A minus sign (-0 too), a fraction, an exponent and a time after
 * FCAP_DECODE_TIME_MS_MAX are BAD_TIME.
 *
 * ISO8601 is a string `YYYY-MM-DDTHH:MM[:SS[.fraction]]` and then `Z`, `+HH:MM`, `+HHMM` or `+HH`
 * (or minus); a space, `t` and `z` and a comma before the fraction are accepted too. The fraction
 * has any number of digits and is cut to milliseconds. Without an offset, on a day that the
 * calendar lacks, at 24:00 or in a leap second (:60) it is BAD_TIME, as is a time before 1970. */
enum fcap_time_format {
    FCAP_TIME_SECONDS,
    FCAP_TIME_MILLISECONDS,
    FCAP_TIME_MICROSECONDS,
    FCAP_TIME_NANOSECONDS,
    FCAP_TIME_ISO8601,
};

/* A path names a field of the body: keys joined by dots (`u.id`). A backslash takes the next
 * character as it is, so `a\.b` is the key "a.b" and `\@key` the key "@key". Only objects are
 * walked; there is no way into an array. `@key` (user only) is the record's key, as it is;
 * `@timestamp` (time only) is the record's timestamp. */
struct fcap_decode_settings {
    const char *user_path;
    const char *ad_path;
    const char *time_path;
    enum fcap_time_format time_format; /* means nothing with `@timestamp` */
    /* event.framing: schema-registry: a value that starts with 00 and a schema id of 4 bytes (the
     * wire format of Confluent's serializers) is what stands behind these. */
    bool is_framed;
    const char *id_path;     /* event.id; NULL: none */
    const char *filter_path; /* event.filter's field; NULL: every record passes */
    /* The record passes when the field is a string, a number (by its text) or true or false (by
     * the word) equal to one of these. */
    const char *const *filter_values;
    size_t filter_values_count;
    const char *const *ignore_users; /* ids that are IGNORED_USER */
    size_t ignore_users_count;
    size_t user_id_bytes_max;
    size_t ad_id_bytes_max;
    size_t record_bytes_max;
    const char *parser; /* "yyjson", "yajl", or NULL for the build's first one */
};

/* Prepares a decoder; copies the settings. The caller gives it back to fcap_decode_json_close().
 * FATAL (CONFIG): a path, value or limit that cannot be used, or a parser that is not in this
 * build; `error` (may be NULL) says which.
 *
 * What its decode() answers. A record can be wrong in several ways; the first of this list wins:
 *  1. a null value: the user is the record's key, whatever user_path says. No key: NO_KEY; not a
 *     usable id: BAD_ID; else a tombstone (event.ignore_users does not apply: erasing is safe)
 *  2. EMPTY (zero bytes), SIZE (of the whole value), FRAMING (first byte 00, and more than 5 bytes;
 *     with is_framed: at most 5, for then nothing is left). No JSON starts with 00, so with
 *     is_framed plain values count as they do without. Keys are never taken for framed
 *  3. ENCODING: invalid UTF-8, a byte order mark (UTF-8 or UTF-16), or an escaped surrogate
 *     without its partner, anywhere in the record
 *  4. DEPTH, by the brackets outside strings; then JSON; then NOT_OBJECT
 *  5. the filter field: REPEATED_KEY on its own path, else FILTERED when it is absent, of another
 *     type, or not in the list, whatever else is wrong with the record
 *  6. REPEATED_KEY: a key on a configured path stands twice in its object, compared after
 *     unescaping. Repeated keys elsewhere are fine
 *  7. the user (NO_KEY, MISSING_FIELD, WRONG_TYPE, BAD_ID, then IGNORED_USER), the ad, the event
 *     id, the time, in this order
 *
 * An id is a string or an integer. A string is taken after unescaping: valid UTF-8, not empty, no
 * NUL (BAD_ID). An integer is taken by its digits exactly, however many, so 7 and "7" are one id
 * and -0 is the id "-0"; with a fraction or an exponent it is BAD_ID. Anything else is WRONG_TYPE.
 * User and ad longer than their limits are BAD_ID; an event id is bounded by the record alone.
 * A path that leads through something that is no object is MISSING_FIELD. With `@timestamp`, a
 * record without one (or below 0) is BAD_TIME. Numbers in fields that are not read may have any
 * size. */
enum fcap_status fcap_decode_json_open(const struct fcap_decode_settings *settings,
                                       struct fcap_decoder **ret_decoder,
                                       struct fcap_error *error) FCAP_MUST_USE;

/* Frees it; NULL is fine. Views in events that it gave end here. */
void fcap_decode_json_close(struct fcap_decoder *decoder);

/* The names of the parsers in this build, best first; NULL at and after their number. Pure. */
const char *fcap_decode_json_parser(size_t index);

/* Reads an ISO 8601 time as described above. False: it cannot be used, *ret_ms is untouched.
 * Pure. */
bool fcap_decode_iso8601(struct fcap_bytes text, int64_t *ret_ms);

#endif
