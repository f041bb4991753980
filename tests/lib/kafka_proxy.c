#include "lib/kafka_proxy.h"

#include "lab/kafka_broker.h"
#include "lab/lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIRS_MAX    64
#define REQUESTS_MAX 256 /* under way on one connection */
#define FRAME_MAX    (64 << 20)
#define TICK_MS      20
#define READ_BYTES   65536
#define STARVED_MS   10

enum { API_FETCH = 1, API_METADATA = 3, API_COORDINATOR = 10 };

struct bytes {
    uint8_t *data;
    size_t size;
    size_t capacity;
};

struct request {
    int32_t correlation;
    int16_t api;
    int16_t version;
};

/* A client and its connection to the broker. */
struct pair {
    int client;
    int broker;
    struct bytes from_client;
    struct bytes from_broker;
    struct request requests[REQUESTS_MAX];
    size_t next;
};

struct kafka_proxy {
    char address[32];
    uint16_t port;
    uint16_t broker_port;
    int listener;
    pthread_t thread;
    struct pair pairs[PAIRS_MAX];
    size_t pair_count;

    pthread_mutex_t lock;
    bool stop;
    bool swallow;
    bool cut;
    char topic[256]; /* starved; empty: none */
    int32_t partition;
    bool is_muted;      /* at once, and its end is told as it is */
    int64_t frozen_end; /* of it; -1: not seen yet */
    uint64_t starved;
};

/* --- bytes ---------------------------------------------------------------------------------- */

/* A walk over an answer; the process ends when it leads outside. */
struct walk {
    uint8_t *data;
    size_t size;
    size_t at;
};

static uint8_t *step(struct walk *walk, size_t size)
{
    lab_check(walk->size - walk->at >= size);
    uint8_t *here = walk->data + walk->at;
    walk->at += size;
    return here;
}

static uint64_t number_at(const uint8_t *at, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value = value << 8 | at[i];
    }
    return value;
}

static int16_t take_16(struct walk *walk)
{
    return (int16_t)number_at(step(walk, 2), 2);
}

static int32_t take_32(struct walk *walk)
{
    return (int32_t)number_at(step(walk, 4), 4);
}

static void put_64(uint8_t *at, int64_t value)
{
    for (int i = 0; i < 8; i++) {
        at[i] = (uint8_t)((uint64_t)value >> (56 - 8 * i));
    }
}

static void append(struct bytes *bytes, const uint8_t *data, size_t size)
{
    if (bytes->capacity - bytes->size < size) {
        bytes->capacity = bytes->capacity * 2 + size;
        bytes->data = realloc(bytes->data, bytes->capacity);
        lab_check(bytes->data != NULL);
    }
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

/* --- what is changed ------------------------------------------------------------------------ */

/* "127.0.0.1" followed by the broker's port, wherever it stands. */
static void replace_port(const struct kafka_proxy *proxy, uint8_t *data, size_t size)
{
    static const char host[] = "127.0.0.1";
    const size_t length = sizeof host - 1;
    for (size_t at = 0; at + length + 4 <= size; at++) {
        if (memcmp(data + at, host, length) == 0 &&
            number_at(data + at + length, 4) == proxy->broker_port) {
            data[at + length + 2] = (uint8_t)(proxy->port >> 8);
            data[at + length + 3] = (uint8_t)proxy->port;
        }
    }
}

/* Bytes of the batches that begin below `end`. */
static size_t batches_below(const uint8_t *records, size_t size, int64_t end)
{
    size_t at = 0;
    while (size - at >= 12 && (int64_t)number_at(records + at, 8) < end) {
        size_t batch = (size_t)number_at(records + at + 8, 4) + 12;
        at += batch < size - at ? batch : size - at; /* The last one may be cut. */
    }
    return at;
}

/* One partition of a Fetch answer; returns how many bytes of records were taken out. */
static size_t starve_partition(struct kafka_proxy *proxy, struct walk *walk, int16_t version,
                               bool is_topic)
{
    bool is_it = take_32(walk) == proxy->partition && is_topic;
    (void)take_16(walk); /* the error */
    uint8_t *high = step(walk, 8);
    uint8_t *stable = step(walk, 8);
    (void)step(walk, version >= 5 ? 8 : 0);
    int32_t aborted = take_32(walk);
    (void)step(walk, aborted > 0 ? (size_t)aborted * 16 : 0);
    (void)step(walk, version >= 11 ? 4 : 0);
    uint8_t *size_at = step(walk, 4);
    int32_t size = (int32_t)number_at(size_at, 4);
    size_t records = size > 0 ? (size_t)size : 0;
    (void)step(walk, records);
    if (!is_it) {
        return 0;
    }
    if (!proxy->is_muted && proxy->frozen_end < 0) {
        proxy->frozen_end = (int64_t)number_at(stable, 8);
        if (records > 0) {
            proxy->frozen_end = -1; /* Not at the end yet: let it come there. */
            return 0;
        }
    }
    size_t kept = 0;
    if (!proxy->is_muted) {
        put_64(high, proxy->frozen_end);
        put_64(stable, proxy->frozen_end);
        kept = batches_below(size_at + 4, records, proxy->frozen_end);
    }
    size_t taken = records - kept;
    for (int i = 0; i < 4; i++) {
        size_at[i] = (uint8_t)(kept >> (24 - 8 * i));
    }
    memmove(size_at + 4 + kept, walk->data + walk->at, walk->size - walk->at);
    walk->at -= taken;
    walk->size -= taken;
    proxy->starved += taken > 0;
    return taken;
}

/* Gives the frame's new size. */
static size_t starve(struct kafka_proxy *proxy, const struct request *request, uint8_t *frame,
                     size_t size)
{
    struct walk walk = {.data = frame, .size = size, .at = 8};
    if (request->version < 4 || request->version > 11) {
        lab_die("the proxy does not speak Fetch %d", request->version);
    }
    (void)take_32(&walk); /* throttling */
    (void)step(&walk, request->version >= 7 ? 6 : 0);
    int32_t topics = take_32(&walk);
    size_t taken = 0;
    for (int32_t i = 0; i < topics; i++) {
        int16_t length = take_16(&walk);
        const uint8_t *name = step(&walk, (size_t)length);
        bool is_topic = strlen(proxy->topic) == (size_t)length &&
                        memcmp(proxy->topic, name, (size_t)length) == 0;
        int32_t partitions = take_32(&walk);
        for (int32_t k = 0; k < partitions; k++) {
            taken += starve_partition(proxy, &walk, request->version, is_topic);
        }
    }
    if (taken > 0) {
        lab_pause_ms(STARVED_MS); /* The client asks again at once. */
    }
    uint32_t body = (uint32_t)(size - taken - 4);
    for (int i = 0; i < 4; i++) {
        frame[i] = (uint8_t)(body >> (24 - 8 * i));
    }
    return size - taken;
}

static size_t change_answer(struct kafka_proxy *proxy, struct pair *pair, uint8_t *frame,
                            size_t size)
{
    int32_t correlation = (int32_t)number_at(frame + 4, 4);
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        const struct request *request = &pair->requests[i];
        if (request->correlation != correlation) {
            continue;
        }
        if (request->api == API_METADATA || request->api == API_COORDINATOR) {
            replace_port(proxy, frame, size);
        } else if (request->api == API_FETCH && proxy->topic[0] != '\0') {
            return starve(proxy, request, frame, size);
        }
        return size;
    }
    return size;
}

static void note_request(struct pair *pair, const uint8_t *frame)
{
    pair->requests[pair->next] = (struct request){.api = (int16_t)number_at(frame + 4, 2),
                                                  .version = (int16_t)number_at(frame + 6, 2),
                                                  .correlation = (int32_t)number_at(frame + 8, 4)};
    pair->next = (pair->next + 1) % REQUESTS_MAX;
}

/* --- connections ---------------------------------------------------------------------------- */

static bool send_all(int socket, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(socket, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return false;
        }
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Whole frames go on; false when the connection is over. */
static bool pass(struct kafka_proxy *proxy, struct pair *pair, bool is_request)
{
    static _Thread_local uint8_t chunk[READ_BYTES]; /* Each proxy has a thread. */
    struct bytes *bytes = is_request ? &pair->from_client : &pair->from_broker;
    ssize_t got = recv(is_request ? pair->client : pair->broker, chunk, sizeof chunk, 0);
    if (got <= 0) {
        return got < 0 && errno == EINTR;
    }
    append(bytes, chunk, (size_t)got);
    size_t at = 0;
    bool is_open = true;
    while (is_open && bytes->size - at >= 12) {
        uint8_t *frame = bytes->data + at;
        size_t size = (size_t)number_at(frame, 4) + 4;
        lab_check(size < FRAME_MAX);
        if (bytes->size - at < size) {
            break;
        }
        if (is_request) {
            note_request(pair, frame);
        }
        size_t changed = is_request ? size : change_answer(proxy, pair, frame, size);
        is_open = send_all(is_request ? pair->broker : pair->client, frame, changed);
        at += size;
    }
    bytes->size -= at;
    memmove(bytes->data, bytes->data + at, bytes->size);
    return is_open;
}

static void close_pair(struct kafka_proxy *proxy, size_t index)
{
    struct pair *pair = &proxy->pairs[index];
    (void)close(pair->client);
    (void)close(pair->broker);
    free(pair->from_client.data);
    free(pair->from_broker.data);
    *pair = proxy->pairs[--proxy->pair_count];
}

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void accept_one(struct kafka_proxy *proxy)
{
    int on = 1;
    struct sockaddr_in to = loopback(proxy->broker_port);
    int client = accept(proxy->listener, NULL, NULL);
    if (client < 0) {
        return;
    }
    int broker = proxy->cut ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (broker < 0 || connect(broker, (struct sockaddr *)&to, sizeof to) != 0) {
        (void)close(client);
        (void)close(broker);
        return;
    }
    lab_check(proxy->pair_count < PAIRS_MAX);
    (void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* Only slower without. */
    (void)setsockopt(broker, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct pair *pair = &proxy->pairs[proxy->pair_count++];
    *pair = (struct pair){.client = client, .broker = broker};
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        pair->requests[i].correlation = -1;
    }
}

static void serve(struct kafka_proxy *proxy)
{
    struct pollfd polled[2 * PAIRS_MAX + 1] = {{.fd = proxy->listener, .events = POLLIN}};
    size_t count = proxy->pair_count;
    for (size_t i = 0; i < count; i++) {
        polled[1 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i].client, .events = POLLIN};
        polled[2 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i].broker, .events = POLLIN};
    }
    pthread_mutex_unlock(&proxy->lock);
    (void)poll(polled, 1 + 2 * count, TICK_MS);
    pthread_mutex_lock(&proxy->lock);
    if (proxy->swallow) {
        return;
    }
    for (size_t i = count; i-- > 0;) { /* Backwards: the last one takes a closed one's place. */
        bool is_open = !proxy->cut;
        is_open =
            is_open && (polled[1 + 2 * i].revents == 0 || pass(proxy, &proxy->pairs[i], true));
        is_open =
            is_open && (polled[2 + 2 * i].revents == 0 || pass(proxy, &proxy->pairs[i], false));
        if (!is_open) {
            close_pair(proxy, i);
        }
    }
    if (polled[0].revents != 0) {
        accept_one(proxy);
    }
}

static void *run(void *context)
{
    struct kafka_proxy *proxy = context;
    pthread_mutex_lock(&proxy->lock);
    while (!proxy->stop) {
        if (proxy->swallow) {
            pthread_mutex_unlock(&proxy->lock);
            lab_pause_ms(TICK_MS);
            pthread_mutex_lock(&proxy->lock);
        } else {
            serve(proxy);
        }
    }
    pthread_mutex_unlock(&proxy->lock);
    return NULL;
}

/* --- from outside --------------------------------------------------------------------------- */

struct kafka_proxy *kafka_proxy_start(const char *broker)
{
    struct kafka_proxy *proxy = calloc(1, sizeof *proxy);
    const char *colon = strrchr(broker, ':');
    int on = 1;
    lab_check(proxy != NULL && colon != NULL && strncmp(broker, "127.0.0.1:", 10) == 0);
    proxy->broker_port = (uint16_t)strtoul(colon + 1, NULL, 10);
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    lab_check(proxy->listener >= 0);
    (void)setsockopt(proxy->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    lab_check(bind(proxy->listener, (struct sockaddr *)&address, sizeof address) == 0);
    lab_check(listen(proxy->listener, PAIRS_MAX) == 0);
    lab_check(getsockname(proxy->listener, (struct sockaddr *)&address, &size) == 0);
    proxy->port = ntohs(address.sin_port);
    (void)snprintf(proxy->address, sizeof proxy->address, "127.0.0.1:%u", proxy->port);
    lab_check(pthread_mutex_init(&proxy->lock, NULL) == 0);
    lab_check(pthread_create(&proxy->thread, NULL, run, proxy) == 0);
    return proxy;
}

void kafka_proxy_stop(struct kafka_proxy *proxy)
{
    if (proxy == NULL) {
        return;
    }
    pthread_mutex_lock(&proxy->lock);
    proxy->stop = true;
    pthread_mutex_unlock(&proxy->lock);
    (void)pthread_join(proxy->thread, NULL);
    while (proxy->pair_count > 0) {
        close_pair(proxy, 0);
    }
    (void)close(proxy->listener);
    (void)pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}

struct kafka_proxy *kafka_proxy_insert(void)
{
    struct kafka_proxy *proxy = kafka_proxy_start(kafka_test_brokers());
    lab_check(setenv("FCAP_TEST_BROKERS", proxy->address, 1) == 0);
    return proxy;
}

void kafka_proxy_remove(struct kafka_proxy *proxy)
{
    char brokers[32];
    if (proxy != NULL) {
        (void)snprintf(brokers, sizeof brokers, "127.0.0.1:%u", proxy->broker_port);
        kafka_proxy_stop(proxy);
        lab_check(setenv("FCAP_TEST_BROKERS", brokers, 1) == 0);
    }
}

const char *kafka_proxy_address(const struct kafka_proxy *proxy)
{
    return proxy->address;
}

void kafka_proxy_swallow(struct kafka_proxy *proxy, bool on)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->swallow = on;
    pthread_mutex_unlock(&proxy->lock);
}

void kafka_proxy_cut(struct kafka_proxy *proxy, bool on)
{
    pthread_mutex_lock(&proxy->lock);
    proxy->cut = on;
    pthread_mutex_unlock(&proxy->lock);
}

static void take_records(struct kafka_proxy *proxy, const char *topic, int32_t partition,
                         bool is_muted)
{
    pthread_mutex_lock(&proxy->lock);
    (void)snprintf(proxy->topic, sizeof proxy->topic, "%s", topic == NULL ? "" : topic);
    proxy->partition = partition;
    proxy->is_muted = is_muted;
    proxy->frozen_end = -1;
    pthread_mutex_unlock(&proxy->lock);
}

void kafka_proxy_starve(struct kafka_proxy *proxy, const char *topic, int32_t partition)
{
    take_records(proxy, topic, partition, false);
}

void kafka_proxy_mute(struct kafka_proxy *proxy, const char *topic, int32_t partition)
{
    take_records(proxy, topic, partition, true);
}

uint64_t kafka_proxy_starved(struct kafka_proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
    uint64_t starved = proxy->starved;
    pthread_mutex_unlock(&proxy->lock);
    return starved;
}
