#include "unit/race_world.h"

#include "lib/random_log.h"

#include <stdio.h>
#include <string.h>

enum { META_MS = 10000, LATEST_META_MS = 2200 };

const struct fcap_window race_windows[RACE_WINDOWS] = {{"w1", 20000}, {"w2", 120000}};

struct race_world race;

int64_t race_now_ms(struct fcap_clock *clock)
{
    (void)clock;
    return race.now_ms;
}

uint32_t race_draw(uint32_t bound)
{
    return random_below(&race.random, bound);
}

bool race_get(const char *key, struct fcap_bytes *ret_value)
{
    int64_t expire_at_ms;
    return fcap_fake_redis_get(&race.redis, fcap_bytes_of(key), ret_value, &expire_at_ms);
}

void race_key(int partition, int user, int window, char key[64])
{
    (void)snprintf(key, 64, "fc:{p%du%d}:%s", partition, user, race_windows[window].name);
}

/* --- the log --- */

void race_produce(int partition)
{
    if (race.ends[partition] == RACE_RECORDS_MAX) {
        return;
    }
    struct race_entry *entry = &race.logs[partition][race.ends[partition]++];
    *entry =
        (struct race_entry){.time_ms = race.now_ms - race_draw(race_draw(4) == 0 ? 150000 : 3000),
                            .user = (int)race_draw(RACE_USERS),
                            .ad = (int)race_draw(RACE_ADS),
                            .is_tombstone = race_draw(5) == 0};
}

/* The definition, for the owners: counts as text, and the newest event; false: none. */
static bool counts_of(int partition, int user, int window, size_t next, char text[64],
                      int64_t *ret_newest_ms)
{
    unsigned counts[RACE_ADS] = {0};
    bool any = false;
    *ret_newest_ms = 0;
    for (size_t i = 0; i < next; i++) {
        const struct race_entry *entry = &race.logs[partition][i];
        if (entry->user != user) {
            continue;
        }
        if (entry->is_tombstone) {
            memset(counts, 0, sizeof counts);
            any = false;
            *ret_newest_ms = 0;
        } else if (entry->time_ms > race.now_ms - race_windows[window].length_ms) {
            counts[entry->ad]++;
            any = true;
            *ret_newest_ms = entry->time_ms > *ret_newest_ms ? entry->time_ms : *ret_newest_ms;
        }
    }
    (void)snprintf(text, 64, "owner %u %u %u", counts[0], counts[1], counts[2]);
    return any;
}

/* --- owners --- */

bool race_holds_all(const struct race_owner *owner)
{
    return race.redis.sentinel != 0 && owner->projected == race.redis.sentinel;
}

static void push_user(int partition, int user, bool force)
{
    struct race_owner *owner = &race.owners[partition];
    for (int window = 0; window < RACE_WINDOWS; window++) {
        struct race_shown *shown = &owner->shown[user][window];
        char text[64];
        char key[64];
        int64_t newest_ms;
        bool any = counts_of(partition, user, window, owner->next, text, &newest_ms);
        bool is_there = shown->is_there && shown->expire_at_ms >= race.now_ms;
        race_key(partition, user, window, key);
        struct fcap_push push = {.kind = FCAP_PUSH_UNLINK, .key = fcap_bytes_of(key)};
        if (any && (force || !is_there || strcmp(text, shown->text) != 0)) {
            *shown = (struct race_shown){true, newest_ms + race_windows[window].length_ms - 1, {0}};
            memcpy(shown->text, text, sizeof text);
            push.kind = FCAP_PUSH_SET;
            push.value = fcap_bytes_of(shown->text);
            push.expire_at_ms = shown->expire_at_ms;
            (void)fake_seed_do(&race.daemon, &push);
        } else if (!any && (force || is_there)) {
            (void)fake_seed_do(&race.daemon, &push);
            shown->is_there = false;
        }
    }
}

static void commit(struct race_owner *owner)
{
    owner->kept_next = owner->next;
    owner->kept_epoch = owner->epoch;
    owner->kept_projected = owner->projected;
    memcpy(owner->kept_shown, owner->shown, sizeof owner->shown);
}

void race_load(int partition)
{
    struct race_owner *owner = &race.owners[partition];
    owner->state = RACE_LOADING;
    owner->is_stopped = false;
    owner->is_unseen = false;
    owner->next = owner->kept_next;
    owner->projected = owner->kept_projected;
    owner->target = race.ends[partition];
    memcpy(owner->shown, owner->kept_shown, sizeof owner->shown);
    memset(owner->touched, 0, sizeof owner->touched);
}

static void apply(int partition, size_t end)
{
    struct race_owner *owner = &race.owners[partition];
    while (owner->next < end) {
        const struct race_entry *entry = &race.logs[partition][owner->next++];
        owner->touched[entry->user] = true;
        race.score.erased += entry->is_tombstone && race.backfill != NULL && !race.is_over &&
                             owner->next > race.read_to[partition];
    }
}

static void open_gate(int partition)
{
    struct race_owner *owner = &race.owners[partition];
    bool all = owner->epoch != owner->kept_epoch + 1 || !race_holds_all(owner);
    owner->state = RACE_OPEN;
    for (int user = 0; user < RACE_USERS; user++) {
        push_user(partition, user, all || owner->touched[user]);
    }
    owner->projected = race.redis.sentinel;
    owner->look_ms = race.now_ms + race_draw(2000);
    owner->meta_ms = race.now_ms + race_draw(LATEST_META_MS);
}

static void step_open(int partition)
{
    struct race_owner *owner = &race.owners[partition];
    if (race.now_ms >= owner->look_ms) {
        owner->look_ms = race.now_ms + 2000;
        if (!race_holds_all(owner)) {
            for (int user = 0; user < RACE_USERS; user++) {
                push_user(partition, user, true);
            }
            owner->projected = race.redis.sentinel;
        }
    }
    memset(owner->touched, 0, sizeof owner->touched);
    apply(partition, race.ends[partition]);
    for (int user = 0; user < RACE_USERS; user++) {
        push_user(partition, user, owner->touched[user]);
    }
    if (race.now_ms >= owner->meta_ms) {
        race.seed.shown_until_ms[partition] = race.now_ms + META_MS;
        owner->is_unseen = false;
        owner->meta_ms = race.now_ms + 1800 + race_draw(400);
    }
    if (race_draw(6) == 0) {
        commit(owner);
    }
}

static void ask(int partition)
{
    struct race_owner *owner = &race.owners[partition];
    owner->epoch = fake_seed_increment(&race.daemon, partition);
    owner->asked_ms = race.now_ms;
    owner->open_ms = race.now_ms + race_draw(race.opens_late ? 40000 : FCAP_BACKFILL_OPENING_MS);
    owner->state = RACE_ASKED;
}

static void wake(int partition)
{
    struct race_owner *owner = &race.owners[partition];
    owner->is_stopped = false;
    if (race.now_ms - owner->stopped_ms >= RACE_SESSION_MS) {
        race_load(partition); /* Its assignment is lost. */
        return;
    }
    owner->is_unseen = true;
    owner->meta_ms = race.now_ms + race_draw(LATEST_META_MS);
}

void race_step_owner(int partition)
{
    struct race_owner *owner = &race.owners[partition];
    if (owner->is_stopped) {
        if (race.now_ms < owner->wake_ms) {
            return;
        }
        wake(partition);
    }
    switch (owner->state) {
    case RACE_DOWN:
        if (race_draw(150) == 0) {
            race_load(partition);
        }
        return;
    case RACE_LOADING:
        if (owner->next < owner->target) {
            apply(partition, owner->next + 1 + race_draw((uint32_t)(owner->target - owner->next)));
        } else {
            ask(partition);
        }
        break;
    case RACE_ASKED:
        apply(partition, race.ends[partition]);
        if (race.now_ms - owner->asked_ms > FCAP_BACKFILL_OPENING_MS && !race.opens_late) {
            ask(partition); /* An epoch of long ago opens no gate. */
        } else if (race.now_ms >= owner->open_ms) {
            open_gate(partition);
        }
        break;
    case RACE_OPEN:
        step_open(partition);
        break;
    }
    if (race_draw(80) == 0) {
        owner->state = RACE_DOWN; /* kill -9 */
    } else if (race_draw(60) == 0 && !owner->is_unseen) {
        owner->is_stopped = true;
        owner->stopped_ms = race.now_ms;
        owner->wake_ms = race.now_ms + race_draw(2 * RACE_SESSION_MS);
    }
}

bool race_is_live(const struct race_owner *owner)
{
    return owner->state == RACE_OPEN && race_holds_all(owner) &&
           !(owner->is_stopped && race.now_ms - owner->stopped_ms >= RACE_SESSION_MS);
}
