/* Golden bytes written as hex, as docs/DATA.md shows them. For unit tests only. */
#ifndef FCAP_TESTS_GOLDEN_H
#define FCAP_TESTS_GOLDEN_H

#include "fcap/bytes.h"

/* Fails the test when the bytes are not those of `hex` ("10 05 e9"; spaces and ends of
 * lines mean nothing). */
void golden_check(struct fcap_bytes bytes, const char *hex);

/* Appends the bytes that `hex` says. */
void golden_put(struct fcap_buffer *buffer, const char *hex);

/* Fails the test when docs/DATA.md does not show `hex`. */
void golden_documented(const char *hex);

/* A copy in memory of exactly its size, so that ASan sees a read beyond the end; free it. */
uint8_t *golden_copy(struct fcap_bytes bytes, size_t size);

#endif
