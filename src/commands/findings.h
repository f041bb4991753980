/* What `fcapd check` finds: a line each, on standard output. Thread rule: main only. */
#ifndef FCAP_COMMANDS_FINDINGS_H
#define FCAP_COMMANDS_FINDINGS_H

#include "fcap/config.h"

#include <stdint.h>

/* What was found so far. */
struct fcap_findings {
    int failures;
    int warnings;
};

void fcap_findings_good(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* It works, and something about it is to be known. */
void fcap_findings_warn(struct fcap_findings *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* It does not work. */
void fcap_findings_fail(struct fcap_findings *findings, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The place of the checkpoints, what is kept there, and whether there is room for it; nothing when
 * checkpoint.directory is not set. `retention_ms`: of the topic; 0: not known, -1: for ever. */
void fcap_check_checkpoints(struct fcap_findings *findings, const struct fcap_config *config,
                            int64_t retention_ms);

#endif
