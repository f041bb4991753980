/* An assertion that stays on in release builds: a programmer's error ends the process, and the
 * restart replays from the store. */
#ifndef FCAP_ASSERT_H
#define FCAP_ASSERT_H

/* Prints file, line and condition to standard error and aborts. */
_Noreturn void fcap_assert_failed(const char *file, int line, const char *condition);

#define FCAP_ASSERT(condition)                                                                     \
    ((condition) ? (void)0 : fcap_assert_failed(__FILE__, __LINE__, #condition))

#endif
