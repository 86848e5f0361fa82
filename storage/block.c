// The life of an entry of the block table: visible or not, parts in RAM, children counted, places
// among what may be evicted, and its end when nobody needs it any more.
#include <stdlib.h>

#include "proto/probe.h"
#include "storage/store_internal.h"

void cairn_block_set_flag(struct cairn_store *store, struct cairn_block *block, uint32_t flag,
                          bool on)
{
        if (cairn_block_is(block, flag) == on)
                return;
        block->flags = (uint16_t)(on ? block->flags | flag : block->flags & ~flag);
        int64_t step = on ? 1 : -1;
        if (flag == CAIRN_BLOCK_STORED)
                store->stats.nvme_blocks += (uint64_t)step;
        else if (flag == CAIRN_BLOCK_DIRTY)
                store->stats.dirty_blocks += (uint64_t)step;
        else if (flag == CAIRN_BLOCK_RAM_ONLY)
                store->ram_only += (uint32_t)step;
}

// A block that names itself as parent is a root.
static bool has_parent(const struct cairn_block *block)
{
        return !cairn_key_is_zero(&block->parent) && !cairn_key_equal(&block->parent, &block->key);
}

struct cairn_block *cairn_block_child_count(struct cairn_store *store, struct cairn_block *block)
{
        assert(!cairn_block_is(block, CAIRN_BLOCK_CHILD));
        if (!has_parent(block))
                return NULL;
        struct cairn_block *parent = cairn_table_find(&store->table, block->space, &block->parent);
        if (!parent) {
                parent = cairn_table_entry(&store->table, true);
                if (!parent)
                        return NULL;
                parent->key = block->parent;
                parent->space = block->space;
                parent->flags |= CAIRN_BLOCK_GHOST;
                cairn_table_insert(&store->table, parent);
        }
        parent->children++;
        parent->children_visible += cairn_block_is(block, CAIRN_BLOCK_VISIBLE);
        block->flags |= CAIRN_BLOCK_CHILD;
        return parent;
}

void cairn_block_child_add(struct cairn_store *store, struct cairn_block *block)
{
        struct cairn_block *parent = cairn_block_child_count(store, block);
        if (parent)
                cairn_block_refresh(store, parent);
}

static void child_ram_set(struct cairn_store *store, struct cairn_block *block, bool on)
{
        on = on && cairn_block_is(block, CAIRN_BLOCK_CHILD);
        if (cairn_block_is(block, CAIRN_BLOCK_CHILD_RAM) == on)
                return;
        block->flags ^= CAIRN_BLOCK_CHILD_RAM;
        struct cairn_block *parent = cairn_table_find(&store->table, block->space, &block->parent);
        if (!parent || (!on && parent->children_ram == 0))
                return;
        parent->children_ram += on ? 1 : UINT32_MAX;
        cairn_block_refresh(store, parent);
}

static void child_visible(struct cairn_store *store, const struct cairn_block *block)
{
        if (!cairn_block_is(block, CAIRN_BLOCK_CHILD))
                return;
        struct cairn_block *parent = cairn_table_find(&store->table, block->space, &block->parent);
        if (parent && parent->children_visible < parent->children)
                parent->children_visible++;
}

void cairn_block_child_remove(struct cairn_store *store, struct cairn_block *block)
{
        child_ram_set(store, block, false);
        if (!cairn_block_is(block, CAIRN_BLOCK_CHILD))
                return;
        block->flags &= (uint16_t)~CAIRN_BLOCK_CHILD;
        struct cairn_block *parent = cairn_table_find(&store->table, block->space, &block->parent);
        if (!parent || parent->children == 0)
                return; // its ghost could not be made for want of memory
        parent->children--;
        parent->children_visible -=
            parent->children_visible > 0 && cairn_block_is(block, CAIRN_BLOCK_VISIBLE);
        if (parent->children == 0 && cairn_block_is(parent, CAIRN_BLOCK_GHOST)) {
                cairn_table_remove(&store->table, parent);
                cairn_table_entry_free(&store->table, parent);
                return;
        }
        cairn_block_refresh(store, parent);
}

static bool raw_ready(const struct cairn_block *block)
{
        return block->resident && block->resident->parts[0].state == CAIRN_PART_READY;
}

// Keys are the worker's word: two blocks may each name the other as parent, and then neither would
// ever be a leaf.
bool cairn_block_closes_circle(const struct cairn_store *store, const struct cairn_block *block)
{
        const struct cairn_block *at =
            cairn_table_find(&store->table, block->space, &block->parent);
        for (uint32_t steps = 0; at && cairn_block_is(at, CAIRN_BLOCK_CHILD); steps++) {
                if (steps == CAIRN_CHAIN_MAX || cairn_key_equal(&at->parent, &block->key))
                        return true;
                at = cairn_table_find(&store->table, at->space, &at->parent);
        }
        return false;
}

// An older version that came back, since its delete failed while this one was being put, goes for
// good. Its record is replaced by this one's, if that is written already; if not, the delete goes
// before it.
static void retire(struct cairn_store *store, struct cairn_block *old,
                   const struct cairn_block *block)
{
        if (cairn_block_is(block, CAIRN_BLOCK_STORED))
                old->flags &= (uint16_t)~CAIRN_BLOCK_RECORD;
        cairn_block_forget(store, old, NULL, NULL);
}

void cairn_block_publish(struct cairn_store *store, struct cairn_block *block)
{
        assert(!cairn_block_is(block, CAIRN_BLOCK_VISIBLE | CAIRN_BLOCK_GHOST));
        struct cairn_block *old = cairn_table_find(&store->table, block->space, &block->key);
        if (old && cairn_block_is(old, CAIRN_BLOCK_VISIBLE))
                retire(store, old, block);
        struct cairn_block *ghost = cairn_table_find(&store->table, block->space, &block->key);
        if (ghost)
                cairn_table_replace(&store->table, ghost, block);
        else
                cairn_table_insert(&store->table, block);
        block->flags = (uint16_t)((block->flags | CAIRN_BLOCK_VISIBLE) & ~CAIRN_BLOCK_STALE);
        cairn_block_space(store, block)->blocks++;
        cairn_block_owner(store, block)->blocks++;
        store->stats.blocks++;
        child_visible(store, block);
        // Only a block that has children already can close one: visible ones, since a chain that is
        // being put has the others, and would be walked up once a block.
        if (block->children_visible > 0 && cairn_block_is(block, CAIRN_BLOCK_CHILD) &&
            cairn_block_closes_circle(store, block))
                cairn_block_child_remove(store, block);
        child_ram_set(store, block, raw_ready(block));
        cairn_legal_published(store, block);
        cairn_block_refresh(store, block);
}

void cairn_block_load(struct cairn_store *store, struct cairn_block *block)
{
        cairn_table_insert(&store->table, block);
        block->flags |= CAIRN_BLOCK_VISIBLE;
        cairn_block_space(store, block)->blocks++;
        cairn_block_owner(store, block)->blocks++;
        store->stats.blocks++;
}

void cairn_block_unpublish(struct cairn_store *store, struct cairn_block *block)
{
        assert(cairn_block_is(block, CAIRN_BLOCK_VISIBLE));
        cairn_legal_unpublished(store, block);
        cairn_block_child_remove(store, block);
        cairn_table_remove(&store->table, block);
        struct cairn_block *ghost = NULL;
        if (block->children > 0)
                ghost = cairn_table_entry(&store->table, true);
        if (ghost) {
                ghost->key = block->key;
                ghost->space = block->space;
                ghost->children = block->children;
                ghost->children_ram = block->children_ram;
                ghost->children_visible = block->children_visible;
                ghost->flags |= CAIRN_BLOCK_GHOST;
                cairn_table_insert(&store->table, ghost);
        }
        block->children = 0;
        block->children_ram = 0;
        block->children_visible = 0;
        block->flags = (uint16_t)((block->flags | CAIRN_BLOCK_STALE) & ~CAIRN_BLOCK_VISIBLE);
        cairn_block_space(store, block)->blocks--;
        cairn_block_owner(store, block)->blocks--;
        store->stats.blocks--;
}

struct cairn_resident *cairn_block_resident(struct cairn_store *store, struct cairn_block *block)
{
        if (block->resident)
                return block->resident;
        struct cairn_resident *resident = calloc(1, sizeof(*resident));
        if (!resident)
                return NULL;
        resident->space = cairn_block_space(store, block);
        resident->block = block;
        for (int i = 0; i < CAIRN_PART_COUNT; i++)
                resident->parts[i].heap = CAIRN_HEAP_OUT;
        block->resident = resident;
        return resident;
}

int cairn_part_take(struct cairn_store *store, struct cairn_block *block, uint32_t part)
{
        struct cairn_part_ram *ram = &block->resident->parts[part];
        assert(ram->state == CAIRN_PART_NONE);
        struct cairn_space_state *space = cairn_block_space(store, block);
        uint64_t bytes = space->layout.part_bytes[part];
        int status =
            cairn_evict_ram_alloc(store, cairn_block_owner(store, block), bytes, &ram->slot);
        if (status != CAIRN_OK)
                return status;
        ram->state = CAIRN_PART_LOADING;
        space->ram_bytes += bytes;
        return CAIRN_OK;
}

void cairn_part_ready(struct cairn_store *store, struct cairn_block *block, uint32_t part)
{
        struct cairn_part_ram *ram = &block->resident->parts[part];
        assert(ram->state == CAIRN_PART_LOADING);
        ram->state = CAIRN_PART_READY;
        cairn_evict_ram_add(store, block, part);
        if (part == 0) {
                store->stats.ram_blocks++;
                block->flags |= CAIRN_BLOCK_RAW;
                if (cairn_block_is(block, CAIRN_BLOCK_VISIBLE))
                        child_ram_set(store, block, true);
        }
}

void cairn_part_drop(struct cairn_store *store, struct cairn_block *block, uint32_t part)
{
        struct cairn_part_ram *ram = &block->resident->parts[part];
        struct cairn_space_state *space = cairn_block_space(store, block);
        if (ram->state == CAIRN_PART_NONE)
                return;
        cairn_evict_ram_remove(store, block, part);
        if (part == 0 && ram->state == CAIRN_PART_READY) {
                store->stats.ram_blocks--;
                block->flags &= (uint16_t)~CAIRN_BLOCK_RAW;
                child_ram_set(store, block, false);
        }
        ram->state = CAIRN_PART_NONE;
        uint64_t bytes = space->layout.part_bytes[part];
        CAIRN_PROBE4(ram__drop, space->id, block->tenant, part, bytes);
        cairn_evict_ram_free(store, cairn_block_owner(store, block), bytes, &ram->slot);
        space->ram_bytes -= bytes;
}

void cairn_block_slot_taken(struct cairn_store *store, struct cairn_block *block)
{
        cairn_block_owner(store, block)->nvme_bytes +=
            cairn_block_space(store, block)->layout.slot_bytes;
}

void cairn_block_slot_give(struct cairn_store *store, struct cairn_block *block, bool bad)
{
        uint32_t slab = block->slab;
        cairn_block_owner(store, block)->nvme_bytes -=
            cairn_block_space(store, block)->layout.slot_bytes;
        block->slab = CAIRN_NO_SLAB;
        cairn_slab_give(store, slab, block->slot, bad);
}

static void resident_release(struct cairn_block *block)
{
        struct cairn_resident *resident = block->resident;
        for (int i = 0; i < CAIRN_PART_COUNT; i++) {
                if (resident->parts[i].state != CAIRN_PART_NONE || resident->parts[i].pins > 0)
                        return;
        }
        if (resident->waiters)
                return;
        free(resident);
        block->resident = NULL;
}

static void end_block(struct cairn_store *store, struct cairn_block *block)
{
        if (cairn_block_is(block, CAIRN_BLOCK_PURGE) && cairn_purge_catch(store, block))
                return;
        if (block->resident) {
                for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                        assert(block->resident->parts[i].pins == 0);
                        cairn_part_drop(store, block, i);
                }
                assert(!block->resident->waiters);
                resident_release(block);
        }
        cairn_block_set_flag(store, block, CAIRN_BLOCK_STORED, false);
        cairn_block_set_flag(store, block, CAIRN_BLOCK_RAM_ONLY, false);
        cairn_block_set_flag(store, block, CAIRN_BLOCK_DIRTY, false);
        if (block->slab != CAIRN_NO_SLAB)
                cairn_block_slot_give(store, block, cairn_block_is(block, CAIRN_BLOCK_BAD_SLOT));
        cairn_table_entry_free(&store->table, block);
}

void cairn_block_refresh(struct cairn_store *store, struct cairn_block *block)
{
        if (cairn_block_is(block, CAIRN_BLOCK_GHOST))
                return;
        cairn_evict_place_nvme(store, block);
        cairn_expire_place(store, block);
        bool idle = block->holds == 0 && block->refs == 0;
        if (idle && cairn_block_is(block, CAIRN_BLOCK_STALE)) {
                end_block(store, block);
                return;
        }
        if (!block->resident)
                return;
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++)
                cairn_evict_place_ram(store, block, i);
        resident_release(block);
}

// A delete that failed leaves the record: the block is there again, unless a newer one took its
// place.
static void on_forgotten(struct cairn_catalog_op *catalog_op, int status)
{
        struct cairn_op *op = CAIRN_CONTAINER(catalog_op, struct cairn_op, op);
        struct cairn_store *store = op->store;
        struct cairn_block *block = op->block;
        store->ops_pending--;
        block->refs--;
        if (op->evicting) {
                cairn_block_space(store, block)->evicting--;
                cairn_block_owner(store, block)->evicting--;
        }
        if (status != CAIRN_OK) {
                cairn_writer_error(store, status);
                struct cairn_block *other =
                    cairn_table_find(&store->table, block->space, &block->key);
                bool absent = !other || cairn_block_is(other, CAIRN_BLOCK_GHOST);
                if (absent && !cairn_block_is(block, CAIRN_BLOCK_BAD_SLOT) &&
                    cairn_block_is(block, CAIRN_BLOCK_STORED)) {
                        cairn_block_child_add(store, block);
                        cairn_block_publish(store, block);
                        child_ram_set(store, block, raw_ready(block));
                } else if (op->op.audit.action > 0) {
                        cairn_audit_emit(store, &op->op.audit); // it is gone all the same
                }
        }
        cairn_block_refresh(store, block);
        cairn_op_ready(op, status);
}

void cairn_block_forget(struct cairn_store *store, struct cairn_block *block, struct cairn_op *op,
                        const struct cairn_audit_record *record)
{
        if (!op)
                op = cairn_op_reserved(store);
        if (record && record->action == CAIRN_AUDIT_EVICT)
                cairn_block_owner(store, block)->evicted[record->reason]++;
        cairn_block_unpublish(store, block);
        if (record)
                CAIRN_PROBE4(remove, cairn_block_space(store, block)->id, block->tenant,
                             record->action, record->reason);
        if (record)
                cairn_gone_note(&store->gone, cairn_block_space(store, block)->id, &block->key,
                                record->reason);
        if (record && cairn_block_is(block, CAIRN_BLOCK_RECORD))
                op->op.audit = *record;
        else if (record)
                cairn_audit_emit(store, record);
        if (!cairn_block_is(block, CAIRN_BLOCK_RECORD)) {
                cairn_block_refresh(store, block);
                cairn_op_ready(op, CAIRN_OK);
                return;
        }
        block->refs++;
        cairn_block_refresh(store, block);
        op->block = block;
        op->op.kind = CAIRN_CATALOG_DELETE;
        op->op.block.space_id = cairn_block_space(store, block)->id;
        op->op.block.key = block->key;
        op->op.on_done = on_forgotten;
        if (op->evicting) {
                cairn_block_space(store, block)->evicting++;
                cairn_block_owner(store, block)->evicting++;
        }
        store->ops_pending++;
        cairn_catalog_submit(store->catalog, &op->op, op->evicting);
}
