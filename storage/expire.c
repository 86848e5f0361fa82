// Time to live: blocks whose time has come go, whether or not room is needed. What is held stays
// readable for its holders; what is under a legal hold stays until that is lifted.
#include "storage/store_internal.h"

enum {
        EXPIRE_BATCH = 256 // at once
};

// Out of memory it is found at its next look-up alone.
void cairn_expire_place(struct cairn_store *store, struct cairn_block *block)
{
        if (block->expires_ms == 0)
                return;
        if (cairn_block_is(block, CAIRN_BLOCK_VISIBLE) && !cairn_block_is(block, CAIRN_BLOCK_LEGAL))
                (void)cairn_heap_set(&store->expiries, &block->heap, block->expires_ms);
        else
                cairn_heap_remove(&store->expiries, &block->heap);
}

void cairn_expire(struct cairn_store *store, struct cairn_block *block)
{
        struct cairn_audit_record record;
        cairn_audit_describe(store, block, CAIRN_AUDIT_EVICT, CAIRN_AUDIT_EXPIRED, &record);
        store->stats.expired++;
        cairn_block_forget(store, block, NULL, &record);
}

void cairn_expire_due(struct cairn_store *store)
{
        const struct cairn_heap_item *top = cairn_heap_top(&store->expiries);
        uint64_t now_ms = top ? cairn_store_now(store) : 0;
        for (uint32_t i = 0; top && top->key <= now_ms && !store->closing; i++) {
                if (i == EXPIRE_BATCH) {
                        cairn_store_wake(store);
                        return;
                }
                cairn_expire(store, CAIRN_CONTAINER(top->place, struct cairn_block, heap));
                top = cairn_heap_top(&store->expiries);
        }
}
