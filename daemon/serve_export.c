// ExportLandmarks: what a (context, layer) is found by, copied to the worker, who then scores by
// itself and asks for rows by FetchRows.
#include <stddef.h>

#include "daemon/connection.h"
#include "daemon/context.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "policy/landmark/export.h"
#include "proto/status.h"

struct export_op {
        struct cairn_work work;
        struct cairn_request *request;
        struct cairn_context *context;
        struct cairn_context_view view;
        struct cairn_landmark_export plan;
        struct cairn_result_memory memory;
        uint32_t head; // the next to do
        int status;
};

static void export_end(void *arg)
{
        struct export_op *op = arg;

        cairn_result_memory_finish(&op->memory);
        if (op->context)
                cairn_context_unref(op->context);
}

// One head a slice.
static void run_export(struct cairn_work *work)
{
        struct export_op *op =
            (struct export_op *)((uint8_t *)work - offsetof(struct export_op, work));
        const Cairn__ExportLandmarksRequest *message = op->request->message;
        const struct cairn_space_entry *entry = op->context->entry;
        uint32_t n_pieces = cairn_context_pieces(&op->view);
        struct cairn_landmark_piece *pieces =
            cairn_scorer_scratch((size_t)n_pieces * sizeof(*pieces) + 1);

        if (!pieces) {
                op->status = CAIRN_ENOMEM;
                return;
        }
        if (op->head == 0)
                cairn_landmark_export_header(&entry->layout, &op->plan, op->memory.bulk.base);
        n_pieces = cairn_context_fill(&op->view, message->layer, op->head, pieces);
        cairn_landmark_export_head(
            &entry->layout, &op->plan, op->head, pieces, n_pieces,
            cairn_present_bits(op->view.present, entry, message->layer, op->head),
            op->view.present ? op->view.present->end : 0, op->memory.bulk.base);
        op->head++;
}

static void on_export(struct cairn_work *work)
{
        struct export_op *op =
            (struct export_op *)((uint8_t *)work - offsetof(struct export_op, work));
        Cairn__ExportLandmarksReply reply = CAIRN__EXPORT_LANDMARKS_REPLY__INIT;
        uint8_t *payload = op->memory.payload;

        if (op->status == CAIRN_OK && op->head < op->plan.kv_heads) {
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
        reply.result_bytes = op->plan.total_bytes;
        op->memory.payload = NULL;
        if (payload)
                cairn_request_reply_payload(op->request, &reply, payload, op->memory.size_bytes);
        else
                cairn_request_reply(op->request, &reply);
}

void cairn_serve_export_landmarks(struct cairn_request *request)
{
        const Cairn__ExportLandmarksRequest *message = request->message;
        struct cairn_context *context = cairn_serve_context(request, message->context);
        Cairn__ExportLandmarksReply size = CAIRN__EXPORT_LANDMARKS_REPLY__INIT;
        struct export_op *op;

        if (!context)
                return;
        op = cairn_request_op(request, sizeof(*op), export_end);
        if (!op) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->request = request;
        cairn_context_view(context, &op->view);
        if (message->layer >= context->entry->space.layers) {
                cairn_request_fail(request, CAIRN_EINVAL, "layer %u; the space has %u",
                                   message->layer, context->entry->space.layers);
                return;
        }
        if (cairn_landmark_export_plan(&context->entry->layout, context->entry->space.kv_heads,
                                       op->view.tokens, &op->plan) != CAIRN_OK) {
                cairn_request_fail(request, CAIRN_EUNSUPPORTED,
                                   "the space has no landmarks (landmark_bits 0); its keys are "
                                   "the rows, which FetchRows returns");
                return;
        }
        if (!message->result) {
                size.result_bytes = op->plan.total_bytes;
                cairn_request_reply(request, &size);
                return;
        }
        if (!cairn_serve_result(request, message->result, op->plan.total_bytes, &op->memory))
                return;
        op->context = context;
        cairn_context_ref(context);
        op->work = (struct cairn_work){.run = run_export, .on_done = on_export};
        cairn_scorer_submit(request->server->scorer, &op->work);
}
