// The pairing heap of heap.h. A node's `previous` is its left sibling, or its parent when it is the
// first child; of the root it is NULL.
#include "policy/eviction/heap.h"

#include <assert.h>

static struct cairn_eviction_node *meld(struct cairn_eviction_node *a,
                                        struct cairn_eviction_node *b);
static struct cairn_eviction_node *merge_pairs(struct cairn_eviction_node *first);

void cairn_eviction_heap_push(struct cairn_eviction_heap *heap, struct cairn_eviction_node *node)
{
        node->next = node->previous = node->heap_child = NULL;
        heap->root = heap->root ? meld(heap->root, node) : node;
}

void cairn_eviction_heap_remove(struct cairn_eviction_heap *heap, struct cairn_eviction_node *node)
{
        struct cairn_eviction_node *below = merge_pairs(node->heap_child);

        if (node == heap->root) {
                heap->root = below;
        } else {
                assert(node->previous);
                if (node->previous->heap_child == node)
                        node->previous->heap_child = node->next;
                else
                        node->previous->next = node->next;
                if (node->next)
                        node->next->previous = node->previous;
                if (below)
                        heap->root = meld(heap->root, below);
        }
        node->next = node->previous = node->heap_child = NULL;
}

static bool before(const struct cairn_eviction_node *a, const struct cairn_eviction_node *b)
{
        return a->rank < b->rank || (a->rank == b->rank && a->order < b->order);
}

// Both are roots without siblings.
static struct cairn_eviction_node *meld(struct cairn_eviction_node *a,
                                        struct cairn_eviction_node *b)
{
        if (before(b, a)) {
                struct cairn_eviction_node *swap = a;
                a = b;
                b = swap;
        }
        b->next = a->heap_child;
        if (b->next)
                b->next->previous = b;
        b->previous = a;
        a->heap_child = b;
        return a;
}

// Two passes: melds neighbours from left to right, then all from right to left.
static struct cairn_eviction_node *merge_pairs(struct cairn_eviction_node *first)
{
        struct cairn_eviction_node *pairs = NULL; // linked by next, the last pair first
        struct cairn_eviction_node *root;

        while (first) {
                struct cairn_eviction_node *a = first;
                struct cairn_eviction_node *b = a->next;

                first = b ? b->next : NULL;
                a->next = a->previous = NULL;
                if (b) {
                        b->next = b->previous = NULL;
                        a = meld(a, b);
                }
                a->next = pairs;
                pairs = a;
        }
        if (!pairs)
                return NULL;
        root = pairs;
        pairs = root->next;
        root->next = NULL;
        while (pairs) {
                struct cairn_eviction_node *a = pairs;

                pairs = a->next;
                a->next = NULL;
                root = meld(root, a);
        }
        return root;
}
