// Blocks as an operator sees them.
#include "storage/store_internal.h"

static bool part_in_ram(const struct cairn_block *block, uint32_t part)
{
        return block->resident && block->resident->parts[part].state == CAIRN_PART_READY;
}

void cairn_store_block_info(const struct cairn_store *store, const struct cairn_block *block,
                            struct cairn_store_block_info *ret_info)
{
        const struct cairn_space_state *space = cairn_block_space(store, block);
        const struct cairn_layout *layout = &space->layout;
        uint64_t now_ms = cairn_store_now(store);

        *ret_info = (struct cairn_store_block_info){
            .space = space->id,
            .tenant = block->tenant,
            .key = block->key,
            .parent = block->parent,
            .holds = block->holds,
            .children = block->children,
            .generation = block->generation,
            .uses_since = store->used > block->used ? store->used - block->used : 0,
            .unwritten = !cairn_block_is(block, CAIRN_BLOCK_STORED),
            .nvme_bytes = cairn_block_is(block, CAIRN_BLOCK_STORED) ? layout->slot_bytes : 0,
        };
        for (uint32_t part = 0; part < CAIRN_PART_COUNT; part++)
                if (part_in_ram(block, part))
                        ret_info->ram_bytes += layout->part_bytes[part];
        if (block->expires_ms > 0)
                ret_info->expires_ms = block->expires_ms > now_ms ? block->expires_ms - now_ms : 1;
}

static bool fits(const struct cairn_store_list *list, const struct cairn_store_block_info *info)
{
        if (list->space != 0 && info->space != list->space)
                return false;
        if (list->by_tenant && info->tenant != list->tenant)
                return false;
        if (list->held && info->holds == 0)
                return false;
        if (list->tier == CAIRN_TIER_RAM && info->ram_bytes == 0)
                return false;
        if (list->tier == CAIRN_TIER_NVME && info->nvme_bytes == 0)
                return false;
        return list->tier != CAIRN_TIER_REMOTE &&
               memcmp(info->key.bytes, list->key, list->key_bytes) == 0;
}

size_t cairn_store_list_blocks(const struct cairn_store *store, const struct cairn_store_list *list,
                               uint32_t *cursor, struct cairn_store_block_info *ret_infos,
                               size_t max)
{
        uint32_t entries = cairn_table_entries(&store->table);
        uint32_t id = *cursor;
        size_t count = 0;

        assert(list->key_bytes <= CAIRN_KEY_BYTES);
        for (uint32_t looked = 0; id < entries && count < max && looked < CAIRN_LIST_LOOKED_MAX;
             id++, looked++) {
                const struct cairn_block *block = cairn_table_at(&store->table, id);

                if (!cairn_block_is(block, CAIRN_BLOCK_VISIBLE))
                        continue;
                cairn_store_block_info(store, block, &ret_infos[count]);
                count += fits(list, &ret_infos[count]);
        }
        *cursor = id < entries ? id : 0;
        return count;
}

enum cairn_audit_reason cairn_store_gone(const struct cairn_store *store, uint32_t space,
                                         const struct cairn_key *key)
{
        return cairn_gone_reason(store->gone, space, key);
}
