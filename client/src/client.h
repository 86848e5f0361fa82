// Inside of libcairn: the client, its connection, its requests in flight, its arenas and spaces.
// May be used by: client/src. May use: proto. Threads: a client belongs to one.
#ifndef CAIRN_CLIENT_H
#define CAIRN_CLIENT_H

#include <sys/uio.h>

// proto first: the public header repeats some of its types for those who do not have it.
#include "proto/codec.h"
#include "proto/frame.h"
#include "proto/key.h"
#include "proto/limits.h"
#include "proto/result.h"
#include "proto/space.h"
#include "proto/status.h"
#include "proto/trace.h"

#include "cairn/cairn.h"

enum {
        CAIRN_CLIENT_SLOTS = CAIRN_INFLIGHT_MAX,
        CAIRN_CLIENT_SPACES_MAX = CAIRN_SPACES_MAX,
        CAIRN_CLIENT_RECEIVE_BYTES = 256 * 1024,
        CAIRN_CLIENT_UNSENT_BYTES_MAX = 64 * 1024 * 1024,
        CAIRN_CLIENT_TIMEOUT_MS_DEFAULT = 30 * 1000,
        CAIRN_CLIENT_RECONNECT_MS_DEFAULT = 2000,
        CAIRN_CLIENT_GRACE_MS = 1000,           // for the daemon's own time-out to arrive
        CAIRN_CLIENT_INLINE_BYTES = 256 * 1024, // plain memory above this goes through an arena
        CAIRN_CLIENT_STAGING_BYTES = 32 << 20,  // its size, unless one block is larger
        CAIRN_CLIENT_ERROR_BYTES = CAIRN_TEXT_BYTES_MAX + 128,
        // Of a reply that is not yet whole, and of the next.
        CAIRN_CLIENT_DESCRIPTORS_MAX = 2 * CAIRN_VIEW_DESCRIPTORS_MAX,
};

struct cairn_arena {
        struct cairn_client *client;
        struct cairn_arena *next;
        uint8_t *data;
        uint64_t bytes;
        int fd;
        uint32_t wire_id; // this connection's
        uint32_t users;   // requests under way
};

struct cairn_client_space {
        struct cairn_space_config config;
        struct cairn_key fingerprint;
        uint64_t block_bytes;
        uint64_t stored_bytes;
        uint32_t wire_id; // this connection's
        uint32_t number;  // 0, or the daemon's: whoever's it is (operators)
};

struct cairn_client_request;

// Checks a good reply and writes the caller's outputs: CAIRN_OK, or CAIRN_EPROTO and nothing
// written.
typedef int cairn_client_decode(struct cairn_client *client, struct cairn_client_request *request,
                                const void *message, const uint8_t *payload, size_t payload_bytes);

// What a decode function needs; each kind of request has its own part.
struct cairn_audit_entry; // cairn/audit.h
struct cairn_hold_info;   // cairn/tenant.h
struct cairn_quota_limits;
struct cairn_tenant_info;
struct cairn_audit_state;
struct cairn_where;

union cairn_client_outputs {
        struct cairn_ping_info *ping;
        struct cairn_verify_info *verify;
        char *text; // CAIRN_TEXT_BYTES_MAX
        struct {
                void (*on_metric)(void *arg, const char *name, const char *labels, double value);
                void (*on_space)(void *arg, const struct cairn_space_info *info);
                void *arg;
        } visit;
        struct {
                void (*on_block)(void *arg, const struct cairn_block_info *info);
                void (*on_context)(void *arg, const struct cairn_context_info *info);
                void (*on_lease)(void *arg, const struct cairn_lease_info *info);
                void (*on_setting)(void *arg, const struct cairn_setting *setting);
                void *arg;
                uint64_t *ret_cursor;
                char *ret_file;
        } list;
        struct {
                void (*on_entry)(void *arg, const struct cairn_audit_entry *entry);
                void (*on_where)(void *arg, const struct cairn_where *where);
                void (*on_problem)(void *arg, const char *text);
                void *arg;
                uint64_t *ret_cursor;
                bool *ret_more;
                struct cairn_audit_state *ret_state;
                char *ret_text; // CAIRN_TEXT_BYTES_MAX
        } audit;
        struct {
                size_t count;
                size_t *ret_found;
                struct cairn_lease *ret_lease;
        } lookup;
        struct {
                void (*on_tenant)(void *arg, const struct cairn_tenant_info *info);
                void (*on_hold)(void *arg, const struct cairn_hold_info *info);
                void *arg;
                struct cairn_quota_limits *ret_quota;
                uint64_t *ret_blocks;
        } tenant;
        struct {
                size_t count;
                int *ret_statuses;
                size_t *ret_sealed;
                uint32_t *ret_pending; // of a purge
        } statuses;
        struct {
                size_t count;
                int *ret_statuses;
                uint64_t piece_bytes;
                uint8_t *blocks; // where an inline answer goes; NULL: it lies in an arena
                void *const *blocks_at;
        } get;
        struct {
                size_t count;
                uint64_t piece_bytes;
                struct cairn_view *ret_views;
                int *ret_statuses;
        } views;
        struct {
                struct cairn_context *ret_context;
                uint32_t space;
        } context;
        struct {
                struct cairn_result_shape shape; // k_max is the daemon's to say
                uint8_t *result;
                uint64_t result_bytes;
                bool inlined;
                struct cairn_selection *ret_selection;
        } retrieve;
        struct {
                uint8_t *result;
                uint64_t result_bytes; // FetchRows: exactly; ExportLandmarks: at most
                bool inlined;
                uint64_t *ret_bytes; // ExportLandmarks
        } fetch;
        struct {
                uint32_t layers;
                uint32_t kv_heads;
                size_t budgets_count;
                uint8_t *result;
                uint64_t result_bytes;
                bool inlined;
                struct cairn_retained *ret_retained;
                struct cairn_plan *ret_plan;
        } retain;
        struct {
                struct cairn_client_space *space;
        } open_space;
        uint32_t *ret_arena;
};

enum cairn_client_state {
        CAIRN_CLIENT_FREE = 0,
        CAIRN_CLIENT_SENT = 1,  // its reply is awaited
        CAIRN_CLIENT_ENDED = 2, // on_done has yet to run
};

struct cairn_client_request {
        enum cairn_client_state state;
        uint32_t kind;
        uint64_t id; // low 8 bits: the slot
        int status;
        int64_t expires_ms;
        struct cairn_call *call;
        cairn_client_decode *decode;
        union cairn_client_outputs outputs;
        struct cairn_arena *arenas[2]; // counted as used until the end
        struct cairn_client_request *next_ended;
        char text[CAIRN_CLIENT_ERROR_BYTES];
};

struct cairn_client_unsent {
        struct cairn_client_unsent *next;
        uint8_t *bytes; // owned
        size_t size;
        size_t sent;
        int fd; // rides with the first byte; -1: none. Not owned
};

struct cairn_client {
        char socket_path[CAIRN_SOCKET_PATH_BYTES_MAX + 1];
        char name[64];
        uint32_t timeout_ms;
        uint32_t connect_wait_ms;
        uint32_t reconnect_wait_ms;

        double copy_bytes_s; // of a copy in memory; 0: not measured yet
        bool traced;
        struct cairn_trace trace; // that requests carry

        int socket_fd; // -1: not connected
        int epoll_fd;
        int timer_fd; // wakes a poller at the next deadline, or at once when a request ended unseen
        bool want_write;
        bool in_callback;
        bool gave_up; // the last reconnect failed for its whole wait: only try once until one works
        uint64_t connection; // serial; leases and contexts carry it
        struct cairn_server_info server;
        uint32_t payload_bytes_max;
        uint32_t inflight_max;

        struct cairn_frame_parser parser;
        uint8_t *receive_buffer;
        int received[CAIRN_CLIENT_DESCRIPTORS_MAX]; // came with replies, not yet claimed. Owned
        uint32_t received_count;
        bool lost_track; // of them: the connection must end
        struct cairn_client_unsent *unsent_first;
        struct cairn_client_unsent *unsent_last;
        size_t unsent_bytes;

        uint64_t spin_ns; // how long a wait looks before it sleeps; 0: it sleeps at once
        uint32_t awaited; // kind of the blocking call under way; 0: none
        uint8_t late[CAIRN_KIND_COUNT]; // by `awaited`: 0, or the last wait was longer than that

        struct cairn_client_request *slots; // CAIRN_CLIENT_SLOTS
        uint32_t slots_used;
        uint64_t id_serial;
        int64_t timer_at_ms; // 0: not armed
        struct cairn_client_request *ended_first;
        struct cairn_client_request *ended_last;

        struct cairn_segment *segments; // of the daemon's RAM tier, shown on this connection
        struct cairn_arena *arenas;
        struct cairn_arena *staging; // for plain memory of blocking calls
        struct cairn_arena *results; // for results that the caller gave no memory for
        struct cairn_client_space *spaces;
        uint32_t spaces_count;
        uint32_t spaces_capacity;

        char error[CAIRN_CLIENT_ERROR_BYTES];
};

// ---- client.c ----

uint64_t cairn_client_now_ns(void); // of a clock that does not step
int64_t cairn_client_now_ms(void);
// Sets the client's error text; returns status. format NULL: the status's own text and remedy.
__attribute__((format(printf, 3, 4))) int cairn_client_fail(struct cairn_client *client, int status,
                                                            const char *format, ...);
// One round of sending, receiving and expiring. Runs no callback. Waits up to timeout_ms.
void cairn_client_turn(struct cairn_client *client, int64_t timeout_ms);
// Runs on_done of the first request that has ended; there must be one.
void cairn_client_run_one(struct cairn_client *client);

// ---- wait.c ----

void cairn_client_spin_init(struct cairn_client *client, uint32_t spin_us);
// Waits up to timeout_ms (-1: no bound) for the socket, and so for the daemon. True: what came was
// received already, or the connection is gone.
bool cairn_client_wait(struct cairn_client *client, int64_t timeout_ms);

// ---- link.c: the connection ----

// Connected, with arenas and spaces known to the daemon; or a status with its text set.
int cairn_client_ready(struct cairn_client *client);
// First connect (waits connect_wait_ms).
int cairn_client_connect(struct cairn_client *client, uint32_t wait_ms);
// Ends the connection; requests under way end with `status` (their callbacks run at the next poll).
void cairn_client_disconnect(struct cairn_client *client, int status, const char *why);
// Puts a frame (owned from here on) into the queue and sends what the socket takes.
void cairn_client_send(struct cairn_client *client, uint8_t *bytes, size_t size, int fd);
void cairn_client_flush(struct cairn_client *client);
// Takes what there is. True: there was something, or the connection is gone.
bool cairn_client_receive(struct cairn_client *client);

// ---- request.c: what is in flight ----

struct cairn_client_submission {
        uint32_t kind;
        const void *message; // Cairn__*
        const struct iovec *payload;
        size_t payload_count;
        int fd; // 0 or -1: none
        cairn_client_decode *decode;
        union cairn_client_outputs outputs;
        struct cairn_arena *arenas[2]; // that the daemon will read or write; may be NULL
};

// Sends a request. call NULL: waits for its end and returns its status. Needs cairn_client_ready
// before.
int cairn_client_submit(struct cairn_client *client, struct cairn_call *call,
                        const struct cairn_client_submission *submission);
// The same, waiting without running anybody's callback: for the handshake.
int cairn_client_submit_quietly(struct cairn_client *client,
                                const struct cairn_client_submission *submission);
void cairn_client_on_frame(struct cairn_client *client, const struct cairn_frame *frame);
void cairn_client_expire(struct cairn_client *client, int64_t now_ms);
// ms of the next deadline, -1: none.
int64_t cairn_client_next_deadline_ms(const struct cairn_client *client);
void cairn_client_end_all(struct cairn_client *client, int status, const char *why);
void cairn_client_release_slot(struct cairn_client *client, struct cairn_client_request *request);
void cairn_client_arm_timer(struct cairn_client *client, int64_t at_ms);
// True if a blocking call may be tried once more.
bool cairn_client_may_retry(const struct cairn_client *client, const struct cairn_call *call,
                            int status);

// ---- list.c ----

// CAIRN_EPROTO: its keys are none.
int cairn_client_block_info(const Cairn__BlockInfo *block, struct cairn_block_info *ret_info);

// ---- arena.c ----

int cairn_client_arena_register(struct cairn_client *client, struct cairn_arena *arena);
void cairn_client_arenas_finish(struct cairn_client *client);
// The arena that holds all of [at, at + bytes), or NULL.
struct cairn_arena *cairn_client_arena_of(const struct cairn_client *client, const void *at,
                                          uint64_t bytes);
// The library's arena in *slot, at least `bytes` large; NULL when none can be had.
struct cairn_arena *cairn_client_scratch(struct cairn_client *client, struct cairn_arena **slot,
                                         uint64_t bytes);
// After a request that used a scratch arena timed out or was cut off: the daemon may still write
// there.
void cairn_client_scratch_drop(struct cairn_client *client, struct cairn_arena **slot, int status);
void cairn_client_region_set(Cairn__Region *region, const struct cairn_arena *arena, const void *at,
                             uint64_t bytes);

// ---- space.c ----

int cairn_client_space_register(struct cairn_client *client, struct cairn_client_space *space,
                                bool again);
// NULL, with the error text set, for a number that is no space.
struct cairn_client_space *cairn_client_space_of(struct cairn_client *client, uint32_t space);
// The plain description behind a public one.
void cairn_client_config_to_space(const struct cairn_space_config *config,
                                  struct cairn_space *ret_space);

// ---- blocks.c ----

cairn_client_decode cairn_client_decode_nothing;
// Checks that n statuses came, all known, and copies them. Counts must match.
int cairn_client_copy_statuses(size_t n, const int32_t *statuses, size_t count, int *ret_statuses);
void cairn_client_keys_field(const struct cairn_key *keys, size_t count,
                             ProtobufCBinaryData *ret_field);
// CAIRN_EINVAL above the keys of one request.
int cairn_client_keys_check(struct cairn_client *client, size_t count);
// CAIRN_ESTALE for a lease of an earlier connection.
int cairn_client_lease_check(struct cairn_client *client, const struct cairn_lease *lease);

// ---- get.c ----

// Bytes that one key yields, or 0 with the error set.
uint64_t cairn_client_piece_bytes(struct cairn_client *client, const struct cairn_get_args *args);

// ---- view.c ----

// Maps the segments that a reply shows, with the descriptors that came with it: for every reply to
// a Get, in order. CAIRN_EPROTO, CAIRN_ENOMEM: the connection cannot go on.
int cairn_client_segments_adopt(struct cairn_client *client, const Cairn__GetReply *reply);
// Lets go of those that the daemon has given up, so that their memory can go.
void cairn_client_segments_sweep(struct cairn_client *client);
// The connection has ended: views of it are no longer valid, and are unmapped once released.
void cairn_client_segments_drop(struct cairn_client *client);

// ---- context.c ----

// CAIRN_ESTALE for a context of an earlier connection.
int cairn_client_context_check(struct cairn_client *client, const struct cairn_context *context);

// ---- retrieve.c ----

// Memory of the client for a result that the caller has none for, at least `bytes` large.
// CAIRN_ENOMEM: the text is set.
int cairn_client_own_result(struct cairn_client *client, uint64_t bytes, void **ret_result,
                            uint64_t *ret_bytes);

// ---- source.c ----

// Plain memory up to this size goes inline; above it through an arena, if one can be had.
uint64_t cairn_client_inline_max(const struct cairn_client *client);

struct cairn_client_source {
        struct cairn_arena *arena; // NULL: inline, as `piece`
        const void *at;            // in the arena
        struct iovec piece;
};
// May create an arena, and so connect anew: check leases and contexts after it.
int cairn_client_source_begin(struct cairn_client *client, const struct cairn_call *call,
                              const void *bytes, uint64_t size,
                              struct cairn_client_source *ret_source);
void cairn_client_source_end(struct cairn_client *client, const struct cairn_client_source *source,
                             int status);

// ---- places.c ----

struct cairn_client_places {
        const uint8_t *base;   // side by side
        const void *const *at; // or scattered
        uint64_t piece_bytes;
        size_t count;
};
// Where the i-th one lies.
const uint8_t *cairn_client_place(const struct cairn_client_places *places, size_t i);
// The one arena that holds them all, or NULL.
struct cairn_arena *cairn_client_places_arena(const struct cairn_client *client,
                                              const struct cairn_client_places *places);
// Fills the region and, when the places are scattered, one offset each (room for count; else none
// are returned).
void cairn_client_places_region(const struct cairn_client_places *places,
                                const struct cairn_arena *arena, Cairn__Region *region,
                                uint64_t *offsets, size_t *ret_offsets_count);

#endif
