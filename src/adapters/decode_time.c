#include "fcap/decode.h"

#include "decode_parser.h"

#define MS_PER_MINUTE INT64_C(60000)

/* A position in the text. Every take_* leaves it behind what it took and says whether that was
 * there. */
struct cursor {
    const uint8_t *at;
    const uint8_t *end;
};

static bool take_one_of(struct cursor *cursor, char a, char b)
{
    if (cursor->at == cursor->end || (*cursor->at != (uint8_t)a && *cursor->at != (uint8_t)b)) {
        return false;
    }
    cursor->at++;
    return true;
}

static bool take_digit(struct cursor *cursor, int *ret_digit)
{
    if (cursor->at == cursor->end || *cursor->at < '0' || *cursor->at > '9') {
        return false;
    }
    *ret_digit = *cursor->at++ - '0';
    return true;
}

/* Exactly `digits` digits whose value lies in low .. high. */
static bool take_number(struct cursor *cursor, int digits, int low, int high, int *ret_number)
{
    int number = 0;
    for (int i = 0; i < digits; i++) {
        int digit;
        if (!take_digit(cursor, &digit)) {
            return false;
        }
        number = number * 10 + digit;
    }
    *ret_number = number;
    return number >= low && number <= high;
}

/* Days from 1970-01-01 in the Gregorian calendar: whole years first, leap days by the rule of 4,
 * 100 and 400, then the months. */
static int64_t days_since_epoch(int year, int month, int day)
{
    static const int days_before[12] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    int64_t past = year - 1;
    int64_t days = past * 365 + past / 4 - past / 100 + past / 400 - 719162;
    return days + days_before[month - 1] + (is_leap && month > 2) + day - 1;
}

static bool take_date(struct cursor *cursor, int64_t *ret_days)
{
    static const int month_days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day;
    if (!take_number(cursor, 4, 1, 9999, &year) || !take_one_of(cursor, '-', '-') ||
        !take_number(cursor, 2, 1, 12, &month) || !take_one_of(cursor, '-', '-') ||
        !take_number(cursor, 2, 1, 31, &day)) {
        return false;
    }
    bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day > month_days[month - 1] + (month == 2 && is_leap)) {
        return false;
    }
    *ret_days = days_since_epoch(year, month, day);
    return true;
}

/* HH:MM[:SS[.fraction]] as milliseconds of the day, the fraction cut. */
static bool take_time_of_day(struct cursor *cursor, int64_t *ret_ms)
{
    int hour, minute, second = 0;
    int ms = 0;
    if (!take_number(cursor, 2, 0, 23, &hour) || !take_one_of(cursor, ':', ':') ||
        !take_number(cursor, 2, 0, 59, &minute)) {
        return false;
    }
    if (take_one_of(cursor, ':', ':')) {
        if (!take_number(cursor, 2, 0, 59, &second)) {
            return false;
        }
        if (take_one_of(cursor, '.', ',')) {
            int digit;
            int place_ms = 100;
            if (!take_digit(cursor, &digit)) {
                return false;
            }
            do {
                ms += digit * place_ms;
                place_ms /= 10;
            } while (take_digit(cursor, &digit));
        }
    }
    *ret_ms = (hour * 60 + minute) * MS_PER_MINUTE + second * 1000 + ms;
    return true;
}

static bool take_offset(struct cursor *cursor, int64_t *ret_offset_ms)
{
    if (take_one_of(cursor, 'Z', 'z')) {
        *ret_offset_ms = 0;
        return true;
    }
    bool is_west = take_one_of(cursor, '-', '-');
    int hour, minute = 0;
    if ((!is_west && !take_one_of(cursor, '+', '+')) || !take_number(cursor, 2, 0, 23, &hour)) {
        return false;
    }
    bool has_colon = take_one_of(cursor, ':', ':');
    if ((has_colon || cursor->at != cursor->end) && !take_number(cursor, 2, 0, 59, &minute)) {
        return false;
    }
    int64_t offset_ms = (hour * 60 + minute) * MS_PER_MINUTE;
    *ret_offset_ms = is_west ? -offset_ms : offset_ms;
    return true;
}

bool fcap_decode_iso8601(struct fcap_bytes text, int64_t *ret_ms)
{
    if (text.size == 0) {
        return false;
    }
    struct cursor cursor = {text.data, text.data + text.size};
    int64_t days, day_ms, offset_ms;
    if (!take_date(&cursor, &days) ||
        !(take_one_of(&cursor, 'T', 't') || take_one_of(&cursor, ' ', ' ')) ||
        !take_time_of_day(&cursor, &day_ms) || !take_offset(&cursor, &offset_ms) ||
        cursor.at != cursor.end) {
        return false;
    }
    int64_t ms = days * 24 * 60 * MS_PER_MINUTE + day_ms - offset_ms;
    if (ms < 0 || ms > FCAP_DECODE_TIME_MS_MAX) {
        return false;
    }
    *ret_ms = ms;
    return true;
}

bool fcap_decode_integer_time(struct fcap_bytes digits, enum fcap_time_format format,
                              int64_t *ret_ms)
{
    /* Below the millisecond digits are only cut off, so no format can overflow before its range
     * ends. */
    size_t cut = format == FCAP_TIME_NANOSECONDS ? 6 : format == FCAP_TIME_MICROSECONDS ? 3 : 0;
    uint64_t number_max = (uint64_t)FCAP_DECODE_TIME_MS_MAX;
    uint64_t number = 0;
    if (digits.size == 0) {
        return false;
    }
    number_max = format == FCAP_TIME_SECONDS ? number_max / 1000 : number_max;
    for (size_t i = 0; i < digits.size; i++) {
        if (digits.data[i] < '0' || digits.data[i] > '9') {
            return false;
        }
        if (i + cut < digits.size) {
            number = number * 10 + (uint64_t)(digits.data[i] - '0');
        }
        if (number > number_max) {
            return false;
        }
    }
    *ret_ms = (int64_t)(format == FCAP_TIME_SECONDS ? number * 1000 : number);
    return true;
}
