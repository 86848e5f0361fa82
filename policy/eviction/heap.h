// A pairing heap over eviction nodes: the lowest rank first, then the oldest use. No memory of its
// own: it uses next, previous and heap_child of the nodes (Fredman et al., 1986: insert O(1), the
// rest amortized O(log n)). Used by policy/eviction/ and the trace simulator.
#ifndef CAIRN_EVICTION_HEAP_H
#define CAIRN_EVICTION_HEAP_H

#include "proto/eviction.h"

// The root is the lowest node; NULL: empty.
struct cairn_eviction_heap {
        struct cairn_eviction_node *root;
};

void cairn_eviction_heap_push(struct cairn_eviction_heap *heap, struct cairn_eviction_node *node);
// `node` is in this heap.
void cairn_eviction_heap_remove(struct cairn_eviction_heap *heap, struct cairn_eviction_node *node);

#endif
