#include "fcap/clock_os.h"

#include <time.h>

static int64_t read_ms(clockid_t id)
{
    struct timespec now;
    (void)clock_gettime(id, &now); /* Both clocks always exist on Linux. */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t fcap_clock_os_wall_ms(void)
{
    return read_ms(CLOCK_REALTIME);
}

int64_t fcap_clock_os_monotonic_ms(void)
{
    return read_ms(CLOCK_MONOTONIC);
}

int64_t fcap_clock_os_thread_cpu_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
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
