/* The users named most often by recent records: a bounded list (space-saving, Metwally et al.,
 * 2005), fed by a decoder that stands in front of the real one.
 *
 * A count is never too low and at most `error` too high; all are halved now and then, so that the
 * list follows the present. Thread rule: belongs to its worker. */
#ifndef FCAP_DAEMON_HOT_USERS_H
#define FCAP_DAEMON_HOT_USERS_H

#include "fcap/ports.h"

#define FCAP_HOT_USERS_MAX  32
#define FCAP_HOT_USER_BYTES 128

struct fcap_hot_user {
    uint64_t hash;
    uint64_t count; /* records, halved every FCAP_HOT_USERS_HALVE_MS */
    uint64_t error; /* of the count, at most */
    int32_t partition;
    uint16_t size;                      /* of the id; more than the room: it is cut */
    uint8_t bytes[FCAP_HOT_USER_BYTES]; /* the id */
};

#define FCAP_HOT_USERS_HALVE_MS 60000

struct fcap_hot_users {
    struct fcap_decoder port; /* hand this one to the pipeline */
    struct fcap_decoder *decoder;
    size_t count;
    struct fcap_hot_user users[FCAP_HOT_USERS_MAX];
};

/* Empty. Borrows the real decoder. */
void fcap_hot_users_init(struct fcap_hot_users *hot, struct fcap_decoder *decoder);

/* One record of a user. */
void fcap_hot_users_add(struct fcap_hot_users *hot, int32_t partition, struct fcap_bytes user);

/* Halves all counts; those at zero leave. */
void fcap_hot_users_halve(struct fcap_hot_users *hot);

#endif
