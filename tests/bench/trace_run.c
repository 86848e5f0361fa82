// Runs a policy over a trace. A tier of `capacity_bytes`, empty at first; a use is a hit when the
// block and all its ancestors are there; a miss is inserted, evicting until it fits.
//
// Belady's rule (the next use farthest away goes first, and a block that would go at once is not
// taken in) is the optimum of hits for blocks of one size. It is leaf-first by itself: a parent is
// used whenever its child is, so its next use is never later. For blocks of several sizes, and for
// seconds, it is a strong rule, no bound.
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "policy/admission/tinylfu.h"
#include "policy/eviction/heap.h"
#include "tests/bench/trace.h"

struct run {
        const struct cairn_trace *trace;
        const struct cairn_trace_options *options;
        struct cairn_trace_result result;
        struct cairn_eviction eviction;
        struct cairn_eviction_node *nodes;
        struct cairn_tinylfu filter;
};

// ---- Belady's rule as a policy: rank is set by the simulator before insert and touch ----

enum {
        HEAPED = 1,
        PARKED = 2
};

static size_t belady_state_bytes(const struct cairn_eviction_options *options)
{
        (void)options; // nothing depends on them
        return 16;
}

static void belady_init(struct cairn_eviction *eviction,
                        const struct cairn_eviction_options *options)
{
        (void)options; // nothing depends on them
        *(struct cairn_eviction_heap *)eviction->state = (struct cairn_eviction_heap){0};
}

static void belady_insert(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        node->place = HEAPED;
        cairn_eviction_heap_push(eviction->state, node);
}

static void belady_remove(struct cairn_eviction *eviction, struct cairn_eviction_node *node,
                          enum cairn_eviction_cause cause)
{
        (void)cause; // nothing is remembered
        if (node->place == HEAPED)
                cairn_eviction_heap_remove(eviction->state, node);
        node->place = 0;
}

static void belady_touch(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        (void)eviction, (void)node; // the simulator removes and inserts
}

static void belady_unblocked(struct cairn_eviction *eviction, struct cairn_eviction_node *node)
{
        if (node->place == PARKED)
                belady_insert(eviction, node);
}

static struct cairn_eviction_node *belady_victim(struct cairn_eviction *eviction)
{
        struct cairn_eviction_heap *heap = eviction->state;

        while (heap->root && cairn_eviction_blocked(heap->root)) {
                struct cairn_eviction_node *node = heap->root;

                cairn_eviction_heap_remove(heap, node);
                node->place = PARKED;
        }
        return heap->root;
}

static void belady_resize(struct cairn_eviction *eviction, uint64_t capacity_bytes)
{
        (void)eviction, (void)capacity_bytes; // the order does not depend on it
}

static void belady_explain(const struct cairn_eviction *eviction,
                           const struct cairn_eviction_node *node,
                           struct cairn_eviction_reason *ret_reason)
{
        (void)eviction; // the rank says it all
        ret_reason->score = node->rank;
}

static const struct cairn_eviction_ops belady = {.name = "belady",
                                                 .state_bytes = belady_state_bytes,
                                                 .init = belady_init,
                                                 .insert = belady_insert,
                                                 .touch = belady_touch,
                                                 .remove = belady_remove,
                                                 .unblocked = belady_unblocked,
                                                 .victim = belady_victim,
                                                 .resize = belady_resize,
                                                 .explain = belady_explain};

// The farthest next use has the lowest rank.
static double belady_rank(const struct cairn_trace_use *use)
{
        return use->next == CAIRN_TRACE_NONE ? -INFINITY : -(double)use->next;
}

// ---- the tier ----

static bool reachable(const struct run *run, uint32_t block)
{
        for (; block != CAIRN_TRACE_NONE; block = run->trace->blocks[block].parent) {
                if (!run->nodes[block].home)
                        return false;
        }
        return true;
}

// Makes room for the block of `use`. False: it cannot, or should not, be taken in.
static bool make_room(struct run *run, const struct cairn_trace_use *use,
                      const struct cairn_eviction_node *node)
{
        uint64_t capacity = run->options->capacity_bytes;

        if (node->size_bytes > capacity)
                return false;
        if (run->options->second_use && !cairn_tinylfu_admit(&run->filter, node->id))
                return false;
        if (!run->options->policy && use->next == CAIRN_TRACE_NONE)
                return false;
        while (run->eviction.bytes + node->size_bytes > capacity) {
                struct cairn_eviction_node *victim = cairn_eviction_victim(&run->eviction);

                if (!victim || (!run->options->policy && victim->rank > belady_rank(use)))
                        return false;
                run->result.blocked_evicted += victim->children > 0 && !run->options->any_order;
                cairn_eviction_remove(victim, CAIRN_EVICTION_EVICTED);
                run->result.evictions++;
        }
        return true;
}

static void insert_block(struct run *run, const struct cairn_trace_use *use)
{
        const struct cairn_trace_block *block = &run->trace->blocks[use->block];
        struct cairn_eviction_node *node = &run->nodes[use->block];
        struct cairn_eviction_node *parent = NULL;
        bool room;

        if (block->parent != CAIRN_TRACE_NONE && !run->options->any_order) {
                parent = &run->nodes[block->parent];
                if (!parent->home) { // a lookup would stop before it
                        run->result.bypassed++;
                        return;
                }
                cairn_eviction_hold(parent); // the request's own chain stays while it runs
        }
        *node = (struct cairn_eviction_node){.id = block->id,
                                             .size_bytes = block->size_bytes,
                                             .recompute_us = block->recompute_us,
                                             .rank = belady_rank(use)};
        room = make_room(run, use, node);
        if (room) {
                cairn_eviction_insert(&run->eviction, node, parent);
                run->result.admitted_bytes += block->size_bytes;
        } else {
                run->result.bypassed++;
        }
        if (parent)
                cairn_eviction_unhold(parent);
}

static void touch_block(struct run *run, const struct cairn_trace_use *use)
{
        struct cairn_eviction_node *node = &run->nodes[use->block];

        if (run->options->policy) {
                cairn_eviction_touch(node);
                return;
        }
        belady_remove(&run->eviction, node, CAIRN_EVICTION_REMOVED);
        node->rank = belady_rank(use);
        belady_insert(&run->eviction, node);
}

static void use_block(struct run *run, const struct cairn_trace_use *use)
{
        const struct cairn_trace_block *block = &run->trace->blocks[use->block];
        struct cairn_trace_result *result = &run->result;

        result->used_bytes += block->size_bytes;
        result->used_us += block->recompute_us;
        if (run->options->second_use)
                cairn_tinylfu_use(&run->filter, block->id);
        if (!run->nodes[use->block].home) {
                insert_block(run, use);
                return;
        }
        touch_block(run, use);
        if (!reachable(run, use->block)) {
                result->unreachable++;
                return;
        }
        result->hits++;
        result->hit_bytes += block->size_bytes;
        result->hit_us += block->recompute_us;
}

void cairn_trace_run(const struct cairn_trace *trace, const struct cairn_trace_options *options,
                     struct cairn_trace_result *ret_result)
{
        struct run run = {.trace = trace, .options = options};
        const struct cairn_eviction_ops *ops = options->policy ? options->policy : &belady;
        struct cairn_eviction_options eviction = {.capacity_bytes = options->capacity_bytes,
                                                  .ghost_entries_max = trace->n_blocks + 1,
                                                  .any_order = options->any_order};
        struct cairn_tinylfu_options filter = {
            .mode = CAIRN_ADMISSION_TINYLFU,
            .counters = (uint64_t)((double)options->capacity_bytes /
                                   (double)(trace->footprint_bytes + 1) * trace->n_blocks) +
                        1};
        void *state = aligned_alloc(16, (ops->state_bytes(&eviction) + 15) / 16 * 16);
        void *sketch = malloc(cairn_tinylfu_bytes(&filter));

        run.nodes = calloc(trace->n_blocks, sizeof(*run.nodes));
        if (!state || !sketch || !run.nodes)
                abort();
        cairn_tinylfu_init(&run.filter, &filter, sketch);
        cairn_eviction_init(&run.eviction, ops, &eviction, state);
        for (uint32_t i = 0; i < trace->n_uses; i++)
                use_block(&run, &trace->uses[i]);
        assert(run.eviction.bytes <= options->capacity_bytes);
        for (uint32_t b = 0; b < trace->n_blocks; b++) {
                if (run.nodes[b].home)
                        cairn_eviction_remove(&run.nodes[b], CAIRN_EVICTION_REMOVED);
        }
        cairn_eviction_finish(&run.eviction);
        free(run.nodes);
        free(sketch);
        free(state);
        *ret_result = run.result;
}
