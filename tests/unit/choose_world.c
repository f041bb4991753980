/* See choose_world.h. */
#include "choose_world.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MINUTE_MS 60000

struct fake_place choose_place;
struct fcap_choice choose_choice;
struct fcap_error choose_error;

/* --- the world on disk --- */

void choose_path(char path[256], const char *name)
{
    (void)snprintf(path, 256, "%s/%s", world.directory, name);
}

void choose_path_in_state(char path[256], const char *name)
{
    (void)snprintf(path, 256, "%s/%s", world.state_directory, name);
}

bool choose_exists(const char *name)
{
    char path[256];
    struct stat info;
    choose_path_in_state(path, name);
    return stat(path, &info) == 0;
}

void choose_copy_file(const char *from, const char *to)
{
    char bytes[1 << 16];
    FILE *source = fopen(from, "r");
    FILE *target = fopen(to, "w");
    assert_true(source != NULL && target != NULL);
    for (size_t size = 1; size > 0;) {
        size = fread(bytes, 1, sizeof bytes, source);
        assert_int_equal(fwrite(bytes, 1, size, target), size);
    }
    assert_int_equal(fclose(source), 0);
    assert_int_equal(fclose(target), 0);
}

static void copy_directory(const char *from, const char *to)
{
    DIR *directory = opendir(from);
    assert_non_null(directory);
    assert_int_equal(mkdir(to, 0700), 0);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        char source[600];
        char target[600];
        (void)snprintf(source, sizeof source, "%s/%s", from, entry->d_name);
        (void)snprintf(target, sizeof target, "%s/%s", to, entry->d_name);
        if (entry->d_name[0] != '.') {
            choose_copy_file(source, target);
        }
    }
    assert_int_equal(closedir(directory), 0);
}

size_t choose_count_files(void)
{
    size_t count = 0;
    DIR *directory = opendir(world.state_directory);
    for (struct dirent *entry = directory == NULL ? NULL : readdir(directory); entry != NULL;
         entry = readdir(directory)) {
        count += entry->d_name[0] != '.' && strcmp(entry->d_name, "LOCK") != 0;
    }
    if (directory != NULL) {
        assert_int_equal(closedir(directory), 0);
    }
    return count;
}

static void remove_hidden(const char *name)
{
    char path[256];
    struct fcap_error unused;
    choose_path_in_state(path, name);
    assert_int_equal(fcap_checkpoint_remove_directory(path, &unused), FCAP_OK);
}

/* The process has ended in good order. */
void choose_save(void)
{
    fake_state_save(&world.state);
}

static void keep_copy(void)
{
    char path[256];
    choose_path(path, "copy");
    choose_save();
    copy_directory(world.state_directory, path);
}

/* The volume of back then is mounted again. */
void choose_put_copy_back(void)
{
    char path[256];
    struct fcap_error unused;
    choose_path(path, "copy");
    world_lose_state();
    copy_directory(path, world.state_directory);
    assert_int_equal(fcap_checkpoint_remove_directory(path, &unused), FCAP_OK);
}

void choose_unlink(const char *name)
{
    char path[256];
    choose_path_in_state(path, name);
    assert_int_equal(unlink(path), 0);
}

int choose_teardown(void **state)
{
    static const char *const names[] = {".damaged",  ".damaged.new", ".replaced",
                                        ".restored", ".moving",      ".restoring"};
    char path[256];
    struct fcap_error unused;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        remove_hidden(names[i]);
    }
    choose_path(path, "copy");
    assert_int_equal(fcap_checkpoint_remove_directory(path, &unused), FCAP_OK);
    return checkpoint_world_teardown(state);
}

/* --- the call --- */

static void tell(void *context, const char *text)
{
    (void)context;
    (void)text;
}

enum fcap_status choose_try(const struct fcap_checkpoint_place_ops *ops, enum fcap_status refuse)
{
    fake_place_init(&choose_place, 5000 + world.random);
    choose_place.refuse = refuse;
    choose_place.place.ops = ops != NULL ? ops : choose_place.place.ops;
    const struct fcap_choose_settings settings = {
        .restore = {.profile = world.settings.profile,
                    .instance = world.settings.instance,
                    .directory = world.state_directory,
                    .place = &choose_place.place,
                    .tell = tell},
        .clock = &world.clock,
    };
    choose_error.text[0] = '\0';
    enum fcap_status status =
        fcap_choose(&settings, &world.objects.port, &choose_choice, &choose_error);
    assert_true(choose_place.is_open == (status == FCAP_OK && choose_choice.is_open));
    return status;
}

/* Makes the state that was chosen the world's, and compares it with the history. */
void choose_now(enum fcap_state_source source, const char *text)
{
    enum fcap_status status = choose_try(NULL, FCAP_OK);
    if (status != FCAP_OK) {
        fail_msg("%s", choose_error.text);
    }
    if (choose_choice.source != source || strstr(choose_choice.text.text, text) == NULL) {
        fail_msg("\"%s\" instead of \"%s\" (source %d)", choose_choice.text.text, text,
                 choose_choice.source);
    }
    if (choose_choice.is_open) {
        choose_place.place.ops->close(&choose_place.place);
    }
    if (world.has_state) {
        fake_state_done(&world.state);
        world.has_state = false;
    }
    assert_false(choose_exists(".restoring") || choose_exists(".restored") ||
                 choose_exists(".moving") || choose_exists(".replaced") ||
                 choose_exists(".damaged.new"));
    if (source == FCAP_STATE_KAFKA) {
        assert_int_equal(choose_count_files(), 0);
        return;
    }
    fake_state_load(&world.state, world.state_directory, &world.wall_ms);
    world.has_state = true;
    world_compare(&world.state);
    world_forget_after(world.state.position.sequence);
}

void choose_write_minutes(int minutes)
{
    for (int minute = 0; minute < minutes; minute++) {
        world_write(20, 300, 50);
        world_pass(MINUTE_MS);
    }
}

/* Two snapshots with a changelog over both, and nothing lost; a copy of the state at `minute`. */
struct fcap_store_position choose_run(int minutes, int copied_at)
{
    world_open();
    choose_write_minutes(copied_at);
    if (copied_at > 0) {
        keep_copy();
    }
    choose_write_minutes(minutes - copied_at);
    world_stop();
    choose_save();
    return world.state.position;
}

bool choose_is_lineage_of(const struct fcap_store_position *position)
{
    return memcmp(&position->lineage, &world.state.position.lineage, sizeof position->lineage) == 0;
}

/* What goes on must be taken for what it is. */
void choose_goes_on(void)
{
    world_open();
    world_rest();
    choose_write_minutes(3);
    world_stop();
    struct fcap_checkpoint newest = world_newest();
    assert_int_equal(newest.sequence, world.state.position.sequence);
    assert_memory_equal(&newest.lineage, &world.state.position.lineage, sizeof newest.lineage);
    fcap_checkpoint_done(&newest);
    uint64_t sequence = world.state.position.sequence;
    world_lose_state();
    assert_int_equal(world_restore().sequence, sequence);
}
