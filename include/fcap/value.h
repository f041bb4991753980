/* The Redis contract's bytes: keys by template, values as JSON (docs/DATA.md), pinned by golden
 * tests. Thread rule: a template is immutable after it is made. */
#ifndef FCAP_VALUE_H
#define FCAP_VALUE_H

#include "fcap/ads.h"
#include "fcap/bytes.h"
#include "fcap/status.h"
#include "fcap/user.h"

#define FCAP_KEY_PARTS_MAX 16

enum fcap_key_part_kind { FCAP_KEY_LITERAL, FCAP_KEY_USER, FCAP_KEY_WINDOW };

struct fcap_key_part {
    enum fcap_key_part_kind kind;
    size_t offset; /* literal bytes, in `text` */
    size_t size;
};

/* `redis.key`, compiled. */
struct fcap_key_template {
    struct fcap_buffer text;
    struct fcap_key_part parts[FCAP_KEY_PARTS_MAX];
    size_t part_count;
};

/* Compiles a pattern; %u and %w must stand in it, %p is replaced now, %% is a percent sign.
 * CONFIG: the text says what is wrong. */
enum fcap_status fcap_key_template_init(struct fcap_key_template *template, const char *pattern,
                                        const char *profile,
                                        struct fcap_error *ret_error) FCAP_MUST_USE;
void fcap_key_template_done(struct fcap_key_template *template);

/* Appends a key. `%`, `{` and `}` inside the user id are percent-encoded, so that the hash tag is
 * the template's own and no two users share a key. */
void fcap_key_build(const struct fcap_key_template *template, struct fcap_bytes user,
                    const char *window, struct fcap_buffer *buffer);

/* Whose key it is: replaces `user` by the id. False: it is no key of this window, or the template
 * names the user more than once. */
bool fcap_key_parse(const struct fcap_key_template *template, struct fcap_bytes key,
                    const char *window, struct fcap_buffer *user);

/* Appends what SCAN's MATCH takes for every key of the template, and perhaps some others. */
void fcap_key_match(const struct fcap_key_template *template, struct fcap_buffer *pattern);

/* Appends {"v":1,"as_of":..,"counts":{..}} with `,"partial":true` when the user's value was cut or
 * `partial` says so. At most `bytes_max` bytes: beyond, the ads with the highest counts stay.
 * *ret_cut tells that it was cut. Gives false when no ad counts in the window. */
bool fcap_value_build(const struct fcap_user *user, size_t windows, size_t window,
                      const struct fcap_ads *ads, int64_t as_of_ms, bool partial, size_t bytes_max,
                      struct fcap_buffer *buffer, bool *ret_cut);

#endif
