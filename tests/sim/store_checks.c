// The checks beside the model.
#include "store_checks.h"

#include <stdlib.h>
#include <string.h>

#include "storage/audit_read.h"
#include "storage/legal.h"
#include "storage/store_internal.h"

static bool visible(const struct checks *checks, const struct cairn_store *store, uint32_t key)
{
        const struct cairn_space_state *space = cairn_space_by_id(store, checks->space);
        const struct cairn_block *block =
            space ? cairn_table_find(&store->table, space->index, &checks->keys[key].key) : NULL;
        return block && cairn_block_is(block, CAIRN_BLOCK_VISIBLE);
}

void checks_begin(struct checks *checks, const struct cairn_store *store)
{
        struct cairn_audit_snapshot snapshot = {0};
        for (uint32_t i = 0; i < checks->keys_count; i++)
                checks->keys[i].there = visible(checks, store, i);
        if (cairn_store_audit_snapshot(store, &snapshot) == CAIRN_OK)
                checks->cursor = snapshot.end.count;
        cairn_audit_snapshot_finish(&snapshot);
}

static bool on_record(void *arg, const uint8_t *bytes)
{
        struct checks *checks = arg;
        struct cairn_audit_record record;
        if (cairn_audit_read(bytes, &record) != CAIRN_OK)
                abort();
        if (record.action != CAIRN_AUDIT_EVICT && record.action != CAIRN_AUDIT_DELETE)
                return true;
        for (uint32_t i = 0; i < checks->keys_count; i++) {
                if (cairn_key_equal(&checks->keys[i].key, &record.key)) {
                        checks->keys[i].there--;
                        checks->vanished++;
                }
        }
        return true;
}

const char *checks_vanished(struct checks *checks, const struct cairn_store *store, bool exact)
{
        struct cairn_audit_snapshot snapshot = {0};
        struct cairn_audit_search search = {
            .cursor = checks->cursor, .on_record = on_record, .arg = checks};
        uint64_t next;
        bool more = true;
        const char *wrong = NULL;
        if (cairn_store_audit_snapshot(store, &snapshot) != CAIRN_OK)
                return "the audit cannot be read";
        while (more && !wrong) {
                if (cairn_audit_snapshot_search(&snapshot, &search, &next, &more) != CAIRN_OK)
                        wrong = "the audit cannot be searched";
                search.cursor = next;
        }
        cairn_audit_snapshot_finish(&snapshot);
        for (uint32_t i = 0; i < checks->keys_count && !wrong; i++) {
                int64_t left = checks->keys[i].there - visible(checks, store, i);
                if (left < 0)
                        wrong = "a block has two records of its end";
                else if (left > 0 && exact)
                        wrong = "a block vanished without a record";
                checks->unrecorded += (uint64_t)left;
        }
        return wrong;
}

static void quota_set(struct checks *checks, const struct cairn_store *store, uint32_t tenant)
{
        const struct cairn_tenant *at = cairn_tenant_find(store, tenant);
        uint64_t ram = at->quota.ram_bytes ? at->quota.ram_bytes : UINT64_MAX;
        uint64_t nvme = at->quota.nvme_bytes ? at->quota.nvme_bytes : UINT64_MAX;
        checks->ram_max[tenant] = at->ram_bytes > ram ? at->ram_bytes : ram;
        checks->nvme_max[tenant] = at->nvme_bytes > nvme ? at->nvme_bytes : nvme;
}

void checks_set_quota(struct checks *checks, struct cairn_store *store, struct sim_random *random,
                      const struct cairn_block_shape *shape)
{
        uint32_t tenant = (uint32_t)sim_below(random, CHECKS_TENANTS);
        struct cairn_layout layout;
        struct cairn_quota quota = {0};
        (void)cairn_layout_of(shape, &layout); // valid by construction
        if (sim_below(random, 3) > 0) {
                quota.ram_bytes = layout.slot_bytes * (4 + sim_below(random, 30));
                quota.nvme_bytes = layout.slot_bytes * (4 + sim_below(random, 100));
                quota.ram_guaranteed_bytes = sim_below(random, 2) * quota.ram_bytes / 4;
                quota.nvme_guaranteed_bytes = sim_below(random, 2) * quota.nvme_bytes / 4;
        }
        if (cairn_store_quota_set(store, tenant, &quota) != CAIRN_OK)
                return; // guarantees above the tier
        checks->quotas++;
        quota_set(checks, store, tenant);
}

const char *checks_quotas(struct checks *checks, const struct cairn_store *store)
{
        for (uint32_t i = 0; i < store->tenants_count; i++) {
                const struct cairn_tenant *tenant = store->tenants[i];
                uint32_t n = tenant->tenant;
                if (n >= CHECKS_TENANTS)
                        continue;
                if (tenant->ram_bytes > checks->ram_max[n])
                        return "a tenant has more RAM than its quota";
                if (tenant->nvme_bytes > checks->nvme_max[n])
                        return "a tenant has more NVMe than its quota";
                // What was above a lowered quota only goes down.
                uint64_t ram = tenant->quota.ram_bytes, nvme = tenant->quota.nvme_bytes;
                if (ram > 0 && checks->ram_max[n] > ram)
                        checks->ram_max[n] = tenant->ram_bytes > ram ? tenant->ram_bytes : ram;
                if (nvme > 0 && checks->nvme_max[n] > nvme)
                        checks->nvme_max[n] = tenant->nvme_bytes > nvme ? tenant->nvme_bytes : nvme;
        }
        return NULL;
}

static void hold_set(struct checks *checks, const struct cairn_store *store, uint32_t key,
                     uint32_t chain)
{
        for (uint32_t i = key - key % chain; i <= key; i++)
                checks->keys[i].kept = visible(checks, store, i);
        // A chain ends where a block of it is not here.
        for (uint32_t i = key; i > key - key % chain; i--) {
                if (!checks->keys[i].kept)
                        checks->keys[i - 1].kept = false;
        }
}

void checks_hold_lifted(struct checks *checks)
{
        for (uint32_t i = 0; i < checks->keys_count; i++)
                checks->keys[i].kept = false;
}

static void on_hold(void *arg, int status)
{
        (void)arg;
        // The one before is still being lifted, or the block went meanwhile.
        if (status != CAIRN_OK && status != CAIRN_EEXIST && status != CAIRN_ENOENT)
                abort();
}

void checks_turn_hold(struct checks *checks, struct cairn_store *store, uint32_t key,
                      uint32_t chain)
{
        struct cairn_hold hold = {.name = "sim",
                                  .kind = CAIRN_HOLD_CHAIN,
                                  .space = checks->space,
                                  .key = checks->keys[key].key};
        if (checks->held) {
                checks->held = false;
                checks_hold_lifted(checks);
                cairn_store_hold_lift(store, "sim", on_hold, NULL);
                return;
        }
        cairn_store_hold_set(store, &hold, on_hold, NULL);
        checks->held = cairn_store_hold_find(store, "sim") != NULL;
        if (!checks->held)
                return; // it was refused
        checks->holds++;
        hold_set(checks, store, key, chain);
}

const char *checks_holds(const struct checks *checks, const struct cairn_store *store)
{
        for (uint32_t i = 0; i < checks->keys_count; i++) {
                if (checks->keys[i].kept && !visible(checks, store, i))
                        return "a block under a legal hold is gone";
        }
        return NULL;
}
