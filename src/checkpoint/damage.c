#include "fcap/damage.h"

#include "fcap/checkpoint_state.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION   "fcapd-damage 1\n"
#define WRITING   "found-damaged.new"
#define TEXT_SIZE 1024

void fcap_damage_file_of(const char *text, char ret_file[64])
{
    const char *end = strstr(text, ".sst");
    const char *begin = end;
    ret_file[0] = '\0';
    while (begin != NULL && begin > text && isdigit((unsigned char)begin[-1])) {
        begin--;
    }
    if (begin != NULL && begin < end && end - begin < 32) {
        (void)snprintf(ret_file, 64, "%.*s.sst", (int)(end - begin), begin); /* Fits. */
    }
}

/* Lines, in this order: version, when, how often, file, text. */
static bool parse(char *text, struct fcap_damage *ret_damage)
{
    char *rest = text + sizeof VERSION - 1;
    char *parts[4];
    if (strncmp(text, VERSION, sizeof VERSION - 1) != 0) {
        return false;
    }
    for (size_t i = 0; i < 4; i++) {
        static const char *const names[] = {"found ", "times ", "file ", "text "};
        char *end = strchr(rest, '\n');
        if (end == NULL || strncmp(rest, names[i], strlen(names[i])) != 0) {
            return false;
        }
        *end = '\0';
        parts[i] = rest + strlen(names[i]);
        rest = end + 1;
    }
    ret_damage->found_ms = strtoll(parts[0], NULL, 10);
    ret_damage->times = (unsigned)strtoul(parts[1], NULL, 10);
    (void)snprintf(ret_damage->file, sizeof ret_damage->file, "%s", parts[2]); /* May cut. */
    (void)snprintf(ret_damage->text, sizeof ret_damage->text, "%s", parts[3]); /* May cut. */
    return ret_damage->found_ms > 0 && ret_damage->times > 0;
}

/* `name` without its dot. */
static bool read_marker(const char *directory, const char *name, struct fcap_damage *ret_damage)
{
    char path[4096];
    char text[TEXT_SIZE + 1];
    if (fcap_checkpoint_within(directory, name, path, NULL) != FCAP_OK) {
        return false;
    }
    FILE *file = fopen(path, "re");
    if (file == NULL && errno == ENOENT) {
        return false;
    }
    size_t size = file != NULL ? fread(text, 1, TEXT_SIZE, file) : 0;
    if (file != NULL) {
        (void)fclose(file); /* Only read. */
    }
    text[size] = '\0';
    *ret_damage = (struct fcap_damage){0};
    if (!parse(text, ret_damage)) {
        *ret_damage = (struct fcap_damage){.times = 1, .text = "the marker cannot be read"};
    }
    return true;
}

bool fcap_damage_find(const char *directory, struct fcap_damage *ret_damage)
{
    return read_marker(directory, &FCAP_DAMAGE_MARKER[1], ret_damage);
}

static unsigned count(const char *directory, int64_t wall_ms)
{
    struct fcap_damage before;
    bool is_near = read_marker(directory, &FCAP_DAMAGE_BEFORE[1], &before) &&
                   wall_ms - before.found_ms < FCAP_DAMAGE_WINDOW_MS;
    return is_near ? before.times + 1 : 1;
}

static bool write_all(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    size_t size = strlen(text);
    if (file < 0) {
        return false;
    }
    errno = ENOSPC; /* What a short write means. */
    bool done = write(file, text, size) == (ssize_t)size && fsync(file) == 0;
    int code = errno;
    (void)close(file); /* Synced, or given up. */
    errno = code;
    return done;
}

static bool sync_directory(const char *directory)
{
    int file = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool done = file >= 0 && fsync(file) == 0;
    if (file >= 0) {
        int code = errno;
        (void)close(file); /* Only read. */
        errno = code;
    }
    return done;
}

enum fcap_status fcap_damage_mark(const char *directory, int64_t wall_ms, const char *text,
                                  struct fcap_error *error)
{
    char path[4096];
    char writing[4096];
    char lines[TEXT_SIZE];
    char line[512];
    struct fcap_damage damage;
    enum fcap_status status =
        fcap_checkpoint_within(directory, &FCAP_DAMAGE_MARKER[1], path, error);
    if (status == FCAP_OK) {
        status = fcap_checkpoint_within(directory, WRITING, writing, error);
    }
    if (status != FCAP_OK) {
        return status;
    }
    fcap_damage_file_of(text, damage.file);
    (void)snprintf(line, sizeof line, "%s", text); /* May cut. */
    for (char *at = line; *at != '\0'; at++) {
        *at = iscntrl((unsigned char)*at) ? ' ' : *at;
    }
    (void)snprintf(lines, sizeof lines, VERSION "found %" PRId64 "\ntimes %u\nfile %s\ntext %s\n",
                   wall_ms, count(directory, wall_ms), damage.file, line); /* Fits. */
    if (!write_all(writing, lines) || rename(writing, path) != 0 || !sync_directory(directory)) {
        int code = errno;
        return fcap_error_set(error, code == ENOSPC || code == EDQUOT ? FCAP_NO_SPACE : FCAP_IO,
                              "%s: %s", path, strerror(code));
    }
    return FCAP_OK;
}
