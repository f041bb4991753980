/* Partitions that nobody owns.
 *
 * In a cooperative rebalance a member that has to give up partitions drops them and joins again,
 * and only then somebody else gets them. A static member that dies in between and is back within
 * its session finds the group stable: the coordinator hands it what it may keep, without a
 * rebalance, and the rest stays without an owner until the group changes for another reason. Nobody
 * is told.
 *
 * So the helper looks at the whole group now and then. When the same hole has been there for a
 * session, one member, the same for all that look, leaves and joins again. A hole that this does
 * not close would cost the group a rebalance a minute, so the next time is waited for longer. */
#include "source_kafka_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_A_SESSION 3
#define CALL_MS         1000
#define WAIT_SESSIONS   2 /* between the first two times that a member joins again */
#define WAIT_MS_MAX     (30 * 60 * 1000)

int64_t kafka_orphans_look_ms(const struct kafka_config *config)
{
    return config->session_timeout_ms / LOOKS_A_SESSION;
}

struct cursor {
    const uint8_t *at;
    size_t left;
    bool failed;
};

static int64_t take_number(struct cursor *cursor, size_t size)
{
    uint64_t number = 0;
    if (cursor->left < size) {
        cursor->failed = true;
        return 0;
    }
    for (size_t i = 0; i < size; i++) {
        number = number << 8 | cursor->at[i];
    }
    cursor->at += size;
    cursor->left -= size;
    return size == 2 ? (int16_t)number : (int32_t)number;
}

/* Partitions of the topic in a member's assignment (Kafka's consumer protocol: version, topics with
 * name and partitions); -1: not understood. */
static int64_t count_assigned(const struct rd_kafka_group_member_info *member, const char *topic)
{
    struct cursor cursor = {member->member_assignment, (size_t)member->member_assignment_size,
                            false};
    if (member->member_assignment_size <= 0) {
        return 0;
    }
    int64_t count = 0;
    (void)take_number(&cursor, 2); /* Later versions only add behind. */
    int64_t topics = take_number(&cursor, 4);
    for (int64_t i = 0; i < topics && !cursor.failed; i++) {
        int64_t size = take_number(&cursor, 2);
        if (size < 0 || (size_t)size > cursor.left) {
            return -1;
        }
        bool is_ours = (size_t)size == strlen(topic) && memcmp(cursor.at, topic, (size_t)size) == 0;
        cursor.at += size;
        cursor.left -= (size_t)size;
        int64_t partitions = take_number(&cursor, 4);
        for (int64_t k = 0; k < partitions && !cursor.failed; k++) {
            (void)take_number(&cursor, 4);
        }
        count += is_ours ? partitions : 0;
    }
    return cursor.failed ? -1 : count;
}

bool kafka_orphans_note(struct kafka_orphans *orphans, const struct kafka_config *config,
                        enum kafka_group_sight sight, uint64_t mark, int64_t now_ms)
{
    bool is_same = sight == KAFKA_GROUP_HOLE && mark == orphans->mark;
    orphans->looks = is_same ? orphans->looks + 1 : 0;
    orphans->mark = mark;
    if (sight == KAFKA_GROUP_WHOLE) {
        orphans->wait_ms = 0;
        orphans->not_before_ms = 0;
    }
    if (orphans->looks < LOOKS_A_SESSION || now_ms < orphans->not_before_ms) {
        return false;
    }
    int64_t wait_ms = orphans->wait_ms > 0 ? 2 * orphans->wait_ms
                                           : (int64_t)WAIT_SESSIONS * config->session_timeout_ms;
    orphans->wait_ms = wait_ms < WAIT_MS_MAX ? wait_ms : WAIT_MS_MAX;
    orphans->not_before_ms = now_ms + orphans->wait_ms;
    orphans->looks = 0;
    return true;
}

/* What one look found. */
struct hole {
    enum kafka_group_sight sight;
    int64_t orphans;    /* partitions without an owner */
    uint64_t mark;      /* of the members and their shares */
    const char *chosen; /* the id of the owner with the fewest partitions; of those the lowest */
    int64_t chosen_count;
};

static void add_member(struct hole *hole, const struct rd_kafka_group_member_info *member,
                       int64_t count)
{
    uint64_t mark = 1469598103934665603u;
    for (const char *at = member->member_id; *at != '\0'; at++) {
        mark = (mark ^ (uint8_t)*at) * 1099511628211u;
    }
    hole->mark += (mark ^ (uint64_t)count) * 1099511628211u; /* In any order. */
    hole->orphans -= count;
    bool is_fewer = hole->chosen == NULL || count < hole->chosen_count ||
                    (count == hole->chosen_count && strcmp(member->member_id, hole->chosen) < 0);
    if (count > 0 && is_fewer) { /* One without partitions may join without a rebalance. */
        hole->chosen = member->member_id;
        hole->chosen_count = count;
    }
}

static struct hole find_hole(const struct rd_kafka_group_list *groups,
                             const struct kafka_config *config, int32_t partitions)
{
    struct hole hole = {.orphans = partitions};
    for (int i = 0; i < groups->group_cnt; i++) {
        const struct rd_kafka_group_info *group = &groups->groups[i];
        if (group->err != RD_KAFKA_RESP_ERR_NO_ERROR || strcmp(group->group, config->group) != 0) {
            continue;
        }
        bool is_known = strcmp(group->state, "Stable") == 0;
        for (int k = 0; k < group->member_cnt && is_known; k++) {
            int64_t count = count_assigned(&group->members[k], config->topic);
            is_known = count >= 0;
            add_member(&hole, &group->members[k], count);
        }
        hole.sight = !is_known || hole.chosen == NULL ? KAFKA_GROUP_UNKNOWN
                     : hole.orphans > 0               ? KAFKA_GROUP_HOLE
                                                      : KAFKA_GROUP_WHOLE;
        return hole;
    }
    return hole;
}

void kafka_orphans_look(rd_kafka_t *client, const struct kafka_config *config,
                        struct kafka_shared *shared, struct kafka_orphans *orphans)
{
    const struct rd_kafka_group_list *groups = NULL;
    int32_t partitions = kafka_shared_partitions(shared);
    if (partitions > 0) {
        /* Also sets it when it gives PARTIAL: other brokers are away, but the group's coordinator
         * has answered. */
        (void)rd_kafka_list_groups(client, config->group, &groups, CALL_MS);
    }
    if (groups == NULL) {
        (void)kafka_orphans_note(orphans, config, KAFKA_GROUP_UNKNOWN, 0, fcap_kafka_now_ms());
        return; /* Look again later. */
    }
    struct hole hole = find_hole(groups, config, partitions);
    if (kafka_orphans_note(orphans, config, hole.sight, hole.mark, fcap_kafka_now_ms())) {
        char text[300];
        (void)snprintf(text, sizeof text,
                       "%" PRId64 " partitions have had no owner for a session: %.100s leaves the "
                       "group and joins again; if that does not help, once more after %" PRId64
                       " s",
                       hole.orphans, hole.chosen, orphans->wait_ms / 1000);
        kafka_shared_log(shared, 4, text);
        pthread_mutex_lock(&shared->lock);
        (void)snprintf(shared->rejoin_id, sizeof shared->rejoin_id, "%s", hole.chosen);
        pthread_mutex_unlock(&shared->lock);
    }
    rd_kafka_group_list_destroy(groups);
}

/* True when this member is the one that was chosen; asked once for each choice. */
static bool is_chosen(struct fcap_source_kafka *source)
{
    char chosen[KAFKA_MEMBER_ID_MAX];
    pthread_mutex_lock(&source->shared.lock);
    memcpy(chosen, source->shared.rejoin_id, sizeof chosen);
    source->shared.rejoin_id[0] = '\0';
    pthread_mutex_unlock(&source->shared.lock);
    if (chosen[0] == '\0') {
        return false;
    }
    char *own = rd_kafka_memberid(source->client);
    bool is_own = own != NULL && strcmp(own, chosen) == 0;
    if (own != NULL) {
        rd_kafka_mem_free(source->client, own);
    }
    return is_own;
}

void kafka_orphans_serve(struct fcap_source_kafka *source)
{
    if (source->closing || source->lost || !is_chosen(source)) {
        return;
    }
    /* A leave, even of a static member: unlike a close. What it owns is revoked first, and the new
     * subscription waits until then. */
    rd_kafka_resp_err_t error = rd_kafka_unsubscribe(source->client);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        error = kafka_subscribe(source);
    }
    source->rejoins++;
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        kafka_shared_error(&source->shared, "joining again: %s", rd_kafka_err2str(error));
        source->dead = FCAP_IO; /* A member without a subscription would stand still for ever. */
    }
}
