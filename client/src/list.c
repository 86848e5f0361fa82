// Operators' lists: blocks, contexts, leases, the running configuration.
#include <stdio.h>
#include <string.h>

#include "client/src/client.h"

enum {
        FILE_BYTES = 4096
};

static int take_key(const ProtobufCBinaryData *field, struct cairn_key *ret_key)
{
        memset(ret_key, 0, sizeof(*ret_key));
        if (field->len == 0)
                return CAIRN_OK;
        if (field->len != CAIRN_KEY_BYTES)
                return CAIRN_EPROTO;
        memcpy(ret_key->bytes, field->data, CAIRN_KEY_BYTES);
        return CAIRN_OK;
}

static void take_holder(const Cairn__Holder *holder, struct cairn_holder *ret_holder)
{
        *ret_holder = (struct cairn_holder){.client = ""};
        if (holder)
                *ret_holder = (struct cairn_holder){
                    .tenant = holder->tenant, .pid = holder->pid, .client = holder->client};
}

static void finish(const union cairn_client_outputs *outputs, uint64_t cursor)
{
        if (outputs->list.ret_cursor)
                *outputs->list.ret_cursor = cursor;
}

// ---- blocks ----

int cairn_client_block_info(const Cairn__BlockInfo *block, struct cairn_block_info *ret_info)
{
        *ret_info = (struct cairn_block_info){
            .space = block->space,
            .tenant = block->tenant,
            .ram_bytes = block->ram_bytes,
            .nvme_bytes = block->nvme_bytes,
            .holds = block->holds,
            .children = block->children,
            .unwritten = block->unwritten,
            .uses_since = block->uses_since,
            .generation = block->generation,
            .expires_ms = block->expires_ms,
        };
        if (take_key(&block->key, &ret_info->key) != CAIRN_OK)
                return CAIRN_EPROTO;
        return take_key(&block->parent, &ret_info->parent);
}

static int decode_blocks(struct cairn_client *client, struct cairn_client_request *request,
                         const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__ListBlocksReply *reply = message;
        const union cairn_client_outputs *outputs = &request->outputs;
        struct cairn_block_info info;

        (void)payload, (void)payload_bytes; // it has no payload
        for (size_t i = 0; i < reply->n_blocks; i++)
                if (cairn_client_block_info(reply->blocks[i], &info) != CAIRN_OK)
                        return CAIRN_EPROTO;
        client->in_callback = true; // on_block, like on_done, may not block
        for (size_t i = 0; i < reply->n_blocks; i++) {
                (void)cairn_client_block_info(reply->blocks[i], &info); // checked above
                outputs->list.on_block(outputs->list.arg, &info);
        }
        client->in_callback = false;
        finish(outputs, reply->cursor);
        return CAIRN_OK;
}

int cairn_list_blocks(struct cairn_client *client, struct cairn_call *call,
                      const struct cairn_list *list,
                      void (*on_block)(void *arg, const struct cairn_block_info *info), void *arg,
                      uint64_t *ret_cursor)
{
        Cairn__ListBlocksRequest message = CAIRN__LIST_BLOCKS_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_LIST_BLOCKS,
            .message = &message,
            .decode = decode_blocks,
            .outputs.list = {.on_block = on_block, .arg = arg, .ret_cursor = ret_cursor},
        };
        int status = cairn_client_ready(client);

        message.cursor = list->cursor;
        message.max = list->max;
        message.by_tenant = list->by_tenant;
        message.tenant = list->tenant;
        message.space = list->space;
        message.tier = (Cairn__Tier)list->tier;
        message.held = list->held;
        message.key = (ProtobufCBinaryData){list->key_bytes, (uint8_t *)list->key};
        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

// ---- contexts ----

static int decode_contexts(struct cairn_client *client, struct cairn_client_request *request,
                           const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__ListContextsReply *reply = message;
        const union cairn_client_outputs *outputs = &request->outputs;

        (void)payload, (void)payload_bytes; // it has no payload
        client->in_callback = true;
        for (size_t i = 0; i < reply->n_contexts; i++) {
                const Cairn__ContextInfo *context = reply->contexts[i];
                struct cairn_context_info info = {
                    .context = context->context,
                    .space = context->space,
                    .tokens = context->tokens,
                    .tail_tokens = context->tail_tokens,
                    .blocks = context->blocks,
                    .busy = context->busy,
                };

                take_holder(context->holder, &info.holder);
                outputs->list.on_context(outputs->list.arg, &info);
        }
        client->in_callback = false;
        finish(outputs, reply->cursor);
        return CAIRN_OK;
}

int cairn_list_contexts(struct cairn_client *client, struct cairn_call *call,
                        const struct cairn_list *list,
                        void (*on_context)(void *arg, const struct cairn_context_info *info),
                        void *arg, uint64_t *ret_cursor)
{
        Cairn__ListContextsRequest message = CAIRN__LIST_CONTEXTS_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_LIST_CONTEXTS,
            .message = &message,
            .decode = decode_contexts,
            .outputs.list = {.on_context = on_context, .arg = arg, .ret_cursor = ret_cursor},
        };
        int status = cairn_client_ready(client);

        message.cursor = list->cursor;
        message.max = list->max;
        message.by_tenant = list->by_tenant;
        message.tenant = list->tenant;
        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

// ---- leases ----

static int take_lease(const Cairn__LeaseInfo *lease, struct cairn_lease_info *ret_info)
{
        *ret_info = (struct cairn_lease_info){
            .lease = lease->lease, .blocks = lease->blocks, .left_ms = lease->left_ms};
        take_holder(lease->holder, &ret_info->holder);
        return take_key(&lease->first_key, &ret_info->first_key);
}

static int decode_leases(struct cairn_client *client, struct cairn_client_request *request,
                         const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__ListLeasesReply *reply = message;
        const union cairn_client_outputs *outputs = &request->outputs;
        struct cairn_lease_info info;

        (void)payload, (void)payload_bytes; // it has no payload
        for (size_t i = 0; i < reply->n_leases; i++)
                if (take_lease(reply->leases[i], &info) != CAIRN_OK)
                        return CAIRN_EPROTO;
        client->in_callback = true;
        for (size_t i = 0; i < reply->n_leases; i++) {
                (void)take_lease(reply->leases[i], &info); // checked above
                outputs->list.on_lease(outputs->list.arg, &info);
        }
        client->in_callback = false;
        finish(outputs, reply->cursor);
        return CAIRN_OK;
}

int cairn_list_leases(struct cairn_client *client, struct cairn_call *call,
                      const struct cairn_list *list,
                      void (*on_lease)(void *arg, const struct cairn_lease_info *info), void *arg,
                      uint64_t *ret_cursor)
{
        Cairn__ListLeasesRequest message = CAIRN__LIST_LEASES_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_LIST_LEASES,
            .message = &message,
            .decode = decode_leases,
            .outputs.list = {.on_lease = on_lease, .arg = arg, .ret_cursor = ret_cursor},
        };
        int status = cairn_client_ready(client);

        message.cursor = list->cursor;
        message.max = list->max;
        message.by_tenant = list->by_tenant;
        message.tenant = list->tenant;
        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

// ---- the configuration ----

static int decode_config(struct cairn_client *client, struct cairn_client_request *request,
                         const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__ShowConfigReply *reply = message;
        const union cairn_client_outputs *outputs = &request->outputs;

        (void)payload, (void)payload_bytes; // it has no payload
        client->in_callback = true;
        for (size_t i = 0; i < reply->n_settings; i++) {
                const Cairn__Setting *s = reply->settings[i];
                struct cairn_setting setting = {
                    .name = s->name,
                    .value = s->value,
                    .source = s->source,
                    .help = s->help,
                    .number = s->number,
                    .reloadable = s->reloadable,
                };

                outputs->list.on_setting(outputs->list.arg, &setting);
        }
        client->in_callback = false;
        if (outputs->list.ret_file)
                (void)snprintf(outputs->list.ret_file, FILE_BYTES, "%s", reply->file);
        return CAIRN_OK;
}

int cairn_show_config(struct cairn_client *client, struct cairn_call *call,
                      void (*on_setting)(void *arg, const struct cairn_setting *setting), void *arg,
                      char *ret_file)
{
        Cairn__ShowConfigRequest message = CAIRN__SHOW_CONFIG_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_SHOW_CONFIG,
            .message = &message,
            .decode = decode_config,
            .outputs.list = {.on_setting = on_setting, .arg = arg, .ret_file = ret_file},
        };
        int status = cairn_client_ready(client);

        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}
