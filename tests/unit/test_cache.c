/* The record cache against a simple list, through very many random operations. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/user.h"
#include "lib/sanitized.h"

enum { WINDOWS = 3, NAMES = 3000, TASKS = 3 };

static uint64_t random_state;

static uint64_t draw(uint64_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 11) % bound;
}

/* What should be in the cache. Tasks are only told apart by address. */
struct model {
    struct fcap_cache cache;
    struct fcap_user *users[TASKS][NAMES];
    bool pinned[TASKS][NAMES];
    size_t count;
};

static struct model model;
static uint64_t tasks[TASKS];

static struct fcap_task *task_of(size_t task)
{
    return (struct fcap_task *)&tasks[task];
}

static struct fcap_bytes name_of(size_t index, char text[16])
{
    (void)snprintf(text, 16, "user-%zu", index); /* Fits. */
    return fcap_bytes_of(text);
}

/* `spread` 0: true hashes; else few values, so that chains are long and wrap around. */
static uint64_t hash_of(size_t task, size_t index, uint64_t spread)
{
    char text[16];
    uint64_t hash = fcap_cache_hash((int32_t)task, name_of(index, text));
    return spread == 0 ? hash : UINT64_MAX - hash % spread;
}

static struct fcap_user *find(size_t task, size_t index, uint64_t spread)
{
    char text[16];
    return fcap_cache_find(&model.cache, task_of(task), hash_of(task, index, spread),
                           name_of(index, text));
}

/* Everything that should be there is found, nothing else is, and the bytes add up. */
static void check_all(uint64_t spread)
{
    size_t bytes = model.cache.slot_count * sizeof *model.cache.slots;
    size_t slots = 0;
    for (size_t task = 0; task < TASKS; task++) {
        for (size_t i = 0; i < NAMES; i++) {
            assert_ptr_equal(find(task, i, spread), model.users[task][i]);
            if (model.users[task][i] != NULL) {
                bytes += fcap_user_bytes(model.users[task][i], WINDOWS);
            }
        }
    }
    for (size_t i = 0; i < model.cache.slot_count; i++) {
        slots += model.cache.slots[i].user != NULL;
    }
    assert_int_equal(slots, model.count);
    assert_int_equal(model.cache.count, model.count);
    assert_int_equal(model.cache.bytes, bytes);
}

static void insert(size_t task, size_t index, uint64_t spread)
{
    char text[16];
    struct fcap_user *user = fcap_cache_insert(&model.cache, task_of(task),
                                               hash_of(task, index, spread), name_of(index, text));
    assert_true(fcap_bytes_equal(fcap_user_id(user), name_of(index, text)));
    assert_int_equal(user->row_count, 0);
    assert_true(user->newest_ms == FCAP_TIME_NONE && user->erased_until_ms == FCAP_TIME_NONE);
    assert_true(fcap_user_may_go(user));
    model.users[task][index] = user;
    model.pinned[task][index] = false;
    model.count++;
}

static void change_rows(struct fcap_user *user)
{
    size_t before = fcap_user_bytes(user, WINDOWS);
    if (draw(3) > 0) {
        fcap_user_row_add(user, WINDOWS, (uint32_t)draw(20))[1 + draw(WINDOWS)]++;
    } else if (user->row_count > 0) {
        uint32_t *row = &user->rows[draw(user->row_count) * (1 + WINDOWS)];
        memset(row + 1, 0, WINDOWS * sizeof *row);
        fcap_user_row_trim(user, WINDOWS, row);
    }
    fcap_cache_account(&model.cache, before, fcap_user_bytes(user, WINDOWS));
}

/* Each of the reasons that hold a user. */
static void pin(struct fcap_user *user, bool pinned)
{
    switch (user->size % 5) {
    case 0:
        user->dirty_round = pinned;
        break;
    case 1:
        user->encoded_round = pinned;
        break;
    case 2:
        user->push_mask = pinned;
        break;
    case 3:
        user->flights = pinned;
        break;
    default:
        user->keep = pinned;
        break;
    }
    assert_int_equal(fcap_user_may_go(user), !pinned);
}

/* Takes out of the model what the cache has let go. */
static void note_evictions(uint64_t spread)
{
    for (size_t task = 0; task < TASKS; task++) {
        for (size_t i = 0; i < NAMES; i++) {
            if (model.users[task][i] != NULL && find(task, i, spread) == NULL) {
                assert_false(model.pinned[task][i]); /* A held user never goes. */
                model.users[task][i] = NULL;
                model.count--;
            }
        }
    }
}

static void run(uint64_t seed, uint64_t spread, size_t steps)
{
    memset(&model, 0, sizeof model);
    random_state = seed;
    fcap_cache_init(&model.cache, SIZE_MAX, WINDOWS);
    size_t names = spread == 0 ? NAMES : 200;
    for (size_t step = 0; step < steps; step++) {
        size_t task = draw(TASKS);
        size_t i = draw(names);
        struct fcap_user *user = model.users[task][i];
        assert_ptr_equal(find(task, i, spread), user);
        uint64_t what = draw(10);
        if (user == NULL) {
            insert(task, i, spread);
        } else if (what < 3) {
            pin(user, false);
            fcap_cache_remove(&model.cache, user);
            model.users[task][i] = NULL;
            model.pinned[task][i] = false;
            model.count--;
        } else if (what < 8) {
            change_rows(user);
        } else {
            model.pinned[task][i] = draw(2) == 0;
            pin(user, model.pinned[task][i]);
        }
        if (step % 5000 == 4999) {
            uint64_t evictions = model.cache.evictions;
            size_t count = model.count;
            check_all(spread);
            model.cache.bytes_max = model.cache.bytes - draw(40000);
            fcap_cache_evict(&model.cache, draw(2) == 0 ? 100 : 100000);
            note_evictions(spread);
            assert_int_equal(model.cache.evictions - evictions, count - model.count);
            check_all(spread);
        }
    }
    check_all(spread);
    fcap_cache_done(&model.cache);
}

static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        run(seed * 0x9E3779B97F4A7C15u, 0, 200000);
    }
}

/* All hashes end at the last slots: every chain wraps around to the first ones. */
static void test_wrap_around(void **state)
{
    (void)state;
    run(17, 1, 60000);
    run(18, 5, 60000);
    run(19, 100, 60000);
}

/* Three in a chain over the end of the table; any one goes, the others stay to be found. */
static void test_backward_shift(void **state)
{
    (void)state;
    for (uint64_t first = 1021; first < 1024; first++) {
        for (size_t gone = 0; gone < 4; gone++) {
            struct fcap_cache cache;
            struct fcap_user *users[4];
            char text[16];
            /* The last one's home is the first slot: it must not move ahead of it. */
            const uint64_t hashes[4] = {first, first, 1023, 1024};
            fcap_cache_init(&cache, SIZE_MAX, WINDOWS);
            assert_int_equal(cache.slot_count, 1024);
            for (size_t i = 0; i < 4; i++) {
                users[i] = fcap_cache_insert(&cache, task_of(0), hashes[i], name_of(i, text));
            }
            fcap_cache_remove(&cache, users[gone]);
            for (size_t i = 0; i < 4; i++) {
                assert_ptr_equal(fcap_cache_find(&cache, task_of(0), hashes[i], name_of(i, text)),
                                 i == gone ? NULL : users[i]);
            }
            fcap_cache_done(&cache);
        }
    }
}

/* What was used since the hand passed stays a round longer than what was not. */
static void test_second_chance(void **state)
{
    struct fcap_cache cache;
    struct fcap_user *used[100];
    char text[16];
    (void)state;
    fcap_cache_init(&cache, SIZE_MAX, WINDOWS);
    for (size_t i = 0; i < 200; i++) {
        struct fcap_user *user = fcap_cache_insert(
            &cache, task_of(0), fcap_cache_hash(0, name_of(i, text)), name_of(i, text));
        user->referenced = i < 100;
        if (i < 100) {
            used[i] = user;
        }
    }
    cache.bytes_max = 0;
    fcap_cache_evict(&cache, cache.slot_count + 100); /* One round: an eviction is a step too. */
    assert_int_equal(cache.count, 100);
    for (size_t i = 0; i < 100; i++) {
        assert_ptr_equal(fcap_cache_find(&cache, task_of(0), fcap_cache_hash(0, name_of(i, text)),
                                         name_of(i, text)),
                         used[i]);
        used[i]->referenced = false;
    }
    fcap_cache_evict(&cache, 10 * cache.slot_count);
    assert_int_equal(cache.count, 0);
    assert_int_equal(cache.bytes, cache.slot_count * sizeof *cache.slots);
    fcap_cache_done(&cache);
}

/* A budget is kept by what malloc takes, not by what was asked for. Sanitizers have a malloc of
 * their own. */
static void test_allocator_overhead(void **state)
{
    struct fcap_cache cache;
    char text[16];
    (void)state;
    fcap_cache_init(&cache, SIZE_MAX, WINDOWS);
    for (size_t i = 0; i < 2000; i++) {
        struct fcap_user *user =
            fcap_cache_insert(&cache, task_of(0), fcap_cache_hash(0, name_of(i * i * i, text)),
                              name_of(i * i * i, text));
        size_t taken = malloc_usable_size(user) + sizeof(size_t);
        for (uint32_t ad = 0; ad < i % 9; ad++) {
            (void)fcap_user_row_add(user, WINDOWS, ad);
        }
        if (user->rows != NULL) {
            taken += malloc_usable_size(user->rows) + sizeof(size_t);
        }
        assert_in_range(fcap_user_bytes(user, WINDOWS), taken - 16, taken);
    }
    for (size_t i = 0; i < cache.slot_count; i++) {
        if (cache.slots[i].user != NULL) {
            fcap_user_clear(cache.slots[i].user);
        }
    }
    fcap_cache_done(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_wrap_around),
        cmocka_unit_test(test_backward_shift),
        cmocka_unit_test(test_second_chance),
        cmocka_unit_test(test_allocator_overhead), /* the last: not with a sanitizer's malloc */
    };
    size_t count = sizeof tests / sizeof tests[0] - (TEST_MALLOC_IS_REPLACED ? 1 : 0);
    return _cmocka_run_group_tests("cache", tests, count, NULL, NULL);
}
