/* docs/METRICS.md, read off a page: what the page has, the document has. */
#include "page.h"

#include "fcap/assert.h"

#include <stdlib.h>
#include <string.h>

#define FAMILIES_MAX 256

/* All borrowed from the page. */
struct family {
    struct fcap_bytes name;
    struct fcap_bytes type;
    struct fcap_bytes help;
    struct fcap_bytes labels; /* of the first sample: a="x",b="y" */
};

/* A family stands under the first title of which a prefix fits; the engine has the rest. */
enum { PROCESS, ENGINE, REDIS, KAFKA, PARTITION, WINDOW, STORE, CHECKPOINT, SECTION_COUNT };
static const struct section {
    const char *title;
    const char *prefixes[6];
} sections[SECTION_COUNT] = {
    [PROCESS] = {"The process",
                 {"process_", "fcapd_build_", "fcapd_start_", "fcapd_ready", "fcapd_log_"}},
    [ENGINE] = {"Each worker", {NULL}},
    [REDIS] = {"Redis", {"fcapd_redis_", "fcapd_clock_offset_"}},
    [KAFKA] = {"Kafka and dead letters", {"fcapd_kafka_", "fcapd_dead_letters_"}},
    [PARTITION] = {"Each partition", {"fcapd_partition_"}},
    [WINDOW] = {"Each window, over the partitions of the process", {"fcapd_window_"}},
    [STORE] = {"RocksDB", {"fcapd_store_"}},
    [CHECKPOINT] = {"Checkpoints", {"fcapd_checkpoint_", "fcapd_adoption_", "fcapd_state_"}},
};

/* Cuts the text up to `end` off the front of `rest`; all of it when there is no `end`. */
static struct fcap_bytes cut(struct fcap_bytes *rest, char end)
{
    const uint8_t *found = rest->size == 0 ? NULL : memchr(rest->data, end, rest->size);
    size_t size = found == NULL ? rest->size : (size_t)(found - rest->data);
    struct fcap_bytes piece = {rest->data, size};
    size_t used = found == NULL ? size : size + 1;
    rest->data += used;
    rest->size -= used;
    return piece;
}

static bool starts_with(struct fcap_bytes text, const char *prefix)
{
    size_t size = strlen(prefix);
    return text.size >= size && memcmp(text.data, prefix, size) == 0;
}

/* HELP comes before TYPE, both before the samples. */
static size_t read_families(struct fcap_bytes page, struct family families[FAMILIES_MAX])
{
    size_t count = 0;
    while (page.size > 0) {
        struct fcap_bytes line = cut(&page, '\n');
        if (starts_with(line, "# HELP ")) {
            FCAP_ASSERT(count < FAMILIES_MAX);
            (void)cut(&line, ' ');
            (void)cut(&line, ' ');
            families[count] = (struct family){.name = cut(&line, ' '), .help = line};
            count++;
        } else if (starts_with(line, "# TYPE ")) {
            (void)cut(&line, ' ');
            (void)cut(&line, ' ');
            (void)cut(&line, ' ');
            families[count - 1].type = line;
        } else if (families[count - 1].labels.data == NULL) {
            struct fcap_bytes name = cut(&line, '{');
            families[count - 1].labels =
                line.size > 0 ? cut(&line, '}') : (struct fcap_bytes){name.data, 0};
        }
    }
    return count;
}

static size_t section_of(struct fcap_bytes name)
{
    for (size_t i = 0; i < SECTION_COUNT; i++) {
        for (size_t k = 0; sections[i].prefixes[k] != NULL; k++) {
            if (starts_with(name, sections[i].prefixes[k])) {
                return i;
            }
        }
    }
    return ENGINE;
}

static void put_row(const struct family *family, struct fcap_buffer *document)
{
    struct fcap_bytes labels = family->labels;
    fcap_buffer_put_text(document, "| `");
    fcap_buffer_put_bytes(document, family->name);
    fcap_buffer_put_text(document, "` | ");
    fcap_buffer_put_bytes(document, family->type);
    fcap_buffer_put_text(document, " | ");
    for (size_t i = 0; labels.size > 0; i++) {
        fcap_buffer_put_text(document, i == 0 ? "" : ", ");
        fcap_buffer_put_bytes(document, cut(&labels, '='));
        (void)cut(&labels, ',');
    }
    fcap_buffer_put_text(document, " | ");
    fcap_buffer_put_bytes(document, family->help);
    fcap_buffer_put_text(document, " |\n");
}

static void put_reasons(struct fcap_buffer *document)
{
    fcap_buffer_put_text(document,
                         "\n## Reasons\n\n`dead` ones go to the dead-letter topic too.\n\n"
                         "| reason | dead | Meaning |\n| --- | --- | --- |\n");
    for (int reason = FCAP_REJECT_NONE + 1; reason < FCAP_REJECT_COUNT; reason++) {
        enum fcap_reject reject = (enum fcap_reject)reason;
        fcap_buffer_put_text(document, "| `");
        fcap_buffer_put_text(document, fcap_reject_label(reject));
        fcap_buffer_put_text(document, fcap_reject_is_dead(reject) ? "` | yes | " : "` | | ");
        fcap_buffer_put_text(document, fcap_reject_text(reject));
        fcap_buffer_put_text(document, " |\n");
    }
}

static void put_gap_kinds(struct fcap_buffer *document)
{
    fcap_buffer_put_text(document, "\n## Gaps\n\n| kind | Meaning |\n| --- | --- |\n");
    for (int kind = 0; kind < FCAP_GAP_KIND_COUNT; kind++) {
        fcap_buffer_put_text(document, "| `");
        fcap_buffer_put_text(document, fcap_gap_kind_name((enum fcap_gap_kind)kind));
        fcap_buffer_put_text(document, "` | ");
        fcap_buffer_put_text(document, fcap_gap_kind_text((enum fcap_gap_kind)kind));
        fcap_buffer_put_text(document, " |\n");
    }
}

/* One worker with one partition and one window: every family then has a sample. */
static void build_sample(struct fcap_buffer *page)
{
    struct fcap_config *config = calloc(1, sizeof *config);
    struct fcap_worker_view *view = calloc(1, sizeof *view);
    struct fcap_store_metrics store = {0};
    const struct fcap_checkpoint_metrics checkpoint = {0};
    const struct fcap_adopter_metrics adoption = {0};
    struct fcap_board_task task = {.lag = 0};
    FCAP_ASSERT(config != NULL && view != NULL);
    config->profile = "p";
    config->windows_count = 1;
    config->windows[0] = (struct fcap_config_window){"w", 1};
    view->tasks = &task;
    view->task_count = 1;
    const struct fcap_page_settings settings = {.config = config,
                                                .views = view,
                                                .view_count = 1,
                                                .store = &store,
                                                .checkpoint = &checkpoint,
                                                .adoption = &adoption};
    fcap_page_build(&settings, page);
    free(view);
    free(config);
}

void fcap_page_document(struct fcap_buffer *document)
{
    struct fcap_buffer page = {0};
    static struct family families[FAMILIES_MAX];
    build_sample(&page);
    size_t count = read_families(fcap_buffer_bytes(&page), families);
    fcap_buffer_put_text(
        document,
        "# Metrics\n\nRead off the page by `ninja metrics-docs`; a test compares, and another "
        "looks "
        "for each name on the page of a\nrunning daemon. `GET /metrics` answers in the Prometheus "
        "text format 0.0.4. No label carries a user.\n");
    for (size_t section = 0; section < SECTION_COUNT; section++) {
        fcap_buffer_put_text(document, "\n## ");
        fcap_buffer_put_text(document, sections[section].title);
        fcap_buffer_put_text(document,
                             "\n\n| Name | Type | Labels | Meaning |\n| --- | --- | --- | --- |\n");
        for (size_t i = 0; i < count; i++) {
            if (section_of(families[i].name) == section) {
                put_row(&families[i], document);
            }
        }
    }
    put_gap_kinds(document);
    put_reasons(document);
    fcap_buffer_done(&page);
}
