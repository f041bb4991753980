#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS (5 * 60 * 1000)

static bool complain(const char *text, const char *argument)
{
    (void)fprintf(stderr, "fcapd: %s: %s\n", argument, text);
    return false;
}

static bool take_config(struct fcap_arguments *arguments, const char *text)
{
    if (arguments->config_path != NULL) {
        return complain("one configuration file can be given", text);
    }
    arguments->config_path = text;
    return true;
}

static bool take_set(struct fcap_arguments *arguments, const char *text)
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

static bool take_offline(struct fcap_arguments *arguments, const char *text)
{
    (void)text;
    arguments->is_offline = true;
    return true;
}

static bool take_effective(struct fcap_arguments *arguments, const char *text)
{
    (void)text;
    arguments->is_effective = true;
    return true;
}

static bool take_verify(struct fcap_arguments *arguments, const char *text)
{
    (void)text;
    arguments->is_verify = true;
    return true;
}

static bool take_replay(struct fcap_arguments *arguments, const char *text)
{
    (void)text;
    arguments->is_replay = true;
    return true;
}

static bool take_user(struct fcap_arguments *arguments, const char *text)
{
    arguments->user = text;
    return true;
}

static bool take_partition(struct fcap_arguments *arguments, const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < 0 || value > INT32_MAX) {
        return complain("--partition wants a number of 0 or more", text);
    }
    arguments->partition = (int32_t)value;
    return true;
}

static bool take_windows(struct fcap_arguments *arguments, const char *text)
{
    arguments->windows = text;
    return true;
}

static bool take_spill(struct fcap_arguments *arguments, const char *text)
{
    arguments->spill = text;
    return true;
}

static bool take_patience(struct fcap_arguments *arguments, const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < 1 || value > 24 * 3600) {
        return complain("--patience wants seconds, from 1 to 86400", text);
    }
    arguments->patience_ms = (int64_t)value * 1000;
    return true;
}

static bool take_plain(struct fcap_arguments *arguments, const char *text)
{
    (void)text;
    arguments->is_plain = true;
    return true;
}

static bool take_from(struct fcap_arguments *arguments, const char *text)
{
    arguments->from = text;
    return *text != '\0' || complain("--from wants a directory, or latest", text);
}

static bool take_to(struct fcap_arguments *arguments, const char *text)
{
    arguments->to = text;
    return *text == '/' || complain("--to wants the whole path of a directory", text);
}

static bool take_verify_only(struct fcap_arguments *arguments, const char *text)
{
    (void)text;
    arguments->is_verify_only = true;
    return true;
}

/* Every option of every command but those that read their arguments themselves. */
static const struct option {
    unsigned takes; /* which commands know it */
    const char *name;
    const char *value; /* what stands behind it, for the usage; NULL: nothing */
    bool (*take)(struct fcap_arguments *arguments, const char *text);
} options[] = {
    {FCAP_TAKES_CONFIG, "-c", "FILE", take_config},
    {FCAP_TAKES_CONFIG, "--config", "FILE", take_config},
    {FCAP_TAKES_CONFIG, "--set", "key=value", take_set},
    {FCAP_TAKES_OFFLINE, "--offline", NULL, take_offline},
    {FCAP_TAKES_EFFECTIVE, "--effective", NULL, take_effective},
    {FCAP_TAKES_REPLAY, "--replay-from-kafka", NULL, take_replay},
    {FCAP_TAKES_USER, "--user", "ID", take_user},
    {FCAP_TAKES_VERIFY, "--verify", NULL, take_verify},
    {FCAP_TAKES_PARTITION, "--partition", "N", take_partition},
    {FCAP_TAKES_BACKFILL, "--windows", "NAMES", take_windows},
    {FCAP_TAKES_BACKFILL, "--spill", "DIR", take_spill},
    {FCAP_TAKES_WAITING, "--patience", "SECONDS", take_patience},
    {FCAP_TAKES_RESTORE, "--from", "DIR|latest", take_from},
    {FCAP_TAKES_RESTORE, "--verify-only", NULL, take_verify_only},
    {FCAP_TAKES_SAVEPOINT, "--to", "DIR", take_to},
    {FCAP_TAKES_TTY, "--no-tty", NULL, take_plain},
};
#define OPTIONS (sizeof options / sizeof options[0])

static const struct option *find_option(const struct fcap_command *command, const char *name)
{
    for (size_t i = 0; i < OPTIONS; i++) {
        if ((command->takes & options[i].takes) != 0 && strcmp(options[i].name, name) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

bool fcap_arguments_parse(const struct fcap_command *command, int count, char **texts,
                          struct fcap_arguments *ret_arguments)
{
    *ret_arguments = (struct fcap_arguments){.partition = -1, .patience_ms = PATIENCE_MS};
    if ((command->takes & FCAP_TAKES_REST) != 0) {
        ret_arguments->rest_count = count;
        ret_arguments->rest = texts;
        return true;
    }
    for (int i = 0; i < count; i++) {
        const struct option *option = find_option(command, texts[i]);
        if (strcmp(texts[i], "--help") == 0 || strcmp(texts[i], "-h") == 0) {
            ret_arguments->wants_help = true;
            return true;
        }
        if (option == NULL) {
            return complain("this command knows no such argument", texts[i]);
        }
        if (option->value != NULL && i + 1 == count) {
            return complain("a value is due behind it", texts[i]);
        }
        i += option->value != NULL;
        if (!option->take(ret_arguments, texts[i])) {
            return false;
        }
    }
    return true;
}

void fcap_arguments_usage(const struct fcap_command *command, FILE *file)
{
    for (size_t i = 0; i < OPTIONS; i++) {
        const struct option *option = &options[i];
        if ((command->takes & option->takes & ~(unsigned)FCAP_TAKES_CONFIG) != 0) {
            (void)fprintf(file, option->value != NULL ? " [%s %s]" : " [%s]", option->name,
                          option->value);
        }
    }
    (void)fputs((command->takes & FCAP_TAKES_REST) != 0 ? " [--help]\n" : "\n", file);
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
