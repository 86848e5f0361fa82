// Lookup, Release, Delete, and what all requests on blocks share.
#include <stdio.h>

#include "client/src/client.h"
#include "cairn/tenant.h"

#include <string.h>

int cairn_client_decode_nothing(struct cairn_client *client, struct cairn_client_request *request,
                                const void *message, const uint8_t *payload, size_t payload_bytes)
{
        (void)client, (void)request, (void)message, (void)payload,
            (void)payload_bytes; // empty reply
        return CAIRN_OK;
}

int cairn_client_copy_statuses(size_t n, const int32_t *statuses, size_t count, int *ret_statuses)
{
        if (n != count)
                return CAIRN_EPROTO;
        for (size_t i = 0; i < n; i++) {
                if (statuses[i] > 0 || statuses[i] <= -CAIRN_STATUS_COUNT)
                        return CAIRN_EPROTO;
        }
        for (size_t i = 0; i < n && ret_statuses; i++)
                ret_statuses[i] = statuses[i];
        return CAIRN_OK;
}

void cairn_client_keys_field(const struct cairn_key *keys, size_t count,
                             ProtobufCBinaryData *ret_field)
{
        ret_field->data = (uint8_t *)keys; // packed, not written to
        ret_field->len = count * CAIRN_KEY_BYTES;
}

int cairn_client_keys_check(struct cairn_client *client, size_t count)
{
        if (count <= CAIRN_KEYS_MAX)
                return CAIRN_OK;
        return cairn_client_fail(client, CAIRN_EINVAL,
                                 "%zu keys; one request takes up to %d: split them", count,
                                 CAIRN_KEYS_MAX);
}

// ---- Lookup ----

static int decode_lookup(struct cairn_client *client, struct cairn_client_request *request,
                         const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__LookupReply *reply = message;

        (void)payload, (void)payload_bytes; // it has no payload
        if (reply->found > request->outputs.lookup.count)
                return CAIRN_EPROTO;
        *request->outputs.lookup.ret_found = reply->found;
        if (request->outputs.lookup.ret_lease)
                *request->outputs.lookup.ret_lease = (struct cairn_lease){
                    .id = reply->lease,
                    .connection = client->connection,
                };
        return CAIRN_OK;
}

static int lookup(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                  const struct cairn_key *keys, size_t count, uint32_t lease_ms, size_t *ret_found,
                  struct cairn_lease *ret_lease)
{
        Cairn__LookupRequest message = CAIRN__LOOKUP_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_LOOKUP,
            .message = &message,
            .decode = decode_lookup,
            .outputs.lookup = {.count = count, .ret_found = ret_found, .ret_lease = ret_lease},
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
        message.lease_ms = ret_lease ? lease_ms : 0;
        cairn_client_keys_field(keys, count, &message.keys);
        return cairn_client_submit(client, call, &submission);
}

int cairn_lookup(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                 const struct cairn_key *keys, size_t count, uint32_t lease_ms, size_t *ret_found,
                 struct cairn_lease *ret_lease)
{
        int status = lookup(client, call, space, keys, count, lease_ms, ret_found, ret_lease);

        if (cairn_client_may_retry(client, call, status))
                status = lookup(client, call, space, keys, count, lease_ms, ret_found, ret_lease);
        return status;
}

// ---- Release ----

int cairn_client_lease_check(struct cairn_client *client, const struct cairn_lease *lease)
{
        if (lease->id == 0 || lease->connection == client->connection)
                return CAIRN_OK;
        return cairn_client_fail(client, CAIRN_ESTALE,
                                 "the lease ended with the connection it was given on; look the "
                                 "keys up again");
}

int cairn_release(struct cairn_client *client, struct cairn_call *call,
                  const struct cairn_lease *lease)
{
        Cairn__ReleaseRequest message = CAIRN__RELEASE_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_RELEASE,
            .message = &message,
            .decode = cairn_client_decode_nothing,
        };
        int status = cairn_client_ready(client);

        if (status == CAIRN_OK)
                status = cairn_client_lease_check(client, lease);
        if (status != CAIRN_OK)
                return status;
        message.lease = lease->id;
        return cairn_client_submit(client, call, &submission);
}

// ---- Delete ----

static int decode_delete(struct cairn_client *client, struct cairn_client_request *request,
                         const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__DeleteReply *reply = message;

        (void)payload, (void)payload_bytes; // it has no payload
        if (reply->text[0] != '\0')         // a key's status is negative, the request's is not
                (void)snprintf(client->error, sizeof(client->error), "%s", reply->text);
        if (request->outputs.statuses.ret_pending)
                *request->outputs.statuses.ret_pending = reply->pending;
        return cairn_client_copy_statuses(reply->n_statuses, reply->statuses,
                                          request->outputs.statuses.count,
                                          request->outputs.statuses.ret_statuses);
}

static int delete_keys(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                       const struct cairn_key *keys, size_t count, bool purge, int *ret_statuses,
                       uint32_t *ret_pending)
{
        Cairn__DeleteRequest message = CAIRN__DELETE_REQUEST__INIT;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_DELETE,
            .message = &message,
            .decode = decode_delete,
            .outputs.statuses = {.count = count,
                                 .ret_statuses = ret_statuses,
                                 .ret_pending = ret_pending},
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
        message.purge = purge;
        cairn_client_keys_field(keys, count, &message.keys);
        return cairn_client_submit(client, call, &submission);
}

int cairn_delete(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                 const struct cairn_key *keys, size_t count, bool purge, int *ret_statuses)
{
        return delete_keys(client, call, space, keys, count, purge, ret_statuses, NULL);
}

int cairn_purge(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                const struct cairn_key *keys, size_t count, int *ret_statuses,
                uint32_t *ret_pending)
{
        return delete_keys(client, call, space, keys, count, true, ret_statuses, ret_pending);
}
