/* See torture.h. */
#include "torture.h"

#include "lab/lab.h"

#include <glob.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TICK_MS     10
#define LOOK_MS     250
#define WAIT_MS     120000
#define POINT_USERS 2000 /* fcap/point.h draws for so many */

static const char *const names[] = {
#define X(name, phase, lead, passes, text) #name,
    FCAP_POINT_LIST(X)
#undef X
};

static const long passes_max[] = {
#define X(name, phase, lead, passes, text) passes,
    FCAP_POINT_LIST(X)
#undef X
};

uint32_t torture_draw(struct torture *torture, uint32_t below)
{
    torture->random += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t mixed = torture->random;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(((mixed ^ (mixed >> 31)) >> 32) * below >> 32);
}

/* --- life ------------------------------------------------------------------------------------ */

static void init_member(struct torture_member *member, struct daemon_process *process,
                        const char *name)
{
    process->program = FCAPD_POINTS_PROGRAM;
    *member = (struct torture_member){.process = process, .name = name, .point = TORTURE_NOWHERE};
}

void torture_init(struct torture *torture, const struct torture_scale *scale, uint64_t seed)
{
    memset(torture, 0, sizeof *torture);
    torture->scale = scale;
    torture->random = seed;
    torture->broker = kafka_broker_start(); /* Skips the program when there is none. */
    (void)setenv("FCAP_TEST_BROKERS", kafka_broker_address(torture->broker), 1);
    lab_folder_make("checkpoints", torture->checkpoints, sizeof torture->checkpoints);
    (void)snprintf(torture->more, sizeof torture->more,
                   "event:\n  id: id\nshutdown:\n  deadline: 20s\n"
                   "durability:\n  sync_interval: 1s\n"
                   "checkpoint:\n  directory: %s\n  interval: 1s\n  min_pause: 0s\n"
                   "materialization:\n  interval: 10s\n",
                   torture->checkpoints);
    const struct live_options options = {
        .partitions = scale->partitions,
        .workers = 2,
        .windows = scale->windows,
        .lengths = scale->lengths,
        .more = torture->more,
        .other_instance = "two",
    };
    live_init(&torture->live, &options);
    live_member_init(&torture->live, &torture->two_process, "two");
    init_member(&torture->one, &torture->live.process, "one");
    init_member(&torture->two, &torture->two_process, "two");
    for (size_t i = 0; i < torture->live.window_count; i++) {
        uint64_t length_ms = (uint64_t)scale->lengths[i].length_ms;
        torture->longest_ms = length_ms > torture->longest_ms ? length_ms : torture->longest_ms;
    }
    torture->impressions = impressions_open(&(struct impressions_options){
        .seed = seed,
        .users = scale->users,
        .user_exponent = 0.6,
        .ads = 40,
        .ad_exponent = 0.8,
        .sessions = scale->users / 50,
        .session_length = 4,
        .jitter_ms = 50,
        .late_permille = 150,
        .late_ms_max = (int64_t)torture->longest_ms + 5000,
        .duplicate_permille = 30,
    });
    torture->ticked_ms = lab_monotonic_ms();
}

void torture_done(struct torture *torture)
{
    daemon_process_done(&torture->two_process);
    live_done(&torture->live);
    impressions_close(torture->impressions);
    kafka_broker_stop(torture->broker);
    lab_folder_remove(torture->checkpoints);
}

static void print_log(const struct torture_member *member)
{
    enum { TAIL_BYTES = 6000, PIECE = 500 }; /* cmocka cuts longer lines */
    const char *text = daemon_process_log(member->process);
    size_t size = strlen(text);
    print_error("--- log of %s:\n", member->name);
    for (size_t at = size > TAIL_BYTES ? size - TAIL_BYTES : 0; at < size; at += PIECE) {
        print_error("%.*s", PIECE, text + at);
    }
    print_error("\n");
}

/* Ends the test with what the daemon said. */
#define torture_fail(member, ...)                                                                  \
    do {                                                                                           \
        print_log(member);                                                                         \
        fail_msg(__VA_ARGS__);                                                                     \
    } while (0)

/* --- traffic --------------------------------------------------------------------------------- */

static void send_one(struct torture *torture)
{
    struct live *live = &torture->live;
    struct impression impression;
    impressions_next(torture->impressions, lab_wall_ms(), &impression);
    uint32_t kind = torture_draw(torture, 1000);
    if (kind < 3) {
        live_send_tombstone(live, impression.user);
    } else if (kind < 5) {
        live_send_text(live, impression.user, "{\"user_id\":", "dead json");
    } else {
        if (kind < 15 && impression.kind == IMPRESSION_GOOD) {
            impression.time_ms += torture_draw(torture, 3000); /* Somebody's clock is ahead. */
        }
        live_send(live, impression.user, impression.ad, impression.time_ms, impression.id);
    }
    torture->sent++;
}

/* A life after a lost machine has begun with a checkpoint. */
static void check_restored(struct torture *torture, struct torture_member *member)
{
    if (!member->is_lost) {
        return;
    }
    const char *log = daemon_process_log(member->process);
    if (strlen(log) < member->log_size || strstr(log + member->log_size, "was restored") == NULL) {
        torture_fail(member, "%s lost its machine, and nothing was restored", member->name);
    }
    member->is_lost = false;
    torture->restored++;
}

/* The metrics of a member: what it has committed, and that it never took off too much. */
static void look_at(struct torture *torture, struct torture_member *member)
{
    if (member->process->pid == 0 || member->armed) {
        return;
    }
    int code = daemon_process_wait(member->process, 0);
    if (code != -1) {
        torture_fail(member, "%s has ended by itself: %d", member->name, code);
    }
    if (daemon_process_get(member->process, "/metrics", NULL) != 200) {
        return; /* It starts or ends. */
    }
    double commits = daemon_process_sample(member->process, "fcapd_commits_total", NULL);
    if (commits > member->commits) {
        torture->commits_since += commits - member->commits;
        member->commits = commits;
    }
    if (daemon_process_sample(member->process, "fcapd_underflows_total", NULL) > 0 ||
        daemon_process_sample(member->process, "fcapd_gaps_total", NULL) > 0) {
        torture_fail(member, "underflows or gaps:\n%s", member->process->text);
    }
    if (commits > 0) {
        check_restored(torture, member); /* It has a state. */
    }
}

static void look(struct torture *torture)
{
    int64_t next[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX];
    if (torture->live.redis.pid != 0) {
        (void)live_claims(&torture->live, next, as_of_ms);
    }
    look_at(torture, &torture->one);
    look_at(torture, &torture->two);
    torture->looked_ms = lab_monotonic_ms();
}

void torture_tick(struct torture *torture)
{
    int64_t now_ms = lab_monotonic_ms();
    int64_t passed_ms = now_ms - torture->ticked_ms;
    passed_ms = passed_ms > 1000 ? 1000 : passed_ms;
    torture->ticked_ms = now_ms;
    torture->owed += (double)passed_ms * torture->scale->rate * (torture->fast ? 2 : 1) / 1000;
    for (; torture->owed >= 1; torture->owed--) {
        send_one(torture);
    }
    if (now_ms - torture->looked_ms >= LOOK_MS) {
        look(torture);
    }
    lab_pause_ms(TICK_MS);
}

void torture_go_on(struct torture *torture, int64_t ms)
{
    int64_t until_ms = lab_monotonic_ms() + ms;
    while (lab_monotonic_ms() < until_ms) {
        torture_tick(torture);
    }
}

/* --- lives ----------------------------------------------------------------------------------- */

void torture_start(struct torture *torture, struct torture_member *member, enum fcap_point point,
                   bool waits)
{
    const char *directory = member->process->directory;
    const char *environment[4] = {NULL};
    assert_int_equal(member->process->pid, 0);
    member->point = point;
    member->armed = point != TORTURE_NOWHERE && !waits;
    member->commits = 0;
    (void)snprintf(member->file, sizeof member->file, "FCAP_STOP_FILE=%s/stopped", directory);
    (void)snprintf(member->when, sizeof member->when, "FCAP_STOP_WHEN=%s/armed", directory);
    (void)unlink(strchr(member->file, '=') + 1); /* Of an earlier life, if at all. */
    (void)unlink(strchr(member->when, '=') + 1);
    member->log_size = member->is_lost ? strlen(daemon_process_log(member->process)) : 0;
    if (point != TORTURE_NOWHERE) {
        long most = passes_max[point];
        most = most >= 100 ? most * torture->scale->users / POINT_USERS : most;
        member->passes = 1 + (long)torture_draw(torture, (uint32_t)most);
        (void)snprintf(member->at, sizeof member->at, "FCAP_STOP_AT=%s:%ld", names[point],
                       member->passes);
        environment[0] = member->at;
        environment[1] = member->file;
        environment[2] = waits ? member->when : NULL;
    }
    daemon_process_start(member->process, environment);
}

void torture_stop(struct torture *torture, struct torture_member *member)
{
    if (member->process->pid == 0) {
        return;
    }
    int64_t until_ms = lab_monotonic_ms() + WAIT_MS;
    int code = -1;
    look_at(torture, member); /* What it has committed so far. */
    daemon_process_signal(member->process, SIGTERM);
    member->armed = true; /* Its pages end. */
    while ((code = daemon_process_wait(member->process, 0)) == -1) {
        if (lab_monotonic_ms() > until_ms) {
            torture_fail(member, "%s does not stop", member->name);
        }
        torture_tick(torture);
    }
    member->armed = false;
    if (code != 0) {
        torture_fail(member, "%s: exit code %d after SIGTERM", member->name, code);
    }
    check_restored(torture, member); /* It may have committed nothing. */
}

void torture_arm(struct torture *torture, struct torture_member *member)
{
    (void)torture;
    FILE *file = fopen(strchr(member->when, '=') + 1, "we");
    assert_non_null(file);
    member->armed = true;
    assert_int_equal(fclose(file), 0);
}

void torture_await_commit(struct torture *torture)
{
    int64_t until_ms = lab_monotonic_ms() + WAIT_MS;
    while (torture->commits_since < 1) {
        if (lab_monotonic_ms() > until_ms) {
            torture_fail(&torture->one, "no commit is seen");
        }
        torture_tick(torture);
    }
}

void torture_await_partition(struct torture *torture, struct torture_member *member)
{
    int64_t until_ms = lab_monotonic_ms() + WAIT_MS;
    while (daemon_process_metric(member->process, "fcapd_partitions") < 1) {
        if (lab_monotonic_ms() > until_ms) {
            torture_fail(member, "%s gets no partition", member->name);
        }
        torture_tick(torture);
    }
}

static bool all_ready(const struct torture *torture, int64_t since_ms, const int64_t *next)
{
    for (int32_t i = 0; i < torture->scale->partitions; i++) {
        const struct live_claim *last = &torture->live.last[i];
        if (!last->is_ready || last->as_of_ms < since_ms ||
            (next != NULL && last->next < next[i])) {
            return false;
        }
    }
    return true;
}

_Noreturn static void give_up_waiting(struct torture *torture, const char *what)
{
    for (int32_t i = 0; i < torture->scale->partitions; i++) {
        const struct live_claim *last = &torture->live.last[i];
        print_error("partition %d: epoch %" PRId64 " next %" PRId64 " of %" PRId64
                    ", as_of %" PRId64 " ms ago, %s\n",
                    i, last->epoch, last->next, torture->live.read[i],
                    lab_wall_ms() - last->as_of_ms, last->is_ready ? "ready" : "not ready");
    }
    print_log(&torture->two);
    torture_fail(&torture->one, "%s", what);
    abort(); /* For compilers that do not know that fail_msg() never returns. */
}

void torture_await_ready(struct torture *torture)
{
    int64_t since_ms = lab_wall_ms();
    int64_t until_ms = lab_monotonic_ms() + WAIT_MS;
    while (!all_ready(torture, since_ms, NULL)) {
        if (lab_monotonic_ms() > until_ms) {
            give_up_waiting(torture, "not every window gets ready");
        }
        torture_tick(torture);
    }
}

/* --- deaths ---------------------------------------------------------------------------------- */

static void check_proof(struct torture_member *member)
{
    char wanted[64];
    char line[64] = "";
    (void)snprintf(wanted, sizeof wanted, "%s %ld\n", names[member->point], member->passes);
    FILE *file = fopen(strchr(member->file, '=') + 1, "re");
    if (file == NULL || fgets(line, sizeof line, file) == NULL || strcmp(line, wanted) != 0) {
        torture_fail(member, "%s has stopped, but not at %s", member->name, wanted);
    }
    (void)fclose(file);
}

void torture_kill(struct torture *torture, struct torture_member *member, bool counts)
{
    int64_t until_ms = lab_monotonic_ms() + WAIT_MS;
    pid_t pid = member->process->pid;
    int status = 0;
    assert_true(pid > 0 && member->armed);
    while (waitpid(pid, &status, WUNTRACED | WNOHANG) != pid) {
        if (lab_monotonic_ms() > until_ms) {
            torture_fail(member, "%s never passes %s", member->name, member->at);
        }
        torture_tick(torture);
    }
    if (!WIFSTOPPED(status)) {
        member->process->pid = 0;
        torture_fail(member, "%s has ended by itself (%x) on its way to %s", member->name,
                     (unsigned)status, member->at);
    }
    check_proof(member);
    check_restored(torture, member);                    /* Every point lies behind it. */
    torture_go_on(torture, torture_draw(torture, 500)); /* The world goes on around it. */
    print_message("%7" PRIu64 " records: %s dies at %s %ld%s\n", torture->sent, member->name,
                  names[member->point], member->passes, counts ? "" : ", without a commit before");
    if (counts && torture->commits_since < 1) {
        torture_fail(member, "no commit since the last death");
    }
    daemon_process_signal(member->process, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    member->process->pid = 0;
    member->armed = false;
    if (counts) {
        torture->commits_since = 0;
        torture->kills[member->point]++;
    } else {
        torture->in_a_row++;
    }
}

void torture_lose(struct torture *torture, struct torture_member *member)
{
    char path[160];
    glob_t found = {0};
    assert_int_equal(member->process->pid, 0);
    (void)snprintf(path, sizeof path, "%s/test/%s/manifest-*", torture->checkpoints, member->name);
    bool has_checkpoint = glob(path, 0, NULL, &found) == 0;
    globfree(&found);
    if (!has_checkpoint) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s/state", member->process->directory);
    lab_folder_remove(path);
    member->is_lost = true;
    torture->lost++;
    print_message("%7" PRIu64 " records: the machine of %s is lost\n", torture->sent, member->name);
}

/* --- the servers ----------------------------------------------------------------------------- */

void torture_redis_save(struct torture *torture)
{
    const char *answer = redis_server_ask(&torture->live.redis, "SAVE");
    assert_true(answer != NULL && strcmp(answer, "OK") == 0);
}

void torture_redis(struct torture *torture, enum torture_redis kind)
{
    static const char *const texts[] = {"what it held", "nothing", "what it held long ago"};
    if (kind == TORTURE_REDIS_SAVED) {
        torture_redis_save(torture);
    }
    redis_server_kill(&torture->live.redis);
    torture_go_on(torture, 200 + torture_draw(torture, 500));
    redis_server_restart(&torture->live.redis, kind != TORTURE_REDIS_EMPTY);
    print_message("%7" PRIu64 " records: Redis was killed and is back with %s\n", torture->sent,
                  texts[kind]);
}

void torture_broker(struct torture *torture)
{
    kafka_broker_kill(torture->broker);
    torture_go_on(torture, 500 + torture_draw(torture, 1000));
    kafka_broker_restart(torture->broker);
    torture->ticked_ms = lab_monotonic_ms();
    print_message("%7" PRIu64 " records: the broker was killed and is back\n", torture->sent);
}

/* --- comparing ------------------------------------------------------------------------------- */

void torture_compare(struct torture *torture)
{
    struct live *live = &torture->live;
    int64_t next[LIVE_PARTITIONS_MAX];
    int64_t as_of_ms[LIVE_PARTITIONS_MAX];
    uint64_t compared = torture->tally.now.compared;
    uint64_t non_empty = torture->tally.now.non_empty;
    live_flush(live);
    live_read(live);
    int64_t since_ms = lab_wall_ms();
    int64_t until_ms = lab_monotonic_ms() + WAIT_MS;
    do { /* Nothing is sent meanwhile. */
        if (lab_monotonic_ms() > until_ms) {
            give_up_waiting(torture, "not everything is applied");
        }
        lab_pause_ms(TICK_MS);
        (void)live_claims(live, next, as_of_ms);
    } while (!all_ready(torture, since_ms, live->read));
    live_compare(live, true, &torture->tally);
    print_message("%7" PRIu64 " records: %" PRIu64 " keys compared, %" PRIu64 " non-empty\n",
                  torture->sent, torture->tally.now.compared - compared,
                  torture->tally.now.non_empty - non_empty);
    live_passes(&torture->tally.now, (struct oracle_minimum){1, 0, 0});
    live_passes(&torture->tally.as_of, (struct oracle_minimum){0});
    live_passes(&torture->tally.expiry, (struct oracle_minimum){0});
    torture->ticked_ms = lab_monotonic_ms();
}
