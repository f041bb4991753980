/* Runs the demo in a child of its own and undoes everything afterwards, however the child ended.
 *
 * What must hold: when demo_supervise() returns, no process that the demo started is alive, its
 * folder is gone, and a real Kafka and a real Redis hold nothing of it (else a line on standard
 * error says what is left, and the exit code is not 0). Processes are found by the child's process
 * group, and this process adopts orphans to see them end. Thread rule: main only, before any other
 * thread exists. */
#ifndef FCAP_DEMO_SUPERVISOR_H
#define FCAP_DEMO_SUPERVISOR_H

#include "demo/options.h"

/* Where the child may have left something outside; memory that it shares with its parent. */
struct demo_traces {
    bool topic; /* set before the topic is made */
    bool keys;
};

/* What one run calls its own. */
struct demo_run {
    struct demo_traces *traces;
    char name[64];   /* profile, topic and prefix of keys on a real Kafka and Redis */
    char folder[64]; /* everything of it on disk is in there */
};

/* Calls `work` in the child and gives the exit code: that of `work`, or 128 + the signal
 * (SIGINT, SIGTERM, SIGHUP) that ended the run early. A second signal ends at once. */
int demo_supervise(const struct demo_options *options,
                   int (*work)(const struct demo_options *options, const struct demo_run *run));

#endif
