/* What the files of fcapd-bench engine share. Thread rule: main's thread. */
#ifndef FCAP_BENCH_ENGINE_H
#define FCAP_BENCH_ENGINE_H

#include "bench.h"

#include "fcap/pipeline.h"
#include "fcap/store_rocksdb.h"

#define DAY_MS      86400000ll
#define START_MS    1700000000000ll
#define SPAN_DAYS   14
#define WINDOWS     3
#define SAMPLES_MAX 4000
#define LATE_SHARE  0.03
#define AD_POOL     2000

extern const int64_t engine_lengths_ms[WINDOWS];

struct options {
    uint64_t users;
    uint64_t retained; /* events a user in 7 days, on average */
    uint64_t ads;      /* distinct ads a user may see */
    uint64_t partitions;
    uint64_t commit_events;
    uint64_t defer;
    uint64_t sync_ms; /* between two syncs of the log; 0: none */
    uint64_t cache_mib;
    uint64_t step;
    double zipf;
    bool wal;
    bool json;
    const char *directory;
};

/* A Zipf distribution over 0 .. n-1. */
struct zipf {
    double n, s, h_x1, h_n, bound;
};

struct sample_event {
    int64_t time_ms;
    uint32_t sample;
    uint32_t ad;
};

struct sample_value {
    char *text; /* last value pushed, or NULL */
    int64_t expire_at_ms;
};

struct world;

/* Gives the next event: a user, one of AD_POOL ads, and its time. */
typedef void (*world_draw)(struct world *world, uint64_t *ret_user, uint32_t *ret_ad,
                           int64_t *ret_time_ms);

struct world {
    struct options options;
    struct zipf zipf;
    world_draw draw;
    double event_ms; /* virtual time from one event to the next */
    int64_t now_ms;  /* never goes back */
    uint64_t made;
    uint64_t total;
    uint64_t *offsets;
    const uint64_t *ends; /* where the partitions of a topic that is read from its start end */
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

struct verdict {
    uint64_t users_compared;
    uint64_t nonempty;
    uint64_t mismatches;
};

/* engine_random.c */
void random_begin(void);
uint64_t random_next(void);
double random_unit(void);
uint64_t mix(uint64_t value);
void zipf_init(struct zipf *zipf, double n, double s);
uint64_t zipf_next(const struct zipf *zipf);

/* engine_world.c: the generator, and ports that stand for Kafka and Redis. */
void world_init(struct world *world);
/* The ports alone, on options, draw and event_ms; nothing is sampled. */
void world_init_ports(struct world *world);
/* When the event of this index arrives. */
int64_t world_arrival_ms(const struct world *world, uint64_t index);
void world_free(struct world *world);

/* engine_samples.c: some users are recounted from the list of their events. */
void samples_prepare(struct world *world);
void samples_note(struct world *world, uint64_t user, uint32_t ad, int64_t time_ms);
void samples_keep(struct world *world, const struct fcap_push *push);
struct verdict samples_compare(struct world *world, struct fcap_pipeline *pipeline);
uint64_t samples_retained(const struct world *world);
/* 16 bytes and a NUL; key order has nothing to do with popularity. */
void name_user(uint64_t user, char *text);

/* engine_options.c */
bool options_parse(int argc, char **argv, struct options *options);

#endif
