// Holding many blocks at once, as look-ups do: what they touch is fetched ahead.
#include "storage/store_internal.h"

enum {
        UNHOLD_AHEAD = 16 // and what RAM has of a block half as many before
};

size_t cairn_store_hold_prefix(struct cairn_store *store, uint32_t space,
                               const struct cairn_key *keys, size_t count,
                               struct cairn_block **ret_blocks, uint8_t *ret_tiers)
{
        const struct cairn_space_state *state = cairn_space_by_id(store, space);
        struct cairn_table_search search;
        size_t found = 0;
        if (!state)
                return 0;
        cairn_table_search_init(&search, &store->table, state->index, keys, count);
        while (found < count) {
                struct cairn_block *block = cairn_table_search_next(&search);
                if (!block || !cairn_block_is(block, CAIRN_BLOCK_VISIBLE))
                        break;
                if (block->expires_ms != 0 && cairn_store_now(store) >= block->expires_ms &&
                    !cairn_block_is(block, CAIRN_BLOCK_LEGAL))
                        break;
                block->holds++;
                ret_tiers[found] = (uint8_t)cairn_block_tier(block);
                ret_blocks[found++] = block;
        }
        store->stats.holds += found;
        return found;
}

void cairn_store_unhold_many(struct cairn_store *store, struct cairn_block *const *blocks,
                             size_t count)
{
        for (size_t i = 0; i < count && i < UNHOLD_AHEAD; i++)
                cairn_block_prefetch(blocks[i]);
        for (size_t i = 0; i < count; i++) {
                if (i + UNHOLD_AHEAD < count)
                        cairn_block_prefetch(blocks[i + UNHOLD_AHEAD]);
                if (i + UNHOLD_AHEAD / 2 < count)
                        __builtin_prefetch(blocks[i + UNHOLD_AHEAD / 2]->resident);
                cairn_store_unhold(store, blocks[i]);
        }
}
