/* Any bytes on the wire to the daemon's pages, over loopback to the real server: no crash, nobody
 * else waits, no page of a user's data without the token, and JSON that is JSON.
 *
 * The first byte says how the rest is sent: bit 0: as one request with "Connection: close" behind
 * its first line (then the answer is read as one), else as it is; bit 1: the connection stays open
 * for a while; bits 2 and 3: in pieces. Byte 1 stands for the token, 2 and 3 for many letters. */
#include "adapters/http_internal.h"
#include "board.h"
#include "fcap/decode.h"
#include "fcap/log.h"
#include "fuzz_http_world.h"
#include "json_check.h"
#include "server.h"

#include "fuzz_main.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define SENT_MAX  200000
#define OPEN_MAX  80 /* more than the server lets in */
#define TRIES_MAX 3

static struct fuzz_http_world *world;

/* --- a client -------------------------------------------------------------------------------- */

static int connect_to_server(void)
{
    const int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(world->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int number = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FCAP_ASSERT(number >= 0);
    FCAP_ASSERT(connect(number, (struct sockaddr *)&address, sizeof address) == 0);
    FCAP_ASSERT(setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    return number;
}

/* With a reset, so that no port waits for minutes. */
static void close_hard(int number)
{
    const struct linger linger = {.l_onoff = 1};
    (void)setsockopt(number, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    (void)close(number);
}

/* As much as the server takes: it may have closed the connection, or read no further. */
static void send_pieces(int number, struct fcap_bytes bytes, size_t piece)
{
    for (size_t at = 0; at < bytes.size;) {
        size_t size = bytes.size - at < piece ? bytes.size - at : piece;
        ssize_t sent = send(number, bytes.data + at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0) {
            return;
        }
        at += (size_t)sent;
    }
}

static void receive(int number, struct fcap_buffer *answer)
{
    for (;;) {
        uint8_t *room = fcap_buffer_reserve(answer, 65536);
        ssize_t got = recv(number, room, 65536, MSG_DONTWAIT);
        if (got <= 0) {
            return;
        }
        answer->size += (size_t)got;
    }
}

/* --- somebody else --------------------------------------------------------------------------- */

/* True when an answer has come to its end. */
static bool is_whole(struct fcap_bytes answer)
{
    static const char length[] = "\r\nContent-Length: ";
    if (answer.size == 0) {
        return false;
    }
    const uint8_t *end = memmem(answer.data, answer.size, "\r\n\r\n", 4);
    const uint8_t *size = memmem(answer.data, answer.size, length, sizeof length - 1);
    return end != NULL && size != NULL && size < end &&
           strtoul((const char *)size + sizeof length - 1, NULL, 10) ==
               answer.size - (size_t)(end - answer.data) - 4;
}

/* True when the server answers on this connection; answers questions to workers meanwhile. */
static bool probe_once(int number, const char *request)
{
    struct fcap_buffer answer = {0};
    ssize_t size = (ssize_t)strlen(request);
    bool good = send(number, request, (size_t)size, MSG_NOSIGNAL) == size;
    while (good && !is_whole(fcap_buffer_bytes(&answer))) {
        struct pollfd wait = {.fd = number, .events = POLLIN};
        fuzz_http_world_answer(world);
        int ready = poll(&wait, 1, 1);
        size_t before = answer.size;
        receive(number, &answer);
        good = ready <= 0 || answer.size > before; /* readable without a byte: closed */
    }
    good = good && memcmp(answer.data, "HTTP/1.1 200 ", 13) == 0;
    fcap_buffer_done(&answer);
    return good;
}

/* When the server's thread has answered somebody else twice, it has seen all that came before; when
 * the desk has then answered one, too, all before that are made, and the next answer of the thread
 * finds them sent. libFuzzer's -timeout ends a server that never answers. */
static void probe(void)
{
    static const char live[] = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char asks[] = "GET /rebuild HTTP/1.1\r\nHost: x\r\nAuthorization: "
                               "Bearer " FUZZ_HTTP_TOKEN "\r\n\r\n";
    static const char *const requests[] = {live, live, asks, live};
    static int number = -1;
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        int tries = 0;
        while (number < 0 || !probe_once(number, requests[i])) {
            FCAP_ASSERT(tries++ < TRIES_MAX); /* The oldest connection may be ended for another. */
            if (number >= 0) {
                close_hard(number);
            }
            number = connect_to_server();
        }
    }
}

/* --- what is sent ---------------------------------------------------------------------------- */

static void put_filler(struct fcap_buffer *sent, size_t count)
{
    memset(fcap_buffer_reserve(sent, count), 'a', count);
    sent->size += count;
}

static void expand(struct fcap_bytes input, bool is_one, struct fcap_buffer *sent)
{
    static const char extra[] = "\r\nHost: x\r\nConnection: close";
    for (size_t i = 0; i < input.size && sent->size < SENT_MAX; i++) {
        uint8_t byte = input.data[i];
        if (byte == 1) {
            fcap_buffer_put_text(sent, FUZZ_HTTP_TOKEN);
        } else if (byte == 2 || byte == 3) {
            put_filler(sent, byte == 2 ? 2000 : 20000);
        } else if (byte == '\n' && is_one) {
            fcap_buffer_put_text(sent, extra);
            fcap_buffer_put_text(sent, "\r\n");
            is_one = false;
        } else {
            fcap_buffer_put_u8(sent, byte);
        }
    }
}

/* --- what comes back ------------------------------------------------------------------------- */

static bool holds(struct fcap_bytes bytes, const char *text)
{
    return bytes.size > 0 && memmem(bytes.data, bytes.size, text, strlen(text)) != NULL;
}

static void check_head(struct fcap_bytes head)
{
    long status = strtol((const char *)head.data + 9, NULL, 10);
    FCAP_ASSERT(status >= 100 && status < 600 && status != 500);
    if (status == 200 || status == 401 || status == 403 || status == 404 || status == 405) {
        FCAP_ASSERT(holds(head, "Cache-Control: no-store\r\n"));
        FCAP_ASSERT(holds(head, "X-Content-Type-Options: nosniff\r\n"));
        FCAP_ASSERT(holds(head, "Content-Type: "));
        FCAP_ASSERT((status == 405) == holds(head, "\r\nAllow: "));
        FCAP_ASSERT((status == 401) == holds(head, "\r\nWWW-Authenticate: Bearer\r\n"));
    }
}

/* One answer; what did not come whole (a HEAD, a server that hung up) is no answer. True when its
 * body was judged. */
static bool check_one(struct fcap_bytes answer)
{
    const uint8_t *end = answer.size == 0 ? NULL : memmem(answer.data, answer.size, "\r\n\r\n", 4);
    if (end == NULL) {
        return false;
    }
    struct fcap_bytes head = {answer.data, (size_t)(end - answer.data) + 2};
    struct fcap_bytes body = {end + 4, answer.size - head.size - 2};
    check_head(head);
    if (!is_whole(answer)) {
        return false;
    }
    if (holds(head, "\r\nContent-Type: application/json")) {
        FCAP_ASSERT(body.size == 0 || json_check(body.data, body.size));
    }
    return true;
}

static void check_answer(struct fcap_bytes sent, struct fcap_bytes answer, bool is_one)
{
    if (answer.size == 0) {
        return;
    }
    FCAP_ASSERT(answer.size > 12 && memcmp(answer.data, "HTTP/1.", 7) == 0);
    if (holds(answer, FUZZ_HTTP_SECRET_HOT) || holds(answer, FUZZ_HTTP_SECRET_INSPECT)) {
        FCAP_ASSERT(holds(sent, FUZZ_HTTP_TOKEN));
    }
    if (is_one) {
        (void)check_one(answer); /* Many inputs get none. */
    }
}

/* Sends one input; `answer` gets what came back. */
static void talk(const uint8_t *data, size_t size, struct fcap_buffer *answer)
{
    static const size_t pieces[] = {SIZE_MAX, 1, 7, 1000};
    static int open[OPEN_MAX];
    static size_t open_at;
    static bool is_begun;
    struct fcap_buffer sent = {0};
    bool is_one = (data[0] & 1) != 0;
    size_t piece = pieces[data[0] >> 2 & 3];
    for (size_t i = 0; i < OPEN_MAX && !is_begun; i++) {
        open[i] = -1;
    }
    is_begun = true;
    expand((struct fcap_bytes){data + 1, size - 1}, is_one, &sent);
    int number = connect_to_server();
    /* Byte by byte only where it matters: in the head. */
    send_pieces(number, fcap_buffer_bytes(&sent), sent.size > 2000 && piece < 100 ? 1000 : piece);
    probe();
    receive(number, answer);
    check_answer(fcap_buffer_bytes(&sent), fcap_buffer_bytes(answer), is_one);
    if ((data[0] & 2) != 0) {
        int old = open[open_at];
        open[open_at] = number;
        open_at = (open_at + 1) % OPEN_MAX;
        number = old;
    }
    if (number >= 0) {
        close_hard(number);
    }
    fcap_buffer_done(&sent);
}

/* A search that asks nobody would find nothing: these must be answered, and so. */
static void check_eyes(void)
{
    static const struct {
        const char *request;
        const char *answer;
    } pairs[] = {
        {"\1GET /inspect?user=user-1 HTTP/1.1\nAuthorization: Bearer \1\r\n\r\n", "HTTP/1.1 200 "},
        {"\1GET /inspect?user=user-1 HTTP/1.1\n\r\n", "HTTP/1.1 401 "},
        {"\1GET /hot-users HTTP/1.1\nAuthorization: Bearer \1\r\n\r\n", "HTTP/1.1 200 "},
        {"\1GET /metrics HTTP/1.1\n\r\n", "HTTP/1.1 200 "},
        {"\1PUT /metrics HTTP/1.1\n\r\n", "HTTP/1.1 405 "},
        {"\1GET /status HTTP/1.1\n\r\n", "HTTP/1.1 200 "},
        {"\1GET /nothing HTTP/1.1\n\r\n", "HTTP/1.1 404 "},
        {"\1POST /rebuild HTTP/1.1\nAuthorization: Bearer \1\r\n\r\n", "HTTP/1.1 202 "},
        {"\1POST /rebuild HTTP/1.1\n\r\n", "HTTP/1.1 401 "},
        {"\1GET /rebuild HTTP/1.1\nAuthorization: Bearer \1\r\n\r\n", "HTTP/1.1 200 "},
        {"\1GET /values HTTP/1.1\nAuthorization: Bearer \1\r\n\r\n", "HTTP/1.1 200 "},
        {"\1GET /values?users=00 HTTP/1.1\n\r\n", "HTTP/1.1 401 "},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct fcap_buffer answer = {0};
        talk((const uint8_t *)pairs[i].request, strlen(pairs[i].request), &answer);
        FCAP_ASSERT(answer.size > 13 && memcmp(answer.data, pairs[i].answer, 13) == 0);
        FCAP_ASSERT(check_one(fcap_buffer_bytes(&answer)));
        if (i == 0) {
            FCAP_ASSERT(holds(fcap_buffer_bytes(&answer), FUZZ_HTTP_SECRET_INSPECT));
        } else if (i == 2) {
            FCAP_ASSERT(holds(fcap_buffer_bytes(&answer), FUZZ_HTTP_SECRET_HOT));
        }
        fcap_buffer_done(&answer);
    }
}

/* The same bytes as an Authorization header. */
static void check_token(const uint8_t *data, size_t size)
{
    char *header = strndup((const char *)data, size);
    FCAP_ASSERT(header != NULL);
    bool is_right =
        strncasecmp(header, "bearer ", 7) == 0 && strcmp(header + 7, FUZZ_HTTP_TOKEN) == 0;
    enum fcap_http_token seen = fcap_http_check_token(world->token_file, header);
    FCAP_ASSERT(seen == (is_right ? FCAP_HTTP_TOKEN_RIGHT : FCAP_HTTP_TOKEN_WRONG));
    free(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fcap_buffer answer = {0};
    if (world == NULL) {
        world = fuzz_http_world_open();
        check_eyes();
    }
    if (size > 0) {
        check_token(data, size);
        talk(data, size, &answer);
        fcap_buffer_done(&answer);
    }
    return 0;
}
