// Append: rows go from the arena into the context's tail; a block that gets full is encoded.
// Scorers do both; a context's appends follow one another, and count only once they are whole.
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/connection.h"
#include "daemon/context.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/status.h"

enum {
        SLICE_BYTES = 1 << 20
};

struct append_op {
        struct cairn_work work;
        struct cairn_request *request;
        struct append_op *next; // of the context's queue
        struct cairn_context *context;
        struct cairn_bulk source;
        struct cairn_context_view view; // as it was when this append's turn came
        uint32_t tokens;
        uint32_t layer; // the next to do
        int status;
};

static void append_end(void *arg)
{
        struct append_op *op = arg;

        cairn_bulk_finish(&op->source);
        if (op->context)
                cairn_context_unref(op->context);
}

// ---- on a scorer ----

// Copies rows [count][row_bytes] of one head to where the tail's blocks have them: `inside` is the
// offset of the head's rows of this sort in a block.
static void copy_rows(const struct append_op *op, const uint8_t *from, uint64_t inside,
                      uint64_t row_bytes)
{
        uint64_t block_tokens = op->context->entry->space.block_tokens;
        uint64_t at = op->view.tail_tokens;
        uint64_t left = op->tokens;

        while (left > 0 && row_bytes > 0) {
                uint64_t first = at % block_tokens;
                uint64_t count = block_tokens - first < left ? block_tokens - first : left;
                uint8_t *raw = op->view.tail->blocks[at / block_tokens]->raw;

                memcpy(raw + inside + first * row_bytes, from, count * row_bytes);
                from += count * row_bytes;
                at += count;
                left -= count;
        }
}

static int encode_full(const struct append_op *op, uint32_t layer, uint32_t head)
{
        const struct cairn_space_entry *entry = op->context->entry;
        const struct cairn_landmark_layout *layout = &entry->layout;
        uint64_t block_tokens = entry->space.block_tokens;
        uint64_t end = (op->view.tail_tokens + op->tokens) / block_tokens;
        void *scratch;

        if (entry->code_bytes == 0)
                return CAIRN_OK;
        scratch = cairn_scorer_scratch(cairn_landmark_encode_scratch_bytes(layout) + 1);
        if (!scratch)
                return CAIRN_ENOMEM;
        for (uint64_t i = op->view.tail_tokens / block_tokens; i < end; i++) {
                struct cairn_tail_block *block = op->view.tail->blocks[i];
                const uint8_t *rows = block->raw + layer * entry->shape.raw_layer_bytes +
                                      (uint64_t)head * layout->raw_bytes;
                int status =
                    cairn_landmark_encode(layout, rows, rows + layout->raw_k_bytes,
                                          (uint32_t)block_tokens,
                                          block->code + layer * entry->shape.code_layer_bytes +
                                              (uint64_t)head * layout->total_bytes,
                                          scratch);

                if (status != CAIRN_OK)
                        return status;
        }
        return CAIRN_OK;
}

static void run_append(struct cairn_work *work)
{
        struct append_op *op =
            (struct append_op *)((uint8_t *)work - offsetof(struct append_op, work));
        const struct cairn_space_entry *entry = op->context->entry;
        const struct cairn_space *space = &entry->space;
        uint64_t element = cairn_dtype_bytes(space->dtype);
        uint64_t head_bytes = cairn_space_head_bytes(space, op->tokens);
        uint64_t k_bytes = op->tokens * space->k_dim * element;
        uint64_t bytes = 0;

        while (op->status == CAIRN_OK && op->layer < space->layers && bytes < SLICE_BYTES) {
                for (uint32_t head = 0; op->status == CAIRN_OK && head < space->kv_heads; head++) {
                        const uint8_t *from =
                            op->source.base +
                            ((uint64_t)op->layer * space->kv_heads + head) * head_bytes;
                        uint64_t inside = op->layer * entry->shape.raw_layer_bytes +
                                          (uint64_t)head * entry->layout.raw_bytes;

                        copy_rows(op, from, inside, space->k_dim * element);
                        copy_rows(op, from + k_bytes, inside + entry->layout.raw_k_bytes,
                                  space->v_dim * element);
                        op->status = encode_full(op, op->layer, head);
                        bytes += head_bytes;
                }
                op->layer++;
        }
}

// ---- on the loop ----

static void start_next(struct cairn_context *context);

static void finish(struct append_op *op)
{
        struct cairn_context *context = op->context;
        Cairn__AppendReply reply = CAIRN__APPEND_REPLY__INIT;
        struct cairn_context_view view;

        if (op->status == CAIRN_OK)
                context->tail_tokens += op->tokens;
        context->appending = false;
        cairn_context_ref(context); // beyond this request's end
        if (op->status == CAIRN_OK) {
                cairn_context_view(context, &view);
                reply.tokens = view.tokens;
                cairn_request_reply(op->request, &reply);
        } else if (op->status == CAIRN_ENOMEM) {
                cairn_request_fail(op->request, CAIRN_ENOMEM,
                                   "no room to append: raise context_bytes, or close contexts");
        } else {
                cairn_request_fail(op->request, op->status, NULL);
        }
        start_next(context);
        cairn_context_unref(context);
}

static void on_appended(struct cairn_work *work)
{
        struct append_op *op =
            (struct append_op *)((uint8_t *)work - offsetof(struct append_op, work));

        if (op->status == CAIRN_OK && op->layer < op->context->entry->space.layers) {
                if (!cairn_request_abandoned(op->request)) {
                        cairn_scorer_submit(op->request->server->scorer, &op->work);
                        return;
                }
                op->status = CAIRN_ECANCELLED;
        }
        finish(op);
}

// Begins the first append of the queue. Those that fail at once are answered here, one after the
// other.
static void start_next(struct cairn_context *context)
{
        while (context->append_head && !context->appending) {
                struct append_op *op = context->append_head->op;

                context->append_head = op->next ? op->next->request : NULL;
                if (!context->append_head)
                        context->append_tail = NULL;
                if (cairn_request_abandoned(op->request))
                        op->status = CAIRN_ECANCELLED;
                else if (cairn_request_late(op->request))
                        op->status = CAIRN_EDEADLINE;
                else
                        op->status = cairn_context_reserve(context, op->tokens);
                context->appending = true;
                if (op->status != CAIRN_OK) {
                        finish(op);
                        return; // it has gone on with the queue
                }
                cairn_context_view(context, &op->view);
                op->work = (struct cairn_work){.run = run_append, .on_done = on_appended};
                cairn_scorer_submit(op->request->server->scorer, &op->work);
        }
}

void cairn_serve_append(struct cairn_request *request)
{
        const Cairn__AppendRequest *message = request->message;
        struct cairn_context *context = cairn_serve_context(request, message->context);
        struct append_op *op;
        struct append_op *last;
        uint64_t bytes;

        if (!context)
                return;
        if (message->tokens == 0 || message->tokens > CAIRN_APPEND_TOKENS_MAX) {
                cairn_request_fail(request, CAIRN_EINVAL, "tokens: %u; append 1 to %d at once",
                                   message->tokens, CAIRN_APPEND_TOKENS_MAX);
                return;
        }
        op = cairn_request_op(request, sizeof(*op), append_end);
        if (!op) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->request = request;
        op->tokens = message->tokens;
        bytes = cairn_space_head_bytes(&context->entry->space, op->tokens) *
                context->entry->space.kv_heads * context->entry->space.layers;
        if (!cairn_serve_bulk(request, message->source, NULL, 0, 1, bytes, request->payload,
                              request->payload_bytes, &op->source))
                return;
        op->context = context;
        cairn_context_ref(context);
        last = context->append_tail ? context->append_tail->op : NULL;
        if (last)
                last->next = op;
        else
                context->append_head = request;
        context->append_tail = request;
        start_next(context);
}
