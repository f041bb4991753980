/* Reads the lines of Redis' MONITOR: one command each, with all its words.
 *
 *     1764460800.123456 [0 127.0.0.1:51234] "SET" "fc:{u1}:1d" "{\"v\":1}" "PXAT" "1764547200000"
 *
 * What must hold: bytes that MONITOR has escaped are what they were. Thread rule: pure. */
#ifndef FCAP_LAB_REDIS_MONITOR_H
#define FCAP_LAB_REDIS_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REDIS_MONITOR_WORDS_MAX 8

struct redis_word {
    const char *text; /* size bytes and a NUL behind them */
    size_t size;
};

struct redis_command {
    int64_t at_us;      /* the server's clock when it did it, Unix epoch */
    const char *client; /* "address:port", "unix:path"; "lua": a call by a script */
    size_t count;       /* words, all of them */
    struct redis_word words[REDIS_MONITOR_WORDS_MAX]; /* the first of them; the name is one */
};

/* Reads one line of `size` bytes without its end ("\r\n" and the '+' before), decoding in place:
 * line[size] must be writable, too. The command points into the line. False: it is none. */
bool redis_monitor_read(char *line, size_t size, struct redis_command *ret_command);

/* Whether the command's word `index` is this text, in any case of its letters. */
bool redis_command_has(const struct redis_command *command, size_t index, const char *text);

#endif
