// lru: the least recently used free block goes first, exactly.
//
// A list by use, newest first. A blocked node that reaches the end is parked (taken out); once it
// is free it waits in a heap by its last use. Whatever waits there was older than all of the list
// when it was parked and has not been used since, so the heap goes first. Holding, releasing and
// touching are O(1) but for parked nodes.
#include "policy/eviction/eviction.h"

#include <assert.h>

#include "policy/eviction/heap.h"

enum place {
        LISTED = 1,
        PARKED = 2,
        RETURNED = 3
};

struct lru {
        struct cairn_eviction_node *newest;
        struct cairn_eviction_node *oldest;
        struct cairn_eviction_heap returned;
        uint64_t clock; // counts uses
};

static void take_out(struct lru *lru, struct cairn_eviction_node *node);
static void list_newest(struct lru *lru, struct cairn_eviction_node *node);

static size_t lru_state_bytes(const struct cairn_eviction_options *options)
{
        (void)options; // nothing depends on them
        return sizeof(struct lru);
}

static void lru_init(struct cairn_eviction *eviction, const struct cairn_eviction_options *options)
{
        (void)options; // nothing depends on them
        *(struct lru *)eviction->state = (struct lru){0};
}

static void lru_insert(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        node->uses = 1;
        list_newest(eviction->state, node);
}

static void lru_touch(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        take_out(eviction->state, node);
        list_newest(eviction->state, node);
        node->uses += node->uses < UINT16_MAX;
}

static void lru_remove(struct cairn_eviction *eviction, struct cairn_eviction_node *node,
                       enum cairn_eviction_cause cause)
{
        (void)cause; // nothing is remembered
        take_out(eviction->state, node);
}

static void lru_unblocked(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        struct lru *lru = eviction->state;

        if (node->place != PARKED)
                return;
        node->rank = (double)node->order;
        node->place = RETURNED;
        cairn_eviction_heap_push(&lru->returned, node);
}

static struct cairn_eviction_node *lru_victim(struct cairn_eviction *eviction)
{
        struct lru *lru = eviction->state;

        for (;;) {
                struct cairn_eviction_node *node =
                    lru->returned.root ? lru->returned.root : lru->oldest;

                if (!node || !cairn_eviction_blocked(node))
                        return node;
                take_out(lru, node);
                node->place = PARKED;
        }
}

static void lru_resize(struct cairn_eviction *eviction, uint64_t capacity_bytes)
{
        (void)eviction, (void)capacity_bytes; // the order does not depend on it
}

static void lru_explain(const struct cairn_eviction *eviction,
                        const struct cairn_eviction_node *node,
                        struct cairn_eviction_reason *ret_reason)
{
        const struct lru *lru = eviction->state;

        ret_reason->score = (double)node->order;
        ret_reason->numbers[0] = (double)(lru->clock - node->order);
        ret_reason->numbers[1] = node->uses;
}

const struct cairn_eviction_ops cairn_eviction_lru = {.name = "lru",
                                                      .state_bytes = lru_state_bytes,
                                                      .init = lru_init,
                                                      .insert = lru_insert,
                                                      .touch = lru_touch,
                                                      .remove = lru_remove,
                                                      .unblocked = lru_unblocked,
                                                      .victim = lru_victim,
                                                      .resize = lru_resize,
                                                      .explain = lru_explain};

static void take_out(struct lru *lru, struct cairn_eviction_node *node)
{
        if (node->place == RETURNED) {
                cairn_eviction_heap_remove(&lru->returned, node);
        } else if (node->place == LISTED) {
                *(node->previous ? &node->previous->next : &lru->newest) = node->next;
                *(node->next ? &node->next->previous : &lru->oldest) = node->previous;
        } else {
                assert(node->place == PARKED);
        }
        node->next = node->previous = NULL;
        node->place = 0;
}

static void list_newest(struct lru *lru, struct cairn_eviction_node *node)
{
        node->order = ++lru->clock;
        node->place = LISTED;
        node->previous = NULL;
        node->next = lru->newest;
        if (lru->newest)
                lru->newest->previous = node;
        else
                lru->oldest = node;
        lru->newest = node;
}
