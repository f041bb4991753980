/* Any bytes as a stored user record: no crash, and what is accepted is written and read again as
 * the same record. The first two bytes choose the windows. */
#include "fcap/user.h"

#include "fuzz_main.h"

static void choose_windows(const uint8_t *data, struct fcap_window_numbers *windows)
{
    windows->count = 1 + data[0] % FCAP_WINDOWS_MAX;
    for (size_t i = 0; i < windows->count; i++) {
        /* Different numbers less than 64 apart, in no order. */
        size_t at = data[0] % 32 < 16 ? i : windows->count - 1 - i;
        windows->numbers[i] = (uint16_t)(data[1] + at * (1 + data[1] % 4));
    }
}

static void check_same(const struct fcap_user *a, const struct fcap_user *b, size_t windows)
{
    FCAP_ASSERT(a->newest_ms == b->newest_ms && a->erased_until_ms == b->erased_until_ms);
    FCAP_ASSERT(a->erased_until_ms == FCAP_TIME_NONE || a->erased_commit == b->erased_commit);
    FCAP_ASSERT(a->partial_newest_ms == b->partial_newest_ms && a->row_count == b->row_count);
    FCAP_ASSERT(a->row_count == 0 ||
                memcmp(a->rows, b->rows, a->row_count * (1 + windows) * sizeof *a->rows) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fcap_window_numbers windows;
    struct fcap_user *user = calloc(1, sizeof *user);
    struct fcap_user *again = calloc(1, sizeof *again);
    FCAP_ASSERT(user != NULL && again != NULL);
    if (size >= 2) {
        choose_windows(data, &windows);
        enum fcap_status status =
            fcap_user_decode(user, &windows, (struct fcap_bytes){data + 2, size - 2});
        FCAP_ASSERT(status == FCAP_OK || status == FCAP_FORMAT || status == FCAP_CORRUPT);
        if (status == FCAP_OK) {
            struct fcap_buffer buffer = {0};
            for (uint32_t i = 1; i < user->row_count; i++) {
                FCAP_ASSERT(user->rows[(i - 1) * (1 + windows.count)] <
                            user->rows[i * (1 + windows.count)]);
            }
            fcap_user_encode(user, &windows, user->stamp, &buffer);
            FCAP_ASSERT(fcap_user_decode(again, &windows, fcap_buffer_bytes(&buffer)) == FCAP_OK);
            FCAP_ASSERT(user->stamp == again->stamp);
            check_same(user, again, windows.count);
            fcap_buffer_done(&buffer);
        }
    }
    fcap_user_clear(user);
    fcap_user_clear(again);
    free(user);
    free(again);
    return 0;
}
