/* This target must crash: it reads behind a block of memory when the bytes are "fcap" and a user
 * record with two ads. A search that has not found that within seconds is blind (no coverage, no
 * AddressSanitizer), and so are the other targets of its build. must_crash.sh runs it. */
#include "fcap/user.h"

#include "fuzz_main.h"

/* One comparison after the other: coverage leads from each to the next, chance does not. */
static bool is_named(const uint8_t *data, size_t size)
{
    static const char name[] = "fcap";
    for (size_t i = 0; i < 4; i++) {
        if (i >= size || data[i] != (uint8_t)name[i]) {
            return false;
        }
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile uint8_t seen;
    const struct fcap_window_numbers windows = {.numbers = {1}, .count = 1};
    struct fcap_user *user = calloc(1, sizeof *user);
    FCAP_ASSERT(user != NULL);
    if (is_named(data, size) &&
        fcap_user_decode(user, &windows, (struct fcap_bytes){data + 4, size - 4}) == FCAP_OK &&
        user->row_count == 2) {
        uint8_t *block = calloc(user->row_count, 1);
        FCAP_ASSERT(block != NULL);
        volatile size_t behind = user->row_count; /* No compiler may see it coming. */
        seen = block[behind];                     /* The planted fault. */
        free(block);
    }
    fcap_user_clear(user);
    free(user);
    return seen & 0;
}
