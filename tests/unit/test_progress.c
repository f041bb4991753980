/* How far a long command is, on a terminal and elsewhere. */
#include "commands/progress.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

static struct fcap_progress progress;
static FILE *file;
static char *text;
static size_t size;

static int setup(void **unused)
{
    (void)unused;
    file = open_memstream(&text, &size);
    assert_non_null(file);
    fcap_progress_init(&progress, "backfill", file, true);
    assert_false(progress.is_terminal); /* A stream in memory is none. */
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    (void)fclose(file);
    free(text);
    return 0;
}

static const char *said(void)
{
    (void)fflush(file);
    return text;
}

static void test_a_line_each_five_seconds(void **unused)
{
    (void)unused;
    for (int64_t now_ms = 1000; now_ms <= 11500; now_ms += 100) {
        /* 20,000 a second. */
        fcap_progress_at(&progress, "read", now_ms, (uint64_t)(now_ms - 1000) * 20, 1000000,
                         "offsets", NULL);
    }
    assert_string_equal(said(), "backfill: read: 0%, 0 of 1,000,000 offsets\n"
                                "backfill: read: 10%, 100,000 of 1,000,000 offsets, 20,000/s, 0:45 "
                                "left\n"
                                "backfill: read: 20%, 200,000 of 1,000,000 offsets, 20,000/s, 0:40 "
                                "left\n");
}

static void test_a_new_phase_is_told_at_once(void **unused)
{
    (void)unused;
    fcap_progress_at(&progress, "read", 1000, 10, 10, "offsets", NULL);
    fcap_progress_at(&progress, "wait", 1001, 0, 0, "records", "about 5 s");
    fcap_progress_at(&progress, "check", 1002, 0, 9, "records", "waits for Redis");
    assert_string_equal(said(), "backfill: read: 100%, 10 of 10 offsets\n"
                                "backfill: wait: about 5 s\n"
                                "backfill: check: 0%, 0 of 9 records; waits for Redis\n");
}

static void test_nothing_to_be_done_is_not_told(void **unused)
{
    (void)unused;
    fcap_progress_at(&progress, "read", 1000, 0, 0, "offsets", NULL);
    fcap_progress_at(&progress, "check", 1001, 0, 0, "records", NULL);
    assert_string_equal(said(), "");
}

/* It goes down when a file does not fit and is split: no rate comes of that. */
static void test_what_is_done_may_become_less(void **unused)
{
    (void)unused;
    fcap_progress_at(&progress, "check", 1000, 0, 1000, "records", NULL);
    fcap_progress_at(&progress, "check", 6000, 500, 1000, "records", NULL);
    fcap_progress_at(&progress, "check", 11000, 100, 1000, "records", NULL);
    assert_non_null(strstr(said(), "check: 10%, 100 of 1,000 records\n"));
}

static void test_a_bar_is_drawn_again(void **unused)
{
    (void)unused;
    progress.is_terminal = true;
    fcap_progress_at(&progress, "read", 1000, 0, 48000, "offsets", NULL);
    fcap_progress_at(&progress, "read", 1100, 12000, 48000, "offsets", NULL); /* Too soon. */
    fcap_progress_at(&progress, "read", 2000, 24000, 48000, "offsets", NULL);
    fcap_progress_say(&progress, "waits");
    fcap_progress_done(&progress); /* There is none now. */
    assert_string_equal(said(), "\r\x1b[Kread   [------------------------]   0%  0 of 48,000 "
                                "offsets"
                                "\r\x1b[Kread   [############------------]  50%  24,000 of 48,000 "
                                "offsets, 24,000/s, 0:01 left"
                                "\r\x1b[K"
                                "backfill: waits\n");
}

/* A bar that wraps leaves its first row behind each time. */
static void test_a_narrow_terminal_gets_what_fits_in_a_row(void **unused)
{
    static const char row[] = "\r\x1b[Kread   [############------------]  50%";
    const struct winsize narrow = {.ws_row = 10, .ws_col = 39};
    char seen[200];
    size_t count = 0;
    (void)unused;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    FILE *terminal = fopen(ptsname(master), "we");
    assert_non_null(terminal);
    assert_int_equal(ioctl(master, TIOCSWINSZ, &narrow), 0);
    struct fcap_progress bar;
    fcap_progress_init(&bar, "backfill", terminal, true);
    assert_true(bar.is_terminal);
    fcap_progress_at(&bar, "read", 2000, 24000, 48000, "offsets", NULL);
    while (count < sizeof row - 1) {
        ssize_t got = read(master, seen + count, sizeof seen - count);
        assert_true(got > 0);
        count += (size_t)got;
    }
    assert_int_equal(count, sizeof row - 1);
    assert_memory_equal(seen, row, count);
    (void)fclose(terminal);
    (void)close(master);
}

static void test_numbers(void **unused)
{
    (void)unused;
    char number[32];
    assert_string_equal(fcap_progress_number(0, number), "0");
    assert_string_equal(fcap_progress_number(999, number), "999");
    assert_string_equal(fcap_progress_number(1000, number), "1,000");
    assert_string_equal(fcap_progress_number(123456, number), "123,456");
    assert_string_equal(fcap_progress_number(UINT64_MAX, number), "18,446,744,073,709,551,615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_line_each_five_seconds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_new_phase_is_told_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_to_be_done_is_not_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_done_may_become_less, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_bar_is_drawn_again, setup, teardown),
        cmocka_unit_test(test_a_narrow_terminal_gets_what_fits_in_a_row),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
