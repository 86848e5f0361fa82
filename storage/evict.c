// What is forgotten when room is needed: RAM copies first of leaves, least recently used; blocks of
// a full NVMe the same way. Pinned, held and unwritten bytes are never among them.
#include "storage/store_internal.h"

enum {
        // Codes are small and answer queries alone: they stay as if used this many times more
        // recently.
        CODE_CREDIT = 4,
};
#define KEY_USED_MASK ((1ull << CAIRN_KEY_CLASS_SHIFT) - 1)

static struct cairn_resident *owner(const struct cairn_heap_item *item, uint32_t part)
{
        struct cairn_part_ram *ram = CAIRN_CONTAINER(item->place, struct cairn_part_ram, heap);
        return CAIRN_CONTAINER(ram - part, struct cairn_resident, parts[0]);
}

static uint64_t age_of(const struct cairn_store *store, const struct cairn_heap_item *item)
{
        return store->used - (item->key & KEY_USED_MASK);
}

static struct cairn_resident *victim(const struct cairn_store *store, uint32_t *ret_part)
{
        const struct cairn_heap_item *cold = cairn_heap_top(&store->ram_heap[CAIRN_HEAP_COLD]);
        const struct cairn_heap_item *raw = cairn_heap_top(&store->ram_heap[CAIRN_HEAP_RAW]);
        const struct cairn_heap_item *code = cairn_heap_top(&store->ram_heap[CAIRN_HEAP_CODE]);
        bool last_copy = raw && raw->key >> CAIRN_KEY_CLASS_SHIFT == CAIRN_KEY_LAST_COPY;
        *ret_part = 0;
        if (cold)
                return owner(cold, 0);
        if (!raw && !code)
                return NULL;
        bool take_code =
            !raw || last_copy || (code && age_of(store, code) / CODE_CREDIT > age_of(store, raw));
        *ret_part = take_code && code ? 1 : 0;
        return owner(*ret_part ? code : raw, *ret_part);
}

// A working set a little larger than RAM would otherwise push itself out in circles, and never hit.
bool cairn_evict_is_cold(const struct cairn_store *store, const struct cairn_block *block)
{
        const struct cairn_heap_item *raw = cairn_heap_top(&store->ram_heap[CAIRN_HEAP_RAW]);
        return raw && store->used - block->used >= age_of(store, raw);
}

// Forgets one RAM copy, or takes one that is not to be forgotten out of the heap. False: there is
// none.
static bool evict_one(struct cairn_store *store)
{
        uint32_t part;
        struct cairn_resident *resident = victim(store, &part);
        if (!resident)
                return false;
        struct cairn_block *block = resident->block;
        cairn_block_refresh(store, block);
        if (resident->parts[part].heap == CAIRN_HEAP_OUT)
                return true; // held since it was put there
        store->stats.evicted_ram++;
        struct cairn_audit_record record;
        if (cairn_block_is(block, CAIRN_BLOCK_STORED)) {
                cairn_part_drop(store, block, part);
                cairn_block_refresh(store, block);
        } else {
                cairn_audit_describe(store, block, CAIRN_AUDIT_EVICT, CAIRN_AUDIT_CAPACITY,
                                     &record);
                cairn_block_forget(store, block, NULL, &record);
        }
        return true;
}

void cairn_evict_ram_free(struct cairn_store *store, struct cairn_tenant *tenant, uint64_t bytes,
                          struct cairn_ram_slot *slot)
{
        assert(tenant->ram_bytes >= bytes);
        tenant->ram_bytes -= bytes;
        cairn_ram_free(store->ram, slot);
}

int cairn_evict_ram_alloc(struct cairn_store *store, struct cairn_tenant *tenant, uint64_t bytes,
                          struct cairn_ram_slot *ret_slot)
{
        if (!cairn_ram_possible(store->ram, bytes))
                return CAIRN_ENOMEM;
        for (;;) {
                int status = cairn_ram_alloc(store->ram, tenant->tenant, bytes, ret_slot);
                if (status == CAIRN_OK)
                        tenant->ram_bytes += bytes;
                if (status != CAIRN_EAGAIN)
                        return status;
                if (evict_one(store))
                        continue;
                store->ram_short = true;
                return status;
        }
}

uint64_t cairn_store_drop_ram(struct cairn_store *store)
{
        uint64_t before = cairn_ram_used_bytes(store->ram);
        while (evict_one(store))
                ;
        return before - cairn_ram_used_bytes(store->ram);
}

uint32_t cairn_evict_nvme(struct cairn_store *store, struct cairn_space_state *space,
                          uint32_t count)
{
        uint32_t done = 0;
        while (done < count) {
                const struct cairn_heap_item *top = cairn_heap_top(&space->heap);
                if (!top)
                        break;
                struct cairn_block *block = CAIRN_CONTAINER(top->place, struct cairn_block, heap);
                cairn_block_refresh(store, block);
                if (block->heap == CAIRN_HEAP_OUT)
                        continue; // held since it was put there
                struct cairn_op *op = cairn_op_create(store);
                if (!op)
                        break;
                op->evicting = true;
                store->stats.evicted_nvme++;
                struct cairn_audit_record record;
                cairn_audit_describe(store, block, CAIRN_AUDIT_EVICT, CAIRN_AUDIT_CAPACITY,
                                     &record);
                cairn_block_forget(store, block, op, &record);
                done++;
        }
        return done;
}
