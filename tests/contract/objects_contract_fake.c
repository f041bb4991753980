/* The contract on the fake, and what only the fake can do. */
#include "contract/objects_contract.h"
#include "lib/fake_objects.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct fake_objects fake;

static void open_fake(void)
{
    fake_objects_init(&fake);
}

static struct fcap_objects *port(void)
{
    return &fake.port;
}

static void run_and_die(void (*what)(struct fcap_objects *objects))
{
    what(&fake.port);
    fake_objects_crash(&fake);
}

static void close_fake(void)
{
    fake_objects_done(&fake);
}

static int set_up(void **state)
{
    (void)state;
    open_fake();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_fake();
    return 0;
}

static enum fcap_status put(const char *name, const char *text)
{
    struct fcap_objects *objects = &fake.port;
    struct fcap_object_writer *writer = NULL;
    enum fcap_status status = objects->ops->begin(objects, name, &writer, NULL);
    if (status != FCAP_OK) {
        return status;
    }
    status = objects->ops->write(objects, writer, fcap_bytes_of(text), NULL);
    if (status != FCAP_OK) {
        objects->ops->abandon(objects, writer);
        return status;
    }
    return objects->ops->finish(objects, writer, NULL);
}

static bool is_there(const char *name)
{
    uint8_t byte;
    size_t size;
    return fake.port.ops->read(&fake.port, name, 0, &byte, 1, &size, NULL) == FCAP_OK;
}

static void the_nth_call_fails_once(void **state)
{
    static const enum fake_objects_call calls[] = {FAKE_OBJECTS_BEGIN, FAKE_OBJECTS_WRITE,
                                                   FAKE_OBJECTS_FINISH};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char name[3] = {'x', (char)('a' + i), '\0'};
        fake_objects_fail(&fake, calls[i], 2, FCAP_IO);
        assert_int_equal(put(name, "1"), FCAP_OK);
        name[0] = 'y';
        assert_int_equal(put(name, "2"), FCAP_IO);
        assert_false(is_there(name));
        assert_int_equal(put(name, "3"), FCAP_OK);
        assert_true(is_there(name));
    }
    assert_int_equal(fake_objects_calls(&fake, FAKE_OBJECTS_BEGIN), 9);
    assert_int_equal(fake_objects_bytes(&fake), 6);
}

static void the_volume_is_away(void **state)
{
    struct fcap_object_lock *lock = NULL;
    struct fcap_error error = {{0}};
    (void)state;
    assert_int_equal(put("a", "1"), FCAP_OK);
    assert_int_equal(fake.port.ops->lock(&fake.port, "", "me", &lock, NULL), FCAP_OK);
    fake_objects_away(&fake, FCAP_UNAVAILABLE);
    assert_int_equal(put("b", "1"), FCAP_UNAVAILABLE);
    assert_int_equal(fake.port.ops->remove(&fake.port, "a", &error), FCAP_UNAVAILABLE);
    assert_non_null(strstr(error.text, "a: "));
    fake_objects_away(&fake, FCAP_OK);
    assert_true(is_there("a"));
    assert_int_equal(put("b", "1"), FCAP_OK);
    struct fcap_object_lock *other = NULL;
    assert_int_equal(fake.port.ops->lock(&fake.port, "", "you", &other, NULL), FCAP_LOCKED);
    fake.port.ops->unlock(&fake.port, lock);
}

static void it_is_full(void **state)
{
    (void)state;
    fake_objects_limit(&fake, 10);
    assert_int_equal(put("a", "123456"), FCAP_OK);
    assert_int_equal(put("b", "12345"), FCAP_NO_SPACE);
    assert_int_equal(fake_objects_bytes(&fake), 6);
    assert_int_equal(fake.port.ops->remove(&fake.port, "a", NULL), FCAP_OK);
    assert_int_equal(put("b", "12345"), FCAP_OK);
}

static void a_late_failure_leaves_it_whole(void **state)
{
    (void)state;
    fake_objects_fail_late(&fake, FCAP_IO);
    assert_int_equal(put("a", "1"), FCAP_IO);
    assert_true(is_there("a"));
    assert_int_equal(put("a", "1"), FCAP_LOCKED);
}

static void damage(void **state)
{
    uint8_t bytes[4];
    size_t size;
    (void)state;
    assert_int_equal(put("a", "abcd"), FCAP_OK);
    fake_objects_flip(&fake, "a", 9);
    fake_objects_cut(&fake, "a", 3);
    assert_int_equal(fake.port.ops->read(&fake.port, "a", 0, bytes, 4, &size, NULL), FCAP_OK);
    assert_int_equal(size, 3);
    assert_memory_equal(bytes, "a`c", 3);
    fake_objects_lose(&fake, "a");
    assert_false(is_there("a"));
    assert_int_equal(fake_objects_bytes(&fake), 0);
}

static void leave_half(struct fcap_objects *objects)
{
    struct fcap_object_writer *writer = NULL;
    assert_int_equal(objects->ops->begin(objects, "a/half", &writer, NULL), FCAP_OK);
}

static void litter_is_counted(void **state)
{
    (void)state;
    run_and_die(leave_half);
    assert_int_equal(fake_objects_litter(&fake), 1);
    assert_int_equal(fake.port.ops->sweep(&fake.port, "b/", NULL), FCAP_OK);
    assert_int_equal(fake_objects_litter(&fake), 1);
    assert_int_equal(fake.port.ops->sweep(&fake.port, "a/", NULL), FCAP_OK);
    assert_int_equal(fake_objects_litter(&fake), 0);
}

static void note(void *context, enum fake_objects_call call, const char *name)
{
    if (call == FAKE_OBJECTS_FINISH) {
        assert_string_equal(name, "a");
        assert_false(is_there("a")); /* It may look. */
        ++*(int *)context;
    }
}

static void calls_are_watched(void **state)
{
    int seen = 0;
    (void)state;
    fake_objects_watch(&fake, note, &seen);
    assert_int_equal(put("a", "1"), FCAP_OK);
    assert_int_equal(seen, 1);
}

int main(void)
{
    static const struct objects_contract_subject subject = {.open = open_fake,
                                                            .first = port,
                                                            .second = port,
                                                            .run_and_die = run_and_die,
                                                            .close = close_fake};
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_nth_call_fails_once),
        TEST(the_volume_is_away),
        TEST(it_is_full),
        TEST(a_late_failure_leaves_it_whole),
        TEST(damage),
        TEST(litter_is_counted),
        TEST(calls_are_watched),
    };
#undef TEST
    int failures = objects_contract_run("objects: fake", &subject);
    return failures + cmocka_run_group_tests_name("fake_objects", tests, NULL, NULL);
}
