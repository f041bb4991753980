#include "unit/growth_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fcap_settings growth_settings;

static struct fcap_keyed_look look;
static uint64_t *slots;

void world_start(void)
{
    look = (struct fcap_keyed_look){0};
    memset(slots, 0, FCAP_KEYED_SLOTS * sizeof *slots);
    pipeline_world_start(&growth_settings, &pipeline_world_decoder);
}

int growth_setup(void **unused)
{
    (void)unused;
    slots = calloc(FCAP_KEYED_SLOTS, sizeof *slots);
    assert_non_null(slots);
    pipeline_world_init(OLD);
    pipeline_world_settings(&growth_settings);
    growth_settings.commit_interval_ms = STEP_MS;
    growth_settings.session_timeout_ms = 10000;
    growth_settings.expiry_hold_ms = 0;
    growth_settings.keyed_slots = slots;
    growth_settings.keyed_look = &look;
    return 0;
}

int growth_teardown(void **unused)
{
    (void)unused;
    pipeline_world_done();
    free(slots);
    return 0;
}

enum fcap_status world_try_to_pass(int64_t ms)
{
    enum fcap_status status = FCAP_OK;
    for (int64_t until_ms = world.now_ms + ms; world.now_ms < until_ms && status == FCAP_OK;) {
        world.now_ms += STEP_MS;
        status = fcap_pipeline_step(world.pipeline, 0);
    }
    return status;
}

void world_pass(int64_t ms)
{
    if (world_try_to_pass(ms) != FCAP_OK) {
        fail_msg("%s", fcap_pipeline_error(world.pipeline));
    }
}

void world_add(int32_t partition, const char *user, const char *ad)
{
    pipeline_world_add(partition, user, ad, world.now_ms);
}

void world_grow(void)
{
    fake_topic_grow(&world.topic, NEW);
    world_pass(STEP_MS);
    fake_source_assign(&world.source, OLD);
    world_pass(5000);
}

struct find {
    int32_t partition;
    struct fcap_task_report report;
};

static void take(void *context, const struct fcap_task_report *report)
{
    struct find *find = context;
    if (report->partition == find->partition) {
        find->report = *report;
    }
}

struct fcap_task_report world_report(int32_t partition)
{
    struct find find = {.partition = partition};
    fcap_pipeline_report(world.pipeline, take, &find);
    return find.report;
}

void world_expect_in(const char *user, const char *window, const char *counts)
{
    struct fcap_bytes value;
    int64_t expire_at_ms;
    char key[64];
    char text[256] = "";
    (void)snprintf(key, sizeof key, "fc:{%s}:%s", user, window);
    bool found = fcap_fake_redis_get(&world.redis, fcap_bytes_of(key), &value, &expire_at_ms);
    if (found) {
        (void)snprintf(text, sizeof text, "%.*s", (int)value.size, (const char *)value.data);
    }
    if (found != (counts != NULL) || (found && strstr(text, counts) == NULL)) {
        fail_msg("%s: \"%s\", not %s, at %lld", key, text, counts == NULL ? "absent" : counts,
                 (long long)(world.now_ms - PIPELINE_WORLD_NOW_MS));
    }
}

void world_expect(const char *user, const char *counts)
{
    world_expect_in(user, "1h", counts);
}
