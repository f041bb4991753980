/* The system's clocks as a port. Thread rule: any thread; the one object is shared. */
#ifndef FCAP_CLOCK_OS_H
#define FCAP_CLOCK_OS_H

#include "fcap/ports.h"

/* CLOCK_REALTIME and CLOCK_MONOTONIC. Valid for ever; nothing to close. */
struct fcap_clock *fcap_clock_os(void);

/* The same without the port, for the daemon's own timing. */
int64_t fcap_clock_os_wall_ms(void);
int64_t fcap_clock_os_monotonic_ms(void);
/* CPU time of the calling thread, nanoseconds. A system call, unlike the others. */
int64_t fcap_clock_os_thread_cpu_ns(void);

#endif
