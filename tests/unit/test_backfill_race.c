/* Backfill beside daemons that own its partitions, or come to own them, at any moment: 1,000 worlds
 * of chance (race_world.h), in time that the test owns. What must hold at each step: where a gate
 * is open Redis holds what its owner has put there and nothing else; backfill overwrites nothing;
 * what it writes is the definition's. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/full_size.h"
#include "unit/race_world.h"

#define START_MS 1700000000000ll

enum { SEEDS = 1000, FULL_SEEDS = 20000, RUN_MS = 100000 };

/* --- what must hold --- */

static void check_owner(int partition)
{
    const struct race_owner *owner = &race.owners[partition];
    if (!race_is_live(owner)) {
        return;
    }
    for (int user = 0; user < RACE_USERS; user++) {
        for (int window = 0; window < RACE_WINDOWS; window++) {
            const struct race_shown *shown = &owner->shown[user][window];
            bool wanted = shown->is_there && shown->expire_at_ms >= race.now_ms;
            struct fcap_bytes value;
            char key[64];
            race_key(partition, user, window, key);
            bool found = race_get(key, &value);
            race.score.revived += found && !wanted;
            race.score.lost += !found && wanted;
            race.score.overwritten +=
                found && wanted && !fcap_bytes_equal(value, fcap_bytes_of(shown->text));
        }
    }
}

/* Before a transaction. */
static void note_transaction(void *context, int32_t partition, const struct fcap_seed_key *keys,
                             size_t count)
{
    (void)context;
    race.score.beside_open += race_is_live(&race.owners[partition]);
    race.touched_count = count;
    for (size_t i = 0; i < count; i++) {
        struct fcap_bytes value;
        (void)snprintf(race.touched[i].key, sizeof race.touched[i].key, "%.*s",
                       (int)keys[i].key.size, (const char *)keys[i].key.data);
        race.touched[i].existed = race_get(race.touched[i].key, &value);
        race.touched[i].hash = race.touched[i].existed ? fcap_hash64(value, 0) : 0;
    }
}

/* After it. */
static void check_transaction(void)
{
    struct fcap_backfill_report report;
    int64_t next[RACE_PARTITIONS];
    fcap_backfill_report(race.backfill, &report);
    for (int i = 0; i < RACE_PARTITIONS; i++) {
        next[i] = (int64_t)race.read_to[i];
    }
    for (size_t i = 0; i < race.touched_count; i++) {
        struct fcap_bytes value;
        bool found = race_get(race.touched[i].key, &value);
        if (race.touched[i].existed) {
            race.score.kept++;
            race.score.overwritten += !found || fcap_hash64(value, 0) != race.touched[i].hash;
            continue;
        }
        char user[16] = {0};
        (void)sscanf(race.touched[i].key, "fc:{%15[^}]}", user);
        bool is_first = strstr(race.touched[i].key, race_windows[0].name) != NULL;
        struct oracle_expectation expectation = {
            .user = user,
            .window_ms = race_windows[is_first ? 0 : 1].length_ms,
            .at_min_ms = report.at_ms,
            .at_max_ms = report.at_ms,
            .next_min = next,
            .next_count = RACE_PARTITIONS,
            .strict_as_of = true,
        };
        if (found) {
            race.score.written++;
            race.score.false_values += !oracle_check_value(
                race.oracle, &expectation, (const char *)value.data, value.size, &race.tally);
        }
    }
    race.touched_count = 0;
}

/* --- backfill --- */

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder;
    static char user[16];
    static char ad[16];
    const struct race_entry *entry = &race.logs[record->partition][record->offset];
    (void)snprintf(user, sizeof user, "p%du%d", (int)record->partition, entry->user);
    (void)snprintf(ad, sizeof ad, "ad%d", entry->ad);
    *ret_event = (struct fcap_event){.is_tombstone = entry->is_tombstone,
                                     .user = fcap_bytes_of(user),
                                     .ad = fcap_bytes_of(ad),
                                     .time_ms = entry->time_ms};
    return FCAP_REJECT_NONE;
}

static struct fcap_moment moment(void)
{
    return (struct fcap_moment){race.now_ms, race.now_ms + race.ahead_ms};
}

static void open_backfill(void)
{
    static struct fcap_decoder decoder = {decode};
    struct fcap_settings settings;
    struct fcap_error error;
    fcap_settings_default(&settings);
    settings.profile = "race";
    settings.key_pattern = "fc:{%u}:%w";
    settings.window_count = RACE_WINDOWS;
    memcpy(settings.windows, race_windows, sizeof race_windows);
    settings.session_timeout_ms = race.forgets_session ? 0 : RACE_SESSION_MS;
    struct fcap_backfill_ports ports = {&decoder, &race.seed.port, &race.spill.port};
    assert_int_equal(fcap_backfill_open(&settings, &ports, &race.backfill, &error), FCAP_OK);
}

/* The records that it is going to read, for the definition. */
static void fill_oracle(void)
{
    for (int partition = 0; partition < RACE_PARTITIONS; partition++) {
        race.read_to[partition] = race.ends[partition];
        for (size_t i = 0; i < race.ends[partition]; i++) {
            const struct race_entry *entry = &race.logs[partition][i];
            char user[16];
            char ad[16];
            (void)snprintf(user, sizeof user, "p%du%d", partition, entry->user);
            (void)snprintf(ad, sizeof ad, "ad%d", entry->ad);
            struct oracle_event event = {.partition = partition,
                                         .offset = (int64_t)i,
                                         .user = user,
                                         .ad = ad,
                                         .time_ms = entry->time_ms};
            if (entry->is_tombstone) {
                (void)oracle_tombstone(race.oracle, partition, (int64_t)i, user);
            } else {
                (void)oracle_add(race.oracle, &event);
            }
        }
    }
}

static enum fcap_status read_some(void)
{
    bool is_read = race.now_ms >= race.read_until_ms;
    for (int32_t partition = 0; partition < RACE_PARTITIONS; partition++) {
        size_t left = race.read_to[partition] - race.read_next[partition];
        size_t count = is_read ? left : race_draw((uint32_t)left / 4 + 1);
        for (size_t i = 0; i < count; i++) {
            struct fcap_record record = {.partition = partition,
                                         .offset = (int64_t)race.read_next[partition]++,
                                         .timestamp_ms = race.now_ms,
                                         .key = fcap_bytes_of("k"),
                                         .value = fcap_bytes_of("v")};
            assert_int_equal(fcap_backfill_record(race.backfill, &record, moment()), FCAP_OK);
        }
    }
    if (!is_read) {
        return fcap_backfill_tick(race.backfill, moment());
    }
    race.is_reading = false;
    return fcap_backfill_read_done(race.backfill, NULL);
}

static void step_backfill(int64_t ahead_ms)
{
    if (race.is_over || race.now_ms < race.begin_ms) {
        return;
    }
    enum fcap_status status;
    bool is_done = false;
    if (race.backfill == NULL) {
        open_backfill();
    }
    if (race.read_until_ms == 0) {
        /* As many files, and so as many transactions, as for a long history. */
        status = fcap_backfill_begin(race.backfill, RACE_PARTITIONS, 30000000, moment());
        if (status == FCAP_OK) {
            fill_oracle();
            race.is_reading = true;
            race.read_until_ms = race.now_ms + race_draw(race_draw(2) == 0 ? 500 : 30000) + 1;
        }
    } else if (race.is_reading) {
        status = read_some();
    } else {
        status = fcap_backfill_step(race.backfill, moment(), &is_done);
        race.ahead_ms = ahead_ms;
        check_transaction();
    }
    race.score.foreign += status == FCAP_FOREIGN;
    race.score.finished += is_done;
    race.is_over = is_done || status == FCAP_FOREIGN;
    if (fcap_status_class(status) == FCAP_CLASS_FATAL && status != FCAP_FOREIGN) {
        fail_msg("%s", fcap_backfill_error(race.backfill));
    }
    if (!race.is_over && race_draw(400) == 0) {
        race.is_over = true; /* kill -9 */
        race.score.killed++;
    }
    if (race.is_over) {
        struct fcap_backfill_report report;
        fcap_backfill_report(race.backfill, &report);
        race.score.fenced += (size_t)report.partitions_fenced;
        race.score.open += (size_t)report.partitions_open;
    }
}

/* --- worlds --- */

/* What a careless implementation would leave out. */
struct plant {
    const char *name;
    bool ignores_epoch;
    bool is_blind;
    bool claims_nothing;
    bool overwrites;
    bool forgets_session; /* waits as if no owner were ever stopped */
    bool opens_late;      /* of the daemons: an epoch of long ago opens a gate */
    int64_t ahead_ms;     /* its waits are over at once */
    bool must_revive;     /* the fault shows in this way */
    bool must_overwrite;
};

static void init_world(uint64_t seed, const struct plant *plant)
{
    struct race_score score = race.score;
    memset(&race, 0, sizeof race);
    race.score = score;
    race.clock = (struct fcap_clock){race_now_ms, race_now_ms};
    race.now_ms = START_MS;
    race.random = seed;
    fcap_fake_redis_init(&race.redis, &race.clock);
    fake_seed_init(&race.seed, &race.redis, &race.clock, "race");
    fake_seed_init(&race.daemon, &race.redis, &race.clock, "race");
    fake_spill_init(&race.spill);
    race.oracle = oracle_open();
    race.seed.transaction = note_transaction;
    race.seed.random = seed;
    race.seed.unavailable = seed % 3 == 0 ? 60 : 0;
    race.seed.ignores_epoch = plant->ignores_epoch;
    race.seed.is_blind = plant->is_blind;
    race.seed.claims_nothing = plant->claims_nothing;
    race.seed.overwrites = plant->overwrites;
    race.forgets_session = plant->forgets_session;
    race.opens_late = plant->opens_late;
    race.begin_ms = START_MS + race_draw(25000);
    for (int i = 0; i < RACE_PARTITIONS; i++) {
        for (uint32_t count = 5 + race_draw(40); count > 0; count--) {
            race_produce(i);
        }
        if (race_draw(3) == 0) {
            race_load(i);
        }
    }
}

static void done_world(void)
{
    fcap_backfill_close(race.backfill);
    fake_seed_done(&race.seed);
    fake_seed_done(&race.daemon);
    fake_spill_done(&race.spill);
    fcap_fake_redis_done(&race.redis);
    oracle_close(race.oracle);
}

static size_t wrong_of(const struct race_score *score)
{
    return score->beside_open + score->overwritten + score->revived + score->lost +
           score->false_values;
}

static void check_all(void)
{
    for (int i = 0; i < RACE_PARTITIONS; i++) {
        check_owner(i);
    }
}

/* All owners come back, and everything is as they say. */
static void settle(void)
{
    race.is_over = true;
    for (int i = 0; i < RACE_PARTITIONS; i++) {
        if (race.owners[i].state == RACE_DOWN || race.owners[i].is_stopped) {
            race_load(i);
        }
    }
    for (int step = 0; step < 100; step++) {
        race.now_ms += 100;
        for (int i = 0; i < RACE_PARTITIONS; i++) {
            struct race_owner *owner = &race.owners[i];
            if (owner->state == RACE_DOWN || owner->is_stopped) {
                race_load(i); /* It was killed once more. */
            }
            race_step_owner(i);
        }
        check_all();
    }
}

static bool any_stopped(void)
{
    for (int i = 0; i < RACE_PARTITIONS; i++) {
        if (race.owners[i].state == RACE_OPEN && race.owners[i].is_stopped) {
            return true;
        }
    }
    return false;
}

static void run_world(uint64_t seed, const struct plant *plant)
{
    size_t wrong = wrong_of(&race.score);
    init_world(seed, plant);
    while (race.now_ms < START_MS + RUN_MS) {
        race.now_ms += 20 + race_draw(500);
        if (race_draw(3) == 0) {
            race_produce((int)race_draw(RACE_PARTITIONS));
        }
        if (race_draw(500) == 0 && !any_stopped()) {
            fcap_fake_redis_flush(&race.redis);
            memset(race.seed.shown_until_ms, 0, sizeof race.seed.shown_until_ms);
            for (int i = 0; i < RACE_PARTITIONS; i++) {
                race.owners[i].is_unseen = race.owners[i].state == RACE_OPEN;
            }
        }
        uint32_t first = race_draw(2);
        for (uint32_t i = 0; i < 2; i++) {
            if ((first + i) % 2 == 0) {
                step_backfill(plant->ahead_ms);
            } else {
                for (int partition = 0; partition < RACE_PARTITIONS; partition++) {
                    race_step_owner(partition);
                }
            }
            check_all();
        }
    }
    settle();
    done_world();
    race.score.worlds_wrong += wrong_of(&race.score) != wrong;
}

static bool is_found_out(const struct plant *plant)
{
    return race.score.worlds_wrong > 0 && (!plant->must_revive || race.score.revived > 0) &&
           (!plant->must_overwrite || race.score.overwritten > 0);
}

/* With a plant: until it is found out. */
static struct race_score run_worlds(const struct plant *plant, uint64_t seeds)
{
    race.score = (struct race_score){0};
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        size_t before = race.score.worlds_wrong;
        run_world(seed, plant);
        if (plant->name == NULL && race.score.worlds_wrong > before) {
            fail_msg("seed %llu: %zu beside an open gate, %zu overwritten, %zu revived, %zu lost, "
                     "%zu false\n%s",
                     (unsigned long long)seed, race.score.beside_open, race.score.overwritten,
                     race.score.revived, race.score.lost, race.score.false_values, race.tally.text);
        }
        race.score.worlds = seed;
        if (plant->name != NULL && is_found_out(plant)) {
            break;
        }
    }
    return race.score;
}

static void test_owners_are_not_disturbed(void **state)
{
    (void)state;
    static const struct plant nothing = {0};
    size_t seeds = is_full_size() ? FULL_SEEDS : SEEDS;
    struct race_score score = run_worlds(&nothing, seeds);
    printf("result: %zu worlds; keys written %zu, kept %zu; partitions fenced %zu, open %zu; "
           "tombstones behind what was read %zu; ends: finished %zu, killed %zu, emptied %zu\n",
           seeds, score.written, score.kept, score.fenced, score.open, score.erased, score.finished,
           score.killed, score.foreign);
    assert_int_equal(score.worlds_wrong, 0);
    /* Each of these was there to go wrong. */
    assert_true(score.written > 1000 && score.kept > 100 && score.fenced > 50);
    assert_true(score.open > 100 && score.erased > 1000);
    assert_true(score.finished > seeds / 2 && score.killed > 10 && score.foreign > 10);
}

/* The same worlds with a part of the fence missing: each one must be found out. */
static void test_each_part_of_the_fence_is_needed(void **state)
{
    (void)state;
    static const struct plant plants[] = {
        {.name = "the epoch is not compared", .ignores_epoch = true, .must_revive = true},
        {.name = "owners are not looked for", .is_blind = true, .must_revive = true},
        {.name = "the epoch is not incremented", .claims_nothing = true, .must_revive = true},
        {.name = "nothing is waited for", .ahead_ms = 3600000, .must_revive = true},
        {.name = "a stopped owner is not waited for", .forgets_session = true},
        {.name = "an old epoch opens a gate", .opens_late = true, .must_revive = true},
        {.name = "SET without NX", .overwrites = true, .must_overwrite = true},
        {.name = "no fence and no NX",
         .ignores_epoch = true,
         .is_blind = true,
         .overwrites = true,
         .must_revive = true,
         .must_overwrite = true},
    };
    for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++) {
        struct race_score score = run_worlds(&plants[i], SEEDS);
        printf("result: %s: found out in world %" PRIu64 ": %zu revived, %zu overwritten\n",
               plants[i].name, score.worlds, score.revived, score.overwritten);
        assert_true(is_found_out(&plants[i]));
    }
}

/* The epoch begins at 1 again after FLUSHALL: as ours was. */
static void test_an_epoch_of_another_life(void **state)
{
    (void)state;
    static const struct plant nothing = {0};
    init_world(1, &nothing);
    race.seed.unavailable = 0;
    race.begin_ms = 0;
    step_backfill(0);
    race.read_until_ms = race.now_ms;
    step_backfill(0);
    race.now_ms += 60000;
    fcap_fake_redis_flush(&race.redis);
    for (int i = 0; i < RACE_PARTITIONS; i++) {
        assert_int_equal(fake_seed_increment(&race.daemon, i), 1);
    }
    bool is_done;
    enum fcap_status status = FCAP_OK;
    for (int i = 0; i < 100 && status == FCAP_OK; i++) {
        status = fcap_backfill_step(race.backfill, moment(), &is_done);
        race.now_ms += 100;
    }
    assert_int_equal(status, FCAP_FOREIGN);
    assert_int_equal(race.seed.transactions, 0);
    done_world();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners_are_not_disturbed),
        cmocka_unit_test(test_each_part_of_the_fence_is_needed),
        cmocka_unit_test(test_an_epoch_of_another_life),
    };
    return cmocka_run_group_tests_name("backfill_race", tests, NULL, NULL);
}
