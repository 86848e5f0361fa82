// The steps of a Retain or Plan, on scorer threads.
//
// What the worker can write to (queries, result) is read once, copied first; nothing is read back
// from a result.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/retain.h"
#include "daemon/scorer.h"
#include "proto/status.h"

uint32_t cairn_retain_items(const struct cairn_retain *r, enum cairn_retain_step step)
{
        const uint32_t heads = r->entry->space.kv_heads;

        switch (step) {
        case CAIRN_RETAIN_LOAD:
        case CAIRN_RETAIN_MERGE:
        case CAIRN_RETAIN_CHOOSE: return heads;
        case CAIRN_RETAIN_WEIGH:
        case CAIRN_RETAIN_SCORE: return heads * r->spans;
        case CAIRN_RETAIN_SPREAD: return r->spread ? 1 : 0;
        case CAIRN_RETAIN_ENDED: return 0;
        case CAIRN_RETAIN_WRITE: // of every layer of the space, for the context's bits
                return heads * (r->plan ? r->layers_count : r->entry->space.layers);
        }
        return 0;
}

uint32_t cairn_retain_slices(const struct cairn_retain *r, enum cairn_retain_step step)
{
        return step == CAIRN_RETAIN_WEIGH || step == CAIRN_RETAIN_SCORE ? r->slices : 1;
}

// ---- load ----

// Bits of one head for all tokens of now: those that the context has, and 1 for what came later.
static void load_bits(const struct cairn_retain *r, const struct cairn_present *present,
                      uint32_t layer, uint32_t head, uint64_t *ret_bits)
{
        size_t words = cairn_choose_words(r->tokens);

        memset(ret_bits, 0xff, words * sizeof(ret_bits[0]));
        if (present) {
                assert(present->end <= r->tokens);
                memcpy(ret_bits, cairn_present_bits(present, r->entry, layer, head),
                       present->words * sizeof(ret_bits[0]));
                if (present->end % 64 != 0)
                        ret_bits[present->words - 1] |= ~0ull << present->end % 64;
        }
        if (r->tokens % 64 != 0)
                ret_bits[words - 1] &= ~(~0ull << r->tokens % 64);
}

static int load(struct cairn_retain *r, const struct cairn_retain_layer *layer, uint32_t h)
{
        struct cairn_retain_head *head = &layer->heads[h];
        const uint64_t k_dim = r->entry->space.k_dim;
        const uint64_t row = r->group * k_dim;
        const float *base = (const float *)(const void *)r->queries.base;
        const uint8_t *from = (const uint8_t *)base;

        from += ((uint64_t)layer->index * r->proxies * r->query_heads + (uint64_t)h * r->group) *
                k_dim * sizeof(float);
        for (uint64_t p = 0; p < r->proxies; p++)
                memcpy(head->queries + p * row, from + p * r->query_heads * k_dim * sizeof(float),
                       row * sizeof(float));
        load_bits(r, r->view.present, r->layers[layer->index], h, head->present);
        head->top = r->counts.top;
        head->source = (struct cairn_retention_pieces){
            .layout = &r->entry->layout,
            .pieces = head->pieces,
            .n_pieces = cairn_context_fill(&r->view, r->layers[layer->index], h, head->pieces)};
        head->request =
            (struct cairn_nacl_request){.queries = head->queries,
                                        .n_proxies = r->proxies,
                                        .group = r->group,
                                        .scale = r->scale,
                                        .causal = r->causal,
                                        .present = r->view.present ? head->present : NULL};
        return cairn_retention_pieces_keys(&head->source, &head->request.keys);
}

// ---- scores ----

// The part of the proxies that a slice is about; how many queries come before it.
static struct cairn_nacl_request slice_of(const struct cairn_retain *r,
                                          const struct cairn_retain_head *head, uint32_t slice,
                                          uint64_t *ret_before)
{
        struct cairn_nacl_request request = head->request;
        uint32_t first = slice * r->slice_proxies;
        uint32_t left = r->proxies - first;

        *ret_before = (uint64_t)first * r->group;
        request.n_proxies = left < r->slice_proxies ? left : r->slice_proxies;
        request.queries += *ret_before * r->entry->space.k_dim;
        if (request.causal)
                request.causal += first;
        return request;
}

static int weigh(const struct cairn_retain *r, const struct cairn_retain_head *head, uint32_t span,
                 uint32_t slice)
{
        uint64_t before;
        struct cairn_nacl_request request = slice_of(r, head, slice, &before);
        void *scratch = cairn_scorer_scratch(cairn_nacl_scratch_bytes(&request));

        if (!scratch)
                return CAIRN_ENOMEM;
        return cairn_nacl_weigh(&request, span, scratch, head->partials + r->spans * before);
}

static void merge(const struct cairn_retain *r, const struct cairn_retain_head *head)
{
        for (uint32_t slice = 0; slice < r->slices; slice++) {
                uint64_t before;
                struct cairn_nacl_request request = slice_of(r, head, slice, &before);

                cairn_nacl_merge(&request, head->partials + r->spans * before, head->lse + before);
        }
}

// Slices of a span follow each other, so that sums do not depend on threads.
static int score(const struct cairn_retain *r, const struct cairn_retain_head *head, uint32_t span,
                 uint32_t slice)
{
        uint64_t before;
        struct cairn_nacl_request request = slice_of(r, head, slice, &before);
        size_t bytes = cairn_nacl_scratch_bytes(&request);
        uint32_t first = span * CAIRN_NACL_SPAN_TOKENS;
        uint32_t count = r->tokens - first;
        uint8_t *scratch = cairn_scorer_scratch(bytes + r->tokens * sizeof(float));
        float *scores = slice == 0 ? head->scores : (float *)(void *)(scratch + bytes);
        int status;

        if (!scratch)
                return CAIRN_ENOMEM;
        if (count > CAIRN_NACL_SPAN_TOKENS)
                count = CAIRN_NACL_SPAN_TOKENS;
        status = cairn_nacl_score(&request, span, head->lse + before, scratch, scores);
        for (uint32_t t = first; status == CAIRN_OK && slice > 0 && t < first + count; t++)
                head->scores[t] += scores[t];
        return status;
}

// ---- choice ----

static struct cairn_choose_request choice_of(const struct cairn_retain *r,
                                             const struct cairn_retain_layer *layer, uint32_t h)
{
        const struct cairn_retain_head *head = &layer->heads[h];

        return (struct cairn_choose_request){
            .n_tokens = r->tokens,
            .scores = head->scores,
            .present = head->request.present,
            .sinks = r->counts.sinks,
            .recent = r->counts.recent,
            .top = head->top,
            .random = r->counts.random,
            .ranges = r->protect,
            .n_ranges = r->protect_count,
            .seed = cairn_choose_seed(r->seed, r->layers[layer->index], h),
        };
}

static int spread(const struct cairn_retain *r, const struct cairn_retain_layer *layer)
{
        const uint32_t heads = r->entry->space.kv_heads;
        struct cairn_choose_request choices[CAIRN_KV_HEADS_MAX] = {0};
        uint32_t scratch[CAIRN_KV_HEADS_MAX];
        uint32_t tops[CAIRN_KV_HEADS_MAX];
        int status;

        for (uint32_t h = 0; h < heads; h++)
                choices[h] = choice_of(r, layer, h);
        status = cairn_choose_spread(choices, heads, r->counts.top, r->even, scratch, tops);
        for (uint32_t h = 0; h < heads && status == CAIRN_OK; h++)
                layer->heads[h].top = tops[h];
        return status;
}

static int choose(const struct cairn_retain *r, const struct cairn_retain_layer *layer, uint32_t h)
{
        struct cairn_choose_request choice = choice_of(r, layer, h);
        uint64_t place = cairn_retain_place(r, layer->index, h);
        size_t bytes = cairn_choose_scratch_bytes(r->tokens);
        struct cairn_choose_result result;
        void *scratch;
        int status;

        if (r->plan && bytes < cairn_plan_scratch_bytes(r->tokens))
                bytes = cairn_plan_scratch_bytes(r->tokens);
        scratch = cairn_scorer_scratch(bytes);
        if (!scratch)
                return CAIRN_ENOMEM;
        if (r->plan)
                return cairn_plan_head(&choice, r->target_mass, scratch, &r->plans[place]);
        status = cairn_choose(&choice, scratch,
                              cairn_present_bits(r->kept, r->entry, r->layers[layer->index], h),
                              &result);
        if (status != CAIRN_OK)
                return status;
        r->outcomes[place] =
            (struct cairn_retain_outcome){.kept = result.kept,
                                          .removed = result.present - result.kept,
                                          .mass = result.mass_all > 0
                                                      ? result.mass_kept / result.mass_all
                                                      : (double)(result.kept == result.present)};
        return CAIRN_OK;
}

// ---- the result ----

static void write_item(const struct cairn_retain *r, uint64_t part, uint64_t index,
                       const void *from, size_t item_bytes)
{
        memcpy(r->result.bulk.base + part + index * item_bytes, from, item_bytes);
}

static void write_plan(const struct cairn_retain *r, uint64_t place)
{
        const struct cairn_plan_head *plan = &r->plans[place];
        const struct cairn_plan_layout *layout = &r->layout.plan;
        float needed = (float)plan->mass_needed;
        float stay = (float)plan->mass_protected;
        float mass[CAIRN_PLAN_POINTS];

        for (uint32_t p = 0; p < CAIRN_PLAN_POINTS; p++)
                mass[p] = (float)plan->mass[p];
        write_item(r, layout->needed, place, &plan->needed, sizeof(plan->needed));
        write_item(r, layout->protected_tokens, place, &plan->protected_tokens,
                   sizeof(plan->protected_tokens));
        write_item(r, layout->mass_needed, place, &needed, sizeof(needed));
        write_item(r, layout->mass_protected, place, &stay, sizeof(stay));
        write_item(r, layout->kept, place, plan->kept, sizeof(plan->kept));
        write_item(r, layout->mass, place, mass, sizeof(mass));
}

static void write_kept(const struct cairn_retain *r, uint64_t place, uint32_t layer, uint32_t h)
{
        const struct cairn_retain_outcome *outcome = &r->outcomes[place];
        const struct cairn_retain_layout *layout = &r->layout.retain;
        const uint64_t *bits = cairn_present_bits(r->kept, r->entry, layer, h);
        uint32_t *positions = (uint32_t *)(void *)(r->result.bulk.base + layout->positions);
        float mass = (float)outcome->mass;
        uint32_t count;

        write_item(r, layout->counts, place, &outcome->kept, sizeof(outcome->kept));
        write_item(r, layout->mass, place, &mass, sizeof(mass));
        count = cairn_choose_positions(bits, r->tokens, positions + outcome->first);
        assert(count == outcome->kept);
        (void)count; // asserted
}

// What stays becomes what is demoted: the others that are there.
static void invert(const struct cairn_retain *r, uint32_t layer, uint32_t h)
{
        uint64_t *bits = cairn_present_bits(r->kept, r->entry, layer, h);
        const uint64_t *present = cairn_present_bits(r->view.present, r->entry, layer, h);
        size_t words = cairn_choose_words(r->tokens);

        for (size_t i = 0; i < words; i++) {
                uint64_t there = ~0ull;

                if (present && i < r->view.present->words) {
                        there = present[i];
                        if (i == r->view.present->words - 1 && r->view.present->end % 64 != 0)
                                there |= ~0ull << r->view.present->end % 64;
                }
                bits[i] = there & ~bits[i];
        }
        if (r->tokens % 64 != 0)
                bits[words - 1] &= ~(~0ull << r->tokens % 64);
}

// Item of a layer that was asked for: its part of the result. Others: their bits stay as they are.
static void write_result(const struct cairn_retain *r, uint32_t item)
{
        const uint32_t heads = r->entry->space.kv_heads;
        uint32_t h = item % heads;
        uint32_t layer = item / heads;
        uint32_t index = 0;

        if (r->plan) {
                write_plan(r, item);
                return;
        }
        while (index < r->layers_count && r->layers[index] != layer)
                index++;
        if (index == r->layers_count) {
                load_bits(r, r->drop || !r->view.demoted ? r->view.present : r->view.demoted, layer,
                          h, cairn_present_bits(r->kept, r->entry, layer, h));
                return;
        }
        write_kept(r, cairn_retain_place(r, index, h), layer, h);
        if (!r->drop)
                invert(r, layer, h);
}

int cairn_retain_run(struct cairn_retain *r, const struct cairn_retain_worker *worker)
{
        struct cairn_retain_layer *layer = worker->layer;
        uint32_t item = worker->item;

        switch (layer->step) {
        case CAIRN_RETAIN_LOAD: return load(r, layer, item);
        case CAIRN_RETAIN_WEIGH:
                return weigh(r, &layer->heads[item / r->spans], item % r->spans, worker->slice);
        case CAIRN_RETAIN_MERGE: merge(r, &layer->heads[item]); return CAIRN_OK;
        case CAIRN_RETAIN_SCORE:
                return score(r, &layer->heads[item / r->spans], item % r->spans, worker->slice);
        case CAIRN_RETAIN_SPREAD: return spread(r, layer);
        case CAIRN_RETAIN_CHOOSE: return choose(r, layer, item);
        case CAIRN_RETAIN_ENDED: break;
        case CAIRN_RETAIN_WRITE: write_result(r, item); return CAIRN_OK;
        }
        return CAIRN_EINTERNAL;
}
