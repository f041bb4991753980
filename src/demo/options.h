/* The arguments of `fcapd demo`. Thread rule: pure. */
#ifndef FCAP_DEMO_OPTIONS_H
#define FCAP_DEMO_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEMO_EVENTS_MAX  10000000
#define DEMO_SECONDS_MAX 86400

struct demo_address {
    char host[256]; /* "": none was given */
    uint16_t port;
};

struct demo_options {
    uint64_t events;     /* impressions to produce; with input: at most so many rows, 0: all */
    double seconds;      /* how long producing takes */
    const char *input;   /* a log instead of generated impressions; NULL: none. Borrowed */
    const char *map;     /* --map; NULL: from the names of the columns. Borrowed */
    const char *brokers; /* a real Kafka; NULL: an embedded one. Borrowed */
    struct demo_address redis; /* a real Redis */
    double rate;               /* impressions a second, mean; with input 0: the log's own */
    bool no_tty;
    bool help;
};

/* Reads the arguments behind "demo"; texts are borrowed. Of events, rate and seconds the third
 * follows from two. False: `error` (of error_size bytes) names the argument and the cure. */
bool demo_options_parse(int count, char *const *texts, struct demo_options *ret_options,
                        char *error, size_t error_size);

/* What --help prints. */
const char *demo_options_help(void);

#endif
