#include "lab/redis_ledger.h"

#include "lab/claims.h"
#include "lab/lab.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_MAX 256
#define CLIENT_TEXT 64
#define USER_MAX    512

/* A connection, by its address. */
struct client {
    char address[CLIENT_TEXT]; /* "": free */
    bool has_taken[REDIS_LEDGER_PARTITIONS_MAX];
};

/* A count key. Texts are owned. */
struct entry {
    char *key;
    char *first; /* NULL: it was unlinked only */
    size_t first_size;
    int64_t as_of_ms;
    int64_t expire_at_ms;
    bool is_there; /* unless expire_at_ms has passed */
};

struct redis_ledger {
    struct redis_ledger_options options;
    struct redis_ledger_report report;
    struct client clients[CLIENTS_MAX];
    size_t next_client;       /* the next to be forgotten */
    char caller[CLIENT_TEXT]; /* of the script that runs */
    struct entry *entries;    /* in order of appearance */
    size_t capacity;
    uint32_t *slots; /* entry + 1; 0: free */
    size_t slot_count;
    bool is_full;
};

static void wrong(struct redis_ledger *ledger, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void wrong(struct redis_ledger *ledger, const char *format, ...)
{
    char *text = ledger->report.text;
    size_t used = strlen(text);
    va_list arguments;
    ledger->report.wrong++;
    va_start(arguments, format);
    (void)vsnprintf(text + used, sizeof ledger->report.text - used, format, arguments);
    va_end(arguments);
}

void redis_ledger_unreadable(struct redis_ledger *ledger, const char *what)
{
    wrong(ledger, "command %" PRIu64 ": %.200s\n", ledger->report.commands, what);
}

struct redis_ledger *redis_ledger_open(const struct redis_ledger_options *options)
{
    struct redis_ledger *ledger = calloc(1, sizeof *ledger);
    lab_check(ledger != NULL);
    lab_check(options->partitions > 0 && options->partitions <= REDIS_LEDGER_PARTITIONS_MAX);
    ledger->options = *options;
    ledger->slot_count = 1024;
    while (ledger->slot_count < options->keys_max * 2) {
        ledger->slot_count *= 2;
    }
    ledger->slots = calloc(ledger->slot_count, sizeof *ledger->slots);
    lab_check(ledger->slots != NULL);
    return ledger;
}

void redis_ledger_close(struct redis_ledger *ledger)
{
    if (ledger == NULL) {
        return;
    }
    for (size_t i = 0; i < ledger->report.keys; i++) {
        free(ledger->entries[i].key);
        free(ledger->entries[i].first);
    }
    free(ledger->entries);
    free(ledger->slots);
    free(ledger);
}

const struct redis_ledger_report *redis_ledger_report(const struct redis_ledger *ledger)
{
    return &ledger->report;
}

/* --- clients --------------------------------------------------------------------------------- */

/* The connection of that address; one that is not known, or is known by another name (`anew`), has
 * taken nothing. Of too many, the oldest is forgotten, which can only make its writes wrong. */
static struct client *client_of(struct redis_ledger *ledger, const char *address, bool anew)
{
    struct client *client = NULL;
    for (size_t i = 0; i < CLIENTS_MAX && client == NULL; i++) {
        client = strcmp(ledger->clients[i].address, address) == 0 ? &ledger->clients[i] : NULL;
    }
    if (client == NULL) {
        client = &ledger->clients[ledger->next_client];
        ledger->next_client = (ledger->next_client + 1) % CLIENTS_MAX;
        anew = true;
    }
    if (anew) {
        *client = (struct client){0};
        (void)snprintf(client->address, sizeof client->address, "%s", address);
    }
    return client;
}

/* A script's commands come from "lua"; whoever has called it stands on the line before. */
static const char *caller_of(struct redis_ledger *ledger, const struct redis_command *command)
{
    return strcmp(command->client, "lua") == 0 ? ledger->caller : command->client;
}

/* --- keys ------------------------------------------------------------------------------------ */

static size_t slot_of(const struct redis_ledger *ledger, const char *key)
{
    uint64_t hash = UINT64_C(1469598103934665603);
    for (const char *at = key; *at != '\0'; at++) {
        hash = (hash ^ (uint8_t)*at) * UINT64_C(1099511628211);
    }
    size_t slot = (size_t)(hash ^ hash >> 32) & (ledger->slot_count - 1);
    while (ledger->slots[slot] != 0 &&
           strcmp(ledger->entries[ledger->slots[slot] - 1].key, key) != 0) {
        slot = (slot + 1) & (ledger->slot_count - 1);
    }
    return slot;
}

/* The key's account; NULL: there is no room for another one. */
static struct entry *entry_of(struct redis_ledger *ledger, const char *key)
{
    size_t slot = slot_of(ledger, key);
    if (ledger->slots[slot] != 0) {
        return &ledger->entries[ledger->slots[slot] - 1];
    }
    if (ledger->report.keys == ledger->options.keys_max) {
        if (!ledger->is_full) {
            wrong(ledger, "more than %zu keys: those beyond are not watched\n",
                  ledger->options.keys_max);
        }
        ledger->is_full = true;
        return NULL;
    }
    if (ledger->report.keys == ledger->capacity) {
        ledger->capacity = ledger->capacity == 0 ? 1024 : ledger->capacity * 2;
        ledger->entries = realloc(ledger->entries, ledger->capacity * sizeof *ledger->entries);
        lab_check(ledger->entries != NULL);
    }
    struct entry *entry = &ledger->entries[ledger->report.keys++];
    *entry = (struct entry){.key = strdup(key), .as_of_ms = INT64_MIN};
    lab_check(entry->key != NULL);
    ledger->slots[slot] = (uint32_t)ledger->report.keys;
    return entry;
}

/* "fc:{user}:window" in two; false: another key, or one by which a daemon probes its rights. */
static bool split_key(const char *key, char *user, size_t size, const char **ret_window)
{
    const char *end = strncmp(key, "fc:{", 4) == 0 ? strstr(key, "}:") : NULL;
    if (end == NULL || strncmp(key, "fc:{%probe:", 11) == 0 || (size_t)(end - key) - 4 >= size) {
        return false;
    }
    (void)snprintf(user, size, "%.*s", (int)(end - key) - 4, key + 4);
    *ret_window = end + 2;
    return true;
}

void redis_ledger_each_first(const struct redis_ledger *ledger, redis_ledger_first *each,
                             void *context)
{
    for (size_t i = 0; i < ledger->report.keys; i++) {
        const struct entry *entry = &ledger->entries[i];
        char user[USER_MAX];
        const char *window;
        if (entry->first != NULL && split_key(entry->key, user, sizeof user, &window)) {
            each(context, user, window, entry->first, entry->first_size);
        }
    }
}

/* --- what is written ------------------------------------------------------------------------- */

static int64_t as_of(const struct redis_word *value)
{
    const char *at = strstr(value->text, "\"as_of\":");
    return at == NULL ? INT64_MIN : strtoll(at + strlen("\"as_of\":"), NULL, 10);
}

static void take_value(struct redis_ledger *ledger, struct entry *entry,
                       const struct redis_command *command)
{
    const struct redis_word *value = &command->words[2];
    int64_t at_ms = as_of(value);
    bool only_new = false;
    int64_t expire_at_ms = INT64_MAX;
    for (size_t i = 3; i < command->count && i < REDIS_MONITOR_WORDS_MAX; i++) {
        only_new = only_new || redis_command_has(command, i, "NX");
        if (redis_command_has(command, i - 1, "PXAT")) {
            expire_at_ms = strtoll(command->words[i].text, NULL, 10);
        }
    }
    if (only_new && entry->is_there && entry->expire_at_ms >= command->at_us / 1000) {
        ledger->report.kept++;
        return;
    }
    ledger->report.sets++;
    if (expire_at_ms == INT64_MAX || at_ms == INT64_MIN) {
        wrong(ledger, "%.100s: a value without %s\n", entry->key,
              at_ms == INT64_MIN ? "as_of" : "an end");
    } else if (at_ms < entry->as_of_ms) {
        wrong(ledger, "%.100s: as_of falls from %" PRId64 " to %" PRId64 " (command %" PRIu64 ")\n",
              entry->key, entry->as_of_ms, at_ms, ledger->report.commands);
    }
    entry->as_of_ms = at_ms > entry->as_of_ms ? at_ms : entry->as_of_ms;
    entry->expire_at_ms = expire_at_ms;
    entry->is_there = true;
    if (entry->first == NULL) {
        entry->first = malloc(value->size + 1);
        lab_check(entry->first != NULL);
        memcpy(entry->first, value->text, value->size + 1);
        entry->first_size = value->size;
    }
}

/* A SET (with a value) or an UNLINK of a count key. */
static void take_write(struct redis_ledger *ledger, const struct redis_command *command,
                       const char *key, bool has_value)
{
    struct redis_ledger_report *report = &ledger->report;
    char user[USER_MAX];
    const char *window;
    if (!split_key(key, user, sizeof user, &window)) {
        return;
    }
    int32_t partition = ledger->options.partition_of(ledger->options.context, user);
    lab_check(partition >= 0 && partition < ledger->options.partitions);
    struct redis_ledger_partition *account = &report->partitions[partition];
    if (account->writes++ == 0) {
        account->first_write = report->commands;
        account->first_write_us = command->at_us;
    }
    if (!client_of(ledger, caller_of(ledger, command), false)->has_taken[partition]) {
        wrong(ledger,
              "%.100s: written by %.60s before it took partition %d (command %" PRIu64 ")\n", key,
              caller_of(ledger, command), partition, report->commands);
    }
    struct entry *entry = entry_of(ledger, key);
    if (!has_value) {
        report->unlinks++;
    }
    if (entry != NULL && has_value) {
        take_value(ledger, entry, command);
    } else if (entry != NULL) {
        entry->is_there = false;
    }
}

static void take_increment(struct redis_ledger *ledger, const struct redis_command *command)
{
    struct redis_ledger_report *report = &ledger->report;
    char prefix[128];
    int size = snprintf(prefix, sizeof prefix, "fc:epoch:%s:", ledger->options.profile);
    const char *key = command->words[1].text;
    char *end = NULL;
    long partition = strncmp(key, prefix, (size_t)size) == 0 ? strtol(key + size, &end, 10) : -1;
    if (end == NULL || end == key + size || *end != '\0') {
        return; /* Another profile's, or a probe. */
    }
    if (partition < 0 || partition >= ledger->options.partitions) {
        wrong(ledger, "%.100s: there is no such partition\n", key);
        return;
    }
    struct redis_ledger_partition *account = &report->partitions[partition];
    if (account->increments++ == 0) {
        account->first_increment = report->commands;
        account->first_increment_us = command->at_us;
    }
    account->last_increment = report->commands;
    account->last_increment_us = command->at_us;
    client_of(ledger, caller_of(ledger, command), false)->has_taken[partition] = true;
}

/* fc:meta names the partitions whose gates are open, each with its owner's epoch. */
static void take_claims(struct redis_ledger *ledger, const struct redis_command *command)
{
    for (int32_t i = 0; i < ledger->options.partitions; i++) {
        struct claim claim;
        uint64_t increments = ledger->report.partitions[i].increments;
        if (claim_read(command->words[2].text, i, &claim) &&
            (claim.epoch < 1 || (uint64_t)claim.epoch > increments)) {
            wrong(ledger,
                  "fc:meta claims partition %d with epoch %" PRId64 ", counted up %" PRIu64
                  " times (command %" PRIu64 ")\n",
                  i, claim.epoch, increments, ledger->report.commands);
        }
    }
    ledger->report.claims++;
}

static void take_set(struct redis_ledger *ledger, const struct redis_command *command)
{
    char prefix[128];
    const char *key = command->words[1].text;
    int size = snprintf(prefix, sizeof prefix, "fc:meta:%s:", ledger->options.profile);
    if (strncmp(key, prefix, (size_t)size) == 0) {
        take_claims(ledger, command);
    } else {
        take_write(ledger, command, key, true);
    }
}

static bool names_a_daemon(const struct redis_ledger *ledger, const struct redis_command *command)
{
    char prefix[128];
    int size = snprintf(prefix, sizeof prefix, "fcapd:%s:", ledger->options.profile);
    return strncmp(command->words[2].text, prefix, (size_t)size) == 0;
}

void redis_ledger_take(struct redis_ledger *ledger, const struct redis_command *command)
{
    ledger->report.commands++;
    if (redis_command_has(command, 0, "SET") && command->count >= 3) {
        take_set(ledger, command);
    } else if (redis_command_has(command, 0, "UNLINK") || redis_command_has(command, 0, "DEL")) {
        if (command->count > REDIS_MONITOR_WORDS_MAX) {
            redis_ledger_unreadable(ledger, "more keys are removed at once than are watched");
        }
        for (size_t i = 1; i < command->count && i < REDIS_MONITOR_WORDS_MAX; i++) {
            take_write(ledger, command, command->words[i].text, false);
        }
    } else if (redis_command_has(command, 0, "INCR") && command->count == 2) {
        take_increment(ledger, command);
    } else if (redis_command_has(command, 0, "CLIENT") && command->count == 3 &&
               redis_command_has(command, 1, "SETNAME")) {
        ledger->report.names += names_a_daemon(ledger, command);
        (void)client_of(ledger, command->client, true);
    } else if (redis_command_has(command, 0, "EVAL") || redis_command_has(command, 0, "EVALSHA")) {
        (void)snprintf(ledger->caller, sizeof ledger->caller, "%s", command->client);
    } else if (redis_command_has(command, 0, "FLUSHALL") ||
               redis_command_has(command, 0, "FLUSHDB")) {
        for (size_t i = 0; i < ledger->report.keys; i++) {
            ledger->entries[i].is_there = false;
        }
    }
}
