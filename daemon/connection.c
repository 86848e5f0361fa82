// Connections: their life, their outgoing bytes, their time-outs. Incoming bytes:
// connection_input.c.
#include "daemon/connection.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/quota.h"
#include "proto/status.h"

enum {
        PIECES_MAX = 16
};

static void free_if_done(struct cairn_connection *connection)
{
        if (!connection->closed || !connection->handle_gone || connection->inflight > 0 ||
            connection->deferred)
                return;
        free(connection);
}

static void on_handle_closed(uv_handle_t *handle)
{
        struct cairn_connection *connection = handle->data;

        connection->handle_gone = true;
        free_if_done(connection);
}

void cairn_connection_on_poll(uv_poll_t *poll, int status, int events)
{
        struct cairn_connection *connection = poll->data;

        if (status < 0) {
                cairn_connection_close(connection);
                return;
        }
        cairn_spin_note(&connection->server->spin);
        if (events & UV_WRITABLE)
                cairn_connection_flush(connection);
        if (!connection->closed && (events & UV_READABLE))
                cairn_connection_readable(connection, events & UV_DISCONNECT);
        else if (!connection->closed && (events & UV_DISCONNECT))
                cairn_connection_close(connection); // paused, and the peer has gone
}

int cairn_connection_create(struct cairn_server *server, int fd, uint32_t uid)
{
        struct cairn_connection *connection = calloc(1, sizeof(*connection));
        uint64_t now_ms = cairn_clock_ms();

        if (!connection) {
                (void)close(fd); // nothing was written
                return CAIRN_ENOMEM;
        }
        connection->server = server;
        connection->fd = fd;
        connection->accepted_ms = now_ms;
        connection->progress_ms = now_ms;
        if (uv_poll_init(&server->loop, &connection->poll, fd) != 0) {
                (void)close(fd); // as above
                free(connection);
                return CAIRN_ENOMEM;
        }
        connection->poll.data = connection;
        cairn_frame_parser_init(&connection->parser, false);
        cairn_session_init(&connection->session, server,
                           cairn_tenants_of_uid(&server->config->tenants_named, uid));
        cairn_server_connection_opened(connection);
        connection->session.connection = server->counters.connections_total;
        cairn_quotas_connected(server, connection->session.tenant);
        cairn_connection_watch(connection);
        return CAIRN_OK;
}

static void drop_outputs(struct cairn_connection *connection)
{
        while (connection->output_head) {
                struct cairn_output *output = connection->output_head;

                connection->output_head = output->next;
                cairn_output_destroy(output);
        }
        connection->output_tail = NULL;
        cairn_server_discharge(connection->server, connection->output_bytes);
        connection->output_bytes = 0;
}

void cairn_connection_close(struct cairn_connection *connection)
{
        if (connection->closed)
                return;
        assert(!connection->processing);
        connection->closed = true;
        cairn_session_finish(&connection->session);
        cairn_connection_drop_descriptors(connection);
        cairn_frame_parser_finish(&connection->parser);
        drop_outputs(connection);
        free(connection->stash);
        connection->stash = NULL;
        connection->stash_size = 0;
        (void)uv_poll_stop(&connection->poll); // cannot fail for an open handle
        (void)close(connection->fd);           // nothing is owed to the peer any more
        connection->fd = -1;
        cairn_server_connection_closed(connection);
        uv_close((uv_handle_t *)&connection->poll, on_handle_closed);
}

void cairn_connection_continue(struct cairn_connection *connection)
{
        connection->deferred = false;
        if (connection->closed) {
                free_if_done(connection);
                return;
        }
        if (connection->broken) {
                cairn_connection_close(connection);
                return;
        }
        cairn_connection_process(connection);
}

// ---- out ----

struct cairn_output *cairn_output_create(uint8_t *bytes, size_t size)
{
        struct cairn_output *output = calloc(1, sizeof(*output));

        if (!output)
                return NULL;
        output->bytes = bytes;
        output->size = size;
        return output;
}

void cairn_output_destroy(struct cairn_output *output)
{
        if (!output)
                return;
        cairn_descriptors_close(output->descriptors, output->descriptors_count);
        free(output->bytes);
        free(output);
}

void cairn_output_attach(struct cairn_output *output, int *descriptors, uint32_t count)
{
        assert(!output->descriptors && output->sent == 0 && count <= CAIRN_VIEW_DESCRIPTORS_MAX);
        output->descriptors = descriptors;
        output->descriptors_count = count;
}

void cairn_descriptors_close(int *descriptors, uint32_t count)
{
        for (uint32_t i = 0; i < count; i++)
                (void)close(descriptors[i]); // never written by us
        free(descriptors);
}

// Something cannot be mended: closed when the loop comes back, since callers may still use the
// session.
static void set_broken(struct cairn_connection *connection)
{
        connection->broken = true;
        cairn_server_defer(connection);
}

void cairn_connection_send(struct cairn_connection *connection, struct cairn_output *output)
{
        if (connection->closed || connection->broken) {
                cairn_output_destroy(output);
                return;
        }
        if (connection->output_tail)
                connection->output_tail->next = output;
        else
                connection->output_head = output;
        connection->output_tail = output;
        if (connection->output_bytes == 0)
                connection->progress_ms = cairn_clock_ms();
        connection->output_bytes += output->size;
        cairn_server_charge(connection->server, output->size);
}

static void sent(struct cairn_connection *connection, size_t bytes)
{
        connection->server->counters.sent_bytes += bytes;
        connection->output_bytes -= bytes;
        connection->progress_ms = cairn_clock_ms();
        cairn_server_discharge(connection->server, bytes);
        while (connection->output_head) {
                struct cairn_output *output = connection->output_head;
                size_t left = output->size - output->sent;

                if (bytes < left) {
                        output->sent += bytes;
                        return;
                }
                bytes -= left;
                connection->output_head = output->next;
                if (!connection->output_head)
                        connection->output_tail = NULL;
                cairn_output_destroy(output);
        }
        assert(bytes == 0);
}

// Descriptors ride with the first byte that the message sends.
static void put_descriptors(const struct cairn_output *output, void *room,
                            struct msghdr *ret_message)
{
        size_t bytes = output->descriptors_count * sizeof(output->descriptors[0]);
        struct cmsghdr *control;

        ret_message->msg_control = room;
        ret_message->msg_controllen = CMSG_SPACE(bytes);
        control = CMSG_FIRSTHDR(ret_message);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(control), output->descriptors, bytes);
}

// One sendmsg of what is queued, up to the next piece that brings descriptors. False: the socket
// takes no more now, or it is broken.
static bool send_some(struct cairn_connection *connection)
{
        union {
                struct cmsghdr header;
                uint8_t room[CMSG_SPACE(CAIRN_VIEW_DESCRIPTORS_MAX * sizeof(int))];
        } control = {0};
        struct iovec pieces[PIECES_MAX];
        struct msghdr message = {.msg_iov = pieces};
        struct cairn_output *head = connection->output_head;
        size_t wanted = 0;
        ssize_t size;

        if (head->descriptors)
                put_descriptors(head, &control, &message);
        for (struct cairn_output *output = head; output && message.msg_iovlen < PIECES_MAX;
             output = output->next) {
                if (output->descriptors && output != head)
                        break;
                pieces[message.msg_iovlen++] = (struct iovec){
                    .iov_base = output->bytes + output->sent,
                    .iov_len = output->size - output->sent,
                };
                wanted += output->size - output->sent;
        }
        do
                size = sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (size < 0 && errno == EINTR);
        if (size < 0) {
                if (errno != EAGAIN && errno != EWOULDBLOCK)
                        set_broken(connection);
                return false;
        }
        cairn_descriptors_close(head->descriptors, head->descriptors_count);
        head->descriptors = NULL;
        head->descriptors_count = 0;
        sent(connection, (size_t)size);
        return (size_t)size == wanted;
}

void cairn_connection_flush(struct cairn_connection *connection)
{
        if (connection->closed || connection->broken || connection->processing)
                return; // the parser's loop flushes at its end
        while (connection->output_head && send_some(connection))
                ;
        if (connection->broken)
                return;
        if (connection->ending && !connection->output_head && connection->inflight == 0) {
                set_broken(connection);
                return;
        }
        cairn_connection_go_on(connection);
        cairn_connection_watch(connection);
}

void cairn_connection_end(struct cairn_connection *connection)
{
        connection->ending = true;
        free(connection->stash);
        connection->stash = NULL;
        connection->stash_size = 0;
}

// ---- requests ----

void cairn_connection_request_begun(struct cairn_connection *connection, size_t bytes)
{
        connection->inflight++;
        connection->inflight_bytes += bytes;
        connection->server->counters.requests_inflight++;
        cairn_server_charge(connection->server, bytes);
}

void cairn_connection_request_ended(struct cairn_connection *connection, size_t bytes)
{
        assert(connection->inflight > 0 && connection->inflight_bytes >= bytes);
        connection->inflight--;
        connection->inflight_bytes -= bytes;
        connection->server->counters.requests_inflight--;
        cairn_server_discharge(connection->server, bytes);
        if (connection->closed)
                free_if_done(connection);
        else
                cairn_connection_flush(connection);
}

// ---- time ----

void cairn_connection_tick(struct cairn_connection *connection, uint64_t now_ms)
{
        const struct cairn_config *config = connection->server->config;
        bool greeted = connection->session.greeted;
        bool stuck = connection->frame_begun_ms != 0 && !cairn_connection_paused(connection) &&
                     now_ms - connection->frame_begun_ms >= config->frame_timeout_ms;
        bool silent = !greeted && now_ms - connection->accepted_ms >= config->frame_timeout_ms;
        bool deaf = connection->output_bytes > 0 &&
                    now_ms - connection->progress_ms >= config->reply_timeout_ms;

        cairn_session_expire(&connection->session, now_ms);
        if (!stuck && !silent && !deaf)
                return;
        connection->server->counters.connections_timed_out++;
        cairn_log(CAIRN_LOG_WARNING, "look at the worker, or raise frame_timeout or reply_timeout",
                  "closed a connection of uid %u: %s", connection->session.tenant,
                  deaf    ? "it does not read its replies"
                  : stuck ? "a frame was begun and not finished in time"
                          : "no Hello came in time");
        set_broken(connection); // many may be late at once
}
