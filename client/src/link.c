// The connection: connect with a bounded backoff, say Hello, share arenas and spaces anew, send,
// receive.
#include "client/src/client.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
        BACKOFF_FIRST_MS = 5,
        BACKOFF_MAX_MS = 200,
        HELLO_TIMEOUT_MS = 5000
};

static void sleep_ms(int64_t ms)
{
        struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

        (void)nanosleep(&pause, NULL); // cut short by a signal: one try more
}

// ---- the socket ----

static int open_socket(struct cairn_client *client)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int error;

        if (fd < 0)
                return cairn_client_fail(client, cairn_status_from_errno(errno), "socket: %s",
                                         strerror(errno));
        memcpy(address.sun_path, client->socket_path, strlen(client->socket_path));
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
                client->socket_fd = fd;
                return CAIRN_OK;
        }
        error = errno;
        (void)close(fd);
        if (error == EACCES || error == EPERM)
                return cairn_client_fail(client, CAIRN_EPERM,
                                         "%s: %s; run as a member of the socket's group",
                                         client->socket_path, strerror(error));
        return cairn_client_fail(client, CAIRN_EDISCONNECTED,
                                 "no daemon answers at %s (%s); start cairnd, or name its socket "
                                 "by CAIRN_SOCKET",
                                 client->socket_path, strerror(error));
}

static int watch(struct cairn_client *client, int operation, bool want_write)
{
        struct epoll_event event = {.events = EPOLLIN | (want_write ? EPOLLOUT : 0u)};

        if (epoll_ctl(client->epoll_fd, operation, client->socket_fd, &event) != 0)
                return cairn_client_fail(client, CAIRN_ENOMEM, "epoll: %s", strerror(errno));
        client->want_write = want_write;
        return CAIRN_OK;
}

static void drop_unsent(struct cairn_client *client)
{
        while (client->unsent_first) {
                struct cairn_client_unsent *unsent = client->unsent_first;

                client->unsent_first = unsent->next;
                free(unsent->bytes);
                free(unsent);
        }
        client->unsent_last = NULL;
        client->unsent_bytes = 0;
}

void cairn_client_disconnect(struct cairn_client *client, int status, const char *why)
{
        if (client->socket_fd >= 0) {
                (void)close(client->socket_fd); // leaves the epoll set with it
                client->socket_fd = -1;
        }
        drop_unsent(client);
        cairn_client_segments_drop(client);
        cairn_frame_parser_finish(&client->parser);
        cairn_client_end_all(client, status, why);
}

// ---- Hello ----

static int decode_hello(struct cairn_client *client, struct cairn_client_request *request,
                        const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__HelloReply *reply = message;
        struct cairn_server_info *server = &client->server;

        (void)request, (void)payload, (void)payload_bytes; // Hello has none
        if (reply->version != CAIRN_PROTOCOL_VERSION)
                return CAIRN_EVERSION;
        server->incarnation = reply->incarnation;
        server->protocol = reply->version;
        (void)snprintf(server->server, sizeof(server->server), "%s", reply->server);
        (void)snprintf(server->isa, sizeof(server->isa), "%s", reply->isa);
        client->payload_bytes_max = CAIRN_PAYLOAD_BYTES_MAX;
        if (reply->payload_bytes_max > 0 && reply->payload_bytes_max < CAIRN_PAYLOAD_BYTES_MAX)
                client->payload_bytes_max = reply->payload_bytes_max;
        client->inflight_max = CAIRN_CLIENT_SLOTS;
        if (reply->inflight_max > 0 && reply->inflight_max < CAIRN_CLIENT_SLOTS)
                client->inflight_max = reply->inflight_max;
        return CAIRN_OK;
}

static int say_hello(struct cairn_client *client)
{
        Cairn__HelloRequest hello = CAIRN__HELLO_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_HELLO,
            .message = &hello,
            .decode = decode_hello,
        };

        hello.version_min = CAIRN_PROTOCOL_VERSION;
        hello.version_max = CAIRN_PROTOCOL_VERSION;
        hello.client = client->name;
        client->inflight_max = CAIRN_CLIENT_SLOTS;
        client->payload_bytes_max = CAIRN_PAYLOAD_BYTES_MAX;
        return cairn_client_submit_quietly(client, &submission);
}

// What the daemon must know anew: arenas (under new numbers) and spaces.
static int introduce(struct cairn_client *client)
{
        int status = say_hello(client);

        for (struct cairn_arena *a = client->arenas; a && status == CAIRN_OK; a = a->next)
                status = cairn_client_arena_register(client, a);
        for (uint32_t i = 0; i < client->spaces_count && status == CAIRN_OK; i++)
                status = cairn_client_space_register(client, &client->spaces[i], true);
        return status;
}

static int connect_once(struct cairn_client *client)
{
        int status = open_socket(client);

        if (status != CAIRN_OK)
                return status;
        client->connection++;
        status = watch(client, EPOLL_CTL_ADD, false);
        if (status == CAIRN_OK)
                status = introduce(client);
        if (status != CAIRN_OK && client->socket_fd >= 0)
                cairn_client_disconnect(client, CAIRN_EDISCONNECTED, NULL);
        return status;
}

int cairn_client_connect(struct cairn_client *client, uint32_t wait_ms)
{
        int64_t until_ms = cairn_client_now_ms() + wait_ms;
        int64_t pause_ms = BACKOFF_FIRST_MS;

        for (;;) {
                int status = connect_once(client);
                int64_t left_ms = until_ms - cairn_client_now_ms();

                if (status != CAIRN_EDISCONNECTED || left_ms <= 0)
                        return status;
                sleep_ms(pause_ms < left_ms ? pause_ms : left_ms);
                pause_ms = pause_ms * 2 < BACKOFF_MAX_MS ? pause_ms * 2 : BACKOFF_MAX_MS;
        }
}

int cairn_client_ready(struct cairn_client *client)
{
        int status;

        if (client->socket_fd >= 0)
                return CAIRN_OK;
        if (client->in_callback)
                return cairn_client_fail(client, CAIRN_EDISCONNECTED,
                                         "the connection was lost; call again after on_done, which "
                                         "connects anew");
        status = cairn_client_connect(client, client->gave_up ? 0 : client->reconnect_wait_ms);
        client->gave_up = status == CAIRN_EDISCONNECTED;
        return status;
}

// ---- sending ----

// One sendmsg of the first frame in the queue: 1 went out whole, 0 the socket is full, or a
// negative errno.
static int send_first(struct cairn_client *client)
{
        struct cairn_client_unsent *unsent = client->unsent_first;
        struct iovec part = {unsent->bytes + unsent->sent, unsent->size - unsent->sent};
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control = {0};
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
        ssize_t sent;

        if (unsent->fd >= 0 && unsent->sent == 0) {
                struct cmsghdr *rights;

                header.msg_control = &control;
                header.msg_controllen = sizeof(control.bytes);
                rights = CMSG_FIRSTHDR(&header);
                rights->cmsg_level = SOL_SOCKET;
                rights->cmsg_type = SCM_RIGHTS;
                rights->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(rights), &unsent->fd, sizeof(int));
        }
        sent = sendmsg(client->socket_fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
                return 1;
        if (sent < 0)
                return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
        unsent->sent += (size_t)sent;
        client->unsent_bytes -= (size_t)sent;
        if (unsent->sent < unsent->size)
                return 1; // the next try tells whether the socket is full
        client->unsent_first = unsent->next;
        if (!client->unsent_first)
                client->unsent_last = NULL;
        free(unsent->bytes);
        free(unsent);
        return 1;
}

void cairn_client_flush(struct cairn_client *client)
{
        int sent = 1;

        assert(client->socket_fd >= 0);
        while (client->unsent_first && sent == 1)
                sent = send_first(client);
        if (sent < 0) {
                cairn_client_disconnect(client, CAIRN_EDISCONNECTED,
                                        "the daemon closed the connection; call again to connect "
                                        "anew");
                return;
        }
        if ((client->unsent_first != NULL) != client->want_write &&
            watch(client, EPOLL_CTL_MOD, client->unsent_first != NULL) != CAIRN_OK)
                cairn_client_disconnect(client, CAIRN_EDISCONNECTED, client->error);
}

void cairn_client_send(struct cairn_client *client, uint8_t *bytes, size_t size, int fd)
{
        struct cairn_client_unsent *unsent = calloc(1, sizeof(*unsent));

        if (!unsent) {
                free(bytes);
                cairn_client_disconnect(client, CAIRN_ENOMEM, "no memory for a frame");
                return;
        }
        *unsent = (struct cairn_client_unsent){.bytes = bytes, .size = size, .fd = fd};
        if (client->unsent_last)
                client->unsent_last->next = unsent;
        else
                client->unsent_first = unsent;
        client->unsent_last = unsent;
        client->unsent_bytes += size;
        cairn_client_flush(client);
}

// ---- receiving ----

static void feed(struct cairn_client *client, const uint8_t *bytes, size_t size)
{
        while (size > 0 && client->socket_fd >= 0) {
                struct cairn_frame frame;
                size_t used = 0;
                int got = cairn_frame_parser_feed(&client->parser, bytes, size, &used, &frame);

                if (got < 0) {
                        cairn_client_disconnect(
                            client, got == CAIRN_EVERSION ? CAIRN_EVERSION : CAIRN_EPROTO,
                            "the daemon sent what is no frame of this protocol "
                            "version; use a client of the daemon's version");
                        return;
                }
                bytes += used;
                size -= used;
                if (got == 1)
                        cairn_client_on_frame(client, &frame);
        }
}

// Keeps the descriptors of one message until a reply claims them. False: too many.
static bool keep_descriptors(struct cairn_client *client, struct msghdr *message)
{
        bool all = !(message->msg_flags & MSG_CTRUNC);

        for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
                size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                for (size_t i = 0; i < count; i++) {
                        int fd;

                        memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
                        if (client->received_count < CAIRN_CLIENT_DESCRIPTORS_MAX) {
                                client->received[client->received_count++] = fd;
                                continue;
                        }
                        (void)close(fd); // never written
                        all = false;
                }
        }
        return all;
}

static ssize_t receive_some(struct cairn_client *client, bool *ret_all)
{
        union {
                struct cmsghdr header;
                uint8_t room[CMSG_SPACE(CAIRN_VIEW_DESCRIPTORS_MAX * sizeof(int))];
        } control;
        struct iovec piece = {client->receive_buffer, CAIRN_CLIENT_RECEIVE_BYTES};
        struct msghdr message = {.msg_iov = &piece,
                                 .msg_iovlen = 1,
                                 .msg_control = &control,
                                 .msg_controllen = sizeof(control)};
        ssize_t got = recvmsg(client->socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        *ret_all = got <= 0 || message.msg_controllen == 0 || keep_descriptors(client, &message);
        if (got > 0 && (message.msg_flags & MSG_CTRUNC))
                *ret_all = false;
        return got;
}

bool cairn_client_receive(struct cairn_client *client)
{
        bool any = false;

        while (client->socket_fd >= 0) {
                bool all;
                ssize_t got = receive_some(client, &all);

                if (!all) {
                        cairn_client_disconnect(
                            client, CAIRN_EBUSY,
                            "descriptors that the daemon sent found no room; close some, or raise "
                            "the limit (ulimit -n)");
                        return true;
                }
                if (got > 0) {
                        feed(client, client->receive_buffer, (size_t)got);
                        any = true;
                        if (got < CAIRN_CLIENT_RECEIVE_BYTES)
                                return any; // drained, most likely; if not, the descriptor says so
                        continue;
                }
                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
                        return any;
                cairn_client_disconnect(client, CAIRN_EDISCONNECTED,
                                        "the daemon closed the connection; call again to connect "
                                        "anew");
        }
        return true;
}
