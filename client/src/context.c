// Contexts: open, append, fork, seal, close.
#include "client/src/client.h"

#include <stdlib.h>
#include <string.h>

int cairn_client_context_check(struct cairn_client *client, const struct cairn_context *context)
{
        if (context->id != 0 && context->connection == client->connection)
                return CAIRN_OK;
        return cairn_client_fail(client, CAIRN_ESTALE,
                                 "the context ended with the connection it was opened on; open it "
                                 "again");
}

static void set_context(struct cairn_client *client, struct cairn_client_request *request,
                        uint64_t id, uint64_t tokens)
{
        *request->outputs.context.ret_context = (struct cairn_context){
            .id = id,
            .connection = client->connection,
            .tokens = tokens,
            .space = request->outputs.context.space,
        };
}

static int decode_open(struct cairn_client *client, struct cairn_client_request *request,
                       const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__OpenContextReply *reply = message;

        (void)payload, (void)payload_bytes; // it has no payload
        if (reply->context == 0 || reply->tokens > CAIRN_CONTEXT_TOKENS_MAX)
                return CAIRN_EPROTO;
        set_context(client, request, reply->context, reply->tokens);
        return CAIRN_OK;
}

int cairn_open_context(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                       const struct cairn_key *keys, size_t count,
                       struct cairn_context *ret_context)
{
        Cairn__OpenContextRequest message = CAIRN__OPEN_CONTEXT_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_OPEN_CONTEXT,
            .message = &message,
            .decode = decode_open,
            .outputs.context = {.ret_context = ret_context, .space = space},
        };
        struct cairn_client_space *found;
        int status = cairn_client_keys_check(client, count);

        if (status == CAIRN_OK)
                status = cairn_client_ready(client);
        if (status != CAIRN_OK)
                return status;
        found = cairn_client_space_of(client, space);
        if (!found)
                return CAIRN_EINVAL;
        message.space = found->wire_id;
        cairn_client_keys_field(keys, count, &message.keys);
        return cairn_client_submit(client, call, &submission);
}

// ---- Append ----

static int decode_append(struct cairn_client *client, struct cairn_client_request *request,
                         const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__AppendReply *reply = message;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        if (reply->tokens > CAIRN_CONTEXT_TOKENS_MAX)
                return CAIRN_EPROTO;
        request->outputs.context.ret_context->tokens = reply->tokens;
        return CAIRN_OK;
}

static int append(struct cairn_client *client, struct cairn_call *call,
                  struct cairn_context *context, const void *rows, uint64_t bytes, uint32_t tokens)
{
        Cairn__AppendRequest message = CAIRN__APPEND_REQUEST__INIT;
        Cairn__Region region;
        struct cairn_client_source source;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_APPEND,
            .message = &message,
            .decode = decode_append,
            .outputs.context = {.ret_context = context},
        };
        int status = cairn_client_source_begin(client, call, rows, bytes, &source);

        if (status == CAIRN_OK)
                status = cairn_client_context_check(client, context); // a new arena may reconnect
        if (status != CAIRN_OK)
                return status;
        cairn_client_region_set(&region, source.arena, source.at, bytes);
        message.context = context->id;
        message.tokens = tokens;
        message.source = &region;
        submission.payload = &source.piece;
        submission.payload_count = source.arena ? 0 : 1;
        submission.arenas[0] = source.arena;
        status = cairn_client_submit(client, call, &submission);
        cairn_client_source_end(client, &source, status);
        return status;
}

// Rows of a part of the tokens are not one run of bytes: gathers them as [layer][KV head]{K, V}.
static uint8_t *part_of_rows(const struct cairn_space *space, const uint8_t *rows, uint32_t tokens,
                             uint32_t first, uint32_t count)
{
        const uint64_t item = cairn_dtype_bytes(space->dtype);
        const uint64_t k_bytes = space->k_dim * item;
        const uint64_t v_bytes = space->v_dim * item;
        const uint64_t heads = (uint64_t)space->layers * space->kv_heads;
        uint8_t *part = malloc(heads * count * (k_bytes + v_bytes));
        uint8_t *to = part;

        for (uint64_t head = 0; part && head < heads; head++) {
                const uint8_t *k = rows + head * tokens * (k_bytes + v_bytes);
                const uint8_t *v = k + tokens * k_bytes;

                memcpy(to, k + first * k_bytes, count * k_bytes);
                to += count * k_bytes;
                memcpy(to, v + first * v_bytes, count * v_bytes);
                to += count * v_bytes;
        }
        return part;
}

static int append_parts(struct cairn_client *client, struct cairn_context *context,
                        const struct cairn_space *space, const void *rows, uint32_t tokens,
                        uint32_t part_tokens)
{
        int status = CAIRN_OK;

        for (uint32_t first = 0; first < tokens && status == CAIRN_OK; first += part_tokens) {
                uint32_t count = tokens - first < part_tokens ? tokens - first : part_tokens;
                uint8_t *part = part_of_rows(space, rows, tokens, first, count);

                if (!part)
                        return cairn_client_fail(client, CAIRN_ENOMEM, NULL);
                status =
                    append(client, NULL, context, part,
                           space->layers * space->kv_heads * cairn_space_head_bytes(space, count),
                           count);
                free(part);
        }
        return status;
}

int cairn_append(struct cairn_client *client, struct cairn_call *call,
                 struct cairn_context *context, const void *rows, uint32_t tokens)
{
        struct cairn_client_space *found;
        struct cairn_space space;
        uint64_t token_bytes;
        int status = cairn_client_ready(client);

        if (status == CAIRN_OK)
                status = cairn_client_context_check(client, context);
        if (status != CAIRN_OK)
                return status;
        found = cairn_client_space_of(client, context->space);
        if (!found)
                return CAIRN_EINVAL;
        if (tokens > CAIRN_APPEND_TOKENS_MAX)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "append of %u tokens; one call takes up to %d", tokens,
                                         CAIRN_APPEND_TOKENS_MAX);
        if (tokens == 0 && call)
                return cairn_client_fail(client, CAIRN_EINVAL, "append of no tokens");
        cairn_client_config_to_space(&found->config, &space);
        token_bytes = space.layers * space.kv_heads * cairn_space_head_bytes(&space, 1);
        if (!call && !cairn_client_arena_of(client, rows, tokens * token_bytes) &&
            tokens * token_bytes > CAIRN_CLIENT_STAGING_BYTES &&
            token_bytes <= CAIRN_CLIENT_STAGING_BYTES)
                return append_parts(client, context, &space, rows, tokens,
                                    (uint32_t)(CAIRN_CLIENT_STAGING_BYTES / token_bytes));
        return tokens == 0 ? CAIRN_OK
                           : append(client, call, context, rows, tokens * token_bytes, tokens);
}

// ---- Fork, Seal, Close ----

static int decode_fork(struct cairn_client *client, struct cairn_client_request *request,
                       const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__ForkReply *reply = message;

        (void)payload, (void)payload_bytes; // it has no payload
        if (reply->context == 0 || reply->tokens > CAIRN_CONTEXT_TOKENS_MAX)
                return CAIRN_EPROTO;
        set_context(client, request, reply->context, reply->tokens);
        return CAIRN_OK;
}

int cairn_fork(struct cairn_client *client, struct cairn_call *call,
               const struct cairn_context *context, struct cairn_context *ret_context)
{
        Cairn__ForkRequest message = CAIRN__FORK_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_FORK,
            .message = &message,
            .decode = decode_fork,
            .outputs.context = {.ret_context = ret_context, .space = context->space},
        };
        int status = cairn_client_ready(client);

        if (status == CAIRN_OK)
                status = cairn_client_context_check(client, context);
        if (status != CAIRN_OK)
                return status;
        message.context = context->id;
        return cairn_client_submit(client, call, &submission);
}

static int decode_seal(struct cairn_client *client, struct cairn_client_request *request,
                       const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__SealReply *reply = message;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        if (reply->sealed > request->outputs.statuses.count ||
            cairn_client_copy_statuses(reply->n_statuses, reply->statuses,
                                       request->outputs.statuses.count,
                                       request->outputs.statuses.ret_statuses) != CAIRN_OK)
                return CAIRN_EPROTO;
        *request->outputs.statuses.ret_sealed = reply->sealed;
        return CAIRN_OK;
}

int cairn_seal(struct cairn_client *client, struct cairn_call *call,
               const struct cairn_context *context, const struct cairn_key *keys, size_t count,
               const struct cairn_key *parent, size_t *ret_sealed, int *ret_statuses)
{
        Cairn__SealRequest message = CAIRN__SEAL_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_SEAL,
            .message = &message,
            .decode = decode_seal,
            .outputs.statuses = {.count = count,
                                 .ret_statuses = ret_statuses,
                                 .ret_sealed = ret_sealed},
        };
        int status = cairn_client_keys_check(client, count);

        if (status == CAIRN_OK)
                status = cairn_client_ready(client);
        if (status == CAIRN_OK)
                status = cairn_client_context_check(client, context);
        if (status != CAIRN_OK)
                return status;
        message.context = context->id;
        cairn_client_keys_field(keys, count, &message.keys);
        if (parent)
                cairn_client_keys_field(parent, 1, &message.parent);
        return cairn_client_submit(client, call, &submission);
}

int cairn_close_context(struct cairn_client *client, struct cairn_call *call,
                        const struct cairn_context *context)
{
        Cairn__CloseContextRequest message = CAIRN__CLOSE_CONTEXT_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_CLOSE_CONTEXT,
            .message = &message,
            .decode = cairn_client_decode_nothing,
        };
        int status = cairn_client_ready(client);

        if (status == CAIRN_OK)
                status = cairn_client_context_check(client, context);
        if (status != CAIRN_OK)
                return status;
        message.context = context->id;
        return cairn_client_submit(client, call, &submission);
}
