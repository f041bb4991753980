/* Finding kept files costs the same, however many there are. */
#include "kept.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILES 20000

static struct fcap_checkpoint_file *make(size_t count, const char *where)
{
    struct fcap_checkpoint_file *files = calloc(count, sizeof files[0]);
    assert_non_null(files);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(files[i].name, sizeof files[i].name, "%06zu.sst", i);
        (void)snprintf(files[i].object, sizeof files[i].object, "%s/%zu", where, i);
        files[i].size = 64 + i % 7;
    }
    return files;
}

/* As many as a state of terabytes has, in two generations: each look-up looks at a few, and each
 * file that is not there, too. Compared one by one it would be 400 million. */
static void test_what_a_look_up_costs(void **unused)
{
    (void)unused;
    struct fcap_checkpoint_file *newer = make(FILES, "newer");
    struct fcap_checkpoint_file *older = make(FILES, "older");
    struct kept_files kept;
    kept_files_init(&kept, (size_t)2 * FILES);
    for (size_t i = 0; i < FILES; i++) {
        kept_files_add(&kept, &newer[i]);
    }
    for (size_t i = 0; i < FILES; i++) {
        kept_files_add(&kept, &older[i]);
    }
    assert_int_equal(kept.count, FILES);
    assert_in_range(kept.looked_at, (size_t)2 * FILES, (size_t)4 * FILES);
    kept.looked_at = 0;
    for (size_t i = 0; i < FILES; i++) {
        assert_ptr_equal(kept_files_find(&kept, newer[i].name, newer[i].size), &newer[i]);
        assert_null(kept_files_find(&kept, newer[i].name, newer[i].size + 7));
    }
    assert_in_range(kept.looked_at, (size_t)2 * FILES, (size_t)4 * FILES);
    kept_files_done(&kept);
    free(newer);
    free(older);
}

static void test_none_is_found_where_there_is_none(void **unused)
{
    (void)unused;
    struct kept_files kept;
    kept_files_init(&kept, 0);
    assert_null(kept_files_find(&kept, "000001.sst", 1));
    kept_files_done(&kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_look_up_costs),
        cmocka_unit_test(test_none_is_found_where_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
