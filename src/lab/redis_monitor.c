#include "lab/redis_monitor.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "1764460800.123456": seconds, and six digits of the rest. */
static bool read_time(char **at, int64_t *ret_us)
{
    char *end;
    long long seconds = strtoll(*at, &end, 10);
    if (end == *at || *end != '.') {
        return false;
    }
    char *point = end;
    long long rest = strtoll(point + 1, &end, 10);
    *at = end;
    *ret_us = (int64_t)seconds * 1000000 + (int64_t)rest;
    return end - point == 7;
}

/* "[0 127.0.0.1:51234]": the number of the database and the client. */
static bool read_client(char **at, const char **ret_client)
{
    char *space = **at == '[' ? strchr(*at, ' ') : NULL;
    char *close = space == NULL ? NULL : strstr(space, "] \"");
    if (close == NULL) {
        return false;
    }
    *ret_client = space + 1;
    *close = '\0';
    *at = close + 2;
    return true;
}

/* One character as sdscatrepr() of Redis writes it; *at is behind the backslash. */
static bool read_escape(char **at, char *ret_byte)
{
    static const char letters[] = "nrtab\\\"";
    static const char bytes[] = "\n\r\t\a\b\\\"";
    const char *known = **at == '\0' ? NULL : strchr(letters, **at);
    if (known != NULL) {
        *ret_byte = bytes[known - letters];
        *at += 1;
        return true;
    }
    int high = **at == 'x' ? hex_digit((*at)[1]) : -1;
    int low = high < 0 ? -1 : hex_digit((*at)[2]);
    if (low < 0) {
        return false;
    }
    *ret_byte = (char)(high << 4 | low);
    *at += 3;
    return true;
}

/* A word in quotes, decoded in place; *at goes behind the closing one. */
static bool read_word(char **at, struct redis_word *ret_word)
{
    if (**at != '"') {
        return false;
    }
    char *from = *at + 1;
    char *to = from;
    *ret_word = (struct redis_word){.text = from};
    while (*from != '"') {
        char byte = *from++;
        if (byte == '\0' || (byte == '\\' && !read_escape(&from, &byte))) {
            return false; /* The line has ended, or holds what Redis does not write. */
        }
        *to++ = byte;
    }
    *to = '\0';
    ret_word->size = (size_t)(to - ret_word->text);
    *at = from + 1;
    return true;
}

bool redis_monitor_read(char *line, size_t size, struct redis_command *ret_command)
{
    char *at = line;
    line[size] = '\0';
    *ret_command = (struct redis_command){0};
    if (!read_time(&at, &ret_command->at_us) || *at++ != ' ' ||
        !read_client(&at, &ret_command->client)) {
        return false;
    }
    for (;;) {
        struct redis_word word;
        if (!read_word(&at, &word)) {
            return false;
        }
        if (ret_command->count < REDIS_MONITOR_WORDS_MAX) {
            ret_command->words[ret_command->count] = word;
        }
        ret_command->count++;
        if (at == line + size) {
            return true;
        }
        if (*at++ != ' ') {
            return false;
        }
    }
}

bool redis_command_has(const struct redis_command *command, size_t index, const char *text)
{
    return index < command->count && index < REDIS_MONITOR_WORDS_MAX &&
           command->words[index].size == strlen(text) &&
           strcasecmp(command->words[index].text, text) == 0;
}
