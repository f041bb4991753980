#include "demo/input.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Days from 1970-01-01 in the Gregorian calendar (Howard Hinnant's days_from_civil). */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static bool take_digits(const char **at, int count, int64_t *ret_number)
{
    *ret_number = 0;
    for (int i = 0; i < count; i++) {
        if (!isdigit((unsigned char)**at)) {
            return false;
        }
        *ret_number = *ret_number * 10 + (**at - '0');
        (*at)++;
    }
    return true;
}

static bool take_char(const char **at, const char *wanted)
{
    if (**at == '\0' || strchr(wanted, **at) == NULL) {
        return false;
    }
    (*at)++;
    return true;
}

/* ".442536": the milliseconds of it. */
static int64_t take_fraction(const char **at)
{
    int64_t ms = 0;
    int64_t unit = 100;
    while (isdigit((unsigned char)**at)) {
        ms += (**at - '0') * unit;
        unit /= 10;
        (*at)++;
    }
    return ms;
}

/* Z, +hh:mm, +hhmm, +hh, or nothing. */
static bool take_zone(const char **at, int64_t *ret_minutes)
{
    int64_t hours = 0;
    int64_t minutes = 0;
    int64_t sign = **at == '-' ? -1 : 1;
    *ret_minutes = 0;
    if (**at == '\0' || take_char(at, "Zz")) {
        return true;
    }
    if (!take_char(at, "+-") || !take_digits(at, 2, &hours)) {
        return false;
    }
    if (**at != '\0') {
        (void)take_char(at, ":");
        if (!take_digits(at, 2, &minutes)) {
            return false;
        }
    }
    *ret_minutes = sign * (hours * 60 + minutes);
    return hours < 24 && minutes < 60;
}

static bool parse_iso(const char *at, int64_t *ret_time_ms)
{
    int64_t year, month, day;
    int64_t hour = 0;
    int64_t minute = 0;
    int64_t second = 0;
    int64_t ms = 0;
    int64_t zone = 0;
    if (!take_digits(&at, 4, &year) || !take_char(&at, "-") || !take_digits(&at, 2, &month) ||
        !take_char(&at, "-") || !take_digits(&at, 2, &day)) {
        return false;
    }
    if (take_char(&at, "Tt ")) {
        if (!take_digits(&at, 2, &hour) || !take_char(&at, ":") || !take_digits(&at, 2, &minute)) {
            return false;
        }
        if (take_char(&at, ":")) {
            if (!take_digits(&at, 2, &second)) {
                return false;
            }
            ms = take_char(&at, ".,") ? take_fraction(&at) : 0;
        }
        if (*at == ' ') {
            at++;
        }
        if (!take_zone(&at, &zone)) {
            return false;
        }
    }
    if (*at != '\0' || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 ||
        second > 60) {
        return false;
    }
    *ret_time_ms =
        ((days_of(year, month, day) * 24 + hour) * 60 + minute - zone) * 60000 + second * 1000 + ms;
    return true;
}

/* Seconds until the year 5138 have at most 11 digits, and so on. */
static bool parse_epoch(const char *text, int64_t *ret_time_ms)
{
    char *end = NULL;
    int64_t number = strtoll(text, &end, 10);
    int64_t ms = 0;
    size_t digits = (size_t)(end - text);
    if (!isdigit((unsigned char)*text) || digits > 19) {
        return false;
    }
    if (*end == '.') {
        const char *at = end + 1;
        ms = take_fraction(&at);
        end += at - end;
    }
    if (*end != '\0') {
        return false;
    }
    *ret_time_ms = digits <= 11   ? number * 1000 + ms
                   : digits <= 14 ? number
                   : digits <= 17 ? number / 1000
                                  : number / 1000000;
    return true;
}

bool demo_time_parse(const char *text, int64_t *ret_time_ms)
{
    return parse_epoch(text, ret_time_ms) || parse_iso(text, ret_time_ms);
}
