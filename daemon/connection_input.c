// Incoming bytes of a connection: receiving, descriptors that ride with them, frames,
// back-pressure.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/log.h"
#include "daemon/request.h"
#include "daemon/server.h"
#include "proto/codec.h"
#include "proto/status.h"

enum {
        FRAMES_A_TURN_MAX = 64,   // then others get their turn
        TURN_NS_MAX = 100 * 1000, // whatever a frame costs: others wait no longer
        HEAVY_NS = 500 * 1000,    // spent lately: the turn is taken after those who spent less
        HALF_LIFE_MS = 4,         // of what was spent
};

// ---- turns ----

// Connections that asked for little are served as their bytes come; those that keep the loop busy
// share what it has left, in turns (cairn_server_defer). Whatever some send, others wait for a few
// of their turns at most.
static bool heavy(struct cairn_connection *connection)
{
        uint64_t now_ms = cairn_clock_ms();
        uint64_t halves = (now_ms - connection->spent_ms) / HALF_LIFE_MS;

        if (halves > 0) {
                connection->spent_ns = halves < 64 ? connection->spent_ns >> halves : 0;
                connection->spent_ms = now_ms;
        }
        return connection->spent_ns > HEAVY_NS;
}

// ---- back-pressure ----

// Replies wait that the peer does not read as fast as it asks: its next request is begun, but not
// at once, so that a flood of them is not the others' to wait for.
static bool lagging(const struct cairn_connection *connection)
{
        return connection->output_bytes >= CAIRN_UNSENT_BYTES;
}

void cairn_connection_go_on(struct cairn_connection *connection)
{
        if (cairn_connection_paused(connection))
                return;
        if (lagging(connection))
                cairn_server_pace(connection->server);
        else if (connection->stash)
                cairn_server_defer(connection);
}

void cairn_connection_pace(struct cairn_connection *connection)
{
        if (!connection->closed && !connection->ending && lagging(connection) &&
            !cairn_connection_paused(connection))
                cairn_server_defer(connection);
}

bool cairn_connection_paused(const struct cairn_connection *connection)
{
        return connection->inflight >= CAIRN_INFLIGHT_MAX ||
               connection->inflight_bytes >= CAIRN_REPLY_BYTES_MAX ||
               connection->output_bytes + connection->reserved_bytes >= CAIRN_REPLY_BYTES_MAX ||
               cairn_server_full(connection);
}

void cairn_connection_watch(struct cairn_connection *connection)
{
        int events = UV_DISCONNECT;

        if (connection->closed)
                return;
        if (!connection->ending && !connection->broken && !connection->stash) {
                if (!cairn_connection_paused(connection) && !lagging(connection))
                        events |= UV_READABLE;
                else if (cairn_server_full(connection))
                        connection->server->memory_paused = true;
        }
        if (connection->output_head && !connection->broken)
                events |= UV_WRITABLE;
        if (connection->broken)
                events = 0;
        if (events == connection->events)
                return;
        if ((events & ~connection->events & UV_READABLE) && connection->frame_begun_ms != 0)
                connection->frame_begun_ms = cairn_clock_ms(); // waiting was our doing
        connection->events = events;
        if (events == 0)
                (void)uv_poll_stop(&connection->poll); // cannot fail for an open handle
        else
                (void)uv_poll_start(&connection->poll, events, cairn_connection_on_poll);
}

// ---- descriptors ----

void cairn_connection_drop_descriptors(struct cairn_connection *connection)
{
        for (uint32_t i = 0; i < connection->descriptors_count; i++)
                (void)close(connection->descriptors[i]); // never written by us
        connection->server->counters.descriptors_refused += connection->descriptors_count;
        connection->descriptors_count = 0;
        connection->descriptors_refused = false;
}

int cairn_connection_take_descriptor(struct cairn_connection *connection, bool *ret_refused)
{
        int descriptor;

        *ret_refused = connection->descriptors_refused;
        connection->descriptors_refused = false;
        if (connection->descriptors_count == 0)
                return -1;
        descriptor = connection->descriptors[0];
        connection->descriptors_count--;
        memmove(connection->descriptors, connection->descriptors + 1,
                connection->descriptors_count * sizeof(connection->descriptors[0]));
        return descriptor;
}

// One control message: exactly one descriptor is kept; any other number is closed at once.
static void take_descriptors(struct cairn_connection *connection, const struct cmsghdr *control)
{
        size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        bool keep = count == 1 && connection->descriptors_count < CAIRN_DESCRIPTORS_PENDING_MAX;

        for (size_t i = 0; i < count; i++) {
                int descriptor;

                memcpy(&descriptor, CMSG_DATA(control) + i * sizeof(int), sizeof(descriptor));
                if (keep) {
                        connection->descriptors[connection->descriptors_count++] = descriptor;
                        continue;
                }
                (void)close(descriptor); // never written by us
                connection->server->counters.descriptors_refused++;
        }
        if (!keep)
                connection->descriptors_refused = true;
}

static ssize_t receive(struct cairn_connection *connection, uint8_t *bytes, size_t size)
{
        union {
                struct cmsghdr header;
                uint8_t room[CMSG_SPACE(CAIRN_DESCRIPTORS_PENDING_MAX * sizeof(int))];
        } control;
        struct iovec piece = {.iov_base = bytes, .iov_len = size};
        struct msghdr message = {.msg_iov = &piece,
                                 .msg_iovlen = 1,
                                 .msg_control = &control,
                                 .msg_controllen = sizeof(control)};
        ssize_t got;

        do
                got = recvmsg(connection->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (got < 0 && errno == EINTR);
        if (got < 0)
                return got;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
                if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
                        take_descriptors(connection, c);
        // The kernel closed what found no room, here or in the table of descriptors.
        if (message.msg_flags & MSG_CTRUNC) {
                connection->server->counters.descriptors_refused++;
                connection->descriptors_refused = true;
        }
        return got;
}

// All received bytes were looked at: descriptors left over rode with a frame that may not carry
// any.
static bool descriptors_misplaced(const struct cairn_connection *connection)
{
        const struct cairn_frame_parser *parser = &connection->parser;
        bool midway = cairn_frame_parser_midway(parser);

        if (connection->descriptors_count == 0 && !connection->descriptors_refused)
                return false;
        return !midway || (parser->have_header && parser->header.kind != CAIRN_KIND_REGISTER_ARENA);
}

// ---- frames ----

// The stream cannot be followed: says why, under the id of the frame at fault, and ends.
static void refuse(struct cairn_connection *connection, const struct cairn_frame_header *at,
                   int status, const char *text)
{
        Cairn__ErrorReply reply = CAIRN__ERROR_REPLY__INIT;
        struct cairn_frame_header header = {
            .kind = cairn_kind_known(at->kind) ? at->kind : CAIRN_KIND_HELLO,
            .reply = true,
            .id = at->id,
            .status = status,
        };
        struct cairn_output *output = NULL;
        uint8_t *bytes;
        size_t size;

        connection->server->counters.protocol_errors++;
        cairn_log(CAIRN_LOG_WARNING, "look at the worker, or update it",
                  "a connection of uid %u ends: %s", connection->session.tenant, text);
        reply.text = (char *)text;
        if (cairn_codec_frame(&header, &reply, 0, &bytes, &size, NULL) == CAIRN_OK) {
                output = cairn_output_create(bytes, size);
                if (!output)
                        free(bytes);
        }
        if (output)
                cairn_connection_send(connection, output);
        cairn_connection_end(connection);
}

static const char *refusal_text(int status)
{
        if (status == CAIRN_EVERSION)
                return "a frame of another protocol version; this daemon speaks version 1: update "
                       "the older side";
        if (status == CAIRN_ENOMEM)
                return "no memory for a frame; retry later";
        return "bytes that are no frame of cairn (or one above its limits); connect anew";
}

// Parses bytes[size] until they are used, the turn is over, or the connection has to wait. Returns
// how many were used.
static size_t parse(struct cairn_connection *connection, const uint8_t *bytes, size_t size)
{
        struct cairn_frame_parser *parser = &connection->parser;
        uint64_t begun_ns = cairn_clock_ns();
        uint32_t frames = 0;
        size_t used = 0;

        while (used < size && frames < FRAMES_A_TURN_MAX &&
               cairn_clock_ns() - begun_ns < TURN_NS_MAX) {
                struct cairn_frame frame;
                size_t part;
                int status;

                if (connection->ending || connection->broken)
                        return size; // what follows is of no interest
                if (cairn_connection_paused(connection) || (frames > 0 && lagging(connection)))
                        return used;
                status = cairn_frame_parser_feed(parser, bytes + used, size - used, &part, &frame);
                used += part;
                if (status < 0) {
                        refuse(connection, &parser->header, status, refusal_text(status));
                        return size;
                }
                if (status == 0)
                        break;
                frames++;
                connection->frame_begun_ms = 0;
                if (cairn_request_begin(connection, &frame) != CAIRN_OK) {
                        refuse(connection, &frame.header, CAIRN_ENOMEM, refusal_text(CAIRN_ENOMEM));
                        return size;
                }
        }
        return used;
}

// What follows every turn of the parser.
static void finish_turn(struct cairn_connection *connection)
{
        if (!connection->stash && !connection->ending && descriptors_misplaced(connection)) {
                cairn_connection_drop_descriptors(connection);
                refuse(connection, &connection->parser.header, CAIRN_EPROTO,
                       "descriptors that do not belong to a RegisterArena: one rides with each, "
                       "and with nothing else");
        }
        if (cairn_frame_parser_midway(&connection->parser) && connection->frame_begun_ms == 0)
                connection->frame_begun_ms = cairn_clock_ms();
        connection->processing = false;
        cairn_connection_flush(connection);
}

static void receive_turn(struct cairn_connection *connection)
{
        struct cairn_server *server = connection->server;
        ssize_t got;
        size_t used;

        assert(!connection->closed);
        if (connection->stash || connection->ending || connection->broken ||
            cairn_connection_paused(connection)) {
                cairn_connection_watch(connection);
                return;
        }
        got = receive(connection, server->receive_buffer, CAIRN_RECEIVE_BYTES);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
                return;
        if (got <= 0) {
                cairn_connection_close(connection);
                return;
        }
        server->counters.received_bytes += (uint64_t)got;
        connection->processing = true;
        used = parse(connection, server->receive_buffer, (size_t)got);
        if (used < (size_t)got) {
                size_t left = (size_t)got - used;

                connection->stash = malloc(left);
                if (connection->stash) {
                        memcpy(connection->stash, server->receive_buffer + used, left);
                        connection->stash_size = left;
                        connection->stash_used = 0;
                } else {
                        refuse(connection, &connection->parser.header, CAIRN_ENOMEM,
                               refusal_text(CAIRN_ENOMEM));
                }
        }
        finish_turn(connection);
}

// Goes on with what was received before.
static void stash_turn(struct cairn_connection *connection)
{
        assert(!connection->closed && !connection->processing);
        connection->processing = true;
        connection->stash_used += parse(connection, connection->stash + connection->stash_used,
                                        connection->stash_size - connection->stash_used);
        if (connection->stash && connection->stash_used >= connection->stash_size) {
                free(connection->stash);
                connection->stash = NULL;
                connection->stash_size = 0;
                connection->stash_used = 0;
        }
        finish_turn(connection);
}

static void turn(struct cairn_connection *connection)
{
        uint64_t begun_ns = cairn_clock_ns();

        if (connection->stash)
                stash_turn(connection);
        else
                receive_turn(connection);
        connection->spent_ns += cairn_clock_ns() - begun_ns;
}

bool cairn_connection_can_wait(struct cairn_connection *connection)
{
        return connection->closed || connection->broken || connection->gone || heavy(connection);
}

void cairn_connection_readable(struct cairn_connection *connection, bool gone)
{
        connection->gone = gone;
        if (connection->deferred)
                return; // its turn comes
        if (cairn_connection_can_wait(connection))
                cairn_server_defer(connection);
        else
                turn(connection);
}

void cairn_connection_process(struct cairn_connection *connection)
{
        turn(connection);
        if (!connection->closed)
                cairn_connection_flush(connection);
}
