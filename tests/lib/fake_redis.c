/* See fake_redis.h. */
#include "lib/fake_redis.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLIENTS_MAX = 16, ARGUMENTS_MAX = 8, INPUT_BYTES = 1 << 20 };

struct client {
    int socket; /* -1: free */
    char *input;
    size_t size;
};

struct command {
    size_t count;
    const char *arguments[ARGUMENTS_MAX]; /* terminated in place */
};

static void answer_text(struct fake_redis *fake, int socket, const char *text, size_t size)
{
    size_t step = atomic_load(&fake->split) ? 1 : size;
    for (size_t at = 0; at < size; at += step) {
        size_t left = size - at < step ? size - at : step;
        if (send(socket, text + at, left, MSG_NOSIGNAL) < 0) {
            return; /* The client has gone; its next read says so. */
        }
    }
}

static void answer(struct fake_redis *fake, int socket, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void answer(struct fake_redis *fake, int socket, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    int size = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    answer_text(fake, socket, text, (size_t)size);
}

static void answer_bulk(struct fake_redis *fake, int socket, const char *text)
{
    answer(fake, socket, "$%zu\r\n%s\r\n", strlen(text), text);
}

static void answer_info(struct fake_redis *fake, int socket)
{
    char text[512];
    const char *version = atomic_load(&fake->version);
    const char *run_id = atomic_load(&fake->run_id);
    (void)snprintf(text, sizeof text,
                   "# Server\r\n%s%s%s%s%s%sloading:%d\r\nrole:master\r\n"
                   "maxmemory_policy:noeviction\r\n",
                   version == NULL ? "" : "redis_version:", version == NULL ? "" : version,
                   version == NULL ? "" : "\r\n",
                   run_id == NULL ? "" : "run_id:", run_id == NULL ? "" : run_id,
                   run_id == NULL ? "" : "\r\n", (int)atomic_load(&fake->loading));
    answer_bulk(fake, socket, text);
}

static void answer_client(struct fake_redis *fake, int socket, const struct command *command)
{
    char text[256];
    const char *word = command->count > 1 ? command->arguments[1] : "";
    if (strcasecmp(word, "SETNAME") == 0) {
        (void)snprintf(fake->name, sizeof fake->name, "%s", command->arguments[2]);
        answer(fake, socket, "+OK\r\n");
    } else if (strcasecmp(word, "ID") == 0) {
        answer(fake, socket, ":%d\r\n", socket);
    } else if (strcasecmp(word, "LIST") == 0) {
        (void)snprintf(text, sizeof text, "id=%d addr=1.2.3.4:5 name=%s age=0\n", socket,
                       fake->name);
        answer_bulk(fake, socket, text);
    } else {
        answer(fake, socket, ":0\r\n");
    }
}

static void answer_set(struct fake_redis *fake, int socket, const struct command *command)
{
    const char *key = command->arguments[1];
    const char *error = atomic_load(&fake->error);
    if (key[0] == 'k') {
        atomic_fetch_add(&fake->sets, 1);
    }
    if (command->count > 3 && strcmp(command->arguments[3], "PXAT") == 0 &&
        !atomic_load(&fake->knows_pxat)) {
        answer(fake, socket, "-ERR syntax error\r\n");
    } else if (key[0] == 'k' && error != NULL) {
        answer(fake, socket, "-%s\r\n", error);
    } else if (strcmp(key, "fc:id") == 0 && fake->sentinel[0] != '\0') {
        answer(fake, socket, "$-1\r\n");
    } else {
        if (strcmp(key, "fc:id") == 0) {
            (void)snprintf(fake->sentinel, sizeof fake->sentinel, "%s", command->arguments[2]);
        }
        answer(fake, socket, "+OK\r\n");
    }
}

static void serve(struct fake_redis *fake, int socket, const struct command *command)
{
    const char *word = command->arguments[0];
    if (atomic_load(&fake->silent)) {
        return;
    }
    if (atomic_load(&fake->garbage)) {
        answer(fake, socket, "HTTP/1.1 400 Bad Request\r\n\r\n");
    } else if (strcasecmp(word, "CLIENT") == 0) {
        answer_client(fake, socket, command);
    } else if (strcasecmp(word, "INFO") == 0) {
        answer_info(fake, socket);
    } else if (atomic_load(&fake->loading)) {
        answer(fake, socket, "-LOADING Redis is loading the dataset in memory\r\n");
    } else if (strcasecmp(word, "TIME") == 0) {
        struct timespec now;
        char seconds[24];
        (void)clock_gettime(CLOCK_REALTIME, &now);
        int size = snprintf(seconds, sizeof seconds, "%lld", (long long)now.tv_sec);
        answer(fake, socket, "*2\r\n$%d\r\n%s\r\n$6\r\n%06ld\r\n", size, seconds,
               now.tv_nsec / 1000);
    } else if (strcasecmp(word, "SET") == 0) {
        answer_set(fake, socket, command);
    } else if (strcasecmp(word, "GET") == 0) {
        answer_bulk(fake, socket, fake->sentinel);
    } else if (strcasecmp(word, "INCR") == 0 || strcasecmp(word, "UNLINK") == 0) {
        answer(fake, socket, ":1\r\n");
    } else {
        answer(fake, socket, "+OK\r\n");
    }
}

/* One whole command at the front of `input` (terminated); returns its size, 0: not whole yet. */
static size_t parse(char *input, size_t size, struct command *ret_command)
{
    char *at = input;
    char *end = input + size;
    char *line = memchr(at, '\n', size);
    if (line == NULL) {
        return 0;
    }
    size_t count = (size_t)strtoul(at + 1, NULL, 10);
    at = line + 1;
    *ret_command = (struct command){.count = count};
    for (size_t i = 0; i < count; i++) {
        line = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (line == NULL) {
            return 0;
        }
        size_t length = (size_t)strtoul(at + 1, NULL, 10);
        at = line + 1;
        if ((size_t)(end - at) < length + 2) {
            return 0;
        }
        if (i < ARGUMENTS_MAX) {
            ret_command->arguments[i] = at;
        }
        at += length + 2;
    }
    /* Whole: terminate each (over its \r). */
    for (size_t i = 0; i < count && i < ARGUMENTS_MAX; i++) {
        char *argument = (char *)ret_command->arguments[i];
        char *head = argument - 2;
        while (*head != '$') {
            head--;
        }
        argument[strtoul(head + 1, NULL, 10)] = '\0';
    }
    return (size_t)(at - input);
}

static void drop_client(struct client *client)
{
    (void)close(client->socket);
    client->socket = -1;
    client->size = 0;
}

static void read_client(struct fake_redis *fake, struct client *client)
{
    ssize_t got = recv(client->socket, client->input + client->size, INPUT_BYTES - client->size, 0);
    if (got <= 0) {
        drop_client(client);
        return;
    }
    client->size += (size_t)got;
    struct command command;
    size_t used = 0;
    size_t one = 0;
    while (used < client->size &&
           (one = parse(client->input + used, client->size - used, &command)) > 0) {
        serve(fake, client->socket, &command);
        used += one;
    }
    memmove(client->input, client->input + used, client->size - used);
    client->size -= used;
}

static void accept_client(struct fake_redis *fake, struct client *clients)
{
    int socket = accept(fake->listener, NULL, NULL);
    int yes = 1;
    const char *greeting = atomic_load(&fake->greeting);
    if (socket < 0) {
        return;
    }
    (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    atomic_fetch_add(&fake->connections, 1);
    if (greeting != NULL) {
        answer(fake, socket, "-%s\r\n", greeting);
        (void)shutdown(socket, SHUT_WR);
    }
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        if (clients[i].socket < 0) {
            clients[i].socket = socket;
            return;
        }
    }
    (void)close(socket);
}

static void *run(void *argument)
{
    struct fake_redis *fake = argument;
    struct client clients[CLIENTS_MAX];
    struct pollfd watched[CLIENTS_MAX + 2];
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        clients[i] = (struct client){.socket = -1, .input = malloc(INPUT_BYTES)};
    }
    for (;;) {
        watched[0] = (struct pollfd){.fd = fake->stop[0], .events = POLLIN};
        watched[1] = (struct pollfd){.fd = fake->listener, .events = POLLIN};
        for (size_t i = 0; i < CLIENTS_MAX; i++) {
            watched[i + 2] = (struct pollfd){.fd = clients[i].socket, .events = POLLIN};
        }
        (void)poll(watched, CLIENTS_MAX + 2, -1);
        if (watched[0].revents != 0) {
            break;
        }
        for (size_t i = 0; i < CLIENTS_MAX; i++) {
            if (clients[i].socket >= 0 && watched[i + 2].revents != 0) {
                read_client(fake, &clients[i]);
            }
        }
        if (watched[1].revents != 0) {
            accept_client(fake, clients);
        }
    }
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        if (clients[i].socket >= 0) {
            (void)close(clients[i].socket);
        }
        free(clients[i].input);
    }
    return NULL;
}

void fake_redis_start(struct fake_redis *fake)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    memset(fake, 0, sizeof *fake);
    atomic_store(&fake->version, "7.0.15");
    atomic_store(&fake->run_id, "0123456789012345678901234567890123456789");
    atomic_store(&fake->knows_pxat, true);
    fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fake->listener >= 0);
    assert_int_equal(bind(fake->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fake->listener, 16), 0);
    assert_int_equal(getsockname(fake->listener, (struct sockaddr *)&address, &size), 0);
    fake->port = ntohs(address.sin_port);
    assert_int_equal(pipe(fake->stop), 0);
    assert_int_equal(pthread_create(&fake->thread, NULL, run, fake), 0);
}

void fake_redis_stop(struct fake_redis *fake)
{
    if (fake->port == 0) {
        return;
    }
    assert_int_equal(write(fake->stop[1], "x", 1), 1);
    (void)pthread_join(fake->thread, NULL);
    (void)close(fake->stop[0]);
    (void)close(fake->stop[1]);
    (void)close(fake->listener);
    fake->port = 0;
}
