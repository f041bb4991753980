/* How ThreadSanitizer runs in every program of a build with it, without an environment variable:
 * TSAN_OPTIONS adds to this. */
const char *__tsan_default_options(void);

const char *__tsan_default_options(void)
{
    return "suppressions=" FCAP_TSAN_SUPPRESSIONS ":second_deadlock_stack=1:history_size=4";
}
