// Get: into arenas in one request; into plain memory in slices, through an arena of the library or
// inline.
#include "client/src/client.h"

#include <stdlib.h>
#include <string.h>

// A slice of a get: keys [first, first + places.count) of the arguments.
struct slice {
        const struct cairn_get_args *args;
        size_t first;
        struct cairn_client_places places;
        struct cairn_arena *arena; // NULL: inline
        bool staged;               // the arena is the library's: copy out of it
};

static int decode_get(struct cairn_client *client, struct cairn_client_request *request,
                      const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__GetReply *reply = message;
        const size_t count = request->outputs.get.count;
        const uint64_t piece = request->outputs.get.piece_bytes;
        uint8_t *blocks = request->outputs.get.blocks;
        void *const *at = request->outputs.get.blocks_at;

        (void)client;
        if (reply->n_statuses != count)
                return CAIRN_EPROTO;
        if ((blocks || at) && payload_bytes != count * piece)
                return CAIRN_EPROTO;
        if (cairn_client_copy_statuses(reply->n_statuses, reply->statuses, count,
                                       request->outputs.get.ret_statuses) != CAIRN_OK)
                return CAIRN_EPROTO;
        for (size_t i = 0; i < count && (blocks || at); i++) {
                if (reply->statuses[i] == CAIRN_OK)
                        memcpy(at ? at[i] : blocks + i * piece, payload + i * piece, piece);
        }
        return CAIRN_OK;
}

uint64_t cairn_client_piece_bytes(struct cairn_client *client, const struct cairn_get_args *args)
{
        struct cairn_client_space *space = cairn_client_space_of(client, args->space);
        struct cairn_space plain;
        uint32_t layers;

        if (!space)
                return 0;
        cairn_client_config_to_space(&space->config, &plain);
        layers = plain.kind == CAIRN_SPACE_OPAQUE ? 1 : plain.layers;
        if (args->layer_first >= layers || args->layer_count > layers - args->layer_first) {
                (void)cairn_client_fail(client, CAIRN_EINVAL,
                                        "get: layers %u to %u; the space has %u", args->layer_first,
                                        args->layer_first + args->layer_count, layers);
                return 0;
        }
        layers = args->layer_count ? args->layer_count : layers - args->layer_first;
        return layers * cairn_space_layer_bytes(&plain);
}

static struct cairn_client_places places_to(const struct cairn_get_args *args, uint64_t piece_bytes,
                                            size_t first, size_t count)
{
        return (struct cairn_client_places){
            .base = args->blocks ? (const uint8_t *)args->blocks + first * piece_bytes : NULL,
            .at = args->blocks_at ? (const void *const *)args->blocks_at + first : NULL,
            .piece_bytes = piece_bytes,
            .count = count,
        };
}

static int send_slice(struct cairn_client *client, struct cairn_call *call,
                      const struct slice *slice, int *ret_statuses)
{
        const struct cairn_get_args *args = slice->args;
        const struct cairn_client_places *places = &slice->places;
        Cairn__GetRequest message = CAIRN__GET_REQUEST__INIT;
        Cairn__Region region;
        struct cairn_client_submission submission = {
            .kind = CAIRN_KIND_GET,
            .message = &message,
            .decode = decode_get,
            .outputs.get = {.count = places->count,
                            .ret_statuses = ret_statuses,
                            .piece_bytes = places->piece_bytes},
            .arenas = {slice->arena},
        };
        uint64_t *offsets = malloc(places->count * sizeof(*offsets) + 1);
        int status;

        if (!offsets)
                return cairn_client_fail(client, CAIRN_ENOMEM, NULL);
        message.space = client->spaces[args->space - 1].wire_id;
        message.lease = args->lease.id;
        message.layer_first = args->layer_first;
        message.layer_count = args->layer_count;
        message.destination = &region;
        message.offsets = offsets;
        cairn_client_keys_field(args->keys + slice->first, places->count, &message.keys);
        if (slice->arena) {
                cairn_client_places_region(places, slice->arena, &region, offsets,
                                           &message.n_offsets);
        } else {
                cairn_client_region_set(&region, NULL, NULL, places->count * places->piece_bytes);
                if (args->blocks_at)
                        submission.outputs.get.blocks_at = args->blocks_at + slice->first;
                else
                        submission.outputs.get.blocks =
                            (uint8_t *)args->blocks + slice->first * places->piece_bytes;
        }
        status = cairn_client_submit(client, call, &submission);
        free(offsets);
        return status;
}

static int check(struct cairn_client *client, const struct cairn_get_args *args)
{
        if (args->count > 0 && !args->blocks == !args->blocks_at)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "get: give either blocks or blocks_at");
        return CAIRN_OK;
}

static int next_slice(struct cairn_client *client, const struct cairn_get_args *args,
                      uint64_t piece, size_t first, struct slice *ret_slice)
{
        size_t left = args->count - first;
        size_t count = left < CAIRN_KEYS_MAX ? left : CAIRN_KEYS_MAX;
        struct cairn_client_places places = places_to(args, piece, first, count);
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
                ret_slice->arena = arena;
                ret_slice->staged = true;
                ret_slice->places = (struct cairn_client_places){
                    .base = arena->data, .piece_bytes = piece, .count = count};
                return CAIRN_OK;
        }
        if (piece > client->payload_bytes_max)
                return cairn_client_fail(client, CAIRN_ENOMEM,
                                         "%llu bytes a key need an arena, and none can be had: ask "
                                         "for fewer layers, free memory or destroy another arena",
                                         (unsigned long long)piece);
        if (count > client->payload_bytes_max / piece)
                count = client->payload_bytes_max / piece;
        ret_slice->places = places_to(args, piece, first, count);
        return CAIRN_OK;
}

static int get_slice(struct cairn_client *client, const struct cairn_get_args *args, uint64_t piece,
                     size_t first, int *ret_statuses, size_t *ret_done)
{
        struct slice slice;
        int status = cairn_client_ready(client);

        if (status == CAIRN_OK)
                status = cairn_client_lease_check(client, &args->lease);
        if (status == CAIRN_OK)
                status = next_slice(client, args, piece, first, &slice);
        if (status != CAIRN_OK)
                return status;
        status = send_slice(client, NULL, &slice, ret_statuses);
        if (status == CAIRN_OK && slice.staged) {
                struct cairn_client_places to = places_to(args, piece, first, slice.places.count);

                for (size_t i = 0; i < to.count; i++) {
                        if (ret_statuses[i] == CAIRN_OK)
                                memcpy((void *)cairn_client_place(&to, i),
                                       cairn_client_place(&slice.places, i), piece);
                }
        }
        if (slice.staged)
                cairn_client_scratch_drop(client, &client->staging, status);
        if (status == CAIRN_OK)
                *ret_done = slice.places.count;
        return status;
}

static int get_blocking(struct cairn_client *client, const struct cairn_get_args *args,
                        uint64_t piece, int *ret_statuses)
{
        int worst = CAIRN_OK;
        int *statuses = malloc(args->count * sizeof(*statuses) + 1);
        int status = statuses ? CAIRN_OK : cairn_client_fail(client, CAIRN_ENOMEM, NULL);

        for (size_t first = 0, done = 0; first < args->count && status == CAIRN_OK; first += done) {
                done = 0;
                status = get_slice(client, args, piece, first, statuses + first, &done);
                if (cairn_client_may_retry(client, NULL, status))
                        status = get_slice(client, args, piece, first, statuses + first, &done);
        }
        for (size_t i = 0; i < args->count && status == CAIRN_OK; i++) {
                if (ret_statuses)
                        ret_statuses[i] = statuses[i];
                if (worst == CAIRN_OK)
                        worst = statuses[i];
        }
        free(statuses);
        if (status != CAIRN_OK || ret_statuses || worst == CAIRN_OK)
                return status;
        return cairn_client_fail(client, worst, NULL);
}

int cairn_get(struct cairn_client *client, struct cairn_call *call,
              const struct cairn_get_args *args, int *ret_statuses)
{
        uint64_t piece = cairn_client_piece_bytes(client, args);
        struct slice slice = {.args = args};
        int status = piece > 0 ? check(client, args) : CAIRN_EINVAL;

        if (status != CAIRN_OK)
                return status;
        if (!call && client->in_callback)
                return cairn_client_fail(client, CAIRN_EBUSY,
                                         "a blocking call inside on_done; give it a cairn_call");
        if (!call)
                return get_blocking(client, args, piece, ret_statuses);
        status = cairn_client_keys_check(client, args->count);
        if (status == CAIRN_OK)
                status = cairn_client_ready(client);
        if (status == CAIRN_OK)
                status = cairn_client_lease_check(client, &args->lease);
        if (status != CAIRN_OK)
                return status;
        slice.places = places_to(args, piece, 0, args->count);
        slice.arena = cairn_client_places_arena(client, &slice.places);
        if (!slice.arena && args->count * piece > client->payload_bytes_max)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "get: %llu bytes do not fit into one reply; let them go "
                                         "into an arena",
                                         (unsigned long long)(args->count * piece));
        return send_slice(client, call, &slice, ret_statuses);
}
