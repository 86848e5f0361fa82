// A request: one frame from its receipt to its answer. Pinned while it lasts; it ends itself, once.
// May be used by: daemon. May use: proto. Threads: the loop's; its message and payload are
// constant, so that scorers may read them.
#ifndef CAIRN_REQUEST_H
#define CAIRN_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/codec.h"
#include "proto/frame.h"

struct cairn_audit_record;
struct cairn_connection;
struct cairn_server;
struct cairn_session;

enum cairn_request_state {
        CAIRN_REQUEST_RECEIVED, // a whole frame is there
        CAIRN_REQUEST_RUNNING,  // decoded; its handler, the store or scorers work on it
        CAIRN_REQUEST_ANSWERED, // the reply is queued, or nobody is left to read it
        CAIRN_REQUEST_ENDED,    // memory is about to go
};

struct cairn_request {
        struct cairn_connection *connection; // outlives its requests
        struct cairn_server *server;
        struct cairn_session *session;
        enum cairn_request_state state;
        uint32_t kind;
        uint64_t id;
        uint64_t deadline_ms; // of the daemon's clock; the configured one if it named none
        uint64_t received_ns;
        bool traced;
        struct cairn_trace trace; // of the caller's, if so
        struct cairn_codec_arena memory;
        const void *message; // the decoded Cairn__..Request
        uint8_t *frame;      // owned: the received bytes, if there is a payload
        const uint8_t *payload;
        size_t payload_bytes;
        size_t cost_bytes;        // what it counts for in the bounds of connection and daemon
        size_t reserved_bytes;    // of its reply's payload
        void *op;                 // the handler's state; freed with the request
        void (*on_end)(void *op); // before that; may be NULL
};

// Makes a request of the frame that the connection's parser has just completed, and serves it. It
// may have ended on return. CAIRN_ENOMEM: nothing was answered; the connection cannot go on.
int cairn_request_begin(struct cairn_connection *connection, const struct cairn_frame *frame);

// request_log.c: counts how long it took; says what was slow, and what failed. text: of a failure.
void cairn_request_note_end(const struct cairn_request *request, int status, const char *text);

// The handler's state: zeroed memory that goes with the request. NULL: no memory (answer
// CAIRN_ENOMEM).
void *cairn_request_op(struct cairn_request *request, size_t bytes, void (*on_end)(void *op));

// Nobody waits for the answer any more: stop as soon as memory allows, then answer anyway.
bool cairn_request_abandoned(const struct cairn_request *request);
bool cairn_request_late(const struct cairn_request *request); // its deadline has passed

// By the peer's credentials.
bool cairn_request_from_operator(const struct cairn_request *request);

// Leaves a record in the audit, with this request as its cause.
void cairn_request_audit(const struct cairn_request *request, struct cairn_audit_record *record);

// Counts `bytes` of the coming reply's payload against the connection's bound, until the answer.
void cairn_request_reserve(struct cairn_request *request, size_t bytes);

// Each of these answers and ends the request: it is gone on return.
void cairn_request_reply(struct cairn_request *request, const void *message);
// With a payload, malloc'ed, taken over. payload_bytes <= CAIRN_REPLY_BYTES_MAX.
void cairn_request_reply_payload(struct cairn_request *request, const void *message,
                                 uint8_t *payload, size_t payload_bytes);
// With descriptors[count] (malloc'ed, taken over).
void cairn_request_reply_descriptors(struct cairn_request *request, const void *message,
                                     int *descriptors, uint32_t count);
// An error. format NULL: the status's own text and remedy.
__attribute__((format(printf, 3, 4))) void cairn_request_fail(struct cairn_request *request,
                                                              int status, const char *format, ...);
// The same, naming the item of the request that was to blame.
__attribute__((format(printf, 4, 5))) void cairn_request_fail_at(struct cairn_request *request,
                                                                 int status, uint32_t index,
                                                                 const char *format, ...);
// CAIRN_ERANGE: the result needs needed_bytes.
void cairn_request_fail_range(struct cairn_request *request, uint64_t needed_bytes);

#endif
