// Where metrics are served: the text of metrics_address, taken apart. Pure.
// May be used by: daemon, tests. May use: proto. Threads: any.
#ifndef CAIRN_ADDRESS_H
#define CAIRN_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

struct cairn_address {
        const char *path; // of a Unix socket, inside the text; NULL: TCP
        union {
                struct sockaddr any;
                struct sockaddr_in v4;
                struct sockaddr_in6 v6;
        } tcp;
        socklen_t tcp_bytes;
        bool loopback;
};

// "/path" and "unix:/path" (at most 107 bytes of path), "127.0.0.1:9464", "[::1]:9464",
// "localhost:9464". No other name is looked up. CAIRN_EINVAL: anything else.
int cairn_address_parse(const char *text, struct cairn_address *ret_address);

#endif
