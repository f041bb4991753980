/* Where `rebuild --verify` takes from what Redis should hold: blocks of fcap/rebuild.h, of a
 * running daemon over HTTP, or of a stopped one's state, which is read and never changed. Thread
 * rule: main only. */
#ifndef FCAP_COMMANDS_VERIFY_SOURCE_H
#define FCAP_COMMANDS_VERIFY_SOURCE_H

#include "ask.h"
#include "fcap/redis_client.h"

struct fcap_verify_source;

/* `client` is borrowed for the call: it tells whose the partitions of a stopped state are. Lines on
 * standard error name those that are left out. `patience` is for a running daemon. */
enum fcap_status fcap_verify_source_open(const struct fcap_config *config, bool is_running,
                                         struct fcap_ask_patience patience,
                                         struct fcap_redis_client *client,
                                         struct fcap_verify_source **ret_source,
                                         struct fcap_error *error) FCAP_MUST_USE;
void fcap_verify_source_close(struct fcap_verify_source *source);

/* Counts can change while they are compared. */
bool fcap_verify_source_is_running(const struct fcap_verify_source *source);

/* Each appends blocks: a block without entries for each partition; */
enum fcap_status fcap_verify_source_parts(struct fcap_verify_source *source,
                                          struct fcap_buffer *blocks,
                                          struct fcap_error *error) FCAP_MUST_USE;
/* some users of a partition, from `after` on (empty: from the first); none: it has gone; */
enum fcap_status fcap_verify_source_page(struct fcap_verify_source *source, int32_t partition,
                                         struct fcap_bytes after, struct fcap_buffer *blocks,
                                         struct fcap_error *error) FCAP_MUST_USE;
/* these users (each be16 size, bytes), from every partition that knows them. */
enum fcap_status fcap_verify_source_users(struct fcap_verify_source *source,
                                          struct fcap_bytes users, struct fcap_buffer *blocks,
                                          struct fcap_error *error) FCAP_MUST_USE;

#endif
