// Get: each block is held, brought into RAM by the store, which checks its sums, and copied by a
// scorer. What RAM had already is checked again on the way by random choice (ram_check). Some
// layers of a block that RAM has not are read alone. A bounded number is under way at once: a batch
// larger than the RAM tier flows through it.
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <uv.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/checksum.h"
#include "proto/copy.h"
#include "proto/probe.h"
#include "proto/status.h"

enum {
        BLOCKS_AT_ONCE_MAX = 32,
        SLICE_BYTES = 4 << 20,
        RETRY_MS = 10,
};

struct get_op;

struct get_slot {
        struct cairn_acquire acquire; // of the whole block, or
        struct cairn_range range;     // of its layers alone
        struct cairn_work work;
        struct get_op *op;
        struct cairn_block *block; // held
        size_t index;
        uint32_t layer; // the next to copy, counted from the first asked for
        bool ranged;    // `range` is in use
        bool check;     // its sums are to be taken again
        int status;
        struct get_slot *next_waiting;
};

struct get_op {
        struct cairn_request *request;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        const uint64_t *offsets; // NULL: side by side
        struct cairn_bulk destination;
        uint8_t *payload; // owned: where an answer without an arena is made
        uint64_t item_bytes;
        uint32_t layer_first;
        uint32_t layer_count;
        size_t count;
        size_t next;
        size_t running;
        struct get_slot *waiting; // for RAM
        uv_timer_t *timer;        // fires for them; outlives the op, since closing takes a turn
        int32_t *statuses;
        struct get_slot slots[BLOCKS_AT_ONCE_MAX];
};

static void on_timer_closed(uv_handle_t *handle)
{
        free(handle);
}

static void get_end(void *arg)
{
        struct get_op *op = arg;

        if (op->timer)
                uv_close((uv_handle_t *)op->timer, on_timer_closed);
        cairn_bulk_finish(&op->destination);
        free(op->payload);
        free(op->statuses);
}

static void finish(struct get_op *op)
{
        Cairn__GetReply reply = CAIRN__GET_REPLY__INIT;
        uint8_t *payload = op->payload;

        cairn_stats_add_blocks(op->request->server->counters.get_blocks,
                               &op->request->server->counters.get_bytes, op->statuses, op->count,
                               op->item_bytes);
        CAIRN_PROBE3(get, op->entry->id, op->count, op->item_bytes);
        cairn_stats_get_missed(op->request->server, op->entry->id, op->keys, op->statuses,
                               op->count);
        op->payload = NULL;
        reply.statuses = op->statuses;
        reply.n_statuses = op->count;
        if (payload)
                cairn_request_reply_payload(op->request, &reply, payload,
                                            op->count * op->item_bytes);
        else
                cairn_request_reply(op->request, &reply);
}

// ---- copying, on a scorer ----

// Copies `count` layers from slot->layer on; they lie side by side at both ends.
static void copy_layers(const struct get_slot *slot, uint32_t count, uint8_t *to)
{
        const struct get_op *op = slot->op;
        uint64_t layer_bytes = op->entry->shape.raw_layer_bytes;
        const uint8_t *from = slot->ranged
                                  ? (const uint8_t *)slot->range.bytes + slot->layer * layer_bytes
                                  : cairn_block_raw(slot->block, op->layer_first + slot->layer);

        cairn_copy_past_caches(to, from, count * layer_bytes);
}

// The same, with the checksums of what was copied.
static int check_layers(const struct get_slot *slot, uint32_t count, uint8_t *to)
{
        const struct get_op *op = slot->op;
        uint64_t layer_bytes = op->entry->shape.raw_layer_bytes;

        for (uint32_t i = 0; i < count; i++) {
                uint32_t layer = op->layer_first + slot->layer + i;
                struct cairn_checksum copied;
                struct cairn_checksum stored;

                cairn_block_checksum(slot->block, CAIRN_PART_RAW, layer, stored.bytes);
                cairn_checksum_copy_own(to + i * layer_bytes, cairn_block_raw(slot->block, layer),
                                        layer_bytes, &copied);
                if (!cairn_checksum_equal(&copied, &stored))
                        return CAIRN_ECORRUPT;
        }
        return CAIRN_OK;
}

static void run_copy(struct cairn_work *work)
{
        struct get_slot *slot =
            (struct get_slot *)((uint8_t *)work - offsetof(struct get_slot, work));
        const struct get_op *op = slot->op;
        uint64_t layer_bytes = op->entry->shape.raw_layer_bytes;
        uint64_t at = op->offsets ? op->offsets[slot->index] : slot->index * op->item_bytes;
        uint8_t *to = op->destination.base + at + slot->layer * layer_bytes;
        uint64_t slice = layer_bytes < SLICE_BYTES ? SLICE_BYTES / layer_bytes : 1;
        uint32_t left = op->layer_count - slot->layer;
        uint32_t count = slice < left ? (uint32_t)slice : left;

        if (slot->check)
                slot->status = check_layers(slot, count, to);
        else
                copy_layers(slot, count, to);
        slot->layer += count;
}

// ---- one block after the other, on the loop ----

static void start_blocks(struct get_op *op, struct get_slot *slot);

static void block_done(struct get_slot *slot, int status)
{
        struct get_op *op = slot->op;

        cairn_store_unhold(op->request->server->store, slot->block);
        slot->block = NULL;
        assert(op->running > 0);
        op->running--;
        op->statuses[slot->index] = status;
        start_blocks(op, slot);
        if (op->next == op->count && op->running == 0)
                finish(op);
}

static void on_copied(struct cairn_work *work)
{
        struct get_slot *slot =
            (struct get_slot *)((uint8_t *)work - offsetof(struct get_slot, work));
        struct cairn_server *server = slot->op->request->server;

        if (slot->status == CAIRN_OK && slot->layer < slot->op->layer_count &&
            !cairn_request_abandoned(slot->op->request)) {
                cairn_scorer_submit(server->scorer, &slot->work);
                return;
        }
        if (slot->status == CAIRN_OK && slot->layer < slot->op->layer_count)
                slot->status = CAIRN_ECANCELLED;
        if (slot->status == CAIRN_ECORRUPT) {
                slot->check = false; // the next copy is checked as it comes from NVMe
                slot->status =
                    cairn_store_drop_corrupt_copy(server->store, slot->block, CAIRN_PART_RAW);
                if (slot->status == CAIRN_OK)
                        cairn_store_acquire(server->store, &slot->acquire);
                else
                        block_done(slot, CAIRN_ECORRUPT);
                return;
        }
        cairn_store_touch(server->store, slot->block);
        if (slot->ranged)
                cairn_store_range_release(server->store, &slot->range);
        else
                cairn_store_unpin(server->store, slot->block, CAIRN_PART_RAW);
        block_done(slot, slot->status);
}

static void read_block(struct get_slot *slot)
{
        struct cairn_store *store = slot->op->request->server->store;

        if (slot->ranged)
                cairn_store_range_read(store, &slot->range);
        else
                cairn_store_acquire(store, &slot->acquire);
}

static void on_retry(uv_timer_t *timer)
{
        struct get_op *op = timer->data;
        struct get_slot *slot = op->waiting;

        op->waiting = NULL;
        while (slot) {
                struct get_slot *next = slot->next_waiting;

                read_block(slot);
                slot = next;
        }
}

// RAM is full of what others pin: waits a little and tries again. False: cannot, or enough.
static bool wait_for_memory(struct get_slot *slot)
{
        struct get_op *op = slot->op;
        struct cairn_server *server = op->request->server;

        if (cairn_request_abandoned(op->request) || cairn_request_late(op->request))
                return false;
        if (!op->timer) {
                op->timer = calloc(1, sizeof(*op->timer));
                if (!op->timer)
                        return false;
                (void)uv_timer_init(&server->loop, op->timer); // cannot fail
                op->timer->data = op;
        }
        slot->next_waiting = op->waiting;
        op->waiting = slot;
        if (!uv_is_active((uv_handle_t *)op->timer))
                (void)uv_timer_start(op->timer, on_retry, RETRY_MS, 0);
        return true;
}

static void ready(struct get_slot *slot, int status)
{
        if (status == CAIRN_ENOMEM && wait_for_memory(slot))
                return;
        if (status != CAIRN_OK) {
                block_done(slot, status);
                return;
        }
        slot->layer = 0;
        slot->status = CAIRN_OK;
        slot->work = (struct cairn_work){.run = run_copy, .on_done = on_copied};
        cairn_scorer_submit(slot->op->request->server->scorer, &slot->work);
}

static void on_ready(struct cairn_acquire *acquire, int status)
{
        ready((struct get_slot *)((uint8_t *)acquire - offsetof(struct get_slot, acquire)), status);
}

static void on_range_ready(struct cairn_range *range, int status)
{
        ready((struct get_slot *)((uint8_t *)range - offsetof(struct get_slot, range)), status);
}

bool cairn_serve_ram_check(struct cairn_server *server)
{
        uint64_t one_of = server->config->ram_check;
        uint64_t state = server->check_state ? server->check_state : server->incarnation;
        bool check;

        if (one_of == 0)
                return false;
        state ^= state << 13; // xorshift
        state ^= state >> 7;
        state ^= state << 17;
        server->check_state = state;
        check = (state >> 16) % one_of == 0;
        server->counters.ram_checks += check;
        return check;
}

// Fills the slot for a held block. Some layers of what RAM has not are read alone, unless they are
// most of it.
static void begin_block(struct get_op *op, struct get_slot *slot, struct cairn_block *block,
                        size_t index)
{
        bool in_ram = cairn_block_tier(block) == CAIRN_TIER_RAM;

        slot->op = op;
        slot->block = block;
        slot->index = index;
        slot->ranged = !in_ram && 2 * op->layer_count <= op->entry->shape.layers;
        slot->check = in_ram && cairn_serve_ram_check(op->request->server);
        slot->acquire = (struct cairn_acquire){.on_ready = on_ready,
                                               .block = block,
                                               .parts = CAIRN_PART_RAW,
                                               .deadline_ms = op->request->deadline_ms};
        slot->range = (struct cairn_range){.on_ready = on_range_ready,
                                           .block = block,
                                           .part = CAIRN_PART_RAW,
                                           .first = op->layer_first,
                                           .count = op->layer_count,
                                           .deadline_ms = op->request->deadline_ms};
        op->running++;
        read_block(slot);
}

// Starts the next block in the slot; misses are answered at once, so this goes on to the first that
// is there.
static void start_blocks(struct get_op *op, struct get_slot *slot)
{
        struct cairn_store *store = op->request->server->store;

        while (op->next < op->count) {
                size_t index = op->next++;
                struct cairn_block *block;
                int status = CAIRN_OK;

                if (cairn_request_abandoned(op->request))
                        status = CAIRN_ECANCELLED;
                else if (cairn_request_late(op->request))
                        status = CAIRN_EDEADLINE;
                else
                        status = cairn_store_hold(store, op->entry->id, &op->keys[index], &block);
                if (status != CAIRN_OK) {
                        op->statuses[index] = status;
                        continue;
                }
                begin_block(op, slot, block, index);
                return;
        }
}

// ---- the request ----

bool cairn_serve_layers(struct cairn_request *request, const struct cairn_space_entry *entry,
                        uint32_t *ret_first, uint32_t *ret_count)
{
        const Cairn__GetRequest *message = request->message;
        uint32_t layers = entry->shape.layers;
        uint32_t first = message->layer_first;
        uint32_t count = message->layer_count;

        if (count == 0 && first < layers)
                count = layers - first;
        if (first >= layers || count > layers - first) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "layers: %u from %u on, and the space has %u; name layers "
                                   "inside",
                                   message->layer_count, first, layers);
                return false;
        }
        *ret_first = first;
        *ret_count = count;
        return true;
}

// An answer without an arena is made in memory of its own. False: answered.
static bool take_destination(struct get_op *op, const Cairn__GetRequest *message)
{
        const Cairn__Region *region = message->destination;
        bool in_arena = region && region->arena != 0;
        uint64_t total = 0;

        if (!in_arena) {
                if (message->n_offsets > 0 || (region && region->offset != 0)) {
                        cairn_request_fail(op->request, CAIRN_EINVAL,
                                           "offsets need an arena; leave them out, or name one");
                        return false;
                }
                if (op->count > 0 && op->item_bytes > CAIRN_PAYLOAD_BYTES_MAX / op->count) {
                        cairn_request_fail_range(op->request, op->count * op->item_bytes);
                        return false;
                }
                total = op->count * op->item_bytes;
                cairn_request_reserve(op->request, total);
                op->payload = calloc(1, total ? total : 1); // what a miss leaves out is zeros
                if (!op->payload) {
                        cairn_request_fail(op->request, CAIRN_ENOMEM, NULL);
                        return false;
                }
                op->destination = (struct cairn_bulk){.base = op->payload, .size_bytes = total};
                return true;
        }
        op->offsets = message->n_offsets ? message->offsets : NULL;
        return cairn_serve_bulk(op->request, region, message->offsets, message->n_offsets,
                                op->count, op->item_bytes, NULL, 0, &op->destination);
}

void cairn_serve_get(struct cairn_request *request)
{
        const Cairn__GetRequest *message = request->message;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        struct get_op *op;
        size_t count;

        if (message->view) {
                cairn_serve_view(request);
                return;
        }
        if (!cairn_serve_keys(request, message->space, &message->keys, &entry, &keys, &count))
                return;
        if (message->lease != 0 &&
            !cairn_lease_find(&request->session->leases, message->lease, cairn_clock_ms())) {
                cairn_request_fail(request, CAIRN_ESTALE,
                                   "lease %llu is none of this connection, or has ended; look up "
                                   "again",
                                   (unsigned long long)message->lease);
                return;
        }
        op = cairn_request_op(request, sizeof(*op), get_end);
        if (op)
                op->statuses = calloc(count ? count : 1, sizeof(op->statuses[0]));
        if (!op || !op->statuses) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->request = request;
        op->entry = entry;
        op->keys = keys;
        op->count = count;
        if (!cairn_serve_layers(request, entry, &op->layer_first, &op->layer_count))
                return;
        op->item_bytes = op->layer_count * entry->shape.raw_layer_bytes;
        if (!take_destination(op, message))
                return;
        for (size_t i = 0; i < BLOCKS_AT_ONCE_MAX && op->next < count; i++)
                start_blocks(op, &op->slots[i]);
        if (op->running == 0)
                finish(op);
}
