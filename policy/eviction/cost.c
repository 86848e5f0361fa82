// cost: the block goes first whose place saves the fewest recompute seconds: cost a byte, times the
// chance of use.
//
//   worth = recompute_us / size_bytes * p^2 / age^1.5
//
// age counts uses of the tier since the block's last one: the longer unused, the less likely. p is
// the share of blocks used as often as this one that were used again before they had to go, learned
// from every hit and eviction (the idea of LHD: Beckmann, Chen, Cidon, NSDI 2018). The exponents
// were chosen on the traces of cairn-bench: with 1 / age alone this is GreedyDual, which lets
// what is dear linger after a conversation has ended.
//
// Blocks lie in lists by use class and cost class, each by last use; the victim is the worst of
// the lists' old ends, so that a touch is O(1) and a victim O(number of lists). Blocked nodes that
// reach an old end are parked and come back to it. A block whose cost is unknown counts as the mean
// of the known ones a byte.
#include "policy/eviction/eviction.h"

#include <assert.h>
#include <math.h>

enum {
        USE_CLASSES = 6,   // 1, 2, 3-4, 5-8, 9-16, more uses
        COST_CLASSES = 32, // half octaves of us a byte from 2^-12
        LEARNED_MAX = 65536,
        LISTED = 1,
        PARKED = 2
};

// No class is given up: what was used often does not outlive it by more than some fifty times.
#define LEAST_AGAIN 0.05

struct list {
        struct cairn_eviction_node *newest;
        struct cairn_eviction_node *oldest;
};

struct cost {
        struct list lists[USE_CLASSES][COST_CLASSES];
        double hits[USE_CLASSES];
        double ends[USE_CLASSES]; // hits and evictions
        uint64_t clock;           // counts uses of the tier
        double known_us;
        double known_bytes;
};

static int use_class(const struct cairn_eviction_node *node);
static struct list *list_of(struct cost *cost, const struct cairn_eviction_node *node);
static void push_newest(struct cost *cost, struct cairn_eviction_node *node);
static void take_out(struct cost *cost, struct cairn_eviction_node *node);
static void count_end(struct cost *cost, const struct cairn_eviction_node *node, bool hit);

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
                node->rank = (double)node->recompute_us / (double)node->size_bytes;
        } else {
                node->rank = cost->known_bytes > 0 ? cost->known_us / cost->known_bytes : 1;
        }
        node->uses = 1;
        push_newest(cost, node);
}

static void cost_touch(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        struct cost *cost = eviction->state;

        count_end(cost, node, true);
        take_out(cost, node);
        if (node->uses < UINT16_MAX)
                node->uses++;
        push_newest(cost, node);
}

static void cost_remove(struct cairn_eviction *eviction, struct cairn_eviction_node *node,
                        enum cairn_eviction_cause cause)
{
        struct cost *cost = eviction->state;

        if (cause == CAIRN_EVICTION_EVICTED)
                count_end(cost, node, false);
        take_out(cost, node);
}

static void cost_unblocked(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        struct list *list = list_of(eviction->state, node);

        if (node->place != PARKED)
                return;
        node->place = LISTED;
        node->next = NULL;
        node->previous = list->oldest;
        *(list->oldest ? &list->oldest->next : &list->newest) = node;
        list->oldest = node;
}

// The free old end of a list; what is blocked there is parked.
static struct cairn_eviction_node *free_end(struct cost *cost, struct list *list)
{
        while (list->oldest && cairn_eviction_blocked(list->oldest)) {
                struct cairn_eviction_node *node = list->oldest;

                take_out(cost, node);
                node->place = PARKED;
        }
        return list->oldest;
}

static double chance_of_use(const struct cost *cost, int use_class)
{
        return LEAST_AGAIN + (cost->hits[use_class] + 1) / (cost->ends[use_class] + 2);
}

static double worth(const struct cost *cost, const struct cairn_eviction_node *node, double again)
{
        double age = (double)(cost->clock - node->order + 1);

        return node->rank * again * again / (age * sqrt(age));
}

static struct cairn_eviction_node *cost_victim(struct cairn_eviction *eviction)
{
        struct cost *cost = eviction->state;
        struct cairn_eviction_node *victim = NULL;
        double least = INFINITY;

        for (int u = 0; u < USE_CLASSES; u++) {
                double again = chance_of_use(cost, u);

                for (int c = 0; c < COST_CLASSES; c++) {
                        struct cairn_eviction_node *node = free_end(cost, &cost->lists[u][c]);

                        if (node && (!victim || worth(cost, node, again) < least)) {
                                victim = node;
                                least = worth(cost, node, again);
                        }
                }
        }
        return victim;
}

static void cost_resize(struct cairn_eviction *eviction, uint64_t capacity_bytes)
{
        (void)eviction, (void)capacity_bytes; // the order does not depend on it
}

static void cost_explain(const struct cairn_eviction *eviction,
                         const struct cairn_eviction_node *node,
                         struct cairn_eviction_reason *ret_reason)
{
        const struct cost *cost = eviction->state;
        double again = chance_of_use(cost, use_class(node));

        ret_reason->score = worth(cost, node, again);
        ret_reason->numbers[0] = (double)(cost->clock - node->order);
        ret_reason->numbers[1] = node->uses;
        ret_reason->numbers[2] = node->rank;
        ret_reason->numbers[3] = again;
}

const struct cairn_eviction_ops cairn_eviction_cost = {.name = "cost",
                                                       .state_bytes = cost_state_bytes,
                                                       .init = cost_init,
                                                       .insert = cost_insert,
                                                       .touch = cost_touch,
                                                       .remove = cost_remove,
                                                       .unblocked = cost_unblocked,
                                                       .victim = cost_victim,
                                                       .resize = cost_resize,
                                                       .explain = cost_explain};

static int use_class(const struct cairn_eviction_node *node)
{
        int class = 0;

        while (class < USE_CLASSES - 1 && node->uses > 1u << class)
                class ++;
        return class;
}

static int cost_class(const struct cairn_eviction_node *node)
{
        int class = (int)floor(2 * log2(node->rank) + 24);

        return class < 0 ? 0 : class >= COST_CLASSES ? COST_CLASSES - 1 : class;
}

static struct list *list_of(struct cost *cost, const struct cairn_eviction_node *node)
{
        return &cost->lists[use_class(node)][cost_class(node)];
}

static void push_newest(struct cost *cost, struct cairn_eviction_node *node)
{
        struct list *list = list_of(cost, node);

        node->order = ++cost->clock;
        node->place = LISTED;
        node->previous = NULL;
        node->next = list->newest;
        *(list->newest ? &list->newest->previous : &list->oldest) = node;
        list->newest = node;
}

static void take_out(struct cost *cost, struct cairn_eviction_node *node)
{
        if (node->place == LISTED) {
                struct list *list = list_of(cost, node);

                *(node->previous ? &node->previous->next : &list->newest) = node->next;
                *(node->next ? &node->next->previous : &list->oldest) = node->previous;
        } else {
                assert(node->place == PARKED);
        }
        node->next = node->previous = NULL;
        node->place = 0;
}

static void count_end(struct cost *cost, const struct cairn_eviction_node *node, bool hit)
{
        int class = use_class(node);

        cost->ends[class] += 1;
        cost->hits[class] += hit;
        if (cost->ends[class] >= LEARNED_MAX) { // what was learned fades
                cost->ends[class] /= 2;
                cost->hits[class] /= 2;
        }
}
