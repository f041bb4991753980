/* The generator of impressions: the shares that were asked for, and nothing by accident. */
#include "lab/impressions.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOW_MS INT64_C(1764460800000)
#define DRAWS  200000

static const struct impressions_options usual = {
    .seed = 7,
    .users = 1000,
    .user_exponent = 1.0,
    .ads = 50,
    .ad_exponent = 0.8,
    .sessions = 64,
    .session_length = 6,
    .jitter_ms = 40,
    .late_permille = 50,
    .late_ms_max = 9000,
    .duplicate_permille = 30,
    .malformed_permille = 5,
    .value_bytes = 150,
};

static uint64_t number_of(const char *name)
{
    char *end = NULL;
    uint64_t number = strtoull(name + 1, &end, 10);
    assert_true(end != name + 1 && *end == '\0');
    return number;
}

static void assert_share(uint64_t count, double share, double tolerance)
{
    double got = (double)count / DRAWS;
    if (fabs(got - share) > tolerance) {
        fail_msg("a share of %f, wanted %f", got, share);
    }
}

static void test_shares_of_late_double_and_malformed_ones(void **unused)
{
    struct impressions *impressions = impressions_open(&usual);
    struct impression next;
    uint64_t kinds[4] = {0};
    (void)unused;
    for (int i = 0; i < DRAWS; i++) {
        impressions_next(impressions, NOW_MS, &next);
        kinds[next.kind]++;
        int64_t age_ms = NOW_MS - next.time_ms;
        assert_true(age_ms >= 0 && age_ms <= usual.jitter_ms + usual.late_ms_max);
        if (next.kind == IMPRESSION_GOOD) {
            assert_true(age_ms <= usual.jitter_ms);
        }
        assert_in_range(number_of(next.user), 1, usual.users);
        assert_in_range(number_of(next.ad), 1, usual.ads);
    }
    assert_share(kinds[IMPRESSION_DUPLICATE], 0.030, 0.002);
    assert_share(kinds[IMPRESSION_LATE], 0.050 * 0.97, 0.002);
    assert_share(kinds[IMPRESSION_MALFORMED], 0.005 * 0.97, 0.001);
    impressions_close(impressions);
}

/* Each rank against the formula; sessions must not change it. */
static void check_zipf(uint32_t sessions)
{
    struct impressions_options options = usual;
    options.sessions = sessions;
    options.session_length = 2;
    options.duplicate_permille = 0;
    struct impressions *impressions = impressions_open(&options);
    struct impression next;
    static uint64_t counts[1001];
    double sum = 0;
    memset(counts, 0, sizeof counts);
    for (int i = 0; i < DRAWS; i++) {
        impressions_next(impressions, NOW_MS, &next);
        counts[number_of(next.user)]++;
    }
    for (int rank = 1; rank <= 1000; rank++) {
        sum += 1.0 / rank;
    }
    uint64_t tail = 0;
    for (int rank = 1; rank <= 1000; rank++) {
        if (rank <= 10) {
            assert_share(counts[rank], 1.0 / rank / sum, 0.006);
        }
        tail += rank > 500 ? counts[rank] : 0;
    }
    assert_share(tail, log(2.0) / sum, 0.006);
    impressions_close(impressions);
}

static void test_users_follow_zipf(void **unused)
{
    (void)unused;
    check_zipf(0);
    check_zipf(64);
}

static void test_an_exponent_of_zero_prefers_nobody(void **unused)
{
    struct impressions_options options = usual;
    struct impression next;
    uint64_t counts[5] = {0};
    (void)unused;
    options.users = 4;
    options.user_exponent = 0;
    struct impressions *impressions = impressions_open(&options);
    for (int i = 0; i < DRAWS; i++) {
        impressions_next(impressions, NOW_MS, &next);
        counts[number_of(next.user)]++;
    }
    for (int i = 1; i <= 4; i++) {
        assert_share(counts[i], 0.25, 0.01);
    }
    impressions_close(impressions);
}

/* Within a session ads come again far more often than chance would have it. */
static void test_sessions_show_ads_again(void **unused)
{
    struct impressions_options options = usual;
    struct impression next;
    char user[16] = "";
    char ads[8][16] = {""};
    uint64_t again = 0;
    (void)unused;
    options.users = 100000;
    options.ads = 100000;
    options.ad_exponent = 0;
    options.sessions = 1;
    options.duplicate_permille = 0;
    struct impressions *impressions = impressions_open(&options);
    for (int i = 0; i < DRAWS; i++) {
        impressions_next(impressions, NOW_MS, &next);
        if (strcmp(user, next.user) != 0) {
            memcpy(user, next.user, sizeof user);
            memset(ads, 0, sizeof ads);
        }
        for (size_t k = 0; k < 8; k++) {
            again += strcmp(ads[k], next.ad) == 0;
        }
        memcpy(ads[i % 8], next.ad, sizeof next.ad);
    }
    assert_true(again > DRAWS / 4);
    impressions_close(impressions);
}

static void test_a_duplicate_repeats_a_recent_one_in_full(void **unused)
{
    static struct impression all[DRAWS];
    struct impressions *impressions = impressions_open(&usual);
    struct impression next;
    uint64_t good = 0;
    uint64_t duplicates = 0;
    (void)unused;
    for (int i = 0; i < DRAWS; i++) {
        impressions_next(impressions, NOW_MS + i, &next);
        if (next.kind == IMPRESSION_DUPLICATE) {
            uint64_t serial = number_of(next.id);
            duplicates++;
            assert_true(serial < good && serial + IMPRESSIONS_RECENT >= good);
            assert_string_equal(next.user, all[serial].user);
            assert_string_equal(next.ad, all[serial].ad);
            assert_true(next.time_ms == all[serial].time_ms);
        } else if (next.kind != IMPRESSION_MALFORMED) {
            assert_int_equal(number_of(next.id), good); /* Never used before. */
            all[good++] = next;
        }
    }
    assert_true(duplicates > 1000);
    impressions_close(impressions);
}

static void test_the_same_seed_gives_the_same_impressions(void **unused)
{
    struct impressions_options other = usual;
    (void)unused;
    other.seed++;
    struct impressions *left = impressions_open(&usual);
    struct impressions *right = impressions_open(&usual);
    struct impressions *third = impressions_open(&other);
    int different = 0;
    for (int i = 0; i < 2000; i++) {
        static char texts[3][IMPRESSIONS_VALUE_MAX];
        struct impression a = {0};
        struct impression b = {0};
        struct impression c = {0};
        impressions_next(left, NOW_MS + i, &a);
        impressions_next(right, NOW_MS + i, &b);
        impressions_next(third, NOW_MS + i, &c);
        (void)impressions_json(left, &a, texts[0]);
        (void)impressions_json(right, &b, texts[1]);
        (void)impressions_json(third, &c, texts[2]);
        assert_string_equal(texts[0], texts[1]);
        different += strcmp(texts[0], texts[2]) != 0;
    }
    assert_true(different > 1000);
    impressions_close(left);
    impressions_close(right);
    impressions_close(third);
}

static void test_the_json_says_what_was_drawn_in_the_size_that_was_asked_for(void **unused)
{
    struct impressions *impressions = impressions_open(&usual);
    static char text[IMPRESSIONS_VALUE_MAX];
    struct impression next = {IMPRESSION_GOOD, NOW_MS, "u17", "a4", "e9"};
    char user[16];
    char ad[16];
    char id[24];
    int64_t time_ms = 0;
    (void)unused;
    size_t size = impressions_json(impressions, &next, text);
    assert_int_equal(size, usual.value_bytes);
    assert_int_equal(size, strlen(text));
    assert_int_equal(sscanf(text,
                            "{\"user_id\":\"%15[^\"]\",\"ad_id\":\"%15[^\"]\",\"ts\":%" SCNd64
                            ",\"id\":\"%23[^\"]\",\"page\":\"/p",
                            user, ad, &time_ms, id),
                     4);
    assert_string_equal(user, "u17");
    assert_string_equal(ad, "a4");
    assert_string_equal(id, "e9");
    assert_true(time_ms == NOW_MS);
    assert_string_equal(text + size - 2, "\"}");
    impressions_close(impressions);

    struct impressions_options small = usual;
    small.value_bytes = 0;
    impressions = impressions_open(&small);
    (void)impressions_json(impressions, &next, text);
    assert_string_equal(
        text, "{\"user_id\":\"u17\",\"ad_id\":\"a4\",\"ts\":1764460800000,\"id\":\"e9\"}");
    impressions_close(impressions);
}

static void test_the_partition_is_the_users_and_all_are_used(void **unused)
{
    uint32_t counts[12] = {0};
    (void)unused;
    for (uint32_t i = 0; i < 12000; i++) {
        char user[16];
        (void)snprintf(user, sizeof user, "u%" PRIu32, i);
        int32_t partition = impressions_partition(user, 12);
        assert_in_range(partition, 0, 11);
        assert_int_equal(partition, impressions_partition(user, 12));
        counts[partition]++;
    }
    for (size_t i = 0; i < 12; i++) {
        assert_in_range(counts[i], 800, 1200);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_of_late_double_and_malformed_ones),
        cmocka_unit_test(test_users_follow_zipf),
        cmocka_unit_test(test_an_exponent_of_zero_prefers_nobody),
        cmocka_unit_test(test_sessions_show_ads_again),
        cmocka_unit_test(test_a_duplicate_repeats_a_recent_one_in_full),
        cmocka_unit_test(test_the_same_seed_gives_the_same_impressions),
        cmocka_unit_test(test_the_json_says_what_was_drawn_in_the_size_that_was_asked_for),
        cmocka_unit_test(test_the_partition_is_the_users_and_all_are_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
