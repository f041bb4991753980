#include "rebuild_pages.h"

#include "fcap/ads.h"
#include "questions.h"
#include "requests.h"
#include "server.h"

#define JSON "application/json; charset=utf-8"

static bool ask(void *context, const struct fcap_question *question,
                struct fcap_http_response *response, struct fcap_buffer *parts)
{
    if (!fcap_questions_ask(context, question, FCAP_INSPECT_TIMEOUT_MS, parts)) {
        fcap_request_refuse(response, 503, "no worker can answer now; see /readyz\n");
        return false;
    }
    return true;
}

static void put_parts(const struct fcap_question *question, const struct fcap_buffer *parts,
                      struct fcap_http_response *response)
{
    struct fcap_buffer *body = &response->body;
    response->content_type = JSON;
    fcap_buffer_put_text(body, "{");
    if (question->user.size > 0) {
        fcap_buffer_put_text(body, "\"user\":\"");
        fcap_json_escape(body, question->user);
        fcap_buffer_put_text(body, "\",");
    }
    fcap_buffer_put_text(body, "\"partitions\":[");
    fcap_buffer_put(body, parts->data, parts->size > 0 ? parts->size - 1 : 0);
    fcap_buffer_put_text(body, "]}\n");
}

void fcap_serve_rebuild(void *context, const struct fcap_http_request *request,
                        struct fcap_http_response *response)
{
    struct fcap_question question = {.kind = FCAP_ASK_REBUILD};
    struct fcap_buffer parts = {0};
    if (fcap_request_user(request, false, response, &question.user) &&
        fcap_request_partition(request, response, &question.partition) &&
        ask(context, &question, response, &parts)) {
        if (parts.size > 0) {
            response->status = 202;
            put_parts(&question, &parts, response);
        } else if (question.user.size > 0) {
            fcap_request_refuse(response, 404, "no partition here knows the user\n");
        } else {
            fcap_request_refuse(response, 404,
                                question.partition < 0
                                    ? "no partition is assigned here now; see /readyz\n"
                                    : "no such partition is assigned here\n");
        }
    }
    fcap_buffer_done(&parts);
}

/* Whether the partition is here; refuses otherwise. */
static bool is_here(void *context, int32_t partition, struct fcap_http_response *response)
{
    const struct fcap_question question = {.kind = FCAP_ASK_USERS, .partition = partition};
    struct fcap_buffer parts = {0};
    bool is_answered = ask(context, &question, response, &parts);
    bool is_found = parts.size > 0;
    fcap_buffer_done(&parts);
    if (is_answered && !is_found) {
        fcap_request_refuse(response, 404, "no such partition is assigned here\n");
    }
    return is_found;
}

void fcap_serve_rebuild_progress(void *context, const struct fcap_http_request *request,
                                 struct fcap_http_response *response)
{
    struct fcap_question question = {.kind = FCAP_ASK_PROGRESS};
    struct fcap_buffer parts = {0};
    if (fcap_request_user(request, false, response, &question.user) &&
        fcap_request_partition(request, response, &question.partition) &&
        ask(context, &question, response, &parts)) {
        /* One that is not here has nothing left either. */
        if (question.partition < 0 || parts.size > 0 ||
            is_here(context, question.partition, response)) {
            put_parts(&question, &parts, response);
        }
    }
    fcap_buffer_done(&parts);
}

/* Whole users, each be16 size, bytes. */
static bool are_users(struct fcap_bytes bytes, struct fcap_http_response *response)
{
    struct fcap_reader reader = fcap_reader_of(bytes);
    bool are = true;
    while (are && fcap_reader_left(&reader) > 0) {
        are = fcap_reader_take(&reader, fcap_reader_be16(&reader)).size > 0 && !reader.failed;
    }
    if (!are) {
        fcap_request_refuse(response, 400, "users are due, each two bytes of size and its id\n");
    }
    return are;
}

void fcap_serve_values(void *context, const struct fcap_http_request *request,
                       struct fcap_http_response *response)
{
    struct fcap_question question = {.kind = FCAP_ASK_VALUES};
    struct fcap_buffer argument = {0};
    struct fcap_bytes users;
    bool by_users = fcap_http_query_bytes(request, "users", &users);
    if (fcap_request_partition(request, response, &question.partition) &&
        fcap_request_hex(request, by_users ? "users" : "after", response, &argument)) {
        by_users = by_users || question.partition < 0;
        question.kind = by_users ? FCAP_ASK_USERS : FCAP_ASK_VALUES;
        question.argument = fcap_buffer_bytes(&argument);
        if ((!by_users || are_users(question.argument, response)) &&
            ask(context, &question, response, &response->body)) {
            response->content_type = "application/octet-stream";
        }
    }
    fcap_buffer_done(&argument);
}
