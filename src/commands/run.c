#include "commands.h"

#include "fcap/log.h"

#include <unistd.h>

struct fcap_daemon_result fcap_command_run(const struct fcap_arguments *arguments)
{
    struct fcap_daemon_result result = {FCAP_EXIT_CONFIG, true};
    struct fcap_config config;
    if (!fcap_arguments_load(arguments, &config)) {
        return result;
    }
    fcap_log_init((struct fcap_log_settings){
        .format = config.log.format == FCAP_CONFIG_LOG_JSON ? FCAP_LOG_JSON : FCAP_LOG_TEXT,
        .level = (enum fcap_log_level)config.log.level,
        .descriptor = STDERR_FILENO,
    });
    const struct fcap_daemon_settings settings = {&config, arguments->is_replay};
    result = fcap_daemon_run(&settings);
    if (result.is_clean) {
        fcap_config_done(&config); /* Else threads that still run may look at it. */
    }
    return result;
}
