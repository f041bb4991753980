/* Looks a host name up on a thread of its own, since getaddrinfo() can block for many seconds and
 * cannot be stopped. Whoever lets go last frees: the sink gives up whenever it likes. */
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fcap/assert.h"
#include "sink_redis_internal.h"

struct sink_resolver {
    pthread_mutex_t lock;
    unsigned holders; /* the sink and the thread */
    bool done;
    int event;
    struct sink_addresses addresses;
    char *host;
};

void sink_resolver_release(struct sink_resolver *resolver)
{
    if (resolver == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&resolver->lock);
    bool last = --resolver->holders == 0;
    (void)pthread_mutex_unlock(&resolver->lock);
    if (last) {
        (void)pthread_mutex_destroy(&resolver->lock);
        (void)close(resolver->event); /* Nothing is lost on an eventfd. */
        free(resolver->host);
        free(resolver);
    }
}

static void look_up(const char *host, struct sink_addresses *ret_addresses)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (getaddrinfo(host, NULL, &hints, &found) != 0) {
        return;
    }
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        char *text = ret_addresses->text[ret_addresses->count];
        if (getnameinfo(at->ai_addr, at->ai_addrlen, text, SINK_ADDRESS_BYTES, NULL, 0,
                        NI_NUMERICHOST) == 0 &&
            ++ret_addresses->count == SINK_ADDRESSES_MAX) {
            break;
        }
    }
    freeaddrinfo(found);
}

static void *resolver_run(void *argument)
{
    struct sink_resolver *resolver = argument;
    struct sink_addresses addresses = {0};
    look_up(resolver->host, &addresses);
    (void)pthread_mutex_lock(&resolver->lock);
    resolver->addresses = addresses;
    resolver->done = true;
    (void)pthread_mutex_unlock(&resolver->lock);
    uint64_t one = 1;
    ssize_t written = write(resolver->event, &one, sizeof one);
    FCAP_ASSERT(written == (ssize_t)sizeof one); /* The first write to an eventfd. */
    sink_resolver_release(resolver);
    return NULL;
}

struct sink_resolver *sink_resolver_start(const char *host)
{
    struct sink_resolver *resolver = calloc(1, sizeof *resolver);
    FCAP_ASSERT(resolver != NULL);
    resolver->host = strdup(host);
    resolver->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    resolver->holders = 2;
    FCAP_ASSERT(resolver->host != NULL && pthread_mutex_init(&resolver->lock, NULL) == 0);
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    /* Signals belong to the daemon's own threads. */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = resolver->event < 0 ? -1 : pthread_create(&thread, NULL, resolver_run, resolver);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        sink_resolver_release(resolver);
        sink_resolver_release(resolver);
        return NULL;
    }
    (void)pthread_detach(thread);
    return resolver;
}

bool sink_resolver_done(struct sink_resolver *resolver, struct sink_addresses *ret_addresses)
{
    (void)pthread_mutex_lock(&resolver->lock);
    bool done = resolver->done;
    if (done) {
        *ret_addresses = resolver->addresses;
    }
    (void)pthread_mutex_unlock(&resolver->lock);
    return done;
}

int sink_resolver_descriptor(const struct sink_resolver *resolver)
{
    return resolver->event;
}
