// The eviction policies by name. Interface and leaf-first: proto/eviction.h; what each does:
// policy/eviction/README.md. May be used by: daemon, tests.
#ifndef CAIRN_EVICTION_POLICIES_H
#define CAIRN_EVICTION_POLICIES_H

#include "proto/eviction.h"

enum {
        CAIRN_EVICTION_GHOST_ENTRIES = 65536, // the default: 1.5 MiB
        CAIRN_EVICTION_GHOST_ENTRIES_MAX = 1 << 24,
};

extern const struct cairn_eviction_ops cairn_eviction_lru;
extern const struct cairn_eviction_ops cairn_eviction_s3fifo;
extern const struct cairn_eviction_ops cairn_eviction_cost;

// NULL: no such policy.
const struct cairn_eviction_ops *cairn_eviction_by_name(const char *name);
// The names in order, NULL after the last.
const char *cairn_eviction_name(size_t index);

#endif
