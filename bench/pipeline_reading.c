#include "pipeline.h"

#include "lab/lab.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- the daemon's page ----------------------------------------------------------------------- */

/* Takes the text between `name="` and the next quote out of a sample's labels. */
static bool label_of(const char *line, const char *name, char *text, size_t size)
{
    char start[32];
    (void)snprintf(start, sizeof start, "%s=\"", name);
    const char *at = strstr(line, start);
    if (at == NULL) {
        return false;
    }
    at += strlen(start);
    size_t length = strcspn(at, "\"");
    length = length < size - 1 ? length : size - 1;
    memcpy(text, at, length);
    text[length] = '\0';
    return true;
}

static void add_delay(struct delays *delays, const char *line, double value)
{
    char text[32];
    if (!label_of(line, "le", text, sizeof text)) {
        return;
    }
    double bound_s = strcmp(text, "+Inf") == 0 ? 1e9 : strtod(text, NULL);
    size_t at = 0;
    while (at < delays->count && delays->bounds_s[at] < bound_s) {
        at++;
    }
    if (at == delays->count) { /* Bounds come in order, the same for each worker. */
        lab_check(delays->count < PIPELINE_BOUNDS_MAX);
        delays->bounds_s[delays->count++] = bound_s;
    }
    delays->counts[at] += value;
}

static void add_stage(struct reading *reading, const char *line, double value)
{
    char name[16];
    if (!label_of(line, "stage", name, sizeof name)) {
        return;
    }
    size_t at = 0;
    while (at < reading->stage_count && strcmp(reading->stage_names[at], name) != 0) {
        at++;
    }
    if (at == reading->stage_count) {
        lab_check(at < PIPELINE_STAGES_MAX);
        memcpy(reading->stage_names[at], name, sizeof name);
        reading->stage_count++;
    }
    reading->stages_s[at] += value;
}

static void add_sample(struct reading *reading, const char *line, size_t name_size, double value)
{
    const struct {
        const char *name;
        double *target;
    } numbers[] = {
        {"fcapd_records_total", &reading->records},
        {"fcapd_events_total", &reading->events},
        {"fcapd_expiries_total", &reading->expiries},
        {"fcapd_underflows_total", &reading->underflows},
        {"fcapd_acks_done_total", &reading->writes},
        {"fcapd_pushes_set_total", &reading->sets},
        {"fcapd_push_backlog", &reading->push_backlog},
        {"fcapd_gates_open", &reading->gates_open},
        {"fcapd_projections", &reading->projections},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strlen(numbers[i].name) == name_size &&
            strncmp(line, numbers[i].name, name_size) == 0) {
            *numbers[i].target += value;
            return;
        }
    }
    if (strncmp(line, "fcapd_freshness_seconds_bucket", name_size) == 0) {
        add_delay(&reading->freshness, line, value);
    } else if (strncmp(line, "fcapd_expiry_lateness_seconds_bucket", name_size) == 0) {
        add_delay(&reading->lateness, line, value);
    } else if (strncmp(line, "fcapd_stage_cpu_seconds_total", name_size) == 0) {
        add_stage(reading, line, value);
    } else if (strncmp(line, "fcapd_records_rejected_total", name_size) == 0 &&
               strstr(line, "reason=\"late\"") != NULL) {
        reading->late += value;
    }
}

static void read_page(struct reading *reading, char *page)
{
    char *rest = NULL;
    for (char *line = strtok_r(page, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *value = strrchr(line, ' ');
        if (line[0] != '#' && value != NULL) {
            add_sample(reading, line, strcspn(line, "{ "), strtod(value, NULL));
        }
    }
}

/* --- CPU time -------------------------------------------------------------------------------- */

static double cpu_of(pid_t pid)
{
    clockid_t id;
    struct timespec time;
    if (pid <= 0 || clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &time) != 0) {
        return 0;
    }
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static bool read_line(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false; /* The thread has ended. */
    }
    bool good = fgets(text, (int)size, file) != NULL;
    (void)fclose(file);
    return good;
}

static enum thread_group group_of(const char *name)
{
    static const struct {
        const char *start;
        enum thread_group group;
    } groups[] = {
        {"worker-", THREADS_WORKER}, {"rdk:", THREADS_KAFKA},    {"kafka-", THREADS_KAFKA},
        {"store-", THREADS_STORE},   {"rocksdb", THREADS_STORE},
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        if (strncmp(name, groups[i].start, strlen(groups[i].start)) == 0) {
            return groups[i].group;
        }
    }
    return THREADS_OTHER;
}

/* The scheduler's own count, in nanoseconds; the ticks of `stat` are too coarse. */
static void read_threads(struct reading *reading, pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return;
    }
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char name[64];
        char time[96];
        char file[400];
        (void)snprintf(file, sizeof file, "%s/%s/comm", path, entry->d_name);
        if (entry->d_name[0] == '.' || !read_line(file, name, sizeof name)) {
            continue;
        }
        (void)snprintf(file, sizeof file, "%s/%s/schedstat", path, entry->d_name);
        if (read_line(file, time, sizeof time)) {
            reading->threads_s[group_of(name)] += strtod(time, NULL) / 1e9;
        }
    }
    (void)closedir(folder);
}

bool reading_take(struct world *world, struct reading *ret_reading)
{
    *ret_reading = (struct reading){0};
    if (daemon_process_get(&world->daemon, "/metrics", NULL) != 200) {
        return false;
    }
    read_page(ret_reading, world->daemon.text);
    ret_reading->wall_s = (double)lab_monotonic_ms() / 1000;
    ret_reading->cpu_s = cpu_of(world->daemon.pid);
    read_threads(ret_reading, world->daemon.pid);
    ret_reading->redis_cpu_s = cpu_of(world->redis.pid);
    ret_reading->broker_cpu_s = world->broker == NULL ? 0 : cpu_of(kafka_broker_pid(world->broker));
    ret_reading->feed_cpu_s = cpu_of(getpid());
    return true;
}

double reading_quantile_ms(const struct delays *before, const struct delays *after, double q)
{
    size_t last = after->count;
    if (last == 0) {
        return -1;
    }
    double count = after->counts[last - 1];
    bool has_before = before->count == last;
    count -= has_before ? before->counts[last - 1] : 0;
    if (count <= 0) {
        return -1;
    }
    for (size_t i = 0; i < last; i++) {
        double until = after->counts[i] - (has_before ? before->counts[i] : 0);
        if (until >= q * count) {
            return after->bounds_s[i] * 1000;
        }
    }
    return after->bounds_s[last - 1] * 1000;
}
