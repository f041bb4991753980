/* The other half of fcap/point.h, in fcapd-points alone. The environment, read once:
 *
 *   FCAP_STOP_AT=name:passes  stop at this pass of this point
 *   FCAP_STOP_FILE=path       then written: "name passes"; the proof that it was there
 *   FCAP_STOP_WHEN=path       passes count from when this file exists; unset: from the start */
#include "fcap/point.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {
#define X(name, phase, lead, passes, text) #name,
    FCAP_POINT_LIST(X)
#undef X
};

static struct {
    enum fcap_point point; /* FCAP_POINT_COUNT: none */
    long passes;
    const char *file;
    const char *when;
} wanted = {FCAP_POINT_COUNT, 0, NULL, NULL};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool counting;
static atomic_long passed;

_Noreturn static void give_up(const char *what)
{
    (void)fprintf(stderr, "fcapd-points: %s\n", what);
    abort();
}

static void read_environment(void)
{
    const char *at = getenv("FCAP_STOP_AT");
    wanted.file = getenv("FCAP_STOP_FILE");
    wanted.when = getenv("FCAP_STOP_WHEN");
    if (at == NULL) {
        return;
    }
    const char *colon = strchr(at, ':');
    for (size_t i = 0; i < FCAP_POINT_COUNT && colon != NULL; i++) {
        if (strlen(names[i]) == (size_t)(colon - at) &&
            strncmp(names[i], at, strlen(names[i])) == 0) {
            wanted.point = (enum fcap_point)i;
            wanted.passes = strtol(colon + 1, NULL, 10);
        }
    }
    if (wanted.point == FCAP_POINT_COUNT || wanted.passes < 1 || wanted.file == NULL) {
        give_up("FCAP_STOP_AT=name:passes and FCAP_STOP_FILE are wanted");
    }
}

static void write_proof(enum fcap_point point)
{
    char text[64];
    int size = snprintf(text, sizeof text, "%s %ld\n", names[point], wanted.passes);
    int file = open(wanted.file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0 || write(file, text, (size_t)size) != size || close(file) != 0) {
        give_up("FCAP_STOP_FILE cannot be written");
    }
}

void fcap_point_reached(enum fcap_point point)
{
    (void)pthread_once(&once, read_environment);
    if (point != wanted.point) {
        return;
    }
    if (!atomic_load(&counting)) {
        if (wanted.when != NULL && access(wanted.when, F_OK) != 0) {
            return;
        }
        atomic_store(&counting, true);
    }
    if (atomic_fetch_add(&passed, 1) + 1 == wanted.passes) {
        write_proof(point);
        (void)raise(SIGSTOP); /* To this thread: it stops here, and the process with it. */
    }
}
