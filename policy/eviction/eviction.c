// The table of eviction policies.
#include "policy/eviction/eviction.h"

#include <string.h>

static const struct cairn_eviction_ops *const policies[] = {
    &cairn_eviction_lru, &cairn_eviction_s3fifo, &cairn_eviction_cost};

enum {
        POLICIES_COUNT = sizeof(policies) / sizeof(policies[0])
};

const struct cairn_eviction_ops *cairn_eviction_by_name(const char *name)
{
        for (size_t i = 0; name && i < POLICIES_COUNT; i++) {
                if (strcmp(policies[i]->name, name) == 0)
                        return policies[i];
        }
        return NULL;
}

const char *cairn_eviction_name(size_t index)
{
        return index < POLICIES_COUNT ? policies[index]->name : NULL;
}
