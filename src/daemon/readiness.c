#include "readiness.h"

#include "compose.h"
#include "fcap/ads.h"

static void put_name(const char *name, struct fcap_buffer *buffer)
{
    fcap_buffer_put_text(buffer, "\"");
    fcap_json_escape(buffer, fcap_bytes_of(name));
    fcap_buffer_put_text(buffer, "\"");
}

static void put_number(const char *name, int64_t value, struct fcap_buffer *buffer)
{
    fcap_buffer_put_text(buffer, name);
    fcap_buffer_put_decimal(buffer, value);
}

struct fcap_window_readiness fcap_readiness_of(const struct fcap_worker_view *views,
                                               size_t view_count, size_t window)
{
    struct fcap_window_readiness readiness = {0};
    size_t tasks = 0;
    size_t complete = 0;
    for (size_t i = 0; i < view_count; i++) {
        for (size_t k = 0; k < views[i].task_count; k++) {
            const struct fcap_task_report *report = &views[i].tasks[k].report;
            int64_t at_ms = report->ready_at_ms[window];
            tasks++;
            complete += (report->ready_mask & report->projected_mask) >> window & 1;
            readiness.ready_at_ms = at_ms > readiness.ready_at_ms ? at_ms : readiness.ready_at_ms;
        }
    }
    readiness.is_complete = tasks > 0 && complete == tasks;
    return readiness;
}

/* History is missing somewhere; what is only being projected has no such moment. */
static bool is_waiting(const struct fcap_worker_view *views, size_t view_count, size_t window)
{
    for (size_t i = 0; i < view_count; i++) {
        for (size_t k = 0; k < views[i].task_count; k++) {
            if ((views[i].tasks[k].report.ready_mask >> window & 1) == 0) {
                return true;
            }
        }
    }
    return false;
}

void fcap_readiness_put_windows(const struct fcap_config *config,
                                const struct fcap_worker_view *views, size_t view_count,
                                struct fcap_buffer *buffer)
{
    fcap_buffer_put_text(buffer, "{");
    for (size_t i = 0; i < config->windows_count; i++) {
        struct fcap_window_readiness readiness = fcap_readiness_of(views, view_count, i);
        fcap_buffer_put_text(buffer, i == 0 ? "" : ",");
        put_name(config->windows[i].name, buffer);
        fcap_buffer_put_text(buffer, readiness.is_complete ? ":{\"complete\":true"
                                                           : ":{\"complete\":false");
        if (is_waiting(views, view_count, i)) {
            put_number(",\"ready_at\":", readiness.ready_at_ms, buffer);
        }
        fcap_buffer_put_text(buffer, "}");
    }
    fcap_buffer_put_text(buffer, "}");
}

void fcap_readiness_put_waiting(const struct fcap_config *config,
                                const struct fcap_task_report *report, struct fcap_buffer *buffer)
{
    const char *before = ",\"ready_at\":{";
    for (size_t i = 0; i < config->windows_count; i++) {
        if ((report->ready_mask >> i & 1) == 0) {
            int64_t at_ms = report->ready_at_ms[i];
            fcap_buffer_put_text(buffer, before);
            put_name(config->windows[i].name, buffer);
            put_number(":", at_ms == FCAP_TIME_NONE ? 0 : at_ms, buffer);
            before = ",";
        }
    }
    fcap_buffer_put_text(buffer, before[1] == '\0' ? "}" : "");
}

void fcap_readiness_put_retention(const struct fcap_config *config, int64_t retention_ms,
                                  struct fcap_buffer *buffer)
{
    int64_t needed_ms = fcap_compose_retention_ms(config);
    if (retention_ms > 0 && retention_ms < needed_ms) {
        put_number(",\n \"retention\":{\"topic_ms\":", retention_ms, buffer);
        put_number(",\"needed_ms\":", needed_ms, buffer);
        fcap_buffer_put_text(buffer, "}");
    }
}

void fcap_readiness_put_lost(const struct fcap_gaps *lost, struct fcap_buffer *buffer)
{
    for (size_t i = 0; i < lost->count; i++) {
        const struct fcap_lost_span *span = &lost->spans[i];
        fcap_buffer_put_text(buffer, i == 0 ? ",\"lost\":[{\"kind\":" : ",{\"kind\":");
        put_name(fcap_gap_kind_name(span->kind), buffer);
        put_number(",\"first\":", span->first, buffer);
        put_number(",\"last\":", span->last, buffer);
        put_number(",\"next\":", span->next, buffer);
        put_number(",\"from\":", span->from_ms, buffer);
        put_number(",\"to\":", span->to_ms, buffer);
        put_number(",\"noticed\":", span->noticed_ms, buffer);
        put_number(",\"since\":", span->since_ms, buffer);
        fcap_buffer_put_text(buffer, "}");
    }
    fcap_buffer_put_text(buffer, lost->count > 0 ? "]" : "");
}
