#include "integration/bench_output.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

double bench_number(const char *object, const char *name)
{
    char member[64];
    char *end;
    (void)snprintf(member, sizeof member, "\"%s\":", name);
    const char *at = strstr(object, member);
    if (at == NULL) {
        fail_msg("no \"%s\" in %s", name, object);
    }
    at += strlen(member);
    double value = strtod(at, &end);
    assert_ptr_not_equal(end, at);
    return value;
}

const char *bench_object(char *output)
{
    size_t size = strlen(output);
    assert_true(size > 2 && output[size - 1] == '\n');
    output[size - 1] = '\0';
    const char *line = strrchr(output, '\n');
    line = line == NULL ? output : line + 1;
    assert_int_equal(line[0], '{');
    assert_int_equal(line[strlen(line) - 1], '}');
    return line;
}
