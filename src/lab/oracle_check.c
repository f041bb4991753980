#include "lab/oracle_check.h"

#include "lab/oracle_value.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- score ---------------------------------------------------------------------------------- */

static void append(char *text, size_t text_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What does not fit is cut: the first differences say most. */
static void append(char *text, size_t text_bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text + used, text_bytes - used, format, arguments);
    va_end(arguments);
}

static void append_differences(char *text, size_t text_bytes, const struct oracle_counts *want,
                               const struct oracle_counts *got)
{
    size_t w = 0;
    size_t g = 0;
    int shown = 0;
    while ((w < want->count || g < got->count) && shown < 5) {
        int order = w == want->count  ? 1
                    : g == got->count ? -1
                                      : strcmp(want->rows[w].ad, got->rows[g].ad);
        uint64_t wanted = order <= 0 ? want->rows[w].count : 0;
        uint64_t gotten = order >= 0 ? got->rows[g].count : 0;
        if (wanted != gotten) {
            append(text, text_bytes, "; ad \"%.64s\": definition %" PRIu64 ", found %" PRIu64,
                   order <= 0 ? want->rows[w].ad : got->rows[g].ad, wanted, gotten);
            shown++;
        }
        w += order <= 0 ? 1 : 0;
        g += order >= 0 ? 1 : 0;
    }
    append(text, text_bytes, shown == 5 ? "; ...\n" : "\n");
}

static bool counts_equal(const struct oracle_counts *want, const struct oracle_counts *got,
                         bool partial)
{
    size_t w = 0;
    if (!partial && want->count != got->count) {
        return false;
    }
    for (size_t g = 0; g < got->count; g++) {
        while (partial && w < want->count && strcmp(want->rows[w].ad, got->rows[g].ad) < 0) {
            w++;
        }
        if (w == want->count || strcmp(want->rows[w].ad, got->rows[g].ad) != 0 ||
            want->rows[w].count != got->rows[g].count) {
            return false;
        }
        w++;
    }
    return true;
}

bool oracle_check_counts(struct oracle *oracle, const struct oracle_query *query,
                         const struct oracle_count *rows, size_t count, const char *where,
                         struct oracle_tally *tally)
{
    struct oracle_counts want = {0};
    struct oracle_counts got = {.count = count};
    bool equal = false;

    got.rows = malloc((count > 0 ? count : 1) * sizeof *got.rows);
    if (got.rows == NULL) {
        abort();
    }
    if (count > 0) {
        memcpy(got.rows, rows, count * sizeof *got.rows);
    }
    oracle_query(oracle, query, &want);
    equal = counts_equal(&want, &got, false);
    tally->compared++;
    tally->non_empty += count > 0 ? 1 : 0;
    tally->absent += count == 0 ? 1 : 0;
    if (!equal) {
        tally->wrong++;
        append(tally->text, sizeof tally->text,
               "%s: user \"%.64s\" window %" PRId64 " ms at %" PRId64, where, query->user,
               query->window_ms, query->at_ms);
        append_differences(tally->text, sizeof tally->text, &want, &got);
    }
    oracle_counts_done(&want);
    oracle_counts_done(&got);
    return equal;
}

bool oracle_check_expiry(struct oracle *oracle, const struct oracle_query *query, int64_t pxat_ms,
                         struct oracle_tally *tally)
{
    int64_t newest_ms = 0;
    bool found = oracle_newest(oracle, query, &newest_ms);
    tally->compared++;
    tally->non_empty++;
    if (found && pxat_ms == newest_ms + query->window_ms - 1) {
        return true;
    }
    tally->wrong++;
    append(tally->text, sizeof tally->text,
           "user \"%.64s\" window %" PRId64 " ms: PXAT %" PRId64 ", definition ", query->user,
           query->window_ms, pxat_ms);
    if (found) {
        append(tally->text, sizeof tally->text, "%" PRId64 "\n", newest_ms + query->window_ms - 1);
    } else {
        append(tally->text, sizeof tally->text, "no key: the user has no event\n");
    }
    return false;
}

bool oracle_passes(const struct oracle_tally *tally, const struct oracle_minimum *minimum,
                   char *ret_text, size_t text_bytes)
{
    char none[1];
    char *text = text_bytes > 0 && ret_text != NULL ? ret_text : none;
    size_t bytes = text == none ? 1 : text_bytes;
    bool enough = tally->compared >= minimum->compared && tally->non_empty >= minimum->non_empty &&
                  tally->absent >= minimum->absent;
    text[0] = '\0';
    append(text, bytes,
           "compared %" PRIu64 " (%" PRIu64 " non-empty, %" PRIu64 " absent), wrong %" PRIu64 "\n",
           tally->compared, tally->non_empty, tally->absent, tally->wrong);
    if (!enough) {
        append(text, bytes,
               "too few: needed %" PRIu64 " (%" PRIu64 " non-empty, %" PRIu64 " absent)\n",
               minimum->compared, minimum->non_empty, minimum->absent);
    }
    append(text, bytes, "%s", tally->text);
    return enough && tally->wrong == 0;
}

/* --- values on a living system ---------------------------------------------------------------- */

struct search {
    struct oracle *oracle;
    const struct oracle_expectation *expectation;
    const struct oracle_counts *got;
    struct oracle_query query; /* the state tried last */
    struct oracle_counts want; /* its counts */
    int64_t *next;             /* a copy that may be changed; NULL: every record */
    int64_t from_ms;
    int64_t to_ms;
    bool partial;
};

static bool try_at(struct search *search, int64_t at_ms)
{
    search->query.at_ms = at_ms;
    oracle_query(search->oracle, &search->query, &search->want);
    return counts_equal(&search->want, search->got, search->partial);
}

/* With the records of query.next: the definition changes only when an event leaves. */
static bool try_times(struct search *search)
{
    const struct oracle_expectation *wanted = search->expectation;
    size_t count = oracle_record_count(search->oracle, wanted->user);
    if (try_at(search, search->from_ms)) {
        return true;
    }
    for (size_t i = count; i-- > 0;) {
        struct oracle_record record = oracle_record_at(search->oracle, wanted->user, i);
        int64_t leaves_ms = record.time_ms + wanted->window_ms;
        if (!record.is_tombstone && leaves_ms > search->from_ms && leaves_ms <= search->to_ms &&
            try_at(search, leaves_ms)) {
            return true;
        }
    }
    return false;
}

/* Every prefix of the user's records between next_min and next_max, in each partition that the
 * user is seen in. */
static bool try_prefixes(struct search *search)
{
    const struct oracle_expectation *wanted = search->expectation;
    if (try_times(search)) {
        return true;
    }
    if (search->next == NULL || wanted->next_max == NULL) {
        return false;
    }
    size_t count = oracle_record_count(search->oracle, wanted->user);
    for (size_t i = 0; i < count; i++) {
        struct oracle_record record = oracle_record_at(search->oracle, wanted->user, i);
        size_t partition = (size_t)record.partition;
        if (partition >= wanted->next_count || record.offset < wanted->next_min[partition] ||
            record.offset >= wanted->next_max[partition]) {
            continue;
        }
        search->next[partition] = record.offset + 1;
        if (try_times(search)) {
            return true;
        }
    }
    return false;
}

static bool reject(struct oracle_tally *tally, const struct oracle_expectation *expectation,
                   const char *reason, const char *value, size_t size_bytes)
{
    tally->wrong++;
    append(tally->text, sizeof tally->text, "user \"%.64s\" window %" PRId64 " ms: %s: %.*s\n",
           expectation->user, expectation->window_ms, reason,
           (int)(size_bytes < 200 ? size_bytes : 200), value);
    return false;
}

static bool search_state(struct search *search, const struct oracle_value *value,
                         struct oracle_tally *tally)
{
    const struct oracle_expectation *wanted = search->expectation;
    size_t bytes = wanted->next_count * sizeof *search->next;
    bool right = false;

    if (wanted->next_min != NULL) {
        search->next = malloc(bytes > 0 ? bytes : 1);
        if (search->next == NULL) {
            abort();
        }
        memcpy(search->next, wanted->next_min, bytes);
    }
    search->query = (struct oracle_query){.user = wanted->user,
                                          .window_ms = wanted->window_ms,
                                          .history_ms = wanted->history_ms,
                                          .next = search->next,
                                          .next_count = wanted->next_count};
    right = try_prefixes(search);
    if (!right) {
        /* Say it against the newest state that was allowed. */
        if (search->next != NULL && wanted->next_max != NULL) {
            memcpy(search->next, wanted->next_max, bytes);
        }
        (void)try_at(search, search->to_ms);
        tally->wrong++;
        append(tally->text, sizeof tally->text,
               "user \"%.64s\" window %" PRId64 " ms, %s as_of %" PRId64 ", T %" PRId64
               "..%" PRId64,
               wanted->user, wanted->window_ms, value == NULL ? "absent, no" : "value",
               value == NULL ? 0 : value->as_of_ms, search->from_ms, search->to_ms);
        append_differences(tally->text, sizeof tally->text, &search->want, search->got);
    }
    free(search->next);
    oracle_counts_done(&search->want);
    return right;
}

bool oracle_check_value(struct oracle *oracle, const struct oracle_expectation *expectation,
                        const char *value, size_t size_bytes, struct oracle_tally *tally)
{
    static const struct oracle_counts none;
    struct oracle_value parsed = {0};
    const char *reason = NULL;
    bool right = false;
    struct search search = {.oracle = oracle,
                            .expectation = expectation,
                            .got = &none,
                            .from_ms = expectation->at_min_ms,
                            .to_ms = expectation->at_max_ms};

    tally->compared++;
    if (value == NULL) {
        tally->absent++;
        return search_state(&search, NULL, tally);
    }
    tally->non_empty++;
    if (!oracle_value_parse(value, size_bytes, &parsed, &reason)) {
        right = reject(tally, expectation, reason, value, size_bytes);
        goto out;
    }
    if (parsed.counts.count == 0) {
        right = reject(tally, expectation, "a value without counts", value, size_bytes);
        goto out;
    }
    if (parsed.as_of_ms > expectation->at_max_ms) {
        right = reject(tally, expectation, "as_of is ahead of the clock", value, size_bytes);
        goto out;
    }
    if (parsed.partial && !expectation->allow_partial) {
        right = reject(tally, expectation, "partial, but no limit is set", value, size_bytes);
        goto out;
    }
    tally->partial += parsed.partial ? 1 : 0;
    search.got = &parsed.counts;
    search.partial = parsed.partial;
    if (expectation->strict_as_of || parsed.as_of_ms > search.from_ms) {
        search.from_ms = parsed.as_of_ms;
    }
    if (expectation->strict_as_of) {
        search.to_ms = parsed.as_of_ms;
    }
    right = search_state(&search, &parsed, tally);
out:
    oracle_value_done(&parsed);
    return right;
}
