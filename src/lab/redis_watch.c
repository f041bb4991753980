#include "lab/redis_watch.h"

#include "lab/lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 20)
#define LINE_MAX     ((size_t)64 << 20) /* A value is far smaller. */
#define PATIENCE_S   60

struct redis_watch {
    struct redis_server *server;
    struct redis_ledger *ledger;
    int socket;
    pthread_t thread;
    char *buffer; /* size + 1 bytes */
    size_t capacity;
    size_t size;
    pthread_mutex_t lock;
    pthread_cond_t seen_more;
    unsigned long asked; /* marks sent; the holder's */
    unsigned long seen;  /* the newest mark that came back; under the lock, as what follows */
    bool is_lost;
    bool ends;
};

/* A mark is an ECHO of the watch's own: what came before it has been entered. */
static void mark_text(const struct redis_watch *watch, char *text, size_t size)
{
    (void)snprintf(text, size, "fcap-watch-%p-", (const void *)watch);
}

static void take_line(struct redis_watch *watch, char *line, size_t size)
{
    struct redis_command command;
    char mark[48];
    if (size > 0 && line[size - 1] == '\r') {
        size--;
    }
    if (size < 2 || line[0] != '+') {
        redis_ledger_unreadable(watch->ledger, "a line without a command");
        return;
    }
    if (!redis_monitor_read(line + 1, size - 1, &command)) {
        redis_ledger_unreadable(watch->ledger, line + 1);
        return;
    }
    mark_text(watch, mark, sizeof mark);
    if (redis_command_has(&command, 0, "ECHO") && command.count == 2 &&
        strncmp(command.words[1].text, mark, strlen(mark)) == 0) {
        watch->seen = strtoul(command.words[1].text + strlen(mark), NULL, 10);
        return;
    }
    redis_ledger_take(watch->ledger, &command);
}

/* Takes the whole lines of the buffer out of it. */
static void take_lines(struct redis_watch *watch)
{
    char *at = watch->buffer;
    char *stop = watch->buffer + watch->size;
    char *end;
    while ((end = memchr(at, '\n', (size_t)(stop - at))) != NULL) {
        take_line(watch, at, (size_t)(end - at));
        at = end + 1;
    }
    watch->size = (size_t)(stop - at);
    memmove(watch->buffer, at, watch->size);
}

/* Room for more in the buffer; false: the line is too long. */
static bool make_room(struct redis_watch *watch)
{
    if (watch->size < watch->capacity) {
        return true;
    }
    if (watch->capacity >= LINE_MAX) {
        return false;
    }
    watch->capacity *= 2;
    watch->buffer = realloc(watch->buffer, watch->capacity + 1);
    lab_check(watch->buffer != NULL);
    return true;
}

static ssize_t read_some(struct redis_watch *watch)
{
    ssize_t got;
    do {
        got = read(watch->socket, watch->buffer + watch->size, watch->capacity - watch->size);
    } while (got < 0 && errno == EINTR);
    return got;
}

static void *look(void *context)
{
    struct redis_watch *watch = context;
    for (;;) {
        bool has_room = make_room(watch);
        ssize_t got = has_room ? read_some(watch) : 0;
        (void)pthread_mutex_lock(&watch->lock);
        if (got > 0) {
            watch->size += (size_t)got;
            take_lines(watch);
        } else if (!watch->ends) {
            redis_ledger_unreadable(watch->ledger, has_room ? "the watch has lost its connection"
                                                            : "a line of more than 64 MiB");
        }
        watch->is_lost = got <= 0;
        (void)pthread_cond_broadcast(&watch->seen_more);
        (void)pthread_mutex_unlock(&watch->lock);
        if (got <= 0) {
            return NULL;
        }
    }
}

/* Connects, and reads the answer to MONITOR; what follows it may be in the buffer already. */
static void begin(struct redis_watch *watch)
{
    static const char monitor[] = "MONITOR\r\n";
    static const char answer[] = "+OK\r\n";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(watch->server->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    watch->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    lab_check(watch->socket >= 0);
    lab_check(connect(watch->socket, (const struct sockaddr *)&address, sizeof address) == 0);
    lab_check(write(watch->socket, monitor, sizeof monitor - 1) == (ssize_t)sizeof monitor - 1);
    while (watch->size < sizeof answer - 1) {
        ssize_t got = read_some(watch);
        if (got <= 0) {
            lab_die("Redis does not answer to MONITOR");
        }
        watch->size += (size_t)got;
    }
    if (memcmp(watch->buffer, answer, sizeof answer - 1) != 0) {
        lab_die("Redis does not do MONITOR: %.*s", (int)watch->size, watch->buffer);
    }
    watch->size -= sizeof answer - 1;
    memmove(watch->buffer, watch->buffer + sizeof answer - 1, watch->size);
    take_lines(watch);
}

struct redis_watch *redis_watch_open(struct redis_server *server,
                                     const struct redis_ledger_options *options)
{
    struct redis_watch *watch = calloc(1, sizeof *watch);
    lab_check(watch != NULL);
    watch->server = server;
    watch->ledger = redis_ledger_open(options);
    watch->capacity = BUFFER_BYTES;
    watch->buffer = malloc(watch->capacity + 1);
    lab_check(watch->buffer != NULL);
    lab_check(pthread_mutex_init(&watch->lock, NULL) == 0);
    lab_check(pthread_cond_init(&watch->seen_more, NULL) == 0);
    begin(watch);
    lab_check(pthread_create(&watch->thread, NULL, look, watch) == 0);
    return watch;
}

void redis_watch_close(struct redis_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&watch->lock);
    watch->ends = true;
    (void)pthread_mutex_unlock(&watch->lock);
    (void)shutdown(watch->socket, SHUT_RDWR); /* Its read ends. */
    (void)pthread_join(watch->thread, NULL);
    (void)close(watch->socket);
    redis_ledger_close(watch->ledger);
    (void)pthread_cond_destroy(&watch->seen_more);
    (void)pthread_mutex_destroy(&watch->lock);
    free(watch->buffer);
    free(watch);
}

struct redis_ledger *redis_watch_hold(struct redis_watch *watch)
{
    char mark[48];
    struct timespec until;
    mark_text(watch, mark, sizeof mark);
    watch->asked++;
    if (watch->server->pid != 0) {
        (void)redis_server_ask(watch->server, "ECHO %s%lu", mark, watch->asked);
    }
    lab_check(clock_gettime(CLOCK_REALTIME, &until) == 0);
    until.tv_sec += PATIENCE_S;
    (void)pthread_mutex_lock(&watch->lock);
    while (watch->seen < watch->asked && !watch->is_lost) {
        if (pthread_cond_timedwait(&watch->seen_more, &watch->lock, &until) != 0) {
            lab_die("the watch of Redis has not met its mark for %d s", PATIENCE_S);
        }
    }
    return watch->ledger;
}

void redis_watch_release(struct redis_watch *watch)
{
    (void)pthread_mutex_unlock(&watch->lock);
}
