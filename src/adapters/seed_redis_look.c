/* Whose gates are open: every fc:meta of the profile, found by SCAN. */
#include "seed_redis_internal.h"
#include "seed_redis_meta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SCAN_COUNT = 2000, /* a step of SCAN: a millisecond or two of the server */
    GETS_MAX = 1000,   /* in one batch */
};

static void keep_names(struct fcap_seed_redis *seed, const char *prefix)
{
    size_t size = strlen(prefix);
    for (size_t i = 3; i < seed->pieces.count; i++) { /* After array, cursor, array. */
        const struct sink_piece *piece = &seed->pieces.pieces[i];
        const char *name = seed_text(seed, piece);
        /* The pattern's own characters may stand in a profile: the prefix decides. */
        if (piece->type == REDIS_REPLY_STRING && strncmp(name, prefix, size) == 0) {
            fcap_buffer_put(&seed->names, name, piece->size + 1);
            seed->name_count++;
        }
    }
}

/* Every key fc:meta:<profile>:*, perhaps twice, into `names`. */
static enum fcap_status scan(struct fcap_seed_redis *seed, const char *prefix)
{
    char pattern[SEED_KEY_BYTES * 2];
    char cursor[32] = "0";
    char step[16];
    size_t used = 0;
    for (const char *at = prefix; *at != '\0'; at++) {
        if (strchr("*?[]\\^", *at) != NULL) {
            pattern[used++] = '\\';
        }
        pattern[used++] = *at;
    }
    pattern[used++] = '*';
    (void)snprintf(step, sizeof step, "%d", SCAN_COUNT); /* It fits. */
    fcap_buffer_clear(&seed->names);
    seed->name_count = 0;
    do {
        const struct fcap_bytes arguments[] = {
            fcap_bytes_of("SCAN"),  fcap_bytes_of(cursor),
            fcap_bytes_of("MATCH"), {(const uint8_t *)pattern, used},
            fcap_bytes_of("COUNT"), fcap_bytes_of(step),
        };
        sink_ask(seed->sink, sizeof arguments / sizeof arguments[0], arguments);
        enum fcap_status status = seed_answered(seed);
        if (status != FCAP_OK) {
            return status;
        }
        const struct sink_piece *pieces = seed->pieces.pieces;
        if (seed->pieces.count < 3 || pieces[0].type != REDIS_REPLY_ARRAY ||
            pieces[1].type != REDIS_REPLY_STRING || pieces[1].size >= sizeof cursor) {
            return seed_strange(seed, "SCAN");
        }
        (void)snprintf(cursor, sizeof cursor, "%s", seed_text(seed, &pieces[1])); /* It fits. */
        keep_names(seed, prefix);
    } while (strcmp(cursor, "0") != 0);
    return FCAP_OK;
}

static enum fcap_status read_metas(struct fcap_seed_redis *seed, int32_t count, bool *ret_open)
{
    const char *name = (const char *)seed->names.data;
    for (size_t done = 0; done < seed->name_count;) {
        size_t end = seed->name_count - done > GETS_MAX ? done + GETS_MAX : seed->name_count;
        const char *first = name;
        for (size_t i = done; i < end; i++) {
            seed_ask(seed, "GET", name, NULL);
            name += strlen(name) + 1;
        }
        enum fcap_status status = seed_answered(seed);
        if (status != FCAP_OK) {
            return status;
        }
        for (size_t i = done; i < end; i++) {
            const struct sink_piece *piece = &seed->pieces.pieces[i - done];
            /* Nil: it expired meanwhile. */
            if (piece->type == REDIS_REPLY_STRING &&
                !seed_redis_meta_read(seed_text(seed, piece), count, ret_open)) {
                return fcap_error_set(
                    &seed->error, FCAP_UNAVAILABLE,
                    "redis: %s holds no fc:meta that this version can read; whose "
                    "gates are open is not known",
                    first);
            }
            first += strlen(first) + 1;
        }
        done = end;
    }
    return FCAP_OK;
}

enum fcap_status seed_look(struct fcap_seed *port, int32_t count, bool *ret_open,
                           struct fcap_seed_time *ret_time)
{
    struct fcap_seed_redis *seed = seed_redis_of(port);
    char prefix[SEED_KEY_BYTES];
    int64_t begun_ms = sink_monotonic_ms();
    (void)snprintf(prefix, sizeof prefix, "fc:meta:%s:", seed->sink->settings.profile);
    enum fcap_status status = seed_reach(seed);
    if (status == FCAP_OK) {
        memset(ret_open, 0, (size_t)count * sizeof *ret_open);
        status = scan(seed, prefix);
    }
    if (status == FCAP_OK) {
        status = read_metas(seed, count, ret_open);
    }
    if (status != FCAP_OK) {
        return status;
    }
    seed_ask(seed, "GET", "fc:id", NULL);
    seed_ask(seed, "TIME", NULL, NULL);
    status = seed_answered(seed);
    if (status == FCAP_OK) {
        status = seed_check_sentinel(seed, &seed->pieces.pieces[0]);
    }
    if (status != FCAP_OK) {
        return status;
    }
    const struct sink_piece *pieces = seed->pieces.pieces;
    if (seed->pieces.count != 4 || pieces[2].type != REDIS_REPLY_STRING ||
        pieces[3].type != REDIS_REPLY_STRING) {
        return seed_strange(seed, "TIME");
    }
    if (!seed->has_looked) {
        seed->identity = seed->sink->now.state.identity;
        seed->has_looked = true;
    }
    *ret_time = (struct fcap_seed_time){
        .time_ms = strtoll(seed_text(seed, &pieces[2]), NULL, 10) * 1000 +
                   strtoll(seed_text(seed, &pieces[3]), NULL, 10) / 1000,
        .cost_ms = sink_monotonic_ms() - begun_ms,
    };
    return FCAP_OK;
}
