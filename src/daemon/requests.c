#include "requests.h"

#include "fcap/utf8.h"

#include <stdlib.h>
#include <string.h>

void fcap_request_refuse(struct fcap_http_response *response, int status, const char *text)
{
    response->status = status;
    fcap_buffer_put_text(&response->body, text);
}

size_t fcap_request_utf8_size(struct fcap_bytes text)
{
    size_t size = 0;
    while (size < text.size) {
        size_t sequence = fcap_utf8_sequence(text.data + size, text.size - size);
        if (sequence == 0) {
            break;
        }
        size += sequence;
    }
    return size;
}

bool fcap_request_user(const struct fcap_http_request *request, bool is_due,
                       struct fcap_http_response *response, struct fcap_bytes *ret_user)
{
    struct fcap_bytes user = FCAP_BYTES_NONE;
    bool is_there = fcap_http_query_bytes(request, "user", &user);
    if (user.size == 0 && (is_due || is_there)) {
        fcap_request_refuse(response, 400, "?user= is due, with an id\n");
        return false;
    }
    if (user.size > UINT16_MAX || fcap_request_utf8_size(user) != user.size ||
        (user.size > 0 && memchr(user.data, 0, user.size) != NULL)) {
        fcap_request_refuse(response, 400,
                            "user is not UTF-8, holds a NUL, or is too long; no counted event has "
                            "such an id\n");
        return false;
    }
    *ret_user = user;
    return true;
}

bool fcap_request_partition(const struct fcap_http_request *request,
                            struct fcap_http_response *response, int32_t *ret_partition)
{
    const char *text = fcap_http_query(request, "partition");
    long partition = -1;
    if (text != NULL && text[0] != '\0') {
        char *end;
        partition = strtol(text, &end, 10);
        if (*end != '\0' || partition < 0 || partition > INT32_MAX) {
            fcap_request_refuse(response, 400, "partition is a number of 0 or more\n");
            return false;
        }
    }
    *ret_partition = (int32_t)partition;
    return true;
}

/* The value of a digit, or -1. */
static int digit_of(uint8_t text)
{
    static const char digits[] = "0123456789abcdef";
    const char *found =
        text == 0 ? NULL : strchr(digits, text >= 'A' && text <= 'F' ? text + 32 : text);
    return found == NULL ? -1 : (int)(found - digits);
}

bool fcap_request_hex(const struct fcap_http_request *request, const char *name,
                      struct fcap_http_response *response, struct fcap_buffer *ret_bytes)
{
    struct fcap_bytes text = FCAP_BYTES_NONE;
    (void)fcap_http_query_bytes(request, name, &text); /* Absent: no bytes. */
    for (size_t i = 0; i + 1 < text.size; i += 2) {
        int high = digit_of(text.data[i]);
        int low = digit_of(text.data[i + 1]);
        if (high < 0 || low < 0) {
            text.size = 1; /* Neither even nor whole. */
            break;
        }
        fcap_buffer_put_u8(ret_bytes, (uint8_t)(high * 16 + low));
    }
    if (text.size % 2 != 0) {
        fcap_request_refuse(response, 400, "pairs of hexadecimal digits are due\n");
        return false;
    }
    return true;
}
