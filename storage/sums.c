// Numbers of the store, and their recomputation from the tables.
#include <stdlib.h>

#include "storage/store_internal.h"

void cairn_store_stats(const struct cairn_store *store, struct cairn_store_stats *ret_stats)
{
        *ret_stats = store->stats;
        ret_stats->ram_used_bytes = cairn_ram_used_bytes(store->ram);
        ret_stats->ram_limit_bytes = store->options.ram_bytes;
        ret_stats->nvme_limit_bytes = store->options.nvme_bytes;
        ret_stats->spaces = store->spaces_count;
        ret_stats->io_inflight = store->io_pending;
        ret_stats->commits = cairn_catalog_commits(store->catalog);
        ret_stats->waiting_puts = store->wait_count;
        ret_stats->writes_queued = store->writes_queued;
        ret_stats->commits_pending = store->commits_inflight;
        ret_stats->device_uring = store->device->uring;
        ret_stats->device_direct = store->device->direct;
}

struct sums {
        uint64_t blocks;
        uint64_t ram_blocks;
        uint64_t nvme_blocks;
        uint64_t dirty_blocks;
        uint64_t ram_only;
        uint64_t flagged_ram; // blocks that say of themselves that they are in RAM
        uint64_t holds;
        uint64_t pins;
        uint64_t ram_bytes;
        uint64_t slots;
        uint64_t misplaced; // blocks whose flags and node disagree on what may be evicted
};

// What an entry says of its node, so that nobody need look there.
static bool place_agrees(const struct cairn_store *store, const struct cairn_block *block)
{
        const struct cairn_eviction_node *node = cairn_evict_node(store, block);
        bool may_go = node->home != NULL && node->holds == 0;
        return block->pooled == (node->home != NULL) &&
               cairn_block_is(block, CAIRN_BLOCK_MAY_GO) == may_go;
}

static void add_block(const struct cairn_store *store, const struct cairn_block *block,
                      struct sums *sums)
{
        const struct cairn_layout *layout = &cairn_block_space(store, block)->layout;
        sums->blocks += cairn_block_is(block, CAIRN_BLOCK_VISIBLE);
        sums->nvme_blocks += cairn_block_is(block, CAIRN_BLOCK_STORED);
        sums->dirty_blocks += cairn_block_is(block, CAIRN_BLOCK_DIRTY);
        sums->ram_only += cairn_block_is(block, CAIRN_BLOCK_RAM_ONLY);
        sums->flagged_ram += cairn_block_is(block, CAIRN_BLOCK_RAW);
        sums->holds += block->holds;
        sums->slots += block->slab != CAIRN_NO_SLAB;
        sums->misplaced += !place_agrees(store, block);
        for (uint32_t i = 0; block->resident && i < CAIRN_PART_COUNT; i++) {
                const struct cairn_part_ram *ram = &block->resident->parts[i];
                sums->pins += ram->pins;
                if (ram->state != CAIRN_PART_NONE)
                        sums->ram_bytes += layout->part_bytes[i];
                if (i == 0 && ram->state == CAIRN_PART_READY)
                        sums->ram_blocks++;
        }
}

// Children by a fresh count, keyed by parent entry: all, then those that are visible.
static bool children_agree(const struct cairn_store *store, uint32_t (*children)[2])
{
        uint32_t entries = cairn_table_entries(&store->table);
        for (uint32_t id = 0; id < entries; id++) {
                const struct cairn_block *block = cairn_table_at(&store->table, id);
                if (!cairn_block_is(block, CAIRN_BLOCK_LIVE) ||
                    !cairn_block_is(block, CAIRN_BLOCK_CHILD))
                        continue;
                const struct cairn_block *parent =
                    cairn_table_find(&store->table, block->space, &block->parent);
                if (!parent)
                        return false;
                children[parent->id][0]++;
                children[parent->id][1] += cairn_block_is(block, CAIRN_BLOCK_VISIBLE);
        }
        for (uint32_t id = 0; id < entries; id++) {
                const struct cairn_block *block = cairn_table_at(&store->table, id);
                if (!cairn_block_is(block, CAIRN_BLOCK_LIVE))
                        continue;
                if (block->children != children[id][0] ||
                    block->children_visible != children[id][1])
                        return false;
                if (cairn_block_is(block, CAIRN_BLOCK_GHOST) && children[id][0] == 0)
                        return false;
        }
        return true;
}

static bool slabs_agree(const struct cairn_store *store, uint64_t slots)
{
        uint64_t taken = 0, bad = 0, free_bytes = 0, used_bytes = 0, total_bytes = 0;
        for (uint32_t i = 0; i < store->slabs_count; i++) {
                const struct cairn_slab *slab = store->slabs[i];
                if (!slab)
                        continue;
                total_bytes += slab->size_bytes;
                if (slab->state != CAIRN_SLAB_OPEN)
                        continue;
                uint64_t slot_bytes = store->spaces[slab->space]->layout.slot_bytes;
                uint32_t set = 0;
                for (uint32_t word = 0; word < (slab->slots + 63) / 64; word++)
                        set += (uint32_t)__builtin_popcountll(slab->taken[word]);
                if (set + slab->free_count != slab->slots)
                        return false;
                taken += set;
                bad += slab->bad_count;
                used_bytes += set * slot_bytes;
                free_bytes += slab->free_count * slot_bytes;
        }
        return taken - bad == slots && used_bytes == store->stats.nvme_used_bytes &&
               free_bytes == store->stats.nvme_free_bytes && total_bytes == store->slab_bytes_total;
}

static bool spaces_agree(const struct cairn_store *store, const struct sums *sums)
{
        uint64_t blocks = 0, ram_bytes = 0, nvme_bytes = 0;
        for (uint32_t i = 0; i < store->spaces_count; i++) {
                blocks += store->spaces[i]->blocks;
                ram_bytes += store->spaces[i]->ram_bytes;
                nvme_bytes += store->spaces[i]->nvme_bytes;
        }
        return blocks == sums->blocks && ram_bytes == sums->ram_bytes &&
               nvme_bytes == store->stats.nvme_used_bytes;
}

struct tenant_sums {
        uint64_t blocks;
        uint64_t ram_bytes;
        uint64_t nvme_bytes;
};

static void add_to_tenant(const struct cairn_store *store, const struct cairn_block *block,
                          struct tenant_sums *sums)
{
        const struct cairn_layout *layout = &cairn_block_space(store, block)->layout;
        sums[block->owner].blocks += cairn_block_is(block, CAIRN_BLOCK_VISIBLE);
        if (block->slab != CAIRN_NO_SLAB)
                sums[block->owner].nvme_bytes += layout->slot_bytes;
        for (uint32_t i = 0; block->resident && i < CAIRN_PART_COUNT; i++) {
                if (block->resident->parts[i].state != CAIRN_PART_NONE)
                        sums[block->owner].ram_bytes += layout->part_bytes[i];
        }
}

static bool tenants_agree(const struct cairn_store *store, struct tenant_sums *sums)
{
        uint32_t entries = cairn_table_entries(&store->table);
        for (uint32_t id = 0; id < entries; id++) {
                const struct cairn_block *block = cairn_table_at(&store->table, id);
                if (cairn_block_is(block, CAIRN_BLOCK_LIVE) &&
                    !cairn_block_is(block, CAIRN_BLOCK_GHOST))
                        add_to_tenant(store, block, sums);
        }
        for (const struct cairn_link *link = store->ranges; link; link = link->next) {
                const struct cairn_range_load *load =
                    CAIRN_CONTAINER(link, struct cairn_range_load, link);
                sums[load->block->owner].ram_bytes += load->bytes;
        }
        for (uint32_t i = 0; i < store->tenants_count; i++) {
                const struct cairn_tenant *tenant = store->tenants[i];
                if (tenant->blocks != sums[i].blocks || tenant->ram_bytes != sums[i].ram_bytes ||
                    tenant->nvme_bytes != sums[i].nvme_bytes)
                        return false;
        }
        return true;
}

int cairn_store_audit_counters(const struct cairn_store *store)
{
        const struct cairn_store_stats *stats = &store->stats;
        struct sums sums = {0};
        uint32_t entries = cairn_table_entries(&store->table);
        for (uint32_t id = 0; id < entries; id++) {
                const struct cairn_block *block = cairn_table_at(&store->table, id);
                if (cairn_block_is(block, CAIRN_BLOCK_LIVE) &&
                    !cairn_block_is(block, CAIRN_BLOCK_GHOST))
                        add_block(store, block, &sums);
        }
        if (sums.blocks != stats->blocks || sums.ram_blocks != stats->ram_blocks ||
            sums.nvme_blocks != stats->nvme_blocks || sums.dirty_blocks != stats->dirty_blocks ||
            sums.ram_only != store->ram_only || sums.holds != stats->holds ||
            sums.pins != stats->pins || sums.flagged_ram != sums.ram_blocks || sums.misplaced > 0 ||
            sums.ram_bytes + store->range_bytes != cairn_ram_used_bytes(store->ram) ||
            cairn_ram_backed_bytes(store->ram) > store->options.ram_bytes)
                return CAIRN_EINTERNAL;
        if (!spaces_agree(store, &sums) || !slabs_agree(store, sums.slots))
                return CAIRN_EINTERNAL;
        uint32_t(*children)[2] = calloc(entries ? entries : 1, sizeof(*children));
        if (!children)
                return CAIRN_ENOMEM;
        struct tenant_sums *tenants = calloc(CAIRN_TENANTS_MAX, sizeof(*tenants));
        int status = CAIRN_ENOMEM;
        if (tenants)
                status = children_agree(store, children) && tenants_agree(store, tenants)
                             ? CAIRN_OK
                             : CAIRN_EINTERNAL;
        free(tenants);
        free(children);
        return status;
}
