// s3fifo: three FIFO queues (Yang et al., "FIFO queues are all you need for cache eviction", SOSP
// 2023). A new block enters `small` (a tenth of the tier); unless it was used twice there it goes,
// leaving its id in the ghost; used blocks, and new ones that the ghost remembers, enter `main`,
// where a use (up to three count) buys another round. One pass of a scan therefore never displaces
// what main holds.
//
// While the tier fills for the first time, blocks beyond small's share enter main, as libCacheSim
// does. A blocked node at the old end of a queue is parked, and returns to that end once it is
// free; its bytes count in its queue all the time.
#include "policy/eviction/eviction.h"

#include <assert.h>

#include "policy/eviction/ghost.h"

enum {
        SMALL = 0,
        MAIN = 1,
        PARKED = 2,      // added to a queue's number in node->place
        USED_ENOUGH = 2, // uses in small that lead to main
        USES_MAX = 3
};

struct queue {
        struct cairn_eviction_node *newest;
        struct cairn_eviction_node *oldest;
        uint64_t bytes; // parked nodes too
};

struct s3fifo {
        struct queue queues[2];
        struct cairn_ghost ghost;
        uint64_t small_bytes_max;
        uint64_t main_bytes_max;
        bool has_evicted;
        _Alignas(16) uint8_t ghost_memory[];
};

static void push_newest(struct s3fifo *s3, int which, struct cairn_eviction_node *node);
static void push_oldest(struct s3fifo *s3, int which, struct cairn_eviction_node *node);
static void unlink_node(struct s3fifo *s3, struct cairn_eviction_node *node);
static struct cairn_eviction_node *pass_small(struct s3fifo *s3);
static struct cairn_eviction_node *pass_main(struct s3fifo *s3);

static uint32_t ghost_entries(const struct cairn_eviction_options *options)
{
        if (options->ghost_entries_max == 0)
                return CAIRN_EVICTION_GHOST_ENTRIES;
        if (options->ghost_entries_max > CAIRN_EVICTION_GHOST_ENTRIES_MAX)
                return CAIRN_EVICTION_GHOST_ENTRIES_MAX;
        return options->ghost_entries_max;
}

static size_t s3fifo_state_bytes(const struct cairn_eviction_options *options)
{
        return sizeof(struct s3fifo) + cairn_ghost_bytes(ghost_entries(options));
}

static void s3fifo_resize(struct cairn_eviction *eviction, uint64_t capacity_bytes)
{
        struct s3fifo *s3 = eviction->state;

        s3->small_bytes_max = capacity_bytes / 10;
        s3->main_bytes_max = capacity_bytes - s3->small_bytes_max;
        cairn_ghost_resize(&s3->ghost, s3->main_bytes_max);
}

static void s3fifo_init(struct cairn_eviction *eviction,
                        const struct cairn_eviction_options *options)
{
        struct s3fifo *s3 = eviction->state;

        *s3 = (struct s3fifo){0};
        cairn_ghost_init(&s3->ghost, ghost_entries(options), 0, s3->ghost_memory);
        s3fifo_resize(eviction, options->capacity_bytes);
}

static void s3fifo_insert(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        struct s3fifo *s3 = eviction->state;
        bool filling = !s3->has_evicted && s3->queues[SMALL].bytes >= s3->small_bytes_max;
        int which = cairn_ghost_take(&s3->ghost, node->id) || filling ? MAIN : SMALL;

        node->uses = 0;
        s3->queues[which].bytes += node->size_bytes;
        push_newest(s3, which, node);
}

static void s3fifo_touch(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        (void)eviction; // a use is a count, nothing moves
        if (node->uses < USES_MAX)
                node->uses++;
}

static void s3fifo_remove(struct cairn_eviction *eviction, struct cairn_eviction_node *node,
                          enum cairn_eviction_cause cause)
{
        struct s3fifo *s3 = eviction->state;
        int which = node->place % PARKED;

        if (node->place < PARKED)
                unlink_node(s3, node);
        s3->queues[which].bytes -= node->size_bytes;
        if (cause == CAIRN_EVICTION_EVICTED && which == SMALL)
                cairn_ghost_add(&s3->ghost, node->id, node->size_bytes);
        node->place = 0;
}

static void s3fifo_unblocked(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        if (node->place >= PARKED)
                push_oldest(eviction->state, node->place % PARKED, node);
}

static struct cairn_eviction_node *s3fifo_victim(struct cairn_eviction *eviction)
{
        struct s3fifo *s3 = eviction->state;

        s3->has_evicted = true;
        for (;;) {
                struct queue *small = &s3->queues[SMALL];
                struct queue *rest = &s3->queues[MAIN];
                struct cairn_eviction_node *victim;

                if (!small->oldest && !rest->oldest)
                        return NULL;
                if (rest->oldest && (rest->bytes > s3->main_bytes_max || !small->oldest))
                        victim = pass_main(s3);
                else
                        victim = pass_small(s3);
                if (victim)
                        return victim;
        }
}

static void s3fifo_explain(const struct cairn_eviction *eviction,
                           const struct cairn_eviction_node *node,
                           struct cairn_eviction_reason *ret_reason)
{
        const struct s3fifo *s3 = eviction->state;

        ret_reason->score = node->uses;
        ret_reason->numbers[0] = node->place % PARKED;
        ret_reason->numbers[1] = node->uses;
        ret_reason->numbers[2] = (double)s3->queues[SMALL].bytes;
        ret_reason->numbers[3] = (double)s3->queues[MAIN].bytes;
}

const struct cairn_eviction_ops cairn_eviction_s3fifo = {.name = "s3fifo",
                                                         .resists_circles = true,
                                                         .state_bytes = s3fifo_state_bytes,
                                                         .init = s3fifo_init,
                                                         .insert = s3fifo_insert,
                                                         .touch = s3fifo_touch,
                                                         .remove = s3fifo_remove,
                                                         .unblocked = s3fifo_unblocked,
                                                         .victim = s3fifo_victim,
                                                         .resize = s3fifo_resize,
                                                         .explain = s3fifo_explain};

// Handles the oldest node of small: to main, parked, or the victim (which stays in place).
static struct cairn_eviction_node *pass_small(struct s3fifo *s3)
{
        struct cairn_eviction_node *node = s3->queues[SMALL].oldest;

        if (node->uses >= USED_ENOUGH) {
                unlink_node(s3, node);
                s3->queues[SMALL].bytes -= node->size_bytes;
                s3->queues[MAIN].bytes += node->size_bytes;
                node->uses = 0;
                push_newest(s3, MAIN, node);
                return NULL;
        }
        if (!cairn_eviction_blocked(node))
                return node;
        unlink_node(s3, node);
        node->place = SMALL + PARKED;
        return NULL;
}

// Handles the oldest node of main: another round, parked, or the victim.
static struct cairn_eviction_node *pass_main(struct s3fifo *s3)
{
        struct cairn_eviction_node *node = s3->queues[MAIN].oldest;

        if (node->uses > 0) {
                unlink_node(s3, node);
                node->uses--;
                push_newest(s3, MAIN, node);
                return NULL;
        }
        if (!cairn_eviction_blocked(node))
                return node;
        unlink_node(s3, node);
        node->place = MAIN + PARKED;
        return NULL;
}

static void push_newest(struct s3fifo *s3, int which, struct cairn_eviction_node *node)
{
        struct queue *queue = &s3->queues[which];

        node->place = (uint8_t)which;
        node->previous = NULL;
        node->next = queue->newest;
        *(queue->newest ? &queue->newest->previous : &queue->oldest) = node;
        queue->newest = node;
}

static void push_oldest(struct s3fifo *s3, int which, struct cairn_eviction_node *node)
{
        struct queue *queue = &s3->queues[which];

        node->place = (uint8_t)which;
        node->next = NULL;
        node->previous = queue->oldest;
        *(queue->oldest ? &queue->oldest->next : &queue->newest) = node;
        queue->oldest = node;
}

static void unlink_node(struct s3fifo *s3, struct cairn_eviction_node *node)
{
        struct queue *queue = &s3->queues[node->place];

        assert(node->place < PARKED);
        *(node->previous ? &node->previous->next : &queue->newest) = node->next;
        *(node->next ? &node->next->previous : &queue->oldest) = node->previous;
        node->next = node->previous = NULL;
}
