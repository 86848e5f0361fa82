// Leases: a connection's holds on blocks, each with a deadline of the monotonic clock, and the
// views that end with them. May be used by: daemon, tests. May use: proto. Threads: the loop's.
#ifndef CAIRN_LEASE_H
#define CAIRN_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cairn_block;

// A block that the lease's worker reads in place: held, and pinned in RAM.
struct cairn_lease_view {
        struct cairn_block *block; // NULL: an empty place of the table
        uint64_t bytes;            // what it counts for
};

struct cairn_lease {
        struct cairn_lease *next;
        uint64_t id;
        uint64_t deadline_ms;
        struct cairn_block **blocks; // held; the array is the lease's
        size_t blocks_count;
        struct cairn_lease_view *views; // a hash table of views_capacity places (a power of two)
        size_t views_capacity;
        size_t views_count;
};

// The leases of one connection. When a lease ends, `on_view_end` gives back each of its views, then
// `on_release` its blocks.
struct cairn_lease_table {
        struct cairn_lease *first;
        uint32_t count;
        uint64_t deadline_min_ms; // no lease ends before; UINT64_MAX without leases
        void (*on_release)(void *arg, struct cairn_block *const *blocks, size_t count);
        void (*on_view_end)(void *arg, const struct cairn_lease_view *view);
        void *arg;
};

void cairn_lease_table_init(struct cairn_lease_table *table,
                            void (*on_release)(void *arg, struct cairn_block *const *blocks,
                                               size_t count),
                            void (*on_view_end)(void *arg, const struct cairn_lease_view *view),
                            void *arg);
// Ends all leases.
void cairn_lease_table_finish(struct cairn_lease_table *table);

// Takes over blocks[count] (malloc'ed) and their holds, unless it fails: CAIRN_EBUSY
// (CAIRN_LEASES_MAX) or CAIRN_ENOMEM.
int cairn_lease_add(struct cairn_lease_table *table, uint64_t id, uint64_t deadline_ms,
                    struct cairn_block **blocks, size_t count);
// The lease of that id which has not ended, or NULL.
const struct cairn_lease *cairn_lease_find(const struct cairn_lease_table *table, uint64_t id,
                                           uint64_t now_ms);
// Takes over a view's hold and pin until the lease ends, unless it fails: CAIRN_ESTALE (the lease
// has ended), CAIRN_EEXIST (it has a view of the block already) or CAIRN_ENOMEM.
int cairn_lease_add_view(struct cairn_lease_table *table, uint64_t id, uint64_t now_ms,
                         const struct cairn_lease_view *view);
bool cairn_lease_has_view(const struct cairn_lease *lease, const struct cairn_block *block);
// CAIRN_ESTALE: no such lease (any more) in this table.
int cairn_lease_release(struct cairn_lease_table *table, uint64_t id);
// Ends what is past its deadline. Returns how many.
uint32_t cairn_lease_expire(struct cairn_lease_table *table, uint64_t now_ms);

#endif
