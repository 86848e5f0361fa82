// FetchRows: rows of a context by position. And the result regions that Retrieve and FetchRows
// write.
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
        RESULT_ALIGN = 64
};

// ---- result regions ----

bool cairn_serve_result(struct cairn_request *request, const Cairn__Region *region, uint64_t bytes,
                        struct cairn_result_memory *ret_memory)
{
        struct cairn_result_memory memory = {.size_bytes = bytes};

        if (region && region->arena != 0) {
                if (region->offset % RESULT_ALIGN != 0) {
                        cairn_request_fail(request, CAIRN_EINVAL,
                                           "result: offset %llu; it must be a multiple of %d",
                                           (unsigned long long)region->offset, RESULT_ALIGN);
                        return false;
                }
                if (region->bytes < bytes) {
                        cairn_request_fail_range(request, bytes);
                        return false;
                }
                if (!cairn_serve_bulk(request, region, NULL, 0, 1, bytes, NULL, 0, &memory.bulk))
                        return false;
                *ret_memory = memory;
                return true;
        }
        if (bytes > CAIRN_PAYLOAD_BYTES_MAX) {
                cairn_request_fail_range(request, bytes);
                return false;
        }
        cairn_request_reserve(request, bytes);
        memory.payload = calloc(1, (bytes + RESULT_ALIGN) & ~(uint64_t)(RESULT_ALIGN - 1));
        if (!memory.payload) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return false;
        }
        memory.bulk = (struct cairn_bulk){.base = memory.payload, .size_bytes = bytes};
        *ret_memory = memory;
        return true;
}

void cairn_result_memory_finish(struct cairn_result_memory *memory)
{
        cairn_bulk_finish(&memory->bulk);
        free(memory->payload);
        memory->payload = NULL;
}

// ---- FetchRows ----

struct rows_op {
        struct cairn_work work;
        struct cairn_request *request;
        struct cairn_context *context;
        struct cairn_context_view view;
        struct cairn_result_memory memory;
        uint32_t row_dtype;
        uint64_t rows; // over all heads
        uint64_t v_at; // offset of the V rows
        uint32_t head; // the next to do
        uint64_t done; // rows done
        int status;
};

static void rows_end(void *arg)
{
        struct rows_op *op = arg;

        cairn_result_memory_finish(&op->memory);
        if (op->context)
                cairn_context_unref(op->context);
}

// One head a slice.
static void run_rows(struct cairn_work *work)
{
        struct rows_op *op = (struct rows_op *)((uint8_t *)work - offsetof(struct rows_op, work));
        const Cairn__FetchRowsRequest *message = op->request->message;
        const struct cairn_space *space = &op->context->entry->space;
        uint64_t element = cairn_dtype_bytes(op->row_dtype);
        uint32_t n_pieces = cairn_context_pieces(&op->view);

        if (message->n_positions == 0) { // nowhere to put them
                op->head = space->kv_heads;
                return;
        }
        struct cairn_landmark_piece *pieces =
            cairn_scorer_scratch((size_t)n_pieces * sizeof(*pieces) + 1);
        uint8_t *k = op->memory.bulk.base + op->done * space->k_dim * element;
        uint8_t *v = op->memory.bulk.base + op->v_at + op->done * space->v_dim * element;

        if (!pieces) {
                op->status = CAIRN_ENOMEM;
                return;
        }
        n_pieces = cairn_context_fill(&op->view, message->layer, op->head, pieces);
        op->status = cairn_landmark_gather(&op->context->entry->layout, pieces, n_pieces,
                                           message->positions + op->done, message->counts[op->head],
                                           op->row_dtype, k, space->v_dim > 0 ? v : NULL);
        op->done += message->counts[op->head];
        op->head++;
}

static void on_rows(struct cairn_work *work)
{
        struct rows_op *op = (struct rows_op *)((uint8_t *)work - offsetof(struct rows_op, work));
        Cairn__FetchRowsReply reply = CAIRN__FETCH_ROWS_REPLY__INIT;
        uint8_t *payload = op->memory.payload;

        if (op->status == CAIRN_OK && op->head < op->context->entry->space.kv_heads) {
                if (!cairn_request_abandoned(op->request) && !cairn_request_late(op->request)) {
                        cairn_scorer_submit(op->request->server->scorer, &op->work);
                        return;
                }
                op->status = CAIRN_EDEADLINE;
        }
        if (op->status != CAIRN_OK) {
                cairn_request_fail(op->request, op->status, NULL);
                return;
        }
        op->request->server->counters.rows_fetched += op->rows;
        reply.result_bytes = op->memory.size_bytes;
        op->memory.payload = NULL;
        if (payload)
                cairn_request_reply_payload(op->request, &reply, payload, op->memory.size_bytes);
        else
                cairn_request_reply(op->request, &reply);
}

// Positions a head: ascending, each a token of the context. False: answered.
static bool check_positions(struct cairn_request *request, const Cairn__FetchRowsRequest *message,
                            uint32_t heads, uint64_t tokens)
{
        uint64_t at = 0;

        if (message->n_counts != heads) {
                cairn_request_fail(request, CAIRN_EINVAL, "counts: %zu; give one a KV head, %u",
                                   message->n_counts, heads);
                return false;
        }
        for (uint32_t head = 0; head < heads; head++) {
                if (message->counts[head] > message->n_positions - at) {
                        cairn_request_fail(request, CAIRN_EINVAL,
                                           "positions: %zu, fewer than the counts add up to",
                                           message->n_positions);
                        return false;
                }
                for (uint32_t i = 0; i < message->counts[head]; i++, at++) {
                        uint32_t position = message->positions[at];

                        if (position < tokens && (i == 0 || message->positions[at - 1] < position))
                                continue;
                        cairn_request_fail_at(request, CAIRN_ERANGE, (uint32_t)at,
                                              "positions[%llu] is %u; they must ascend within a "
                                              "head and stay below %llu",
                                              (unsigned long long)at, position,
                                              (unsigned long long)tokens);
                        return false;
                }
        }
        if (at != message->n_positions) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "positions: %zu, more than the counts add up to",
                                   message->n_positions);
                return false;
        }
        return true;
}

// False: a row was dropped, and that was answered.
static bool check_present(struct cairn_request *request, const Cairn__FetchRowsRequest *message,
                          const struct cairn_context_view *view)
{
        const struct cairn_space_entry *entry = view->context->entry;
        uint64_t at = 0;

        for (uint32_t head = 0; head < entry->space.kv_heads && view->present; head++) {
                const uint64_t *bits =
                    cairn_present_bits(view->present, entry, message->layer, head);

                for (uint32_t i = 0; i < message->counts[head]; i++, at++) {
                        uint32_t position = message->positions[at];

                        if (position >= view->present->end ||
                            (bits[position / 64] >> position % 64 & 1))
                                continue;
                        cairn_request_fail_at(request, CAIRN_ENOENT, (uint32_t)at,
                                              "positions[%llu]: the row of token %u was dropped by "
                                              "a Retain of this context",
                                              (unsigned long long)at, position);
                        return false;
                }
        }
        return true;
}

void cairn_serve_fetch_rows(struct cairn_request *request)
{
        const Cairn__FetchRowsRequest *message = request->message;
        struct cairn_context *context = cairn_serve_context(request, message->context);
        const struct cairn_space *space;
        struct rows_op *op;
        uint64_t element;

        if (!context)
                return;
        space = &context->entry->space;
        op = cairn_request_op(request, sizeof(*op), rows_end);
        if (!op) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->request = request;
        op->row_dtype = message->row_dtype ? (uint32_t)message->row_dtype : space->dtype;
        element = cairn_dtype_bytes(op->row_dtype);
        cairn_context_view(context, &op->view);
        if (element == 0 || message->layer >= space->layers) {
                cairn_request_fail(
                    request, CAIRN_EINVAL,
                    "layer %u of %u, row dtype %u; name a layer and a dtype that are "
                    "there",
                    message->layer, space->layers, op->row_dtype);
                return;
        }
        if (!check_positions(request, message, space->kv_heads, op->view.tokens) ||
            !check_present(request, message, &op->view))
                return;
        op->rows = message->n_positions;
        op->v_at =
            (op->rows * space->k_dim * element + RESULT_ALIGN - 1) & ~(uint64_t)(RESULT_ALIGN - 1);
        if (!cairn_serve_result(request, message->result,
                                op->v_at + op->rows * space->v_dim * element, &op->memory))
                return;
        op->context = context;
        cairn_context_ref(context);
        op->work = (struct cairn_work){.run = run_rows, .on_done = on_rows};
        cairn_scorer_submit(request->server->scorer, &op->work);
}
