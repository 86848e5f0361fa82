// Tenants: whose bytes are whose, and how many each may have.
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
                store->tenants[store->tenants_count++] = at;
        }
        *ret_tenant = at;
        return CAIRN_OK;
}

void cairn_tenants_finish(struct cairn_store *store)
{
        for (uint32_t i = 0; i < store->tenants_count; i++)
                free(store->tenants[i]);
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
        cairn_store_wake(store);
        return CAIRN_OK;
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
