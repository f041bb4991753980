#include "http_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TOKEN_BYTES_MAX = 1024, BACKLOG = 128 };

/* "host:port", "[v6]:port", ":port" or "port" into two texts. */
static bool split_listen(const char *listen, char *host, size_t host_size, const char **ret_port)
{
    const char *port = strrchr(listen, ':');
    size_t size = port == NULL ? 0 : (size_t)(port - listen);
    port = port == NULL ? listen : port + 1;
    if (size >= 2 && listen[0] == '[' && listen[size - 1] == ']') {
        listen++;
        size -= 2;
    } else if (memchr(listen, ':', size) != NULL) {
        return false; /* An IPv6 address without brackets: which colon is the port's? */
    }
    if (*port == '\0' || strlen(port) > 5 || strspn(port, "0123456789") != strlen(port) ||
        size >= host_size) {
        return false;
    }
    (void)snprintf(host, host_size, "%.*s", (int)size, listen); /* It fits. */
    if (size == 0) {
        (void)snprintf(host, host_size, "127.0.0.1");
    }
    *ret_port = port;
    return true;
}

static int port_of(int socket_number)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(socket_number, (struct sockaddr *)&address, &size) != 0) {
        return 0;
    }
    return address.ss_family == AF_INET6
               ? ntohs(((const struct sockaddr_in6 *)(const void *)&address)->sin6_port)
               : ntohs(((const struct sockaddr_in *)(const void *)&address)->sin_port);
}

enum fcap_status fcap_http_listen(const char *text, int *ret_socket, int *ret_port,
                                  struct fcap_error *error)
{
    enum fcap_status status = FCAP_OK;
    char host[256];
    const char *port;
    struct addrinfo *address = NULL;
    int number = -1;
    const int on = 1;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    if (!split_listen(text, host, sizeof host, &port) || strtoul(port, NULL, 10) > 65535) {
        return fcap_error_set(error, FCAP_CONFIG, "http.listen: \"%s\" is not host:port", text);
    }
    int failure = getaddrinfo(host, port, &hints, &address);
    if (failure != 0) {
        status =
            fcap_error_set(error, FCAP_CONFIG, "http.listen: %s: %s", host, gai_strerror(failure));
        goto out;
    }
    number = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (number < 0 || setsockopt(number, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(number, address->ai_addr, address->ai_addrlen) != 0 || listen(number, BACKLOG) != 0) {
        status = fcap_error_set(error, FCAP_IO, "http.listen: %s: %s", text, strerror(errno));
        goto out;
    }
    *ret_port = port_of(number);
    *ret_socket = number;
    number = -1; /* The caller's now. */
out:
    if (number >= 0) {
        (void)close(number); /* Nothing was written to it. */
    }
    if (address != NULL) {
        freeaddrinfo(address);
    }
    return status;
}

/* The token without white space at its end; 0 when there is none. */
static size_t read_token(const char *path, char *token, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block us */
    if (file < 0) {
        return 0;
    }
    ssize_t got = read(file, token, room);
    (void)close(file); /* Only read from. */
    size_t size = got < 0 || (size_t)got == room ? 0 : (size_t)got;
    while (size > 0 && memchr(" \t\r\n", token[size - 1], 4) != NULL) {
        size--;
    }
    return size;
}

enum fcap_http_token fcap_http_check_token(const char *token_file, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    char token[TOKEN_BYTES_MAX + 1];
    if (token_file == NULL) {
        return FCAP_HTTP_TOKEN_OFF;
    }
    size_t size = read_token(token_file, token, sizeof token);
    if (size == 0) {
        return FCAP_HTTP_TOKEN_UNREADABLE;
    }
    if (authorization == NULL || strncasecmp(authorization, scheme, strlen(scheme)) != 0) {
        return FCAP_HTTP_TOKEN_WRONG;
    }
    const char *given = authorization + strlen(scheme);
    size_t given_size = strlen(given);
    unsigned difference = given_size != size;
    for (size_t i = 0; i < given_size; i++) {
        difference |= (unsigned)(unsigned char)given[i] ^ (unsigned char)token[i % size];
    }
    return difference == 0 ? FCAP_HTTP_TOKEN_RIGHT : FCAP_HTTP_TOKEN_WRONG;
}
