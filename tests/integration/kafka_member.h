/* One member of a group as a process of its own, for tests that kill and stop members, and the
 * memory that all of them share: for each partition the next offset and its owner, as a store would
 * keep them, and how often each offset was delivered.
 *
 * An offset counts only while the deliverer is the partition's newest owner: a store refuses the
 * writes of an assignment that has ended. */
#ifndef FCAP_TESTS_KAFKA_MEMBER_H
#define FCAP_TESTS_KAFKA_MEMBER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MEMBER_PARTITIONS 12
#define MEMBER_OFFSETS    1000000

struct member_partition {
    _Atomic uint64_t owner;    /* token of the newest owner; 0: nobody yet */
    _Atomic int64_t next;      /* first offset that is not done */
    _Atomic uint64_t disorder; /* an owner got an offset below `next` */
    _Atomic uint64_t jumps;    /* an owner got an offset above `next`: the topic has no holes */
};

struct member_shared {
    _Atomic uint64_t tokens;
    _Atomic uint64_t stale;       /* deliveries to an owner that had been replaced */
    _Atomic uint64_t stale_asks;  /* may_send() asked by an owner that had been replaced */
    _Atomic uint64_t stale_sends; /* of these: the answer was yes */
    _Atomic uint64_t lost;        /* revoked with lost */
    _Atomic uint64_t revoked;
    _Atomic uint64_t violations;
    _Atomic uint64_t not_closed; /* close() that did not end in time */
    struct member_partition partitions[MEMBER_PARTITIONS];
    _Atomic uint8_t delivered[MEMBER_PARTITIONS][MEMBER_OFFSETS];
};

struct member_options {
    const char *brokers;
    const char *topic;
    const char *group;
    int session_timeout_ms;
    bool by_events;
};

/* Makes the shared memory in a file that members find by its path. Ends the program on failure. */
struct member_shared *member_shared_make(char *ret_path, size_t path_size);

/* Starts this very program again as a member; see member_main(). */
pid_t member_start(const char *shared_path, const struct member_options *options);

/* When the arguments say so, runs a member until SIGTERM and returns true with the exit code. */
bool member_main(int argc, char **argv, int *ret_exit);

#endif
