/* Problems, and the memory that a configuration owns. */
#include "config_internal.h"

#include "fcap/assert.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* --- memory --------------------------------------------------------------------------------- */

struct block {
    struct block *next;
    size_t size;
    max_align_t bytes[];
};

struct fcap_config_memory {
    struct block *blocks;
};

struct fcap_config_memory *fcap_config_memory_open(void)
{
    struct fcap_config_memory *memory = calloc(1, sizeof *memory);
    FCAP_ASSERT(memory != NULL);
    return memory;
}

void *fcap_config_allocate(struct fcap_config_memory *memory, size_t size)
{
    struct block *block = calloc(1, sizeof *block + size);
    FCAP_ASSERT(block != NULL);
    block->size = size;
    block->next = memory->blocks;
    memory->blocks = block;
    return block->bytes;
}

char *fcap_config_copy(struct fcap_config_memory *memory, const char *text, size_t size)
{
    char *copy = fcap_config_allocate(memory, size + 1);
    if (size != 0) {
        memcpy(copy, text, size);
    }
    return copy;
}

void fcap_config_memory_close(struct fcap_config_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    while (memory->blocks != NULL) {
        struct block *block = memory->blocks;
        memory->blocks = block->next;
        explicit_bzero(block->bytes, block->size); /* It may hold a password. */
        free(block);
    }
    free(memory);
}

/* --- problems ------------------------------------------------------------------------------- */

const char *fcap_config_quote(const char *text, char ret_quoted[80])
{
    size_t at = 0;
    ret_quoted[at++] = '`';
    size_t i = 0;
    for (; text[i] != '\0' && at < 64; i++) {
        unsigned char c = (unsigned char)text[i];
        ret_quoted[at++] = (c < 0x20 || c == 0x7f) ? '?' : text[i];
    }
    if (text[i] != '\0') {
        /* Cut, and never inside a character. */
        while (at > 1 && ((unsigned char)text[i] & 0xc0) == 0x80) {
            i--;
            at--;
        }
        memcpy(ret_quoted + at, "...", 3);
        at += 3;
    }
    ret_quoted[at++] = '`';
    ret_quoted[at] = '\0';
    return ret_quoted;
}

static void write_where(const struct fcap_config_loader *loader, struct fcap_config_place place,
                        struct fcap_config_problem *problem)
{
    const char *name = loader->name != NULL ? loader->name : "configuration";
    char quoted[80];
    if (place.set_key != NULL) {
        fcap_config_quote(place.set_key, quoted);
        (void)snprintf(problem->where, sizeof problem->where, "--set %s",
                       quoted); /* Cut is fine. */
        return;
    }
    problem->line = place.line;
    problem->column = place.column;
    if (place.line == 0) {
        (void)snprintf(problem->where, sizeof problem->where, "%s", name); /* Cut is fine. */
        return;
    }
    (void)snprintf(problem->where, sizeof problem->where, "%.280s:%d:%d", name, place.line,
                   place.column);
}

void fcap_config_problem(struct fcap_config_loader *loader, enum fcap_config_severity severity,
                         struct fcap_config_place place, const char *format, ...)
{
    struct fcap_config_report *report = &loader->report;
    if (severity == FCAP_CONFIG_ERROR) {
        report->errors++;
    } else {
        report->warnings++;
    }
    if (report->count == FCAP_CONFIG_PROBLEMS_MAX) {
        return;
    }
    if (report->problems == NULL) {
        report->problems = calloc(FCAP_CONFIG_PROBLEMS_MAX, sizeof *report->problems);
        FCAP_ASSERT(report->problems != NULL);
    }
    struct fcap_config_problem problem = {.severity = severity};
    write_where(loader, place, &problem);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(problem.text, sizeof problem.text, format, arguments); /* Cut is fine. */
    va_end(arguments);

    /* In the order of the file; what is not in it comes last, in the order of its finding. */
    size_t at = report->count;
    while (at > 0 && problem.line != 0) {
        const struct fcap_config_problem *before = &report->problems[at - 1];
        if (before->line != 0 &&
            (before->line < problem.line ||
             (before->line == problem.line && before->column <= problem.column))) {
            break;
        }
        report->problems[at] = report->problems[at - 1];
        at--;
    }
    report->problems[at] = problem;
    report->count++;
}

void fcap_config_report_print(FILE *file, const struct fcap_config_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        const struct fcap_config_problem *problem = &report->problems[i];
        (void)fprintf(file, "%s: %s%s\n", problem->where,
                      problem->severity == FCAP_CONFIG_WARNING ? "warning: " : "", problem->text);
    }
    size_t all = report->errors + report->warnings;
    if (all > report->count) {
        (void)fprintf(file, "and %zu more\n", all - report->count);
    }
}

void fcap_config_report_done(struct fcap_config_report *report)
{
    if (report == NULL) {
        return;
    }
    free(report->problems);
    *report = (struct fcap_config_report){0};
}
