#include "signals.h"

#include "fcap/assert.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static sem_t wake;
static atomic_int received; /* Any thread may get the signal. */

/* Only async-signal-safe calls; a lock-free atomic is one. */
static void on_stop(int number)
{
    int code = errno;
    int none = 0;
    if (!atomic_compare_exchange_strong(&received, &none, number)) {
        _exit(FCAP_SIGNALS_EXIT_CODE);
    }
    (void)sem_post(&wake); /* Fails only at SEM_VALUE_MAX, where nobody waits. */
    errno = code;
}

void fcap_signals_init(void)
{
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    FCAP_ASSERT(sem_init(&wake, 0, 0) == 0);
    (void)sigfillset(&stop.sa_mask);
    FCAP_ASSERT(sigaction(SIGTERM, &stop, NULL) == 0 && sigaction(SIGINT, &stop, NULL) == 0);
    FCAP_ASSERT(sigaction(SIGPIPE, &ignore, NULL) == 0);
}

bool fcap_signals_wait(int timeout_ms)
{
    struct timespec deadline;
    (void)clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += timeout_ms / 1000;
    deadline.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (deadline.tv_nsec >= 1000000000L) {
        deadline.tv_sec++;
        deadline.tv_nsec -= 1000000000L;
    }
    if (atomic_load(&received) == 0) {
        /* A time-out and an interruption are as good as a wake-up. */
        (void)sem_clockwait(&wake, CLOCK_MONOTONIC, &deadline);
    }
    return atomic_load(&received) != 0;
}

void fcap_signals_wake(void)
{
    (void)sem_post(&wake);
}

int fcap_signals_received(void)
{
    return atomic_load(&received);
}
