// Requests: from frame to answer. The switch below is the whole protocol.
#include "daemon/request.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/access.h"
#include "daemon/connection.h"
#include "daemon/operate.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/probe.h"
#include "proto/status.h"

// The one setter of the state: each has one predecessor.
static void set_state(struct cairn_request *request, enum cairn_request_state state)
{
        switch (state) {
        case CAIRN_REQUEST_RECEIVED: assert(!"a request begins once"); break;
        case CAIRN_REQUEST_RUNNING: assert(request->state == CAIRN_REQUEST_RECEIVED); break;
        case CAIRN_REQUEST_ANSWERED: assert(request->state == CAIRN_REQUEST_RUNNING); break;
        case CAIRN_REQUEST_ENDED: assert(request->state == CAIRN_REQUEST_ANSWERED); break;
        }
        request->state = state;
}

static void serve(struct cairn_request *request)
{
        switch (request->kind) {
        case CAIRN_KIND_HELLO: cairn_serve_hello(request); return;
        case CAIRN_KIND_PING: cairn_serve_ping(request); return;
        case CAIRN_KIND_REGISTER_ARENA: cairn_serve_register_arena(request); return;
        case CAIRN_KIND_RELEASE_ARENA: cairn_serve_release_arena(request); return;
        case CAIRN_KIND_OPEN_SPACE: cairn_serve_open_space(request); return;
        case CAIRN_KIND_LIST_SPACES: cairn_serve_list_spaces(request); return;
        case CAIRN_KIND_LOOKUP: cairn_serve_lookup(request); return;
        case CAIRN_KIND_PUT: cairn_serve_put(request); return;
        case CAIRN_KIND_GET: cairn_serve_get(request); return;
        case CAIRN_KIND_PIN: cairn_serve_pin(request); return;
        case CAIRN_KIND_UNPIN: cairn_serve_unpin(request); return;
        case CAIRN_KIND_PREFETCH: cairn_serve_prefetch(request); return;
        case CAIRN_KIND_RELEASE: cairn_serve_release(request); return;
        case CAIRN_KIND_DELETE: cairn_serve_delete(request); return;
        case CAIRN_KIND_OPEN_CONTEXT: cairn_serve_open_context(request); return;
        case CAIRN_KIND_APPEND: cairn_serve_append(request); return;
        case CAIRN_KIND_FORK: cairn_serve_fork(request); return;
        case CAIRN_KIND_SEAL: cairn_serve_seal(request); return;
        case CAIRN_KIND_CLOSE_CONTEXT: cairn_serve_close_context(request); return;
        case CAIRN_KIND_RETRIEVE:
        case CAIRN_KIND_ATTEND: cairn_serve_retrieve(request); return;
        case CAIRN_KIND_FETCH_ROWS: cairn_serve_fetch_rows(request); return;
        case CAIRN_KIND_EXPORT_LANDMARKS: cairn_serve_export_landmarks(request); return;
        case CAIRN_KIND_RETAIN: cairn_serve_retain(request); return;
        case CAIRN_KIND_PLAN: cairn_serve_plan(request); return;
        case CAIRN_KIND_SET_QUOTA: cairn_serve_set_quota(request); return;
        case CAIRN_KIND_LIST_TENANTS: cairn_serve_list_tenants(request); return;
        case CAIRN_KIND_SET_HOLD: cairn_serve_set_hold(request); return;
        case CAIRN_KIND_LIST_HOLDS: cairn_serve_list_holds(request); return;
        case CAIRN_KIND_STATS: cairn_serve_stats(request); return;
        case CAIRN_KIND_AUDIT: cairn_serve_audit(request); return;
        case CAIRN_KIND_WHY: cairn_serve_why(request); return;
        case CAIRN_KIND_VERIFY: cairn_serve_verify(request); return;
        case CAIRN_KIND_RELOAD: cairn_serve_reload(request); return;
        case CAIRN_KIND_DRAIN: cairn_serve_drain(request); return;
        case CAIRN_KIND_LIST_BLOCKS: cairn_serve_list_blocks(request); return;
        case CAIRN_KIND_LIST_CONTEXTS: cairn_serve_list_contexts(request); return;
        case CAIRN_KIND_LIST_LEASES: cairn_serve_list_leases(request); return;
        case CAIRN_KIND_SHOW_CONFIG: cairn_serve_show_config(request); return;
        default:
                cairn_request_fail(request, CAIRN_EUNSUPPORTED,
                                   "this daemon does not do %s yet; update it, or do without",
                                   cairn_kind_name(request->kind));
                return;
        }
}

// What may still be asked for while the daemon goes.
static bool allowed_while_draining(uint32_t kind)
{
        return kind == CAIRN_KIND_PING || kind == CAIRN_KIND_STATS || kind == CAIRN_KIND_RELEASE ||
               kind == CAIRN_KIND_CLOSE_CONTEXT || kind == CAIRN_KIND_RELEASE_ARENA;
}

bool cairn_request_from_operator(const struct cairn_request *request)
{
        struct cairn_peer peer;

        return cairn_peer_of(request->connection->fd, &peer) == CAIRN_OK &&
               cairn_access_is_operator(&request->server->config->access, &peer);
}

// Checks that hold for all kinds, then the handler.
static void dispatch(struct cairn_request *request, const struct cairn_frame *frame)
{
        void *message;
        int status = cairn_codec_unpack(request->kind, false, 0, frame->message,
                                        frame->header.message_bytes, &request->memory, &message);

        request->cost_bytes += request->memory.used_bytes;
        cairn_connection_request_begun(request->connection, request->cost_bytes);
        request->server->counters.requests_total[request->kind]++;
        set_state(request, CAIRN_REQUEST_RUNNING);
        if (!request->session->greeted && request->kind != CAIRN_KIND_HELLO) {
                cairn_connection_end(request->connection);
                cairn_request_fail(request, CAIRN_EPROTO,
                                   "the first request must be Hello; send it before %s",
                                   cairn_kind_name(request->kind));
                return;
        }
        if (status == CAIRN_ERANGE) {
                cairn_request_fail(request, status,
                                   "a %s request of more than %d fields; ask for less at once, "
                                   "and pack numbers that repeat",
                                   cairn_kind_name(request->kind), CAIRN_FIELDS_MAX);
                return;
        }
        if (status != CAIRN_OK) {
                cairn_request_fail(request, status,
                                   "the message is no %s request%s; check the client",
                                   cairn_kind_name(request->kind),
                                   status == CAIRN_ENOMEM ? " that fits in memory" : "");
                return;
        }
        if (request->server->state >= CAIRN_SERVER_DRAINING &&
            !allowed_while_draining(request->kind)) {
                cairn_request_fail(request, CAIRN_ECANCELLED,
                                   "the daemon is stopping; retry when it is back");
                return;
        }
        if (cairn_operator_only(request->kind) && !cairn_request_from_operator(request)) {
                struct cairn_audit_record record = {.action = CAIRN_AUDIT_REFUSE,
                                                    .reason = CAIRN_AUDIT_PERMISSION,
                                                    .tenant = request->session->tenant,
                                                    .numbers = {request->kind}};

                cairn_request_audit(request, &record);
                cairn_request_fail(request, CAIRN_EPERM,
                                   "%s is for operators: root, the daemon's user, or a group in "
                                   "operator_gids",
                                   cairn_kind_name(request->kind));
                return;
        }
        request->message = message;
        request->traced = cairn_codec_trace(message, &request->trace);
        CAIRN_PROBE4(request__start, request->kind, request->id, request->session->tenant,
                     frame->header.message_bytes + frame->header.payload_bytes);
        serve(request);
}

int cairn_request_begin(struct cairn_connection *connection, const struct cairn_frame *frame)
{
        struct cairn_request *request = calloc(1, sizeof(*request));
        uint32_t deadline_ms = (uint32_t)frame->header.status;

        if (!request)
                return CAIRN_ENOMEM;
        request->connection = connection;
        request->server = connection->server;
        request->session = &connection->session;
        request->kind = frame->header.kind;
        request->id = frame->header.id;
        if (deadline_ms == 0)
                deadline_ms = (uint32_t)request->server->config->request_timeout_ms;
        request->deadline_ms = cairn_clock_ms() + deadline_ms;
        request->received_ns = cairn_clock_ns();
        request->cost_bytes = sizeof(*request);
        cairn_codec_arena_init(&request->memory, CAIRN_DECODE_BYTES_MAX);
        if (frame->header.payload_bytes > 0) {
                // The parser's buffer holds this frame alone: it goes over to the request,
                // uncopied.
                request->frame = connection->parser.buffer;
                request->payload = frame->payload;
                request->payload_bytes = frame->header.payload_bytes;
                request->cost_bytes += connection->parser.capacity;
                connection->parser.buffer = NULL;
                cairn_frame_parser_finish(&connection->parser);
        }
        dispatch(request, frame);
        return CAIRN_OK;
}

void cairn_request_audit(const struct cairn_request *request, struct cairn_audit_record *record)
{
        record->request = request->id;
        record->connection = request->session->connection;
        cairn_store_audit(request->server->store, record);
}

void *cairn_request_op(struct cairn_request *request, size_t bytes, void (*on_end)(void *op))
{
        assert(!request->op);
        request->op = calloc(1, bytes);
        request->on_end = request->op ? on_end : NULL;
        return request->op;
}

bool cairn_request_abandoned(const struct cairn_request *request)
{
        return request->connection->closed || request->server->state >= CAIRN_SERVER_WRITING;
}

bool cairn_request_late(const struct cairn_request *request)
{
        return cairn_clock_ms() >= request->deadline_ms;
}

void cairn_request_reserve(struct cairn_request *request, size_t bytes)
{
        request->reserved_bytes += bytes;
        request->connection->reserved_bytes += bytes;
        cairn_server_charge(request->server, bytes);
}

// Everything the request owned goes; the connection may go with it.
static void end(struct cairn_request *request)
{
        struct cairn_connection *connection = request->connection;
        size_t cost_bytes = request->cost_bytes;

        set_state(request, CAIRN_REQUEST_ENDED);
        assert(connection->reserved_bytes >= request->reserved_bytes);
        connection->reserved_bytes -= request->reserved_bytes;
        cairn_server_discharge(request->server, request->reserved_bytes);
        if (request->on_end)
                request->on_end(request->op);
        free(request->op);
        cairn_codec_arena_finish(&request->memory);
        free(request->frame);
        free(request);
        cairn_connection_request_ended(connection, cost_bytes);
}

// Queues header and message, then the payload as a piece of its own. False: no memory; the
// connection must end.
static bool queue_reply(struct cairn_request *request, int status, const void *message,
                        uint8_t *payload, size_t payload_bytes, int *descriptors,
                        uint32_t descriptors_count)
{
        struct cairn_frame_header header = {
            .version = CAIRN_PROTOCOL_VERSION,
            .kind = (uint16_t)request->kind,
            .reply = true,
            .id = request->id,
            .status = status,
            .message_bytes = (uint32_t)cairn_codec_size(message),
            .payload_bytes = (uint32_t)payload_bytes,
        };
        size_t size = CAIRN_FRAME_HEADER_BYTES + header.message_bytes;
        uint8_t *bytes = malloc(size);
        struct cairn_output *head = bytes ? cairn_output_create(bytes, size) : NULL;
        struct cairn_output *tail = payload ? cairn_output_create(payload, payload_bytes) : NULL;

        if (!head || (payload && !tail)) {
                if (!head)
                        free(bytes);
                cairn_output_destroy(head);
                if (!tail)
                        free(payload);
                cairn_output_destroy(tail);
                cairn_descriptors_close(descriptors, descriptors_count);
                return false;
        }
        cairn_output_attach(head, descriptors, descriptors_count);
        cairn_frame_header_write(&header, bytes);
        cairn_codec_pack(message, bytes + CAIRN_FRAME_HEADER_BYTES);
        cairn_connection_send(request->connection, head);
        if (tail)
                cairn_connection_send(request->connection, tail);
        return true;
}

static void answer_with(struct cairn_request *request, int status, const void *message,
                        uint8_t *payload, size_t payload_bytes, int *descriptors,
                        uint32_t descriptors_count)
{
        assert(payload_bytes <= CAIRN_REPLY_BYTES_MAX);
        set_state(request, CAIRN_REQUEST_ANSWERED);
        if (status != CAIRN_OK)
                request->server->counters.requests_failed[request->kind]++;
        cairn_request_note_end(request, status,
                               status != CAIRN_OK ? ((const Cairn__ErrorReply *)message)->text
                                                  : NULL);
        if (request->connection->closed) {
                free(payload);
                cairn_descriptors_close(descriptors, descriptors_count);
        } else if (!queue_reply(request, status, message, payload, payload_bytes, descriptors,
                                descriptors_count)) {
                cairn_connection_end(request->connection);
        }
        end(request);
}

static void answer(struct cairn_request *request, int status, const void *message, uint8_t *payload,
                   size_t payload_bytes)
{
        answer_with(request, status, message, payload, payload_bytes, NULL, 0);
}

void cairn_request_reply(struct cairn_request *request, const void *message)
{
        if (cairn_codec_size(message) > CAIRN_MESSAGE_BYTES_MAX) {
                cairn_request_fail(request, CAIRN_ERANGE,
                                   "the reply is above a message's limit; ask for less at once");
                return;
        }
        answer(request, CAIRN_OK, message, NULL, 0);
}

void cairn_request_reply_payload(struct cairn_request *request, const void *message,
                                 uint8_t *payload, size_t payload_bytes)
{
        if (payload_bytes == 0) {
                free(payload);
                payload = NULL;
        }
        answer(request, CAIRN_OK, message, payload, payload_bytes);
}

void cairn_request_reply_descriptors(struct cairn_request *request, const void *message,
                                     int *descriptors, uint32_t count)
{
        answer_with(request, CAIRN_OK, message, NULL, 0, descriptors, count);
}

static void fail(struct cairn_request *request, int status, uint32_t index, uint64_t needed_bytes,
                 const char *text)
{
        Cairn__ErrorReply reply = CAIRN__ERROR_REPLY__INIT;
        char own[CAIRN_TEXT_BYTES_MAX];

        assert(status < 0);
        if (!text) {
                (void)snprintf(own, sizeof(own), "%s; %s", cairn_status_text(status),
                               cairn_status_remedy(status));
                text = own;
        }
        reply.text = (char *)text;
        reply.index = index;
        reply.needed_bytes = needed_bytes;
        answer(request, status, &reply, NULL, 0);
}

void cairn_request_fail(struct cairn_request *request, int status, const char *format, ...)
{
        char text[CAIRN_TEXT_BYTES_MAX];
        va_list args;

        if (!format) {
                fail(request, status, 0, 0, NULL);
                return;
        }
        va_start(args, format);
        (void)vsnprintf(text, sizeof(text), format, args); // cut short is fine
        va_end(args);
        fail(request, status, 0, 0, text);
}

void cairn_request_fail_at(struct cairn_request *request, int status, uint32_t index,
                           const char *format, ...)
{
        char text[CAIRN_TEXT_BYTES_MAX];
        va_list args;

        va_start(args, format);
        (void)vsnprintf(text, sizeof(text), format, args); // cut short is fine
        va_end(args);
        fail(request, status, index, 0, text);
}

void cairn_request_fail_range(struct cairn_request *request, uint64_t needed_bytes)
{
        char text[CAIRN_TEXT_BYTES_MAX];

        (void)snprintf(text, sizeof(text),
                       "the result needs %llu bytes; give a region of an arena that large%s",
                       (unsigned long long)needed_bytes,
                       needed_bytes > CAIRN_PAYLOAD_BYTES_MAX ? ", since it does not fit a frame"
                                                              : "");
        fail(request, CAIRN_ERANGE, 0, needed_bytes, text);
}
