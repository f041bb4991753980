/* The daemon's own HTTP server with two workers behind it: one counts for some users and answers
 * questions, one has ended. The pipeline stands on fakes. Thread rule: one thread; the server has
 * its own. */
#ifndef FCAP_TESTS_FUZZ_HTTP_WORLD_H
#define FCAP_TESTS_FUZZ_HTTP_WORLD_H

#include "server.h"

#define FUZZ_HTTP_TOKEN "sesame-of-the-fuzzer"
/* Stand in the pages that need the token, and nowhere else. */
#define FUZZ_HTTP_SECRET_INSPECT "\",\"partitions\":["
#define FUZZ_HTTP_SECRET_HOT     "\"halved_every_ms\":"

struct fuzz_http_world {
    uint16_t port;
    char token_file[64];
    struct fcap_config config;
    struct fcap_settings settings;
    struct fcap_decoder *decoder;
    struct fcap_board *board;
    struct fcap_questions *questions;
    struct fcap_server *server;
    struct fcap_worker_view view;
};

/* Opens it on a free loopback port; it lives until the process ends. Failures end the process. */
struct fuzz_http_world *fuzz_http_world_open(void);

/* The worker's round: it is alive, and answers what is asked. */
void fuzz_http_world_answer(struct fuzz_http_world *world);

#endif
