/* Names of keys: exact look-up, sections, and the nearest name for a mistyped one. */
#include "config_internal.h"

#include <ctype.h>
#include <string.h>

size_t fcap_config_key_find(const char *name)
{
    for (size_t i = 0; i < fcap_config_keys_count; i++) {
        if (strcmp(fcap_config_keys[i].name, name) == 0) {
            return i;
        }
    }
    return fcap_config_keys_count;
}

bool fcap_config_is_section(const char *path)
{
    size_t size = strlen(path);
    for (size_t i = 0; i < fcap_config_keys_count; i++) {
        if (strncmp(fcap_config_keys[i].name, path, size) == 0 &&
            fcap_config_keys[i].name[size] == '.') {
            return true;
        }
    }
    return false;
}

static unsigned smallest(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static int lower(char c)
{
    return tolower((unsigned char)c);
}

/* Damerau-Levenshtein distance (insert, delete, replace, swap neighbours), blind to case. Both
 * texts are shorter than FCAP_CONFIG_PATH_MAX. */
static unsigned distance(const char *a, const char *b)
{
    unsigned rows[3][FCAP_CONFIG_PATH_MAX + 1];
    size_t b_size = strlen(b);
    for (size_t j = 0; j <= b_size; j++) {
        rows[0][j] = (unsigned)j;
    }
    unsigned *before = rows[2];
    unsigned *above = rows[0];
    unsigned *row = rows[1];
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_size; j++) {
            bool same = lower(a[i - 1]) == lower(b[j - 1]);
            row[j] = smallest(above[j - 1] + (same ? 0 : 1), smallest(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1])) {
                row[j] = smallest(row[j], before[j - 2] + 1);
            }
        }
        unsigned *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[b_size];
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot == NULL ? path : dot + 1;
}

/* Texts whose sizes differ by more cannot be nearer; comparing them would only take time. */
static bool may_be_near(const char *a, const char *b, unsigned best)
{
    size_t a_size = strlen(a);
    size_t b_size = strlen(b);
    return 2 * (a_size > b_size ? a_size - b_size : b_size - a_size) < best;
}

/* How far a mistyped path is from a known name: 2 for each slip of the finger, 3 for the right key
 * in a wrong section. `best` when it is no nearer than that. */
static unsigned cost(const char *path, const char *name, unsigned best)
{
    const char *path_last = last_part(path);
    const char *name_last = last_part(name);
    if (may_be_near(path, name, best)) {
        best = smallest(best, 2 * distance(path, name));
    }
    size_t size = strlen(path_last);
    if (size >= 4 && may_be_near(path_last, name_last, best)) {
        unsigned last = distance(path_last, name_last);
        best = last <= size / 4 ? smallest(best, 2 * last + 3) : best;
    }
    return best;
}

bool fcap_config_nearest(const char *path, char ret_name[FCAP_CONFIG_PATH_MAX])
{
    if (strlen(path) >= FCAP_CONFIG_PATH_MAX) {
        return false;
    }
    size_t size = strlen(path);
    unsigned best = size < 6 ? 5 : 7; /* Two slips, or three. */
    bool is_found = false;
    for (size_t i = 0; i < fcap_config_keys_count; i++) {
        /* The name itself, then each of its sections: "a.b.c", "a.b", "a". */
        char name[FCAP_CONFIG_PATH_MAX];
        (void)snprintf(name, sizeof name, "%s", fcap_config_keys[i].name);
        for (;;) {
            unsigned here = cost(path, name, best);
            if (here < best) {
                best = here;
                is_found = true;
                (void)snprintf(ret_name, FCAP_CONFIG_PATH_MAX, "%s", name);
            }
            char *dot = strrchr(name, '.');
            if (dot == NULL) {
                break;
            }
            *dot = '\0';
        }
    }
    return is_found;
}
