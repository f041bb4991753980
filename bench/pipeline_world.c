#include "pipeline.h"

#include "lab/claims.h"
#include "lab/lab.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_MS   60000
#define STOP_MS    60000
#define APPLIED_MS 180000
#define POLL_MS    100

void world_window_name(int64_t length_ms, char *text, size_t size)
{
    (void)snprintf(text, size, "%" PRId64 "s", length_ms / 1000);
}

/* --- ended early ------------------------------------------------------------------------------ */

static int signal_pipe[2];

static void on_signal(int number)
{
    char byte = (char)number;
    ssize_t written = write(signal_pipe[1], &byte, 1);
    (void)written; /* A full pipe has one already. */
}

/* exit() removes servers and folders; a signal handler must not call it, a thread may. */
static void *await_signal(void *context)
{
    char byte = 0;
    (void)context;
    while (read(signal_pipe[0], &byte, 1) != 1) {
    }
    (void)fputs("fcapd-bench pipeline: ended early\n", stderr);
    exit(128 + byte);
}

void world_end_on_signals(void)
{
    pthread_t thread;
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    lab_check(pipe2(signal_pipe, O_CLOEXEC) == 0);
    lab_check(pthread_create(&thread, NULL, await_signal, NULL) == 0);
    (void)pthread_detach(thread);
    lab_check(sigaction(SIGINT, &action, NULL) == 0);
    lab_check(sigaction(SIGTERM, &action, NULL) == 0);
}

/* --- its parts -------------------------------------------------------------------------------- */

static void find_program(struct world *world)
{
    const char *given = world->options.program;
    if (given != NULL) {
        (void)snprintf(world->program, sizeof world->program, "%s", given);
    } else {
        ssize_t size = readlink("/proc/self/exe", world->program, sizeof world->program - 8);
        lab_check(size > 0);
        world->program[size] = '\0';
        char *slash = strrchr(world->program, '/');
        lab_check(slash != NULL);
        memcpy(slash + 1, "fcapd", 6);
    }
    if (access(world->program, X_OK) != 0) {
        lab_die("%s: no program there: build fcapd, or name it with --fcapd", world->program);
    }
}

static void find_redis(struct world *world)
{
    char error[256];
    const char *given = world->options.redis;
    if (given == NULL) {
        redis_server_start(&world->redis, NULL);
        (void)snprintf(world->redis_host, sizeof world->redis_host, "127.0.0.1");
        world->redis_port = world->redis.port;
    } else {
        const char *colon = strrchr(given, ':');
        long port = colon == NULL ? 0 : strtol(colon + 1, NULL, 10);
        if (port < 1 || port > 65535) {
            lab_die("--redis %s: host:port is meant", given);
        }
        (void)snprintf(world->redis_host, sizeof world->redis_host, "%.*s", (int)(colon - given),
                       given);
        world->redis_port = (uint16_t)port;
    }
    world->reader = redis_reader_open(world->redis_host, world->redis_port, error, sizeof error);
    if (world->reader == NULL) {
        lab_die("Redis at %s:%u: %s", world->redis_host, world->redis_port, error);
    }
}

static void find_kafka(struct world *world)
{
    static const char *const config[] = {"retention.ms", "-1", NULL};
    if (world->options.brokers == NULL) {
        world->broker = kafka_broker_start_long();
    }
    (void)snprintf(world->brokers, sizeof world->brokers, "%s",
                   world->broker != NULL ? kafka_broker_address(world->broker)
                                         : world->options.brokers);
    if (!kafka_answers(world->brokers, START_MS)) {
        lab_die("--brokers %s: no answer", world->brokers);
    }
    kafka_create_topic(world->brokers, world->topic, world->options.partitions, config);
}

static void configure(struct world *world)
{
    char yaml[4096];
    (void)snprintf(yaml, sizeof yaml,
                   "profile: %s\n"
                   "instance: one\n"
                   "workers: %u\n"
                   "windows: [%s, %s, %s]\n"
                   "kafka:\n"
                   "  brokers: %s\n"
                   "  topic: %s\n"
                   "redis:\n"
                   "  host: %s\n"
                   "  port: %u\n"
                   "  key: \"%s:{%%u}:%%w\"\n",
                   world->profile, world->options.workers, world->window_names[0],
                   world->window_names[1], world->window_names[2], world->brokers, world->topic,
                   world->redis_host, world->redis_port, world->prefix);
    daemon_process_init(&world->daemon, world->program, yaml);
}

void world_open(struct world *world, const struct pipeline_options *options)
{
    *world = (struct world){.options = *options};
    if (options->directory != NULL) {
        lab_check(setenv("TMPDIR", options->directory, 1) == 0);
    }
    for (size_t i = 0; i < PIPELINE_WINDOWS; i++) {
        world_window_name(options->windows_ms[i], world->window_names[i],
                          sizeof world->window_names[i]);
    }
    (void)snprintf(world->profile, sizeof world->profile, "bench-%d", (int)getpid());
    (void)snprintf(world->prefix, sizeof world->prefix, "b%d", (int)getpid());
    (void)snprintf(world->topic, sizeof world->topic, "fcapd-bench-%d", (int)getpid());
    find_program(world);
    find_redis(world);
    find_kafka(world);
    configure(world);
    world->feed = feed_open(options, world->brokers, world->topic);
}

/* What a Redis of somebody else keeps nothing of. */
static void remove_keys(struct world *world)
{
    char pattern[64];
    (void)snprintf(pattern, sizeof pattern, "%s:*", world->prefix);
    (void)redis_reader_remove(world->reader, pattern);
    (void)snprintf(pattern, sizeof pattern, "fc:meta:%s:*", world->profile);
    (void)redis_reader_remove(world->reader, pattern);
    (void)snprintf(pattern, sizeof pattern, "fc:epoch:%s:*", world->profile);
    (void)redis_reader_remove(world->reader, pattern);
}

void world_forget(struct world *world)
{
    char path[128];
    lab_check(world->daemon.pid == 0);
    (void)snprintf(path, sizeof path, "%s/state", world->daemon.directory);
    lab_folder_remove(path);
    remove_keys(world);
}

void world_close(struct world *world)
{
    daemon_process_done(&world->daemon);
    feed_close(world->feed);
    if (world->options.redis != NULL) {
        remove_keys(world);
    }
    redis_reader_close(world->reader);
    if (world->broker == NULL) {
        kafka_delete_topic(world->brokers, world->topic);
    }
    kafka_broker_stop(world->broker);
    if (world->options.redis == NULL) {
        redis_server_stop(&world->redis);
    }
}

int pipeline_main(const struct pipeline_command *command, int argc, char **argv)
{
    struct pipeline_options options;
    int code = 0;
    if (!pipeline_options_parse(command, argc, argv, &options, &code)) {
        return code;
    }
    struct world *world = calloc(1, sizeof *world);
    lab_check(world != NULL);
    world_end_on_signals();
    world_open(world, &options);
    code = command->run(world);
    world_close(world);
    free(world);
    return code;
}

void world_start(struct world *world)
{
    struct reading reading;
    int64_t until_ms = lab_monotonic_ms() + START_MS;
    daemon_process_start(&world->daemon, NULL);
    while (!reading_take(world, &reading) || reading.gates_open < world->options.partitions) {
        if (lab_monotonic_ms() > until_ms) {
            lab_die("the daemon has opened no gate\n%s", daemon_process_log(&world->daemon));
        }
        lab_pause_ms(POLL_MS);
    }
}

void world_stop(struct world *world)
{
    daemon_process_signal(&world->daemon, SIGTERM);
    int code = daemon_process_wait(&world->daemon, STOP_MS);
    if (code != 0) {
        lab_die("the daemon ended with %d\n%s", code, daemon_process_log(&world->daemon));
    }
}

static bool is_applied(struct world *world)
{
    char key[96];
    (void)snprintf(key, sizeof key, "fc:meta:%s:one", world->profile);
    const char *meta = redis_reader_text(world->reader, key);
    for (int32_t i = 0; i < world->options.partitions; i++) {
        struct claim claim;
        if (!claim_read(meta, i, &claim) || claim.next < feed_end(world->feed, i)) {
            return false;
        }
    }
    return true;
}

void world_await_applied(struct world *world)
{
    int64_t until_ms = lab_monotonic_ms() + APPLIED_MS;
    feed_flush(world->feed);
    while (!is_applied(world)) {
        if (lab_monotonic_ms() > until_ms) {
            lab_die("the daemon does not claim what Kafka has acknowledged\n%s",
                    daemon_process_log(&world->daemon));
        }
        lab_pause_ms(POLL_MS);
    }
}
