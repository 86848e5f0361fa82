// cost: the block goes first whose loss costs the fewest recompute seconds a byte, times its chance
// of use. GreedyDual-Size with Frequency (Cherkasova, HP Labs 1998): rank = age + uses * cost /
// size, where age is the rank of the last victim, so that blocks unused for long are overtaken.
//
// A block whose cost is unknown counts as the mean of the known ones a byte. Uses are halved for
// every CAIRN_COST_HALVING nodes' worth of uses that pass without one of its own: a conversation
// that has ended does not keep the credit of its many turns.
#include "policy/eviction/eviction.h"

#include <assert.h>

#include "policy/eviction/heap.h"

enum place {
        HEAPED = 1,
        PARKED = 2
};

enum {
        USES_MAX = 15
};

struct cost {
        struct cairn_eviction_heap heap;
        double age;
        uint64_t clock; // counts uses
        double known_us;
        double known_bytes;
};

static void rank_again(struct cost *cost, struct cairn_eviction_node *node);

static size_t cost_state_bytes(const struct cairn_eviction_options *options)
{
        (void)options; // nothing depends on them
        return sizeof(struct cost);
}

static void cost_init(struct cairn_eviction *eviction, const struct cairn_eviction_options *options)
{
        (void)options; // nothing depends on them
        *(struct cost *)eviction->state = (struct cost){0};
}

static void cost_insert(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        struct cost *cost = eviction->state;

        if (node->recompute_us > 0) {
                cost->known_us += (double)node->recompute_us;
                cost->known_bytes += (double)node->size_bytes;
        }
        node->uses = 1;
        rank_again(cost, node);
        node->place = HEAPED;
        cairn_eviction_heap_push(&cost->heap, node);
}

static void cost_touch(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        struct cost *cost = eviction->state;

        if (node->place == HEAPED)
                cairn_eviction_heap_remove(&cost->heap, node);
        if (node->uses < USES_MAX)
                node->uses++;
        rank_again(cost, node);
        if (node->place == HEAPED)
                cairn_eviction_heap_push(&cost->heap, node);
}

static void cost_remove(struct cairn_eviction *eviction, struct cairn_eviction_node *node,
                        enum cairn_eviction_cause cause)
{
        struct cost *cost = eviction->state;

        if (node->place == HEAPED)
                cairn_eviction_heap_remove(&cost->heap, node);
        if (cause == CAIRN_EVICTION_EVICTED && node->rank > cost->age)
                cost->age = node->rank;
        node->place = 0;
}

static void cost_unblocked(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        struct cost *cost = eviction->state;

        if (node->place != PARKED)
                return;
        node->place = HEAPED;
        cairn_eviction_heap_push(&cost->heap, node);
}

static struct cairn_eviction_node *cost_victim(struct cairn_eviction *eviction)
{
        struct cost *cost = eviction->state;

        while (cost->heap.root && cairn_eviction_blocked(cost->heap.root)) {
                struct cairn_eviction_node *node = cost->heap.root;

                cairn_eviction_heap_remove(&cost->heap, node);
                node->place = PARKED;
        }
        return cost->heap.root;
}

static void cost_resize(struct cairn_eviction *eviction, uint64_t capacity_bytes)
{
        (void)eviction, (void)capacity_bytes; // the order does not depend on it
}

const struct cairn_eviction_ops cairn_eviction_cost = {.name = "cost",
                                                       .state_bytes = cost_state_bytes,
                                                       .init = cost_init,
                                                       .insert = cost_insert,
                                                       .touch = cost_touch,
                                                       .remove = cost_remove,
                                                       .unblocked = cost_unblocked,
                                                       .victim = cost_victim,
                                                       .resize = cost_resize};

static void rank_again(struct cost *cost, struct cairn_eviction_node *node)
{
        double us_a_byte;

        if (node->recompute_us > 0)
                us_a_byte = (double)node->recompute_us / (double)node->size_bytes;
        else
                us_a_byte = cost->known_bytes > 0 ? cost->known_us / cost->known_bytes : 1.0;
        node->order = ++cost->clock;
        node->rank = cost->age + (double)node->uses * us_a_byte;
}
