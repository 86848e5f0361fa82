// Tenants: whose bytes are whose, and how many each may have.
#include <stdio.h>
#include <stdlib.h>

#include "storage/store_internal.h"

struct cairn_tenant *cairn_tenant_find(const struct cairn_store *store, uint32_t tenant)
{
        for (uint32_t i = 0; i < store->tenants_count; i++) {
                if (store->tenants[i]->tenant == tenant)
                        return store->tenants[i];
        }
        return NULL;
}

static void tenant_free(struct cairn_tenant *tenant)
{
        for (int i = 0; i < CAIRN_PART_COUNT; i++)
                free(tenant->ram[i].state);
        for (int i = 0; i < CAIRN_HEAP_COUNT; i++)
                cairn_heap_finish(&tenant->heaps[i]);
        free(tenant);
}

int cairn_tenant_of(struct cairn_store *store, uint32_t tenant, struct cairn_tenant **ret_tenant)
{
        struct cairn_tenant *at = cairn_tenant_find(store, tenant);
        if (!at && store->tenants_count == CAIRN_TENANTS_MAX)
                return CAIRN_EBUSY;
        if (!at) {
                at = calloc(1, sizeof(*at));
                if (!at)
                        return CAIRN_ENOMEM;
                at->tenant = tenant;
                at->index = store->tenants_count;
                for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                        int status = cairn_evict_open(store, &at->ram[i], store->options.ram_bytes);
                        if (status != CAIRN_OK) {
                                tenant_free(at);
                                return status;
                        }
                }
                store->tenants[store->tenants_count++] = at;
        }
        *ret_tenant = at;
        return CAIRN_OK;
}

void cairn_tenants_finish(struct cairn_store *store)
{
        for (uint32_t i = 0; i < store->tenants_count; i++)
                tenant_free(store->tenants[i]);
        free(store->tenants);
        store->tenants = NULL;
        store->tenants_count = 0;
}

static bool above(uint64_t guaranteed_bytes, uint64_t limit_bytes)
{
        return limit_bytes > 0 && guaranteed_bytes > limit_bytes;
}

int cairn_store_quota_set(struct cairn_store *store, uint32_t tenant,
                          const struct cairn_quota *quota)
{
        uint64_t ram_left = store->options.ram_bytes;
        uint64_t nvme_left = store->options.nvme_bytes;
        for (uint32_t i = 0; i < store->tenants_count; i++) {
                const struct cairn_tenant *other = store->tenants[i];
                if (other->tenant == tenant)
                        continue;
                ram_left -= other->quota.ram_guaranteed_bytes;
                nvme_left -= other->quota.nvme_guaranteed_bytes;
        }
        if (quota->ram_guaranteed_bytes > ram_left || quota->nvme_guaranteed_bytes > nvme_left ||
            above(quota->ram_guaranteed_bytes, quota->ram_bytes) ||
            above(quota->nvme_guaranteed_bytes, quota->nvme_bytes))
                return CAIRN_EINVAL;
        struct cairn_tenant *at;
        int status = cairn_tenant_of(store, tenant, &at);
        if (status != CAIRN_OK)
                return status;
        at->quota = *quota;
        store->quotas_lowered = true; // or not: it is looked at once
        cairn_store_wake(store);
        return CAIRN_OK;
}

// ---- refusals ----

void cairn_tenant_refused(struct cairn_store *store, const struct cairn_refused *refused)
{
        struct cairn_tenant *tenant = refused->tenant;
        bool nvme = refused->refusal == CAIRN_REFUSAL_NVME_QUOTA;
        struct cairn_audit_record record = {
            .action = CAIRN_AUDIT_REFUSE,
            .reason = CAIRN_AUDIT_OVER_QUOTA,
            .tenant = tenant->tenant,
            .space = refused->space,
            .key = refused->key,
            .layer = CAIRN_AUDIT_ALL,
            .head = CAIRN_AUDIT_ALL,
            .count = 1,
            .bytes = refused->bytes,
            .numbers = {(double)(nvme ? tenant->nvme_bytes : tenant->ram_bytes),
                        (double)(nvme ? tenant->quota.nvme_bytes : tenant->quota.ram_bytes)},
            .policy = "quota",
            .request = refused->request,
            .connection = refused->connection,
            .tier_to = nvme ? CAIRN_TIER_NVME : CAIRN_TIER_RAM,
        };
        tenant->refused_quota++;
        cairn_audit_emit(store, &record);
}

void cairn_tenant_explain(struct cairn_store *store, const struct cairn_tenant *tenant,
                          enum cairn_refusal refusal)
{
        const struct cairn_quota *quota = &tenant->quota;
        char *text = store->refusal_text;
        store->refusal = text;
        if (refusal == CAIRN_REFUSAL_RAM_QUOTA)
                snprintf(text, CAIRN_TEXT_BYTES_MAX,
                         "tenant %u's quota of RAM (%llu bytes, %llu of them in use) has no room "
                         "for the block: release what is held, or have the operator raise "
                         "the quota (cairnctl quota)",
                         tenant->tenant, (unsigned long long)quota->ram_bytes,
                         (unsigned long long)tenant->ram_bytes);
        else if (refusal == CAIRN_REFUSAL_NVME_QUOTA)
                snprintf(text, CAIRN_TEXT_BYTES_MAX,
                         "tenant %u's quota of NVMe (%llu bytes, %llu of them in use) has no room "
                         "for the block, and nothing of the tenant's may be evicted: release what "
                         "is held, delete blocks, or have the operator raise the quota "
                         "(cairnctl quota)",
                         tenant->tenant, (unsigned long long)quota->nvme_bytes,
                         (unsigned long long)tenant->nvme_bytes);
        else if (refusal == CAIRN_REFUSAL_GUARANTEES)
                snprintf(text, CAIRN_TEXT_BYTES_MAX,
                         "other tenants' guaranteed shares leave tenant %u no RAM for the block: "
                         "have a quota changed, or ram_bytes raised",
                         tenant->tenant);
        else
                store->refusal = NULL;
}

const char *cairn_store_refusal(const struct cairn_store *store)
{
        return store->refusal;
}

size_t cairn_store_tenants_count(const struct cairn_store *store)
{
        return store->tenants_count;
}

void cairn_store_tenant_info(const struct cairn_store *store, size_t index,
                             struct cairn_store_tenant_info *ret_info)
{
        assert(index < store->tenants_count);
        const struct cairn_tenant *tenant = store->tenants[index];
        *ret_info = (struct cairn_store_tenant_info){
            .tenant = tenant->tenant,
            .quota = tenant->quota,
            .ram_bytes = tenant->ram_bytes,
            .nvme_bytes = tenant->nvme_bytes,
            .blocks = tenant->blocks,
            .demoted = tenant->demoted,
            .refused_quota = tenant->refused_quota,
            .refused_admission = tenant->refused_admission,
        };
        memcpy(ret_info->evicted, tenant->evicted, sizeof(tenant->evicted));
}
