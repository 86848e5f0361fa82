// ExportLandmarks: what a layer of a context is found by.
#include "client/src/client.h"

#include <string.h>

static int decode_export(struct cairn_client *client, struct cairn_client_request *request,
                         const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__ExportLandmarksReply *reply = message;
        uint8_t *result = request->outputs.fetch.result;

        (void)client;
        if (result && (reply->result_bytes > request->outputs.fetch.result_bytes ||
                       (request->outputs.fetch.inlined && payload_bytes != reply->result_bytes)))
                return CAIRN_EPROTO;
        if (result && request->outputs.fetch.inlined)
                memcpy(result, payload, payload_bytes);
        *request->outputs.fetch.ret_bytes = reply->result_bytes;
        return CAIRN_OK;
}

int cairn_export_landmarks(struct cairn_client *client, struct cairn_call *call,
                           const struct cairn_context *context, uint32_t layer, void *result,
                           uint64_t result_bytes, uint64_t *ret_bytes)
{
        Cairn__ExportLandmarksRequest message = CAIRN__EXPORT_LANDMARKS_REQUEST__INIT;
        Cairn__Region region;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_EXPORT_LANDMARKS,
            .message = &message,
            .decode = decode_export,
        };
        struct cairn_arena *arena =
            result ? cairn_client_arena_of(client, result, result_bytes) : NULL;
        int status = cairn_client_ready(client);

        if (status == CAIRN_OK)
                status = cairn_client_context_check(client, context);
        if (status != CAIRN_OK)
                return status;
        message.context = context->id;
        message.layer = layer;
        if (result) {
                message.result = &region;
                cairn_client_region_set(&region, arena, result, result_bytes);
        }
        submission.arenas[0] = arena;
        submission.outputs.fetch.result = result;
        submission.outputs.fetch.result_bytes = result_bytes;
        submission.outputs.fetch.inlined = !arena;
        submission.outputs.fetch.ret_bytes = ret_bytes;
        return cairn_client_submit(client, call, &submission);
}
