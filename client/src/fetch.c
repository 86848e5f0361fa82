// FetchRows: rows at positions that the worker names.
#include "client/src/client.h"

#include <string.h>

static int decode_fetch(struct cairn_client *client, struct cairn_client_request *request,
                        const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__FetchRowsReply *reply = message;
        uint64_t bytes = request->outputs.fetch.result_bytes;

        (void)client;
        if (reply->result_bytes != bytes ||
            (request->outputs.fetch.inlined && payload_bytes != bytes))
                return CAIRN_EPROTO;
        if (request->outputs.fetch.inlined)
                memcpy(request->outputs.fetch.result, payload, payload_bytes);
        return CAIRN_OK;
}

// Bytes of the answer, or 0 with the error set.
static uint64_t result_bytes_of(struct cairn_client *client, const struct cairn_client_space *space,
                                const uint32_t *counts, uint32_t row_dtype)
{
        const struct cairn_space_config *config = &space->config;
        uint64_t item = cairn_dtype_bytes(row_dtype ? row_dtype : config->dtype);
        uint64_t rows = 0;

        for (uint32_t i = 0; i < config->kv_heads; i++)
                rows += counts[i];
        if (item == 0 || rows == 0 || rows > (uint64_t)CAIRN_ROWS_MAX * config->kv_heads) {
                (void)cairn_client_fail(client, CAIRN_EINVAL,
                                        "fetch rows: %llu rows of dtype %u; 1 to %d rows a KV head",
                                        (unsigned long long)rows, row_dtype, CAIRN_ROWS_MAX);
                return 0;
        }
        return ((rows * config->k_dim * item + 63) & ~63ull) + rows * config->v_dim * item;
}

int cairn_fetch_rows(struct cairn_client *client, struct cairn_call *call,
                     const struct cairn_context *context, uint32_t layer, const uint32_t *counts,
                     const uint32_t *positions, uint32_t row_dtype, void *result,
                     uint64_t result_bytes)
{
        Cairn__FetchRowsRequest message = CAIRN__FETCH_ROWS_REQUEST__INIT;
        Cairn__Region region;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_FETCH_ROWS,
            .message = &message,
            .decode = decode_fetch,
        };
        struct cairn_client_space *space;
        struct cairn_arena *arena;
        uint64_t bytes;
        int status = cairn_client_ready(client);

        if (status == CAIRN_OK)
                status = cairn_client_context_check(client, context);
        if (status != CAIRN_OK)
                return status;
        space = cairn_client_space_of(client, context->space);
        bytes = space ? result_bytes_of(client, space, counts, row_dtype) : 0;
        if (bytes == 0)
                return CAIRN_EINVAL;
        if (bytes > result_bytes)
                return cairn_client_fail(client, CAIRN_ERANGE,
                                         "fetch rows: the answer takes %llu bytes, the memory has "
                                         "%llu",
                                         (unsigned long long)bytes,
                                         (unsigned long long)result_bytes);
        arena = cairn_client_arena_of(client, result, bytes);
        message.context = context->id;
        message.layer = layer;
        message.n_counts = space->config.kv_heads;
        message.counts = (uint32_t *)counts; // packed, not written to
        for (size_t i = 0; i < message.n_counts; i++)
                message.n_positions += counts[i];
        message.positions = (uint32_t *)positions;
        message.row_dtype = (Cairn__Dtype)row_dtype;
        message.result = &region;
        cairn_client_region_set(&region, arena, result, bytes);
        submission.arenas[0] = arena;
        submission.outputs.fetch.result = result;
        submission.outputs.fetch.result_bytes = bytes;
        submission.outputs.fetch.inlined = !arena;
        return cairn_client_submit(client, call, &submission);
}
