#include "fcap/status.h"

#include "fcap/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    enum fcap_class class;
    const char *text;
} statuses[] = {
#define X(name, class, text) {FCAP_CLASS_##class, text},
    FCAP_STATUS_LIST(X)
#undef X
};

enum fcap_class fcap_status_class(enum fcap_status status)
{
    FCAP_ASSERT((size_t)status < sizeof statuses / sizeof statuses[0]);
    return statuses[status].class;
}

const char *fcap_status_text(enum fcap_status status)
{
    FCAP_ASSERT((size_t)status < sizeof statuses / sizeof statuses[0]);
    return statuses[status].text;
}

enum fcap_status fcap_error_set(struct fcap_error *error, enum fcap_status status,
                                const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(error->text, sizeof error->text, format, arguments); /* Cut is fine. */
        va_end(arguments);
    }
    return status;
}

void fcap_error_prefix(struct fcap_error *error, const char *prefix)
{
    if (error == NULL) {
        return;
    }
    struct fcap_error old = *error;
    (void)snprintf(error->text, sizeof error->text, "%s: %.*s", prefix, (int)(sizeof old.text / 2),
                   old.text); /* Cut is fine. */
}

void fcap_assert_failed(const char *file, int line, const char *condition)
{
    (void)fprintf(stderr, "fcapd: assertion failed: %s:%d: %s\n", file, line, condition);
    abort();
}
