/* The log: levels, both formats, escaping, the limit for each site, lines of several threads. */
#include "fcap/log.h"

#include "fcap/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* cmocka needs some of these first. */
#include <cmocka.h>

static int64_t wall_ms, monotonic_ms;

static void fake_clocks(int64_t *ret_wall_ms, int64_t *ret_monotonic_ms)
{
    *ret_wall_ms = wall_ms;
    *ret_monotonic_ms = monotonic_ms;
}

/* The log's other end. */
static int pipe_ends[2];
static char taken[1 << 20];

static const char *take(void)
{
    size_t size = 0;
    ssize_t more;
    while ((more = read(pipe_ends[0], taken + size, sizeof taken - 1 - size)) > 0) {
        size += (size_t)more;
    }
    taken[size] = '\0';
    return taken;
}

static void begin(enum fcap_log_format format, enum fcap_log_level level)
{
    wall_ms = 1764460800123;
    monotonic_ms += 1000000; /* beyond every earlier period */
    fcap_log_init((struct fcap_log_settings){format, level, pipe_ends[1], fake_clocks});
    fcap_log_thread("worker-0");
    fcap_log_tick(true);
    (void)take();
}

static int open_pipe(void **state)
{
    (void)state;
    return pipe2(pipe_ends, O_NONBLOCK);
}

static void writes_text(void **state)
{
    (void)state;
    begin(FCAP_LOG_TEXT, FCAP_LOG_INFO);
    FCAP_WARN("partition %d: %s", 3, "gap");
    FCAP_DEBUG("not written");
    assert_string_equal(take(), "2025-11-30T00:00:00.123Z warn  [worker-0] partition 3: gap\n");
    assert_false(fcap_log_is_on(FCAP_LOG_DEBUG));
    assert_true(fcap_log_is_on(FCAP_LOG_ERROR));
    begin(FCAP_LOG_TEXT, FCAP_LOG_ERROR);
    FCAP_WARN("not written");
    FCAP_ERROR("bad");
    assert_string_equal(take(), "2025-11-30T00:00:00.123Z error [worker-0] bad\n");
}

static void writes_json(void **state)
{
    (void)state;
    begin(FCAP_LOG_JSON, FCAP_LOG_DEBUG);
    fcap_log_thread("a \"name\"");
    FCAP_DEBUG("x");
    assert_string_equal(take(), "{\"time\":\"2025-11-30T00:00:00.123Z\",\"level\":\"debug\","
                                "\"thread\":\"a \\\"name\\\"\",\"message\":\"x\"}\n");
}

static void escapes(void **state)
{
    (void)state;
    begin(FCAP_LOG_JSON, FCAP_LOG_INFO);
    FCAP_INFO("%s", "q\" b\\ n\n t\t e\x1B d\x7F \xC3\xA9 \xFF \xC0\xAF \xED\xA0\x80 /");
    assert_non_null(strstr(take(), "\"message\":\"q\\\" b\\\\ n\\n t\\t e\\u001b d\\u007f \xC3\xA9 "
                                   "\xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD "
                                   "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD /\"}\n"));
    begin(FCAP_LOG_TEXT, FCAP_LOG_INFO);
    FCAP_INFO("%s", "q\" b\\ n\nforged line\r e\x1B[31m \xC3\xA9 \xFF");
    assert_non_null(strstr(take(), "] q\" b\\ n\\nforged line\\x0d e\\x1b[31m \xC3\xA9 \\xff\n"));
}

/* A message of any length gives one line of at most the limit, cut between characters. */
static void cuts_long_lines(void **state)
{
    (void)state;
    static char message[3 * FCAP_LOG_LINE_BYTES];
    for (int format = FCAP_LOG_TEXT; format <= FCAP_LOG_JSON; format++) {
        for (size_t shift = 0; shift < 8; shift++) {
            begin((enum fcap_log_format)format, FCAP_LOG_INFO);
            memset(message, 'a', shift);
            for (size_t at = shift; at + 2 < sizeof message; at += 2) {
                memcpy(message + at, "\xC3\xA9", 3);
            }
            FCAP_INFO("%s", message);
            const char *line = take();
            size_t size = strlen(line);
            assert_true(size <= FCAP_LOG_LINE_BYTES && size > FCAP_LOG_LINE_BYTES - 8);
            assert_true(strchr(line, '\n') == line + size - 1);
            assert_non_null(strstr(line, format == FCAP_LOG_JSON ? "...\"}\n" : "...\n"));
            for (size_t at = 0; at < size;) {
                size_t sequence = fcap_utf8_sequence((const uint8_t *)line + at, size - at);
                assert_true(sequence > 0);
                at += sequence;
            }
        }
    }
}

static void log_here(int number)
{
    FCAP_INFO("line %d", number);
}

static size_t count_of(const char *text, const char *wanted)
{
    size_t count = 0;
    for (; (text = strstr(text, wanted)) != NULL; text++) {
        count++;
    }
    return count;
}

static void limits_each_site(void **state)
{
    (void)state;
    begin(FCAP_LOG_TEXT, FCAP_LOG_INFO);
    for (int i = 0; i < 1000; i++) {
        log_here(i);
    }
    FCAP_INFO("another site");
    const char *text = take();
    assert_int_equal(count_of(text, "] line "), FCAP_LOG_SITE_LINES);
    assert_int_equal(count_of(text, "another site"), 1);
    fcap_log_tick(false); /* too early */
    monotonic_ms += FCAP_LOG_SITE_PERIOD_MS - 1;
    fcap_log_tick(false);
    log_here(1000);
    assert_string_equal(take(), "");
    monotonic_ms += 1;
    wall_ms -= 3600000; /* The wall clock means nothing here. */
    log_here(1001);
    text = take();
    assert_non_null(strstr(text, "suppressed 991 lines of test_log.c:"));
    assert_non_null(strstr(text, "] line 1001\n"));
    assert_true(strstr(text, "suppressed") < strstr(text, "line 1001"));
}

static void tells_what_it_suppressed(void **state)
{
    (void)state;
    begin(FCAP_LOG_TEXT, FCAP_LOG_INFO);
    for (int i = 0; i < FCAP_LOG_SITE_LINES + 5; i++) {
        log_here(i);
    }
    (void)take();
    monotonic_ms += FCAP_LOG_SITE_PERIOD_MS;
    fcap_log_tick(false);
    assert_int_equal(count_of(take(), "suppressed 5 lines of test_log.c:"), 1);
    fcap_log_tick(false);
    fcap_log_tick(true);
    assert_string_equal(take(), "");
}

static void keeps_errno_and_counts_drops(void **state)
{
    (void)state;
    begin(FCAP_LOG_TEXT, FCAP_LOG_INFO);
    errno = ENOSPC;
    FCAP_INFO("store: full");
    assert_int_equal(errno, ENOSPC);
    assert_non_null(strstr(take(), "store: full"));
    uint64_t before = fcap_log_dropped();
    fcap_log_init((struct fcap_log_settings){FCAP_LOG_TEXT, FCAP_LOG_INFO, -1, fake_clocks});
    errno = 0;
    FCAP_INFO("nobody reads this");
    assert_int_equal(errno, 0);
    assert_true(fcap_log_dropped() == before + 1);
}

static void *log_many(void *name)
{
    fcap_log_thread(name);
    for (int i = 0; i < 500; i++) {
        FCAP_INFO("%0200d", i);
    }
    return NULL;
}

/* Every line of four threads is whole, and what was not written is told. */
static void keeps_threads_apart(void **state)
{
    (void)state;
    begin(FCAP_LOG_TEXT, FCAP_LOG_INFO);
    pthread_t threads[4];
    static char names[4][16];
    for (int i = 0; i < 4; i++) {
        (void)snprintf(names[i], sizeof names[i], "thread-%d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, names[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    fcap_log_tick(true);
    char *rest = NULL;
    int whole = 0;
    for (char *line = strtok_r((char *)(uintptr_t)take(), "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strstr(line, "suppressed 1990 lines") == NULL) {
            assert_int_equal(strlen(line),
                             strlen("2025-11-30T00:00:00.123Z info  [thread-0] ") + 200);
            whole++;
        }
    }
    assert_int_equal(whole, FCAP_LOG_SITE_LINES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_text),
        cmocka_unit_test(writes_json),
        cmocka_unit_test(escapes),
        cmocka_unit_test(cuts_long_lines),
        cmocka_unit_test(limits_each_site),
        cmocka_unit_test(tells_what_it_suppressed),
        cmocka_unit_test(keeps_errno_and_counts_drops),
        cmocka_unit_test(keeps_threads_apart),
    };
    return cmocka_run_group_tests(tests, open_pipe, NULL);
}
