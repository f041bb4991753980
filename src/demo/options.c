#include "demo/options.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_USUAL  300000
#define SECONDS_USUAL 40

struct reading {
    struct demo_options *options;
    double events; /* 0: not given */
    double rate;
    double seconds;
    char *error;
    size_t error_size;
};

static bool complain(struct reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool complain(struct reading *reading, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(reading->error, reading->error_size, format, arguments);
    va_end(arguments);
    return false;
}

const char *demo_options_help(void)
{
    return "usage: fcapd demo [--events N] [--rate R] [--seconds S] [--input FILE [--map MAP]]\n"
           "                  [--brokers HOST:PORT,...] [--redis HOST:PORT] [--no-tty]\n"
           "\n"
           "Runs the real daemon in a small world of its own: a private redis-server, a Kafka\n"
           "inside this process, windows of 5, 10 and 30 seconds. Impressions come in two waves,\n"
           "counts rise and fall, and at the end every key of Redis is compared with a recount of\n"
           "all impressions. Nothing stays behind, also after Ctrl-C.\n"
           "\n"
           "  --events N     impressions in all (300000); with --input: the first N rows\n"
           "  --rate R       impressions a second, on average\n"
           "  --seconds S    how long they come (40); two of these three are enough\n"
           "  --input FILE   impressions of a log: CSV with a header, or JSON lines. Its times "
           "are\n"
           "                 shifted so that it ends when the demo does, and compressed to\n"
           "                 --seconds if it is longer\n"
           "  --map MAP      its columns: user=COL[+COL...],ad=COL,time=COL. In JSON a dot goes\n"
           "                 into an object and [] through an array, at most one:\n"
           "                 user=session,ad=events[].aid,time=events[].ts. Times are ISO 8601 or\n"
           "                 Unix epoch in s, ms, us or ns\n"
           "  --brokers LIST a real Kafka; a topic fcapd-demo-... is made there and deleted\n"
           "  --redis H:P    a real Redis without password; keys fcapd-demo-... are made there\n"
           "                 and deleted\n"
           "  --no-tty       a line a second instead of the live view\n"
           "\n"
           "Exit code: 0 all keys right; 1 a wrong key, none at all, or a failure; 64 arguments;\n"
           "130 Ctrl-C.\n";
}

static bool read_number(struct reading *reading, const char *name, const char *text, double max,
                        double *ret_number)
{
    char *end = NULL;
    double number = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || !(number > 0) || number > max) {
        return complain(reading, "%s %s: a number above 0 and up to %.0f is wanted", name, text,
                        max);
    }
    *ret_number = number;
    return true;
}

static bool read_address(struct reading *reading, const char *text, struct demo_address *ret)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    long port = colon == NULL ? 0 : strtol(colon + 1, &end, 10);
    size_t size = colon == NULL ? 0 : (size_t)(colon - text);
    if (size == 0 || size >= sizeof ret->host || *end != '\0' || port < 1 || port > 65535) {
        return complain(reading, "--redis %s: HOST:PORT is wanted, such as 127.0.0.1:6379", text);
    }
    memcpy(ret->host, text, size);
    ret->host[size] = '\0';
    ret->port = (uint16_t)port;
    return true;
}

static bool take_value(struct reading *reading, const char *name, const char *value,
                       bool *ret_known)
{
    struct demo_options *options = reading->options;
    *ret_known = true;
    if (strcmp(name, "--events") == 0) {
        return value == NULL ||
               read_number(reading, name, value, DEMO_EVENTS_MAX, &reading->events);
    }
    if (strcmp(name, "--rate") == 0) {
        return value == NULL || read_number(reading, name, value, 1e6, &reading->rate);
    }
    if (strcmp(name, "--seconds") == 0) {
        return value == NULL ||
               read_number(reading, name, value, DEMO_SECONDS_MAX, &reading->seconds);
    }
    if (strcmp(name, "--input") == 0) {
        options->input = value;
    } else if (strcmp(name, "--map") == 0) {
        options->map = value;
    } else if (strcmp(name, "--brokers") == 0) {
        options->brokers = value;
    } else if (strcmp(name, "--redis") == 0) {
        return value == NULL || read_address(reading, value, &options->redis);
    } else {
        *ret_known = false;
    }
    return true;
}

/* events = rate x seconds; what was not given follows, or is the usual. */
static bool settle(struct reading *reading)
{
    struct demo_options *options = reading->options;
    double events = reading->events;
    double rate = reading->rate;
    double seconds = reading->seconds;
    if (options->map != NULL && options->input == NULL) {
        return complain(reading, "--map: it tells the columns of --input, which is missing");
    }
    if (events > 0 && floor(events) < events) {
        return complain(reading, "--events %g: a whole number is wanted", events);
    }
    if (rate > 0 && seconds > 0 && events > 0 && options->input == NULL) {
        return complain(reading, "--events, --rate, --seconds: give two, the third follows");
    }
    if (options->input != NULL) {
        if (rate > 0 && seconds > 0) {
            return complain(reading, "--rate, --seconds: with --input give one of them");
        }
        options->events = (uint64_t)events;
        options->rate = rate;
        options->seconds = seconds > 0 ? seconds : SECONDS_USUAL;
        return true;
    }
    if (seconds <= 0) {
        seconds = events > 0 && rate > 0 ? events / rate : SECONDS_USUAL;
    }
    if (events <= 0) {
        events = rate > 0 ? ceil(rate * seconds) : EVENTS_USUAL;
    }
    if (seconds > DEMO_SECONDS_MAX || events > DEMO_EVENTS_MAX) {
        return complain(reading, "%.0f impressions in %.0f seconds: at most %d in %d are possible",
                        events, seconds, DEMO_EVENTS_MAX, DEMO_SECONDS_MAX);
    }
    options->events = (uint64_t)events;
    options->seconds = seconds;
    options->rate = events / seconds;
    return true;
}

bool demo_options_parse(int count, char *const *texts, struct demo_options *ret_options,
                        char *error, size_t error_size)
{
    struct reading reading = {.options = ret_options, .error = error, .error_size = error_size};
    *ret_options = (struct demo_options){0};
    for (int i = 0; i < count; i++) {
        const char *value = i + 1 < count ? texts[i + 1] : NULL;
        bool is_known = false;
        if (strcmp(texts[i], "--help") == 0 || strcmp(texts[i], "-h") == 0) {
            ret_options->help = true;
            continue;
        }
        if (strcmp(texts[i], "--no-tty") == 0) {
            ret_options->no_tty = true;
            continue;
        }
        if (!take_value(&reading, texts[i], value, &is_known)) {
            return false;
        }
        if (!is_known) {
            return complain(&reading, "%s: no such argument; fcapd demo --help lists them",
                            texts[i]);
        }
        if (value == NULL) {
            return complain(&reading, "%s: a value is due behind it", texts[i]);
        }
        i++;
    }
    return ret_options->help || settle(&reading);
}
