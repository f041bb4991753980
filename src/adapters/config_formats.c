/* Rules of single texts: each gives what is wrong as the end of a sentence, or NULL. */
#include "config_internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

static bool is_name_character(char c)
{
    return isalnum((unsigned char)c) || c == '.' || c == '_' || c == '-';
}

static bool has_only_names(const char *text)
{
    for (; *text != '\0'; text++) {
        if (!is_name_character(*text)) {
            return false;
        }
    }
    return true;
}

const char *fcap_config_format_name(const char *text)
{
    return has_only_names(text) ? NULL : "may hold letters, digits, '.', '_' and '-' only";
}

const char *fcap_config_format_topic(const char *text)
{
    if (strchr(text, ',') != NULL) {
        return "names several topics; it must be exactly one, since two topics would give one user "
               "two tasks, two clocks and one key";
    }
    if (text[0] == '^' || strpbrk(text, "*+?[](){}|\\$") != NULL) {
        return "looks like a pattern; it must be exactly one topic, since two topics would give "
               "one "
               "user two tasks, two clocks and one key";
    }
    if (strcmp(text, ".") == 0 || strcmp(text, "..") == 0) {
        return "is not a name that Kafka allows";
    }
    return has_only_names(text) ? NULL : "may hold letters, digits, '.', '_' and '-' only";
}

/* "1" .. "65535" without leading zeros. */
static bool is_port(const char *text)
{
    int64_t port = 0;
    return fcap_config_read_integer(text, &port) && port >= 1 && port <= 65535;
}

static bool is_host(const char *text, size_t size)
{
    if (size == 0) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c <= ' ' || c == 0x7f || c == ',' || c == '/' || c == '@' || c == ']' || c == '[') {
            return false;
        }
    }
    return true;
}

/* host, host:port or [v6]:port of `size` bytes. */
static bool is_address(const char *text, size_t size, bool needs_port)
{
    char address[512];
    if (size == 0 || size >= sizeof address) {
        return false;
    }
    memcpy(address, text, size);
    address[size] = '\0';
    char *port = NULL;
    if (address[0] == '[') {
        char *end = strchr(address, ']');
        if (end == NULL) {
            return false;
        }
        *end = '\0';
        struct in6_addr parsed;
        if (inet_pton(AF_INET6, address + 1, &parsed) != 1) {
            return false;
        }
        if (end[1] == '\0') {
            return !needs_port;
        }
        return end[1] == ':' && is_port(end + 2);
    }
    port = strrchr(address, ':');
    if (port == NULL) {
        return !needs_port && is_host(address, size);
    }
    *port = '\0';
    return strchr(address, ':') == NULL && is_host(address, strlen(address)) && is_port(port + 1);
}

const char *fcap_config_format_brokers(const char *text)
{
    while (true) {
        size_t size = strcspn(text, ",");
        const char *at = text;
        size_t rest = size;
        while (rest > 0 && *at == ' ') { /* "a:1, b:2" is fine for librdkafka too. */
            at++;
            rest--;
        }
        if (!is_address(at, rest, false)) {
            return "must be host:port, separated by commas ([address]:port for IPv6)";
        }
        if (text[size] == '\0') {
            return NULL;
        }
        text += size + 1;
    }
}

const char *fcap_config_format_host(const char *text)
{
    struct in6_addr parsed;
    if (inet_pton(AF_INET6, text, &parsed) == 1) {
        return NULL;
    }
    if (strchr(text, ':') != NULL) {
        return "must be a host name or an address; the port is a key of its own";
    }
    return is_host(text, strlen(text)) ? NULL : "must be a host name or an address";
}

const char *fcap_config_format_listen(const char *text)
{
    return is_address(text, strlen(text), true)
               ? NULL
               : "must be address:port ([address]:port for IPv6), or off";
}

const char *fcap_config_format_socket(const char *text)
{
    struct sockaddr_un address;
    if (strlen(text) >= sizeof address.sun_path) {
        return "is longer than a socket's path may be (107 bytes)";
    }
    return NULL;
}

/* The rules of fcap_decode_json_open(): keys joined by dots, a backslash takes the next character
 * as it is. */
const char *fcap_config_format_path(const char *text)
{
    if (text[0] == '@') {
        return "begins with @: that is not a field here (write \\@ when a field's name begins so)";
    }
    bool is_empty = true;
    for (; *text != '\0'; text++) {
        if (*text == '.') {
            if (is_empty) {
                return "has an empty part (a dot too many)";
            }
            is_empty = true;
            continue;
        }
        if (*text == '\\') {
            text++;
            if (*text == '\0') {
                return "ends in a backslash";
            }
        }
        is_empty = false;
    }
    return is_empty ? "has an empty part (a dot too many)" : NULL;
}

const char *fcap_config_format_user_path(const char *text)
{
    if (strcmp(text, "@key") == 0) {
        return NULL;
    }
    return text[0] == '@' ? "begins with @, and is not @key" : fcap_config_format_path(text);
}

const char *fcap_config_format_time_path(const char *text)
{
    if (strcmp(text, "@timestamp") == 0) {
        return NULL;
    }
    return text[0] == '@' ? "begins with @, and is not @timestamp" : fcap_config_format_path(text);
}

/* A window's name ends at the first character that it cannot hold. */
static bool is_separator(char c)
{
    return c != '\0' && c != '%' && !isalnum((unsigned char)c) && c != '_' && c != '-';
}

const char *fcap_config_format_redis_key(const char *text)
{
    const char *user = NULL;
    const char *window = NULL;
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            return "holds a control character";
        }
        if (*at != '%') {
            continue;
        }
        const char **slot = at[1] == 'u' ? &user : at[1] == 'w' ? &window : NULL;
        if (slot == NULL && at[1] != 'p') {
            return "has a % that is none of %u, %w and %p";
        }
        if (slot != NULL && *slot != NULL) {
            return "has %u or %w twice";
        }
        if (slot != NULL) {
            *slot = at;
        }
        at++;
    }
    if (user == NULL || window == NULL) {
        return user == NULL ? "lacks %u: all users would share one key"
                            : "lacks %w: all windows would share one key";
    }
    /* Users may hold nearly every character, windows few: only a border that no window can hold
     * keeps (user "a-b", window "c") and (user "a", window "b-c") apart. */
    if (!(user < window ? is_separator(window[-1]) : is_separator(window[2]))) {
        return "needs a character between %u and %w, beside %w, that no window name can hold "
               "(':' say): two users would share one key";
    }
    if (strncmp(text, "fc:meta:", 8) == 0 || strncmp(text, "fc:epoch:", 9) == 0) {
        return "begins like the keys of the daemon itself (fc:meta:, fc:epoch:)";
    }
    return NULL;
}

static bool begins_alike(const char *literal, size_t size, const char *own)
{
    size_t own_size = strlen(own);
    return strncmp(literal, own, size < own_size ? size : own_size) == 0;
}

void fcap_config_check_redis_key(struct fcap_config_loader *loader, const char *pattern,
                                 struct fcap_config_place place)
{
    size_t literal = strcspn(pattern, "%"); /* What no user or window can change. */
    if (pattern[literal + 1] == 'u' &&
        (begins_alike(pattern, literal, "fc:meta:") ||
         begins_alike(pattern, literal, "fc:epoch:") || begins_alike(pattern, literal, "fc:id"))) {
        fcap_config_problem(loader, FCAP_CONFIG_WARNING, place,
                            "redis.key: a user id could make a key of the daemon itself (fc:meta:, "
                            "fc:epoch:, fc:id); begin with another text");
    }
    /* Redis hashes what stands between the first { and the first } after it, if that is not
     * empty; else the whole key. Braces in users are escaped, and windows have none. */
    const char *open = strchr(pattern, '{');
    const char *close = open == NULL ? NULL : strchr(open, '}');
    if (close == NULL || close == open + 1) {
        fcap_config_problem(loader, FCAP_CONFIG_WARNING, place,
                            "redis.key: without a hash tag around %%u one MGET of a user's windows "
                            "crosses the slots of a cluster; write {%%u}");
        return;
    }
    const char *user = strstr(pattern, "%u");
    const char *window = strstr(pattern, "%w");
    if (window > open && window < close) {
        fcap_config_problem(
            loader, FCAP_CONFIG_WARNING, place,
            "redis.key: %%w stands in the hash tag, so one MGET of a user's windows "
            "crosses the slots of a cluster; write {%%u}");
    }
    if (!(user > open && user < close)) {
        fcap_config_problem(loader, FCAP_CONFIG_WARNING, place,
                            "redis.key: the first hash tag wins and %%u is not in it, so all users "
                            "fall into one slot of a cluster%s",
                            strchr(close, '{') != NULL ? "; keep one tag, {%u}" : "");
    } else if (strchr(close, '{') != NULL) {
        fcap_config_problem(loader, FCAP_CONFIG_WARNING, place,
                            "redis.key: only the first hash tag counts; keep one, {%%u}");
    }
}
