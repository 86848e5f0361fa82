// Pin, Unpin, Prefetch.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/status.h"

enum {
        BLOCKS_AT_ONCE_MAX = 32
};

// ---- Pin and Unpin ----

struct statuses_op {
        int32_t *statuses;
};

static void statuses_end(void *arg)
{
        struct statuses_op *op = arg;

        free(op->statuses);
}

// One status a key. NULL: answered.
static int32_t *statuses_of(struct cairn_request *request, size_t count)
{
        struct statuses_op *op = cairn_request_op(request, sizeof(*op), statuses_end);

        if (op)
                op->statuses = calloc(count ? count : 1, sizeof(op->statuses[0]));
        if (op && op->statuses)
                return op->statuses;
        cairn_request_fail(request, CAIRN_ENOMEM, NULL);
        return NULL;
}

static bool owner_fits(struct cairn_request *request, const char *owner)
{
        if (strlen(owner) <= CAIRN_NAME_BYTES_MAX)
                return true;
        cairn_request_fail(request, CAIRN_EINVAL, "owner: %zu bytes; up to %d", strlen(owner),
                           CAIRN_NAME_BYTES_MAX);
        return false;
}

void cairn_serve_pin(struct cairn_request *request)
{
        const Cairn__PinRequest *message = request->message;
        struct cairn_server *server = request->server;
        Cairn__PinReply reply = CAIRN__PIN_REPLY__INIT;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        uint64_t now_ms = cairn_clock_ms();
        uint64_t deadline_ms = UINT64_MAX;
        size_t count;

        if (!cairn_serve_keys(request, message->space, &message->keys, &entry, &keys, &count) ||
            !owner_fits(request, message->owner))
                return;
        reply.n_statuses = count;
        reply.statuses = statuses_of(request, count);
        if (!reply.statuses)
                return;
        if (message->deadline_ms > 0 && message->deadline_ms < UINT64_MAX - now_ms)
                deadline_ms = now_ms + message->deadline_ms;
        for (size_t i = 0; i < count; i++) {
                struct cairn_block_pin_id id = {entry->id, request->session->tenant, &keys[i],
                                                message->owner};
                struct cairn_block *block;

                reply.statuses[i] = cairn_store_hold(server->store, entry->id, &keys[i], &block);
                if (reply.statuses[i] != CAIRN_OK)
                        continue;
                reply.statuses[i] = cairn_block_pins_add(&server->block_pins, &id,
                                                         message->hard ? NULL : request->session,
                                                         deadline_ms, block);
                if (reply.statuses[i] == CAIRN_OK)
                        server->counters.block_pins++;
                else
                        cairn_store_unhold(server->store, block);
        }
        cairn_request_reply(request, &reply);
}

void cairn_serve_unpin(struct cairn_request *request)
{
        const Cairn__UnpinRequest *message = request->message;
        Cairn__UnpinReply reply = CAIRN__UNPIN_REPLY__INIT;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        size_t count;

        if (!cairn_serve_keys(request, message->space, &message->keys, &entry, &keys, &count) ||
            !owner_fits(request, message->owner))
                return;
        reply.n_statuses = count;
        reply.statuses = statuses_of(request, count);
        if (!reply.statuses)
                return;
        for (size_t i = 0; i < count; i++) {
                struct cairn_block_pin_id id = {entry->id, request->session->tenant, &keys[i],
                                                message->owner};

                reply.statuses[i] = cairn_block_pins_remove(&request->server->block_pins, &id);
        }
        cairn_request_reply(request, &reply);
}

// ---- Prefetch ----

struct prefetch_op;

struct prefetch_slot {
        struct cairn_acquire acquire;
        struct prefetch_op *op;
};

struct prefetch_op {
        struct cairn_request *request;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        size_t count;
        size_t next;
        size_t running;
        uint32_t loaded;
        bool full; // RAM is: what is left would only push out what came before
        struct prefetch_slot slots[BLOCKS_AT_ONCE_MAX];
};

static void prefetch_next(struct prefetch_slot *slot);

static void on_prefetched(struct cairn_acquire *acquire, int status)
{
        struct prefetch_slot *slot =
            (struct prefetch_slot *)((uint8_t *)acquire - offsetof(struct prefetch_slot, acquire));
        struct prefetch_op *op = slot->op;
        struct cairn_store *store = op->request->server->store;
        Cairn__PrefetchReply reply = CAIRN__PREFETCH_REPLY__INIT;

        op->running--;
        if (status == CAIRN_OK) {
                op->loaded++;
                cairn_store_unpin(store, acquire->block, acquire->parts);
        }
        op->full |= status == CAIRN_ENOMEM;
        cairn_store_unhold(store, acquire->block);
        if (!op->full && !cairn_request_abandoned(op->request) && !cairn_request_late(op->request))
                prefetch_next(slot);
        if (op->running > 0)
                return;
        reply.loaded = op->loaded;
        cairn_request_reply(op->request, &reply);
}

// The next block that is there, if any.
static void prefetch_next(struct prefetch_slot *slot)
{
        struct prefetch_op *op = slot->op;
        struct cairn_store *store = op->request->server->store;
        struct cairn_block *block;

        while (op->next < op->count) {
                if (cairn_store_hold(store, op->entry->id, &op->keys[op->next++], &block) !=
                    CAIRN_OK)
                        continue;
                slot->acquire = (struct cairn_acquire){
                    .on_ready = on_prefetched,
                    .block = block,
                    .parts = CAIRN_PART_RAW |
                             (op->entry->shape.code_layer_bytes > 0 ? CAIRN_PART_CODE : 0),
                    .deadline_ms = op->request->deadline_ms,
                };
                op->running++;
                cairn_store_acquire(store, &slot->acquire);
                return;
        }
}

void cairn_serve_prefetch(struct cairn_request *request)
{
        const Cairn__PrefetchRequest *message = request->message;
        Cairn__PrefetchReply reply = CAIRN__PREFETCH_REPLY__INIT;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        struct prefetch_op *op;
        size_t count;

        if (!cairn_serve_keys(request, message->space, &message->keys, &entry, &keys, &count))
                return;
        op = cairn_request_op(request, sizeof(*op), NULL);
        if (!op) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->request = request;
        op->entry = entry;
        op->keys = keys;
        op->count = count;
        for (size_t i = 0; i < BLOCKS_AT_ONCE_MAX; i++) {
                op->slots[i].op = op;
                prefetch_next(&op->slots[i]);
        }
        if (op->running == 0)
                cairn_request_reply(request, &reply);
}
