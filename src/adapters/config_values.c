/* Numbers with units, files, and the substitution of ${NAME}, ${file:PATH} and $$. */
#include "config_internal.h"

#include "fcap/assert.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct unit {
    const char *name;
    int64_t factor;
};

/* Smallest first; the writer takes the largest that divides. */
static const struct unit duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
};
static const struct unit size_units[] = {
    {"", 1},
    {"KiB", 1024},
    {"MiB", INT64_C(1024) * 1024},
    {"GiB", INT64_C(1024) * 1024 * 1024},
    {"TiB", INT64_C(1024) * 1024 * 1024 * 1024},
};

/* Decimal digits without leading zeros (010 is eight to some readers and ten to others). */
static bool read_digits(const char **text, int64_t *ret_value)
{
    const char *at = *text;
    if (!isdigit((unsigned char)*at) || (at[0] == '0' && isdigit((unsigned char)at[1]))) {
        return false;
    }
    int64_t value = 0;
    for (; isdigit((unsigned char)*at); at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *at - '0', &value)) {
            return false;
        }
    }
    *text = at;
    *ret_value = value;
    return true;
}

bool fcap_config_read_integer(const char *text, int64_t *ret_value)
{
    bool is_negative = *text == '-';
    int64_t value = 0;
    text += is_negative;
    if (!read_digits(&text, &value) || *text != '\0' || (is_negative && value == 0)) {
        return false;
    }
    *ret_value = is_negative ? -value : value;
    return true;
}

static bool read_with_unit(const char *text, const struct unit *units, size_t count,
                           int64_t *ret_value)
{
    int64_t value = 0;
    if (!read_digits(&text, &value)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, units[i].name) == 0) {
            return !__builtin_mul_overflow(value, units[i].factor, ret_value);
        }
    }
    return false;
}

bool fcap_config_read_size(const char *text, int64_t *ret_bytes)
{
    return read_with_unit(text, size_units, sizeof size_units / sizeof size_units[0], ret_bytes);
}

bool fcap_config_read_duration(const char *text, int64_t *ret_ms)
{
    return read_with_unit(text, duration_units, sizeof duration_units / sizeof duration_units[0],
                          ret_ms);
}

void fcap_config_write_number(enum fcap_config_type type, int64_t value, char ret_text[32])
{
    const struct unit *units = type == FCAP_CONFIG_SIZE ? size_units : duration_units;
    size_t count = type == FCAP_CONFIG_SIZE ? sizeof size_units / sizeof size_units[0]
                                            : sizeof duration_units / sizeof duration_units[0];
    size_t unit = 0;
    if (type == FCAP_CONFIG_INTEGER) {
        (void)snprintf(ret_text, 32, "%lld", (long long)value);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (value != 0 && value % units[i].factor == 0) {
            unit = i;
        }
    }
    (void)snprintf(ret_text, 32, "%lld%s", (long long)(value / units[unit].factor),
                   units[unit].name);
}

/* --- files ---------------------------------------------------------------------------------- */

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "is a directory"
           : S_ISFIFO(mode) ? "is a FIFO"
           : S_ISSOCK(mode) ? "is a socket"
                            : "is a device";
}

bool fcap_config_read_file(const char *path, size_t max_bytes, struct fcap_buffer *buffer,
                           char ret_problem[160])
{
    bool is_read = false;
    struct stat found = {0};
    fcap_buffer_clear(buffer);
    /* Not blocking: opening a FIFO that nobody writes to would wait for ever. */
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (file < 0 || fstat(file, &found) != 0) {
        (void)snprintf(ret_problem, 160, "cannot be opened: %s", strerror(errno));
        goto out;
    }
    if (!S_ISREG(found.st_mode)) {
        (void)snprintf(ret_problem, 160, "%s, not a regular file", kind_of(found.st_mode));
        goto out;
    }
    for (;;) {
        uint8_t *room = fcap_buffer_reserve(buffer, 4096);
        ssize_t size = read(file, room, 4096);
        if (size < 0 && errno == EINTR) {
            continue;
        }
        if (size < 0) {
            (void)snprintf(ret_problem, 160, "cannot be read: %s", strerror(errno));
            goto out;
        }
        if (size == 0) {
            break;
        }
        buffer->size += (size_t)size;
        if (buffer->size > max_bytes) {
            (void)snprintf(ret_problem, 160, "is larger than %zu KiB", max_bytes / 1024);
            goto out;
        }
    }
    is_read = true;
out:
    if (file >= 0) {
        (void)close(file); /* Nothing was written. */
    }
    return is_read;
}

/* --- substitution --------------------------------------------------------------------------- */

static bool is_variable_name(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_') {
        return false;
    }
    for (; *name != '\0'; name++) {
        if (!isalnum((unsigned char)*name) && *name != '_') {
            return false;
        }
    }
    return true;
}

/* The problem of a value from outside, or NULL. `size` bytes. */
static const char *problem_of_bytes(const char *bytes, size_t size)
{
    if (size != 0 && (bytes[size - 1] == '\n' || bytes[size - 1] == '\r')) {
        return "ends in a newline";
    }
    return memchr(bytes, '\0', size) != NULL ? "holds a NUL byte" : NULL;
}

static bool append_variable(struct fcap_config_loader *loader, struct fcap_config_place place,
                            const char *label, const char *name, struct fcap_buffer *out)
{
    char quoted[80];
    if (!is_variable_name(name)) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "%s: ${...} takes NAME or file:PATH, not %s", label,
                            fcap_config_quote(name, quoted));
        return false;
    }
    const char *value = getenv(name);
    if (value == NULL) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "%s: the environment variable %s is not set", label, name);
        return false;
    }
    const char *problem = problem_of_bytes(value, strlen(value));
    if (problem != NULL) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                            "%s: the value of the environment variable %s %s", label, name,
                            problem);
        return false;
    }
    fcap_buffer_put_text(out, value);
    return true;
}

static bool append_file(struct fcap_config_loader *loader, struct fcap_config_place place,
                        const char *label, const char *path, struct fcap_buffer *out)
{
    char quoted[80];
    char story[160];
    struct fcap_buffer content = {0};
    const char *problem = NULL;
    bool is_read = fcap_config_read_file(path, FCAP_CONFIG_SECRET_BYTES_MAX, &content, story);
    if (!is_read) {
        problem = story;
    } else {
        /* Editors and `kubectl create secret` end a file in one newline that nobody means. */
        if (content.size != 0 && content.data[content.size - 1] == '\n') {
            content.size--;
        }
        problem = problem_of_bytes((const char *)content.data, content.size);
        if (problem != NULL && strstr(problem, "newline") != NULL) {
            problem = "ends in a newline besides the one that is taken off";
        }
    }
    if (problem != NULL) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place, "%s: the file %s %s", label,
                            fcap_config_quote(path, quoted), problem);
    } else {
        fcap_buffer_put_bytes(out, fcap_buffer_bytes(&content));
    }
    if (content.data != NULL) {
        explicit_bzero(content.data, content.capacity);
    }
    fcap_buffer_done(&content);
    return problem == NULL;
}

/* The text between ${ and }. */
static bool append_reference(struct fcap_config_loader *loader, struct fcap_config_place place,
                             const char *label, struct fcap_bytes reference,
                             struct fcap_buffer *out)
{
    char *name = fcap_config_copy(loader->scratch, (const char *)reference.data, reference.size);
    if (strncmp(name, "file:", 5) == 0) {
        return append_file(loader, place, label, name + 5, out);
    }
    return append_variable(loader, place, label, name, out);
}

const char *fcap_config_expand(struct fcap_config_loader *loader, struct fcap_config_place place,
                               const char *label, const struct fcap_config_node *node,
                               bool *ret_expanded)
{
    const char *result = NULL;
    struct fcap_buffer out = {0};
    *ret_expanded = false;
    if (memchr(node->text, '\0', node->size) != NULL) {
        fcap_config_problem(loader, FCAP_CONFIG_ERROR, place, "%s: holds a NUL byte", label);
        goto out;
    }
    for (const char *at = node->text; *at != '\0';) {
        size_t plain = strcspn(at, "$");
        fcap_buffer_put(&out, at, plain);
        at += plain;
        if (*at == '\0') {
            break;
        }
        if (at[1] == '$') {
            fcap_buffer_put_u8(&out, '$');
            at += 2;
            continue;
        }
        const char *end = at[1] == '{' ? strchr(at, '}') : NULL;
        if (end == NULL) {
            fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                                "%s: a $ that begins no ${NAME} must be written $$", label);
            goto out;
        }
        size_t before = out.size;
        struct fcap_bytes reference = {(const uint8_t *)at + 2, (size_t)(end - at - 2)};
        if (!append_reference(loader, place, label, reference, &out)) {
            goto out;
        }
        loader->expanded_bytes += out.size - before;
        if (loader->expanded_bytes > FCAP_CONFIG_EXPANDED_BYTES_MAX) {
            fcap_config_problem(loader, FCAP_CONFIG_ERROR, place,
                                "%s: what ${...} brings in is more than %zu KiB in all", label,
                                FCAP_CONFIG_EXPANDED_BYTES_MAX / 1024);
            goto out;
        }
        *ret_expanded = true;
        at = end + 1;
    }
    result = fcap_config_copy(loader->config.owned, (const char *)out.data, out.size);
out:
    if (out.data != NULL) {
        explicit_bzero(out.data, out.capacity);
    }
    fcap_buffer_done(&out);
    return result;
}
