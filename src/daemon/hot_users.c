#include "hot_users.h"

#include <string.h>

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    struct fcap_hot_users *hot = (struct fcap_hot_users *)decoder;
    enum fcap_reject reject = hot->decoder->decode(hot->decoder, record, ret_event);
    if (reject == FCAP_REJECT_NONE) {
        fcap_hot_users_add(hot, record->partition, ret_event->user);
    }
    return reject;
}

void fcap_hot_users_init(struct fcap_hot_users *hot, struct fcap_decoder *decoder)
{
    *hot = (struct fcap_hot_users){.port = {decode}, .decoder = decoder};
}

static struct fcap_hot_user *place_for(struct fcap_hot_users *hot, uint64_t hash)
{
    struct fcap_hot_user *least = NULL;
    for (size_t i = 0; i < hot->count; i++) {
        if (hot->users[i].hash == hash) {
            return &hot->users[i];
        }
        if (least == NULL || hot->users[i].count < least->count) {
            least = &hot->users[i];
        }
    }
    if (hot->count < FCAP_HOT_USERS_MAX) {
        least = &hot->users[hot->count++];
        *least = (struct fcap_hot_user){0};
    }
    return least;
}

void fcap_hot_users_add(struct fcap_hot_users *hot, int32_t partition, struct fcap_bytes user)
{
    uint64_t hash = fcap_hash64(user, 0);
    struct fcap_hot_user *place = place_for(hot, hash);
    if (place->hash != hash || place->size == 0) {
        /* The newcomer inherits the count: it may have been here before. */
        place->hash = hash;
        place->error = place->count;
        place->partition = partition;
        place->size = (uint16_t)user.size;
        memcpy(place->bytes, user.data,
               user.size < sizeof place->bytes ? user.size : sizeof place->bytes);
    }
    place->count++;
}

void fcap_hot_users_halve(struct fcap_hot_users *hot)
{
    size_t kept = 0;
    for (size_t i = 0; i < hot->count; i++) {
        hot->users[i].count /= 2;
        hot->users[i].error /= 2;
        if (hot->users[i].count > 0) {
            hot->users[kept++] = hot->users[i];
        }
    }
    hot->count = kept;
}
