/* A wall clock that a test moves: the eight bytes of the file that FCAP_TEST_CLOCK names, an
 * int64_t in milliseconds, are added to CLOCK_REALTIME wherever fcapd's own code asks for it (the
 * linker's --wrap; libraries keep the system's). Without that variable nothing is added. Only in
 * programs that the tests build; the shipped one has nothing of it. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const int64_t *offset_ms;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void map_offset(void)
{
    static const int64_t none;
    const char *path = getenv("FCAP_TEST_CLOCK");
    if (path == NULL) {
        offset_ms = &none;
        return;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *bytes =
        file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset_ms, PROT_READ, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) {
        (void)fprintf(stderr, "FCAP_TEST_CLOCK names no file of eight bytes\n");
        _exit(1);
    }
    (void)close(file); /* The mapping stays. */
    offset_ms = bytes;
}

int __real_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_clock_gettime(clockid_t id, struct timespec *time);
int __wrap_clock_gettime(clockid_t id, struct timespec *time)
{
    int result = __real_clock_gettime(id, time);
    if (id == CLOCK_REALTIME && result == 0) {
        (void)pthread_once(&once, map_offset); /* Fails only when misused. */
        int64_t step_ms = __atomic_load_n(offset_ms, __ATOMIC_ACQUIRE);
        time->tv_sec += step_ms / 1000; /* Whole seconds are all that the test steps by. */
    }
    return result;
}
