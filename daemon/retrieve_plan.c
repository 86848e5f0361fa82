// What a Retrieve or Attend asks for, checked.
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "daemon/connection.h"
#include "daemon/retrieve.h"
#include "daemon/server.h"
#include "proto/status.h"

// Contexts: one for all pairs or one a pair, all of one space.
static bool plan_contexts(struct cairn_retrieve *r, const Cairn__RetrieveRequest *message)
{
        size_t pairs = message->n_layers;

        if (pairs == 0 || pairs > CAIRN_PAIRS_MAX ||
            (message->n_contexts != 1 && message->n_contexts != pairs)) {
                cairn_request_fail(
                    r->request, CAIRN_EINVAL,
                    "pairs: %zu layers and %zu contexts; give 1 to %d layers, and one "
                    "context for all or one a layer",
                    pairs, message->n_contexts, CAIRN_PAIRS_MAX);
                return false;
        }
        r->views = calloc(message->n_contexts, sizeof(r->views[0]));
        if (!r->views) {
                cairn_request_fail(r->request, CAIRN_ENOMEM, NULL);
                return false;
        }
        for (size_t i = 0; i < message->n_contexts; i++) {
                struct cairn_context *context =
                    cairn_serve_context(r->request, message->contexts[i]);

                if (!context)
                        return false;
                if (r->entry && r->entry != context->entry) {
                        cairn_request_fail_at(
                            r->request, CAIRN_EMISMATCH, (uint32_t)i,
                            "contexts of different spaces; send one request each");
                        return false;
                }
                r->entry = context->entry;
                if (message->demoted && !context->demoted) {
                        cairn_request_fail_at(r->request, CAIRN_EINVAL, (uint32_t)i,
                                              "demoted: no Retain has demoted rows of this "
                                              "context; send one first, or ask for all rows");
                        return false;
                }
                cairn_context_ref(context);
                cairn_context_view(context, &r->views[r->views_count++]);
        }
        for (size_t i = 0; i < pairs; i++) {
                if (message->layers[i] < r->entry->space.layers)
                        continue;
                cairn_request_fail_at(r->request, CAIRN_EINVAL, (uint32_t)i,
                                      "layer %u; the space has %u", message->layers[i],
                                      r->entry->space.layers);
                return false;
        }
        return true;
}

static bool plan_shape(struct cairn_retrieve *r, const Cairn__RetrieveRequest *message)
{
        const struct cairn_space *space = &r->entry->space;
        uint32_t steps = message->steps ? message->steps : 1;
        uint32_t heads = message->query_heads;
        bool attend = r->request->kind == CAIRN_KIND_ATTEND;

        if (steps > CAIRN_STEPS_MAX || heads == 0 || heads > CAIRN_QUERY_HEADS_MAX ||
            heads % space->kv_heads != 0 || heads / space->kv_heads > CAIRN_GROUP_MAX) {
                cairn_request_fail(
                    r->request, CAIRN_EINVAL,
                    "%u query heads, %u steps; query heads are a multiple of the "
                    "space's %u KV heads, at most %d a KV head, and steps at most %d",
                    heads, steps, space->kv_heads, CAIRN_GROUP_MAX, CAIRN_STEPS_MAX);
                return false;
        }
        if (!isfinite(message->scale) || message->scale < 0 ||
            !(message->rerank_factor == 0 ||
              (message->rerank_factor >= 1 && message->rerank_factor <= 64))) {
                cairn_request_fail(r->request, CAIRN_EINVAL,
                                   "scale or rerank_factor; scale is positive (0: 1/sqrt(K dim)), "
                                   "rerank_factor 1 to 64 (0: the default)");
                return false;
        }
        r->group = heads / space->kv_heads;
        r->all = attend && message->all;
        r->scale = message->scale > 0 ? message->scale : 1.0f / sqrtf((float)space->k_dim);
        r->shape = (struct cairn_result_shape){
            .pairs = (uint32_t)message->n_layers,
            .steps = steps,
            .kv_heads = space->kv_heads,
            .query_heads = heads,
            .k_dim = space->k_dim,
            .v_dim = space->v_dim,
            .v_prefix = space->v_prefix,
            .row_dtype = message->row_dtype ? (uint32_t)message->row_dtype : space->dtype,
            .attend = attend,
            .rest = message->rest && !r->all,
            .rows = message->rows && !attend,
        };
        if (cairn_dtype_bytes(r->shape.row_dtype) == 0) {
                cairn_request_fail(r->request, CAIRN_EINVAL, "row_dtype %u is none",
                                   r->shape.row_dtype);
                return false;
        }
        return true;
}

static bool is_share(double x)
{
        return x > 0 && x <= 1; // false for NaN
}

static bool budget_fails(struct cairn_retrieve *r)
{
        cairn_request_fail(
            r->request, CAIRN_EINVAL,
            "budget: give one of count, share, threshold and mass (the last three "
            "above 0 and at most 1), at most %d rows, and with threshold or mass a cap",
            CAIRN_ROWS_MAX);
        return false;
}

static bool plan_budget(struct cairn_retrieve *r, const Cairn__RetrieveRequest *message)
{
        static const Cairn__Budget nothing = CAIRN__BUDGET__INIT;
        const Cairn__Budget *budget = message->budget ? message->budget : &nothing;
        bool share = budget->share != 0;
        bool threshold = budget->threshold != 0;
        bool mass = budget->mass != 0 || budget->by_mass;
        uint64_t tokens = 0;
        uint64_t k = budget->count;

        r->budget = CAIRN_LANDMARK_COUNT;
        if (r->all) {
                r->shape.k_max = 0;
                return true;
        }
        if ((budget->count != 0) + share + threshold + mass > 1)
                return budget_fails(r);
        for (uint32_t i = 0; i < r->views_count; i++)
                if (r->views[i].tokens > tokens)
                        tokens = r->views[i].tokens;
        if (share || threshold || mass) {
                double target = share       ? budget->share
                                : threshold ? budget->threshold
                                            : budget->mass;

                if (!is_share(target) || (!share && budget->cap == 0))
                        return budget_fails(r);
                r->target = (float)target;
                r->budget = share       ? CAIRN_LANDMARK_SHARE
                            : threshold ? CAIRN_LANDMARK_THRESHOLD
                                        : CAIRN_LANDMARK_MASS;
                k = share ? (uint64_t)ceil((double)r->target * (double)tokens) : budget->cap;
                if (share && budget->cap != 0 && k > budget->cap)
                        k = budget->cap;
        }
        if (k > CAIRN_ROWS_MAX)
                return budget_fails(r);
        r->shape.k_max = (uint32_t)k;
        return true;
}

static bool plan_excluded(struct cairn_retrieve *r, const Cairn__RetrieveRequest *message)
{
        uint64_t last = 0;

        if (message->n_excluded % 2 != 0 || message->n_excluded / 2 > CAIRN_EXCLUDED_MAX) {
                cairn_request_fail(r->request, CAIRN_EINVAL,
                                   "excluded: %zu numbers; give begin and end of at most %d ranges",
                                   message->n_excluded, CAIRN_EXCLUDED_MAX);
                return false;
        }
        for (size_t i = 0; i < message->n_excluded; i += 2) {
                uint64_t first = message->excluded[i];
                uint64_t end = message->excluded[i + 1];

                if (first < last || end < first) {
                        cairn_request_fail_at(r->request, CAIRN_EINVAL, (uint32_t)(i / 2),
                                              "excluded: ranges must ascend and not overlap");
                        return false;
                }
                last = end;
                if (first == end || first >= CAIRN_CONTEXT_TOKENS_MAX)
                        continue; // names no token
                if (end > CAIRN_CONTEXT_TOKENS_MAX)
                        end = CAIRN_CONTEXT_TOKENS_MAX;
                r->excluded[r->excluded_count++] =
                    (struct cairn_landmark_range){(uint32_t)first, (uint32_t)end};
        }
        return true;
}

static bool plan_landmark(struct cairn_retrieve *r, const Cairn__RetrieveRequest *message)
{
        switch (message->landmark) {
        case CAIRN__LANDMARK__LANDMARK_TOKEN: r->kind = CAIRN_LANDMARK_TOKENS; break;
        case CAIRN__LANDMARK__LANDMARK_CHUNK_MEAN: r->kind = CAIRN_LANDMARK_CHUNK_MEAN; break;
        case CAIRN__LANDMARK__LANDMARK_CHUNK_MINMAX: r->kind = CAIRN_LANDMARK_CHUNK_BOUND; break;
        case CAIRN__LANDMARK__LANDMARK_EXACT:
                r->kind = CAIRN_LANDMARK_TOKENS;
                r->exact = true;
                break;
        default:
                cairn_request_fail(r->request, CAIRN_EINVAL, "landmark %d is none",
                                   (int)message->landmark);
                return false;
        }
        if (r->kind != CAIRN_LANDMARK_TOKENS &&
            (message->chunk_tokens < 2 || message->chunk_tokens > 16)) {
                cairn_request_fail(r->request, CAIRN_EINVAL, "chunk_tokens: %u; it may be 2 to 16",
                                   message->chunk_tokens);
                return false;
        }
        if (r->exact && !r->entry->needs_raw) {
                cairn_request_fail(
                    r->request, CAIRN_EUNSUPPORTED,
                    "exact search needs raw rows in RAM; open the space with k_codec "
                    "and v_codec raw");
                return false;
        }
        return true;
}

bool cairn_retrieve_plan(struct cairn_retrieve *r)
{
        const Cairn__RetrieveRequest *message = r->request->message;
        uint64_t heads;

        if (!plan_contexts(r, message) || !plan_shape(r, message) || !plan_budget(r, message) ||
            !plan_excluded(r, message) || !plan_landmark(r, message))
                return false;
        if (cairn_result_layout(&r->shape, &r->layout) != CAIRN_OK) {
                cairn_request_fail(r->request, CAIRN_EINVAL, "the result would be too large");
                return false;
        }
        heads = (uint64_t)r->shape.pairs * r->shape.steps * r->shape.query_heads;
        if (!cairn_serve_bulk(r->request, message->queries, NULL, 0, 1,
                              heads * r->shape.k_dim * sizeof(float), r->request->payload,
                              r->request->payload_bytes, &r->queries) ||
            (message->held_lse &&
             !cairn_serve_bulk(r->request, message->held_lse, NULL, 0, 1, heads * sizeof(float),
                               r->request->payload, r->request->payload_bytes, &r->held_lse)) ||
            !cairn_serve_result(r->request, message->result, r->layout.total_bytes, &r->result))
                return false;
        r->tasks = (uint64_t)r->shape.pairs * r->shape.steps * r->shape.kv_heads;
        return true;
}
