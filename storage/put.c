// Puts, from the reservation of RAM to the commit: one at a time a key, invisible until whole.
#include <stdlib.h>

#include "storage/store_internal.h"

static struct cairn_put **bucket_of(struct cairn_store *store, uint16_t space,
                                    const struct cairn_key *key)
{
        uint64_t word;
        memcpy(&word, key->bytes, sizeof(word));
        word = (word ^ space ^ store->table.seed) * 0x9e3779b97f4a7c15ull;
        return &store->puts[(word >> 40) % CAIRN_PUTS_HASH];
}

// The put of this very block, or with NULL the one of the key that is being filled.
static struct cairn_put *find_active(struct cairn_store *store, uint16_t space,
                                     const struct cairn_key *key, const struct cairn_block *block)
{
        struct cairn_put *put = *bucket_of(store, space, key);
        for (; put; put = put->next_same) {
                const struct cairn_block *of = put->block;
                bool filling = !cairn_block_is(of, CAIRN_BLOCK_VISIBLE | CAIRN_BLOCK_STALE);
                if (block ? of == block
                          : filling && of->space == space && cairn_key_equal(&of->key, key))
                        return put;
        }
        return NULL;
}

void cairn_put_active_add(struct cairn_store *store, struct cairn_put *put)
{
        struct cairn_put **bucket = bucket_of(store, put->block->space, &put->block->key);
        put->next_same = *bucket;
        *bucket = put;
        put->active = true;
        store->puts_active++;
}

static void follow(struct cairn_store *store, struct cairn_put *put,
                   struct cairn_put_begin *request)
{
        struct cairn_put_begin **last = &put->followers;
        while (*last)
                last = &(*last)->next;
        request->next = NULL;
        *last = request;
        store->deadlines += request->deadline_ms > 0;
        store->followers += request->deadline_ms > 0;
}

// What waited for the put looks again. Who asked for a write of what RAM had alone is told how it
// ended.
static void followers_go(struct cairn_store *store, struct cairn_put *put)
{
        struct cairn_put_begin *follower = put->followers;
        put->followers = NULL;
        while (follower) {
                struct cairn_put_begin *next = follower->next;
                store->deadlines -= follower->deadline_ms > 0;
                store->followers -= follower->deadline_ms > 0;
                if (cairn_block_is(put->block, CAIRN_BLOCK_VISIBLE) && follower->wrote &&
                    put->write_status != CAIRN_OK) {
                        follower->refusal = put->refusal;
                        cairn_begin_ready(store, follower, put->write_status, NULL);
                } else {
                        cairn_put_begin_step(store, follower);
                }
                follower = next;
        }
}

static void active_remove(struct cairn_store *store, struct cairn_put *put)
{
        if (!put->active)
                return;
        struct cairn_put **link = bucket_of(store, put->block->space, &put->block->key);
        while (*link != put)
                link = &(*link)->next_same;
        *link = put->next_same;
        put->active = false;
        store->puts_active--;
        followers_go(store, put);
}

void cairn_begin_ready(struct cairn_store *store, struct cairn_put_begin *request, int status,
                       struct cairn_put *put)
{
        assert((status == CAIRN_OK) == (put != NULL));
        request->internal = put ? (void *)put : (void *)(intptr_t)status;
        request->next = NULL;
        *store->ready_begins_last = request;
        store->ready_begins_last = &request->next;
        if (status == CAIRN_EEXIST)
                store->stats.puts_existing++;
        else if (status != CAIRN_OK)
                store->stats.puts_failed++;
        cairn_store_wake(store);
}

static struct cairn_block *visible_at(struct cairn_store *store, uint16_t space,
                                      const struct cairn_key *key)
{
        struct cairn_block *block = cairn_table_find(&store->table, space, key);
        if (!block || !cairn_block_is(block, CAIRN_BLOCK_VISIBLE))
                return NULL;
        if (block->expires_ms == 0 || cairn_store_now(store) < block->expires_ms ||
            cairn_block_is(block, CAIRN_BLOCK_LEGAL))
                return block;
        cairn_expire(store, block);
        return NULL;
}

int cairn_store_hold(struct cairn_store *store, uint32_t space, const struct cairn_key *key,
                     struct cairn_block **ret_block)
{
        struct cairn_space_state *state = cairn_space_by_id(store, space);
        struct cairn_block *block = state ? visible_at(store, state->index, key) : NULL;
        if (!block)
                return CAIRN_ENOENT;
        // It stays in the eviction heaps, which look again before they take it: a look-up holds
        // thousands of blocks.
        block->holds++;
        store->stats.holds++;
        *ret_block = block;
        return CAIRN_OK;
}

void cairn_store_unhold(struct cairn_store *store, struct cairn_block *block)
{
        assert(block->holds > 0 && store->stats.holds > 0);
        block->holds--;
        store->stats.holds--;
        cairn_block_refresh(store, block);
        if (store->wait_first || store->writes_queued > 0)
                cairn_store_wake(store);
}

uint32_t cairn_store_walk(struct cairn_store *store, uint32_t cursor,
                          struct cairn_block **ret_block)
{
        for (uint32_t id = cursor; id < cairn_table_entries(&store->table); id++) {
                struct cairn_block *block = cairn_table_at(&store->table, id);
                if (!cairn_block_is(block, CAIRN_BLOCK_VISIBLE))
                        continue;
                block->holds++;
                store->stats.holds++;
                *ret_block = block;
                return id + 1;
        }
        return 0;
}

void cairn_store_delete(struct cairn_store *store, uint32_t space, const struct cairn_key *key,
                        const struct cairn_audit_record *cause,
                        void (*on_deleted)(void *arg, int status), void *arg)
{
        struct cairn_space_state *state = cairn_space_by_id(store, space);
        struct cairn_block *block = state ? visible_at(store, state->index, key) : NULL;
        struct cairn_op *op = cairn_op_reserved(store);
        op->on_status = on_deleted;
        op->arg = arg;
        if (!block || cairn_block_is(block, CAIRN_BLOCK_LEGAL)) {
                cairn_op_ready(op, block ? CAIRN_EHELD : CAIRN_ENOENT);
                return;
        }
        store->stats.deleted++;
        struct cairn_audit_record record;
        cairn_audit_describe(store, block, cause ? cause->action : CAIRN_AUDIT_DELETE,
                             cause ? cause->reason : CAIRN_AUDIT_REQUEST, &record);
        if (cause) {
                record.request = cause->request;
                record.connection = cause->connection;
        }
        cairn_block_forget(store, block, op, &record);
}

void cairn_store_put_begin(struct cairn_store *store, struct cairn_put_begin *request)
{
        request->next = NULL;
        request->internal = NULL;
        request->refusal = CAIRN_REFUSAL_NONE;
        request->wrote = false;
        store->stats.puts++;
        cairn_put_begin_step(store, request);
}

static struct cairn_put *put_create(struct cairn_store *store, struct cairn_space_state *space,
                                    struct cairn_tenant *tenant)
{
        struct cairn_pool *pool;
        if (cairn_table_reserve(&store->table, 1 + store->puts_active) != CAIRN_OK ||
            cairn_evict_pool_of(store, space, tenant, &pool) != CAIRN_OK)
                return NULL;
        struct cairn_put *put = calloc(1, sizeof(*put));
        struct cairn_block *block = put ? cairn_table_entry(&store->table, false) : NULL;
        if (!block) {
                free(put);
                return NULL;
        }
        block->space = space->index;
        block->tenant = tenant->tenant;
        block->owner = tenant->index;
        put->store = store;
        put->block = block;
        if (cairn_evict_node_reserve(store, block) != CAIRN_OK ||
            !cairn_block_resident(store, block)) {
                cairn_table_entry_free(&store->table, block);
                free(put);
                return NULL;
        }
        cairn_link_add(&store->all_puts, &put->link);
        return put;
}

static void put_free(struct cairn_put *put)
{
        cairn_link_remove(&put->link);
        free(put);
}

static void free_parts(struct cairn_store *store, struct cairn_block *block)
{
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++)
                cairn_part_drop(store, block, i);
        free(block->resident);
        block->resident = NULL;
}

static bool possible(const struct cairn_store *store, const struct cairn_layout *layout)
{
        if (!cairn_ram_possible(store->ram, layout->part_bytes[0]))
                return false;
        return layout->part_bytes[1] == 0 || cairn_ram_possible(store->ram, layout->slot_bytes);
}

void cairn_put_refuse(struct cairn_store *store, struct cairn_put_begin *request,
                      struct cairn_tenant *tenant, enum cairn_refusal refusal)
{
        const struct cairn_space_state *space = cairn_space_by_id(store, request->space);
        request->refusal = refusal;
        cairn_tenant_refused(store, &(struct cairn_refused){
                                        .tenant = tenant,
                                        .refusal = refusal,
                                        .space = space->id,
                                        .key = request->key,
                                        .bytes = space->layout.slot_bytes,
                                        .request = request->request,
                                        .connection = request->connection,
                                    });
}

// Refuses what could never be had, whatever is evicted.
static int check_room(struct cairn_store *store, struct cairn_put_begin *request,
                      const struct cairn_space_state *space, struct cairn_tenant *tenant)
{
        uint64_t bytes = space->layout.part_bytes[0] + space->layout.part_bytes[1];
        if (!possible(store, &space->layout))
                return CAIRN_ENOMEM;
        if (tenant->quota.ram_bytes > 0 && bytes > tenant->quota.ram_bytes)
                cairn_put_refuse(store, request, tenant, CAIRN_REFUSAL_RAM_QUOTA);
        else if (bytes > cairn_evict_ram_attainable(store, tenant))
                cairn_put_refuse(store, request, tenant, CAIRN_REFUSAL_GUARANTEES);
        else
                return CAIRN_OK;
        return CAIRN_ENOSPC;
}

static int put_try(struct cairn_store *store, struct cairn_put_begin *request,
                   struct cairn_space_state *space, struct cairn_tenant *tenant)
{
        int status = check_room(store, request, space, tenant);
        if (status != CAIRN_OK)
                return status;
        struct cairn_put *put = put_create(store, space, tenant);
        if (!put)
                return CAIRN_ENOMEM;
        struct cairn_block *block = put->block;
        block->key = request->key;
        block->parent = request->parent;
        cairn_evict_node_init(store, block, request->recompute_us);
        status = cairn_part_take(store, block, 0);
        if (status == CAIRN_OK && space->layout.part_bytes[1] > 0)
                status = cairn_part_take(store, block, 1);
        if (status != CAIRN_OK) {
                free_parts(store, block);
                cairn_table_entry_free(&store->table, block);
                put_free(put);
                return status;
        }
        block->refs = 1;
        block->generation = ++store->generation;
        put->ack = request->ack;
        put->ttl_ms = request->ttl_ms;
        put->recompute_us = request->recompute_us;
        put->request_id = request->request;
        put->connection_id = request->connection;
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                if (space->layout.part_bytes[i] > 0)
                        cairn_part_prepare(&space->layout, i, block->resident->parts[i].slot.bytes);
        }
        cairn_block_child_add(store, block);
        cairn_put_active_add(store, put);
        cairn_begin_ready(store, request, CAIRN_OK, put);
        return CAIRN_OK;
}

// ACK_DISK of a block that is visible, but in RAM alone: waits for the write that is under way, or
// asks for one.
static int wait_for_write(struct cairn_store *store, struct cairn_block *block,
                          struct cairn_put_begin *request)
{
        struct cairn_put *put = find_active(store, block->space, &block->key, block);
        if (!put) {
                put = cairn_writer_requeue(store, block);
                request->wrote = true;
        }
        if (!put)
                return CAIRN_ENOMEM;
        follow(store, put, request);
        return CAIRN_OK;
}

static int begin(struct cairn_store *store, struct cairn_put_begin *request, bool turn)
{
        struct cairn_space_state *space = cairn_space_by_id(store, request->space);
        struct cairn_tenant *tenant;
        if (!space)
                return CAIRN_ENOENT;
        struct cairn_block *block = visible_at(store, space->index, &request->key);
        if (block && cairn_block_is(block, CAIRN_BLOCK_STORED))
                return CAIRN_EEXIST;
        if (store->draining || store->closing)
                return CAIRN_ECANCELLED;
        if (block)
                return request->ack == CAIRN_ACK_DISK ? wait_for_write(store, block, request)
                                                      : CAIRN_EEXIST;
        struct cairn_put *other = find_active(store, space->index, &request->key, NULL);
        if (other) {
                follow(store, other, request);
                return CAIRN_OK;
        }
        int status = cairn_tenant_of(store, request->tenant, &tenant);
        // First come, first served: those who wait for RAM go before.
        if (status == CAIRN_OK && !turn && cairn_wait_before(store, tenant))
                return CAIRN_EAGAIN;
        return status == CAIRN_OK ? put_try(store, request, space, tenant) : status;
}

int cairn_put_turn(struct cairn_store *store, struct cairn_put_begin *request)
{
        return begin(store, request, true);
}

void cairn_put_begin_step(struct cairn_store *store, struct cairn_put_begin *request)
{
        int status = begin(store, request, false);
        if (status == CAIRN_EAGAIN)
                status = cairn_wait_add(store, &(struct cairn_wait){.begin = request});
        if (status < CAIRN_OK)
                cairn_begin_ready(store, request, status, NULL);
}

static void *put_layer(struct cairn_put *put, uint32_t part, uint32_t layer)
{
        const struct cairn_resident *resident = put->block->resident;
        const struct cairn_layout *layout = &resident->space->layout;
        if (layout->part_bytes[part] == 0)
                return NULL;
        assert(layer < layout->shape.layers && !put->settled);
        return cairn_part_layer(layout, part, resident->parts[part].slot.bytes, layer);
}

void *cairn_put_raw(struct cairn_put *put, uint32_t layer)
{
        return put_layer(put, 0, layer);
}

void *cairn_put_code(struct cairn_put *put, uint32_t layer)
{
        return put_layer(put, 1, layer);
}

void cairn_put_seal(struct cairn_put *put, enum cairn_part part, uint32_t layer)
{
        const struct cairn_layout *layout = &put->block->resident->space->layout;
        struct cairn_checksum sum;
        cairn_checksum_of(put_layer(put, part - 1, layer), layout->layer_bytes[part - 1], &sum);
        cairn_put_seal_with(put, part, layer, sum.bytes);
}

void cairn_put_seal_with(struct cairn_put *put, enum cairn_part part, uint32_t layer,
                         const uint8_t checksum[16])
{
        assert(!put->settled && layer < put->block->resident->space->layout.shape.layers);
        void *bytes = put->block->resident->parts[part - 1].slot.bytes;
        memcpy(cairn_part_checksum(bytes, layer), checksum, 16);
}

// Headers over the filled tables: from here on the bytes are what the slot will hold.
static void seal_parts(struct cairn_store *store, struct cairn_put *put)
{
        struct cairn_block *block = put->block;
        struct cairn_space_state *space = cairn_block_space(store, block);
        struct cairn_part_identity identity = {
            .key = block->key,
            .parent = block->parent,
            .space = space->fingerprint,
            .generation = block->generation,
            .ttl_ms = put->ttl_ms,
            .recompute_us = put->recompute_us,
            .tenant = block->tenant,
        };
        struct cairn_checksum tables[CAIRN_PART_COUNT];
        uint32_t count = 0;
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                if (space->layout.part_bytes[i] == 0)
                        continue;
                cairn_part_seal(&space->layout, i, &identity, block->resident->parts[i].slot.bytes,
                                &tables[count++]);
        }
        cairn_block_checksum_of(tables, count, &put->checksum);
}

static void callback(struct cairn_store *store, struct cairn_put *put, int status)
{
        if (!put->on_committed)
                return;
        struct cairn_op *op = cairn_op_reserved(store);
        op->on_status = put->on_committed;
        op->arg = put->arg;
        op->tenant = cairn_block_owner(store, put->block);
        op->refusal = status == CAIRN_ENOSPC ? put->refusal : CAIRN_REFUSAL_NONE;
        put->on_committed = NULL;
        cairn_op_ready(op, status);
}

void cairn_store_put_commit(struct cairn_store *store, struct cairn_put *put,
                            void (*on_committed)(void *arg, int status), void *arg)
{
        struct cairn_block *block = put->block;
        assert(!put->settled);
        put->settled = true;
        put->on_committed = on_committed;
        put->arg = arg;
        seal_parts(store, put);
        block->used = ++store->used;
        if (put->ttl_ms > 0)
                block->expires_ms = cairn_store_now(store) + put->ttl_ms;
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                if (block->resident->parts[i].state == CAIRN_PART_LOADING)
                        cairn_part_ready(store, block, i);
        }
        cairn_block_set_flag(store, block, CAIRN_BLOCK_DIRTY, true);
        if (put->ack == CAIRN_ACK_MEMORY) {
                cairn_block_publish(store, block);
                followers_go(store, put); // it stays for those who want it on disk
                callback(store, put, CAIRN_OK);
        }
        cairn_writer_queue(store, put);
}

// No trace is left of a put that was never visible.
void cairn_put_discard(struct cairn_store *store, struct cairn_put *put, int status)
{
        struct cairn_block *block = put->block;
        assert(!cairn_block_is(block, CAIRN_BLOCK_VISIBLE) && block->holds == 0);
        cairn_block_child_remove(store, block);
        cairn_block_set_flag(store, block, CAIRN_BLOCK_DIRTY, false);
        free_parts(store, block);
        assert(block->slab == CAIRN_NO_SLAB);
        callback(store, put, status);
        active_remove(store, put);
        cairn_table_entry_free(&store->table, block);
        put_free(put);
        if (store->wait_first)
                cairn_store_wake(store);
}

void cairn_store_put_abort(struct cairn_store *store, struct cairn_put *put)
{
        assert(!put->settled);
        cairn_put_discard(store, put, CAIRN_ECANCELLED);
}

// The block is written and committed, or stays in RAM alone: the put's work is done.
void cairn_put_end(struct cairn_store *store, struct cairn_put *put, int status)
{
        struct cairn_block *block = put->block;
        callback(store, put, status);
        active_remove(store, put);
        block->refs--;
        put_free(put);
        cairn_block_refresh(store, block);
        if (store->wait_first)
                cairn_store_wake(store);
}
