/* Only as much of JSON as is needed to find the names below "tasks", whatever stands beside them:
 * a later version of the value may have more. */
#include "seed_redis_meta.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 32

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* Behind the string that begins here; NULL: there is none. */
static const char *skip_string(const char *at)
{
    if (*at != '"') {
        return NULL;
    }
    for (at++; *at != '"'; at++) {
        at += *at == '\\';
        if (*at == '\0') {
            return NULL;
        }
    }
    return at + 1;
}

/* Behind the value that begins here. Nesting is counted, not understood. */
static const char *skip_value(const char *at)
{
    int depth = 0;
    at = skip_space(at);
    do {
        if (*at == '"') {
            at = skip_string(at);
            if (at == NULL) {
                return NULL;
            }
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (*at == '\0' || depth > DEPTH_MAX) {
            return NULL;
        } else if (depth > 0) {
            at++;
        } else {
            size_t size = strcspn(at, ",}] \t\r\n");
            return size == 0 ? NULL : at + size;
        }
    } while (depth > 0);
    return depth < 0 ? NULL : at;
}

/* Calls `member` with each name and the start of its value. */
typedef bool (*member_visitor)(void *context, const char *name, size_t size, const char *value);

static bool visit_members(const char *at, member_visitor member, void *context)
{
    at = skip_space(at);
    if (*at != '{') {
        return false;
    }
    at = skip_space(at + 1);
    if (*at == '}') {
        return true;
    }
    for (;;) {
        const char *name = at + 1;
        const char *end = skip_string(at);
        if (end == NULL) {
            return false;
        }
        at = skip_space(end);
        if (*at != ':') {
            return false;
        }
        const char *value = skip_space(at + 1);
        at = skip_value(value);
        if (at == NULL || !member(context, name, (size_t)(end - name) - 1, value)) {
            return false;
        }
        at = skip_space(at);
        if (*at == '}') {
            return true;
        }
        if (*at != ',') {
            return false;
        }
        at = skip_space(at + 1);
    }
}

struct reading {
    int32_t count;
    bool *open;
    bool has_version;
    bool has_tasks;
};

static bool take_task(void *context, const char *name, size_t size, const char *value)
{
    struct reading *reading = context;
    char *end;
    (void)value;
    long long partition = strtoll(name, &end, 10);
    if (size == 0 || end != name + size || partition < 0) {
        return false;
    }
    if (partition < reading->count) {
        reading->open[partition] = true;
    }
    return true;
}

static bool take_member(void *context, const char *name, size_t size, const char *value)
{
    struct reading *reading = context;
    if (size == 1 && *name == 'v') {
        reading->has_version = *value == '1' && strchr(", \t\r\n}", value[1]) != NULL;
        return reading->has_version;
    }
    if (size == strlen("tasks") && strncmp(name, "tasks", size) == 0) {
        reading->has_tasks = true;
        return visit_members(value, take_task, reading);
    }
    return true;
}

bool seed_redis_meta_read(const char *text, int32_t count, bool *open)
{
    struct reading reading = {.count = count, .open = open};
    return visit_members(text, take_member, &reading) && reading.has_version && reading.has_tasks;
}
