// Which tenant's a space is, where nothing says so: spaces from before they had tenants.
#include "storage/legal.h"
#include "storage/store_internal.h"

bool cairn_store_space_tenant(const struct cairn_store *store, uint32_t space, uint32_t *ret_tenant)
{
        const struct cairn_space_state *state = cairn_space_by_id(store, space);
        bool found = false;

        for (uint32_t id = 0; state && id < cairn_table_entries(&store->table); id++) {
                const struct cairn_block *block = cairn_table_at(&store->table, id);

                if (!cairn_block_is(block, CAIRN_BLOCK_VISIBLE) || block->space != state->index)
                        continue;
                if (found && block->tenant != *ret_tenant)
                        return false;
                *ret_tenant = block->tenant;
                found = true;
        }
        return found;
}
