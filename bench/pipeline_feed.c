#include "pipeline.h"

#include "lab/lab.h"

#include <stdlib.h>
#include <string.h>

#define TICK_MS   2
#define LINGER_MS 15         /* as a producer that minds its broker has it; counts as a delay */
#define BLOCK     (1u << 16) /* events of one piece of memory: none of them moves */

struct feed {
    struct kafka_producer *producer;
    struct impressions *impressions;
    int32_t partitions;
    struct feed_event **blocks;
    size_t block_count;
    uint64_t count;
    int64_t newest_ms;
    int64_t ends[PIPELINE_PARTITIONS];
};

static void on_acknowledged(void *context, void *tag, int32_t partition, int64_t offset)
{
    struct feed *feed = context;
    struct feed_event *event = tag;
    lab_check(event->partition == partition && event->offset == -1);
    lab_check(offset == feed->ends[partition]); /* We are the topic's only producer. */
    event->offset = offset;
    feed->ends[partition] = offset + 1;
}

struct feed *feed_open(const struct pipeline_options *options, const char *brokers,
                       const char *topic)
{
    struct feed *feed = calloc(1, sizeof *feed);
    lab_check(feed != NULL);
    feed->partitions = options->partitions;
    feed->impressions = impressions_open(&(struct impressions_options){
        .seed = 1,
        .users = options->users,
        .user_exponent = options->exponent,
        .ads = options->ads,
        .ad_exponent = 0.8,
        .sessions = 2000,
        .session_length = 8,
        .value_bytes = options->value_bytes,
    });
    feed->producer = kafka_producer_open_linger(brokers, topic, LINGER_MS);
    kafka_producer_listen(feed->producer, on_acknowledged, feed);
    return feed;
}

void feed_close(struct feed *feed)
{
    if (feed == NULL) {
        return;
    }
    kafka_producer_close(feed->producer);
    impressions_close(feed->impressions);
    for (size_t i = 0; i < feed->block_count; i++) {
        free(feed->blocks[i]);
    }
    free(feed->blocks);
    free(feed);
}

static struct feed_event *add_event(struct feed *feed)
{
    if (feed->count == (uint64_t)feed->block_count * BLOCK) {
        feed->blocks = realloc(feed->blocks, (feed->block_count + 1) * sizeof *feed->blocks);
        lab_check(feed->blocks != NULL);
        feed->blocks[feed->block_count] = calloc(BLOCK, sizeof **feed->blocks);
        lab_check(feed->blocks[feed->block_count] != NULL);
        feed->block_count++;
    }
    uint64_t index = feed->count++;
    return &feed->blocks[index / BLOCK][index % BLOCK];
}

static void send_one(struct feed *feed, int64_t now_ms)
{
    struct impression impression;
    char value[IMPRESSIONS_VALUE_MAX];
    impressions_next(feed->impressions, now_ms, &impression);
    lab_check(impression.kind == IMPRESSION_GOOD);
    size_t size = impressions_json(feed->impressions, &impression, value);
    struct feed_event *event = add_event(feed);
    *event = (struct feed_event){
        .time_ms = impression.time_ms,
        .offset = -1,
        .user = (uint32_t)strtoul(impression.user + 1, NULL, 10),
        .ad = (uint16_t)strtoul(impression.ad + 1, NULL, 10),
        .partition = (int16_t)impressions_partition(impression.user, feed->partitions),
    };
    feed->newest_ms = impression.time_ms > feed->newest_ms ? impression.time_ms : feed->newest_ms;
    kafka_producer_send(feed->producer, &(struct kafka_produce){.partition = event->partition,
                                                                .key = impression.user,
                                                                .key_size = strlen(impression.user),
                                                                .value = value,
                                                                .value_size = size,
                                                                .timestamp_ms = now_ms,
                                                                .tag = event});
}

void feed_burst(struct feed *feed, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        send_one(feed, lab_wall_ms());
    }
    feed_flush(feed);
}

void feed_history(struct feed *feed, uint64_t count, int64_t span_ms)
{
    int64_t begin_ms = lab_wall_ms() - span_ms;
    for (uint64_t i = 1; i <= count; i++) {
        send_one(feed, begin_ms + (int64_t)((double)span_ms * (double)i / (double)count));
    }
    feed_flush(feed);
}

void feed_paced(struct feed *feed, uint64_t per_second, int64_t duration_ms)
{
    int64_t begun_ms = lab_monotonic_ms();
    uint64_t sent = 0;
    for (;;) {
        int64_t passed_ms = lab_monotonic_ms() - begun_ms;
        bool is_over = passed_ms >= duration_ms;
        passed_ms = is_over ? duration_ms : passed_ms;
        uint64_t due = per_second * (uint64_t)passed_ms / 1000;
        for (; sent < due; sent++) {
            send_one(feed, lab_wall_ms());
        }
        kafka_producer_poll(feed->producer);
        if (is_over) {
            return;
        }
        lab_pause_ms(TICK_MS);
    }
}

void feed_flush(struct feed *feed)
{
    lab_check(kafka_producer_flush(feed->producer) == feed->count);
}

uint64_t feed_count(const struct feed *feed)
{
    return feed->count;
}

int64_t feed_end(const struct feed *feed, int32_t partition)
{
    return feed->ends[partition];
}

int64_t feed_newest_ms(const struct feed *feed)
{
    return feed->newest_ms;
}

const struct feed_event *feed_event_at(const struct feed *feed, uint64_t index)
{
    return &feed->blocks[index / BLOCK][index % BLOCK];
}
