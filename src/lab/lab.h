/* What a private world needs: a laboratory of its own servers around the real daemon, used by the
 * demo, the benchmarks and the tests. This page: failing, time, ports, folders.
 *
 * What must hold: whatever was started or made is gone when the process ends, however it ends;
 * children die with it (PR_SET_PDEATHSIG), folders go at exit(). A failure of the laboratory ends
 * the process with a message: a result from a broken one proves nothing. Thread rule: one thread,
 * except for the clocks and lab_pause_ms(). */
#ifndef FCAP_LAB_LAB_H
#define FCAP_LAB_LAB_H

#include <stddef.h>
#include <stdint.h>

/* Prints the message and ends the process with exit(1). */
_Noreturn void lab_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the process naming the place when the condition does not hold. */
#define lab_check(condition)                                                                       \
    ((condition) ? (void)0 : lab_die("%s:%d: %s does not hold", __FILE__, __LINE__, #condition))

/* Milliseconds of CLOCK_MONOTONIC and of CLOCK_REALTIME. */
int64_t lab_monotonic_ms(void);
int64_t lab_wall_ms(void);
/* Sleeps, also through signals. */
void lab_pause_ms(int64_t ms);

/* A loopback port that nobody listens on. */
uint16_t lab_free_port(void);

/* Makes a folder of its own, <TMPDIR or /tmp>/<name>-XXXXXX, and writes its path to `path`. What is
 * not removed by then goes at exit(). */
void lab_folder_make(const char *name, char *path, size_t path_size);
/* Removes it with all that is in it; path[0] becomes 0. An empty path is fine. */
void lab_folder_remove(char *path);

#endif
