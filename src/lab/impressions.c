#include "lab/impressions.h"

#include "lab/lab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SESSION_ADS      4
#define AGAIN_PERMILLE   500 /* of a session's impressions: an ad that it has seen */
#define LARGEST_SESSIONS 65536

/* Walker's alias table (Vose's way to build it): one draw picks a column, a second one its owner or
 * its alias. */
struct zipf {
    uint32_t *alias;
    uint32_t *owned; /* out of 2^32 */
    uint32_t count;
};

struct session {
    uint32_t user;
    uint32_t ads[SESSION_ADS];
    uint32_t seen; /* ads */
    uint32_t is_open;
};

struct impressions {
    struct impressions_options options;
    struct zipf users;
    struct zipf ads;
    struct session *sessions;
    struct impression *recent;
    uint64_t good; /* impressions with an id of their own */
    uint64_t state;
};

static void *room(size_t count, size_t item_bytes)
{
    void *memory = calloc(count > 0 ? count : 1, item_bytes);
    if (memory == NULL) {
        lab_die("no memory for impressions");
    }
    return memory;
}

/* --- chance ---------------------------------------------------------------------------------- */

/* SplitMix64. */
static uint64_t draw_bits(struct impressions *impressions)
{
    impressions->state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t mixed = impressions->state;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

static uint32_t draw(struct impressions *impressions, uint32_t below)
{
    return (uint32_t)((draw_bits(impressions) >> 32) * below >> 32);
}

static uint32_t draw_zipf(struct impressions *impressions, const struct zipf *zipf)
{
    uint64_t bits = draw_bits(impressions);
    uint32_t column = (uint32_t)((bits >> 32) * zipf->count >> 32);
    return (uint32_t)bits < zipf->owned[column] ? column : zipf->alias[column];
}

static void zipf_init(struct zipf *zipf, uint32_t count, double exponent)
{
    double *share = room(count, sizeof *share); /* of a column: 1 is full */
    uint32_t *small = room(count, sizeof *small);
    uint32_t *large = room(count, sizeof *large);
    uint32_t small_count = 0;
    uint32_t large_count = 0;
    double sum = 0;
    zipf->count = count;
    zipf->alias = room(count, sizeof *zipf->alias);
    zipf->owned = room(count, sizeof *zipf->owned);
    for (uint32_t i = 0; i < count; i++) {
        share[i] = pow((double)i + 1, -exponent);
        sum += share[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        share[i] *= (double)count / sum;
        zipf->alias[i] = i;
        zipf->owned[i] = UINT32_MAX;
        if (share[i] < 1) {
            small[small_count++] = i;
        } else {
            large[large_count++] = i;
        }
    }
    while (small_count > 0 && large_count > 0) {
        uint32_t poor = small[--small_count];
        uint32_t rich = large[large_count - 1];
        zipf->owned[poor] = (uint32_t)(share[poor] * UINT32_MAX);
        zipf->alias[poor] = rich;
        share[rich] -= 1 - share[poor];
        if (share[rich] < 1) {
            large_count--;
            small[small_count++] = rich;
        }
    }
    free(share);
    free(small);
    free(large);
}

static void zipf_done(struct zipf *zipf)
{
    free(zipf->alias);
    free(zipf->owned);
}

/* --- text ------------------------------------------------------------------------------------ */

/* snprintf() would be half of a generator's time. Gives the end. */
static char *put_text(char *at, const char *text)
{
    size_t size = strlen(text);
    memcpy(at, text, size + 1);
    return at + size;
}

static char *put_number(char *at, uint64_t number)
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (count > 0) {
        *at++ = digits[--count];
    }
    *at = '\0';
    return at;
}

static void put_name(char *at, char letter, uint64_t number)
{
    at[0] = letter;
    (void)put_number(at + 1, number);
}

/* --- impressions ----------------------------------------------------------------------------- */

struct impressions *impressions_open(const struct impressions_options *options)
{
    struct impressions *impressions = room(1, sizeof *impressions);
    if (options->users == 0 || options->ads == 0 || options->sessions > LARGEST_SESSIONS ||
        (options->sessions > 0 && options->session_length == 0) ||
        options->value_bytes >= IMPRESSIONS_VALUE_MAX) {
        lab_die("impressions: users, ads and the length of a session are at least 1; at most %d "
                "sessions and values below %d bytes",
                LARGEST_SESSIONS, IMPRESSIONS_VALUE_MAX);
    }
    impressions->options = *options;
    impressions->state = options->seed;
    zipf_init(&impressions->users, options->users, options->user_exponent);
    zipf_init(&impressions->ads, options->ads, options->ad_exponent);
    impressions->sessions = room(options->sessions, sizeof *impressions->sessions);
    impressions->recent = room(IMPRESSIONS_RECENT, sizeof *impressions->recent);
    return impressions;
}

void impressions_close(struct impressions *impressions)
{
    if (impressions != NULL) {
        zipf_done(&impressions->users);
        zipf_done(&impressions->ads);
        free(impressions->sessions);
        free(impressions->recent);
        free(impressions);
    }
}

static void draw_pair(struct impressions *impressions, uint32_t *ret_user, uint32_t *ret_ad)
{
    if (impressions->options.sessions == 0) {
        *ret_user = draw_zipf(impressions, &impressions->users);
        *ret_ad = draw_zipf(impressions, &impressions->ads);
        return;
    }
    struct session *session =
        &impressions->sessions[draw(impressions, impressions->options.sessions)];
    if (!session->is_open) {
        *session =
            (struct session){.user = draw_zipf(impressions, &impressions->users), .is_open = 1};
    }
    *ret_user = session->user;
    if (session->seen > 0 && draw(impressions, 1000) < AGAIN_PERMILLE) {
        *ret_ad = session->ads[draw(impressions, session->seen)];
    } else {
        *ret_ad = draw_zipf(impressions, &impressions->ads);
        if (session->seen < SESSION_ADS) {
            session->ads[session->seen++] = *ret_ad;
        }
    }
    session->is_open = draw(impressions, impressions->options.session_length) != 0;
}

void impressions_next(struct impressions *impressions, int64_t now_ms, struct impression *ret_next)
{
    const struct impressions_options *options = &impressions->options;
    uint32_t kind = draw(impressions, 1000);
    uint32_t user;
    uint32_t ad;
    if (kind < options->duplicate_permille && impressions->good > 0) {
        uint64_t back = impressions->good < IMPRESSIONS_RECENT ? impressions->good
                                                               : (uint64_t)IMPRESSIONS_RECENT;
        *ret_next = impressions->recent[draw(impressions, (uint32_t)back)];
        ret_next->kind = IMPRESSION_DUPLICATE;
        return;
    }
    draw_pair(impressions, &user, &ad);
    ret_next->kind = IMPRESSION_GOOD;
    ret_next->time_ms = now_ms - (int64_t)draw(impressions, options->jitter_ms + 1);
    put_name(ret_next->user, 'u', (uint64_t)user + 1);
    put_name(ret_next->ad, 'a', (uint64_t)ad + 1);
    kind = draw(impressions, 1000);
    if (kind < options->malformed_permille) {
        ret_next->kind = IMPRESSION_MALFORMED;
        ret_next->id[0] = '\0';
        return;
    }
    if (kind < options->malformed_permille + options->late_permille && options->late_ms_max > 0) {
        ret_next->kind = IMPRESSION_LATE;
        ret_next->time_ms -= 1 + (int64_t)(draw_bits(impressions) % (uint64_t)options->late_ms_max);
    }
    put_name(ret_next->id, 'e', impressions->good);
    impressions->recent[impressions->good++ % IMPRESSIONS_RECENT] = *ret_next;
}

static size_t put_malformed(struct impressions *impressions, const struct impression *impression,
                            char *text)
{
    char *at = text;
    switch (draw(impressions, 5)) {
    case 0:
        at = put_text(at, "{\"user_id\":");
        break;
    case 1:
        at = put_text(put_text(at, "{\"user_id\":\""), impression->user);
        at = put_text(at, "\",\"id\":\"x\"}");
        break;
    case 2:
        at = put_text(put_text(at, "{\"user_id\":\""), impression->user);
        at = put_text(at, "\",\"ad_id\":\"a1\",\"ts\":true,\"id\":\"x\"}");
        break;
    case 3:
        at = put_text(at, "[1,2,3]");
        break;
    default:
        at = put_text(put_text(at, "{\"user_id\":\"\",\"ad_id\":\""), impression->ad);
        at = put_text(at, "\",\"ts\":1764460800000,\"id\":\"x\"}");
        break;
    }
    return (size_t)(at - text);
}

size_t impressions_json(struct impressions *impressions, const struct impression *impression,
                        char *text)
{
    static const char page[] = ",\"page\":\"/";
    char *at = text;
    if (impression->kind == IMPRESSION_MALFORMED) {
        return put_malformed(impressions, impression, text);
    }
    at = put_text(put_text(at, "{\"user_id\":\""), impression->user);
    at = put_text(put_text(at, "\",\"ad_id\":\""), impression->ad);
    at = put_number(put_text(at, "\",\"ts\":"), (uint64_t)impression->time_ms);
    at = put_text(put_text(at, ",\"id\":\""), impression->id);
    at = put_text(at, "\"");
    size_t size = (size_t)(at - text) + sizeof page - 1 + 2; /* With an empty page. */
    if (size <= impressions->options.value_bytes) {
        size_t fill = impressions->options.value_bytes - size;
        at = put_text(at, page);
        memset(at, 'p', fill);
        at = put_text(at + fill, "\"");
    }
    at = put_text(at, "}");
    return (size_t)(at - text);
}

int32_t impressions_partition(const char *user, int32_t partitions)
{
    uint32_t hash = 2166136261u; /* FNV-1a; its high bits are better than its low ones. */
    for (const char *at = user; *at != '\0'; at++) {
        hash = (hash ^ (uint8_t)*at) * 16777619u;
    }
    return (int32_t)((hash >> 8) % (uint32_t)partitions);
}
