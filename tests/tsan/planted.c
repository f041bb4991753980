/* Races on purpose, and the same work without a race, to see that ThreadSanitizer looks where it
 * should: planted <race-...|clean-...>. A race must be reported, else the build, the shim of
 * threads.c or a suppression is blind; the clean twin must not, else it sees what is not there.
 *
 *   pthread   two threads that TSan knows by itself
 *   c11       two threads of thrd_create(): unknown to TSan without the shim
 *   callback  a thread that librdkafka starts (by thrd_create()) runs our callback
 *   queue     a message goes through librdkafka's queues; only its locks (mtx_lock()) order it */
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>

#define ROUNDS   1000
#define WAIT_MAX 3000 /* pauses of 10 ms */

static bool is_locked; /* the clean twin */
static long planted_value;
static int is_called; /* atomic, and relaxed: it must order nothing */
static pthread_mutex_t pthread_lock = PTHREAD_MUTEX_INITIALIZER;
static mtx_t c11_lock;

static void check(bool good, const char *what)
{
    if (!good) {
        (void)fprintf(stderr, "%s\n", what);
        exit(2);
    }
}

static void pause_a_little(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static bool was_called(void)
{
    return __atomic_load_n(&is_called, __ATOMIC_RELAXED) != 0;
}

__attribute__((noinline)) static void planted_touch(void)
{
    planted_value++;
}

static void *touch_pthread(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        if (is_locked) {
            (void)pthread_mutex_lock(&pthread_lock);
        }
        planted_touch();
        if (is_locked) {
            (void)pthread_mutex_unlock(&pthread_lock);
        }
    }
    return NULL;
}

static void run_pthread(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        check(pthread_create(&threads[i], NULL, touch_pthread, NULL) == 0, "pthread_create");
    }
    for (int i = 0; i < 2; i++) {
        check(pthread_join(threads[i], NULL) == 0, "pthread_join");
    }
}

static void touch_c11(void)
{
    if (is_locked) {
        (void)mtx_lock(&c11_lock);
    }
    planted_touch();
    if (is_locked) {
        (void)mtx_unlock(&c11_lock);
    }
}

static int touch_many_c11(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        touch_c11();
    }
    return 7;
}

static void run_c11(void)
{
    thrd_t threads[2];
    int result = 0;
    for (int i = 0; i < 2; i++) {
        check(thrd_create(&threads[i], touch_many_c11, NULL) == thrd_success, "thrd_create");
    }
    for (int i = 0; i < 2; i++) {
        check(thrd_join(threads[i], &result) == thrd_success && result == 7, "thrd_join");
    }
}

static rd_kafka_t *open_producer(rd_kafka_conf_t *conf)
{
    static const char *const pairs[][2] = {
        {"bootstrap.servers", "127.0.0.1:1"}, /* Nobody is there, and nobody is needed. */
        {"statistics.interval.ms", "10"},
        {"message.timeout.ms", "50"},
        {"log_level", "0"},
    };
    char text[256];
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        check(rd_kafka_conf_set(conf, pairs[i][0], pairs[i][1], text, sizeof text) ==
                  RD_KAFKA_CONF_OK,
              text);
    }
    rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    check(producer != NULL, text);
    return producer;
}

/* On librdkafka's background thread. */
static void on_event(rd_kafka_t *client, rd_kafka_event_t *event, void *opaque)
{
    (void)client;
    (void)opaque;
    touch_c11();
    __atomic_store_n(&is_called, 1, __ATOMIC_RELAXED);
    rd_kafka_event_destroy(event);
}

static void run_callback(void)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_background_event_cb(conf, on_event);
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_STATS);
    rd_kafka_t *producer = open_producer(conf);
    rd_kafka_queue_t *events = rd_kafka_queue_get_main(producer);
    rd_kafka_queue_t *background = rd_kafka_queue_get_background(producer);
    rd_kafka_queue_forward(events, background);
    for (int i = 0; i < WAIT_MAX && !was_called(); i++) {
        touch_c11();
        pause_a_little();
    }
    check(was_called(), "no callback");
    touch_c11();
    rd_kafka_queue_destroy(background);
    rd_kafka_queue_destroy(events);
    rd_kafka_destroy(producer);
}

static long queued_value; /* written before the message is sent, read when its report comes */

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque)
{
    (void)client;
    (void)opaque;
    check(*(const long *)message->_private == 42, "what came through the queue");
    __atomic_store_n(&is_called, 1, __ATOMIC_RELAXED);
}

static void *produce(void *context)
{
    queued_value = 42;
    check(rd_kafka_producev(context, RD_KAFKA_V_TOPIC("planted"), RD_KAFKA_V_PARTITION(0),
                            RD_KAFKA_V_VALUE("x", 1), RD_KAFKA_V_OPAQUE(&queued_value),
                            RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR_NO_ERROR,
          "produce");
    return NULL;
}

static void run_queue(void)
{
    pthread_t thread;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_t *producer = open_producer(conf);
    check(pthread_create(&thread, NULL, produce, producer) == 0, "pthread_create");
    for (int i = 0; i < WAIT_MAX && !was_called(); i++) {
        (void)rd_kafka_poll(producer, 10);
    }
    check(was_called(), "no report");
    check(pthread_join(thread, NULL) == 0, "pthread_join"); /* Only now: it would order, too. */
    rd_kafka_destroy(producer);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } works[] = {{"pthread", run_pthread},
                 {"c11", run_c11},
                 {"callback", run_callback},
                 {"queue", run_queue}};
    const char *name = argc == 2 ? strchr(argv[1], '-') : NULL;
    check(mtx_init(&c11_lock, mtx_plain) == thrd_success, "mtx_init");
    for (size_t i = 0; name != NULL && i < sizeof works / sizeof works[0]; i++) {
        if (strcmp(name + 1, works[i].name) == 0) {
            is_locked = strncmp(argv[1], "clean", 5) == 0;
            works[i].run();
            return 0; /* TSan makes it 66 when it has reported something. */
        }
    }
    check(false, "usage: planted <race|clean>-<pthread|c11|callback|queue>");
}
