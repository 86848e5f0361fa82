// Eviction: who leaves a tier next. The interface and the node that storage embeds in its blocks;
// the policies behind it are policy/eviction/ and reach storage as a table of functions.
// Leaf-first lives here, for every policy: a node with children or holds is *blocked* and is never
// a victim, so that a block never goes while a child of it stays (design, section 5, rule 6).
//
// Pure: no clock, no allocation, no globals. One thread at a time for an eviction and all nodes in
// it. May be used by: all folders. May use: nothing.
//
// A node is the caller's, pinned from insert to remove. Evictions are one for each tier and tenant:
// a tenant over its quota then evicts its own. Links between nodes of two evictions are fine.
#ifndef CAIRN_EVICTION_H
#define CAIRN_EVICTION_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cairn_eviction;

struct cairn_eviction_node {
        // The caller's, set before insert; the rest must be zero then.
        uint64_t id;           // evenly spread, e.g. the first 8 bytes of the block's key
        uint64_t size_bytes;   // at least 1; fixed while inserted
        uint64_t recompute_us; // what prefilling it again costs; 0: unknown
        // Read freely; changed by the functions below.
        struct cairn_eviction *home; // NULL: not inserted
        struct cairn_eviction_node *parent;
        struct cairn_eviction_node *first_child;
        struct cairn_eviction_node *next_sibling;
        struct cairn_eviction_node *previous_sibling;
        uint32_t children; // inserted nodes linked to this one
        uint32_t holds;    // leases, pins, I/O under way
        // The policy's.
        struct cairn_eviction_node *next;
        struct cairn_eviction_node *previous;
        struct cairn_eviction_node *heap_child;
        double rank;    // of heaps: the lowest leaves first
        uint64_t order; // of its last use; breaks ties
        uint32_t owner; // the caller's, e.g. which block it is of
        uint16_t uses;
        uint8_t place; // which queue of the policy
};
static_assert(sizeof(struct cairn_eviction_node) <= 120, "a million of them cost 120 MB");

struct cairn_eviction_options {
        uint64_t capacity_bytes;    // of the tier; what shares of queues are taken from
        uint32_t ghost_entries_max; // evicted ids that s3fifo remembers; 0: the default
        bool any_order;             // not leaf-first: to compare with other simulators alone
};

// Why a node leaves.
enum cairn_eviction_cause {
        CAIRN_EVICTION_EVICTED = 0, // as the victim
        CAIRN_EVICTION_REMOVED = 1, // deleted, expired, replaced: says nothing about its use
};

// Why a node would go now: for the audit's record. What the numbers are: policy/eviction/README.md.
struct cairn_eviction_reason {
        double score; // the lowest of all free nodes goes first (s3fifo: by queue, then by place)
        double numbers[4];
};

// A policy. `state` is its own, of state_bytes, aligned to 16. Called by the functions below alone.
struct cairn_eviction_ops {
        const char *name;
        // A working set a little larger than the tier does not push itself out in circles: the
        // caller need not see to that.
        bool resists_circles;
        size_t (*state_bytes)(const struct cairn_eviction_options *options);
        void (*init)(struct cairn_eviction *eviction, const struct cairn_eviction_options *options);
        void (*insert)(struct cairn_eviction *eviction, struct cairn_eviction_node *node);
        void (*touch)(struct cairn_eviction *eviction, struct cairn_eviction_node *node);
        void (*remove)(struct cairn_eviction *eviction, struct cairn_eviction_node *node,
                       enum cairn_eviction_cause cause);
        // The node was blocked and is free again.
        void (*unblocked)(struct cairn_eviction *eviction, struct cairn_eviction_node *node);
        struct cairn_eviction_node *(*victim)(struct cairn_eviction *eviction);
        void (*resize)(struct cairn_eviction *eviction, uint64_t capacity_bytes);
        void (*explain)(const struct cairn_eviction *eviction,
                        const struct cairn_eviction_node *node,
                        struct cairn_eviction_reason *ret_reason);
};

struct cairn_eviction {
        const struct cairn_eviction_ops *ops;
        void *state;
        uint64_t bytes; // of all inserted nodes
        uint64_t nodes;
        bool any_order;
};

// `state` is ops->state_bytes(options) of the caller's, aligned to 16, kept until finish.
void cairn_eviction_init(struct cairn_eviction *eviction, const struct cairn_eviction_ops *ops,
                         const struct cairn_eviction_options *options, void *state);
// All nodes must have been removed.
void cairn_eviction_finish(struct cairn_eviction *eviction);

// `parent` NULL: a root, or a block whose parent is not here (link it later).
void cairn_eviction_insert(struct cairn_eviction *eviction, struct cairn_eviction_node *node,
                           struct cairn_eviction_node *parent);
// Both are inserted, `child` has no parent yet, and `parent` does not descend from it.
void cairn_eviction_link(struct cairn_eviction_node *child, struct cairn_eviction_node *parent);
// Counts a use. A use of a chain touches its blocks from the leaf to the root.
void cairn_eviction_touch(struct cairn_eviction_node *node);
// Children that are left (a delete, never an eviction) become roots. Held nodes may be removed:
// who holds them keeps the bytes, not the node's place.
void cairn_eviction_remove(struct cairn_eviction_node *node, enum cairn_eviction_cause cause);

void cairn_eviction_hold(struct cairn_eviction_node *node);
void cairn_eviction_unhold(struct cairn_eviction_node *node);
// Held or not, for who keeps count itself. Does nothing where it is so already.
void cairn_eviction_set_held(struct cairn_eviction_node *node, bool held);
bool cairn_eviction_blocked(const struct cairn_eviction_node *node);

// The next to go, or NULL when every node is blocked. It stays inserted: remove it as EVICTED, or
// hold it while its bytes are written back. A policy may reorder its queues here.
struct cairn_eviction_node *cairn_eviction_victim(struct cairn_eviction *eviction);
void cairn_eviction_resize(struct cairn_eviction *eviction, uint64_t capacity_bytes);
// Before it is removed.
void cairn_eviction_explain(const struct cairn_eviction_node *node,
                            struct cairn_eviction_reason *ret_reason);

#endif
