#include "lab/kafka_broker.h"

#include "lab/kafka_client.h"
#include "lab/lab.h"

#include <errno.h>
#include <fcntl.h>
#include <librdkafka/rdkafka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 180000
#define STOP_MS  10000

struct kafka_broker {
    char folder[256];
    char lib[512];
    char address[64];
    int port;
    int controller_port;
    bool is_long; /* it lives for minutes */
    pid_t pid;    /* 0: not running */
};

static struct kafka_broker *shared; /* of kafka_test_brokers() */
static struct kafka_broker *started[8];
static pid_t owner; /* a forked child must not stop its parent's brokers */

const char *kafka_broker_lib(char *why, size_t why_size)
{
    static char lib[512];
    const char *set = getenv("FCAP_KAFKA_LIB");
    const char *home = getenv("HOME");
    char mark[600];
    if (set != NULL && set[0] != '\0') {
        (void)snprintf(lib, sizeof lib, "%s", set);
    } else {
        (void)snprintf(lib, sizeof lib, "%s/.cache/fcapd-tests/kafka-4.1.1",
                       home != NULL ? home : "/root");
    }
    (void)snprintf(mark, sizeof mark, "%s/.complete", lib);
    if (access(mark, R_OK) != 0) {
        (void)snprintf(why, why_size, "no broker jars in %s; tests/kafka/fetch.sh puts them there",
                       lib);
        return NULL;
    }
    return lib;
}

static void write_properties(const struct kafka_broker *broker)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/server.properties", broker->folder);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        lab_die("%s: %s", path, strerror(errno));
    }
    (void)fprintf(file,
                  "process.roles=broker,controller\n"
                  "node.id=1\n"
                  "controller.quorum.voters=1@127.0.0.1:%d\n"
                  "listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d\n"
                  "advertised.listeners=PLAINTEXT://127.0.0.1:%d\n"
                  "controller.listener.names=CONTROLLER\n"
                  "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
                  "log.dirs=%s/data\n",
                  broker->controller_port, broker->port, broker->controller_port, broker->port,
                  broker->folder);
    (void)fprintf(file, "auto.create.topics.enable=false\n"
                        "offsets.topic.replication.factor=1\n"
                        "offsets.topic.num.partitions=1\n"
                        "transaction.state.log.replication.factor=1\n"
                        "transaction.state.log.min.isr=1\n"
                        "transaction.state.log.num.partitions=1\n"
                        "share.coordinator.state.topic.replication.factor=1\n"
                        "share.coordinator.state.topic.min.isr=1\n"
                        "group.initial.rebalance.delay.ms=0\n"
                        "group.min.session.timeout.ms=1000\n"
                        "log.retention.ms=-1\n"
                        "log.message.timestamp.before.max.ms=9223372036854775807\n"
                        "log.message.timestamp.after.max.ms=9223372036854775807\n"
                        "broker.session.timeout.ms=3000\n"
                        "broker.heartbeat.interval.ms=500\n"
                        "message.max.bytes=10000000\n");
    if (fclose(file) != 0) {
        lab_die("%s: %s", path, strerror(errno));
    }
}

/* Runs java with this program's death as its own, output to broker.log. */
static pid_t run_java(const struct kafka_broker *broker, char *const *arguments)
{
    char path[512];
    pid_t parent = getpid();
    (void)snprintf(path, sizeof path, "%s/broker.log", broker->folder);
    pid_t pid = fork();
    if (pid < 0) {
        lab_die("fork: %s", strerror(errno));
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
        (void)execvp("java", arguments);
        _exit(127);
    }
    return pid;
}

static void format_storage(const struct kafka_broker *broker, const char *class_path,
                           const char *properties)
{
    char *const arguments[] = {"java",
                               "-cp",
                               (char *)(uintptr_t)class_path,
                               "kafka.tools.StorageTool",
                               "format",
                               "-t",
                               "ZmNhcGRfdGVzdHNfMDAwMQ",
                               "-c",
                               (char *)(uintptr_t)properties,
                               NULL};
    int result = 0;
    pid_t pid = run_java(broker, arguments);
    if (waitpid(pid, &result, 0) != pid || result != 0) {
        lab_die("kafka.tools.StorageTool failed (%d): see %s/broker.log", result, broker->folder);
    }
}

static void wait_until_ready(struct kafka_broker *broker)
{
    int64_t until_ms = lab_monotonic_ms() + START_MS;
    rd_kafka_t *client = kafka_client_open(broker->address, RD_KAFKA_PRODUCER);
    for (;;) {
        const struct rd_kafka_metadata *metadata = NULL;
        rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, NULL, &metadata, 500);
        bool ready = error == RD_KAFKA_RESP_ERR_NO_ERROR && metadata->broker_cnt == 1;
        if (metadata != NULL) {
            rd_kafka_metadata_destroy(metadata);
        }
        if (ready) {
            break;
        }
        if (waitpid(broker->pid, NULL, WNOHANG) == broker->pid || lab_monotonic_ms() > until_ms) {
            lab_die("the broker did not start: see %s/broker.log", broker->folder);
        }
        lab_pause_ms(50);
    }
    rd_kafka_destroy(client);
}

static void launch(struct kafka_broker *broker)
{
    char class_path[600];
    char properties[512];
    (void)snprintf(class_path, sizeof class_path, "%s/*", broker->lib);
    (void)snprintf(properties, sizeof properties, "%s/server.properties", broker->folder);
    /* In a short life the second compiler takes more time than it ever gives back. */
    const char *compilers = broker->is_long ? "-XX:+TieredCompilation" : "-XX:TieredStopAtLevel=1";
    char *const arguments[] = {"java",
                               "-Xmx768m",
                               (char *)(uintptr_t)compilers,
                               "-XX:+UseSerialGC",
                               "-cp",
                               class_path,
                               "kafka.Kafka",
                               properties,
                               NULL};
    struct stat found;
    char data[512];
    (void)snprintf(data, sizeof data, "%s/data/meta.properties", broker->folder);
    if (stat(data, &found) != 0) {
        format_storage(broker, class_path, properties);
    }
    broker->pid = run_java(broker, arguments);
    wait_until_ready(broker);
}

static void stop_all(void)
{
    for (size_t i = 0; i < sizeof started / sizeof started[0] && owner == getpid(); i++) {
        if (started[i] != NULL) {
            kafka_broker_stop(started[i]);
        }
    }
}

static void remember(struct kafka_broker *broker)
{
    if (owner == 0) {
        owner = getpid();
        (void)atexit(stop_all);
    }
    for (size_t i = 0; i < sizeof started / sizeof started[0]; i++) {
        if (started[i] == NULL) {
            started[i] = broker;
            return;
        }
    }
    lab_die("too many brokers");
}

static struct kafka_broker *start_broker(bool is_long)
{
    char why[700];
    const char *lib = kafka_broker_lib(why, sizeof why);
    if (lib == NULL) {
        const char *ci = getenv("CI");
        const char *no_skip = getenv("FCAP_NO_SKIP");
        bool must = (ci != NULL && strcmp(ci, "true") == 0) ||
                    (no_skip != NULL && strcmp(no_skip, "1") == 0);
        (void)fprintf(stderr, "%s: %s\n", must ? "FAILED" : "skipped", why);
        exit(must ? 1 : KAFKA_BROKER_SKIP);
    }
    struct kafka_broker *broker = calloc(1, sizeof *broker);
    if (broker == NULL) {
        lab_die("no memory");
    }
    broker->is_long = is_long;
    (void)snprintf(broker->lib, sizeof broker->lib, "%s", lib);
    lab_folder_make("fcap-kafka", broker->folder, sizeof broker->folder);
    broker->port = lab_free_port();
    broker->controller_port = lab_free_port();
    (void)snprintf(broker->address, sizeof broker->address, "127.0.0.1:%d", broker->port);
    write_properties(broker);
    remember(broker);
    launch(broker);
    return broker;
}

struct kafka_broker *kafka_broker_start(void)
{
    return start_broker(false);
}

struct kafka_broker *kafka_broker_start_long(void)
{
    return start_broker(true);
}

void kafka_broker_kill(struct kafka_broker *broker)
{
    if (broker->pid > 0) {
        (void)kill(broker->pid, SIGKILL);
        (void)waitpid(broker->pid, NULL, 0);
        broker->pid = 0;
    }
}

void kafka_broker_restart(struct kafka_broker *broker)
{
    launch(broker);
}

void kafka_broker_stop(struct kafka_broker *broker)
{
    if (broker == NULL) {
        return;
    }
    int64_t until_ms = lab_monotonic_ms() + STOP_MS;
    if (broker->pid > 0) {
        (void)kill(broker->pid, SIGTERM);
        while (waitpid(broker->pid, NULL, WNOHANG) == 0 && lab_monotonic_ms() < until_ms) {
            lab_pause_ms(20);
        }
        if (lab_monotonic_ms() >= until_ms) {
            kafka_broker_kill(broker);
        }
    }
    for (size_t i = 0; i < sizeof started / sizeof started[0]; i++) {
        started[i] = started[i] == broker ? NULL : started[i];
    }
    lab_folder_remove(broker->folder);
    free(broker);
}

const char *kafka_broker_address(const struct kafka_broker *broker)
{
    return broker->address;
}

pid_t kafka_broker_pid(const struct kafka_broker *broker)
{
    return broker->pid;
}

const char *kafka_test_brokers(void)
{
    const char *given = getenv("FCAP_TEST_BROKERS");
    if (given != NULL && given[0] != '\0') {
        return given;
    }
    if (shared == NULL) {
        shared = kafka_broker_start();
    }
    return shared->address;
}
