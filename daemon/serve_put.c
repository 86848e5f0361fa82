// Put and Seal: for each key, room in the store, then the bytes copied, summed and encoded by
// scorers, then the commit. A bounded number of blocks is under way at once, so that any batch
// flows through any RAM tier.
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/connection.h"
#include "daemon/context.h"
#include "daemon/quota.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/checksum.h"
#include "proto/probe.h"
#include "proto/status.h"

enum {
        BLOCKS_AT_ONCE_MAX = 32,
        SLICE_BYTES = 1 << 20, // raw bytes that a scorer takes before others get their turn
};

struct put_op;

// One block under way.
struct put_slot {
        struct cairn_put_begin begin;
        struct cairn_work work;
        struct put_op *op;
        struct cairn_put *put;
        size_t index;
        uint32_t layer; // the next to fill
        int status;     // of the filling
};

struct put_op {
        struct cairn_request *request;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        const struct cairn_key *parents; // one a key, or NULL: a chain
        struct cairn_key first_parent;
        const uint64_t *offsets; // NULL: side by side
        struct cairn_bulk source;
        struct cairn_context *context; // Seal: in use until the end, and its tail is the source
        struct cairn_context_view view;
        enum cairn_ack ack;
        uint64_t recompute_us;
        uint64_t ttl_ms;
        size_t count;
        size_t next;
        size_t running;
        int32_t *statuses;
        char why[CAIRN_TEXT_BYTES_MAX]; // there was no room; "": nothing is known
        struct put_slot slots[BLOCKS_AT_ONCE_MAX];
};

static void put_end(void *arg)
{
        struct put_op *op = arg;

        cairn_bulk_finish(&op->source);
        if (op->context)
                cairn_context_unref(op->context);
        free(op->statuses);
}

static void finish_seal(struct put_op *op)
{
        Cairn__SealReply reply = CAIRN__SEAL_REPLY__INIT;

        for (size_t i = 0; i < op->count; i++)
                reply.sealed += op->statuses[i] == CAIRN_OK || op->statuses[i] == CAIRN_EEXIST;
        reply.statuses = op->statuses;
        reply.n_statuses = op->count;
        cairn_request_reply(op->request, &reply);
}

// What can be said of the first put that found no room: the store's own words, else holds.
static void explain_refusal(struct put_op *op, int status)
{
        struct cairn_server *server = op->request->server;
        const char *text;

        if (status != CAIRN_ENOSPC || op->why[0] != '\0')
                return;
        text = cairn_store_refusal(server->store);
        if (text)
                (void)snprintf(op->why, sizeof(op->why), "%s", text); // of the same size
        else
                cairn_quota_explain_holds(server, op->why);
}

static void finish(struct put_op *op)
{
        Cairn__PutReply reply = CAIRN__PUT_REPLY__INIT;
        struct cairn_counters *counters = &op->request->server->counters;

        CAIRN_PROBE3(put, op->entry->id, op->count, op->entry->block_bytes);
        cairn_stats_add_blocks(counters->put_blocks, &counters->put_bytes, op->statuses, op->count,
                               op->entry->block_bytes);
        if (op->context) {
                finish_seal(op);
                return;
        }
        reply.statuses = op->statuses;
        reply.n_statuses = op->count;
        if (op->why[0] != '\0')
                reply.text = op->why;
        cairn_request_reply(op->request, &reply);
}

// ---- filling, on a scorer ----

// Codes come from the copy, never from the arena: the worker may be writing there.
static int fill_code(const struct put_op *op, const uint8_t *raw, uint8_t *code)
{
        const struct cairn_landmark_layout *layout = &op->entry->layout;
        uint64_t v_offset = layout->raw_k_bytes;
        void *scratch = cairn_scorer_scratch(cairn_landmark_encode_scratch_bytes(layout) + 1);

        if (!scratch)
                return CAIRN_ENOMEM;
        for (uint32_t head = 0; head < op->entry->space.kv_heads; head++) {
                const uint8_t *rows = raw + (uint64_t)head * layout->raw_bytes;
                int status =
                    cairn_landmark_encode(layout, rows, rows + v_offset, layout->shape.block_tokens,
                                          code + (uint64_t)head * layout->total_bytes, scratch);

                if (status != CAIRN_OK)
                        return status;
        }
        return CAIRN_OK;
}

// Where layer `layer` of the slot's block comes from.
static const uint8_t *source_of(const struct put_slot *slot, uint32_t layer)
{
        const struct put_op *op = slot->op;
        uint64_t inside = layer * op->entry->shape.raw_layer_bytes;

        if (op->context)
                return op->view.tail->blocks[slot->index]->raw + inside;
        if (op->offsets)
                return op->source.base + op->offsets[slot->index] + inside;
        return op->source.base + slot->index * op->entry->block_bytes + inside;
}

static int fill_layer(struct put_slot *slot, uint32_t layer)
{
        const struct put_op *op = slot->op;
        const struct cairn_block_shape *shape = &op->entry->shape;
        uint8_t *raw = cairn_put_raw(slot->put, layer);
        struct cairn_checksum checksum;
        uint8_t *code;
        int status = CAIRN_OK;

        cairn_checksum_copy(raw, source_of(slot, layer), shape->raw_layer_bytes, &checksum);
        cairn_put_seal_with(slot->put, CAIRN_PART_RAW, layer, checksum.bytes);
        code = shape->code_layer_bytes > 0 ? cairn_put_code(slot->put, layer) : NULL;
        if (!code)
                return CAIRN_OK;
        if (op->context) // the append has made it already
                memcpy(code,
                       op->view.tail->blocks[slot->index]->code + layer * shape->code_layer_bytes,
                       shape->code_layer_bytes);
        else
                status = fill_code(op, raw, code);
        if (status == CAIRN_OK)
                cairn_put_seal(slot->put, CAIRN_PART_CODE, layer);
        return status;
}

static void run_fill(struct cairn_work *work)
{
        struct put_slot *slot =
            (struct put_slot *)((uint8_t *)work - offsetof(struct put_slot, work));
        const struct cairn_block_shape *shape = &slot->op->entry->shape;
        uint64_t bytes = 0;

        while (slot->status == CAIRN_OK && slot->layer < shape->layers && bytes < SLICE_BYTES) {
                slot->status = fill_layer(slot, slot->layer);
                slot->layer++;
                bytes += shape->raw_layer_bytes;
        }
}

// ---- one block after the other, on the loop ----

static void start_block(struct put_slot *slot);

static void block_done(struct put_slot *slot, int status)
{
        struct put_op *op = slot->op;

        assert(op->running > 0);
        op->running--;
        op->statuses[slot->index] = status;
        explain_refusal(op, status);
        slot->put = NULL;
        // Nobody waits, or it is too late: what has not begun does not begin.
        while (op->next < op->count &&
               (cairn_request_abandoned(op->request) || cairn_request_late(op->request)))
                op->statuses[op->next++] =
                    cairn_request_abandoned(op->request) ? CAIRN_ECANCELLED : CAIRN_EDEADLINE;
        if (op->next < op->count)
                start_block(slot);
        else if (op->running == 0)
                finish(op);
}

static void on_committed(void *arg, int status)
{
        block_done(arg, status);
}

static void on_filled(struct cairn_work *work)
{
        struct put_slot *slot =
            (struct put_slot *)((uint8_t *)work - offsetof(struct put_slot, work));
        struct cairn_server *server = slot->op->request->server;

        if (slot->status == CAIRN_OK && slot->layer < slot->op->entry->shape.layers) {
                cairn_scorer_submit(server->scorer, &slot->work);
                return;
        }
        if (slot->status == CAIRN_OK) {
                cairn_store_put_commit(server->store, slot->put, on_committed, slot);
                return;
        }
        cairn_store_put_abort(server->store, slot->put);
        block_done(slot, slot->status);
}

static void on_begun(struct cairn_put_begin *begin, int status, struct cairn_put *put)
{
        struct put_slot *slot =
            (struct put_slot *)((uint8_t *)begin - offsetof(struct put_slot, begin));

        if (status != CAIRN_OK) {
                block_done(slot, status);
                return;
        }
        slot->put = put;
        slot->layer = 0;
        slot->status = CAIRN_OK;
        slot->work = (struct cairn_work){.run = run_fill, .on_done = on_filled};
        cairn_scorer_submit(slot->op->request->server->scorer, &slot->work);
}

static void start_block(struct put_slot *slot)
{
        struct put_op *op = slot->op;
        bool durable =
            op->ack == CAIRN_ACK_DISK || op->request->server->config->ack == CAIRN_ACK_DISK;

        slot->index = op->next++;
        op->running++;
        slot->begin = (struct cairn_put_begin){
            .on_begun = on_begun,
            .space = op->entry->id,
            .tenant = op->request->session->tenant,
            .key = op->keys[slot->index],
            .ack = durable ? CAIRN_ACK_DISK : CAIRN_ACK_MEMORY,
            .recompute_us = op->recompute_us,
            .ttl_ms = op->ttl_ms,
            .deadline_ms = op->request->deadline_ms,
            .request = op->request->id,
            .connection = op->request->session->connection,
        };
        if (op->parents)
                slot->begin.parent = op->parents[slot->index];
        else
                slot->begin.parent =
                    slot->index == 0 ? op->first_parent : op->keys[slot->index - 1];
        cairn_store_put_begin(op->request->server->store, &slot->begin);
}

// False: answered.
static bool take_parents(struct put_op *op, const Cairn__PutRequest *message)
{
        size_t count = 0;

        if (message->parents.len == 0 && message->parent.len == 0)
                return true;
        if (message->parents.len == 0 && message->parent.len == sizeof(op->first_parent)) {
                memcpy(&op->first_parent, message->parent.data, sizeof(op->first_parent));
                return true;
        }
        if (message->parent.len == 0 &&
            cairn_codec_keys(&message->parents, &op->parents, &count) == CAIRN_OK &&
            count == op->count)
                return true;
        cairn_request_fail(
            op->request, CAIRN_EINVAL,
            "parents: give one of 32 bytes for the first key, or one a key, not both");
        return false;
}

// An op with room for count statuses. NULL: answered.
static struct put_op *new_op(struct cairn_request *request, const struct cairn_space_entry *entry,
                             const struct cairn_key *keys, size_t count)
{
        struct put_op *op = cairn_request_op(request, sizeof(*op), put_end);

        if (op)
                op->statuses = calloc(count ? count : 1, sizeof(op->statuses[0]));
        if (!op || !op->statuses) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return NULL;
        }
        op->request = request;
        op->entry = entry;
        op->keys = keys;
        op->count = count;
        return op;
}

static void start(struct put_op *op)
{
        size_t count = op->count; // the last block may end the op

        for (size_t i = 0; i < BLOCKS_AT_ONCE_MAX && i < count; i++) {
                op->slots[i].op = op;
                start_block(&op->slots[i]);
        }
        if (count == 0)
                finish(op);
}

void cairn_serve_put(struct cairn_request *request)
{
        const Cairn__PutRequest *message = request->message;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        struct put_op *op;
        size_t count;

        if (!cairn_serve_keys(request, message->space, &message->keys, &entry, &keys, &count))
                return;
        op = new_op(request, entry, keys, count);
        if (!op || !take_parents(op, message) ||
            !cairn_serve_bulk(request, message->source, message->offsets, message->n_offsets, count,
                              entry->block_bytes, request->payload, request->payload_bytes,
                              &op->source))
                return;
        op->offsets = message->n_offsets ? message->offsets : NULL;
        op->ack = message->ack == CAIRN__ACK__ACK_DISK ? CAIRN_ACK_DISK : CAIRN_ACK_MEMORY;
        op->recompute_us = message->recompute_us;
        op->ttl_ms = message->ttl_ms;
        start(op);
}

// ---- Seal ----

// The parent of the tail's first block: as said, else the chain's last. False: answered.
static bool take_tail_parent(struct put_op *op, const Cairn__SealRequest *message)
{
        const struct cairn_chain *chain = op->context->chain;

        if (message->parent.len != 0 && message->parent.len != sizeof(op->first_parent)) {
                cairn_request_fail(op->request, CAIRN_EINVAL,
                                   "parent: %zu bytes; give 32, or none for the chain's last block",
                                   message->parent.len);
                return false;
        }
        if (message->parent.len != 0)
                memcpy(&op->first_parent, message->parent.data, sizeof(op->first_parent));
        else if (chain->count > 0)
                op->first_parent = *cairn_block_key(chain->blocks[chain->count - 1]);
        return true;
}

// Full tail blocks become stored blocks: a Put whose bytes and codes are here already. The context
// goes on as before.
void cairn_serve_seal(struct cairn_request *request)
{
        const Cairn__SealRequest *message = request->message;
        struct cairn_context *context = cairn_serve_context(request, message->context);
        const struct cairn_key *keys;
        struct put_op *op;
        size_t count;
        uint64_t full;

        if (!context)
                return;
        if (cairn_codec_keys(&message->keys, &keys, &count) != CAIRN_OK) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "keys: %zu bytes; give 32 a key and at most %d keys",
                                   message->keys.len, CAIRN_KEYS_MAX);
                return;
        }
        full = context->tail_tokens / context->entry->space.block_tokens;
        if (count > full) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "keys: %zu, and the tail has %llu full blocks; append first, or "
                                   "name fewer",
                                   count, (unsigned long long)full);
                return;
        }
        op = new_op(request, context->entry, keys, count);
        if (!op)
                return;
        op->context = context;
        cairn_context_ref(context);
        cairn_context_view(context, &op->view);
        if (take_tail_parent(op, message))
                start(op);
}
