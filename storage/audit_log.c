// The audit, as the store sees it: facts of a block for a record, and records that go with no
// change of the catalog.
#include "storage/store_internal.h"

void cairn_audit_describe(const struct cairn_store *store, const struct cairn_block *block,
                          enum cairn_audit_action action, enum cairn_audit_reason reason,
                          struct cairn_audit_record *ret_record)
{
        const struct cairn_space_state *space = cairn_block_space(store, block);

        *ret_record = (struct cairn_audit_record){
            .action = action,
            .reason = reason,
            .time_ms = store->options.wall_ms ? store->options.wall_ms(store->options.clock) : 0,
            .tenant = block->tenant,
            .space = space->id,
            .key = block->key,
            .layer = CAIRN_AUDIT_ALL,
            .head = CAIRN_AUDIT_ALL,
            .count = 1,
            .bytes = space->layout.slot_bytes,
            .tier_from =
                cairn_block_is(block, CAIRN_BLOCK_STORED) ? CAIRN_TIER_NVME : CAIRN_TIER_RAM};
}

void cairn_audit_emit(struct cairn_store *store, const struct cairn_audit_record *record)
{
        struct cairn_audit_record copy = *record;

        if (store->options.audit_bytes == 0)
                return;
        if (copy.time_ms == 0 && store->options.wall_ms)
                copy.time_ms = store->options.wall_ms(store->options.clock);
        cairn_catalog_audit(store->catalog, &copy);
}

void cairn_store_audit(struct cairn_store *store, const struct cairn_audit_record *record)
{
        cairn_audit_emit(store, record);
}
