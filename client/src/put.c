// Put: from arenas in one request; from plain memory in slices, copied through an arena of the
// library or inline.
#include "client/src/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int decode_put(struct cairn_client *client, struct cairn_client_request *request,
                      const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__PutReply *reply = message;

        (void)payload, (void)payload_bytes; // it has no payload
        if (reply->text[0] != '\0')         // a key's status is negative, the request's is not
                (void)snprintf(client->error, sizeof(client->error), "%s", reply->text);
        return cairn_client_copy_statuses(reply->n_statuses, reply->statuses,
                                          request->outputs.statuses.count,
                                          request->outputs.statuses.ret_statuses);
}

// A slice of a put: keys [first, first + places.count) of the arguments.
struct slice {
        const struct cairn_put_args *args;
        size_t first;
        struct cairn_client_places places;
        struct cairn_arena *arena; // NULL: inline
};

static void fill_message(struct cairn_client *client, const struct slice *slice,
                         Cairn__PutRequest *message)
{
        const struct cairn_put_args *args = slice->args;
        const struct cairn_key *parent =
            slice->first ? &args->keys[slice->first - 1] : args->parent;

        cairn__put_request__init(message);
        message->space = client->spaces[args->space - 1].wire_id;
        message->ack = args->ack ? CAIRN__ACK__ACK_DISK : CAIRN__ACK__ACK_MEMORY;
        message->recompute_us = args->recompute_us;
        message->ttl_ms = args->ttl_ms;
        cairn_client_keys_field(args->keys + slice->first, slice->places.count, &message->keys);
        if (args->parents)
                cairn_client_keys_field(args->parents + slice->first, slice->places.count,
                                        &message->parents);
        else if (parent)
                cairn_client_keys_field(parent, 1, &message->parent);
}

static int send_slice(struct cairn_client *client, struct cairn_call *call,
                      const struct slice *slice, int *ret_statuses)
{
        const struct cairn_client_places *places = &slice->places;
        Cairn__PutRequest message;
        Cairn__Region region;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_PUT,
            .message = &message,
            .decode = decode_put,
            .outputs.statuses = {.count = places->count, .ret_statuses = ret_statuses},
            .arenas = {slice->arena},
        };
        uint64_t *offsets = malloc(places->count * sizeof(*offsets) + 1);
        struct iovec *pieces = malloc(places->count * sizeof(*pieces) + 1);
        int status;

        if (!offsets || !pieces) {
                free(offsets);
                free(pieces);
                return cairn_client_fail(client, CAIRN_ENOMEM, NULL);
        }
        fill_message(client, slice, &message);
        message.source = &region;
        if (slice->arena) {
                cairn_client_places_region(places, slice->arena, &region, offsets,
                                           &message.n_offsets);
                message.offsets = offsets;
        } else {
                cairn_client_region_set(&region, NULL, NULL, places->count * places->piece_bytes);
                for (size_t i = 0; i < places->count; i++)
                        pieces[i] = (struct iovec){(void *)cairn_client_place(places, i),
                                                   places->piece_bytes};
                submission.payload = pieces;
                submission.payload_count = places->count;
        }
        status = cairn_client_submit(client, call, &submission);
        free(offsets);
        free(pieces);
        return status;
}

static int check(struct cairn_client *client, const struct cairn_put_args *args)
{
        if (!cairn_client_space_of(client, args->space))
                return CAIRN_EINVAL;
        if (args->count > 0 && !args->blocks == !args->blocks_at)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "put: give either blocks or blocks_at");
        if (args->parent && args->parents)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "put: give either parent or parents");
        return CAIRN_OK;
}

static struct cairn_client_places places_from(const struct cairn_put_args *args,
                                              uint64_t piece_bytes, size_t first, size_t count)
{
        return (struct cairn_client_places){
            .base = args->blocks ? (const uint8_t *)args->blocks + first * piece_bytes : NULL,
            .at = args->blocks_at ? args->blocks_at + first : NULL,
            .piece_bytes = piece_bytes,
            .count = count,
        };
}

// The next slice of what is left. Copies into the staging arena where that is how it goes.
static int next_slice(struct cairn_client *client, const struct cairn_put_args *args, size_t first,
                      struct slice *ret_slice)
{
        uint64_t piece = client->spaces[args->space - 1].block_bytes;
        size_t left = args->count - first;
        size_t count = left < CAIRN_KEYS_MAX ? left : CAIRN_KEYS_MAX;
        struct cairn_client_places places = places_from(args, piece, first, count);
        struct cairn_arena *arena = cairn_client_places_arena(client, &places);
        uint64_t wanted = count * piece;

        *ret_slice = (struct slice){.args = args, .first = first, .places = places, .arena = arena};
        if (arena || wanted <= cairn_client_inline_max(client))
                return CAIRN_OK;
        if (wanted > CAIRN_CLIENT_STAGING_BYTES)
                wanted = CAIRN_CLIENT_STAGING_BYTES;
        arena = cairn_client_scratch(client, &client->staging, wanted > piece ? wanted : piece);
        if (arena) {
                if (count > arena->bytes / piece)
                        count = arena->bytes / piece;
                for (size_t i = 0; i < count; i++)
                        memcpy(arena->data + i * piece, cairn_client_place(&places, i), piece);
                ret_slice->arena = arena;
                ret_slice->places = (struct cairn_client_places){
                    .base = arena->data, .piece_bytes = piece, .count = count};
                return CAIRN_OK;
        }
        if (piece > client->payload_bytes_max)
                return cairn_client_fail(client, CAIRN_ENOMEM,
                                         "a block of %llu bytes needs an arena, and none can be "
                                         "had: free memory or destroy another arena",
                                         (unsigned long long)piece);
        if (count > client->payload_bytes_max / piece)
                count = client->payload_bytes_max / piece;
        ret_slice->places = places_from(args, piece, first, count);
        return CAIRN_OK;
}

static int put_slice(struct cairn_client *client, const struct cairn_put_args *args, size_t first,
                     int *ret_statuses, size_t *ret_done)
{
        struct slice slice;
        int status = cairn_client_ready(client);

        if (status == CAIRN_OK)
                status = next_slice(client, args, first, &slice);
        if (status != CAIRN_OK)
                return status;
        status = send_slice(client, NULL, &slice, ret_statuses);
        if (slice.arena == client->staging)
                cairn_client_scratch_drop(client, &client->staging, status);
        if (status == CAIRN_OK)
                *ret_done = slice.places.count;
        return status;
}

static int put_blocking(struct cairn_client *client, const struct cairn_put_args *args,
                        int *ret_statuses)
{
        int worst = CAIRN_OK;
        int *statuses = malloc(args->count * sizeof(*statuses) + 1);
        int status = statuses ? CAIRN_OK : cairn_client_fail(client, CAIRN_ENOMEM, NULL);

        for (size_t first = 0, done = 0; first < args->count && status == CAIRN_OK; first += done) {
                done = 0;
                status = put_slice(client, args, first, statuses + first, &done);
                if (cairn_client_may_retry(client, NULL, status))
                        status = put_slice(client, args, first, statuses + first, &done);
        }
        for (size_t i = 0; i < args->count && status == CAIRN_OK; i++) {
                if (ret_statuses)
                        ret_statuses[i] = statuses[i];
                if (worst == CAIRN_OK && statuses[i] != CAIRN_EEXIST)
                        worst = statuses[i];
        }
        free(statuses);
        if (status != CAIRN_OK || ret_statuses || worst == CAIRN_OK)
                return status;
        return cairn_client_fail(client, worst, NULL);
}

int cairn_put(struct cairn_client *client, struct cairn_call *call,
              const struct cairn_put_args *args, int *ret_statuses)
{
        struct slice slice = {.args = args};
        int status = check(client, args);

        if (status != CAIRN_OK)
                return status;
        if (!call && client->in_callback)
                return cairn_client_fail(client, CAIRN_EBUSY,
                                         "a blocking call inside on_done; give it a cairn_call");
        if (!call)
                return put_blocking(client, args, ret_statuses);
        status = cairn_client_keys_check(client, args->count);
        if (status == CAIRN_OK)
                status = cairn_client_ready(client);
        if (status != CAIRN_OK)
                return status;
        slice.places =
            places_from(args, client->spaces[args->space - 1].block_bytes, 0, args->count);
        slice.arena = cairn_client_places_arena(client, &slice.places);
        return send_slice(client, call, &slice, ret_statuses);
}
