// A Retain or Plan under way: checked on the loop, worked by scorers, a layer at a time.
//
// Each layer goes through steps, and a step has *items* that any scorers take at once: heads, or
// spans of heads. An item of a span is cut into *slices* of some proxies, each a piece of work of
// its own for the scorers, so that others get their turn. The answer does not depend on who does
// what. May be used by: daemon (serve_policy.c, retain*.c). May use: proto, policy.
#ifndef CAIRN_RETAIN_H
#define CAIRN_RETAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/context.h"
#include "daemon/serve.h"
#include "policy/retention/choose.h"
#include "policy/retention/nacl.h"
#include "policy/retention/pieces.h"
#include "policy/retention/plan.h"
#include "proto/result.h"

enum cairn_retain_step {
        CAIRN_RETAIN_LOAD,   // by heads: pieces, and a copy of the queries
        CAIRN_RETAIN_WEIGH,  // by spans: what each adds to the softmax of each query
        CAIRN_RETAIN_MERGE,  // by heads
        CAIRN_RETAIN_SCORE,  // by spans
        CAIRN_RETAIN_SPREAD, // once: budgets of the layer's heads
        CAIRN_RETAIN_CHOOSE, // by heads: what stays, or the plan
        CAIRN_RETAIN_ENDED,
        CAIRN_RETAIN_WRITE, // of the whole request, by heads: the result
};

struct cairn_retain;

// One KV head of a layer; its memory is the layer's.
struct cairn_retain_head {
        struct cairn_landmark_piece *pieces;
        struct cairn_retention_pieces source;
        struct cairn_nacl_request request;   // of all proxies
        float *queries;                      // [proxy][group][k_dim]
        struct cairn_nacl_partial *partials; // a slice after the other, each [spans][its queries]
        double *lse;                         // [queries]
        float *scores;                       // [tokens]
        uint64_t *present;                   // a bit a token, or NULL
        uint32_t top;                        // its budget
};

struct cairn_retain_layer {
        bool active;
        uint32_t index; // among the request's layers
        enum cairn_retain_step step;
        uint32_t next; // item
        uint32_t running;
        struct cairn_retain_head *heads; // [KV heads]
        void *memory;
        uint64_t bytes;
};

// A piece of work with the scorers. Idle: layer is NULL.
struct cairn_retain_worker {
        struct cairn_work work;
        struct cairn_retain *retain;
        struct cairn_retain_layer *layer;
        uint32_t item;
        uint32_t slice;
        uint64_t ns;
        int status;
};

// What is known of one (layer, head) in the end.
struct cairn_retain_outcome {
        uint32_t kept;
        uint32_t removed;
        double mass;    // share
        uint64_t first; // of its positions in the result
};

struct cairn_retain {
        struct cairn_request *request;
        const struct cairn_space_entry *entry;
        struct cairn_context *context; // in use
        struct cairn_context_view view;
        bool plan;
        bool drop;
        bool retains; // `retaining` of the context is this request's
        bool spread;
        double even;
        uint64_t seed;
        double target_mass;
        uint32_t layers_count;
        uint32_t layers[CAIRN_LAYERS_MAX];
        uint32_t tokens;
        uint32_t query_heads;
        uint32_t group;
        uint32_t proxies;
        uint32_t slice_proxies;
        uint32_t slices;
        uint32_t spans;
        float scale;
        uint32_t *causal; // owned; NULL: proxies see everything
        struct cairn_nacl_counts counts;
        struct cairn_landmark_range protect[CAIRN_PROTECTED_MAX];
        uint32_t protect_count;
        uint64_t kept_max; // positions a head, on average
        struct cairn_bulk queries;
        struct cairn_result_memory result;
        union {
                struct cairn_retain_layout retain;
                struct cairn_plan_layout plan;
        } layout;
        struct cairn_present *kept; // Retain: what stays; at the end of a demote, the others
        struct cairn_retain_outcome *outcomes; // Retain: [layers][KV heads], owned
        struct cairn_plan_head *plans;         // Plan: the same
        // The work.
        struct cairn_retain_layer writer; // the last step
        struct cairn_retain_layer *slots; // owned
        struct cairn_retain_head *heads;  // owned: [slots][KV heads]
        struct cairn_retain_worker *workers;
        uint32_t slots_count;
        uint32_t workers_count;
        uint32_t layers_next;
        uint32_t running;
        uint64_t kernel_ns;
        int status;
        void (*on_scored)(struct cairn_retain *retain); // may be NULL; before the result is written
        void (*on_done)(struct cairn_retain *retain);
};

// retain_check.c: the message, checked and copied. False: answered.
bool cairn_retain_check(struct cairn_retain *r);

// retain_audit.c: records of what was chosen, once it holds: the score is the mass held on average;
// numbers: rows kept, rows removed, the lowest head's mass, the seed.
void cairn_retain_audit(const struct cairn_retain *r);
// After a demote: the worker holds what stays, and landmarks, value codes and coded rows answer for
// the others, so that the blocks' raw rows need no RAM (but where the context itself reads them).
void cairn_retain_cool(const struct cairn_retain *r);

// retain.c. `on_done` runs on the loop once, when the work has ended: see `status`.
int cairn_retain_start(struct cairn_retain *r, void (*on_done)(struct cairn_retain *retain));
void cairn_retain_stop(struct cairn_retain *r); // frees what start made; no work is under way
// Memory of one layer at work.
uint64_t cairn_retain_layer_bytes(const struct cairn_retain *r);

// retain_task.c: scorer threads.
uint32_t cairn_retain_items(const struct cairn_retain *r, enum cairn_retain_step step);
uint32_t cairn_retain_slices(const struct cairn_retain *r, enum cairn_retain_step step);
int cairn_retain_run(struct cairn_retain *r, const struct cairn_retain_worker *worker);

// Where (layer of the request, KV head) stands in `outcomes` and `plans`.
static inline uint64_t cairn_retain_place(const struct cairn_retain *r, uint32_t index,
                                          uint32_t head)
{
        return (uint64_t)index * r->entry->space.kv_heads + head;
}

#endif
