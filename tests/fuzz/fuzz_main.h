/* The replay of a fuzz target without libFuzzer: main() gives the target every file of its
 * arguments (files and folders). Included at the end of a target. */
#ifndef FCAP_TESTS_FUZZ_MAIN_H
#define FCAP_TESTS_FUZZ_MAIN_H

#include "fcap/assert.h"
#include "fcap/bytes.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifndef FCAP_LIBFUZZER

static bool replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return false;
    }
    struct fcap_buffer buffer = {0};
    size_t size;
    do {
        size = fread(fcap_buffer_reserve(&buffer, 65536), 1, 65536, file);
        buffer.size += size;
    } while (size > 0);
    bool is_read = ferror(file) == 0;
    (void)fclose(file); /* Only read from. */
    if (is_read) {
        /* A copy of exactly its size, so that ASan sees a read beyond the end. */
        uint8_t *copy = malloc(buffer.size + (buffer.size == 0));
        FCAP_ASSERT(copy != NULL);
        memcpy(copy, buffer.data, buffer.size);
        (void)LLVMFuzzerTestOneInput(copy, buffer.size); /* Dies when it finds something. */
        free(copy);
    }
    fcap_buffer_done(&buffer);
    return is_read;
}

static size_t replay_folder(const char *path)
{
    size_t count = 0;
    DIR *folder = opendir(path);
    if (folder == NULL) {
        perror(path);
        return 0;
    }
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char name[4096];
        struct stat what;
        int length = snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (length > 0 && (size_t)length < sizeof name && stat(name, &what) == 0 &&
            S_ISREG(what.st_mode)) {
            count += replay_file(name);
        }
    }
    (void)closedir(folder); /* Only read from. */
    return count;
}

int main(int count, char **arguments)
{
    size_t replayed = 0;
    for (int i = 1; i < count; i++) {
        struct stat what;
        bool is_folder = stat(arguments[i], &what) == 0 && S_ISDIR(what.st_mode);
        replayed += is_folder ? replay_folder(arguments[i]) : replay_file(arguments[i]);
    }
    printf("result: %zu files replayed\n", replayed);
    return replayed > 0 ? 0 : 1;
}

#endif
#endif
