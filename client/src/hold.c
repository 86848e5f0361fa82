// SetHold and ListHolds.
#include "client/src/client.h"
#include "cairn/tenant.h"

static int decode_set(struct cairn_client *client, struct cairn_client_request *request,
                      const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__SetHoldReply *reply = message;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        if (request->outputs.tenant.ret_blocks)
                *request->outputs.tenant.ret_blocks = reply->blocks;
        return CAIRN_OK;
}

static int set_hold(struct cairn_client *client, struct cairn_call *call,
                    const Cairn__SetHoldRequest *message, uint64_t *ret_blocks)
{
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_SET_HOLD,
            .message = message,
            .decode = decode_set,
            .outputs.tenant = {.ret_blocks = ret_blocks},
        };
        int status = cairn_client_ready(client);

        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}

int cairn_set_hold(struct cairn_client *client, struct cairn_call *call,
                   const struct cairn_hold_args *args, uint64_t *ret_blocks)
{
        Cairn__SetHoldRequest message = CAIRN__SET_HOLD_REQUEST__INIT;

        message.name = (char *)args->name; // these are packed, not written to
        if (args->note)
                message.note = (char *)args->note;
        if (args->tenant)
                message.tenant = (char *)args->tenant;
        message.space = args->space;
        if (args->key)
                cairn_client_keys_field(args->key, 1, &message.key);
        return set_hold(client, call, &message, ret_blocks);
}

int cairn_lift_hold(struct cairn_client *client, struct cairn_call *call, const char *name,
                    uint64_t *ret_blocks)
{
        Cairn__SetHoldRequest message = CAIRN__SET_HOLD_REQUEST__INIT;

        message.name = (char *)name; // as above
        message.lift = true;
        return set_hold(client, call, &message, ret_blocks);
}

static int decode_list(struct cairn_client *client, struct cairn_client_request *request,
                       const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__ListHoldsReply *reply = message;

        (void)payload, (void)payload_bytes; // it has no payload
        for (size_t i = 0; i < reply->n_holds; i++) {
                if (reply->holds[i]->key.len != 0 && reply->holds[i]->key.len != CAIRN_KEY_BYTES)
                        return CAIRN_EPROTO;
        }
        client->in_callback = true; // on_hold, like on_done, may not block
        for (size_t i = 0; i < reply->n_holds; i++) {
                const Cairn__HoldInfo *hold = reply->holds[i];
                struct cairn_hold_info info = {
                    .name = hold->name,
                    .note = hold->note,
                    .tenant = hold->tenant,
                    .space = hold->space,
                    .key = hold->key.len ? (const struct cairn_key *)(const void *)hold->key.data
                                         : NULL,
                    .since_ms = hold->since_ms,
                    .blocks = hold->blocks,
                };

                request->outputs.tenant.on_hold(request->outputs.tenant.arg, &info);
        }
        client->in_callback = false;
        return CAIRN_OK;
}

int cairn_list_holds(struct cairn_client *client, struct cairn_call *call,
                     void (*on_hold)(void *arg, const struct cairn_hold_info *info), void *arg)
{
        Cairn__ListHoldsRequest message = CAIRN__LIST_HOLDS_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_LIST_HOLDS,
            .message = &message,
            .decode = decode_list,
            .outputs.tenant = {.on_hold = on_hold, .arg = arg},
        };
        int status = cairn_client_ready(client);

        return status == CAIRN_OK ? cairn_client_submit(client, call, &submission) : status;
}
