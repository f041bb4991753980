#include "demo/world.h"

#include "lab/claims.h"
#include "lab/impressions.h"
#include "lab/lab.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PARTITIONS_USUAL 12
#define START_MS         120000
#define STOP_MS          30000
#define ANSWER_MS        15000
#define PAUSE_MS         20
#define PARTITION_FILL   (3 << 20) /* bytes that an even share may fill of the 5 MiB */
#define AHEAD_MAX        (2 << 20) /* bytes of a partition that the daemon has not read */
#define RECORD_BYTES     100       /* more than what a record takes beside its value */
#define LOG_TAIL         3000
#define STILL_MS         60000 /* without reading on */

const struct demo_window demo_windows[DEMO_WINDOWS] = {
    {"5s", 5000}, {"10s", 10000}, {"30s", 30000}};

/* What is remembered of a record until it is acknowledged; the texts follow it. */
struct sent {
    int64_t time_ms;
    uint32_t ad; /* where the texts begin */
    uint32_t id;
    bool counts;
    char texts[];
};

/* --- start ----------------------------------------------------------------------------------- */

static bool open_redis(struct demo_world *world)
{
    char error[256];
    bool is_own = world->options->redis.port == 0;
    world->redis_address = world->options->redis;
    if (is_own) {
        redis_server_start(&world->redis, NULL);
        (void)snprintf(world->redis_address.host, sizeof world->redis_address.host, "127.0.0.1");
        world->redis_address.port = world->redis.port;
    }
    world->reader = redis_reader_open(world->redis_address.host, world->redis_address.port, error,
                                      sizeof error);
    if (world->reader == NULL) {
        (void)fprintf(stderr, "fcapd demo: Redis %s:%u: %s\n", world->redis_address.host,
                      world->redis_address.port, error);
        return false;
    }
    world->profile = is_own ? "demo" : world->run->name;
    world->run->traces->keys = !is_own;
    (void)snprintf(world->key_prefix, sizeof world->key_prefix, "%s:{",
                   is_own ? "fc" : world->run->name);
    (void)printf("redis   %s:%u (%s), keys %s<user>}:<window>\n", world->redis_address.host,
                 world->redis_address.port, is_own ? "private" : "yours", world->key_prefix);
    return true;
}

/* Enough partitions for a private Kafka to keep all of it, where that is possible. */
static int32_t partitions_for(uint64_t events)
{
    uint64_t wanted = events * (RECORD_BYTES + 80) / PARTITION_FILL + 1;
    return wanted < PARTITIONS_USUAL      ? PARTITIONS_USUAL
           : wanted > DEMO_PARTITIONS_MAX ? DEMO_PARTITIONS_MAX
                                          : (int32_t)wanted;
}

static bool open_kafka(struct demo_world *world)
{
    world->brokers = world->options->brokers;
    if (world->brokers == NULL) {
        world->mock = mock_kafka_start();
        world->brokers = mock_kafka_address(world->mock);
        world->topic = "impressions";
        world->partition_count = partitions_for(world->options->events);
        mock_kafka_create_topic(world->mock, world->topic, world->partition_count);
    } else {
        if (!kafka_answers(world->brokers, ANSWER_MS)) {
            (void)fprintf(stderr, "fcapd demo: --brokers %s: no broker answers within %d s\n",
                          world->brokers, ANSWER_MS / 1000);
            return false;
        }
        world->topic = world->run->name;
        world->run->traces->topic = true;
        world->partition_count = PARTITIONS_USUAL;
        kafka_create_topic(world->brokers, world->topic, world->partition_count, NULL);
    }
    (void)printf("kafka   %s (%s), topic %s, %" PRId32 " partitions\n", world->brokers,
                 world->mock != NULL ? "embedded" : "yours", world->topic, world->partition_count);
    return true;
}

static void write_configuration(struct demo_world *world)
{
    char yaml[4096];
    int size = snprintf(yaml, sizeof yaml,
                        "profile: %s\n"
                        "instance: one\n"
                        "windows: [%s, %s, %s]\n"
                        "kafka:\n"
                        "  brokers: %s\n"
                        "  topic: %s\n"
                        "  group: %s\n"
                        "  start: earliest\n"
                        "  session_timeout: 6s\n"
                        "event:\n"
                        "  id: id\n"
                        "redis:\n"
                        "  host: %s\n"
                        "  port: %u\n"
                        "  key: \"%s%%u}:%%w\"\n"
                        "limits:\n"
                        "  user_id_bytes: 1024\n"
                        "  ad_id_bytes: 1024\n"
                        "  ads_per_user: 100000\n"
                        "  value_bytes: 2MiB\n"
                        "commit:\n"
                        "  interval: 500ms\n"
                        "memory:\n"
                        "  budget: 640MiB\n",
                        world->profile, demo_windows[0].name, demo_windows[1].name,
                        demo_windows[2].name, world->brokers, world->topic, world->topic,
                        world->redis_address.host, world->redis_address.port, world->key_prefix);
    lab_check(size > 0 && (size_t)size < sizeof yaml);
    daemon_process_init(&world->daemon, "/proc/self/exe", yaml);
}

static void say_end_of_log(struct demo_world *world)
{
    const char *log = daemon_process_log(&world->daemon);
    size_t size = strlen(log);
    (void)fprintf(stderr, "--- the end of its log:\n%s",
                  size > LOG_TAIL ? log + size - LOG_TAIL : log);
}

void demo_world_say(struct demo_world *world, const char *what)
{
    int code = daemon_process_get(&world->daemon, "/readyz", NULL);
    (void)fflush(stdout);
    (void)fprintf(stderr, "\nfcapd demo: %s; /readyz: %s\n", what,
                  code != 0 ? world->daemon.text : "no answer");
    say_end_of_log(world);
}

/* Ready, and fc:meta speaks for every partition. */
static bool await_ready(struct demo_world *world)
{
    int64_t deadline_ms = lab_monotonic_ms() + START_MS;
    for (;;) {
        int32_t claimed = 0;
        if (daemon_process_get(&world->daemon, "/readyz", NULL) == 200) {
            const char *meta = demo_world_meta(world);
            struct claim claim;
            for (int32_t i = 0; i < world->partition_count; i++) {
                claimed += claim_read(meta, i, &claim);
            }
        }
        if (claimed == world->partition_count) {
            return true;
        }
        if (!demo_world_is_alive(world)) {
            return false;
        }
        if (lab_monotonic_ms() > deadline_ms) {
            demo_world_say(world, "the daemon is not ready after two minutes");
            return false;
        }
        lab_pause_ms(PAUSE_MS);
    }
}

static void on_acknowledged(void *context, void *tag, int32_t partition, int64_t offset)
{
    struct demo_world *world = context;
    struct sent *sent = tag;
    enum oracle_verdict verdict;
    if (sent->counts) {
        const struct oracle_event event = {
            .partition = partition,
            .offset = offset,
            .user = sent->texts,
            .ad = sent->texts + sent->ad,
            .time_ms = sent->time_ms,
            .id = sent->texts + sent->id,
        };
        verdict = oracle_add(world->oracle, &event);
    } else {
        verdict = oracle_skip(world->oracle, partition, offset);
    }
    if (verdict != ORACLE_ACCEPTED) {
        lab_die("Kafka acknowledged offset %" PRId64 " of partition %" PRId32 " out of order",
                offset, partition);
    }
    world->partitions[partition].acked_next = offset + 1;
    world->acked++;
    free(sent);
}

bool demo_world_open(struct demo_world *world, const struct demo_options *options,
                     const struct demo_run *run)
{
    *world = (struct demo_world){.options = options, .run = run};
    if (!open_redis(world) || !open_kafka(world)) {
        return false;
    }
    write_configuration(world);
    daemon_process_start(&world->daemon, NULL);
    (void)printf("fcapd   pid %d, http://127.0.0.1:%u/metrics, windows %s %s %s; it joins its "
                 "group\n",
                 (int)world->daemon.pid, world->daemon.http_port, demo_windows[0].name,
                 demo_windows[1].name, demo_windows[2].name);
    (void)fflush(stdout);
    if (!await_ready(world)) {
        return false;
    }
    world->oracle = oracle_open();
    world->producer = kafka_producer_open(world->brokers, world->topic, NULL, NULL);
    kafka_producer_listen(world->producer, on_acknowledged, world);
    return true;
}

bool demo_world_close(struct demo_world *world)
{
    int code = 0;
    if (world->daemon.pid > 0) {
        daemon_process_signal(&world->daemon, SIGTERM);
        code = daemon_process_wait(&world->daemon, STOP_MS);
        if (code != 0) {
            (void)fprintf(stderr, "fcapd demo: the daemon did not stop in order (%d)\n", code);
            say_end_of_log(world);
        }
    }
    kafka_producer_close(world->producer);
    daemon_process_done(&world->daemon);
    redis_reader_close(world->reader);
    redis_server_stop(&world->redis);
    mock_kafka_stop(world->mock);
    oracle_close(world->oracle);
    return code == 0;
}

/* --- producing ------------------------------------------------------------------------------- */

bool demo_world_has_room(const struct demo_world *world, const char *user)
{
    int32_t number = impressions_partition(user, world->partition_count);
    const struct demo_partition *partition = &world->partitions[number];
    uint64_t mean = world->sent == 0 ? 0 : world->sent_bytes / world->sent;
    uint64_t ahead = partition->sent - (uint64_t)partition->read_next;
    return ahead * (mean + RECORD_BYTES) < AHEAD_MAX;
}

void demo_world_send(struct demo_world *world, const struct demo_record *record)
{
    size_t user_size = strlen(record->user) + 1;
    size_t ad_size = strlen(record->ad) + 1;
    size_t id_size = strlen(record->id) + 1;
    int32_t number = impressions_partition(record->user, world->partition_count);
    struct sent *sent = malloc(sizeof *sent + user_size + ad_size + id_size);
    lab_check(sent != NULL);
    sent->time_ms = record->time_ms;
    sent->counts = record->counts;
    sent->ad = (uint32_t)user_size;
    sent->id = (uint32_t)(user_size + ad_size);
    memcpy(sent->texts, record->user, user_size);
    memcpy(sent->texts + sent->ad, record->ad, ad_size);
    memcpy(sent->texts + sent->id, record->id, id_size);
    world->sent++;
    world->sent_bytes += record->value_size + user_size;
    world->partitions[number].sent++;
    kafka_producer_send(world->producer, &(struct kafka_produce){.partition = number,
                                                                 .key = record->user,
                                                                 .key_size = user_size - 1,
                                                                 .value = record->value,
                                                                 .value_size = record->value_size,
                                                                 .tag = sent});
}

void demo_world_poll(struct demo_world *world)
{
    kafka_producer_poll(world->producer);
}

void demo_world_flush(struct demo_world *world)
{
    (void)kafka_producer_flush(world->producer);
}

/* --- looking --------------------------------------------------------------------------------- */

bool demo_world_look(struct demo_world *world)
{
    if (daemon_process_get(&world->daemon, "/metrics", NULL) != 200) {
        return false;
    }
    for (int32_t i = 0; i < world->partition_count; i++) {
        char label[40];
        (void)snprintf(label, sizeof label, "partition=\"%" PRId32 "\"", i);
        double next = daemon_process_sample(&world->daemon, "fcapd_partition_next_offset", label);
        if (next > (double)world->partitions[i].read_next) {
            world->partitions[i].read_next = (int64_t)next;
        }
    }
    return true;
}

bool demo_world_is_alive(struct demo_world *world)
{
    if (world->daemon.pid == 0) {
        return false;
    }
    int code = daemon_process_wait(&world->daemon, 0);
    if (code == -1) {
        return true;
    }
    (void)fprintf(stderr, "\nfcapd demo: the daemon has ended with code %d\n", code);
    say_end_of_log(world);
    return false;
}

int64_t demo_progress_look(struct demo_progress *progress, int64_t read, int64_t waiting,
                           int64_t now_ms)
{
    if (read != progress->read || waiting <= 0) {
        progress->read = read;
        progress->since_ms = now_ms;
    }
    return now_ms - progress->since_ms;
}

bool demo_world_gets_on(struct demo_world *world, struct demo_progress *progress, int64_t now_ms)
{
    char what[128];
    int64_t read = 0;
    int64_t waiting = 0;
    for (int32_t i = 0; i < world->partition_count; i++) {
        const struct demo_partition *partition = &world->partitions[i];
        read += partition->read_next;
        waiting += partition->acked_next > partition->read_next
                       ? partition->acked_next - partition->read_next
                       : 0;
    }
    if (demo_progress_look(progress, read, waiting, now_ms) < STILL_MS) {
        return true;
    }
    (void)snprintf(what, sizeof what,
                   "the daemon has read nothing for %d s, and %" PRId64 " records wait",
                   STILL_MS / 1000, waiting);
    demo_world_say(world, what);
    return false;
}

const char *demo_world_meta(struct demo_world *world)
{
    char key[128];
    (void)snprintf(key, sizeof key, "fc:meta:%s:one", world->profile);
    return redis_reader_text(world->reader, key);
}

bool demo_world_is_applied(struct demo_world *world)
{
    const char *meta = demo_world_meta(world);
    for (int32_t i = 0; i < world->partition_count; i++) {
        struct claim claim;
        if (!claim_read(meta, i, &claim) || claim.next < world->partitions[i].acked_next) {
            return false;
        }
    }
    return world->acked == world->sent;
}

void demo_world_key(const struct demo_world *world, const char *user, size_t window, char *key,
                    size_t key_size)
{
    size_t used = (size_t)snprintf(key, key_size, "%s", world->key_prefix);
    for (const char *at = user; *at != '\0' && used + 4 < key_size; at++) {
        if (strchr("%{}", *at) != NULL) {
            used += (size_t)snprintf(key + used, key_size - used, "%%%02X", (unsigned char)*at);
        } else {
            key[used++] = *at;
        }
    }
    (void)snprintf(key + used, key_size - used, "}:%s", demo_windows[window].name);
}
