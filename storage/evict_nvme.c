// What NVMe gives up: blocks of a space that needs slots, of a tenant over its quota, or of a space
// whose files another needs. Leaves alone; never what is held, nor another's guaranteed share.
#include <stdlib.h>

#include "storage/store_internal.h"

enum {
        NODES_CHUNK = 1024,
        GHOSTS_MIN = 256,
        GHOSTS_MAX = 65536
};
#define GHOST_BYTES (64ull << 10) // of the tier, an entry of the policy's memory of what has gone

// ---- nodes, beside the block table ----

int cairn_evict_node_reserve(struct cairn_store *store, const struct cairn_block *block)
{
        uint32_t chunk = block->id / NODES_CHUNK;
        if (chunk >= store->node_chunks_count) {
                uint32_t count = chunk + 64;
                struct cairn_eviction_node **chunks =
                    realloc(store->node_chunks, count * sizeof(*chunks));
                if (!chunks)
                        return CAIRN_ENOMEM;
                memset(chunks + store->node_chunks_count, 0,
                       (count - store->node_chunks_count) * sizeof(*chunks));
                store->node_chunks = chunks;
                store->node_chunks_count = count;
        }
        if (!store->node_chunks[chunk])
                store->node_chunks[chunk] = calloc(NODES_CHUNK, sizeof(**store->node_chunks));
        return store->node_chunks[chunk] ? CAIRN_OK : CAIRN_ENOMEM;
}

struct cairn_eviction_node *cairn_evict_node(const struct cairn_store *store,
                                             const struct cairn_block *block)
{
        return &store->node_chunks[block->id / NODES_CHUNK][block->id % NODES_CHUNK];
}

void cairn_evict_node_init(struct cairn_store *store, struct cairn_block *block,
                           uint64_t recompute_us)
{
        struct cairn_eviction_node *node = cairn_evict_node(store, block);
        uint64_t id;
        memcpy(&id, block->key.bytes, sizeof(id));
        assert(!node->home);
        *node = (struct cairn_eviction_node){
            .id = id,
            .size_bytes = cairn_block_space(store, block)->layout.slot_bytes,
            .recompute_us = recompute_us,
            .owner = block->id,
        };
}

void cairn_evict_nodes_finish(struct cairn_store *store)
{
        for (uint32_t i = 0; i < store->node_chunks_count; i++)
                free(store->node_chunks[i]);
        free(store->node_chunks);
        store->node_chunks = NULL;
        store->node_chunks_count = 0;
}

// ---- evictions: state and pools ----

int cairn_evict_open(struct cairn_store *store, struct cairn_eviction *eviction,
                     uint64_t capacity_bytes)
{
        const struct cairn_eviction_ops *ops = store->options.eviction;
        uint64_t ghosts = capacity_bytes / GHOST_BYTES;
        struct cairn_eviction_options options = {
            .capacity_bytes = capacity_bytes,
            .ghost_entries_max = ghosts < GHOSTS_MIN   ? GHOSTS_MIN
                                 : ghosts > GHOSTS_MAX ? GHOSTS_MAX
                                                       : (uint32_t)ghosts,
        };
        size_t bytes = (ops->state_bytes(&options) + 15) / 16 * 16;
        void *state = aligned_alloc(16, bytes);
        if (!state)
                return CAIRN_ENOMEM;
        cairn_eviction_init(eviction, ops, &options, state);
        return CAIRN_OK;
}

int cairn_evict_pool_of(struct cairn_store *store, struct cairn_space_state *space,
                        struct cairn_tenant *tenant, struct cairn_pool **ret_pool)
{
        struct cairn_pool *pool = space->pools;
        while (pool && pool->tenant != tenant)
                pool = pool->next_of_space;
        if (!pool) {
                pool = calloc(1, sizeof(*pool));
                if (!pool)
                        return CAIRN_ENOMEM;
                int status = cairn_evict_open(store, &pool->eviction, store->options.nvme_bytes);
                if (status != CAIRN_OK) {
                        free(pool);
                        return status;
                }
                pool->space = space;
                pool->tenant = tenant;
                pool->next_of_space = space->pools;
                space->pools = pool;
                pool->next_of_tenant = tenant->pools;
                tenant->pools = pool;
        }
        *ret_pool = pool;
        return CAIRN_OK;
}

void cairn_evict_pools_finish(struct cairn_space_state *space)
{
        while (space->pools) {
                struct cairn_pool *pool = space->pools;
                space->pools = pool->next_of_space;
                free(pool->eviction.state);
                free(pool);
        }
}

// After any change of the block: into its pool or out of it, and whether it may go.
void cairn_evict_place_nvme(struct cairn_store *store, struct cairn_block *block)
{
        bool in =
            cairn_block_is(block, CAIRN_BLOCK_VISIBLE) && cairn_block_is(block, CAIRN_BLOCK_STORED);
        bool may_go = in && block->holds == 0 && block->refs == 0 && block->children == 0 &&
                      !cairn_block_is(block, CAIRN_BLOCK_DIRTY | CAIRN_BLOCK_LEGAL);
        if (in && block->pooled && may_go == cairn_block_is(block, CAIRN_BLOCK_MAY_GO))
                return; // as it was: nothing beside the block is touched
        block->flags = (uint16_t)(may_go ? block->flags | CAIRN_BLOCK_MAY_GO
                                         : block->flags & ~CAIRN_BLOCK_MAY_GO);
        struct cairn_eviction_node *node = cairn_evict_node(store, block);
        if (!in) {
                if (node->home)
                        cairn_eviction_remove(node, CAIRN_EVICTION_REMOVED);
                block->pooled = false;
                return;
        }
        block->pooled = true;
        if (!node->home) {
                struct cairn_pool *pool = NULL;
                int status = cairn_evict_pool_of(store, cairn_block_space(store, block),
                                                 cairn_block_owner(store, block), &pool);
                assert(status == CAIRN_OK); // made before the block
                cairn_evict_node_init(store, block, node->recompute_us);
                cairn_eviction_insert(&pool->eviction, node, NULL);
        }
        cairn_eviction_set_held(node, !may_go);
}

// ---- victims ----

static struct cairn_block *victim_of(struct cairn_store *store, struct cairn_pool *pool)
{
        struct cairn_eviction *eviction = &pool->eviction;
        for (;;) {
                if (eviction->nodes == 0)
                        return NULL;
                cairn_eviction_resize(eviction, eviction->bytes);
                struct cairn_eviction_node *node = cairn_eviction_victim(eviction);
                if (!node)
                        return NULL;
                struct cairn_block *block = cairn_table_at(&store->table, node->owner);
                cairn_block_refresh(store, block);
                if (!cairn_eviction_blocked(node))
                        return block; // else it was held since it was put there
        }
}

static bool allowed(const struct cairn_pool *pool, const struct cairn_tenant *taker)
{
        const struct cairn_tenant *tenant = pool->tenant;
        return !taker || tenant == taker ||
               tenant->nvme_bytes >=
                   tenant->quota.nvme_guaranteed_bytes + pool->space->layout.slot_bytes;
}

// The longest unused of what the pools' policies would give up.
static struct cairn_block *victim_of_space(struct cairn_store *store,
                                           struct cairn_space_state *space,
                                           const struct cairn_tenant *taker)
{
        struct cairn_block *oldest = NULL;
        for (struct cairn_pool *pool = space->pools; pool; pool = pool->next_of_space) {
                struct cairn_block *block = allowed(pool, taker) ? victim_of(store, pool) : NULL;
                if (block && (!oldest || block->used < oldest->used))
                        oldest = block;
        }
        return oldest;
}

static bool evict(struct cairn_store *store, struct cairn_block *block,
                  enum cairn_audit_reason reason)
{
        struct cairn_op *op = cairn_op_create(store);
        if (!op)
                return false;
        op->evicting = true;
        struct cairn_eviction_node *node = cairn_evict_node(store, block);
        struct cairn_eviction_reason numbers;
        struct cairn_audit_record record;
        cairn_eviction_explain(node, &numbers);
        cairn_audit_describe(store, block, CAIRN_AUDIT_EVICT, reason, &record);
        cairn_audit_decided(store, &record, NULL, &numbers);
        assert(block->children == 0 && block->holds == 0);
        cairn_eviction_remove(node, CAIRN_EVICTION_EVICTED);
        block->pooled = false;
        block->flags &= (uint16_t)~CAIRN_BLOCK_MAY_GO;
        store->stats.evicted_nvme++;
        cairn_block_forget(store, block, op, &record);
        return true;
}

uint32_t cairn_evict_nvme(struct cairn_store *store, struct cairn_space_state *space,
                          const struct cairn_tenant *taker, uint32_t count)
{
        uint32_t done = 0;
        while (done < count) {
                struct cairn_block *block = victim_of_space(store, space, taker);
                if (!block || !evict(store, block, CAIRN_AUDIT_CAPACITY))
                        break;
                done++;
        }
        return done;
}

bool cairn_evict_elsewhere(struct cairn_store *store, const struct cairn_tenant *taker,
                           const struct cairn_space_state *but)
{
        struct cairn_space_state *oldest = NULL;
        uint64_t oldest_used = 0;
        for (uint32_t i = 0; i < store->spaces_count; i++) {
                struct cairn_space_state *space = store->spaces[i];
                if (space == but)
                        continue;
                if (space->evicting > 0)
                        return true;
                const struct cairn_block *block = victim_of_space(store, space, taker);
                if (block && (!oldest || block->used < oldest_used)) {
                        oldest = space;
                        oldest_used = block->used;
                }
        }
        if (!oldest)
                return false;
        uint32_t slots = cairn_slab_slots_of(store, &oldest->layout);
        return cairn_evict_nvme(store, oldest, taker,
                                slots < CAIRN_EVICT_BATCH_MAX ? slots : CAIRN_EVICT_BATCH_MAX) > 0;
}

// ---- quotas ----

bool cairn_evict_over_quota(const struct cairn_tenant *tenant, uint64_t more_bytes)
{
        return tenant->quota.nvme_bytes > 0 &&
               tenant->nvme_bytes + more_bytes > tenant->quota.nvme_bytes;
}

// Blocks of any of the tenant's spaces, the longest unused first, until the quota has room for so
// many more bytes. True: some are on their way out.
bool cairn_evict_own(struct cairn_store *store, struct cairn_tenant *tenant, uint64_t more_bytes)
{
        if (tenant->evicting > 0)
                return true;
        uint64_t pending_bytes = 0;
        for (uint32_t i = 0; i < CAIRN_EVICT_BATCH_MAX; i++) {
                if (tenant->nvme_bytes + more_bytes <= tenant->quota.nvme_bytes + pending_bytes)
                        break;
                struct cairn_block *oldest = NULL;
                for (struct cairn_pool *pool = tenant->pools; pool; pool = pool->next_of_tenant) {
                        struct cairn_block *block = victim_of(store, pool);
                        if (block && (!oldest || block->used < oldest->used))
                                oldest = block;
                }
                uint64_t bytes = oldest ? cairn_block_space(store, oldest)->layout.slot_bytes : 0;
                if (!oldest || !evict(store, oldest, CAIRN_AUDIT_OVER_QUOTA))
                        break;
                pending_bytes += bytes;
        }
        return tenant->evicting > 0;
}

void cairn_evict_to_quotas(struct cairn_store *store)
{
        if (!store->quotas_lowered)
                return;
        bool done = true;
        for (uint32_t i = 0; i < store->tenants_count; i++) {
                struct cairn_tenant *tenant = store->tenants[i];
                done = cairn_evict_ram_to_quota(store, tenant) && done;
                if (!cairn_evict_over_quota(tenant, 0))
                        continue;
                (void)cairn_evict_own(store, tenant, 0); // goes on when these are gone
                done = false;
        }
        store->quotas_lowered = !done;
}
