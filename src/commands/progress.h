/* How far a long command is: a bar that is drawn again on a terminal, else a line about each 5 s.
 * Thread rule: main only. */
#ifndef FCAP_COMMANDS_PROGRESS_H
#define FCAP_COMMANDS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct fcap_progress {
    FILE *file;
    const char *name; /* of the command; begins each plain line */
    bool is_terminal;
    bool is_drawn;     /* the cursor stands behind a bar */
    const char *phase; /* NULL: none yet */
    int64_t shown_ms;
    int64_t rated_ms; /* when `rated` was */
    uint64_t rated;
    double rate; /* a second, smoothed; below 0: not known yet */
};

/* Draws a bar when `file` is a terminal and `wants_bar`. Borrows both. */
void fcap_progress_init(struct fcap_progress *progress, const char *name, FILE *file,
                        bool wants_bar);

/* Done so many of so many in this phase, at this moment (monotonic). `what` names what is counted;
 * `note` (NULL: none) says what is waited for and stands in place of the time that is left. With a
 * total of 0 nothing is counted, and the note alone is shown. Shows when it is due. */
void fcap_progress_at(struct fcap_progress *progress, const char *phase, int64_t now_ms,
                      uint64_t done, uint64_t total, const char *what, const char *note);

/* A line that stays. */
void fcap_progress_say(struct fcap_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Removes the bar. */
void fcap_progress_done(struct fcap_progress *progress);

/* "1,234,567" into text of 32 bytes, which it returns. */
const char *fcap_progress_number(uint64_t number, char *text);

#endif
