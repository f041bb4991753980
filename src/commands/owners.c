#include "owners.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A daemon shows itself every 2 s; one opens a gate at most a second after its INCR. */
#define SHOW_S 5

struct judging {
    const struct fcap_config *config;
    const struct fcap_state *state;
    struct fcap_owner_verdict *verdicts;
};

static void refuse(struct fcap_owner_verdict *verdict, const char *text, const char *detail)
{
    verdict->is_ours = false;
    (void)snprintf(verdict->reason, sizeof verdict->reason, text, detail); /* Cut is fine. */
}

static bool was_shown_to(const struct fcap_meta *meta, const struct fcap_sink_identity *identity)
{
    static const struct fcap_sink_identity unknown;
    for (size_t i = 0; i < meta->window_count; i++) {
        if (memcmp(&meta->windows[i].projected_to, identity, sizeof *identity) == 0 &&
            memcmp(identity, &unknown, sizeof unknown) != 0) {
            return true;
        }
    }
    return false;
}

/* *ret_is_sure: it stands as this state left it. */
static enum fcap_status judge_epoch(struct judging *judging, struct fcap_redis_client *client,
                                    const struct fcap_sink_identity *identity, size_t index,
                                    bool *ret_is_sure, struct fcap_error *error)
{
    char text[32];
    struct fcap_owner_verdict *verdict = &judging->verdicts[index];
    const struct fcap_state_partition *partition = &judging->state->partitions[index];
    enum fcap_status status = fcap_redis_client_epoch(client, judging->config->profile,
                                                      partition->partition, &verdict->found, error);
    if (status != FCAP_OK) {
        return status;
    }
    *ret_is_sure =
        verdict->found == partition->meta.epoch && was_shown_to(&partition->meta, identity);
    (void)snprintf(text, sizeof text, "%" PRIu64, verdict->found); /* It fits. */
    if (partition->meta.epoch == 0) {
        refuse(verdict,
               "its gate has never been open, so nothing of it was shown yet; start `run`%s", "");
    } else if (verdict->found > partition->meta.epoch) {
        refuse(
            verdict,
            "its epoch in Redis is %s and higher than the state's: another owner has had it "
            "since, backfill has claimed it, or this one was killed when it had just opened; start "
            "`run`, which reads on and writes Redis itself",
            text);
    }
    return FCAP_OK;
}

/* Our own daemon has stopped, and what it said lives on for some seconds. */
static enum fcap_status judge_owner(struct judging *judging, struct fcap_redis_client *client,
                                    size_t index, struct fcap_error *error)
{
    uint64_t epoch;
    struct fcap_bytes instance;
    const struct fcap_state_partition *partition = &judging->state->partitions[index];
    enum fcap_status status = fcap_redis_client_owner(
        client, judging->config->profile, partition->partition, &epoch, &instance, error);
    if (status != FCAP_OK || instance.data == NULL) {
        return status;
    }
    bool is_own = fcap_bytes_equal(instance, fcap_bytes_of(judging->config->instance));
    if (!is_own || epoch > partition->meta.epoch) {
        refuse(&judging->verdicts[index], "instance %.200s has it now",
               (const char *)instance.data);
    }
    return FCAP_OK;
}

static enum fcap_status judge_once(struct judging *judging, struct fcap_redis_client *client,
                                   bool *ret_is_sure, struct fcap_error *error)
{
    struct fcap_sink_identity identity;
    enum fcap_status status = fcap_redis_client_identity(client, false, &identity, error);
    *ret_is_sure = true;
    for (size_t i = 0; i < judging->state->count && status == FCAP_OK; i++) {
        bool is_sure = true;
        judging->verdicts[i] = (struct fcap_owner_verdict){.is_ours = true};
        status = judge_epoch(judging, client, &identity, i, &is_sure, error);
        *ret_is_sure = *ret_is_sure && (is_sure || !judging->verdicts[i].is_ours);
        status = status == FCAP_OK ? judge_owner(judging, client, i, error) : status;
    }
    return status;
}

enum fcap_status fcap_owners_judge(const struct fcap_config *config,
                                   struct fcap_redis_client *client, const struct fcap_state *state,
                                   struct fcap_owner_verdict *ret_verdicts,
                                   struct fcap_error *error)
{
    struct judging judging = {config, state, ret_verdicts};
    bool is_sure;
    enum fcap_status status = judge_once(&judging, client, &is_sure, error);
    if (status == FCAP_OK && !is_sure) {
        (void)fprintf(
            stderr,
            "fcapd: this may not be the Redis that the state was last shown to; other owners "
            "have %d s to show themselves\n",
            SHOW_S);
        (void)nanosleep(&(struct timespec){.tv_sec = SHOW_S}, NULL);
        status = judge_once(&judging, client, &is_sure, error);
    }
    return status;
}
