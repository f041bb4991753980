/* The other half of fcap/point.h, in fcapd-points alone. The environment, read once:
 *
 *   FCAP_STOP_AT=name:passes  stop at this pass of this point; further ones behind commas, each of
 *                             which counts from the stop before
 *   FCAP_STOP_FILE=path       then written, a line for each stop: "name passes"; the proof
 *   FCAP_DELAY_AT=name:ms     each pass of this point takes so long
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
#include <time.h>
#include <unistd.h>

static const char *const names[] = {
#define X(name, phase, lead, passes, text) #name,
    FCAP_POINT_LIST(X)
#undef X
};

#define STOPS_MAX 8

struct stop {
    enum fcap_point point;
    long passes;
    atomic_long passed;
};

static struct {
    struct stop stops[STOPS_MAX];
    size_t count;
    atomic_size_t next; /* stops that were made */
    const char *file;
    const char *when;
} wanted;
static struct {
    enum fcap_point point;
    long ms; /* 0: none is delayed */
} delayed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool counting;

_Noreturn static void give_up(const char *what)
{
    (void)fprintf(stderr, "fcapd-points: %s\n", what);
    abort();
}

/* "name:number", up to the next comma or the end; gives what is behind it. */
static const char *read_item(const char *at, enum fcap_point *ret_point, long *ret_number)
{
    const char *colon = strchr(at, ':');
    char *end = NULL;
    for (size_t i = 0; i < FCAP_POINT_COUNT && colon != NULL; i++) {
        if (strlen(names[i]) == (size_t)(colon - at) &&
            strncmp(names[i], at, strlen(names[i])) == 0) {
            *ret_point = (enum fcap_point)i;
            *ret_number = strtol(colon + 1, &end, 10);
        }
    }
    if (end == NULL || *ret_number < 1 || (*end != ',' && *end != '\0')) {
        give_up("FCAP_STOP_AT=name:passes,... and FCAP_DELAY_AT=name:ms are wanted");
    }
    return *end == ',' ? end + 1 : end;
}

static void read_environment(void)
{
    const char *at = getenv("FCAP_STOP_AT");
    wanted.file = getenv("FCAP_STOP_FILE");
    wanted.when = getenv("FCAP_STOP_WHEN");
    while (at != NULL && *at != '\0') {
        if (wanted.count == STOPS_MAX || wanted.file == NULL) {
            give_up("at most 8 stops, and FCAP_STOP_FILE");
        }
        struct stop *stop = &wanted.stops[wanted.count++];
        at = read_item(at, &stop->point, &stop->passes);
    }
    at = getenv("FCAP_DELAY_AT");
    if (at != NULL) {
        (void)read_item(at, &delayed.point, &delayed.ms); /* One is all that is wanted so far. */
    }
}

static void write_proof(const struct stop *stop)
{
    char text[64];
    int size = snprintf(text, sizeof text, "%s %ld\n", names[stop->point], stop->passes);
    bool is_first = stop == wanted.stops;
    int file =
        open(wanted.file, O_WRONLY | O_CREAT | O_CLOEXEC | (is_first ? O_EXCL : O_APPEND), 0600);
    if (file < 0 || write(file, text, (size_t)size) != size || close(file) != 0) {
        give_up("FCAP_STOP_FILE cannot be written");
    }
}

void fcap_point_reached(enum fcap_point point)
{
    (void)pthread_once(&once, read_environment);
    if (delayed.ms > 0 && point == delayed.point) {
        (void)nanosleep(&(struct timespec){delayed.ms / 1000, delayed.ms % 1000 * 1000000}, NULL);
    }
    size_t next = atomic_load(&wanted.next);
    if (next == wanted.count || point != wanted.stops[next].point) {
        return;
    }
    if (!atomic_load(&counting)) {
        if (wanted.when != NULL && access(wanted.when, F_OK) != 0) {
            return;
        }
        atomic_store(&counting, true);
    }
    struct stop *stop = &wanted.stops[next];
    if (atomic_fetch_add(&stop->passed, 1) + 1 == stop->passes) {
        write_proof(stop);
        (void)raise(SIGSTOP); /* To this thread: it stops here, and the process with it. */
        atomic_store(&wanted.next, next + 1);
    }
}
