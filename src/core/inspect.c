/* A look at one user that leaves no trace. */
#include "core.h"

#include "fcap/key.h"
#include "fcap/value.h"

/* It must not get into the cache: an empty record of a user who belongs to another partition would
 * be shown with the next full projection, as an UNLINK of keys that the other partition has just
 * set. */
struct fcap_user *inspect_user(struct fcap_task *task, struct fcap_bytes id,
                               struct fcap_user *stored, bool *ret_known)
{
    struct fcap_pipeline *pipeline = task->pipeline;
    struct fcap_store *store = pipeline->ports.store;
    struct fcap_user *user =
        fcap_cache_find(&pipeline->cache, task, fcap_cache_hash(task->partition, id), id);
    *ret_known = user != NULL;
    if (user != NULL) {
        return user;
    }
    *stored = (struct fcap_user){.task = task,
                                 .newest_ms = FCAP_TIME_NONE,
                                 .erased_until_ms = FCAP_TIME_NONE,
                                 .partial_newest_ms = FCAP_TIME_NONE};
    if (task->stale) {
        return stored;
    }
    bool found = false;
    fcap_buffer_clear(&pipeline->key);
    fcap_key_user(&pipeline->key, task->partition, id);
    enum fcap_status status = store->ops->get(
        store, FCAP_FAMILY_USERS, fcap_buffer_bytes(&pipeline->key), &pipeline->value, &found);
    if (status == FCAP_OK && found) {
        status = fcap_user_decode(stored, &task->numbers, fcap_buffer_bytes(&pipeline->value));
    }
    *ret_known = found;
    return status == FCAP_OK ? stored : NULL;
}

bool fcap_pipeline_inspect(struct fcap_pipeline *pipeline, int32_t partition,
                           struct fcap_bytes user, size_t window, struct fcap_buffer *buffer)
{
    struct fcap_user stored = {0};
    struct fcap_task *task = task_find(pipeline, partition);
    if (task == NULL || window >= task->meta.window_count) {
        return false;
    }
    bool is_known;
    const struct fcap_user *found = inspect_user(task, user, &stored, &is_known);
    if (found != NULL) {
        bool cut;
        bool partial = found->partial_newest_ms > cursor_of(task, window);
        (void)fcap_value_build(found, pipeline->settings.window_count, window, &task->ads,
                               task->meta.clock_ms, partial, SIZE_MAX / 2, buffer,
                               &cut); /* An empty value says so itself. */
    }
    fcap_user_clear(&stored);
    return found != NULL;
}
