// What RAM gives up when room is needed: first what its tenant's policy orders (rows and codes
// apart), then parents of blocks in RAM, then blocks that are nowhere else. Pinned, held and
// unwritten bytes are never among them, and nobody's guaranteed share is taken by another.
#include "storage/store_internal.h"

enum {
        // Codes are small and answer queries alone: they stay as if used this many times more
        // recently.
        CODE_CREDIT = 4,
        CLASS_COLD = 0,
        CLASS_POLICY = 1,
        CLASS_PARENT = 2,
        CLASS_LAST_COPY = 3,
};
#define KEY_USED_MASK ((1ull << CAIRN_KEY_CLASS_SHIFT) - 1)

// What a tenant would give up next.
struct choice {
        struct cairn_tenant *tenant;
        struct cairn_resident *resident; // NULL: nothing
        uint32_t part;
        uint32_t class;
        uint64_t age; // uses of the store since its last
};

static struct cairn_resident *owner(struct cairn_part_ram *ram, uint32_t part)
{
        return CAIRN_CONTAINER(ram - part, struct cairn_resident, parts[0]);
}

static struct cairn_resident *owner_of_item(const struct cairn_heap_item *item)
{
        // Only RAW is in the heaps.
        return owner(CAIRN_CONTAINER(item->place, struct cairn_part_ram, heap), 0);
}

static struct cairn_resident *owner_of_node(struct cairn_eviction_node *node)
{
        return owner(CAIRN_CONTAINER(node, struct cairn_part_ram, node), node->owner);
}

static uint64_t age_of(const struct cairn_store *store, uint64_t used)
{
        return store->used - used;
}

static struct cairn_resident *policy_victim(struct cairn_tenant *tenant, uint32_t part)
{
        struct cairn_eviction *eviction = &tenant->ram[part];
        if (eviction->nodes == 0)
                return NULL;
        // Shares of queues are of what the tenant has now, whatever the tier could hold.
        cairn_eviction_resize(eviction, eviction->bytes);
        struct cairn_eviction_node *node = cairn_eviction_victim(eviction);
        return node ? owner_of_node(node) : NULL;
}

static void choose(struct choice *choice, const struct cairn_store *store,
                   struct cairn_resident *resident, uint32_t part, uint32_t class)
{
        choice->resident = resident;
        choice->part = part;
        choice->class = class;
        choice->age = age_of(store, resident->block->used);
}

static struct choice choice_of(const struct cairn_store *store, struct cairn_tenant *tenant)
{
        struct choice choice = {.tenant = tenant};
        const struct cairn_heap_item *cold = cairn_heap_top(&tenant->heaps[CAIRN_HEAP_COLD]);
        if (cold) {
                choose(&choice, store, owner_of_item(cold), 0, CLASS_COLD);
                return choice;
        }
        struct cairn_resident *raw = policy_victim(tenant, 0);
        struct cairn_resident *code = policy_victim(tenant, 1);
        if (raw)
                choose(&choice, store, raw, 0, CLASS_POLICY);
        if (code && (!raw || age_of(store, code->block->used) / CODE_CREDIT > choice.age))
                choose(&choice, store, code, 1, CLASS_POLICY);
        if (choice.resident)
                return choice;
        const struct cairn_heap_item *rest = cairn_heap_top(&tenant->heaps[CAIRN_HEAP_REST]);
        if (rest)
                choose(&choice, store, owner_of_item(rest), 0,
                       rest->key >> CAIRN_KEY_CLASS_SHIFT == CAIRN_KEY_LAST_COPY ? CLASS_LAST_COPY
                                                                                 : CLASS_PARENT);
        return choice;
}

// Whether `taker` (NULL: nobody in particular) may have it.
static bool allowed(const struct choice *choice, const struct cairn_tenant *taker)
{
        const struct cairn_tenant *tenant = choice->tenant;
        uint64_t bytes = choice->resident->space->layout.part_bytes[choice->part];
        return !taker || tenant == taker ||
               tenant->ram_bytes >= tenant->quota.ram_guaranteed_bytes + bytes;
}

static bool goes_before(const struct choice *a, const struct choice *b)
{
        return !b->resident || a->class < b->class || (a->class == b->class && a->age > b->age);
}

static struct choice best_choice(const struct cairn_store *store, struct cairn_tenant *taker,
                                 bool own)
{
        struct choice best = {0};
        if (own)
                return choice_of(store, taker);
        for (uint32_t i = 0; i < store->tenants_count; i++) {
                struct choice choice = choice_of(store, store->tenants[i]);
                if (choice.resident && allowed(&choice, taker) && goes_before(&choice, &best))
                        best = choice;
        }
        return best;
}

// A working set a little larger than RAM would otherwise push itself out in circles, and never hit.
bool cairn_evict_is_cold(const struct cairn_store *store, const struct cairn_block *block)
{
        if (store->options.eviction->resists_circles)
                return false;
        struct cairn_resident *raw = policy_victim(cairn_block_owner(store, block), 0);
        if (!raw) {
                const struct cairn_heap_item *rest =
                    cairn_heap_top(&cairn_block_owner(store, block)->heaps[CAIRN_HEAP_REST]);
                return rest && block->used <= (rest->key & KEY_USED_MASK);
        }
        return block->used <= raw->block->used;
}

// The numbers of a choice for the audit.
static void explain(const struct cairn_store *store, const struct choice *choice,
                    struct cairn_audit_record *record)
{
        const struct cairn_part_ram *ram = &choice->resident->parts[choice->part];
        struct cairn_eviction_reason reason = {0};
        if (choice->class == CLASS_POLICY)
                cairn_eviction_explain(&ram->node, &reason);
        else
                reason.numbers[0] = (double)choice->age;
        cairn_audit_decided(store, record, choice->class == CLASS_COLD ? "cold" : NULL, &reason);
}

static enum cairn_audit_reason reason_of(const struct cairn_block *block, bool own, bool last_copy)
{
        if (own)
                return CAIRN_AUDIT_OVER_QUOTA;
        if (last_copy && cairn_block_is(block, CAIRN_BLOCK_UNADMITTED))
                return CAIRN_AUDIT_ADMISSION;
        return CAIRN_AUDIT_CAPACITY;
}

// Whether nothing in the block's own state keeps the part in RAM.
static bool may_leave(const struct cairn_block *block, uint32_t part)
{
        const struct cairn_part_ram *ram = &block->resident->parts[part];
        return ram->state == CAIRN_PART_READY && ram->pins == 0 &&
               !cairn_block_is(block, CAIRN_BLOCK_DIRTY | CAIRN_BLOCK_PURGE);
}

// Drops a RAM copy that NVMe keeps; what the record says of tiers and bytes is set here.
static void demote(struct cairn_store *store, struct cairn_block *block, uint32_t part,
                   struct cairn_audit_record *record)
{
        record->tier_from = CAIRN_TIER_RAM;
        record->tier_to = CAIRN_TIER_NVME;
        record->bytes = block->resident->space->layout.part_bytes[part];
        cairn_block_owner(store, block)->demoted++;
        cairn_audit_emit(store, record);
        cairn_part_drop(store, block, part);
        cairn_block_refresh(store, block);
}

static void let_go(struct cairn_store *store, const struct choice *choice, bool own)
{
        struct cairn_block *block = choice->resident->block;
        struct cairn_part_ram *ram = &choice->resident->parts[choice->part];
        bool stored = cairn_block_is(block, CAIRN_BLOCK_STORED);
        enum cairn_audit_reason reason = reason_of(block, own, !stored);
        struct cairn_audit_record record;
        cairn_audit_describe(store, block, stored ? CAIRN_AUDIT_DEMOTE : CAIRN_AUDIT_EVICT, reason,
                             &record);
        explain(store, choice, &record);
        store->stats.evicted_ram++;
        // What the policy did not choose teaches it nothing.
        cairn_eviction_remove(&ram->node, choice->class == CLASS_POLICY ? CAIRN_EVICTION_EVICTED
                                                                        : CAIRN_EVICTION_REMOVED);
        if (stored) {
                demote(store, block, choice->part, &record);
        } else {
                record.tier_from = CAIRN_TIER_RAM;
                record.tier_to = CAIRN_TIER_NONE;
                record.bytes = choice->resident->space->layout.slot_bytes;
                cairn_block_forget(store, block, NULL, &record);
        }
}

// Forgets one RAM copy, or takes one that is not to be forgotten out of the running. False: there
// is none.
static bool evict_one(struct cairn_store *store, struct cairn_tenant *taker, bool own)
{
        struct choice choice = best_choice(store, taker, own);
        if (!choice.resident)
                return false;
        struct cairn_block *block = choice.resident->block;
        struct cairn_part_ram *ram = &choice.resident->parts[choice.part];
        cairn_block_refresh(store, block);
        if (ram->heap == CAIRN_HEAP_OUT && cairn_eviction_blocked(&ram->node))
                return true; // held since it was put there
        let_go(store, &choice, own);
        return true;
}

static bool over_quota(const struct cairn_tenant *tenant, uint64_t more_bytes)
{
        return tenant->quota.ram_bytes > 0 &&
               tenant->ram_bytes + more_bytes > tenant->quota.ram_bytes;
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
        tenant->short_of_quota = false;
        if (!cairn_ram_possible(store->ram, bytes) ||
            (tenant->quota.ram_bytes > 0 && bytes > tenant->quota.ram_bytes))
                return CAIRN_ENOMEM;
        for (;;) {
                bool over = over_quota(tenant, bytes);
                int status = CAIRN_EAGAIN;
                if (!over)
                        status = cairn_ram_alloc(store->ram, tenant->tenant, bytes, ret_slot);
                if (status == CAIRN_OK)
                        tenant->ram_bytes += bytes;
                if (status != CAIRN_EAGAIN)
                        return status;
                if (evict_one(store, tenant, over))
                        continue;
                store->ram_short = true;
                tenant->short_of_quota = over;
                return status;
        }
}

uint64_t cairn_store_drop_ram(struct cairn_store *store)
{
        uint64_t before = cairn_ram_used_bytes(store->ram);
        while (evict_one(store, NULL, false))
                ;
        return before - cairn_ram_used_bytes(store->ram);
}

uint32_t cairn_store_demote(struct cairn_store *store, struct cairn_block *const *blocks,
                            uint32_t count, const struct cairn_audit_record *cause)
{
        uint32_t left = 0;
        for (uint32_t i = 0; i < count; i++) {
                struct cairn_block *block = blocks[i];
                struct cairn_resident *resident = block->resident;
                if (!resident || resident->parts[0].state != CAIRN_PART_READY || block->holds > 1 ||
                    block->tenant != cause->tenant)
                        continue;
                if (!may_leave(block, 0) || !cairn_block_is(block, CAIRN_BLOCK_STORED)) {
                        resident->cold = true;
                        cairn_block_refresh(store, block);
                        continue;
                }
                struct cairn_audit_record record;
                cairn_audit_describe(store, block, cause->action, cause->reason, &record);
                memcpy(record.policy, cause->policy, sizeof(record.policy));
                record.context = cause->context;
                record.request = cause->request;
                record.connection = cause->connection;
                demote(store, block, 0, &record);
                left++;
        }
        return left;
}

bool cairn_evict_ram_to_quota(struct cairn_store *store, struct cairn_tenant *tenant)
{
        while (over_quota(tenant, 0)) {
                if (!evict_one(store, tenant, true))
                        return false;
        }
        return true;
}

// What others' guarantees leave for a tenant, if nothing stood in the way.
uint64_t cairn_evict_ram_attainable(const struct cairn_store *store,
                                    const struct cairn_tenant *tenant)
{
        uint64_t bytes = store->options.ram_bytes;
        for (uint32_t i = 0; i < store->tenants_count; i++) {
                const struct cairn_tenant *other = store->tenants[i];
                uint64_t theirs = other->quota.ram_guaranteed_bytes;
                if (other == tenant)
                        continue;
                if (theirs > other->ram_bytes)
                        theirs = other->ram_bytes;
                bytes -= theirs < bytes ? theirs : bytes;
        }
        if (tenant->quota.ram_bytes > 0 && tenant->quota.ram_bytes < bytes)
                bytes = tenant->quota.ram_bytes;
        return bytes;
}

void cairn_audit_decided(const struct cairn_store *store, struct cairn_audit_record *record,
                         const char *policy, const struct cairn_eviction_reason *reason)
{
        if (!policy)
                policy = store->options.eviction->name;
        for (size_t i = 0; i < CAIRN_AUDIT_POLICY_BYTES_MAX && policy[i]; i++)
                record->policy[i] = policy[i];
        record->score = reason->score;
        for (size_t i = 0; i < CAIRN_AUDIT_NUMBERS; i++)
                record->numbers[i] = reason->numbers[i];
}

// ---- what may go ----

enum place {
        PLACE_NONE,   // it stays
        PLACE_POLICY, // in the policy's order
        PLACE_HEAP,   // in a heap, by *ret_key
};

static enum place place_of(const struct cairn_block *block, uint32_t part, uint8_t *ret_heap,
                           uint64_t *ret_key)
{
        if (!may_leave(block, part))
                return PLACE_NONE;
        *ret_heap = CAIRN_HEAP_REST;
        *ret_key = block->used;
        if (!cairn_block_is(block, CAIRN_BLOCK_STORED)) {
                *ret_key |= (uint64_t)CAIRN_KEY_LAST_COPY << CAIRN_KEY_CLASS_SHIFT;
                bool may_go = part == 0 && cairn_block_is(block, CAIRN_BLOCK_RAM_ONLY) &&
                              cairn_block_is(block, CAIRN_BLOCK_VISIBLE) && block->holds == 0 &&
                              block->refs == 0 && block->children == 0 &&
                              !cairn_block_is(block, CAIRN_BLOCK_LEGAL);
                return may_go ? PLACE_HEAP : PLACE_NONE;
        }
        if (part == 0 && block->children_ram > 0) {
                *ret_key |= (uint64_t)CAIRN_KEY_PARENT << CAIRN_KEY_CLASS_SHIFT;
                return PLACE_HEAP;
        }
        if (part == 0 && block->resident->cold) {
                *ret_heap = CAIRN_HEAP_COLD;
                return PLACE_HEAP;
        }
        return PLACE_POLICY;
}

// Out of memory it stays out of its heap until the next change.
void cairn_evict_place_ram(struct cairn_store *store, struct cairn_block *block, uint32_t part)
{
        struct cairn_part_ram *ram = &block->resident->parts[part];
        struct cairn_tenant *tenant = cairn_block_owner(store, block);
        uint8_t heap = ram->heap_of;
        uint64_t key = 0;
        enum place place = place_of(block, part, &heap, &key);
        if (place != PLACE_HEAP || heap != ram->heap_of)
                cairn_heap_remove(&tenant->heaps[ram->heap_of], &ram->heap);
        ram->heap_of = heap;
        if (place == PLACE_HEAP)
                (void)cairn_heap_set(&tenant->heaps[heap], &ram->heap, key);
        if (ram->node.home)
                cairn_eviction_set_held(&ram->node, place != PLACE_POLICY);
}

void cairn_evict_ram_add(struct cairn_store *store, struct cairn_block *block, uint32_t part)
{
        struct cairn_part_ram *ram = &block->resident->parts[part];
        const struct cairn_eviction_node *stored = cairn_evict_node(store, block);
        ram->node = (struct cairn_eviction_node){
            .id = stored->id,
            .size_bytes = cairn_block_space(store, block)->layout.part_bytes[part],
            .recompute_us = stored->recompute_us,
            .owner = part,
        };
        cairn_eviction_insert(&cairn_block_owner(store, block)->ram[part], &ram->node, NULL);
        cairn_eviction_hold(&ram->node); // until the next refresh finds that it may go
}

void cairn_evict_touch(struct cairn_store *store, struct cairn_block *block)
{
        struct cairn_eviction_node *node = cairn_evict_node(store, block);
        if (node->home)
                cairn_eviction_touch(node);
        // The use that a load was for says nothing new of what RAM has; another one does.
        for (uint32_t i = 0; block->resident && i < CAIRN_PART_COUNT; i++) {
                struct cairn_part_ram *ram = &block->resident->parts[i];
                if (ram->node.home && !(i == 0 && block->resident->fresh))
                        cairn_eviction_touch(&ram->node);
        }
        if (block->resident) {
                block->resident->cold = block->resident->cold && block->resident->fresh;
                block->resident->fresh = false;
        }
}

void cairn_evict_ram_remove(struct cairn_store *store, struct cairn_block *block, uint32_t part)
{
        struct cairn_part_ram *ram = &block->resident->parts[part];
        cairn_heap_remove(&cairn_block_owner(store, block)->heaps[ram->heap_of], &ram->heap);
        if (ram->node.home)
                cairn_eviction_remove(&ram->node, CAIRN_EVICTION_REMOVED);
}
