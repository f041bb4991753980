/* A tiny Redis on a thread of its own that says what a test wants it to say: old or hidden
 * versions, LOADING, any error, replies split at every byte, or silence. It knows just the commands
 * that the sink sends, and keeps nothing but fc:id.
 *
 * Thread rule: the switches are atomic and may be changed while it runs. */
#ifndef FCAP_TESTS_FAKE_REDIS_H
#define FCAP_TESTS_FAKE_REDIS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct fake_redis {
    /* Switches. */
    _Atomic(const char *) version;  /* NULL: INFO does not show it */
    _Atomic(const char *) run_id;   /* NULL: INFO does not show it */
    _Atomic(const char *) error;    /* answers SET of keys that start with "k"; NULL: +OK */
    _Atomic(const char *) greeting; /* said to a new connection, which is closed then; NULL: none */
    atomic_bool knows_pxat;
    atomic_bool loading; /* every command but INFO and CLIENT is answered -LOADING */
    atomic_bool split;   /* each byte of an answer is sent alone */
    atomic_bool garbage; /* answers are no RESP */
    atomic_bool silent;  /* reads and answers nothing */
    /* Counted. */
    atomic_uint connections;
    atomic_uint sets; /* SET of keys that start with "k", answered or not */
    /* Private. */
    uint16_t port;
    int listener;
    int stop[2];
    pthread_t thread;
    char sentinel[64];
    char name[128]; /* of the newest connection that named itself */
};

/* A server like Redis 7 on a free loopback port. Fails the test when it cannot listen. */
void fake_redis_start(struct fake_redis *fake);
/* Ends the thread and closes everything. */
void fake_redis_stop(struct fake_redis *fake);

#endif
