// A connection: one worker's socket, the bytes on their way in and out, and its session.
// May be used by: daemon. May use: proto, libuv. Threads: the loop's.
#ifndef CAIRN_CONNECTION_H
#define CAIRN_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/session.h"
#include "proto/frame.h"
#include "proto/limits.h"

struct cairn_server;

enum {
        CAIRN_RECEIVE_BYTES = 64 * 1024
}; // most that is read at once

// One piece of the outgoing stream.
struct cairn_output {
        struct cairn_output *next;
        uint8_t *bytes; // owned
        size_t size;
        size_t sent;
        int *descriptors; // ride with the first byte; owned, closed when sent or dropped
        uint32_t descriptors_count;
};

struct cairn_connection {
        struct cairn_connection *next; // the server's list
        struct cairn_connection *previous;
        struct cairn_connection *next_deferred;
        struct cairn_server *server;
        struct cairn_session session;
        uv_poll_t poll;
        int fd;
        int events; // what the poll watches
        // In.
        struct cairn_frame_parser parser;
        uint8_t *stash; // received, not yet parsed, since the connection was paused
        size_t stash_size;
        size_t stash_used;
        uint64_t frame_begun_ms; // 0: between frames
        uint64_t accepted_ms;
        int descriptors[CAIRN_DESCRIPTORS_PENDING_MAX]; // received, not yet claimed
        uint32_t descriptors_count;
        bool descriptors_refused; // some came that may not
        // Out.
        struct cairn_output *output_head;
        struct cairn_output *output_tail;
        size_t output_bytes;
        size_t reserved_bytes; // of payloads that are being made
        uint64_t progress_ms;  // when the peer last took a byte, or the queue was empty
        // Under way.
        uint32_t inflight;
        uint64_t inflight_bytes;
        // Turns on the loop.
        uint64_t spent_ns; // on it lately: halves every few milliseconds
        uint64_t spent_ms; // when it was last halved
        bool processing;   // inside the parser's loop
        bool deferred;     // in the server's list of those to go on with
        bool gone;         // the peer sends no more
        bool ending;       // no more input; closes when the output is sent
        bool broken;       // closes as soon as the loop comes back
        bool closed;       // session gone, descriptor closed
        bool handle_gone;  // libuv is done with `poll`
};

// Takes the accepted descriptor over, also when it fails.
int cairn_connection_create(struct cairn_server *server, int fd, uint32_t uid);
// The session ends now; the memory goes when the last request has ended.
void cairn_connection_close(struct cairn_connection *connection);
// From the server's list of deferred ones: closes, or parses on what was left.
void cairn_connection_continue(struct cairn_connection *connection);
// Time-outs and leases.
void cairn_connection_tick(struct cairn_connection *connection, uint64_t now_ms);

// What libuv calls when the socket is ready.
void cairn_connection_on_poll(uv_poll_t *poll, int status, int events);

// Queues the piece (taken over) and sends what can be sent.
void cairn_connection_send(struct cairn_connection *connection, struct cairn_output *output);
void cairn_connection_flush(struct cairn_connection *connection);
// A piece with room for `size` bytes, or NULL.
struct cairn_output *cairn_output_create(uint8_t *bytes, size_t size);
void cairn_output_destroy(struct cairn_output *output);
// Takes descriptors[count] (malloc'ed, count <= CAIRN_VIEW_DESCRIPTORS_MAX) over.
void cairn_output_attach(struct cairn_output *output, int *descriptors, uint32_t count);
void cairn_descriptors_close(int *descriptors, uint32_t count); // and frees them

// Nothing more is read; once the replies are out it closes.
void cairn_connection_end(struct cairn_connection *connection);
void cairn_connection_request_begun(struct cairn_connection *connection, size_t bytes);
void cairn_connection_request_ended(struct cairn_connection *connection, size_t bytes);
// The first descriptor that came with the frames; -1: none. The caller closes it.
int cairn_connection_take_descriptor(struct cairn_connection *connection, bool *ret_refused);

// connection_input.c: the socket has bytes, which are parsed now or when those had their turn who
// kept the loop for less time. Nobody waits for what a peer that has `gone` leaves to do.
void cairn_connection_readable(struct cairn_connection *connection, bool gone);
bool cairn_connection_can_wait(struct cairn_connection *connection);
// Its turn: parses until the input is used up, the turn is over or the connection has to wait.
void cairn_connection_process(struct cairn_connection *connection);
// What was received is gone on with in the next turn, or at a pace if the peer does not read.
void cairn_connection_go_on(struct cairn_connection *connection);
void cairn_connection_pace(struct cairn_connection *connection); // the time for that has come
bool cairn_connection_paused(const struct cairn_connection *connection);
// Watches what the state asks for.
void cairn_connection_watch(struct cairn_connection *connection);
void cairn_connection_drop_descriptors(struct cairn_connection *connection);

#endif
