// What is forgotten when room is needed: RAM copies first of leaves, least recently used; blocks of
// a full NVMe the same way. Pinned, held and unwritten bytes are never among them.
#include "storage/store_internal.h"

enum {
        // Codes are small and answer queries alone: they stay as if used this many times more
        // recently.
        CODE_CREDIT = 4,
};
#define KEY_USED_MASK ((1ull << 62) - 1)

static struct cairn_resident *owner(const struct cairn_heap_item *item, uint32_t part)
{
        struct cairn_part_ram *ram = CAIRN_CONTAINER(item->place, struct cairn_part_ram, heap);
        return CAIRN_CONTAINER(ram - part, struct cairn_resident, parts[0]);
}

static struct cairn_resident *victim(const struct cairn_store *store, uint32_t *ret_part)
{
        const struct cairn_heap_item *raw = cairn_heap_top(&store->ram_heap[0]);
        const struct cairn_heap_item *code = cairn_heap_top(&store->ram_heap[1]);
        if (!raw && !code)
                return NULL;
        bool last_copy = raw && raw->key >> 62 == 2;
        bool take_code = !raw || last_copy;
        if (raw && code && !last_copy) {
                uint64_t raw_age = store->used - (raw->key & KEY_USED_MASK);
                uint64_t code_age = store->used - (code->key & KEY_USED_MASK);
                take_code = code_age / CODE_CREDIT > raw_age;
        }
        *ret_part = take_code && code ? 1 : 0;
        return owner(*ret_part ? code : raw, *ret_part);
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
        if (cairn_block_is(block, CAIRN_BLOCK_STORED)) {
                cairn_part_drop(store, block, part);
                cairn_block_refresh(store, block);
        } else {
                cairn_block_forget(store, block, NULL);
        }
        return true;
}

int cairn_evict_ram_alloc(struct cairn_store *store, uint32_t tenant, uint64_t bytes,
                          struct cairn_ram_slot *ret_slot)
{
        if (!cairn_ram_possible(store->ram, bytes))
                return CAIRN_ENOMEM;
        for (;;) {
                int status = cairn_ram_alloc(store->ram, tenant, bytes, ret_slot);
                if (status != CAIRN_EAGAIN || !evict_one(store))
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
                cairn_block_forget(store, block, op);
                done++;
        }
        return done;
}
