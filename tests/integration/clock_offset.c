/* The system's clocks as fcap/clock_os.h promises them, with a wall clock that a test moves: the
 * eight bytes of the file that FCAP_TEST_CLOCK names, an int64_t in milliseconds, are added to it.
 * Linked into a program of its own in place of the adapter; the shipped one has nothing of it. */
#include "fcap/clock_os.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const int64_t *offset;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void map_offset(void)
{
    const char *path = getenv("FCAP_TEST_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *bytes =
        file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) {
        (void)fprintf(stderr, "FCAP_TEST_CLOCK names no file of eight bytes\n");
        _exit(1);
    }
    (void)close(file); /* The mapping stays. */
    offset = bytes;
}

static int64_t read_ms(clockid_t id)
{
    struct timespec now;
    (void)clock_gettime(id, &now); /* Both clocks always exist on Linux. */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t fcap_clock_os_wall_ms(void)
{
    (void)pthread_once(&once, map_offset); /* Fails only when misused. */
    return read_ms(CLOCK_REALTIME) + __atomic_load_n(offset, __ATOMIC_ACQUIRE);
}

int64_t fcap_clock_os_monotonic_ms(void)
{
    return read_ms(CLOCK_MONOTONIC);
}

static int64_t port_wall_ms(struct fcap_clock *clock)
{
    (void)clock;
    return fcap_clock_os_wall_ms();
}

static int64_t port_monotonic_ms(struct fcap_clock *clock)
{
    (void)clock;
    return fcap_clock_os_monotonic_ms();
}

struct fcap_clock *fcap_clock_os(void)
{
    static struct fcap_clock clock = {port_wall_ms, port_monotonic_ms};
    return &clock;
}
