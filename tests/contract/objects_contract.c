#include "contract/objects_contract.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct objects_contract_subject *subject;
static struct fcap_objects *one;
static struct fcap_objects *two;
static struct fcap_error error;

static int set_up(void **state)
{
    (void)state;
    subject->open();
    one = subject->first();
    two = subject->second();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    subject->close();
    return 0;
}

/* --- small steps --- */

static void must(enum fcap_status status)
{
    if (status != FCAP_OK) {
        fail_msg("%s: %s", fcap_status_text(status), error.text);
    }
}

static struct fcap_object_writer *begun(struct fcap_objects *objects, const char *name,
                                        const char *text)
{
    struct fcap_object_writer *writer = NULL;
    must(objects->ops->begin(objects, name, &writer, &error));
    assert_non_null(writer);
    must(objects->ops->write(objects, writer, fcap_bytes_of(text), &error));
    return writer;
}

static enum fcap_status put(struct fcap_objects *objects, const char *name, const char *text)
{
    return objects->ops->finish(objects, begun(objects, name, text), &error);
}

/* Its text, or NULL when there is none. */
static const char *text_of(struct fcap_objects *objects, const char *name)
{
    static char text[256];
    size_t size = 0;
    enum fcap_status status =
        objects->ops->read(objects, name, 0, (uint8_t *)text, sizeof text - 1, &size, &error);
    if (status == FCAP_REFUSED) {
        return NULL;
    }
    must(status);
    text[size] = '\0';
    return text;
}

struct listing {
    char text[4096]; /* "name size\n" ... */
    size_t stop;     /* after so many; 0: never */
    size_t count;
};

static bool visit(void *context, const char *name, uint64_t size)
{
    struct listing *listing = context;
    size_t used = strlen(listing->text);
    (void)snprintf(listing->text + used, sizeof listing->text - used, "%s %llu\n", name,
                   (unsigned long long)size);
    return ++listing->count != listing->stop;
}

static void lists(struct fcap_objects *objects, const char *prefix, const char *wanted)
{
    struct listing listing = {.text = ""};
    must(objects->ops->list(objects, prefix, visit, &listing, &error));
    assert_string_equal(listing.text, wanted);
}

/* --- whole or not at all --- */

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct fcap_object_writer *writer = begun(one, "days/pod-0/a", "hello ");
    assert_null(text_of(one, "days/pod-0/a"));
    lists(two, "", "");
    must(one->ops->write(one, writer, FCAP_BYTES_NONE, &error));
    must(one->ops->write(one, writer, fcap_bytes_of("world"), &error));
    assert_null(text_of(two, "days/pod-0/a"));
    must(one->ops->finish(one, writer, &error));
    assert_string_equal(text_of(one, "days/pod-0/a"), "hello world");
    assert_string_equal(text_of(two, "days/pod-0/a"), "hello world");
    lists(two, "", "days/pod-0/a 11\n");
}

static void nothing_is_an_object(void **state)
{
    struct fcap_object_writer *writer = NULL;
    (void)state;
    must(one->ops->begin(one, "empty", &writer, &error));
    must(one->ops->finish(one, writer, &error));
    assert_string_equal(text_of(two, "empty"), "");
    lists(one, "", "empty 0\n");
}

static void pieces_of_a_large_one(void **state)
{
    enum { SIZE = 3000017 };
    struct fcap_object_writer *writer = NULL;
    uint8_t *bytes = malloc(SIZE);
    uint8_t *again = malloc(SIZE + 1);
    (void)state;
    assert_true(bytes != NULL && again != NULL);
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (uint8_t)(i * 31 >> 5);
    }
    must(one->ops->begin(one, "a/b/c/d/large", &writer, &error));
    for (size_t at = 0; at < SIZE; at += 100003) {
        size_t size = SIZE - at < 100003 ? SIZE - at : 100003;
        must(one->ops->write(one, writer, (struct fcap_bytes){bytes + at, size}, &error));
    }
    must(one->ops->finish(one, writer, &error));
    static const size_t places[][2] = {
        {0, SIZE},        {0, SIZE + 1}, {1, 100},       {999999, 1048576},
        {SIZE - 1, 1000}, {SIZE, 10},    {SIZE + 5, 10}, {5, 0}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        size_t left = places[i][0] < SIZE ? SIZE - places[i][0] : 0;
        size_t wanted = places[i][1] < left ? places[i][1] : left;
        size_t size = 12345;
        must(
            two->ops->read(two, "a/b/c/d/large", places[i][0], again, places[i][1], &size, &error));
        assert_int_equal(size, wanted);
        assert_true(wanted == 0 || memcmp(again, bytes + places[i][0], wanted) == 0);
    }
    free(bytes);
    free(again);
}

static void given_up_is_never_there(void **state)
{
    (void)state;
    one->ops->abandon(one, begun(one, "days/a", "x"));
    one->ops->abandon(one, NULL);
    lists(one, "", "");
    assert_null(text_of(one, "days/a"));
    must(put(one, "days/a", "y"));
    assert_string_equal(text_of(two, "days/a"), "y");
}

static void one_name_is_made_once(void **state)
{
    (void)state;
    struct fcap_object_writer *late = begun(two, "manifest-1", "second");
    must(put(one, "manifest-1", "first"));
    error.text[0] = '\0';
    assert_int_equal(two->ops->finish(two, late, &error), FCAP_LOCKED);
    assert_non_null(strstr(error.text, "manifest-1"));
    assert_int_equal(put(one, "manifest-1", "third"), FCAP_LOCKED);
    assert_string_equal(text_of(two, "manifest-1"), "first");
    lists(one, "", "manifest-1 5\n");
    must(one->ops->remove(one, "manifest-1", &error));
    must(put(two, "manifest-1", "fourth"));
    assert_string_equal(text_of(one, "manifest-1"), "fourth");
}

/* --- finding and removing --- */

static void names_come_in_order(void **state)
{
    static const char *const names[] = {"b/pod-10/a", "b/pod-1/b", "b/pod-1/a", "a",
                                        "b/pod-1.x",  "b/pod-1-x", "B",         "b/pod-1x"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        must(put(i % 2 == 0 ? one : two, names[i], &"12345"[i % 5]));
    }
    lists(one, "",
          "B 4\na 2\nb/pod-1-x 5\nb/pod-1.x 1\nb/pod-1/a 3\nb/pod-1/b 4\n"
          "b/pod-10/a 5\nb/pod-1x 3\n");
    lists(one, "b/pod-1/", "b/pod-1/a 3\nb/pod-1/b 4\n");
    lists(one, "b/pod-1",
          "b/pod-1-x 5\nb/pod-1.x 1\nb/pod-1/a 3\nb/pod-1/b 4\n"
          "b/pod-10/a 5\nb/pod-1x 3\n");
    lists(one, "b/pod-1/a", "b/pod-1/a 3\n");
    lists(one, "b/pod-2", "");
    lists(one, "c/d/e", "");
    lists(one, "a/", "");
    struct listing some = {.text = "", .stop = 2};
    must(one->ops->list(one, "b/", visit, &some, &error));
    assert_string_equal(some.text, "b/pod-1-x 5\nb/pod-1.x 1\n");
}

static bool visit_and_remove(void *context, const char *name, uint64_t size)
{
    char copy[FCAP_OBJECT_NAME_MAX + 1];
    (void)size;
    (void)snprintf(copy, sizeof copy, "%s", name); /* Fits. */
    must(one->ops->remove(one, copy, &error));
    assert_string_equal(copy, name); /* It is valid for the whole call. */
    ++*(size_t *)context;
    return true;
}

static void removed_is_gone(void **state)
{
    size_t count = 0;
    (void)state;
    must(put(one, "x/a", "1"));
    must(put(one, "x/b", "2"));
    must(put(one, "y", "3"));
    must(two->ops->remove(two, "x/a", &error));
    must(two->ops->remove(two, "x/a", &error));
    must(two->ops->remove(two, "never/was", &error));
    assert_null(text_of(one, "x/a"));
    lists(one, "", "x/b 1\ny 1\n");
    must(one->ops->list(one, "", visit_and_remove, &count, &error));
    assert_int_equal(count, 2);
    lists(two, "", "");
}

static void what_is_not_there_is_refused(void **state)
{
    uint8_t byte;
    size_t size = 7;
    (void)state;
    must(put(one, "x/a", "1"));
    static const char *const names[] = {"b", "x", "x/b", "x/a/b", "x/y/z"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        error.text[0] = '\0';
        assert_int_equal(one->ops->read(one, names[i], 0, &byte, 1, &size, &error), FCAP_REFUSED);
        assert_non_null(strstr(error.text, names[i]));
        assert_int_equal(one->ops->read(one, names[i], 0, &byte, 1, &size, NULL), FCAP_REFUSED);
    }
    assert_int_equal(size, 7);
}

/* --- the end of a process --- */

static void die_while_writing(struct fcap_objects *objects)
{
    struct fcap_object_lock *lock = NULL;
    must(objects->ops->lock(objects, "days/pod-0/", "one who dies", &lock, &error));
    must(put(objects, "days/pod-0/done", "done"));
    (void)begun(objects, "days/pod-0/half", "ha");
    (void)begun(objects, "days/pod-0/deep/half", "ha");
    (void)begun(objects, "days/pod-1/half", "ha");
}

static void death_leaves_no_half(void **state)
{
    struct fcap_object_lock *lock = NULL;
    (void)state;
    subject->run_and_die(die_while_writing);
    lists(one, "", "days/pod-0/done 4\n");
    must(one->ops->lock(one, "days/pod-0/", "the next", &lock, &error));
    struct fcap_object_writer *other = begun(two, "days/pod-1/other", "ot");
    must(one->ops->sweep(one, "days/pod-0/", &error));
    must(one->ops->sweep(one, "days/nobody/", &error));
    must(two->ops->write(two, other, fcap_bytes_of("her"), &error));
    must(two->ops->finish(two, other, &error)); /* It was not below the prefix. */
    must(put(one, "days/pod-0/half", "whole"));
    must(put(one, "days/pod-0/deep/half", "whole"));
    lists(two, "",
          "days/pod-0/deep/half 5\ndays/pod-0/done 4\ndays/pod-0/half 5\n"
          "days/pod-1/other 5\n");
    assert_string_equal(text_of(two, "days/pod-0/done"), "done");
    must(one->ops->sweep(one, "", &error));
    assert_string_equal(text_of(two, "days/pod-1/other"), "other");
    one->ops->unlock(one, lock);
}

/* --- locks --- */

static void one_holds_a_prefix(void **state)
{
    struct fcap_object_lock *lock = NULL;
    struct fcap_object_lock *other = NULL;
    struct fcap_object_lock *none = NULL;
    (void)state;
    must(one->ops->lock(one, "days/pod-0/", "pod-0, process 17", &lock, &error));
    error.text[0] = '\0';
    assert_int_equal(two->ops->lock(two, "days/pod-0/", "somebody", &none, &error), FCAP_LOCKED);
    assert_non_null(strstr(error.text, "pod-0, process 17"));
    assert_int_equal(one->ops->lock(one, "days/pod-0/", "myself", &none, &error), FCAP_LOCKED);
    assert_null(none);
    must(two->ops->lock(two, "days/pod-1/", "the neighbour", &other, &error));
    lists(one, "", ""); /* A lock is no object. */
    must(put(one, "days/pod-0/a", "1"));
    one->ops->unlock(one, lock);
    must(two->ops->lock(two, "days/pod-0/", "x", &lock, &error));
    error.text[0] = '\0';
    assert_int_equal(one->ops->lock(one, "days/pod-0/", "y", &none, &error), FCAP_LOCKED);
    assert_null(strstr(error.text, "process 17")); /* Not the holder of before. */
    two->ops->unlock(two, lock);
    two->ops->unlock(two, other);
    two->ops->unlock(two, NULL);
}

/* --- threads --- */

enum { THREADS = 4, ROUNDS = 8 };

struct worker {
    pthread_t thread;
    int number;
    int won;
};

static void *work(void *context)
{
    struct worker *worker = context;
    struct fcap_objects *objects = worker->number % 2 == 0 ? one : two;
    for (int round = 0; round < ROUNDS; round++) {
        struct fcap_object_writer *writers[2] = {NULL, NULL};
        char names[2][64];
        (void)snprintf(names[0], sizeof names[0], "t/own-%d-%d", worker->number, round);
        (void)snprintf(names[1], sizeof names[1], "t/shared-%d", round);
        for (int i = 0; i < 2; i++) {
            if (objects->ops->begin(objects, names[i], &writers[i], NULL) != FCAP_OK ||
                objects->ops->write(objects, writers[i], fcap_bytes_of(names[0]), NULL) !=
                    FCAP_OK) {
                return NULL;
            }
        }
        if (objects->ops->finish(objects, writers[0], NULL) != FCAP_OK) {
            return NULL;
        }
        enum fcap_status status = objects->ops->finish(objects, writers[1], NULL);
        if (status != FCAP_OK && status != FCAP_LOCKED) {
            return NULL;
        }
        worker->won += status == FCAP_OK;
    }
    return worker;
}

static void many_threads(void **state)
{
    struct worker workers[THREADS];
    int won = 0;
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(workers[i].thread, &result), 0);
        assert_non_null(result);
        won += workers[i].won;
    }
    assert_int_equal(won, ROUNDS); /* Each shared name once. */
    struct listing listing = {.text = ""};
    must(one->ops->list(one, "t/", visit, &listing, &error));
    assert_int_equal(listing.count, (THREADS + 1) * ROUNDS);
    assert_string_equal(text_of(one, "t/own-3-5"), "t/own-3-5");
    assert_memory_equal(text_of(one, "t/shared-7"), "t/own-", 6);
}

/* Where it lies as a file, if it does. */
static void located_files_are_the_objects(void **state)
{
    (void)state;
    char path[FCAP_OBJECT_PATH_MAX];
    char bytes[16] = "";
    must(put(one, "days/pod-0/file-1", "as it is"));
    if (one->ops->locate == NULL) {
        return;
    }
    assert_true(one->ops->locate(one, "days/pod-0/file-1", path));
    assert_int_equal(path[0], '/');
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), 8);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(bytes, "as it is");
}

int objects_contract_run(const char *name, const struct objects_contract_subject *contract)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(located_files_are_the_objects),
        TEST(what_is_written_is_read),
        TEST(nothing_is_an_object),
        TEST(pieces_of_a_large_one),
        TEST(given_up_is_never_there),
        TEST(one_name_is_made_once),
        TEST(names_come_in_order),
        TEST(removed_is_gone),
        TEST(what_is_not_there_is_refused),
        TEST(death_leaves_no_half),
        TEST(one_holds_a_prefix),
        TEST(many_threads),
    };
#undef TEST
    subject = contract;
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
