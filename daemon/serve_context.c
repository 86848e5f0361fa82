// OpenContext, Fork and CloseContext.
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "daemon/connection.h"
#include "daemon/context.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/status.h"

enum {
        ACQUIRES_AT_ONCE_MAX = 64
};

struct open_op;

struct open_slot {
        struct cairn_acquire acquire;
        struct open_op *op;
        uint32_t index;
};

struct open_op {
        struct cairn_request *request;
        const struct cairn_space_entry *entry;
        struct cairn_block **blocks; // owned until a context takes them
        bool *pinned;                // one a block
        uint32_t count;
        uint32_t held;
        uint32_t counted; // in the server's pin table
        uint32_t next;
        uint32_t running;
        uint32_t parts;
        int status;         // the first that went wrong
        uint32_t bad_index; // and where
        struct open_slot slots[ACQUIRES_AT_ONCE_MAX];
};

// Lets go of all that no context has taken.
static void open_end(void *arg)
{
        struct open_op *op = arg;
        struct cairn_store *store = op->request->server->store;

        for (uint32_t i = 0; op->blocks && i < op->held; i++) {
                if (op->pinned[i])
                        cairn_store_unpin(store, op->blocks[i], op->parts);
                if (i < op->counted)
                        cairn_pin_remove(&op->request->server->pins, op->blocks[i]);
                cairn_store_unhold(store, op->blocks[i]);
        }
        free(op->blocks);
        free(op->pinned);
}

static void fail_open(struct open_op *op)
{
        const char *what = op->status == CAIRN_ENOENT || op->status == CAIRN_ECORRUPT
                               ? "put it again"
                               : cairn_status_remedy(op->status);

        cairn_request_fail_at(op->request, op->status, op->bad_index,
                              "block %u of the chain: %s; %s", op->bad_index,
                              cairn_status_text(op->status), what);
}

static void finish_open(struct open_op *op)
{
        struct cairn_request *request = op->request;
        Cairn__OpenContextReply reply = CAIRN__OPEN_CONTEXT_REPLY__INIT;
        struct cairn_context *context = NULL;
        int status;

        if (op->status == CAIRN_OK && cairn_request_abandoned(request))
                op->status = CAIRN_ECANCELLED;
        if (op->status != CAIRN_OK) {
                fail_open(op);
                return;
        }
        status = cairn_context_create(request->session, op->entry, op->blocks, op->count, op->parts,
                                      &context);
        if (status != CAIRN_OK) {
                cairn_request_fail(request, status,
                                   "a connection may have %d contexts open; close some first",
                                   CAIRN_CONTEXTS_MAX);
                return;
        }
        op->blocks = NULL;
        for (uint32_t i = 0; i < op->count; i++)
                cairn_store_touch(request->server->store, context->chain->blocks[i]);
        reply.context = context->id;
        reply.tokens = (uint64_t)op->count * op->entry->space.block_tokens;
        cairn_request_reply(request, &reply);
}

static void start_acquire(struct open_slot *slot);

static void on_acquired(struct cairn_acquire *acquire, int status)
{
        struct open_slot *slot =
            (struct open_slot *)((uint8_t *)acquire - offsetof(struct open_slot, acquire));
        struct open_op *op = slot->op;

        op->running--;
        if (status == CAIRN_OK)
                op->pinned[slot->index] = true;
        else if (op->status == CAIRN_OK) {
                op->status = status;
                op->bad_index = slot->index;
        }
        if (op->status == CAIRN_OK && op->next < op->count && !cairn_request_abandoned(op->request))
                start_acquire(slot);
        else if (op->running == 0)
                finish_open(op);
}

static void start_acquire(struct open_slot *slot)
{
        struct open_op *op = slot->op;

        slot->index = op->next++;
        slot->acquire = (struct cairn_acquire){
            .on_ready = on_acquired,
            .block = op->blocks[slot->index],
            .parts = op->parts,
            .deadline_ms = op->request->deadline_ms,
        };
        op->running++;
        cairn_store_acquire(op->request->server->store, &slot->acquire);
}

// Holds the whole chain at once, so that no block of it goes while others are read. False:
// answered.
static bool hold_chain(struct open_op *op, const struct cairn_key *keys)
{
        struct cairn_pin_table *pins = &op->request->server->pins;
        uint64_t bytes =
            op->entry->code_bytes + (op->entry->needs_raw ? op->entry->block_bytes : 0);

        for (uint32_t i = 0; i < op->count; i++) {
                op->status = cairn_store_hold(op->request->server->store, op->entry->id, &keys[i],
                                              &op->blocks[i]);
                if (op->status != CAIRN_OK) {
                        op->bad_index = i;
                        fail_open(op);
                        return false;
                }
                op->held++;
                if (cairn_pin_add(pins, op->blocks[i], bytes) != CAIRN_OK) {
                        cairn_request_fail_at(op->request, CAIRN_ENOMEM, i,
                                              "open contexts would keep more than %llu bytes in "
                                              "RAM; close some, or raise ram_bytes",
                                              (unsigned long long)pins->limit_bytes);
                        return false;
                }
                op->counted++;
        }
        return true;
}

void cairn_serve_open_context(struct cairn_request *request)
{
        const Cairn__OpenContextRequest *message = request->message;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        struct open_op *op;
        size_t count;

        if (!cairn_serve_keys(request, message->space, &message->keys, &entry, &keys, &count))
                return;
        if (entry->space.kind != CAIRN_SPACE_ATTENTION) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "an opaque space cannot be searched; open an attention space");
                return;
        }
        op = cairn_request_op(request, sizeof(*op), open_end);
        if (!op) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->request = request;
        op->entry = entry;
        op->count = (uint32_t)count;
        op->parts = (entry->shape.code_layer_bytes > 0 ? CAIRN_PART_CODE : 0u) |
                    (entry->needs_raw ? CAIRN_PART_RAW : 0u);
        op->pinned = calloc(count ? count : 1, sizeof(op->pinned[0]));
        op->blocks = calloc(count ? count : 1, sizeof(op->blocks[0]));
        if (!op->blocks || !op->pinned) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        if (!hold_chain(op, keys))
                return;
        for (size_t i = 0; i < ACQUIRES_AT_ONCE_MAX && op->next < op->count; i++) {
                op->slots[i].op = op;
                start_acquire(&op->slots[i]);
        }
        if (count == 0)
                finish_open(op);
}

void cairn_serve_close_context(struct cairn_request *request)
{
        const Cairn__CloseContextRequest *message = request->message;
        Cairn__CloseContextReply reply = CAIRN__CLOSE_CONTEXT_REPLY__INIT;
        struct cairn_context *context = cairn_serve_context(request, message->context);

        if (!context)
                return;
        cairn_context_close(request->session, context);
        cairn_request_reply(request, &reply);
}

// ---- Fork ----

struct fork_op {
        struct cairn_work work;
        struct cairn_request *request;
        struct cairn_context *from; // in use until the end
        struct cairn_context *to;
        struct cairn_context_view view;
};

static void fork_end(void *arg)
{
        struct fork_op *op = arg;

        if (op->from)
                cairn_context_unref(op->from);
        if (op->to)
                cairn_context_unref(op->to);
}

static void run_fork(struct cairn_work *work)
{
        struct fork_op *op = (struct fork_op *)((uint8_t *)work - offsetof(struct fork_op, work));

        cairn_context_copy_open(&op->view, op->to);
}

static void on_forked(struct cairn_work *work)
{
        struct fork_op *op = (struct fork_op *)((uint8_t *)work - offsetof(struct fork_op, work));
        Cairn__ForkReply reply = CAIRN__FORK_REPLY__INIT;

        reply.context = op->to->id;
        reply.tokens = op->view.tokens;
        cairn_request_reply(op->request, &reply);
}

void cairn_serve_fork(struct cairn_request *request)
{
        const Cairn__ForkRequest *message = request->message;
        struct cairn_context *context = cairn_serve_context(request, message->context);
        struct fork_op *op;
        int status;

        if (!context)
                return;
        op = cairn_request_op(request, sizeof(*op), fork_end);
        if (!op) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->request = request;
        cairn_context_view(context, &op->view);
        status = cairn_context_fork(request->session, &op->view, &op->to);
        if (status != CAIRN_OK) {
                op->to = NULL;
                cairn_request_fail(
                    request, status,
                    status == CAIRN_EBUSY
                        ? "a connection may have %d contexts open; close some first"
                        : "no room for the fork's unfinished block (of %d contexts): "
                          "raise context_bytes, or close contexts",
                    CAIRN_CONTEXTS_MAX);
                return;
        }
        cairn_context_ref(op->to);
        op->from = context;
        cairn_context_ref(context);
        op->work = (struct cairn_work){.run = run_fork, .on_done = on_forked};
        cairn_scorer_submit(request->server->scorer, &op->work);
}

struct cairn_context *cairn_serve_context(struct cairn_request *request, uint64_t id)
{
        struct cairn_context *context = cairn_context_find(request->session, id);

        if (!context)
                cairn_request_fail(
                    request, CAIRN_ESTALE,
                    "context %llu is none of this connection, or was closed; open it "
                    "again",
                    (unsigned long long)id);
        return context;
}
