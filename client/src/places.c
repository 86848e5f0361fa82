// Where the blocks of a Put or Get lie in the worker's memory: side by side or scattered, in an
// arena or not.
#include "client/src/client.h"

#include <assert.h>

const uint8_t *cairn_client_place(const struct cairn_client_places *places, size_t i)
{
        assert(i < places->count);
        return places->at ? places->at[i] : places->base + i * places->piece_bytes;
}

struct cairn_arena *cairn_client_places_arena(const struct cairn_client *client,
                                              const struct cairn_client_places *places)
{
        struct cairn_arena *arena;

        if (places->count == 0)
                return NULL;
        if (!places->at)
                return cairn_client_arena_of(client, places->base,
                                             places->count * places->piece_bytes);
        arena = cairn_client_arena_of(client, places->at[0], places->piece_bytes);
        for (size_t i = 1; arena && i < places->count; i++) {
                if (cairn_client_arena_of(client, places->at[i], places->piece_bytes) != arena)
                        return NULL;
        }
        return arena;
}

void cairn_client_places_region(const struct cairn_client_places *places,
                                const struct cairn_arena *arena, Cairn__Region *region,
                                uint64_t *offsets, size_t *ret_offsets_count)
{
        *ret_offsets_count = 0;
        if (!places->at) {
                cairn_client_region_set(region, arena, places->base,
                                        places->count * places->piece_bytes);
                return;
        }
        cairn_client_region_set(region, arena, arena->data, arena->bytes);
        for (size_t i = 0; i < places->count; i++)
                offsets[i] = (uint64_t)((const uint8_t *)places->at[i] - arena->data);
        *ret_offsets_count = places->count;
}
