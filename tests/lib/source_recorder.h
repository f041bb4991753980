/* A source handler that writes down what it gets and checks the contract as it goes: records only
 * for owned, started partitions, in offset order, never below the start. For tests of sources.
 * Thread rule: one thread. */
#ifndef FCAP_TESTS_SOURCE_RECORDER_H
#define FCAP_TESTS_SOURCE_RECORDER_H

#include "fcap/ports.h"
#include "fcap/trail.h"

#define RECORDER_PARTITIONS 64

struct recorder_partition {
    bool held; /* its start is to be known later; set by the test */
    bool owned;
    bool started;
    uint64_t assignment;
    struct fcap_start start; /* what the handler asks for; a start by OFFSET when it comes again */
    struct fcap_started last_start;
    struct fcap_gap last_gap;
    int64_t next;  /* last record + 1, or the start */
    int64_t ended; /* newest reached_end(); -1: none since it was assigned */
    unsigned assigned_count;
    unsigned started_count;
    unsigned revoked_count;
    unsigned lost_count;
    unsigned gap_count;
    unsigned end_count;
    unsigned resumed_count; /* times that a start was asked for again */
    uint64_t records;
    struct fcap_log_mark last; /* of the last record; offset 0: none */
    struct fcap_trail trail;   /* of every 16th */
};

struct recorder {
    struct fcap_source_handler handler;
    struct fcap_start default_start; /* of partitions never seen before */
    bool resume;                     /* start at `next` when a partition comes again */
    struct fcap_start gap_start; /* what gap() answers; kind OFFSET and offset -1: the gap's next */
    size_t stop_after;           /* record() says "no more" at every n-th; 0: never */
    struct recorder_partition partitions[RECORDER_PARTITIONS];
    uint64_t records;
    uint64_t max_assignment;
    unsigned violations;
    char violation[256]; /* the first one */
    void (*on_record)(void *context, const struct fcap_record *record);
    void *on_record_context;
};

void recorder_init(struct recorder *recorder, struct fcap_start start);
/* How many partitions are owned; how many of these are started. */
int recorder_owned(const struct recorder *recorder);
int recorder_started(const struct recorder *recorder);

/* Polls until `condition` (an expression that may use the recorder) or the deadline; gives the
 * condition's value. */
#define RECORDER_POLL_UNTIL(source, recorder, budget, deadline_ms, condition)                      \
    __extension__({                                                                                \
        int64_t until_ = recorder_now_ms() + (deadline_ms);                                        \
        bool met_ = (condition);                                                                   \
        while (!met_ && recorder_now_ms() < until_ &&                                              \
               fcap_status_class((source)->ops->poll((source), &(recorder)->handler, (budget))) != \
                   FCAP_CLASS_FATAL) {                                                             \
            met_ = (condition);                                                                    \
        }                                                                                          \
        met_;                                                                                      \
    })

int64_t recorder_now_ms(void);

#endif
