/* Backfill beside daemons that own its partitions, or come to own them, at any moment: 1,000 worlds
 * of chance, in time that the test owns.
 *
 * The daemons are a model of what `run` does to Redis: a gate opens at most a second after its INCR
 * was answered; fc:meta names it within 2.2 s and for 10 s; an epoch that is not the next one after
 * the stored one, or another Redis, makes it project everything; a process that was stopped goes on
 * for up to a session timeout, and asks anew after that; woken, and after Redis was emptied, it
 * shows itself before it is stopped. Values are computed by brute force. What must hold at each
 * step: where a gate is open Redis holds what its owner has put there and nothing else; backfill
 * overwrites nothing; what it writes is the definition's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcap/backfill.h"
#include "lab/oracle.h"
#include "lab/oracle_check.h"
#include "lib/fake_seed.h"
#include "lib/fake_spill.h"
#include "lib/random_log.h"

#define START_MS 1700000000000ll

enum {
    SEEDS = 1000,
    FULL_SEEDS = 20000,
    PARTITIONS = 3,
    USERS = 4, /* of each partition */
    ADS = 3,
    WINDOWS = 2,
    RECORDS_MAX = 800,
    SESSION_MS = 15000,
    META_MS = 10000,
    LATEST_META_MS = 2200,
    RUN_MS = 100000,
};

static const struct fcap_window windows[WINDOWS] = {{"w1", 20000}, {"w2", 120000}};

struct shown {
    bool is_there;
    int64_t expire_at_ms;
    char text[64];
};

enum state { DOWN, LOADING, ASKED, OPEN };

/* The owner of one partition. */
struct owner {
    enum state state;
    bool is_stopped;
    bool is_unseen; /* fc:meta has not named it since it woke, or since Redis was emptied */
    int64_t stopped_ms;
    int64_t wake_ms;
    int64_t asked_ms;
    int64_t open_ms;
    int64_t meta_ms; /* next time that it publishes */
    size_t next;     /* records applied */
    size_t target;   /* of loading */
    uint64_t epoch;
    bool touched[USERS]; /* while the gate is closed */
    struct shown shown[USERS][WINDOWS];
    uint64_t projected; /* sentinel of the Redis that holds everything; 0: none */
    int64_t look_ms;    /* when it looks at the sentinel again */
    /* Committed. */
    size_t kept_next;
    uint64_t kept_epoch;
    uint64_t kept_projected;
    struct shown kept_shown[USERS][WINDOWS];
};

struct entry {
    int64_t time_ms;
    int user;
    int ad;
    bool is_tombstone;
};

/* What may be wrong, and what was seen to happen. */
struct score {
    size_t worlds_wrong;
    size_t beside_open; /* transactions of a partition whose gate is open */
    size_t overwritten; /* values of a living owner, or any that existed */
    size_t revived;     /* keys that their owner has erased or never had */
    size_t lost;        /* keys of an owner that are gone */
    size_t false_values;
    size_t written;
    size_t kept;
    size_t finished;
    size_t killed;
    size_t foreign;
    size_t fenced;
    size_t open;
    size_t erased; /* tombstones applied by an owner after backfill had read the log */
};

static struct {
    struct fcap_clock clock;
    int64_t now_ms;
    uint64_t random;
    struct fcap_fake_redis redis;
    struct fake_seed seed;
    struct fake_seed daemon; /* the client of all owners */
    struct fake_spill spill;
    struct entry logs[PARTITIONS][RECORDS_MAX];
    size_t ends[PARTITIONS];
    struct owner owners[PARTITIONS];
    struct fcap_backfill *backfill;
    bool is_reading;
    size_t read_to[PARTITIONS];
    size_t read_next[PARTITIONS];
    int64_t begin_ms;
    int64_t read_until_ms;
    int64_t ahead_ms; /* planted: how far its monotonic clock is ahead after the begin */
    bool forgets_session;
    bool opens_late;
    bool is_over;
    struct oracle *oracle;
    struct oracle_tally tally;
    struct score score;
    struct {
        char key[64];
        bool existed;
        uint64_t hash; /* of what was there */
    } touched[FCAP_BACKFILL_KEYS_MAX + FCAP_WINDOWS_MAX];
    size_t touched_count;
} it;

static int64_t now_ms(struct fcap_clock *clock)
{
    (void)clock;
    return it.now_ms;
}

static uint32_t draw(uint32_t bound)
{
    return random_below(&it.random, bound);
}

static bool get(const char *key, struct fcap_bytes *ret_value)
{
    int64_t expire_at_ms;
    return fcap_fake_redis_get(&it.redis, fcap_bytes_of(key), ret_value, &expire_at_ms);
}

static void key_of(int partition, int user, int window, char key[64])
{
    (void)snprintf(key, 64, "fc:{p%du%d}:%s", partition, user, windows[window].name);
}

/* --- the log --- */

static void produce(int partition)
{
    if (it.ends[partition] == RECORDS_MAX) {
        return;
    }
    struct entry *entry = &it.logs[partition][it.ends[partition]++];
    *entry = (struct entry){.time_ms = it.now_ms - draw(draw(4) == 0 ? 150000 : 3000),
                            .user = (int)draw(USERS),
                            .ad = (int)draw(ADS),
                            .is_tombstone = draw(5) == 0};
}

/* The definition, for the owners: counts as text, and the newest event; false: none. */
static bool counts_of(int partition, int user, int window, size_t next, char text[64],
                      int64_t *ret_newest_ms)
{
    unsigned counts[ADS] = {0};
    bool any = false;
    *ret_newest_ms = 0;
    for (size_t i = 0; i < next; i++) {
        const struct entry *entry = &it.logs[partition][i];
        if (entry->user != user) {
            continue;
        }
        if (entry->is_tombstone) {
            memset(counts, 0, sizeof counts);
            any = false;
            *ret_newest_ms = 0;
        } else if (entry->time_ms > it.now_ms - windows[window].length_ms) {
            counts[entry->ad]++;
            any = true;
            *ret_newest_ms = entry->time_ms > *ret_newest_ms ? entry->time_ms : *ret_newest_ms;
        }
    }
    (void)snprintf(text, 64, "owner %u %u %u", counts[0], counts[1], counts[2]);
    return any;
}

/* --- owners --- */

/* This Redis holds all that it has sent. Emptied, it has no sentinel for a moment. */
static bool holds_all(const struct owner *owner)
{
    return it.redis.sentinel != 0 && owner->projected == it.redis.sentinel;
}

static void push_user(int partition, int user, bool force)
{
    struct owner *owner = &it.owners[partition];
    for (int window = 0; window < WINDOWS; window++) {
        struct shown *shown = &owner->shown[user][window];
        char text[64];
        char key[64];
        int64_t newest_ms;
        bool any = counts_of(partition, user, window, owner->next, text, &newest_ms);
        bool is_there = shown->is_there && shown->expire_at_ms >= it.now_ms;
        key_of(partition, user, window, key);
        struct fcap_push push = {.kind = FCAP_PUSH_UNLINK, .key = fcap_bytes_of(key)};
        if (any && (force || !is_there || strcmp(text, shown->text) != 0)) {
            *shown = (struct shown){true, newest_ms + windows[window].length_ms - 1, {0}};
            memcpy(shown->text, text, sizeof text);
            push.kind = FCAP_PUSH_SET;
            push.value = fcap_bytes_of(shown->text);
            push.expire_at_ms = shown->expire_at_ms;
            (void)fake_seed_do(&it.daemon, &push);
        } else if (!any && (force || is_there)) {
            (void)fake_seed_do(&it.daemon, &push);
            shown->is_there = false;
        }
    }
}

static void commit(struct owner *owner)
{
    owner->kept_next = owner->next;
    owner->kept_epoch = owner->epoch;
    owner->kept_projected = owner->projected;
    memcpy(owner->kept_shown, owner->shown, sizeof owner->shown);
}

static void load(int partition)
{
    struct owner *owner = &it.owners[partition];
    owner->state = LOADING;
    owner->is_stopped = false;
    owner->is_unseen = false;
    owner->next = owner->kept_next;
    owner->projected = owner->kept_projected;
    owner->target = it.ends[partition];
    memcpy(owner->shown, owner->kept_shown, sizeof owner->shown);
    memset(owner->touched, 0, sizeof owner->touched);
}

static void apply(int partition, size_t end)
{
    struct owner *owner = &it.owners[partition];
    while (owner->next < end) {
        const struct entry *entry = &it.logs[partition][owner->next++];
        owner->touched[entry->user] = true;
        it.score.erased += entry->is_tombstone && it.backfill != NULL && !it.is_over &&
                           owner->next > it.read_to[partition];
    }
}

static void open_gate(int partition)
{
    struct owner *owner = &it.owners[partition];
    bool all = owner->epoch != owner->kept_epoch + 1 || !holds_all(owner);
    owner->state = OPEN;
    for (int user = 0; user < USERS; user++) {
        push_user(partition, user, all || owner->touched[user]);
    }
    owner->projected = it.redis.sentinel;
    owner->look_ms = it.now_ms + draw(2000);
    owner->meta_ms = it.now_ms + draw(LATEST_META_MS);
}

static void step_open(int partition)
{
    struct owner *owner = &it.owners[partition];
    if (it.now_ms >= owner->look_ms) {
        owner->look_ms = it.now_ms + 2000;
        if (!holds_all(owner)) {
            for (int user = 0; user < USERS; user++) {
                push_user(partition, user, true);
            }
            owner->projected = it.redis.sentinel;
        }
    }
    memset(owner->touched, 0, sizeof owner->touched);
    apply(partition, it.ends[partition]);
    for (int user = 0; user < USERS; user++) {
        push_user(partition, user, owner->touched[user]);
    }
    if (it.now_ms >= owner->meta_ms) {
        it.seed.shown_until_ms[partition] = it.now_ms + META_MS;
        owner->is_unseen = false;
        owner->meta_ms = it.now_ms + 1800 + draw(400);
    }
    if (draw(6) == 0) {
        commit(owner);
    }
}

static void ask(int partition)
{
    struct owner *owner = &it.owners[partition];
    owner->epoch = fake_seed_increment(&it.daemon, partition);
    owner->asked_ms = it.now_ms;
    owner->open_ms = it.now_ms + draw(it.opens_late ? 40000 : FCAP_BACKFILL_OPENING_MS);
    owner->state = ASKED;
}

static void wake(int partition)
{
    struct owner *owner = &it.owners[partition];
    owner->is_stopped = false;
    if (it.now_ms - owner->stopped_ms >= SESSION_MS) {
        load(partition); /* Its assignment is lost. */
        return;
    }
    owner->is_unseen = true;
    owner->meta_ms = it.now_ms + draw(LATEST_META_MS);
}

static void step_owner(int partition)
{
    struct owner *owner = &it.owners[partition];
    if (owner->is_stopped) {
        if (it.now_ms < owner->wake_ms) {
            return;
        }
        wake(partition);
    }
    switch (owner->state) {
    case DOWN:
        if (draw(150) == 0) {
            load(partition);
        }
        return;
    case LOADING:
        if (owner->next < owner->target) {
            apply(partition, owner->next + 1 + draw((uint32_t)(owner->target - owner->next)));
        } else {
            ask(partition);
        }
        break;
    case ASKED:
        apply(partition, it.ends[partition]);
        if (it.now_ms - owner->asked_ms > FCAP_BACKFILL_OPENING_MS && !it.opens_late) {
            ask(partition); /* An epoch of long ago opens no gate. */
        } else if (it.now_ms >= owner->open_ms) {
            open_gate(partition);
        }
        break;
    case OPEN:
        step_open(partition);
        break;
    }
    if (draw(80) == 0) {
        owner->state = DOWN; /* kill -9 */
    } else if (draw(60) == 0 && !owner->is_unseen) {
        owner->is_stopped = true;
        owner->stopped_ms = it.now_ms;
        owner->wake_ms = it.now_ms + draw(2 * SESSION_MS);
    }
}

/* It may go on sending without asking anybody, and this Redis holds what it has sent: one that was
 * emptied meanwhile gets everything back within 2 s, whatever else was put there. */
static bool is_live(const struct owner *owner)
{
    return owner->state == OPEN && holds_all(owner) &&
           !(owner->is_stopped && it.now_ms - owner->stopped_ms >= SESSION_MS);
}

/* --- what must hold --- */

static void check_owner(int partition)
{
    const struct owner *owner = &it.owners[partition];
    if (!is_live(owner)) {
        return;
    }
    for (int user = 0; user < USERS; user++) {
        for (int window = 0; window < WINDOWS; window++) {
            const struct shown *shown = &owner->shown[user][window];
            bool wanted = shown->is_there && shown->expire_at_ms >= it.now_ms;
            struct fcap_bytes value;
            char key[64];
            key_of(partition, user, window, key);
            bool found = get(key, &value);
            it.score.revived += found && !wanted;
            it.score.lost += !found && wanted;
            it.score.overwritten +=
                found && wanted && !fcap_bytes_equal(value, fcap_bytes_of(shown->text));
        }
    }
}

/* Before a transaction. */
static void note_transaction(void *context, int32_t partition, const struct fcap_seed_key *keys,
                             size_t count)
{
    (void)context;
    it.score.beside_open += is_live(&it.owners[partition]);
    it.touched_count = count;
    for (size_t i = 0; i < count; i++) {
        struct fcap_bytes value;
        (void)snprintf(it.touched[i].key, sizeof it.touched[i].key, "%.*s", (int)keys[i].key.size,
                       (const char *)keys[i].key.data);
        it.touched[i].existed = get(it.touched[i].key, &value);
        it.touched[i].hash = it.touched[i].existed ? fcap_hash64(value, 0) : 0;
    }
}

/* After it. */
static void check_transaction(void)
{
    struct fcap_backfill_report report;
    int64_t next[PARTITIONS];
    fcap_backfill_report(it.backfill, &report);
    for (int i = 0; i < PARTITIONS; i++) {
        next[i] = (int64_t)it.read_to[i];
    }
    for (size_t i = 0; i < it.touched_count; i++) {
        struct fcap_bytes value;
        bool found = get(it.touched[i].key, &value);
        if (it.touched[i].existed) {
            it.score.kept++;
            it.score.overwritten += !found || fcap_hash64(value, 0) != it.touched[i].hash;
            continue;
        }
        char user[16] = {0};
        (void)sscanf(it.touched[i].key, "fc:{%15[^}]}", user);
        bool is_first = strstr(it.touched[i].key, windows[0].name) != NULL;
        struct oracle_expectation expectation = {
            .user = user,
            .window_ms = windows[is_first ? 0 : 1].length_ms,
            .at_min_ms = report.at_ms,
            .at_max_ms = report.at_ms,
            .next_min = next,
            .next_count = PARTITIONS,
            .strict_as_of = true,
        };
        if (found) {
            it.score.written++;
            it.score.false_values += !oracle_check_value(
                it.oracle, &expectation, (const char *)value.data, value.size, &it.tally);
        }
    }
    it.touched_count = 0;
}

/* --- backfill --- */

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)decoder;
    static char user[16];
    static char ad[16];
    const struct entry *entry = &it.logs[record->partition][record->offset];
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
    return (struct fcap_moment){it.now_ms, it.now_ms + it.ahead_ms};
}

static void open_backfill(void)
{
    static struct fcap_decoder decoder = {decode};
    struct fcap_settings settings;
    struct fcap_error error;
    fcap_settings_default(&settings);
    settings.profile = "race";
    settings.key_pattern = "fc:{%u}:%w";
    settings.window_count = WINDOWS;
    memcpy(settings.windows, windows, sizeof windows);
    settings.session_timeout_ms = it.forgets_session ? 0 : SESSION_MS;
    struct fcap_backfill_ports ports = {&decoder, &it.seed.port, &it.spill.port};
    assert_int_equal(fcap_backfill_open(&settings, &ports, &it.backfill, &error), FCAP_OK);
}

/* The records that it is going to read, for the definition. */
static void fill_oracle(void)
{
    for (int partition = 0; partition < PARTITIONS; partition++) {
        it.read_to[partition] = it.ends[partition];
        for (size_t i = 0; i < it.ends[partition]; i++) {
            const struct entry *entry = &it.logs[partition][i];
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
                (void)oracle_tombstone(it.oracle, partition, (int64_t)i, user);
            } else {
                (void)oracle_add(it.oracle, &event);
            }
        }
    }
}

static enum fcap_status read_some(void)
{
    bool is_read = it.now_ms >= it.read_until_ms;
    for (int32_t partition = 0; partition < PARTITIONS; partition++) {
        size_t left = it.read_to[partition] - it.read_next[partition];
        size_t count = is_read ? left : draw((uint32_t)left / 4 + 1);
        for (size_t i = 0; i < count; i++) {
            struct fcap_record record = {.partition = partition,
                                         .offset = (int64_t)it.read_next[partition]++,
                                         .timestamp_ms = it.now_ms,
                                         .key = fcap_bytes_of("k"),
                                         .value = fcap_bytes_of("v")};
            assert_int_equal(fcap_backfill_record(it.backfill, &record, moment()), FCAP_OK);
        }
    }
    if (!is_read) {
        return fcap_backfill_tick(it.backfill, moment());
    }
    it.is_reading = false;
    return fcap_backfill_read_done(it.backfill, NULL);
}

static void step_backfill(int64_t ahead_ms)
{
    if (it.is_over || it.now_ms < it.begin_ms) {
        return;
    }
    enum fcap_status status;
    bool is_done = false;
    if (it.backfill == NULL) {
        open_backfill();
    }
    if (it.read_until_ms == 0) {
        /* As many files, and so as many transactions, as for a long history. */
        status = fcap_backfill_begin(it.backfill, PARTITIONS, 30000000, moment());
        if (status == FCAP_OK) {
            fill_oracle();
            it.is_reading = true;
            it.read_until_ms = it.now_ms + draw(draw(2) == 0 ? 500 : 30000) + 1;
            it.ahead_ms = ahead_ms;
        }
    } else if (it.is_reading) {
        status = read_some();
    } else {
        status = fcap_backfill_step(it.backfill, moment(), &is_done);
        check_transaction();
    }
    it.score.foreign += status == FCAP_FOREIGN;
    it.score.finished += is_done;
    it.is_over = is_done || status == FCAP_FOREIGN;
    if (fcap_status_class(status) == FCAP_CLASS_FATAL && status != FCAP_FOREIGN) {
        fail_msg("%s", fcap_backfill_error(it.backfill));
    }
    if (!it.is_over && draw(400) == 0) {
        it.is_over = true; /* kill -9 */
        it.score.killed++;
    }
    if (it.is_over) {
        struct fcap_backfill_report report;
        fcap_backfill_report(it.backfill, &report);
        it.score.fenced += (size_t)report.partitions_fenced;
        it.score.open += (size_t)report.partitions_open;
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
    struct score score = it.score;
    memset(&it, 0, sizeof it);
    it.score = score;
    it.clock = (struct fcap_clock){now_ms, now_ms};
    it.now_ms = START_MS;
    it.random = seed;
    fcap_fake_redis_init(&it.redis, &it.clock);
    fake_seed_init(&it.seed, &it.redis, &it.clock, "race");
    fake_seed_init(&it.daemon, &it.redis, &it.clock, "race");
    fake_spill_init(&it.spill);
    it.oracle = oracle_open();
    it.seed.transaction = note_transaction;
    it.seed.random = seed;
    it.seed.unavailable = seed % 3 == 0 ? 60 : 0;
    it.seed.ignores_epoch = plant->ignores_epoch;
    it.seed.is_blind = plant->is_blind;
    it.seed.claims_nothing = plant->claims_nothing;
    it.seed.overwrites = plant->overwrites;
    it.forgets_session = plant->forgets_session;
    it.opens_late = plant->opens_late;
    it.begin_ms = START_MS + draw(25000);
    for (int i = 0; i < PARTITIONS; i++) {
        for (uint32_t count = 5 + draw(40); count > 0; count--) {
            produce(i);
        }
        if (draw(3) == 0) {
            load(i);
        }
    }
}

static void done_world(void)
{
    fcap_backfill_close(it.backfill);
    fake_seed_done(&it.seed);
    fake_seed_done(&it.daemon);
    fake_spill_done(&it.spill);
    fcap_fake_redis_done(&it.redis);
    oracle_close(it.oracle);
}

static size_t wrong_of(const struct score *score)
{
    return score->beside_open + score->overwritten + score->revived + score->lost +
           score->false_values;
}

static void check_all(void)
{
    for (int i = 0; i < PARTITIONS; i++) {
        check_owner(i);
    }
}

/* All owners come back, and everything is as they say. */
static void settle(void)
{
    it.is_over = true;
    for (int i = 0; i < PARTITIONS; i++) {
        if (it.owners[i].state == DOWN || it.owners[i].is_stopped) {
            load(i);
        }
    }
    for (int step = 0; step < 100; step++) {
        it.now_ms += 100;
        for (int i = 0; i < PARTITIONS; i++) {
            struct owner *owner = &it.owners[i];
            if (owner->state == DOWN || owner->is_stopped) {
                load(i); /* It was killed once more. */
            }
            step_owner(i);
        }
        check_all();
    }
}

static bool any_stopped(void)
{
    for (int i = 0; i < PARTITIONS; i++) {
        if (it.owners[i].state == OPEN && it.owners[i].is_stopped) {
            return true;
        }
    }
    return false;
}

static void run_world(uint64_t seed, const struct plant *plant)
{
    size_t wrong = wrong_of(&it.score);
    init_world(seed, plant);
    while (it.now_ms < START_MS + RUN_MS) {
        it.now_ms += 20 + draw(500);
        if (draw(3) == 0) {
            produce((int)draw(PARTITIONS));
        }
        if (draw(500) == 0 && !any_stopped()) {
            fcap_fake_redis_flush(&it.redis);
            memset(it.seed.shown_until_ms, 0, sizeof it.seed.shown_until_ms);
            for (int i = 0; i < PARTITIONS; i++) {
                it.owners[i].is_unseen = it.owners[i].state == OPEN;
            }
        }
        uint32_t first = draw(2);
        for (uint32_t i = 0; i < 2; i++) {
            if ((first + i) % 2 == 0) {
                step_backfill(plant->ahead_ms);
            } else {
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    step_owner(partition);
                }
            }
            check_all();
        }
    }
    settle();
    done_world();
    it.score.worlds_wrong += wrong_of(&it.score) != wrong;
}

static struct score run_worlds(const struct plant *plant, uint64_t seeds)
{
    it.score = (struct score){0};
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        size_t before = it.score.worlds_wrong;
        run_world(seed, plant);
        if (plant->name == NULL && it.score.worlds_wrong > before) {
            fail_msg("seed %llu: %zu beside an open gate, %zu overwritten, %zu revived, %zu lost, "
                     "%zu false\n%s",
                     (unsigned long long)seed, it.score.beside_open, it.score.overwritten,
                     it.score.revived, it.score.lost, it.score.false_values, it.tally.text);
        }
    }
    return it.score;
}

static void test_owners_are_not_disturbed(void **state)
{
    (void)state;
    static const struct plant nothing = {0};
    const char *full = getenv("FCAP_TEST_FULL");
    size_t seeds = full != NULL && strcmp(full, "1") == 0 ? FULL_SEEDS : SEEDS;
    struct score score = run_worlds(&nothing, seeds);
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
        {.name = "fc:meta is not looked at", .is_blind = true, .must_revive = true},
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
        struct score score = run_worlds(&plants[i], SEEDS);
        printf("result: %s: wrong in %zu of %d worlds: %zu revived, %zu overwritten\n",
               plants[i].name, score.worlds_wrong, SEEDS, score.revived, score.overwritten);
        assert_true(score.worlds_wrong > 0);
        assert_true(!plants[i].must_revive || score.revived > 0);
        assert_true(!plants[i].must_overwrite || score.overwritten > 0);
    }
}

/* The epoch begins at 1 again after FLUSHALL: as ours was. */
static void test_an_epoch_of_another_life(void **state)
{
    (void)state;
    static const struct plant nothing = {0};
    init_world(1, &nothing);
    it.seed.unavailable = 0;
    it.begin_ms = 0;
    step_backfill(0);
    it.read_until_ms = it.now_ms;
    step_backfill(0);
    it.now_ms += 60000;
    fcap_fake_redis_flush(&it.redis);
    for (int i = 0; i < PARTITIONS; i++) {
        assert_int_equal(fake_seed_increment(&it.daemon, i), 1);
    }
    bool is_done;
    enum fcap_status status = FCAP_OK;
    for (int i = 0; i < 100 && status == FCAP_OK; i++) {
        status = fcap_backfill_step(it.backfill, moment(), &is_done);
        it.now_ms += 100;
    }
    assert_int_equal(status, FCAP_FOREIGN);
    assert_int_equal(it.seed.transactions, 0);
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
