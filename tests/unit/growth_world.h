/* A topic of two partitions that gets a third one, on the pipeline's world: what the tests of it
 * share. Thread rule: one thread, one world. */
#ifndef FCAP_TESTS_GROWTH_WORLD_H
#define FCAP_TESTS_GROWTH_WORLD_H

#include "unit/pipeline_world.h"

#define MINUTE_MS 60000ll

enum { OLD = 2, NEW = 3, STEP_MS = 500 };

/* Of the next start: one window of an hour, a session of 10 s, no expiry held back; the rest as
 * shipped. */
extern struct fcap_settings growth_settings;

/* A test's setup and teardown. */
int growth_setup(void **unused);
int growth_teardown(void **unused);
/* Starts a process with these settings, which is given every partition. */
void world_start(void);
/* Steps while so much time passes; gives why the pipeline failed. */
enum fcap_status world_try_to_pass(int64_t ms);
/* The same; a failure fails the test. */
void world_pass(int64_t ms);
/* A record of this moment; ad NULL: a tombstone. */
void world_add(int32_t partition, const char *user, const char *ad);
/* A partition more, given to the process that runs. */
void world_grow(void);
struct fcap_task_report world_report(int32_t partition);
/* What the user's key of this window holds; counts NULL: there is no key. */
void world_expect_in(const char *user, const char *window, const char *counts);
/* The same of the window 1h. */
void world_expect(const char *user, const char *counts);

#endif
