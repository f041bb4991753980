/* See redis_server.h. */
#include "lab/redis_server.h"

#include "lab/lab.h"

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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
    lab_check(server->pid >= 0);
    if (server->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
        (void)dup2(nothing, STDOUT_FILENO);
        (void)execvp("redis-server", (char *const *)arguments);
        _exit(127);
    }
    int64_t deadline_ms = lab_monotonic_ms() + 10000;
    const char *answer = NULL;
    while ((answer = redis_server_ask(server, "PING")) == NULL || answer[0] != 'P') {
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            server->pid = 0;
            lab_die("redis-server ended at once: is it installed (Debian package redis-server)?");
        }
        if (lab_monotonic_ms() > deadline_ms) {
            redis_server_stop(server);
            lab_die("redis-server does not answer");
        }
        lab_pause_ms(5);
    }
}

void redis_server_start(struct redis_server *server, const char *const *options)
{
    *server = (struct redis_server){.password = server->password};
    for (size_t i = 0; options != NULL && options[i] != NULL; i++) {
        lab_check(i < REDIS_SERVER_OPTIONS_MAX);
        server->options[i] = options[i];
    }
    lab_folder_make("fcap-redis", server->directory, sizeof server->directory);
    (void)snprintf(server->socket, sizeof server->socket, "%s/redis.sock", server->directory);
    server->port = lab_free_port();
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
    lab_check(server->pid == 0);
    (void)snprintf(path, sizeof path, "%s/dump.rdb", server->directory);
    if (!keep) {
        (void)unlink(path); /* May not be there. */
    }
    run(server);
}

void redis_server_stop(struct redis_server *server)
{
    redis_server_kill(server);
    lab_folder_remove(server->directory);
    free(server->answer);
    server->answer = NULL;
}

void redis_server_freeze(struct redis_server *server)
{
    lab_check(kill(server->pid, SIGSTOP) == 0);
    int status = 0;
    lab_check(waitpid(server->pid, &status, WUNTRACED) == server->pid);
    lab_check(WIFSTOPPED(status));
    server->frozen = true;
}

void redis_server_thaw(struct redis_server *server)
{
    lab_check(kill(server->pid, SIGCONT) == 0);
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
    lab_check(server->answer != NULL);
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
