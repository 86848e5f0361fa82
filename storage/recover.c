// The start: slab files found, the catalog loaded into the block table, everything that does not
// fit together dropped and counted. No block is read: bytes are verified when they are used.
#include <stdio.h>
#include <stdlib.h>

#include "storage/note.h"
#include "storage/store_internal.h"

struct recovery {
        struct cairn_store *store;
        uint32_t directory;
        uint32_t
            *by_number; // slab number -> index + 1; open addressing, twice as long as it has slabs
        uint32_t by_number_mask;
        int status;
        uint64_t dropped;
        uint8_t *header;
        struct by_order *order; // of the catalog's blocks
        uint32_t *entries;      // of the table, for the blocks as they are visited
        uint32_t count;
        uint32_t capacity;
        uint32_t visited;
};

// Blocks in some order: by their generations or their last use.
struct by_order {
        uint64_t order;
        uint32_t id;
};

struct found_slab {
        uint32_t slab;
        uint64_t size_bytes;
};
struct found_list {
        struct found_slab *slabs;
        uint32_t count;
        uint32_t capacity;
        int status;
};

static void on_slab(void *arg, uint32_t slab, uint64_t size_bytes)
{
        struct found_list *list = arg;
        if (list->count == list->capacity) {
                uint32_t capacity = list->capacity ? list->capacity * 2 : 64;
                struct found_slab *slabs = realloc(list->slabs, capacity * sizeof(*slabs));
                if (!slabs) {
                        list->status = CAIRN_ENOMEM;
                        return;
                }
                list->slabs = slabs;
                list->capacity = capacity;
        }
        list->slabs[list->count++] = (struct found_slab){slab, size_bytes};
}

static int by_number(const void *a, const void *b)
{
        uint32_t x = ((const struct found_slab *)a)->slab, y = ((const struct found_slab *)b)->slab;
        return x < y ? -1 : x > y;
}

// The space that a slab's header names, if it is known and looks the same.
static struct cairn_space_state *space_of(const struct cairn_store *store,
                                          const struct cairn_slab_header *header)
{
        struct cairn_space_state *space = cairn_space_by_fingerprint(store, &header->space);
        if (!space || space->layout.shape.layers != header->shape.layers ||
            space->layout.shape.raw_layer_bytes != header->shape.raw_layer_bytes ||
            space->layout.shape.code_layer_bytes != header->shape.code_layer_bytes)
                return NULL;
        return space;
}

static void discard_file(struct cairn_store *store, uint32_t directory, uint32_t number, int file)
{
        struct cairn_op *op = cairn_op_create(store);
        if (!op) {
                store->device->ops->close(store->device, file);
                return; // the next start finds it again
        }
        op->request = (struct cairn_device_request){.kind = CAIRN_DEVICE_REMOVE,
                                                    .file = file,
                                                    .directory = directory,
                                                    .slab = number,
                                                    .on_done = cairn_op_removed};
        cairn_io_submit(store, &op->request);
}

// A file that is cut keeps the slots that are whole; one whose start is unreadable is of no use.
static int open_slab(struct recovery *recovery, const struct found_slab *found)
{
        struct cairn_store *store = recovery->store;
        struct cairn_device *device = store->device;
        if (found->slab >= store->slab_number && found->slab < UINT32_MAX)
                store->slab_number = found->slab + 1;
        int file;
        if (device->ops->open(device, recovery->directory, found->slab, &file) != CAIRN_OK)
                return CAIRN_OK; // its records are dropped, the file stays for whoever repairs it
        struct cairn_slab_header header;
        int status =
            device->ops->read_now(device, file, 0, recovery->header, CAIRN_SLAB_HEADER_BYTES);
        bool read = status == CAIRN_OK;
        if (read)
                status = cairn_slab_header_read(recovery->header, &header);
        if (status == CAIRN_EVERSION) {
                device->ops->close(device, file);
                return status;
        }
        struct cairn_space_state *space = status == CAIRN_OK ? space_of(store, &header) : NULL;
        if (status == CAIRN_OK && !space && cairn_catalog_fresh(store->catalog))
                (void)cairn_rebuild_space(store, &header,
                                          &space); // without it the file is an orphan
        if (!space || header.slab != found->slab) {
                store->stats.recovered_orphans++;
                if (read || found->size_bytes < CAIRN_SLAB_HEADER_BYTES)
                        discard_file(store, recovery->directory, found->slab, file);
                else
                        device->ops->close(device, file);
                return CAIRN_OK;
        }
        uint64_t slot_bytes = space->layout.slot_bytes;
        uint64_t whole = (found->size_bytes - CAIRN_SLAB_HEADER_BYTES) / slot_bytes;
        uint32_t slots = header.slots < whole ? header.slots : (uint32_t)whole;
        uint32_t index;
        struct cairn_slab *slab = slots > 0 ? cairn_slab_add(store, slots, &index) : NULL;
        if (!slab) {
                device->ops->close(device, file);
                return slots > 0 ? CAIRN_ENOMEM : CAIRN_OK;
        }
        slab->state = CAIRN_SLAB_OPEN;
        slab->number = found->slab;
        slab->directory = recovery->directory;
        slab->space = space->index;
        slab->file = file;
        slab->size_bytes = found->size_bytes;
        store->slab_bytes_total += slab->size_bytes;
        space->free_slots += slots;
        store->stats.nvme_free_bytes += slots * slot_bytes;
        return CAIRN_OK;
}

static int open_slabs(struct recovery *recovery, char *ret_text)
{
        struct cairn_store *store = recovery->store;
        for (uint32_t i = 0; i < store->options.directories_count; i++) {
                struct found_list list = {0};
                int status = store->device->ops->list(store->device, i, on_slab, &list);
                if (status == CAIRN_OK)
                        status = list.status;
                recovery->directory = i;
                if (list.count > 1)
                        qsort(list.slabs, list.count, sizeof(list.slabs[0]), by_number);
                for (uint32_t n = 0; status == CAIRN_OK && n < list.count; n++)
                        status = open_slab(recovery, &list.slabs[n]);
                free(list.slabs);
                if (status == CAIRN_OK)
                        continue;
                snprintf(
                    ret_text, CAIRN_TEXT_BYTES_MAX,
                    status == CAIRN_EVERSION
                        ? "%s holds slab files of another format; use the cairnd that wrote them "
                          "or another "
                          "data directory"
                        : "cannot read the slab files of %s; check the disk and its permissions",
                    store->options.directories[i]);
                return status;
        }
        return CAIRN_OK;
}

static int index_slabs(struct recovery *recovery)
{
        struct cairn_store *store = recovery->store;
        uint32_t size = 64;
        while (size < 2 * store->slabs_count)
                size *= 2;
        recovery->by_number = calloc(size, sizeof(uint32_t));
        if (!recovery->by_number)
                return CAIRN_ENOMEM;
        recovery->by_number_mask = size - 1;
        for (uint32_t i = 0; i < store->slabs_count; i++) {
                uint32_t at = store->slabs[i]->number & recovery->by_number_mask;
                while (recovery->by_number[at])
                        at = (at + 1) & recovery->by_number_mask;
                recovery->by_number[at] = i + 1;
        }
        return CAIRN_OK;
}

static uint32_t slab_at(const struct recovery *recovery, uint32_t number)
{
        uint32_t at = number & recovery->by_number_mask;
        for (; recovery->by_number[at]; at = (at + 1) & recovery->by_number_mask) {
                uint32_t index = recovery->by_number[at] - 1;
                if (recovery->store->slabs[index]->number == number)
                        return index;
        }
        return CAIRN_NO_SLAB;
}

static int on_space(void *arg, const struct cairn_catalog_space *record)
{
        struct recovery *recovery = arg;
        struct cairn_space_state *space;
        if (cairn_space_by_fingerprint(recovery->store, &record->fingerprint))
                return CAIRN_OK;
        int status = cairn_space_add(recovery->store, record, &space);
        if (status == CAIRN_OK)
                space->committed = true;
        return status == CAIRN_EINVAL ? CAIRN_OK : status;
}

// A record without its bytes is a lost block: counted, and its record removed once the store runs.
static int drop_record(struct recovery *recovery, const struct cairn_catalog_block *record)
{
        struct cairn_store *store = recovery->store;
        recovery->dropped++;
        store->stats.recovered_orphans++;
        struct cairn_op *op = cairn_op_create(store);
        if (!op)
                return CAIRN_ENOMEM;
        op->op.kind = CAIRN_CATALOG_DELETE;
        op->op.block = *record;
        op->op.audit = (struct cairn_audit_record){.action = CAIRN_AUDIT_EVICT,
                                                   .reason = CAIRN_AUDIT_DEVICE,
                                                   .tenant = record->tenant,
                                                   .space = record->space_id,
                                                   .key = record->key,
                                                   .layer = CAIRN_AUDIT_ALL,
                                                   .head = CAIRN_AUDIT_ALL,
                                                   .count = 1,
                                                   .tier_from = CAIRN_TIER_NVME};
        if (store->options.wall_ms)
                op->op.audit.time_ms = store->options.wall_ms(store->options.clock);
        op->op.on_done = cairn_op_dropped;
        store->ops_pending++;
        cairn_catalog_submit(store->catalog, &op->op, true);
        return CAIRN_OK;
}

int cairn_recover_block(struct cairn_store *store, uint32_t slab,
                        const struct cairn_catalog_block *record, uint32_t id)
{
        struct cairn_space_state *space = store->spaces[store->slabs[slab]->space];
        struct cairn_tenant *tenant;
        struct cairn_pool *pool;
        int status = cairn_tenant_of(store, record->tenant, &tenant);
        if (status == CAIRN_OK)
                status = cairn_evict_pool_of(store, space, tenant, &pool);
        if (status != CAIRN_OK)
                return status;
        if (!cairn_slab_mark(store->slabs[slab], record->slot))
                return CAIRN_ENOENT;
        uint64_t slot_bytes = space->layout.slot_bytes;
        space->free_slots--;
        space->nvme_bytes += slot_bytes;
        store->stats.nvme_used_bytes += slot_bytes;
        store->stats.nvme_free_bytes -= slot_bytes;
        if (cairn_table_reserve(&store->table, 2) != CAIRN_OK)
                return CAIRN_ENOMEM;
        struct cairn_block *block = id == CAIRN_ANY_ENTRY ? cairn_table_entry(&store->table, false)
                                                          : cairn_table_entry_at(&store->table, id);
        if (!block || cairn_evict_node_reserve(store, block) != CAIRN_OK)
                return CAIRN_ENOMEM;
        block->key = record->key;
        block->parent = record->parent;
        block->generation = record->generation;
        block->used = record->used;
        block->tenant = record->tenant;
        block->owner = tenant->index;
        block->space = space->index;
        block->slab = slab;
        block->slot = record->slot;
        cairn_block_slot_taken(store, block);
        cairn_evict_node_init(store, block, record->recompute_us);
        block->flags |= CAIRN_BLOCK_RECORD;
        // The clock has no meaning across starts: a time to live begins anew.
        if (record->ttl_ms > 0)
                block->expires_ms = cairn_store_now(store) + record->ttl_ms;
        if (store->used < record->used)
                store->used = record->used;
        cairn_block_set_flag(store, block, CAIRN_BLOCK_STORED, true);
        cairn_block_load(store, block);
        store->stats.recovered_blocks++;
        return CAIRN_OK;
}

// Takes back what the function above did.
void cairn_recover_remove(struct cairn_store *store, struct cairn_block *block)
{
        cairn_table_remove(&store->table, block);
        cairn_block_set_flag(store, block, CAIRN_BLOCK_STORED, false);
        cairn_block_space(store, block)->blocks--;
        cairn_block_owner(store, block)->blocks--;
        store->stats.blocks--;
        store->stats.recovered_blocks--;
        cairn_block_slot_give(store, block, false);
        cairn_table_entry_free(&store->table, block);
}

// ---- the order of entries ----

static int compare_order(const void *a, const void *b)
{
        uint64_t x = ((const struct by_order *)a)->order, y = ((const struct by_order *)b)->order;
        return x < y ? -1 : x > y;
}

static int on_generation(void *arg, const struct cairn_catalog_block *record)
{
        struct recovery *recovery = arg;
        if (recovery->count == recovery->capacity) {
                uint32_t capacity = recovery->capacity ? 2 * recovery->capacity : 1024;
                struct by_order *order = realloc(recovery->order, capacity * sizeof(*order));
                if (!order)
                        return CAIRN_ENOMEM;
                recovery->order = order;
                recovery->capacity = capacity;
        }
        recovery->order[recovery->count] = (struct by_order){record->generation, recovery->count};
        recovery->count++;
        return CAIRN_OK;
}

static int ignore_space(void *arg, const struct cairn_catalog_space *record)
{
        (void)arg;
        (void)record; // known already
        return CAIRN_OK;
}

// Entries lie in the order in which blocks were put, so that chains that came in one go are found
// one behind the other.
static int place_entries(struct recovery *recovery)
{
        struct cairn_catalog_visitor generations = {
            .on_space = ignore_space, .on_block = on_generation, .arg = recovery};
        uint64_t bad_blocks;
        int status = cairn_catalog_load(recovery->store->catalog, &generations, &bad_blocks);
        if (status != CAIRN_OK || recovery->count == 0)
                return status;
        recovery->entries = malloc(recovery->count * sizeof(*recovery->entries));
        if (!recovery->entries)
                return CAIRN_ENOMEM;
        qsort(recovery->order, recovery->count, sizeof(*recovery->order), compare_order);
        for (uint32_t i = 0; i < recovery->count; i++)
                recovery->entries[recovery->order[i].id] = i;
        return cairn_table_prepare(&recovery->store->table, recovery->count);
}

static int on_block(void *arg, const struct cairn_catalog_block *record)
{
        struct recovery *recovery = arg;
        struct cairn_store *store = recovery->store;
        struct cairn_space_state *space = cairn_space_by_id(store, record->space_id);
        uint32_t visit = recovery->visited++;
        if (visit >= recovery->count)
                return CAIRN_EINTERNAL; // nobody writes while this reads
        uint32_t index = space ? slab_at(recovery, record->slab) : CAIRN_NO_SLAB;
        int status = CAIRN_ENOENT;
        if (index != CAIRN_NO_SLAB && store->slabs[index]->space == space->index)
                status = cairn_recover_block(store, index, record, recovery->entries[visit]);
        return status == CAIRN_ENOENT ? drop_record(recovery, record) : status;
}

// A parent is older than its children unless it was put again. Every circle has such a younger
// parent.
static bool parent_is_younger(const struct cairn_store *store, const struct cairn_block *block)
{
        const struct cairn_block *parent =
            cairn_table_find(&store->table, block->space, &block->parent);
        return parent && parent->generation > block->generation;
}

// Policies see the blocks in the order of their last use.
static int place_blocks(struct cairn_store *store)
{
        uint32_t entries = cairn_table_entries(&store->table);
        uint32_t count = 0;
        struct by_order *order = malloc((store->stats.blocks + 1) * sizeof(*order));
        if (!order)
                return CAIRN_ENOMEM;
        for (uint32_t id = 0; id < entries; id++) {
                const struct cairn_block *block = cairn_table_at(&store->table, id);
                if (cairn_block_is(block, CAIRN_BLOCK_VISIBLE))
                        order[count++] = (struct by_order){block->used, id};
        }
        assert(count == store->stats.blocks);
        qsort(order, count, sizeof(*order), compare_order);
        for (uint32_t i = 0; i < count; i++)
                cairn_block_refresh(store, cairn_table_at(&store->table, order[i].id));
        free(order);
        return CAIRN_OK;
}

// Parents and places in the evictions, once all blocks are there: no ghost is made in vain.
static int link_blocks(struct cairn_store *store)
{
        uint32_t entries = cairn_table_entries(&store->table);
        for (int younger = 0; younger < 2; younger++) {
                for (uint32_t id = 0; id < entries; id++) {
                        struct cairn_block *block = cairn_table_at(&store->table, id);
                        if (!cairn_block_is(block, CAIRN_BLOCK_VISIBLE) ||
                            cairn_block_is(block, CAIRN_BLOCK_CHILD) ||
                            parent_is_younger(store, block) != younger)
                                continue;
                        if (!younger || !cairn_block_closes_circle(store, block))
                                (void)cairn_block_child_count(store, block); // refreshed below
                }
        }
        return place_blocks(store);
}

static int on_note(void *arg, const struct cairn_note *note)
{
        struct recovery *recovery = arg;
        return cairn_note_load(recovery->store, note);
}

static int skip_block(void *arg, const struct cairn_catalog_block *record)
{
        (void)arg;
        (void)record;
        return 1; // spaces first: the slabs are opened between
}

int cairn_recover(struct cairn_store *store, char *ret_text)
{
        struct recovery recovery = {.store = store};
        struct cairn_catalog_visitor spaces = {
            .on_space = on_space, .on_block = skip_block, .arg = &recovery};
        struct cairn_catalog_visitor blocks = {
            .on_space = on_space, .on_block = on_block, .on_note = on_note, .arg = &recovery};
        uint64_t bad_spaces = 0, bad_blocks = 0;
        snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                 "cannot load the catalog; check the disk and the memory");
        recovery.header = aligned_alloc(CAIRN_DEVICE_ALIGN_BYTES, CAIRN_SLAB_HEADER_BYTES);
        int status = recovery.header ? CAIRN_OK : CAIRN_ENOMEM;
        if (status == CAIRN_OK)
                status = cairn_catalog_load(store->catalog, &spaces, &bad_spaces);
        if (status > 0)
                status = CAIRN_OK;
        if (status == CAIRN_OK)
                status = open_slabs(&recovery, ret_text);
        if (status == CAIRN_OK)
                status = index_slabs(&recovery);
        if (status == CAIRN_OK)
                status = place_entries(&recovery);
        if (status == CAIRN_OK)
                status = cairn_catalog_load(store->catalog, &blocks, &bad_blocks);
        cairn_table_relist(&store->table);
        if (status == CAIRN_OK && cairn_catalog_fresh(store->catalog))
                status = cairn_rebuild_blocks(store);
        if (status == CAIRN_OK)
                status = link_blocks(store);
        if (status == CAIRN_OK)
                cairn_legal_load(store);
        free(recovery.by_number);
        free(recovery.order);
        free(recovery.entries);
        free(recovery.header);
        store->stats.corrupt_blocks += bad_blocks;
        return status;
}
