// What a Retain or Plan asks for, checked.
#include <math.h>
#include <stdlib.h>

#include "daemon/connection.h"
#include "daemon/retain.h"
#include "daemon/server.h"
#include "proto/status.h"

_Static_assert((int)CAIRN_CURVE_POINTS == (int)CAIRN_PLAN_POINTS &&
                   (int)CAIRN_PROXIES_MAX == (int)CAIRN_NACL_PROXIES_MAX,
               "the wire and the policy speak of the same numbers");

enum {
        SLICE_WORK = 512 * 1024 // tokens times queries of a piece of work: some 10 ms
};
#define TARGET_MASS_DEFAULT 0.99

// The two messages, seen as one.
struct question {
        const Cairn__Proxies *proxies;
        const Cairn__Shares *shares;
        const uint64_t *ranges;
        size_t ranges_count;
        const Cairn__Region *result;
};

static struct question question_of(const struct cairn_retain *r)
{
        static const Cairn__Proxies nothing = CAIRN__PROXIES__INIT;
        struct question q;

        if (r->plan) {
                const Cairn__PlanRequest *plan = r->request->message;

                q = (struct question){plan->proxies, plan->shares, plan->protected_ranges,
                                      plan->n_protected_ranges, plan->result};
        } else {
                const Cairn__RetainRequest *retain = r->request->message;

                q = (struct question){retain->proxies, retain->shares, retain->protected_ranges,
                                      retain->n_protected_ranges, retain->result};
        }
        if (!q.proxies)
                q.proxies = &nothing;
        return q;
}

static bool check_context(struct cairn_retain *r)
{
        const Cairn__RetainRequest *retain = r->request->message;
        const Cairn__PlanRequest *plan = r->request->message;
        struct cairn_context *context =
            cairn_serve_context(r->request, r->plan ? plan->context : retain->context);

        if (!context)
                return false;
        r->context = context;
        r->entry = context->entry;
        cairn_context_ref(context);
        cairn_context_view(context, &r->view);
        if (r->view.tokens == 0) {
                cairn_request_fail(r->request, CAIRN_EINVAL,
                                   "the context holds no tokens; append some, or open it with "
                                   "the keys of stored blocks");
                return false;
        }
        r->tokens = (uint32_t)r->view.tokens;
        if (r->plan)
                return true;
        if (context->retaining) {
                cairn_request_fail(r->request, CAIRN_EAGAIN,
                                   "another Retain of this context is under way; retry when it has "
                                   "ended");
                return false;
        }
        r->retains = context->retaining = true;
        r->drop = retain->drop;
        return true;
}

static bool check_layers(struct cairn_retain *r, const Cairn__Proxies *proxies)
{
        uint32_t count = r->entry->space.layers;

        if (proxies->n_layers > count) {
                cairn_request_fail(r->request, CAIRN_EINVAL, "layers: %zu of a space that has %u",
                                   proxies->n_layers, count);
                return false;
        }
        for (size_t i = 0; i < proxies->n_layers; i++) {
                uint32_t layer = proxies->layers[i];

                if (layer < count && (i == 0 || layer > proxies->layers[i - 1])) {
                        r->layers[i] = layer;
                        continue;
                }
                cairn_request_fail_at(r->request, CAIRN_EINVAL, (uint32_t)i,
                                      "layers[%zu] is %u; they must ascend, below %u", i, layer,
                                      count);
                return false;
        }
        r->layers_count = (uint32_t)proxies->n_layers;
        if (proxies->n_layers > 0)
                return true;
        r->layers_count = count;
        for (uint32_t i = 0; i < count; i++)
                r->layers[i] = i;
        return true;
}

static bool check_heads(struct cairn_retain *r, const Cairn__Proxies *proxies)
{
        const struct cairn_space *space = &r->entry->space;
        uint32_t heads = proxies->query_heads;

        if (heads == 0 || heads > CAIRN_QUERY_HEADS_MAX || heads % space->kv_heads != 0 ||
            heads / space->kv_heads > CAIRN_GROUP_MAX) {
                cairn_request_fail(r->request, CAIRN_EINVAL,
                                   "%u query heads; they are a multiple of the space's %u KV "
                                   "heads, at most %d a KV head",
                                   heads, space->kv_heads, CAIRN_GROUP_MAX);
                return false;
        }
        if (!isfinite(proxies->scale) || proxies->scale < 0) {
                cairn_request_fail(r->request, CAIRN_EINVAL,
                                   "scale is positive (0: 1/sqrt(K dim))");
                return false;
        }
        r->query_heads = heads;
        r->group = heads / space->kv_heads;
        r->scale = proxies->scale > 0 ? proxies->scale : 1.0f / sqrtf((float)space->k_dim);
        return true;
}

// Ranges of a message, ascending and below `tokens`; empty ones are left out. False: answered.
static bool check_ranges(struct cairn_retain *r, const char *what, const uint64_t *numbers,
                         size_t count, struct cairn_landmark_range *ret_ranges, uint32_t *ret_count)
{
        uint64_t last = 0;

        *ret_count = 0;
        if (count % 2 != 0 || count / 2 > CAIRN_PROTECTED_MAX) {
                cairn_request_fail(r->request, CAIRN_EINVAL,
                                   "%s: %zu numbers; give begin and end of at most %d ranges", what,
                                   count, CAIRN_PROTECTED_MAX);
                return false;
        }
        for (size_t i = 0; i < count; i += 2) {
                uint64_t first = numbers[i];
                uint64_t end = numbers[i + 1];

                if (first < last || end < first || end > r->tokens) {
                        cairn_request_fail_at(r->request, CAIRN_EINVAL, (uint32_t)(i / 2),
                                              "%s: ranges must ascend without overlap, and end "
                                              "at most at token %u",
                                              what, r->tokens);
                        return false;
                }
                last = end;
                if (first < end)
                        ret_ranges[(*ret_count)++] =
                            (struct cairn_landmark_range){(uint32_t)first, (uint32_t)end};
        }
        return true;
}

static bool check_shares(struct cairn_retain *r, const Cairn__Shares *shares)
{
        struct cairn_nacl_options options;

        cairn_nacl_defaults(&options);
        if (shares)
                options = (struct cairn_nacl_options){.proxy_ratio = shares->proxy_ratio,
                                                      .proxy_keep = shares->proxy_keep,
                                                      .random_keep = shares->random_keep,
                                                      .protect = shares->protect,
                                                      .sinks = shares->sinks};
        else if (!r->plan)
                (void)cairn_tuning_ratios(r->request->server, r->entry, &options); // or the paper's
        if (cairn_nacl_check(&options) != CAIRN_OK) {
                cairn_request_fail(r->request, CAIRN_EINVAL,
                                   "shares: each is 0 to 1, and what is kept (proxy_keep, "
                                   "random_keep, protect) at most 1 together");
                return false;
        }
        cairn_nacl_counts(&options, r->tokens, &r->counts);
        return true;
}

// How many proxies there are, and what each sees.
static bool check_proxies(struct cairn_retain *r, const Cairn__Proxies *proxies)
{
        struct cairn_landmark_range ranges[CAIRN_PROTECTED_MAX];
        uint64_t total = 0;
        uint32_t count;

        if (!check_ranges(r, "proxies", proxies->positions, proxies->n_positions, ranges, &count))
                return false;
        if (count == 0) {
                count = 1;
                ranges[0] = (struct cairn_landmark_range){r->tokens - r->counts.proxies, r->tokens};
        }
        for (uint32_t i = 0; i < count; i++)
                total += ranges[i].end - ranges[i].first;
        if (total > CAIRN_PROXIES_MAX) {
                cairn_request_fail(r->request, CAIRN_EINVAL, "%llu proxies; at most %d",
                                   (unsigned long long)total, CAIRN_PROXIES_MAX);
                return false;
        }
        r->proxies = (uint32_t)total;
        if (!proxies->causal)
                return true;
        r->causal = malloc(total * sizeof(r->causal[0]));
        if (!r->causal) {
                cairn_request_fail(r->request, CAIRN_ENOMEM, NULL);
                return false;
        }
        for (uint32_t i = 0, at = 0; i < count; i++)
                for (uint32_t p = ranges[i].first; p < ranges[i].end; p++)
                        r->causal[at++] = p + 1;
        return true;
}

static bool check_mode(struct cairn_retain *r)
{
        const Cairn__RetainRequest *retain = r->request->message;
        const Cairn__PlanRequest *plan = r->request->message;

        if (!r->plan) {
                r->spread = retain->spread;
                r->even = retain->even;
                r->seed = retain->seed;
                if (r->even >= 0 && r->even <= 1) // false for NaN
                        return true;
                cairn_request_fail(r->request, CAIRN_EINVAL, "even is a share, 0 to 1");
                return false;
        }
        r->target_mass = plan->target_mass == 0 ? TARGET_MASS_DEFAULT : plan->target_mass;
        if (!(r->target_mass > 0 && r->target_mass <= 1)) {
                cairn_request_fail(r->request, CAIRN_EINVAL,
                                   "target_mass is above 0 and at most 1 (0: %.2f)",
                                   TARGET_MASS_DEFAULT);
                return false;
        }
        for (size_t i = 0; i < plan->n_budgets; i++) {
                if (plan->n_budgets <= CAIRN_BUDGETS_MAX && plan->budgets[i] > 0 &&
                    plan->budgets[i] <= 1)
                        continue;
                cairn_request_fail_at(r->request, CAIRN_EINVAL, (uint32_t)i,
                                      "budgets: up to %d shares of the tokens, each above 0 and "
                                      "at most 1",
                                      CAIRN_BUDGETS_MAX);
                return false;
        }
        return true;
}

// Room for the result, at its largest.
static bool check_result(struct cairn_retain *r, const Cairn__Region *region)
{
        const uint32_t heads = r->entry->space.kv_heads;
        uint64_t stay =
            (uint64_t)r->counts.sinks + r->counts.recent + r->counts.top + r->counts.random;
        uint64_t bytes;

        if (r->plan) {
                (void)cairn_plan_layout(r->layers_count, heads, &r->layout.plan); // small enough
                bytes = r->layout.plan.total_bytes;
        } else {
                for (uint32_t i = 0; i < r->protect_count; i++)
                        stay += r->protect[i].end - r->protect[i].first;
                r->kept_max = stay < r->tokens ? stay : r->tokens;
                (void)cairn_retain_layout(r->layers_count, heads,
                                          r->kept_max * r->layers_count * heads,
                                          &r->layout.retain); // small enough
                bytes = r->layout.retain.total_bytes;
        }
        return cairn_serve_result(r->request, region, bytes, &r->result);
}

bool cairn_retain_check(struct cairn_retain *r)
{
        struct question q = question_of(r);
        uint64_t span_tokens;
        uint64_t bytes;

        if (!check_context(r) || !check_layers(r, q.proxies) || !check_heads(r, q.proxies) ||
            !check_shares(r, q.shares) || !check_proxies(r, q.proxies) ||
            !check_ranges(r, "protected_ranges", q.ranges, q.ranges_count, r->protect,
                          &r->protect_count) ||
            !check_mode(r))
                return false;
        bytes = (uint64_t)r->layers_count * r->proxies * r->query_heads * r->entry->space.k_dim *
                sizeof(float);
        if (!cairn_serve_bulk(r->request, q.proxies->queries, NULL, 0, 1, bytes,
                              r->request->payload, r->request->payload_bytes, &r->queries) ||
            !check_result(r, q.result))
                return false;
        span_tokens = r->tokens < CAIRN_NACL_SPAN_TOKENS ? r->tokens : CAIRN_NACL_SPAN_TOKENS;
        r->slice_proxies = (uint32_t)(SLICE_WORK / (span_tokens * r->group));
        if (r->slice_proxies == 0)
                r->slice_proxies = 1;
        if (r->slice_proxies > r->proxies)
                r->slice_proxies = r->proxies;
        r->slices = (r->proxies - 1) / r->slice_proxies + 1;
        r->spans = (r->tokens - 1) / CAIRN_NACL_SPAN_TOKENS + 1;
        return true;
}
