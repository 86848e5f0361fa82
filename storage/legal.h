// Walls and legal holds: which tenant's a space is; what is under hold, and so neither evicted nor
// expired, deleted, purged or dropped until the last hold on it is lifted. A hold has a name, and
// is on a tenant's blocks, on a space, or on a chain: a block and all that lies before it, also
// what is put there later. Holds are durable.
//
// May be used by: daemon, tests. May use: proto. Threads: the loop's. Bytes on disk: below, and
// storage/README.md.
#ifndef CAIRN_LEGAL_H
#define CAIRN_LEGAL_H

#include "storage/store.h"

enum {
        CAIRN_HOLD_NAME_BYTES_MAX = 64,
        CAIRN_HOLD_NOTE_BYTES_MAX = 256,
        CAIRN_HOLDS_MAX = 4096,
};

// Part of the disk format: only added to.
enum cairn_hold_kind {
        CAIRN_HOLD_TENANT = 1,
        CAIRN_HOLD_SPACE = 2,
        CAIRN_HOLD_CHAIN = 3, // `key` of `space`
};

struct cairn_hold {
        char name[CAIRN_HOLD_NAME_BYTES_MAX + 1];
        char note[CAIRN_HOLD_NOTE_BYTES_MAX + 1];
        enum cairn_hold_kind kind;
        uint32_t tenant;
        uint32_t space;
        struct cairn_key key;
        uint64_t since_ms; // wall time
};

// In force from the call on, durable before the callback. CAIRN_EEXIST: a hold of that name is
// there; CAIRN_ENOENT: no such space, or no such block to begin the chain; CAIRN_EBUSY: too many;
// CAIRN_ENOMEM, CAIRN_ENOSPC, CAIRN_EIO: it is not in force.
void cairn_store_hold_set(struct cairn_store *store, const struct cairn_hold *hold,
                          void (*on_set)(void *arg, int status), void *arg);
// In force until the callback. CAIRN_ENOENT: no hold of that name.
void cairn_store_hold_lift(struct cairn_store *store, const char *name,
                           void (*on_lifted)(void *arg, int status), void *arg);
size_t cairn_store_holds_count(const struct cairn_store *store);
// index < count; the store's, until the next call into it.
const struct cairn_hold *cairn_store_hold_at(const struct cairn_store *store, size_t index);
const struct cairn_hold *cairn_store_hold_find(const struct cairn_store *store, const char *name);
// Blocks that it keeps now: looks at every block.
uint64_t cairn_store_hold_blocks(const struct cairn_store *store, const struct cairn_hold *hold);
// Blocks under any hold.
uint64_t cairn_store_held_blocks(const struct cairn_store *store);

// A hold that keeps this block; NULL: none, or no such block.
const struct cairn_hold *cairn_store_held_by(const struct cairn_store *store, uint32_t space,
                                             const struct cairn_key *key);
// The same of a block at hand.
bool cairn_block_legal(const struct cairn_block *block);

// True if all blocks of the space were put by one tenant, and there is one.
bool cairn_store_space_tenant(const struct cairn_store *store, uint32_t space,
                              uint32_t *ret_tenant);

#endif
