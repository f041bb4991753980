/* Questions about one user to running workers: asked by the HTTP thread, answered by the workers,
 * because only they know the newest counts.
 *
 * One question at a time. Thread rule: ask from one thread; pending and answer from workers. */
#ifndef FCAP_DAEMON_QUESTIONS_H
#define FCAP_DAEMON_QUESTIONS_H

#include "board.h"

struct fcap_questions;

struct fcap_questions *fcap_questions_open(size_t workers);
void fcap_questions_close(struct fcap_questions *questions);

/* Appends to `answer` {"user":..,"partitions":[{"partition":p,"windows":{"1d":<value>,..}}]},
 * where a value is what Redis would get. partition -1: every partition that counts something for
 * the user. False: a worker did not answer within timeout_ms, or none is running; nothing is
 * appended. */
bool fcap_questions_ask(struct fcap_questions *questions, int32_t partition, struct fcap_bytes user,
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
