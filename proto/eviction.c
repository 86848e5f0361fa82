// Leaf-first bookkeeping around a policy's table: links, holds, counters (see eviction.h).
#include "proto/eviction.h"

#include <assert.h>

static void unlink_parent(struct cairn_eviction_node *node);
static void tell_if_free(struct cairn_eviction_node *node);

void cairn_eviction_init(struct cairn_eviction *eviction, const struct cairn_eviction_ops *ops,
                         const struct cairn_eviction_options *options, void *state)
{
        assert(ops && options && state);
        assert((uintptr_t)state % 16 == 0);
        *eviction =
            (struct cairn_eviction){.ops = ops, .state = state, .any_order = options->any_order};
        ops->init(eviction, options);
}

void cairn_eviction_finish(struct cairn_eviction *eviction)
{
        assert(eviction->nodes == 0);
        assert(eviction->bytes == 0);
        *eviction = (struct cairn_eviction){0};
}

void cairn_eviction_insert(struct cairn_eviction *eviction, struct cairn_eviction_node *node,
                           struct cairn_eviction_node *parent)
{
        assert(!node->home && !node->parent && !node->children);
        assert(node->size_bytes > 0);
        node->home = eviction;
        eviction->bytes += node->size_bytes;
        eviction->nodes++;
        if (parent)
                cairn_eviction_link(node, parent);
        eviction->ops->insert(eviction, node);
}

void cairn_eviction_link(struct cairn_eviction_node *child, struct cairn_eviction_node *parent)
{
        assert(child->home && parent->home && child != parent);
        assert(!child->parent);
        child->parent = parent;
        child->previous_sibling = NULL;
        child->next_sibling = parent->first_child;
        if (parent->first_child)
                parent->first_child->previous_sibling = child;
        parent->first_child = child;
        parent->children++;
}

void cairn_eviction_touch(struct cairn_eviction_node *node)
{
        assert(node->home);
        node->home->ops->touch(node->home, node);
}

void cairn_eviction_remove(struct cairn_eviction_node *node, enum cairn_eviction_cause cause)
{
        struct cairn_eviction *eviction = node->home;

        assert(eviction && eviction->nodes > 0 && eviction->bytes >= node->size_bytes);
        assert(cause != CAIRN_EVICTION_EVICTED || eviction->any_order || node->children == 0);
        eviction->ops->remove(eviction, node, cause);
        eviction->bytes -= node->size_bytes;
        eviction->nodes--;
        node->home = NULL;
        while (node->first_child)
                unlink_parent(node->first_child);
        if (node->parent)
                unlink_parent(node);
}

void cairn_eviction_hold(struct cairn_eviction_node *node)
{
        assert(node->home && node->holds < UINT32_MAX);
        node->holds++;
}

void cairn_eviction_unhold(struct cairn_eviction_node *node)
{
        assert(node->holds > 0);
        node->holds--;
        if (node->holds == 0)
                tell_if_free(node);
}

void cairn_eviction_set_held(struct cairn_eviction_node *node, bool held)
{
        if (held && node->holds == 0)
                cairn_eviction_hold(node);
        else if (!held && node->holds > 0)
                cairn_eviction_unhold(node);
}

bool cairn_eviction_blocked(const struct cairn_eviction_node *node)
{
        return node->holds > 0 || (node->children > 0 && !node->home->any_order);
}

struct cairn_eviction_node *cairn_eviction_victim(struct cairn_eviction *eviction)
{
        struct cairn_eviction_node *node = eviction->ops->victim(eviction);

        assert(!node || (node->home == eviction && !cairn_eviction_blocked(node)));
        return node;
}

void cairn_eviction_resize(struct cairn_eviction *eviction, uint64_t capacity_bytes)
{
        eviction->ops->resize(eviction, capacity_bytes);
}

void cairn_eviction_explain(const struct cairn_eviction_node *node,
                            struct cairn_eviction_reason *ret_reason)
{
        assert(node->home);
        *ret_reason = (struct cairn_eviction_reason){0};
        node->home->ops->explain(node->home, node, ret_reason);
}

static void unlink_parent(struct cairn_eviction_node *node)
{
        struct cairn_eviction_node *parent = node->parent;

        assert(parent && parent->children > 0);
        if (node->previous_sibling)
                node->previous_sibling->next_sibling = node->next_sibling;
        else
                parent->first_child = node->next_sibling;
        if (node->next_sibling)
                node->next_sibling->previous_sibling = node->previous_sibling;
        node->parent = node->next_sibling = node->previous_sibling = NULL;
        parent->children--;
        if (parent->children == 0)
                tell_if_free(parent);
}

static void tell_if_free(struct cairn_eviction_node *node)
{
        if (node->home && !cairn_eviction_blocked(node))
                node->home->ops->unblocked(node->home, node);
}
