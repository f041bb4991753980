/* fcapd-bench engine: generator -> core -> RocksDB, and a sink that takes every value.
 *
 * Virtual time: 14 days of events, windows 1d/3d/7d; the last 7 days are measured. One thread
 * generates and runs the pipeline; RocksDB's own threads write, flush and compact. At the end the
 * database is closed and opened again (so that it is measured and compared as a restart finds it),
 * and sampled users are compared with a recount from the list of their events. */
#include "bench.h"

#include "fcap/pipeline.h"
#include "fcap/store_rocksdb.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DAY_MS      86400000ll
#define START_MS    1700000000000ll
#define SPAN_DAYS   14
#define WINDOWS     3
#define SAMPLES_MAX 4000
#define LATE_SHARE  0.03
#define AD_POOL     2000

static const int64_t lengths_ms[WINDOWS] = {DAY_MS, 3 * DAY_MS, 7 * DAY_MS};
static const char *const names[WINDOWS] = {"1d", "3d", "7d"};

struct options {
    uint64_t users;
    uint64_t retained; /* events a user in 7 days, on average */
    uint64_t ads;      /* distinct ads a user may see */
    uint64_t partitions;
    uint64_t commit_events;
    uint64_t defer;
    uint64_t cache_mib;
    uint64_t step;
    double zipf;
    bool wal;
    bool json;
    const char *directory;
};

/* --- random numbers, Zipf (rejection-inversion, Hoermann and Derflinger 1996) --- */

static uint64_t random_state[2];

static uint64_t random_next(void)
{
    uint64_t a = random_state[0];
    uint64_t b = random_state[1];
    random_state[0] = b;
    a ^= a << 23;
    random_state[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
    return random_state[1] + b;
}

static double random_unit(void)
{
    return (double)(random_next() >> 11) / 9007199254740992.0;
}

struct zipf {
    double n, s, h_x1, h_n, bound;
};

static double h_integral(double x, double s)
{
    double log_x = log(x);
    double t = (1 - s) * log_x;
    return fabs(t) > 1e-8 ? expm1(t) / (1 - s) : log_x * (1 + t / 2);
}

static double h_inverse(double x, double s)
{
    double t = x * (1 - s);
    return fabs(t) > 1e-8 ? exp(log1p(t) / (1 - s)) : exp(x * (1 - t / 2));
}

static void zipf_init(struct zipf *zipf, double n, double s)
{
    zipf->n = n;
    zipf->s = s;
    zipf->h_x1 = h_integral(1.5, s) - 1;
    zipf->h_n = h_integral(n + 0.5, s);
    zipf->bound = 2 - h_inverse(h_integral(2.5, s) - pow(2, -s), s);
}

static uint64_t zipf_next(const struct zipf *zipf)
{
    for (;;) {
        double u = zipf->h_n + random_unit() * (zipf->h_x1 - zipf->h_n);
        double x = h_inverse(u, zipf->s);
        double k = floor(x + 0.5);
        k = k < 1 ? 1 : k > zipf->n ? zipf->n : k;
        if (k - x <= zipf->bound || u >= h_integral(k + 0.5, zipf->s) - pow(k, -zipf->s)) {
            return (uint64_t)k - 1;
        }
    }
}

static uint64_t mix(uint64_t value)
{
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdull;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53ull;
    return value ^ value >> 33;
}

/* --- samples: the recount --- */

struct sample_event {
    int64_t time_ms;
    uint32_t sample;
    uint32_t ad;
};

struct sample_value {
    char *text; /* last value pushed, or NULL */
    int64_t expire_at_ms;
};

struct world {
    struct options options;
    struct zipf zipf;
    int64_t now_ms;
    uint64_t made;
    uint64_t total;
    uint64_t *offsets;
    bool assigned;
    uint64_t sample_every; /* one user in so many is compared */
    struct sample_event *events;
    size_t event_count;
    size_t event_capacity;
    struct sample_value *values; /* [sample * WINDOWS + window] */
    size_t sample_count;
    uint8_t *sample_filter; /* bits by user id: most pushes are of no sample */
    uint64_t pushes;
    uint64_t push_bytes;
    uint64_t checksum;
    uint64_t tokens[65536];
    size_t token_count;
    /* The event at hand. */
    char user[17];
    char ad[8];
    struct fcap_event event;
    /* Ports. */
    struct port_clock {
        struct fcap_clock port;
        struct world *world;
    } clock;
    struct port_source {
        struct fcap_source port;
        struct world *world;
    } source;
    struct port_sink {
        struct fcap_sink port;
        struct world *world;
    } sink;
    struct port_decoder {
        struct fcap_decoder port;
        struct world *world;
    } decoder;
};

static bool is_sample(const struct world *world, uint64_t user)
{
    return user % world->sample_every == 0 && user / world->sample_every < SAMPLES_MAX;
}

/* 16 bytes; key order has nothing to do with popularity. */
static void name_user(uint64_t user, char *text)
{
    (void)snprintf(text, 17, "%016llx", (unsigned long long)mix(user + 1)); /* Always fits. */
}

static void note_sample(struct world *world, uint64_t user, uint32_t ad, int64_t time_ms)
{
    if (!is_sample(world, user)) {
        return;
    }
    if (world->event_count == world->event_capacity) {
        world->event_capacity = world->event_capacity * 2 + 4096;
        world->events = realloc(world->events, world->event_capacity * sizeof *world->events);
    }
    world->events[world->event_count++] =
        (struct sample_event){time_ms, (uint32_t)(user / world->sample_every), ad};
}

/* --- ports --- */

static int64_t clock_now(struct fcap_clock *clock)
{
    return ((struct port_clock *)clock)->world->now_ms;
}

static enum fcap_reject decode(struct fcap_decoder *decoder, const struct fcap_record *record,
                               struct fcap_event *ret_event)
{
    (void)record; /* The generator's event is at hand. */
    *ret_event = ((struct port_decoder *)decoder)->world->event;
    return FCAP_REJECT_NONE;
}

static void assign_all(struct world *world, const struct fcap_source_handler *handler)
{
    for (uint64_t i = 0; i < world->options.partitions; i++) {
        int32_t partition = (int32_t)i;
        uint64_t assignment = i + 1;
        struct fcap_start start;
        handler->assigned(handler->context, &partition, &assignment, 1, &start);
        struct fcap_started started = {.partition = partition};
        if (start.kind == FCAP_START_OFFSET) {
            started.offset = start.offset;
            started.end = start.offset;
        }
        handler->started(handler->context, &started);
    }
    world->assigned = true;
}

static int64_t arrival_ms(const struct world *world, uint64_t index)
{
    return START_MS + (int64_t)((double)index / (double)world->total * SPAN_DAYS * DAY_MS);
}

static bool deliver_one(struct world *world, const struct fcap_source_handler *handler)
{
    uint64_t user = zipf_next(&world->zipf);
    uint32_t ad = (uint32_t)(mix(user * 1000003 + random_next() % world->options.ads) % AD_POOL);
    int64_t time_ms = arrival_ms(world, world->made);
    if (random_unit() < LATE_SHARE) {
        time_ms -= (int64_t)(random_unit() * (double)DAY_MS);
    }
    name_user(user, world->user);
    (void)snprintf(world->ad, sizeof world->ad, "a%u", ad); /* At most 5 characters. */
    world->event = (struct fcap_event){.user = {(const uint8_t *)world->user, 16},
                                       .ad = fcap_bytes_of(world->ad),
                                       .time_ms = time_ms};
    int32_t partition = (int32_t)(mix(user) % world->options.partitions);
    struct fcap_record record = {.partition = partition,
                                 .offset = (int64_t)world->offsets[partition]++,
                                 .timestamp_ms = time_ms,
                                 .timestamp_type = FCAP_TIMESTAMP_CREATE,
                                 .key = world->event.user,
                                 .value = world->event.user};
    note_sample(world, user, ad, time_ms);
    world->made++;
    return handler->record(handler->context, &record);
}

static enum fcap_status source_poll(struct fcap_source *source,
                                    const struct fcap_source_handler *handler,
                                    struct fcap_source_budget budget)
{
    struct world *world = ((struct port_source *)source)->world;
    if (!world->assigned) {
        assign_all(world, handler);
    }
    bool more = budget.records_max > 0;
    while (more && world->made < world->total) {
        more = deliver_one(world, handler);
    }
    /* What the next step delivers has arrived by then. */
    uint64_t next = world->made + world->options.step;
    world->now_ms = arrival_ms(world, next < world->total ? next : world->total);
    return FCAP_OK;
}

static bool source_may_send(struct fcap_source *source, int32_t partition)
{
    (void)source;
    (void)partition;
    return true;
}

static void source_publish(struct fcap_source *source, int32_t partition, int64_t next_offset)
{
    (void)source;
    (void)partition;
    (void)next_offset; /* Nobody looks at lag here. */
}

/* The key is {user}:window; keeps the last value of the sampled users. */
static void keep_sample(struct world *world, const struct fcap_push *push)
{
    uint64_t checked = 0;
    for (int i = 0; i < 16; i++) {
        int digit = push->key.data[1 + i];
        checked = checked << 4 | (uint64_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    if ((world->sample_filter[(checked >> 3) & 0xFFFF] >> (checked & 7) & 1) == 0) {
        return;
    }
    size_t low = 0;
    size_t high = world->sample_count;
    const uint64_t *ids = (const uint64_t *)(world->values + world->sample_count * WINDOWS);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ids[middle * 2] < checked) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == world->sample_count || ids[low * 2] != checked) {
        return;
    }
    size_t window = push->key.data[19] == '1' ? 0 : push->key.data[19] == '3' ? 1 : 2;
    struct sample_value *value = &world->values[ids[low * 2 + 1] * WINDOWS + window];
    free(value->text);
    value->text = NULL;
    if (push->kind == FCAP_PUSH_SET) {
        value->text = strndup((const char *)push->value.data, push->value.size);
        value->expire_at_ms = push->expire_at_ms;
    }
}

static enum fcap_status sink_push(struct fcap_sink *sink, const struct fcap_push *push)
{
    struct world *world = ((struct port_sink *)sink)->world;
    if (world->token_count == sizeof world->tokens / sizeof world->tokens[0]) {
        return FCAP_BUSY;
    }
    world->tokens[world->token_count++] = push->token;
    if (push->kind == FCAP_PUSH_INCREMENT) {
        return FCAP_OK;
    }
    world->pushes++;
    world->push_bytes += push->key.size + push->value.size;
    world->checksum = world->checksum * 31 + fcap_hash64(push->value, world->pushes);
    keep_sample(world, push);
    return FCAP_OK;
}

static enum fcap_status sink_poll(struct fcap_sink *sink, const struct fcap_sink_handler *handler,
                                  int timeout_ms)
{
    struct world *world = ((struct port_sink *)sink)->world;
    (void)timeout_ms;
    for (size_t i = 0; i < world->token_count; i++) {
        handler->acked(handler->context, world->tokens[i], FCAP_PUSH_DONE, 1);
    }
    world->token_count = 0;
    return FCAP_OK;
}

static void sink_state(struct fcap_sink *sink, struct fcap_sink_state *ret_state)
{
    struct world *world = ((struct port_sink *)sink)->world;
    *ret_state = (struct fcap_sink_state){
        .ready = true, .connection = 1, .time_known = true, .time_ms = world->now_ms};
    ret_state->identity.bytes[0] = 1;
}

static const struct fcap_source_ops source_ops = {source_poll, source_may_send, source_publish};
static const struct fcap_sink_ops sink_ops = {sink_push, sink_poll, sink_state};

/* --- measuring --- */

struct reading {
    double wall_s;
    double process_s;
    double thread_s;
    uint64_t written_bytes;
    uint64_t events;
};

static double seconds_of(clockid_t id)
{
    struct timespec now;
    (void)clock_gettime(id, &now); /* These clocks always exist. */
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static struct reading read_now(const struct world *world, struct fcap_store_rocksdb *db,
                               struct fcap_store_metrics *metrics)
{
    fcap_store_rocksdb_metrics(db, metrics);
    return (struct reading){
        .wall_s = seconds_of(CLOCK_MONOTONIC),
        .process_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID),
        .thread_s = seconds_of(CLOCK_THREAD_CPUTIME_ID),
        .written_bytes =
            metrics->wal_bytes + metrics->flush_bytes + metrics->compaction_write_bytes,
        .events = world->made,
    };
}

static uint64_t peak_rss_bytes(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage); /* Cannot fail for the process itself. */
    return (uint64_t)usage.ru_maxrss * 1024;
}

static int compare_ids(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static void prepare_samples(struct world *world)
{
    uint64_t users = world->options.users;
    world->sample_every = users / SAMPLES_MAX > 0 ? users / SAMPLES_MAX : 1;
    world->sample_count = users / world->sample_every;
    if (world->sample_count > SAMPLES_MAX) {
        world->sample_count = SAMPLES_MAX;
    }
    world->sample_filter = calloc(1, 0x10000);
    /* Values, then (hashed id, sample) pairs in id order. */
    world->values =
        calloc(world->sample_count * WINDOWS + world->sample_count, sizeof *world->values);
    uint64_t *ids = (uint64_t *)(world->values + world->sample_count * WINDOWS);
    for (size_t i = 0; i < world->sample_count; i++) {
        ids[i * 2] = mix(i * world->sample_every + 1);
        ids[i * 2 + 1] = i;
        world->sample_filter[(ids[i * 2] >> 3) & 0xFFFF] |= (uint8_t)(1u << (ids[i * 2] & 7));
    }
    qsort(ids, world->sample_count, 2 * sizeof *ids, compare_ids);
}

/* Reads `"a12":3` pairs behind "counts":{ into counts by ad. */
static bool read_counts(const char *text, uint32_t *counts)
{
    memset(counts, 0, AD_POOL * sizeof *counts);
    if (text == NULL) {
        return true;
    }
    const char *at = strstr(text, "\"counts\":{");
    if (at == NULL || strstr(text, "partial") != NULL) {
        return false;
    }
    for (at += 10; *at == '"' || *at == ',';) {
        at += *at == ',';
        unsigned ad;
        unsigned count;
        int size = 0;
        if (sscanf(at, "\"a%u\":%u%n", &ad, &count, &size) != 2 || ad >= AD_POOL) {
            return false;
        }
        counts[ad] = count;
        at += size;
    }
    return *at == '}';
}

struct verdict {
    uint64_t users_compared;
    uint64_t nonempty;
    uint64_t mismatches;
};

static int compare_sample_events(const void *left, const void *right)
{
    const struct sample_event *a = left;
    const struct sample_event *b = right;
    return a->sample < b->sample ? -1 : a->sample > b->sample;
}

static bool sample_agrees(struct world *world, struct fcap_pipeline *pipeline, size_t sample,
                          const struct sample_event *events, size_t count, uint64_t *nonempty)
{
    static uint32_t wanted[AD_POOL];
    static uint32_t pushed[AD_POOL];
    static uint32_t stored[AD_POOL];
    bool agrees = true;
    uint64_t user = sample * world->sample_every;
    char name[17];
    name_user(user, name);
    for (size_t w = 0; w < WINDOWS; w++) {
        memset(wanted, 0, sizeof wanted);
        for (size_t i = 0; i < count; i++) {
            wanted[events[i].ad] += events[i].time_ms > world->now_ms - lengths_ms[w];
        }
        const struct sample_value *value = &world->values[sample * WINDOWS + w];
        bool alive = value->text != NULL && value->expire_at_ms >= world->now_ms;
        struct fcap_buffer text = {0};
        agrees = agrees &&
                 fcap_pipeline_inspect(pipeline, (int32_t)(mix(user) % world->options.partitions),
                                       (struct fcap_bytes){(uint8_t *)name, 16}, w, &text);
        fcap_buffer_put_u8(&text, 0);
        agrees = agrees && read_counts(alive ? value->text : NULL, pushed) &&
                 read_counts((const char *)text.data, stored) &&
                 memcmp(wanted, pushed, sizeof wanted) == 0 &&
                 memcmp(wanted, stored, sizeof wanted) == 0;
        fcap_buffer_done(&text);
        *nonempty += alive;
    }
    return agrees;
}

static struct verdict compare_samples(struct world *world, struct fcap_pipeline *pipeline)
{
    struct verdict verdict = {0};
    qsort(world->events, world->event_count, sizeof *world->events, compare_sample_events);
    size_t at = 0;
    for (size_t sample = 0; sample < world->sample_count; sample++) {
        size_t first = at;
        while (at < world->event_count && world->events[at].sample == sample) {
            at++;
        }
        verdict.users_compared++;
        verdict.mismatches += !sample_agrees(world, pipeline, sample, &world->events[first],
                                             at - first, &verdict.nonempty);
    }
    return verdict;
}

/* --- the run --- */

static struct fcap_settings settings_of(const struct options *options)
{
    struct fcap_settings settings;
    fcap_settings_default(&settings);
    settings.window_count = WINDOWS;
    for (size_t i = 0; i < WINDOWS; i++) {
        settings.windows[i].length_ms = lengths_ms[i];
        memcpy(settings.windows[i].name, names[i], 3);
    }
    settings.profile = "bench";
    settings.key_pattern = "{%u}:%w";
    settings.commit_interval_ms = INT64_MAX / 4;
    settings.commit_events = options->commit_events;
    settings.commit_defer = options->defer;
    settings.bucket_ms = DAY_MS / 16;
    settings.cache_bytes = options->cache_mib << 20;
    settings.records_per_step = options->step;
    settings.work_per_step = SIZE_MAX / 2;
    settings.slice_ms = DAY_MS / 16;
    settings.session_timeout_ms = 60000;
    settings.push_backlog_max = 1u << 20;
    return settings;
}

static enum fcap_status open_all(struct world *world, struct fcap_store_rocksdb **ret_db,
                                 struct fcap_pipeline **ret_pipeline, struct fcap_error *error)
{
    struct fcap_store_settings store_settings;
    fcap_store_settings_default(&store_settings);
    store_settings.directory = world->options.directory;
    store_settings.statistics = true;
    store_settings.wal = world->options.wal;
    enum fcap_status status = fcap_store_rocksdb_open(&store_settings, ret_db, error);
    if (status != FCAP_OK) {
        return status;
    }
    struct fcap_settings settings = settings_of(&world->options);
    struct fcap_ports ports = {.clock = &world->clock.port,
                               .decoder = &world->decoder.port,
                               .source = &world->source.port,
                               .store = fcap_store_rocksdb_handle(*ret_db),
                               .sink = &world->sink.port};
    world->assigned = false;
    return fcap_pipeline_open(&settings, &ports, ret_pipeline, error);
}

static enum fcap_status run_until(struct world *world, struct fcap_pipeline *pipeline,
                                  uint64_t made)
{
    enum fcap_status status = FCAP_OK;
    while (status == FCAP_OK && world->made < made) {
        status = fcap_pipeline_step(pipeline, 0);
        if (fcap_pipeline_counters(pipeline)->backpressure_steps > 0) {
            struct fcap_pipeline_sizes sizes;
            fcap_pipeline_sizes(pipeline, &sizes);
            if (sizes.backpressure) {
                (void)usleep(200); /* The writer is behind: let it work. */
            }
        }
    }
    return status;
}

struct result {
    struct reading begin;
    struct reading end;
    struct fcap_store_metrics before;
    struct fcap_store_metrics after;
    struct fcap_store_metrics reopened;
    struct verdict verdict;
    struct fcap_counters counters;
    struct fcap_pipeline_sizes sizes;
    uint64_t retained;
    uint64_t rss_bytes;
    double restart_s;
};

static enum fcap_status run_engine(struct world *world, struct result *result,
                                   struct fcap_error *error)
{
    struct fcap_store_rocksdb *db = NULL;
    struct fcap_pipeline *pipeline = NULL;
    enum fcap_status status = open_all(world, &db, &pipeline, error);
    if (status == FCAP_OK) {
        status = run_until(world, pipeline, world->total / 2);
        result->begin = read_now(world, db, &result->before);
    }
    if (status == FCAP_OK) {
        status = run_until(world, pipeline, world->total);
        result->end = read_now(world, db, &result->after);
    }
    if (status == FCAP_OK) {
        status = fcap_pipeline_step(pipeline, 0);
        fcap_pipeline_sizes(pipeline, &result->sizes);
        result->counters = *fcap_pipeline_counters(pipeline);
        result->rss_bytes = peak_rss_bytes();
    }
    if (status != FCAP_OK && pipeline != NULL) {
        (void)fcap_error_set(error, status, "%s", fcap_pipeline_error(pipeline));
    }
    if (status == FCAP_OK) {
        /* Virtual time stands still, so this deadline never comes. */
        status = fcap_pipeline_drain(pipeline, INT64_MAX);
    }
    fcap_pipeline_close(pipeline);
    fcap_store_rocksdb_close(db);
    return status;
}

/* Opens again what the run left and compares. */
static enum fcap_status check_engine(struct world *world, struct result *result,
                                     struct fcap_error *error)
{
    struct fcap_store_rocksdb *db = NULL;
    struct fcap_pipeline *pipeline = NULL;
    double begin_s = seconds_of(CLOCK_MONOTONIC);
    enum fcap_status status = open_all(world, &db, &pipeline, error);
    if (status == FCAP_OK) {
        status = fcap_pipeline_step(pipeline, 0);
        result->restart_s = seconds_of(CLOCK_MONOTONIC) - begin_s;
        fcap_store_rocksdb_metrics(db, &result->reopened);
    }
    if (status == FCAP_OK) {
        result->verdict = compare_samples(world, pipeline);
    }
    if (status != FCAP_OK && pipeline != NULL) {
        (void)fcap_error_set(error, status, "%s", fcap_pipeline_error(pipeline));
    }
    fcap_pipeline_close(pipeline);
    fcap_store_rocksdb_close(db);
    return status;
}

/* --- arguments and results --- */

static void print_usage(void)
{
    (void)fputs("usage: fcapd-bench engine [--users N] [--retained N] [--ads N] [--partitions N]\n"
                "                          [--commit-events N] [--defer N] [--cache-mib N]\n"
                "                          [--step N] [--zipf S] [--wal on|off] [--dir DIR]\n"
                "                          [--json]\n"
                "  --users 200000 keeps about 25 events a user, --users 2000000 about 5\n",
                stderr);
}

static bool parse_number(const char *text, uint64_t *ret_number)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0') {
        return false;
    }
    *ret_number = number;
    return true;
}

static bool parse_option(struct options *options, const char *name, const char *text)
{
    uint64_t number = 0;
    bool is_number = parse_number(text, &number);
    if (strcmp(name, "--wal") == 0) {
        options->wal = strcmp(text, "on") == 0;
        return options->wal || strcmp(text, "off") == 0;
    }
    if (strcmp(name, "--dir") == 0) {
        options->directory = text;
        return true;
    }
    if (strcmp(name, "--zipf") == 0) {
        options->zipf = atof(text);
        return options->zipf > 0 && options->zipf != 1.0;
    }
    struct {
        const char *name;
        uint64_t *target;
        uint64_t least;
        uint64_t most;
    } numbers[] = {
        {"--users", &options->users, 1000, 100000000},
        {"--retained", &options->retained, 1, 1000},
        {"--ads", &options->ads, 1, AD_POOL},
        {"--partitions", &options->partitions, 1, 1024},
        {"--commit-events", &options->commit_events, 1000, 100000000},
        {"--defer", &options->defer, 0, 48},
        {"--cache-mib", &options->cache_mib, 1, 1 << 20},
        {"--step", &options->step, 1, 50000},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].target = number;
            return is_number && number >= numbers[i].least && number <= numbers[i].most;
        }
    }
    return false;
}

static bool parse_options(int argc, char **argv, struct options *options)
{
    *options = (struct options){.users = 200000,
                                .ads = 30,
                                .partitions = 8,
                                .commit_events = 100000,
                                .defer = 10,
                                .cache_mib = 1024,
                                .step = 1000,
                                .zipf = 0.9,
                                .wal = true};
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            options->json = true;
        } else if (i + 1 == argc || !parse_option(options, argv[i], argv[i + 1])) {
            (void)fprintf(stderr, "fcapd-bench engine: %s%s%s: unknown, or out of range\n", argv[i],
                          i + 1 < argc ? " " : "", i + 1 < argc ? argv[i + 1] : "");
            print_usage();
            return false;
        } else {
            i++;
        }
    }
    if (options->retained == 0) {
        options->retained = options->users > 500000 ? 5 : 25;
    }
    return true;
}

struct line {
    const char *name;
    double value;
    int digits;
};

static void print_lines(const struct line *lines, size_t count, bool json)
{
    for (size_t i = 0; i < count; i++) {
        (void)printf("%-36s %14.*f\n", lines[i].name, lines[i].digits, lines[i].value);
    }
    for (size_t i = 0; json && i < count; i++) {
        (void)printf("%s\"%s\":%.*f%s", i == 0 ? "{" : ",", lines[i].name, lines[i].digits,
                     lines[i].value, i + 1 == count ? "}\n" : "");
    }
}

static void print_result(const struct world *world, const struct result *result)
{
    double events = (double)(result->end.events - result->begin.events);
    double wall_s = result->end.wall_s - result->begin.wall_s;
    uint64_t stored = 0;
    for (size_t i = 0; i < FCAP_FAMILY_COUNT; i++) {
        stored += result->reopened.live_bytes[i];
    }
    const struct fcap_store_metrics *a = &result->before;
    const struct fcap_store_metrics *b = &result->after;
    const struct line lines[] = {
        {"users", (double)world->options.users, 0},
        {"events", events, 0},
        {"events_retained", (double)result->retained, 0},
        {"events_per_second", events / wall_s, 0},
        {"cpu_us_per_event", 1e6 * (result->end.process_s - result->begin.process_s) / events, 2},
        {"cpu_us_per_event_engine_thread",
         1e6 * (result->end.thread_s - result->begin.thread_s) / events, 2},
        {"bytes_written_per_event",
         (double)(result->end.written_bytes - result->begin.written_bytes) / events, 1},
        {"bytes_wal_per_event", (double)(b->wal_bytes - a->wal_bytes) / events, 1},
        {"bytes_flush_per_event", (double)(b->flush_bytes - a->flush_bytes) / events, 1},
        {"bytes_compaction_per_event",
         (double)(b->compaction_write_bytes - a->compaction_write_bytes) / events, 1},
        {"bytes_stored_per_retained_event", (double)stored / (double)result->retained, 1},
        {"bytes_stored_users", (double)result->reopened.live_bytes[FCAP_FAMILY_USERS], 0},
        {"bytes_stored_timers", (double)result->reopened.live_bytes[FCAP_FAMILY_TIMERS], 0},
        {"rss_bytes", (double)result->rss_bytes, 0},
        {"cache_bytes", (double)result->sizes.cache_bytes, 0},
        {"cache_users", (double)result->sizes.cache_users, 0},
        {"cache_misses", (double)result->counters.cache_misses, 0},
        {"commits", (double)result->counters.commits, 0},
        {"records_written", (double)result->counters.commit_users, 0},
        {"values_pushed", (double)world->pushes, 0},
        {"value_bytes_pushed", (double)world->push_bytes, 0},
        {"expiries", (double)result->counters.expiries, 0},
        {"underflows", (double)result->counters.underflows, 0},
        {"reopen_seconds", result->restart_s, 2},
        {"users_compared", (double)result->verdict.users_compared, 0},
        {"keys_present", (double)result->verdict.nonempty, 0},
        {"mismatches", (double)result->verdict.mismatches, 0},
    };
    print_lines(lines, sizeof lines / sizeof lines[0], world->options.json);
}

/* Retained events: with the late ones, what a recount over 7 days would still see. */
static uint64_t count_retained(const struct world *world)
{
    uint64_t sampled = 0;
    for (size_t i = 0; i < world->event_count; i++) {
        sampled += world->events[i].time_ms > world->now_ms - lengths_ms[WINDOWS - 1];
    }
    /* The whole from the share of all events that the samples had. */
    return (uint64_t)((double)world->total * (double)sampled / (double)world->event_count);
}

static void free_world(struct world *world)
{
    for (size_t i = 0; i < world->sample_count * WINDOWS; i++) {
        free(world->values[i].text);
    }
    free(world->values);
    free(world->sample_filter);
    free(world->events);
    free(world->offsets);
    free(world);
}

static int run(struct world *world)
{
    struct result result = {0};
    struct fcap_error error = {{0}};
    char directory[] = "/tmp/fcapd-bench-XXXXXX";
    bool own = world->options.directory == NULL;
    if (own) {
        world->options.directory = mkdtemp(directory);
    }
    if (world->options.directory == NULL) {
        (void)fputs("fcapd-bench engine: /tmp: no temporary directory can be made\n", stderr);
        return 1;
    }
    char state[4096];
    (void)snprintf(state, sizeof state, "%s/state", world->options.directory); /* Cut: refused. */
    world->options.directory = state;
    enum fcap_status status = run_engine(world, &result, &error);
    status = status == FCAP_OK ? check_engine(world, &result, &error) : status;
    if (own) {
        bench_remove_tree(directory);
    }
    if (status != FCAP_OK) {
        (void)fprintf(stderr, "fcapd-bench engine: %s\n", error.text);
        return 1;
    }
    result.retained = count_retained(world);
    print_result(world, &result);
    bool enough = result.verdict.users_compared >= 1000 && result.verdict.nonempty >= 1000;
    if (!enough || result.verdict.mismatches > 0 || result.counters.underflows > 0) {
        (void)fputs("fcapd-bench engine: the comparison failed\n", stderr);
        return 1;
    }
    return 0;
}

int bench_engine(int argc, char **argv)
{
    struct world *world = calloc(1, sizeof *world);
    if (!parse_options(argc, argv, &world->options)) {
        free(world);
        return 2;
    }
    random_state[0] = 0x123456789abcdefull;
    random_state[1] = 0xfedcba987654321ull;
    zipf_init(&world->zipf, (double)world->options.users, world->options.zipf);
    world->total = world->options.users * world->options.retained * 2;
    world->now_ms = arrival_ms(world, world->options.step);
    world->offsets = calloc(world->options.partitions, sizeof *world->offsets);
    world->clock = (struct port_clock){{clock_now, clock_now}, world};
    world->source = (struct port_source){{&source_ops}, world};
    world->sink = (struct port_sink){{&sink_ops}, world};
    world->decoder = (struct port_decoder){{decode}, world};
    prepare_samples(world);
    int code = run(world);
    free_world(world);
    return code;
}
