#include "kafka_member.h"

#include "fcap/source_kafka.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MEMBER_WORD "--member"

struct member {
    struct member_shared *shared;
    struct fcap_source *port;
    uint64_t token[MEMBER_PARTITIONS]; /* ours, of the newest assignment; 0: not owned */
    bool started[MEMBER_PARTITIONS];
};

static volatile sig_atomic_t stop;

static void on_term(int signal_number)
{
    (void)signal_number;
    stop = 1;
}

_Noreturn static void die(const char *what)
{
    perror(what);
    exit(1);
}

static struct member_shared *map(const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)sizeof(struct member_shared)) != 0) {
        die(path);
    }
    void *memory =
        mmap(NULL, sizeof(struct member_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        die("mmap");
    }
    (void)close(fd);
    return memory;
}

struct member_shared *member_shared_make(char *ret_path, size_t path_size)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(ret_path, path_size, "%s/fcap-members-XXXXXX", folder != NULL ? folder : "/tmp");
    int fd = mkstemp(ret_path);
    if (fd < 0) {
        die(ret_path);
    }
    (void)close(fd);
    return map(ret_path, O_RDWR);
}

pid_t member_start(const char *shared_path, const struct member_options *options)
{
    char session[32];
    pid_t parent = getpid();
    (void)snprintf(session, sizeof session, "%d", options->session_timeout_ms);
    pid_t pid = fork();
    if (pid < 0) {
        die("fork");
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        (void)execl("/proc/self/exe", "member", MEMBER_WORD, shared_path, options->brokers,
                    options->topic, options->group, session,
                    options->by_events ? "events" : "callbacks", (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* --- the handler -------------------------------------------------------------------------- */

static void assigned(void *context, const int32_t *partitions, const uint64_t *assignments,
                     size_t count, struct fcap_start *ret_starts)
{
    struct member *member = context;
    (void)assignments;
    for (size_t i = 0; i < count; i++) {
        struct member_partition *partition = &member->shared->partitions[partitions[i]];
        member->token[partitions[i]] = atomic_fetch_add(&member->shared->tokens, 1) + 1;
        member->started[partitions[i]] = false;
        atomic_store(&partition->owner, member->token[partitions[i]]);
        ret_starts[i] =
            (struct fcap_start){.kind = FCAP_START_OFFSET, .offset = atomic_load(&partition->next)};
    }
}

static void started(void *context, const struct fcap_started *at)
{
    struct member *member = context;
    member->started[at->partition] = true;
}

static void revoked(void *context, const int32_t *partitions, size_t count, bool lost)
{
    struct member *member = context;
    atomic_fetch_add(lost ? &member->shared->lost : &member->shared->revoked, count);
    for (size_t i = 0; i < count; i++) {
        member->token[partitions[i]] = 0;
        member->started[partitions[i]] = false;
    }
}

static bool record(void *context, const struct fcap_record *given)
{
    struct member *member = context;
    struct member_partition *partition = &member->shared->partitions[given->partition];
    if (member->token[given->partition] == 0 || !member->started[given->partition] ||
        given->offset >= MEMBER_OFFSETS) {
        atomic_fetch_add(&member->shared->violations, 1);
        return true;
    }
    if (atomic_load(&partition->owner) != member->token[given->partition]) {
        atomic_fetch_add(&member->shared->stale, 1);
        return true;
    }
    int64_t next = atomic_load(&partition->next);
    if (given->offset < next) {
        atomic_fetch_add(&partition->disorder, 1);
    } else if (given->offset > next) {
        atomic_fetch_add(&partition->jumps, 1);
    }
    atomic_fetch_add(&member->shared->delivered[given->partition][given->offset], 1);
    atomic_store(&partition->next, given->offset + 1);
    return true;
}

static void reached_end(void *context, int32_t partition, int64_t offset)
{
    (void)context;
    (void)partition;
    (void)offset;
}

static struct fcap_start gap(void *context, const struct fcap_gap *found)
{
    struct member *member = context;
    atomic_fetch_add(&member->shared->violations, 1); /* There is none in this topic. */
    return (struct fcap_start){.kind = FCAP_START_OFFSET, .offset = found->log_start};
}

/* What a worker would do between two polls. A stopped process mostly wakes up asleep, before it
 * polls, and learns of its loss only some milliseconds later. */
static void ask_to_send(struct member *member)
{
    for (int32_t i = 0; i < MEMBER_PARTITIONS; i++) {
        if (member->token[i] != 0 && member->started[i] &&
            atomic_load(&member->shared->partitions[i].owner) != member->token[i]) {
            atomic_fetch_add(&member->shared->stale_asks, 1);
            if (member->port->ops->may_send(member->port, i)) {
                atomic_fetch_add(&member->shared->stale_sends, 1);
            }
        }
    }
}

bool member_main(int argc, char **argv, int *ret_exit)
{
    if (argc < 8 || strcmp(argv[1], MEMBER_WORD) != 0) {
        return false;
    }
    struct fcap_error error;
    struct fcap_source_kafka *source = NULL;
    struct member member = {.shared = map(argv[2], O_RDWR)};
    struct fcap_source_kafka_settings settings = {
        .brokers = argv[3],
        .topic = argv[4],
        .group = argv[5],
        .session_timeout_ms = (int)strtol(argv[6], NULL, 10),
        .heartbeat_interval_ms = 300,
        .publish_interval_ms = 500,
        .read_by_events = strcmp(argv[7], "events") == 0,
    };
    struct fcap_source_handler handler = {.context = &member,
                                          .assigned = assigned,
                                          .started = started,
                                          .revoked = revoked,
                                          .record = record,
                                          .reached_end = reached_end,
                                          .gap = gap};
    (void)signal(SIGTERM, on_term);
    *ret_exit = 1;
    if (fcap_source_kafka_open(&settings, &source, &error) != FCAP_OK) {
        (void)fprintf(stderr, "member: %s\n", error.text);
        return true;
    }
    member.port = fcap_source_kafka_port(source);
    enum fcap_status status = FCAP_OK;
    while (stop == 0 && fcap_status_class(status) != FCAP_CLASS_FATAL) {
        ask_to_send(&member);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        ask_to_send(&member);
        status = member.port->ops->poll(member.port, &handler,
                                        (struct fcap_source_budget){.records_max = 5000});
        for (int32_t i = 0; i < MEMBER_PARTITIONS; i++) {
            if (member.started[i]) {
                member.port->ops->publish(member.port, i,
                                          atomic_load(&member.shared->partitions[i].next));
            }
        }
    }
    if (!fcap_source_kafka_close(source, &handler)) {
        atomic_fetch_add(&member.shared->not_closed, 1);
    }
    *ret_exit = fcap_status_class(status) == FCAP_CLASS_FATAL ? 2 : 0;
    return true;
}
