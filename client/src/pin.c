// Pin, Unpin, Prefetch.
#include "client/src/client.h"

static int decode_pin(struct cairn_client *client, struct cairn_client_request *request,
                      const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__PinReply *reply = message;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        return cairn_client_copy_statuses(reply->n_statuses, reply->statuses,
                                          request->outputs.statuses.count,
                                          request->outputs.statuses.ret_statuses);
}

static int decode_unpin(struct cairn_client *client, struct cairn_client_request *request,
                        const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__UnpinReply *reply = message;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        return cairn_client_copy_statuses(reply->n_statuses, reply->statuses,
                                          request->outputs.statuses.count,
                                          request->outputs.statuses.ret_statuses);
}

static int decode_prefetch(struct cairn_client *client, struct cairn_client_request *request,
                           const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__PrefetchReply *reply = message;

        (void)client, (void)payload, (void)payload_bytes; // it has no payload
        if (reply->loaded > request->outputs.lookup.count)
                return CAIRN_EPROTO;
        *request->outputs.lookup.ret_found = reply->loaded;
        return CAIRN_OK;
}

// Connected, and the daemon's number of the space.
static int begin(struct cairn_client *client, uint32_t space, size_t count, uint32_t *ret_wire_id)
{
        struct cairn_client_space *found;
        int status = cairn_client_keys_check(client, count);

        if (status == CAIRN_OK)
                status = cairn_client_ready(client);
        if (status != CAIRN_OK)
                return status;
        found = cairn_client_space_of(client, space);
        if (!found)
                return CAIRN_EINVAL;
        *ret_wire_id = found->wire_id;
        return CAIRN_OK;
}

int cairn_pin(struct cairn_client *client, struct cairn_call *call,
              const struct cairn_pin_args *args, int *ret_statuses)
{
        Cairn__PinRequest message = CAIRN__PIN_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_PIN,
            .message = &message,
            .decode = decode_pin,
            .outputs.statuses = {.count = args->count, .ret_statuses = ret_statuses},
        };
        int status = begin(client, args->space, args->count, &message.space);

        if (status != CAIRN_OK)
                return status;
        message.hard = args->hard;
        message.deadline_ms = args->for_ms;
        if (args->owner)
                message.owner = (char *)args->owner; // packed, not written to
        cairn_client_keys_field(args->keys, args->count, &message.keys);
        return cairn_client_submit(client, call, &submission);
}

int cairn_unpin(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                const struct cairn_key *keys, size_t count, const char *owner, int *ret_statuses)
{
        Cairn__UnpinRequest message = CAIRN__UNPIN_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_UNPIN,
            .message = &message,
            .decode = decode_unpin,
            .outputs.statuses = {.count = count, .ret_statuses = ret_statuses},
        };
        int status = begin(client, space, count, &message.space);

        if (status != CAIRN_OK)
                return status;
        if (owner)
                message.owner = (char *)owner; // packed, not written to
        cairn_client_keys_field(keys, count, &message.keys);
        return cairn_client_submit(client, call, &submission);
}

int cairn_prefetch(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                   const struct cairn_key *keys, size_t count, size_t *ret_loaded)
{
        Cairn__PrefetchRequest message = CAIRN__PREFETCH_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_PREFETCH,
            .message = &message,
            .decode = decode_prefetch,
            .outputs.lookup = {.count = count, .ret_found = ret_loaded},
        };
        int status = begin(client, space, count, &message.space);

        if (status != CAIRN_OK)
                return status;
        cairn_client_keys_field(keys, count, &message.keys);
        return cairn_client_submit(client, call, &submission);
}
