// The handlers: one a kind of request. Each answers its request exactly once, now or later.
// May be used by: daemon. May use: proto, policy, storage. Threads: the loop's.
#ifndef CAIRN_SERVE_H
#define CAIRN_SERVE_H

#include "daemon/request.h"
#include "daemon/session.h"

// serve_session.c
void cairn_serve_hello(struct cairn_request *request);
void cairn_serve_ping(struct cairn_request *request);
void cairn_serve_register_arena(struct cairn_request *request);
void cairn_serve_release_arena(struct cairn_request *request);
void cairn_serve_open_space(struct cairn_request *request);
void cairn_serve_list_spaces(struct cairn_request *request);

// serve_block.c
void cairn_serve_lookup(struct cairn_request *request);
void cairn_serve_release(struct cairn_request *request);
// serve_delete.c
void cairn_serve_delete(struct cairn_request *request);
// serve_pin.c
void cairn_serve_pin(struct cairn_request *request);
void cairn_serve_unpin(struct cairn_request *request);
void cairn_serve_prefetch(struct cairn_request *request);
// serve_put.c, serve_get.c
void cairn_serve_put(struct cairn_request *request);
void cairn_serve_seal(struct cairn_request *request);
void cairn_serve_get(struct cairn_request *request);
// serve_view.c: a Get of views
void cairn_serve_view(struct cairn_request *request);

// serve_context.c
void cairn_serve_open_context(struct cairn_request *request);
void cairn_serve_close_context(struct cairn_request *request);
void cairn_serve_fork(struct cairn_request *request);
// serve_append.c
void cairn_serve_append(struct cairn_request *request);
// serve_retrieve.c: Retrieve and Attend
void cairn_serve_retrieve(struct cairn_request *request);
// serve_rows.c
void cairn_serve_fetch_rows(struct cairn_request *request);
// serve_export.c
void cairn_serve_export_landmarks(struct cairn_request *request);

// serve_policy.c
void cairn_serve_retain(struct cairn_request *request);
void cairn_serve_plan(struct cairn_request *request);

// serve_tenant.c
void cairn_serve_set_quota(struct cairn_request *request);
void cairn_serve_list_tenants(struct cairn_request *request);
void cairn_serve_set_hold(struct cairn_request *request);
void cairn_serve_list_holds(struct cairn_request *request);

// serve_admin.c
void cairn_serve_stats(struct cairn_request *request);
void cairn_serve_reload(struct cairn_request *request);
void cairn_serve_drain(struct cairn_request *request);
// serve_list.c
void cairn_serve_list_blocks(struct cairn_request *request);
void cairn_serve_list_contexts(struct cairn_request *request);
void cairn_serve_list_leases(struct cairn_request *request);
void cairn_serve_show_config(struct cairn_request *request);
// serve_audit.c
void cairn_serve_audit(struct cairn_request *request);
void cairn_serve_why(struct cairn_request *request);
// serve_verify.c
void cairn_serve_verify(struct cairn_request *request);

// ---- shared by the handlers of blocks ----

// Where the bytes of a request's items lie: in an arena (referenced until finish) or in memory of
// the daemon.
struct cairn_bulk {
        struct cairn_arena *arena; // NULL: memory is not the worker's
        uint8_t *base;             // offsets count from here
        uint64_t size_bytes;
};

// The space named by `id` and the keys in `field`. False: the request was answered with an error.
bool cairn_serve_keys(struct cairn_request *request, uint32_t id, const ProtobufCBinaryData *field,
                      const struct cairn_space_entry **ret_entry, const struct cairn_key **ret_keys,
                      size_t *ret_count);
// Checks that items of item_bytes lie inside the region, side by side or at offsets[count] of the
// arena (payload), and gives the memory. `memory`: what arena 0 means, of memory_bytes. False:
// answered.
bool cairn_serve_bulk(struct cairn_request *request, const Cairn__Region *region,
                      const uint64_t *offsets, size_t offsets_count, size_t count,
                      uint64_t item_bytes, const uint8_t *memory, uint64_t memory_bytes,
                      struct cairn_bulk *ret_bulk);
void cairn_bulk_finish(struct cairn_bulk *bulk);
// serve_get.c: the layers that a Get asks for. False: answered.
bool cairn_serve_layers(struct cairn_request *request, const struct cairn_space_entry *entry,
                        uint32_t *ret_first, uint32_t *ret_count);
// Whether the sums of the next block that RAM has are to be taken again; counts it.
bool cairn_serve_ram_check(struct cairn_server *server);
// The context of this session. NULL: answered.
struct cairn_context *cairn_serve_context(struct cairn_request *request, uint64_t id);

// A result region: memory of the arena, or of the reply's payload.
struct cairn_result_memory {
        struct cairn_bulk bulk;
        uint8_t *payload; // owned, if there is no arena
        uint64_t size_bytes;
};
// Room for `bytes`, at a multiple of 64 of the arena. False: answered (CAIRN_ERANGE says what is
// needed).
bool cairn_serve_result(struct cairn_request *request, const Cairn__Region *region, uint64_t bytes,
                        struct cairn_result_memory *ret_memory);
void cairn_result_memory_finish(struct cairn_result_memory *memory);

#endif
