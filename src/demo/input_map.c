#include "demo/input_map.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LISTED_MAX 16

static const char example[] = "such as --map user=user_id,ad=item_id,time=timestamp";

static struct demo_field *field_of(struct demo_map *map, const char *name, size_t size)
{
    return size == 4 && memcmp(name, "user", 4) == 0   ? &map->user
           : size == 2 && memcmp(name, "ad", 2) == 0   ? &map->ad
           : size == 4 && memcmp(name, "time", 4) == 0 ? &map->time
                                                       : NULL;
}

/* One NAME=COL+COL, ended by NUL; cut in place. */
static bool parse_field(struct demo_map *map, char *text, char *error, size_t error_size)
{
    char *equals = strchr(text, '=');
    struct demo_field *field = equals == NULL ? NULL : field_of(map, text, (size_t)(equals - text));
    if (field == NULL || field->count > 0) {
        (void)snprintf(error, error_size, "--map %s: user=, ad= and time= are wanted once each, %s",
                       text, example);
        return false;
    }
    for (char *at = equals + 1; at != NULL;) {
        char *plus = strchr(at, '+');
        if (plus != NULL) {
            *plus = '\0';
        }
        if (*at == '\0' || field->count == DEMO_PARTS_MAX) {
            (void)snprintf(error, error_size, "--map %s=: one to %d columns are wanted, %s", text,
                           DEMO_PARTS_MAX, example);
            return false;
        }
        field->parts[field->count++] = at;
        at = plus == NULL ? NULL : plus + 1;
    }
    return true;
}

bool demo_map_parse(const char *text, struct demo_map *ret_map, char *error, size_t error_size)
{
    *ret_map = (struct demo_map){0};
    if (strlen(text) >= sizeof ret_map->text) {
        (void)snprintf(error, error_size, "--map: longer than %zu bytes", sizeof ret_map->text - 1);
        return false;
    }
    (void)snprintf(ret_map->text, sizeof ret_map->text, "%s", text);
    for (char *at = ret_map->text; at != NULL;) {
        char *comma = strchr(at, ',');
        if (comma != NULL) {
            *comma = '\0';
        }
        if (!parse_field(ret_map, at, error, error_size)) {
            return false;
        }
        at = comma == NULL ? NULL : comma + 1;
    }
    if (ret_map->user.count == 0 || ret_map->ad.count == 0 || ret_map->time.count != 1) {
        (void)snprintf(error, error_size, "--map %s: user, ad and one time are wanted, %s", text,
                       example);
        return false;
    }
    return true;
}

void demo_map_list(const char *const *columns, size_t count, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < count && i < LISTED_MAX && used + 1 < size; i++) {
        used += (size_t)snprintf(ret_text + used, size - used, "%s \"%.40s\"", i == 0 ? "" : ",",
                                 columns[i]);
    }
    if (count > LISTED_MAX && used + 1 < size) {
        (void)snprintf(ret_text + used, size - used, " and %zu more", count - LISTED_MAX);
    }
}

static const char *find(const char *const *columns, size_t count, const char *const *names)
{
    for (size_t n = 0; names[n] != NULL; n++) {
        for (size_t i = 0; i < count; i++) {
            if (strcasecmp(columns[i], names[n]) == 0) {
                return columns[i];
            }
        }
    }
    return NULL;
}

bool demo_map_guess(const char *const *columns, size_t count, struct demo_map *ret_map, char *error,
                    size_t error_size)
{
    static const char *const users[] = {"user_id", "userid", "user", "uid", NULL};
    static const char *const ads[] = {"ad_id",       "adid",    "ad",     "adgroup_id",
                                      "campaign_id", "item_id", "itemid", NULL};
    static const char *const times[] = {"ts",   "event_time", "timestamp", "time_stamp",
                                        "time", "datetime",   NULL};
    const char *user = find(columns, count, users);
    const char *ad = find(columns, count, ads);
    const char *when = find(columns, count, times);
    char text[512];
    if (user != NULL && ad != NULL && when != NULL &&
        (size_t)snprintf(text, sizeof text, "user=%s,ad=%s,time=%s", user, ad, when) <
            sizeof text) {
        return demo_map_parse(text, ret_map, error, error_size);
    }
    size_t used =
        (size_t)snprintf(error, error_size, "which column is the %s? Say it by --map, %s; it has",
                         user == NULL ? "user"
                         : ad == NULL ? "ad"
                                      : "time",
                         example);
    if (used < error_size) {
        demo_map_list(columns, count, error + used, error_size - used);
    }
    return false;
}
