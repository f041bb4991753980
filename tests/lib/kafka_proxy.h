/* A TCP proxy in front of a Kafka broker: it can swallow everything (a dropped port), cut all
 * connections, and starve one partition, whose fetches are then answered with nothing.
 *
 * What must hold: clients that know only its address stay behind it, because it puts its own port
 * into answers that name the broker's. Understands what librdkafka 2.0 speaks (Fetch up to version
 * 11); ends the process on what it does not. Thread rule: start and stop on one thread; it works on
 * a thread of its own. */
#ifndef FCAP_TESTS_KAFKA_PROXY_H
#define FCAP_TESTS_KAFKA_PROXY_H

#include <stdbool.h>
#include <stdint.h>

struct kafka_proxy;

/* `broker`: "127.0.0.1:port". */
struct kafka_proxy *kafka_proxy_start(const char *broker);
/* NULL is fine. */
void kafka_proxy_stop(struct kafka_proxy *proxy);
/* Starts one in front of kafka_test_brokers(), which from now on names the proxy. */
struct kafka_proxy *kafka_proxy_insert(void);
/* Undoes that. NULL is fine. */
void kafka_proxy_remove(struct kafka_proxy *proxy);
const char *kafka_proxy_address(const struct kafka_proxy *proxy);

/* Nothing goes through any more; connections stay open, new ones get no answer. */
void kafka_proxy_swallow(struct kafka_proxy *proxy, bool on);
/* All connections are closed, new ones at once. */
void kafka_proxy_cut(struct kafka_proxy *proxy, bool on);
/* Fetches of this partition are answered with the records and the end that it had when a fetch came
 * back empty first, so that a reader even believes to be at the end. NULL: of none. */
void kafka_proxy_starve(struct kafka_proxy *proxy, const char *topic, int32_t partition);
/* Fetches of this partition are answered without records from now on, wherever they stand; its end
 * is told as it is. NULL: of none. */
void kafka_proxy_mute(struct kafka_proxy *proxy, const char *topic, int32_t partition);
/* Answers from which records were taken so far. */
uint64_t kafka_proxy_starved(struct kafka_proxy *proxy);

#endif
