/* The pages that show everything once more, and what Redis should hold; each wants the token. The
 * context of each is a struct fcap_questions. They wait for the workers. Thread rule: the HTTP
 * thread for such pages. */
#ifndef FCAP_DAEMON_REBUILD_PAGES_H
#define FCAP_DAEMON_REBUILD_PAGES_H

#include "fcap/http.h"

/* POST /rebuild[?user=U][&partition=P]: 202 and what was begun. */
void fcap_serve_rebuild(void *context, const struct fcap_http_request *request,
                        struct fcap_http_response *response);

/* GET /rebuild[?user=U][&partition=P]: what of it is still to come. */
void fcap_serve_rebuild_progress(void *context, const struct fcap_http_request *request,
                                 struct fcap_http_response *response);

/* GET /values?partition=P[&after=HEX] or [?users=HEX]: blocks of fcap/rebuild.h (docs/DATA.md). */
void fcap_serve_values(void *context, const struct fcap_http_request *request,
                       struct fcap_http_response *response);

#endif
