/* See redis_server.h. */
#include "lib/redis_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

int64_t redis_server_monotonic_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t redis_server_wall_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void redis_server_pause_ms(int64_t ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {
    }
}

uint16_t redis_server_free_port(void)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    (void)close(listener);
    return ntohs(address.sin_port);
}

static void run(struct redis_server *server)
{
    char port[8];
    char log[96];
    const char *arguments[64] = {"redis-server"};
    size_t count = 1;
    (void)snprintf(port, sizeof port, "%u", server->port);
    (void)snprintf(log, sizeof log, "%s/log", server->directory);
    const char *fixed[] = {"--port", port,    "--bind",       "127.0.0.1", "--unixsocket",
                           NULL,     "--dir", NULL,           "--logfile", log,
                           "--save", "",      "--appendonly", "no",        "--enable-debug-command",
                           "yes"};
    fixed[5] = server->socket;
    fixed[7] = server->directory;
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        arguments[count++] = fixed[i];
    }
    for (size_t i = 0; server->options[i] != NULL; i++) {
        arguments[count++] = server->options[i];
    }
    arguments[count] = NULL;
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
        (void)dup2(nothing, STDOUT_FILENO);
        (void)execvp("redis-server", (char *const *)arguments);
        _exit(127);
    }
    int64_t deadline_ms = redis_server_monotonic_ms() + 10000;
    const char *answer = NULL;
    while ((answer = redis_server_ask(server, "PING")) == NULL || answer[0] != 'P') {
        if (redis_server_monotonic_ms() > deadline_ms) {
            redis_server_stop(server);
            fail_msg("redis-server does not answer");
        }
        redis_server_pause_ms(5);
    }
}

void redis_server_start(struct redis_server *server, const char *const *options)
{
    *server = (struct redis_server){.password = server->password};
    for (size_t i = 0; options != NULL && options[i] != NULL; i++) {
        assert_true(i < REDIS_SERVER_OPTIONS_MAX);
        server->options[i] = options[i];
    }
    (void)snprintf(server->directory, sizeof server->directory, "/tmp/fcap-redis-XXXXXX");
    assert_non_null(mkdtemp(server->directory));
    (void)snprintf(server->socket, sizeof server->socket, "%s/redis.sock", server->directory);
    server->port = redis_server_free_port();
    run(server);
}

static void disconnect(struct redis_server *server)
{
    if (server->context != NULL) {
        redisFree(server->context);
        server->context = NULL;
    }
}

void redis_server_kill(struct redis_server *server)
{
    disconnect(server);
    if (server->pid > 0) {
        (void)kill(server->pid, SIGKILL);
        (void)waitpid(server->pid, NULL, 0);
        server->pid = 0;
        server->frozen = false;
    }
}

void redis_server_restart(struct redis_server *server, bool keep)
{
    char path[96];
    assert_int_equal(server->pid, 0);
    (void)snprintf(path, sizeof path, "%s/dump.rdb", server->directory);
    if (!keep) {
        (void)unlink(path); /* May not be there. */
    }
    run(server);
}

static int remove_one(const char *path, const struct stat *status, int flag, struct FTW *walk)
{
    (void)status;
    (void)flag;
    (void)walk;
    (void)remove(path);
    return 0;
}

void redis_server_stop(struct redis_server *server)
{
    redis_server_kill(server);
    if (server->directory[0] != '\0') {
        (void)nftw(server->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        server->directory[0] = '\0';
    }
    free(server->answer);
    server->answer = NULL;
}

void redis_server_freeze(struct redis_server *server)
{
    assert_int_equal(kill(server->pid, SIGSTOP), 0);
    int status = 0;
    assert_int_equal(waitpid(server->pid, &status, WUNTRACED), server->pid);
    assert_true(WIFSTOPPED(status));
    server->frozen = true;
}

void redis_server_thaw(struct redis_server *server)
{
    assert_int_equal(kill(server->pid, SIGCONT), 0);
    server->frozen = false;
}

bool redis_server_is_frozen(const struct redis_server *server)
{
    return server->frozen;
}

static const char *text_of(struct redis_server *server, const redisReply *reply)
{
    free(server->answer);
    server->answer = NULL;
    if (reply->type == REDIS_REPLY_NIL) {
        return NULL;
    }
    size_t size = reply->type == REDIS_REPLY_INTEGER ? 24 : reply->len + 2;
    server->answer = calloc(1, size);
    assert_non_null(server->answer);
    if (reply->type == REDIS_REPLY_INTEGER) {
        (void)snprintf(server->answer, size, "%lld", reply->integer);
    } else if (reply->type != REDIS_REPLY_ARRAY) {
        bool is_error = reply->type == REDIS_REPLY_ERROR;
        server->answer[0] = '-';
        memcpy(server->answer + is_error, reply->str, (size_t)reply->len);
    }
    return server->answer;
}

const char *redis_server_ask(struct redis_server *server, const char *format, ...)
{
    struct timeval patience = {.tv_sec = 10};
    const char *text = NULL;
    if (server->context == NULL) {
        redisContext *context = redisConnectWithTimeout("127.0.0.1", server->port, patience);
        if (context == NULL || context->err != 0) {
            redisFree(context);
            return NULL;
        }
        server->context = context;
        if (server->password != NULL) {
            freeReplyObject(redisCommand(context, "AUTH %s", server->password));
        }
    }
    va_list list;
    va_start(list, format);
    redisReply *reply = redisvCommand(server->context, format, list);
    va_end(list);
    if (reply == NULL) {
        disconnect(server);
        return NULL;
    }
    text = text_of(server, reply);
    freeReplyObject(reply);
    return text;
}
