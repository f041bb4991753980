#include "lab/lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FOLDERS_MAX 64

/* Folders to remove at exit, by the process that made them: a child that ends must not. */
static struct {
    char paths[FOLDERS_MAX][128];
    pid_t owner;
} folders;

_Noreturn void lab_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fprintf(stderr, "laboratory: ");
    (void)vfprintf(stderr, format, arguments);
    (void)fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

static int64_t clock_ms(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t lab_monotonic_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

int64_t lab_wall_ms(void)
{
    return clock_ms(CLOCK_REALTIME);
}

void lab_pause_ms(int64_t ms)
{
    struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
    }
}

uint16_t lab_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
        lab_die("no free port: %s", strerror(errno));
    }
    (void)close(listener);
    return ntohs(address.sin_port);
}

/* --- folders --------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *status, int flag, struct FTW *walk)
{
    (void)status;
    (void)flag;
    (void)walk;
    (void)remove(path); /* What cannot go stays. */
    return 0;
}

static void remove_all(void)
{
    for (size_t i = 0; folders.owner == getpid() && i < FOLDERS_MAX; i++) {
        if (folders.paths[i][0] != '\0') {
            (void)nftw(folders.paths[i], remove_one, 16, FTW_DEPTH | FTW_PHYS);
        }
    }
}

static char *find_folder(const char *path)
{
    for (size_t i = 0; i < FOLDERS_MAX; i++) {
        if (strcmp(folders.paths[i], path) == 0) {
            return folders.paths[i];
        }
    }
    return NULL;
}

void lab_folder_make(const char *name, char *path, size_t path_size)
{
    const char *parent = getenv("TMPDIR");
    int size = snprintf(
        path, path_size, "%s/%s-XXXXXX",
        parent == NULL || parent[0] == '\0' || strlen(parent) > 40 ? "/tmp" : parent, name);
    if (size < 0 || (size_t)size >= path_size || (size_t)size >= sizeof folders.paths[0] ||
        mkdtemp(path) == NULL) {
        lab_die("cannot make the folder %s: %s", path, strerror(errno));
    }
    if (folders.owner != getpid()) {
        memset(&folders, 0, sizeof folders);
        folders.owner = getpid();
        (void)atexit(remove_all); /* Without it folders stay; nothing else is lost. */
    }
    char *slot = find_folder("");
    if (slot == NULL) {
        lab_die("more than %d folders", FOLDERS_MAX);
    }
    memcpy(slot, path, (size_t)size + 1);
}

void lab_folder_remove(char *path)
{
    if (path[0] == '\0') {
        return;
    }
    char *slot = find_folder(path);
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (slot != NULL) {
        slot[0] = '\0';
    }
    path[0] = '\0';
}
