/* The marker that a run leaves in the state's directory when it has found the state damaged: the
 * next start sees it before it opens anything, and takes another state (docs/decisions/0022).
 *
 * A marker is there whole or not at all; one that cannot be read is one all the same. Thread rule:
 * one thread. */
#ifndef FCAP_DAMAGE_H
#define FCAP_DAMAGE_H

#include "fcap/status.h"

#include <stdint.h>

#define FCAP_DAMAGE_MARKER ".found-damaged"
/* The same of a state that is not there any more; how often it happens is counted by it. */
#define FCAP_DAMAGE_BEFORE ".was-damaged"

/* The next one counts on within this time. */
#define FCAP_DAMAGE_WINDOW_MS 3600000

struct fcap_damage {
    int64_t found_ms; /* wall clock, Unix epoch; 0: the marker cannot be read */
    unsigned times; /* states in a row, each within FCAP_DAMAGE_WINDOW_MS of the one before; 1.. */
    char file[64];  /* the damaged one, in the state's directory; "": none is known */
    char text[512]; /* what was said, one line */
};

/* The first "000123.sst" in a text; "": there is none. */
void fcap_damage_file_of(const char *text, char ret_file[64]);

/* Leaves the marker, durably. NO_SPACE, IO: it could not be written. */
FCAP_MUST_USE enum fcap_status fcap_damage_mark(const char *directory, int64_t wall_ms,
                                                const char *text, struct fcap_error *error);

/* True when there is one. */
bool fcap_damage_find(const char *directory, struct fcap_damage *ret_damage);

#endif
