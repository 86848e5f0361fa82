// A catalog made anew from the slab files: spaces from the files' starts, blocks from their slots'
// headers. Bytes are not read; they are verified when they are used. A block that was deleted or
// evicted before may come back: its bytes are those of its key.
#include <stdlib.h>

#include "storage/store_internal.h"

enum {
        BATCH = 1024
};

struct rebuild {
        struct cairn_store *store;
        struct cairn_catalog_op *ops; // BATCH of them
        uint32_t ops_count;
        uint64_t generation; // the largest seen
        uint8_t *header;
        uint64_t header_bytes;
};

int cairn_rebuild_space(struct cairn_store *store, const struct cairn_slab_header *header,
                        struct cairn_space_state **ret_space)
{
        struct cairn_catalog_op op = {
            .kind = CAIRN_CATALOG_SPACE,
            .space = {.id = header->space_id,
                      .description_bytes = header->description_bytes,
                      .fingerprint = header->space,
                      .shape = header->shape,
                      .description = header->description},
        };
        if (op.space.id == 0 || cairn_space_by_id(store, op.space.id))
                return CAIRN_EINVAL;
        struct cairn_space_state *space;
        int status = cairn_space_add(store, &op.space, &space);
        if (status != CAIRN_OK)
                return status;
        status = cairn_catalog_write_now(store->catalog, &op);
        space->committed = status == CAIRN_OK;
        *ret_space = space;
        return status;
}

static int flush(struct rebuild *rebuild)
{
        if (rebuild->ops_count == 0)
                return CAIRN_OK;
        for (uint32_t i = 0; i < rebuild->ops_count; i++)
                rebuild->ops[i].next = i + 1 < rebuild->ops_count ? &rebuild->ops[i + 1] : NULL;
        rebuild->ops_count = 0;
        return cairn_catalog_write_now(rebuild->store->catalog, rebuild->ops);
}

// Reads the header of one part of a slot. CAIRN_ENOENT: there is no block of this space.
static int read_header(struct rebuild *rebuild, const struct cairn_slab *slab, uint32_t slot,
                       uint32_t part, struct cairn_part_identity *ret_identity,
                       struct cairn_checksum *ret_table)
{
        struct cairn_store *store = rebuild->store;
        const struct cairn_space_state *space = store->spaces[slab->space];
        uint64_t offset = CAIRN_SLAB_HEADER_BYTES + slot * space->layout.slot_bytes +
                          (part ? space->layout.part_bytes[0] : 0);
        if (store->device->ops->read_now(store->device, slab->file, offset, rebuild->header,
                                         space->layout.header_bytes) != CAIRN_OK ||
            cairn_part_read(&space->layout, part, rebuild->header, ret_identity, ret_table) !=
                CAIRN_OK ||
            !cairn_key_equal(&ret_identity->space, &space->fingerprint))
                return CAIRN_ENOENT;
        return CAIRN_OK;
}

// The table keeps the newest of a key. True: this one is it.
static bool is_newest(struct cairn_store *store, const struct cairn_slab *slab,
                      const struct cairn_part_identity *identity)
{
        struct cairn_block *other = cairn_table_find(&store->table, slab->space, &identity->key);
        if (!other)
                return true;
        if (other->generation >= identity->generation)
                return false;
        cairn_recover_remove(store, other);
        return true;
}

static int scan_slot(struct rebuild *rebuild, struct cairn_slab *slab, uint32_t slot)
{
        struct cairn_store *store = rebuild->store;
        const struct cairn_space_state *space = store->spaces[slab->space];
        struct cairn_part_identity identity, other;
        struct cairn_checksum tables[CAIRN_PART_COUNT];
        uint32_t parts = space->layout.part_bytes[1] > 0 ? 2 : 1;
        if (read_header(rebuild, slab, slot, 0, &identity, &tables[0]) != CAIRN_OK)
                return CAIRN_OK;
        if (parts > 1 && (read_header(rebuild, slab, slot, 1, &other, &tables[1]) != CAIRN_OK ||
                          !cairn_key_equal(&other.key, &identity.key) ||
                          other.generation != identity.generation))
                return CAIRN_OK;
        if (rebuild->generation < identity.generation)
                rebuild->generation = identity.generation;
        if (!is_newest(store, slab, &identity))
                return CAIRN_OK;
        struct cairn_catalog_op *op = &rebuild->ops[rebuild->ops_count];
        *op = (struct cairn_catalog_op){.kind = CAIRN_CATALOG_PUT,
                                        .block = {.key = identity.key,
                                                  .parent = identity.parent,
                                                  .generation = identity.generation,
                                                  .used = identity.generation,
                                                  .ttl_ms = identity.ttl_ms,
                                                  .recompute_us = identity.recompute_us,
                                                  .space_id = space->id,
                                                  .slab = slab->number,
                                                  .slot = slot,
                                                  .tenant = identity.tenant}};
        cairn_block_checksum_of(tables, parts, &op->block.checksum);
        int status =
            cairn_recover_block(store, cairn_slab_index(slab), &op->block, CAIRN_ANY_ENTRY);
        if (status != CAIRN_OK)
                return status;
        return ++rebuild->ops_count == BATCH ? flush(rebuild) : CAIRN_OK;
}

static int grow_header(struct rebuild *rebuild, uint64_t bytes)
{
        if (bytes <= rebuild->header_bytes)
                return CAIRN_OK;
        free(rebuild->header);
        rebuild->header = aligned_alloc(CAIRN_DEVICE_ALIGN_BYTES, bytes);
        rebuild->header_bytes = rebuild->header ? bytes : 0;
        return rebuild->header ? CAIRN_OK : CAIRN_ENOMEM;
}

int cairn_rebuild_blocks(struct cairn_store *store)
{
        struct rebuild rebuild = {.store = store};
        rebuild.ops = calloc(BATCH, sizeof(*rebuild.ops));
        int status = rebuild.ops ? CAIRN_OK : CAIRN_ENOMEM;
        for (uint32_t i = 0; status == CAIRN_OK && i < store->slabs_count; i++) {
                struct cairn_slab *slab = store->slabs[i];
                status = grow_header(&rebuild, store->spaces[slab->space]->layout.header_bytes);
                for (uint32_t slot = 0; status == CAIRN_OK && slot < slab->slots; slot++)
                        status = scan_slot(&rebuild, slab, slot);
        }
        if (status == CAIRN_OK)
                status = flush(&rebuild);
        if (status == CAIRN_OK)
                status = cairn_catalog_set_generation(store->catalog, rebuild.generation);
        store->generation = cairn_catalog_generation(store->catalog);
        free(rebuild.header);
        free(rebuild.ops);
        return status;
}
