/* A partition's ads against a plain array, through years of new ads: found by number and by id,
 * with their texts; swept when their day has ended; and the table does not grow with the numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/ads.h"

#define DAY_MS 86400000ll

enum { NUMBERS = 60000, A_DAY = 200, DAYS = NUMBERS / A_DAY, KEPT_DAYS = 7, SWEPT = -1 };

static int32_t days[NUMBERS]; /* of each number; SWEPT: gone */
static size_t swept;

static struct fcap_bytes name_of(uint32_t number, char text[64])
{
    /* Short and long texts, some of them with an escape. */
    (void)snprintf(text, 64, number % 3 == 0 ? "ad-%u" : "a-much-longer-id-than-fits-\"%u\"",
                   number);
    return fcap_bytes_of(text);
}

static void note_swept(void *context, uint32_t number)
{
    (void)context;
    days[number] = SWEPT;
    swept++;
}

static void check(struct fcap_ads *ads, uint32_t number)
{
    char id[64];
    char wanted[80];
    struct fcap_ad *ad = fcap_ads_get(ads, number);
    assert_int_equal(ad != NULL, days[number] != SWEPT);
    assert_ptr_equal(fcap_ads_find(ads, name_of(number, id)), ad);
    if (ad == NULL) {
        return;
    }
    assert_int_equal(ad->number, number);
    assert_int_equal(ad->day, days[number]);
    assert_true(fcap_bytes_equal(fcap_ad_id(ad), fcap_bytes_of(id)));
    (void)snprintf(
        wanted, sizeof wanted,
        number % 3 == 0 ? "\"ad-%u\":" : "\"a-much-longer-id-than-fits-\\\"%u\\\"\":", number);
    assert_true(fcap_bytes_equal(fcap_ads_text(ads, number), fcap_bytes_of(wanted)));
}

/* `lasting`: one ad of the first day is used every day, so nothing below it can be given back. */
static size_t run(bool lasting, uint32_t first)
{
    struct fcap_ads ads;
    char id[64];
    size_t largest = 0;
    fcap_ads_init(&ads, first);
    for (int32_t day = 0; day < DAYS; day++) {
        for (uint32_t i = 0; i < A_DAY; i++) {
            uint32_t number = (uint32_t)day * A_DAY + i;
            days[number] = day;
            if (number >= first) {
                (void)fcap_ads_add(&ads, number, name_of(number, id), day);
            } else {
                days[number] = SWEPT;
            }
        }
        if (lasting && day * A_DAY > 10) {
            fcap_ads_use(&ads, fcap_ads_get(&ads, 10), day);
            days[10] = day;
        }
        fcap_ads_sweep(&ads, (day - KEPT_DAYS) * DAY_MS - 1, note_swept, NULL);
        largest = ads.bytes > largest ? ads.bytes : largest;
        if (day % 50 == 49) {
            for (uint32_t number = 0; number < (uint32_t)(day + 1) * A_DAY; number++) {
                check(&ads, number);
            }
        }
        assert_true(ads.count <= (KEPT_DAYS + 2) * A_DAY);
    }
    assert_null(fcap_ads_get(&ads, NUMBERS));
    assert_null(fcap_ads_get(&ads, UINT32_MAX));
    fcap_ads_done(&ads);
    return largest;
}

static void test_years(void **state)
{
    (void)state;
    swept = 0;
    size_t largest = run(false, 0);
    assert_true(swept > NUMBERS - (KEPT_DAYS + 2) * A_DAY);
    print_message("%d ads, %d alive at once: at most %zu bytes\n", NUMBERS, (KEPT_DAYS + 1) * A_DAY,
                  largest);
    assert_true(largest < (KEPT_DAYS + 2) * A_DAY * 250);
    assert_true(run(true, 0) > largest); /* This one keeps the room between. */
}

/* A table loaded from the store begins at its lowest number. */
static void test_first_number(void **state)
{
    (void)state;
    assert_true(run(false, 100) < (KEPT_DAYS + 2) * A_DAY * 250);
}

static void test_dirty(void **state)
{
    struct fcap_ads ads;
    (void)state;
    fcap_ads_init(&ads, 5);
    struct fcap_ad *ad = fcap_ads_add(&ads, 7, fcap_bytes_of("a"), 3);
    assert_int_equal(ads.dirty_count, 0);
    fcap_ads_use(&ads, ad, 3); /* no newer day: nothing to write */
    fcap_ads_use(&ads, ad, 2);
    assert_int_equal(ads.dirty_count, 0);
    fcap_ads_use(&ads, ad, 4);
    fcap_ads_use(&ads, ad, 5);
    assert_int_equal(ads.dirty_count, 1); /* once, however often it changes */
    assert_int_equal(ads.dirty[0], 7);
    assert_int_equal(ad->day, 5);
    fcap_ads_sweep(&ads, 6 * DAY_MS - 2, note_swept, NULL); /* its day has 1 ms left */
    assert_ptr_equal(fcap_ads_get(&ads, 7), ad);
    fcap_ads_sweep(&ads, 6 * DAY_MS - 1, note_swept, NULL);
    assert_null(fcap_ads_get(&ads, 7));
    assert_int_equal(ads.count, 0);
    fcap_ads_done(&ads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_years),
        cmocka_unit_test(test_first_number),
        cmocka_unit_test(test_dirty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
