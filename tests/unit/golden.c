#include "unit/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void golden_put(struct fcap_buffer *buffer, const char *hex)
{
    while (*hex != '\0') {
        if (*hex == ' ' || *hex == '\n') {
            hex++;
            continue;
        }
        int high = digit_of(hex[0]);
        int low = digit_of(hex[1]);
        assert_true(high >= 0 && low >= 0);
        fcap_buffer_put_u8(buffer, (uint8_t)(high << 4 | low));
        hex += 2;
    }
}

void golden_check(struct fcap_bytes bytes, const char *hex)
{
    struct fcap_buffer wanted = {0};
    golden_put(&wanted, hex);
    if (!fcap_bytes_equal(bytes, fcap_buffer_bytes(&wanted))) {
        char text[4096] = "";
        for (size_t i = 0; i < bytes.size && i < 1300; i++) {
            (void)snprintf(text + 3 * i, 4, "%02x ", bytes.data[i]); /* Fits. */
        }
        fail_msg("got    %s\nwanted %s", text, hex);
    }
    fcap_buffer_done(&wanted);
}

void golden_documented(const char *hex)
{
    FILE *file = fopen(FCAP_SOURCE_DIR "/docs/DATA.md", "r");
    assert_non_null(file);
    static char text[65536];
    size_t size = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file); /* Only read from. */
    text[size] = '\0';
    if (strstr(text, hex) == NULL) {
        fail_msg("docs/DATA.md does not show %s", hex);
    }
}

uint8_t *golden_copy(struct fcap_bytes bytes, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    if (size > 0) {
        memcpy(copy, bytes.data, size);
    }
    return copy;
}
