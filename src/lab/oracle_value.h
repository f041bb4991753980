/* Reads the value of a Redis key, strictly, in the tests' own code. Thread rule: pure. */
#ifndef FCAP_LAB_ORACLE_VALUE_H
#define FCAP_LAB_ORACLE_VALUE_H

#include "lab/oracle.h"

/* A parsed value. The ads stand in `texts`. */
struct oracle_value {
    int64_t version;
    int64_t as_of_ms;
    bool partial;
    struct oracle_counts counts; /* sorted by ad */
    char *texts;
};

/* Reads {"v":1,"as_of":<ms>,"counts":{"<ad>":<n>,...}} with "partial":true optional, strictly:
 * members in any order, each once, none unknown; counts positive integers; no ad twice. False:
 * ret_reason says what is wrong. Call oracle_value_done() in both cases. */
bool oracle_value_parse(const char *text, size_t size_bytes, struct oracle_value *ret_value,
                        const char **ret_reason);
void oracle_value_done(struct oracle_value *value);

#endif
