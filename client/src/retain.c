// Retain and Plan: what is asked, where the answer goes, and whether it is one.
#include "client/src/client.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)CAIRN_PLAN_CURVE_POINTS == (int)CAIRN_CURVE_POINTS &&
                   (int)CAIRN_BUDGETS_MAX <= (int)CAIRN_PLAN_CURVE_POINTS,
               "points and budgets of the wire");

void cairn_retain_args_init(struct cairn_retain_args *ret_args)
{
        *ret_args = (struct cairn_retain_args){
            .proxy_keep = 0.12, .random_keep = 0.07, .protect = 0.01, .sinks = 4};
}

// ---- arguments ----

static int check(struct cairn_client *client, const struct cairn_retain_args *args)
{
        if (!args->context || !args->queries || args->proxies_count == 0 ||
            args->proxies_count > CAIRN_PROXIES_MAX || args->query_heads == 0 ||
            args->query_heads > CAIRN_QUERY_HEADS_MAX)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "retention: a context, and queries of %u proxies and %u "
                                         "heads; up to %d and %d",
                                         args->proxies_count, args->query_heads, CAIRN_PROXIES_MAX,
                                         CAIRN_QUERY_HEADS_MAX);
        if (args->layers_count > CAIRN_LAYERS_MAX || args->proxies_ranges > CAIRN_PROTECTED_MAX ||
            args->protected_count > CAIRN_PROTECTED_MAX ||
            (args->protected_count > 0 && !args->protected_ranges))
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "retention: %zu layers, %zu ranges of proxies, %zu "
                                         "protected; up to %d, %d and %d",
                                         args->layers_count, args->proxies_ranges,
                                         args->protected_count, CAIRN_LAYERS_MAX,
                                         CAIRN_PROTECTED_MAX, CAIRN_PROTECTED_MAX);
        if (!args->proxies && args->proxies_count > args->context->tokens)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "retention: %u proxies of a context of %llu tokens",
                                         args->proxies_count,
                                         (unsigned long long)args->context->tokens);
        return CAIRN_OK;
}

static const struct cairn_space_config *config_of(const struct cairn_client *client,
                                                  const struct cairn_retain_args *args)
{
        uint32_t space = args->context ? args->context->space : 0;

        return space > 0 && space <= client->spaces_count ? &client->spaces[space - 1].config
                                                          : NULL;
}

static uint32_t layers_of(const struct cairn_space_config *config,
                          const struct cairn_retain_args *args)
{
        return args->layers_count > 0 ? (uint32_t)args->layers_count : config->layers;
}

// Most tokens a head that stay, on average: never less than the daemon finds.
static uint64_t kept_max(const struct cairn_retain_args *args)
{
        double shares = args->proxy_keep + args->random_keep + args->protect;
        double tokens = (double)args->context->tokens;
        double kept = shares * tokens * (1 + 1e-9) + 4;

        for (size_t i = 0; args->protected_ranges && i < args->protected_count; i++)
                kept +=
                    (double)args->protected_ranges[i].end - (double)args->protected_ranges[i].begin;
        return kept >= 0 && kept < tokens ? (uint64_t)kept : args->context->tokens; // NaN: all
}

uint64_t cairn_retain_bytes(const struct cairn_client *client, const struct cairn_retain_args *args)
{
        const struct cairn_space_config *config = config_of(client, args);
        struct cairn_retain_layout layout;
        uint32_t layers;

        if (!config)
                return 0;
        layers = layers_of(config, args);
        if (cairn_retain_layout(layers, config->kv_heads,
                                kept_max(args) * layers * config->kv_heads, &layout) != CAIRN_OK)
                return 0;
        return layout.total_bytes;
}

uint64_t cairn_plan_bytes(const struct cairn_client *client, const struct cairn_plan_args *args)
{
        const struct cairn_space_config *config = config_of(client, &args->retain);
        struct cairn_plan_layout layout;

        if (!config || cairn_plan_layout(layers_of(config, &args->retain), config->kv_heads,
                                         &layout) != CAIRN_OK)
                return 0;
        return layout.total_bytes;
}

// ---- the answers ----

// The result's bytes as they came: `bytes` of them, or NULL if they cannot be that many.
static const uint8_t *came(const struct cairn_client_request *request, uint64_t bytes,
                           const uint8_t *payload, size_t payload_bytes)
{
        if (bytes > request->outputs.retain.result_bytes ||
            (request->outputs.retain.inlined && payload_bytes != bytes))
                return NULL;
        return request->outputs.retain.inlined ? payload : request->outputs.retain.result;
}

static int decode_retain(struct cairn_client *client, struct cairn_client_request *request,
                         const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__RetainReply *reply = message;
        uint32_t layers = request->outputs.retain.layers;
        uint32_t heads = request->outputs.retain.kv_heads;
        uint8_t *result = request->outputs.retain.result;
        struct cairn_retain_layout layout;
        const uint8_t *from;
        uint64_t kept = 0;

        (void)client;
        if (reply->kept > (uint64_t)layers * heads * CAIRN_CONTEXT_TOKENS_MAX ||
            cairn_retain_layout(layers, heads, reply->kept, &layout) != CAIRN_OK ||
            reply->result_bytes != layout.total_bytes)
                return CAIRN_EPROTO;
        from = came(request, layout.total_bytes, payload, payload_bytes);
        if (!from)
                return CAIRN_EPROTO;
        for (uint64_t i = 0; i < (uint64_t)layers * heads; i++) {
                uint32_t count;

                memcpy(&count, from + layout.counts + 4 * i, sizeof(count));
                kept += count;
        }
        if (kept != reply->kept)
                return CAIRN_EPROTO;
        if (from != result)
                memcpy(result, from, layout.total_bytes);
        *request->outputs.retain.ret_retained = (struct cairn_retained){
            .layers = layers,
            .kv_heads = heads,
            .counts = (const void *)(result + layout.counts),
            .mass = (const void *)(result + layout.mass),
            .positions = (const void *)(result + layout.positions),
            .kept = kept,
            .removed = reply->removed,
            .mass_mean = reply->mass,
            .mass_lowest = reply->mass_lowest,
            .lowest_layer = reply->lowest_layer,
            .lowest_head = reply->lowest_head,
            .result_bytes = layout.total_bytes,
            .kernel_ns = reply->kernel_ns,
        };
        return CAIRN_OK;
}

static struct cairn_plan_point point_of(const Cairn__PlanPoint *point)
{
        return (struct cairn_plan_point){.share = point->share,
                                         .mass = point->mass,
                                         .mass_lowest = point->mass_lowest,
                                         .lowest_layer = point->lowest_layer,
                                         .lowest_head = point->lowest_head};
}

static int decode_plan(struct cairn_client *client, struct cairn_client_request *request,
                       const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__PlanReply *reply = message;
        uint32_t layers = request->outputs.retain.layers;
        uint32_t heads = request->outputs.retain.kv_heads;
        uint8_t *result = request->outputs.retain.result;
        struct cairn_plan *plan = request->outputs.retain.ret_plan;
        struct cairn_plan_layout layout;
        const uint8_t *from;

        (void)client;
        if (cairn_plan_layout(layers, heads, &layout) != CAIRN_OK ||
            reply->result_bytes != layout.total_bytes || !reply->needed ||
            reply->n_curve != CAIRN_CURVE_POINTS ||
            reply->n_budgets != request->outputs.retain.budgets_count)
                return CAIRN_EPROTO;
        from = came(request, layout.total_bytes, payload, payload_bytes);
        if (!from)
                return CAIRN_EPROTO;
        if (from != result)
                memcpy(result, from, layout.total_bytes);
        *plan = (struct cairn_plan){
            .layers = layers,
            .kv_heads = heads,
            .tokens = reply->tokens,
            .needed = point_of(reply->needed),
            .head_needed = (const void *)(result + layout.needed),
            .head_protected = (const void *)(result + layout.protected_tokens),
            .head_mass_needed = (const void *)(result + layout.mass_needed),
            .head_mass_protected = (const void *)(result + layout.mass_protected),
            .head_kept = (const void *)(result + layout.kept),
            .head_mass = (const void *)(result + layout.mass),
            .result_bytes = layout.total_bytes,
            .kernel_ns = reply->kernel_ns,
        };
        for (size_t i = 0; i < reply->n_curve; i++)
                plan->curve[i] = point_of(reply->curve[i]);
        for (size_t i = 0; i < reply->n_budgets; i++)
                plan->budgets[i] = point_of(reply->budgets[i]);
        return CAIRN_OK;
}

// ---- the questions ----

// Both messages and what they point at.
struct question {
        Cairn__RetainRequest retain;
        Cairn__PlanRequest plan;
        Cairn__Proxies proxies;
        Cairn__Shares shares;
        Cairn__Region queries;
        Cairn__Region result;
        uint64_t positions[2 * CAIRN_PROTECTED_MAX];
        uint64_t protect[2 * CAIRN_PROTECTED_MAX];
};

static size_t fill_ranges(const struct cairn_range *ranges, size_t count, uint64_t *ret_numbers)
{
        for (size_t i = 0; i < count; i++) {
                ret_numbers[2 * i] = ranges[i].begin;
                ret_numbers[2 * i + 1] = ranges[i].end;
        }
        return 2 * count;
}

static void fill_question(const struct cairn_retain_args *args, struct question *q)
{
        const struct cairn_range last = {args->context->tokens - args->proxies_count,
                                         args->context->tokens};

        cairn__retain_request__init(&q->retain);
        cairn__plan_request__init(&q->plan);
        cairn__proxies__init(&q->proxies);
        cairn__shares__init(&q->shares);
        q->proxies.n_layers = args->layers_count;
        q->proxies.layers = (uint32_t *)args->layers; // packed, not written to
        q->proxies.n_positions =
            args->proxies ? fill_ranges(args->proxies, args->proxies_ranges, q->positions)
                          : fill_ranges(&last, 1, q->positions);
        q->proxies.positions = q->positions;
        q->proxies.query_heads = args->query_heads;
        q->proxies.queries = &q->queries;
        q->proxies.scale = args->scale;
        q->proxies.causal = args->causal;
        q->shares.proxy_keep = args->proxy_keep;
        q->shares.random_keep = args->random_keep;
        q->shares.protect = args->protect;
        q->shares.sinks = args->sinks;
        q->plan.context = q->retain.context = args->context->id;
        q->plan.proxies = q->retain.proxies = &q->proxies;
        q->plan.shares = q->retain.shares = &q->shares;
        q->plan.n_protected_ranges = q->retain.n_protected_ranges =
            fill_ranges(args->protected_ranges, args->protected_count, q->protect);
        q->plan.protected_ranges = q->retain.protected_ranges = q->protect;
        q->plan.result = q->retain.result = &q->result;
        q->retain.spread = args->spread;
        q->retain.even = args->even;
        q->retain.seed = args->seed;
        q->retain.drop = args->drop;
}

struct asking {
        const struct cairn_retain_args *args;
        const struct cairn_plan_args *plan; // NULL: a Retain
        struct question *question;
        uint64_t bytes_max;
        struct cairn_client_submission submission; // kind, decode and outputs are set
};

static int ask_with(struct cairn_client *client, struct cairn_call *call, struct asking *a,
                    void *result, uint64_t result_bytes)
{
        const struct cairn_retain_args *args = a->args;
        const struct cairn_space_config *config = config_of(client, args);
        struct cairn_arena *arena = cairn_client_arena_of(client, result, result_bytes);
        uint64_t bytes = (uint64_t)layers_of(config, args) * args->proxies_count *
                         args->query_heads * config->k_dim * sizeof(float);
        struct cairn_client_source source;
        int status = cairn_client_source_begin(client, call, args->queries, bytes, &source);

        if (status == CAIRN_OK)
                status = cairn_client_context_check(client, args->context);
        if (status != CAIRN_OK)
                return status;
        fill_question(args, a->question);
        if (a->plan) {
                a->question->plan.target_mass = a->plan->target_mass;
                a->question->plan.n_budgets = a->plan->budgets_count;
                a->question->plan.budgets = (double *)a->plan->budgets; // packed, not written to
        }
        cairn_client_region_set(&a->question->queries, source.arena, source.at, bytes);
        cairn_client_region_set(&a->question->result, arena, result, result_bytes);
        a->submission.message =
            a->plan ? (const void *)&a->question->plan : (const void *)&a->question->retain;
        a->submission.payload = &source.piece;
        a->submission.payload_count = source.arena ? 0 : 1;
        a->submission.arenas[0] = source.arena;
        a->submission.arenas[1] = arena;
        a->submission.outputs.retain.layers = layers_of(config, args);
        a->submission.outputs.retain.kv_heads = config->kv_heads;
        a->submission.outputs.retain.result = result;
        a->submission.outputs.retain.result_bytes = result_bytes;
        a->submission.outputs.retain.inlined = !arena;
        status = cairn_client_submit(client, call, &a->submission);
        cairn_client_source_end(client, &source, status);
        return status;
}

static int ask(struct cairn_client *client, struct cairn_call *call, struct asking *a, void *result,
               uint64_t result_bytes)
{
        bool own = !result;
        int status = check(client, a->args);

        if (status == CAIRN_OK && a->bytes_max == 0)
                status = cairn_client_fail(client, CAIRN_EINVAL,
                                           "retention: a context of a space that is open, please");
        if (status == CAIRN_OK && own && call)
                status = cairn_client_fail(client, CAIRN_EINVAL,
                                           "an asynchronous call needs memory for its result");
        if (status == CAIRN_OK)
                status = cairn_client_ready(client);
        if (status == CAIRN_OK)
                status = cairn_client_context_check(client, a->args->context);
        if (status == CAIRN_OK && own)
                status = cairn_client_own_result(client, a->bytes_max, &result, &result_bytes);
        if (status != CAIRN_OK)
                return status;
        a->question = malloc(sizeof(*a->question));
        if (!a->question)
                return cairn_client_fail(client, CAIRN_ENOMEM, NULL);
        status = ask_with(client, call, a, result, result_bytes);
        free(a->question);
        if (own)
                cairn_client_scratch_drop(client, &client->results, status);
        return status;
}

int cairn_retain(struct cairn_client *client, struct cairn_call *call,
                 const struct cairn_retain_args *args, void *result, uint64_t result_bytes,
                 struct cairn_retained *ret_retained)
{
        struct asking a = {
            .args = args,
            .submission = {.kind = CAIRN_KIND_RETAIN,
                           .decode = decode_retain,
                           .outputs.retain = {.ret_retained = ret_retained}},
        };

        a.bytes_max = args->context ? cairn_retain_bytes(client, args) : 1; // check refuses that
        return ask(client, call, &a, result, result_bytes);
}

int cairn_plan(struct cairn_client *client, struct cairn_call *call,
               const struct cairn_plan_args *args, void *result, uint64_t result_bytes,
               struct cairn_plan *ret_plan)
{
        struct asking a = {
            .args = &args->retain,
            .plan = args,
            .bytes_max = cairn_plan_bytes(client, args),
            .submission = {.kind = CAIRN_KIND_PLAN,
                           .decode = decode_plan,
                           .outputs.retain = {.budgets_count = args->budgets_count,
                                              .ret_plan = ret_plan}},
        };

        if (args->budgets_count > CAIRN_BUDGETS_MAX)
                return cairn_client_fail(client, CAIRN_EINVAL, "plan: %zu budgets; up to %d",
                                         args->budgets_count, CAIRN_BUDGETS_MAX);
        return ask(client, call, &a, result, result_bytes);
}
