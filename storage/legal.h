// Walls and legal holds: which tenant's a space is; what is under hold, and so neither evicted nor
// deleted, dropped or expired until the hold is lifted. A hold is on a tenant's blocks, on a space,
// or on a chain: a block and all that lies before it. Holds are durable.
//
// May be used by: daemon, tests. May use: proto. Threads: the loop's. Bytes on disk:
// storage/README.md.
#ifndef CAIRN_LEGAL_H
#define CAIRN_LEGAL_H

#include "storage/store.h"

// True if all blocks of the space were put by one tenant, and there is one.
bool cairn_store_space_tenant(const struct cairn_store *store, uint32_t space,
                              uint32_t *ret_tenant);

#endif
