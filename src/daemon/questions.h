/* Questions to running workers, and orders: asked by HTTP's second thread, answered by the workers,
 * because only they know the newest counts and may touch their pipelines.
 *
 * One question at a time. Thread rule: ask from one thread; pending and answer from workers. */
#ifndef FCAP_DAEMON_QUESTIONS_H
#define FCAP_DAEMON_QUESTIONS_H

#include "board.h"

struct fcap_questions;

struct fcap_questions *fcap_questions_open(size_t workers);
void fcap_questions_close(struct fcap_questions *questions);

/* What can be asked, and what each partition that is meant appends to the answer. */
enum fcap_question_kind {
    /* {"partition":p,"windows":{"1d":<value>,..}},  where a value is what Redis would get; with
     * partition -1 only those that count something for the user. */
    FCAP_ASK_INSPECT,
    /* Shows everything, or the user, once more, and says what is to come, each that does:
     * {"partition":p,"gate":"open","windows":["1d",..],"users":n}, */
    FCAP_ASK_REBUILD,
    /* The same by each that is not done with it. */
    FCAP_ASK_PROGRESS,
    /* A block of fcap_pipeline_values(), `argument` is its `after`; of one partition. */
    FCAP_ASK_VALUES,
    /* Blocks of fcap_pipeline_values_user(); `argument` holds users, each be16 size, bytes; none: a
     * block without entries for each partition. */
    FCAP_ASK_USERS,
};

struct fcap_question {
    enum fcap_question_kind kind;
    int32_t partition;          /* -1: every one */
    struct fcap_bytes user;     /* size 0: everything (REBUILD, PROGRESS) */
    struct fcap_bytes argument; /* VALUES, USERS */
};

/* Appends the workers' answers. All borrowed for the call. False: a worker did not answer within
 * timeout_ms, or none is running; nothing is appended. */
bool fcap_questions_ask(struct fcap_questions *questions, const struct fcap_question *question,
                        int timeout_ms, struct fcap_buffer *answer);

/* Answers what is asked, on the worker's thread: cheap when nothing is. `view` names the worker's
 * tasks. */
void fcap_questions_answer(struct fcap_questions *questions, size_t worker,
                           struct fcap_pipeline *pipeline, const struct fcap_settings *settings,
                           const struct fcap_worker_view *view);

/* The worker answers from now on, or no longer. */
void fcap_questions_join(struct fcap_questions *questions, size_t worker);
void fcap_questions_leave(struct fcap_questions *questions, size_t worker);

#endif
