#include "commands.h"

#include "demo/demo.h"

#include <stdio.h>

struct fcap_daemon_result fcap_command_demo(const struct fcap_arguments *arguments)
{
    struct fcap_daemon_result result = {FCAP_EXIT_USAGE, true};
    struct demo_options options;
    char error[512];
    if (!demo_options_parse(arguments->rest_count, arguments->rest, &options, error,
                            sizeof error)) {
        (void)fprintf(stderr, "fcapd demo: %s\n", error);
        return result;
    }
    if (options.help) {
        (void)fputs(demo_options_help(), stdout);
        result.exit_code = FCAP_EXIT_OK;
        return result;
    }
    result.exit_code = demo_run(&options);
    return result;
}
