#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool complain(const char *text, const char *argument)
{
    (void)fprintf(stderr, "fcapd: %s: %s\n", argument, text);
    return false;
}

static bool add_set(struct fcap_arguments *arguments, const char *text)
{
    if (arguments->set_count == FCAP_SETS_MAX) {
        return complain("too many --set", text);
    }
    size_t at = arguments->set_count;
    if (!fcap_config_set_parse(text, arguments->set_keys[at], sizeof arguments->set_keys[at],
                               &arguments->sets[at])) {
        return complain("--set wants key=value", text);
    }
    arguments->set_count++;
    return true;
}

static bool read_partition(const char *text, int32_t *ret_partition)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < 0 || value > INT32_MAX) {
        return complain("--partition wants a number of 0 or more", text);
    }
    *ret_partition = (int32_t)value;
    return true;
}

/* An option with a value. */
static bool take_value(const struct fcap_command *command, const char *name, const char *value,
                       struct fcap_arguments *arguments, bool *ret_known)
{
    bool is_inspect = (command->takes & FCAP_TAKES_INSPECT) != 0;
    *ret_known = true;
    if (strcmp(name, "-c") == 0 || strcmp(name, "--config") == 0) {
        if (arguments->config_path != NULL) {
            return complain("one configuration file can be given", name);
        }
        arguments->config_path = value;
    } else if (strcmp(name, "--set") == 0) {
        return value == NULL || add_set(arguments, value);
    } else if (strcmp(name, "--user") == 0 && is_inspect) {
        arguments->user = value;
    } else if (strcmp(name, "--partition") == 0 && is_inspect) {
        return value == NULL || read_partition(value, &arguments->partition);
    } else {
        *ret_known = false;
    }
    return true;
}

bool fcap_arguments_parse(const struct fcap_command *command, int count, char **texts,
                          struct fcap_arguments *ret_arguments)
{
    *ret_arguments = (struct fcap_arguments){.partition = -1};
    if ((command->takes & FCAP_TAKES_REST) != 0) {
        ret_arguments->rest_count = count;
        ret_arguments->rest = texts;
        return true;
    }
    for (int i = 0; i < count; i++) {
        bool is_known = false;
        const char *value = i + 1 < count ? texts[i + 1] : NULL;
        if ((command->takes & FCAP_TAKES_CHECK) != 0 && strcmp(texts[i], "--offline") == 0) {
            ret_arguments->is_offline = true;
            continue;
        }
        if ((command->takes & FCAP_TAKES_CHECK) != 0 && strcmp(texts[i], "--effective") == 0) {
            ret_arguments->is_effective = true;
            continue;
        }
        if ((command->takes & FCAP_TAKES_CONFIG) != 0 &&
            !take_value(command, texts[i], value, ret_arguments, &is_known)) {
            return false;
        }
        if (!is_known) {
            return complain("this command knows no such argument", texts[i]);
        }
        if (value == NULL) {
            return complain("a value is due behind it", texts[i]);
        }
        i++;
    }
    return true;
}

bool fcap_arguments_load(const struct fcap_arguments *arguments, struct fcap_config *ret_config)
{
    struct fcap_config_report report;
    enum fcap_status status = fcap_config_load(arguments->config_path, arguments->sets,
                                               arguments->set_count, ret_config, &report);
    fcap_config_report_print(stderr, &report);
    fcap_config_report_done(&report);
    return status == FCAP_OK;
}
