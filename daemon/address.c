// Addresses of the metrics' socket.
#include "daemon/address.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/status.h"

enum {
        HOST_BYTES = 64,
        PORT_DIGITS_MAX = 5,
        PORT_MAX = 65535,
};

static int parse_port(const char *text, uint16_t *ret_port)
{
        size_t digits = strspn(text, "0123456789");
        unsigned long port;

        if (digits == 0 || digits > PORT_DIGITS_MAX || text[digits] != '\0')
                return CAIRN_EINVAL;
        port = strtoul(text, NULL, 10);
        if (port == 0 || port > PORT_MAX)
                return CAIRN_EINVAL;
        *ret_port = (uint16_t)port;
        return CAIRN_OK;
}

static int parse_host(char *host, uint16_t port, struct cairn_address *ret_address)
{
        struct sockaddr_in *v4 = &ret_address->tcp.v4;
        struct sockaddr_in6 *v6 = &ret_address->tcp.v6;
        size_t size = strlen(host);

        if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
                      &v4->sin_addr) == 1) {
                v4->sin_family = AF_INET;
                v4->sin_port = htons(port);
                ret_address->tcp_bytes = sizeof(*v4);
                ret_address->loopback = ntohl(v4->sin_addr.s_addr) >> 24 == 127;
                return CAIRN_OK;
        }
        if (size < 3 || host[0] != '[' || host[size - 1] != ']')
                return CAIRN_EINVAL;
        host[size - 1] = '\0';
        memset(v6, 0, sizeof(*v6));
        if (inet_pton(AF_INET6, host + 1, &v6->sin6_addr) != 1)
                return CAIRN_EINVAL;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        ret_address->tcp_bytes = sizeof(*v6);
        ret_address->loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
        return CAIRN_OK;
}

int cairn_address_parse(const char *text, struct cairn_address *ret_address)
{
        struct cairn_address address = {0};
        const char *path = strncmp(text, "unix:", 5) == 0 ? text + 5 : text;
        const char *colon = strrchr(text, ':');
        char host[HOST_BYTES];
        uint16_t port;
        int status;

        if (path[0] == '/') {
                if (strlen(path) > CAIRN_SOCKET_PATH_BYTES_MAX)
                        return CAIRN_EINVAL;
                address.path = path;
                *ret_address = address;
                return CAIRN_OK;
        }
        if (!colon || (size_t)(colon - text) >= sizeof(host) ||
            parse_port(colon + 1, &port) != CAIRN_OK)
                return CAIRN_EINVAL;
        memcpy(host, text, (size_t)(colon - text));
        host[colon - text] = '\0';
        status = parse_host(host, port, &address);
        if (status == CAIRN_OK)
                *ret_address = address;
        return status;
}
