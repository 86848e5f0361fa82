// Retrieve, Attend, FetchRows: what is asked, where the answer goes, and whether it is one.
#include "client/src/client.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- arguments ----

static int check(struct cairn_client *client, const struct cairn_retrieve_args *args)
{
        const struct cairn_budget *b = &args->budget;
        int budgets = (b->count > 0) + (b->share > 0) + (b->threshold > 0) + (b->mass > 0);

        if (args->layers_count == 0 || args->layers_count > CAIRN_PAIRS_MAX)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "retrieve: %zu (context, layer) pairs; it may be 1 to %d",
                                         args->layers_count, CAIRN_PAIRS_MAX);
        if (args->contexts_count != 1 && args->contexts_count != args->layers_count)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "retrieve: %zu contexts for %zu layers; give one for all, "
                                         "or one a layer",
                                         args->contexts_count, args->layers_count);
        if (args->steps > CAIRN_STEPS_MAX || args->query_heads == 0 ||
            args->query_heads > CAIRN_QUERY_HEADS_MAX || !args->queries)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "retrieve: %u steps of %u query heads; up to %d and %d",
                                         args->steps, args->query_heads, CAIRN_STEPS_MAX,
                                         CAIRN_QUERY_HEADS_MAX);
        if (args->excluded_count > CAIRN_EXCLUDED_MAX)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "retrieve: %zu excluded ranges; up to %d",
                                         args->excluded_count, CAIRN_EXCLUDED_MAX);
        if (budgets > 1) // none: no rows, which is allowed
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "retrieve: the budget is one of count, share, threshold "
                                         "and mass");
        return CAIRN_OK;
}

// Most rows a KV head that the answer makes room for, in a context of `tokens`. The daemon takes a
// share as a float: one row more than it may ever round to.
static uint32_t rows_max(const struct cairn_retrieve_args *args, bool attend, uint64_t tokens)
{
        const struct cairn_budget *b = &args->budget;
        double rows = b->count;

        if (args->all && attend)
                return 0;
        if (b->share > 0) {
                rows = ceil(b->share * (double)tokens) + 1;
                if (b->cap > 0 && rows > b->cap)
                        rows = b->cap;
        } else if (b->threshold > 0 || b->mass > 0) {
                rows = b->cap;
        }
        return rows > CAIRN_ROWS_MAX ? CAIRN_ROWS_MAX : (uint32_t)rows;
}

// The shape of the answer, with the largest k that can be.
static int shape_of(const struct cairn_client *client, const struct cairn_retrieve_args *args,
                    bool attend, struct cairn_result_shape *ret_shape)
{
        const struct cairn_space_config *config;
        uint64_t tokens = 0;
        uint32_t space;

        if (args->contexts_count == 0)
                return CAIRN_EINVAL;
        space = args->contexts[0].space;
        if (space == 0 || space > client->spaces_count)
                return CAIRN_EINVAL;
        for (size_t i = 0; i < args->contexts_count; i++) {
                if (args->contexts[i].space != space)
                        return CAIRN_EINVAL;
                if (args->contexts[i].tokens > tokens)
                        tokens = args->contexts[i].tokens;
        }
        config = &client->spaces[space - 1].config;
        *ret_shape = (struct cairn_result_shape){
            .pairs = (uint32_t)args->layers_count,
            .steps = args->steps ? args->steps : 1,
            .kv_heads = config->kv_heads,
            .query_heads = args->query_heads,
            .k_max = rows_max(args, attend, tokens),
            .k_dim = config->k_dim,
            .v_dim = config->v_dim,
            .v_prefix = config->v_prefix,
            .row_dtype = args->row_dtype ? args->row_dtype : config->dtype,
            .attend = attend,
            .rest = args->rest && !(args->all && attend), // all: nothing is left
            .rows = args->rows && !attend,
        };
        return CAIRN_OK;
}

uint64_t cairn_retrieve_bytes(const struct cairn_client *client,
                              const struct cairn_retrieve_args *args, bool attend)
{
        struct cairn_result_shape shape;
        struct cairn_result_layout layout;

        if (shape_of(client, args, attend, &shape) != CAIRN_OK ||
            cairn_result_layout(&shape, &layout) != CAIRN_OK)
                return 0;
        return layout.total_bytes;
}

// ---- the answer ----

static const void *part_at(const uint8_t *result, uint64_t offset)
{
        return offset == UINT64_MAX ? NULL : result + offset;
}

static void point(struct cairn_selection *selection, const struct cairn_result_shape *shape,
                  const struct cairn_result_layout *layout, const uint8_t *result)
{
        *selection = (struct cairn_selection){
            .pairs = shape->pairs,
            .steps = shape->steps,
            .kv_heads = shape->kv_heads,
            .query_heads = shape->query_heads,
            .k_max = shape->k_max,
            .k_dim = shape->k_dim,
            .v_dim = shape->v_dim,
            .out_dim = shape->v_prefix ? shape->v_prefix : shape->v_dim,
            .row_dtype = shape->row_dtype,
            .counts = part_at(result, layout->counts),
            .positions = part_at(result, layout->positions),
            .scores = part_at(result, layout->scores),
            .lse = part_at(result, layout->lse),
            .mass_error = part_at(result, layout->mass_error),
            .part_lse = part_at(result, layout->part_lse),
            .part_out = part_at(result, layout->part_out),
            .rest_lse = part_at(result, layout->rest_lse),
            .rest_out = part_at(result, layout->rest_out),
            .k_rows = part_at(result, layout->k_rows),
            .v_rows = part_at(result, layout->v_rows),
            .result_bytes = layout->total_bytes,
        };
}

static int decode_retrieve(struct cairn_client *client, struct cairn_client_request *request,
                           const void *message, const uint8_t *payload, size_t payload_bytes)
{
        const Cairn__RetrieveReply *reply = message;
        struct cairn_result_shape shape = request->outputs.retrieve.shape;
        uint8_t *result = request->outputs.retrieve.result;
        bool inlined = request->outputs.retrieve.inlined;
        struct cairn_result_layout layout;
        struct cairn_selection selection;
        const uint8_t *counts;

        (void)client;
        shape.k_max = reply->k_max;
        if (reply->k_max > CAIRN_ROWS_MAX || cairn_result_layout(&shape, &layout) != CAIRN_OK ||
            layout.total_bytes > request->outputs.retrieve.result_bytes ||
            reply->result_bytes != layout.total_bytes ||
            (inlined && payload_bytes != layout.total_bytes))
                return CAIRN_EPROTO;
        counts = inlined ? payload : result;
        for (uint64_t i = 0; i < (uint64_t)shape.pairs * shape.steps * shape.kv_heads; i++) {
                uint32_t count;

                memcpy(&count, counts + layout.counts + 4 * i, sizeof(count));
                if (count > shape.k_max)
                        return CAIRN_EPROTO;
        }
        if (inlined)
                memcpy(result, payload, payload_bytes);
        point(&selection, &shape, &layout, result);
        selection.tokens_scanned = reply->tokens_scanned;
        selection.bytes_scanned = reply->bytes_scanned;
        selection.kernel_ns = reply->kernel_ns;
        *request->outputs.retrieve.ret_selection = selection;
        return CAIRN_OK;
}

// ---- the question ----

struct question {
        Cairn__RetrieveRequest message;
        Cairn__Budget budget;
        Cairn__Region queries;
        Cairn__Region held_lse;
        Cairn__Region result;
        uint64_t contexts[CAIRN_PAIRS_MAX];
        uint64_t excluded[2 * CAIRN_EXCLUDED_MAX];
};

static void fill_budget(const struct cairn_budget *budget, Cairn__Budget *ret_budget)
{
        cairn__budget__init(ret_budget);
        ret_budget->count = budget->count;
        ret_budget->share = budget->share;
        ret_budget->threshold = budget->threshold;
        ret_budget->mass = budget->mass;
        ret_budget->by_mass = budget->mass > 0;
        ret_budget->cap = budget->cap;
}

static void fill_question(const struct cairn_retrieve_args *args, bool attend,
                          struct question *question)
{
        Cairn__RetrieveRequest *message = &question->message;

        cairn__retrieve_request__init(message);
        for (size_t i = 0; i < args->contexts_count; i++)
                question->contexts[i] = args->contexts[i].id;
        for (size_t i = 0; i < args->excluded_count; i++) {
                question->excluded[2 * i] = args->excluded[i].begin;
                question->excluded[2 * i + 1] = args->excluded[i].end;
        }
        fill_budget(&args->budget, &question->budget);
        message->n_contexts = args->contexts_count;
        message->contexts = question->contexts;
        message->n_layers = args->layers_count;
        message->layers = (uint32_t *)args->layers; // packed, not written to
        message->steps = args->steps ? args->steps : 1;
        message->query_heads = args->query_heads;
        message->queries = &question->queries;
        message->held_lse = args->held_lse ? &question->held_lse : NULL;
        message->scale = args->scale;
        message->budget = &question->budget;
        message->n_excluded = 2 * args->excluded_count;
        message->excluded = question->excluded;
        message->rerank_factor = args->rerank_factor;
        message->group = (Cairn__GroupRule)args->group_rule;
        message->rows = args->rows && !attend;
        message->row_dtype = (Cairn__Dtype)args->row_dtype;
        message->rest = args->rest;
        message->result = &question->result;
        message->landmark = (Cairn__Landmark)args->landmark;
        message->chunk_tokens = args->chunk_tokens;
        message->all = args->all && attend;
        message->demoted = args->demoted;
}

static int check_contexts(struct cairn_client *client, const struct cairn_retrieve_args *args)
{
        int status = CAIRN_OK;

        for (size_t i = 0; i < args->contexts_count && status == CAIRN_OK; i++)
                status = cairn_client_context_check(client, &args->contexts[i]);
        return status;
}

static int ask_with(struct cairn_client *client, struct cairn_call *call,
                    const struct cairn_retrieve_args *args, const struct cairn_result_shape *shape,
                    struct question *question, void *result, uint64_t result_bytes,
                    struct cairn_selection *ret_selection)
{
        struct cairn_arena *arena = cairn_client_arena_of(client, result, result_bytes);
        uint64_t bytes = (uint64_t)shape->pairs * shape->steps * shape->query_heads * shape->k_dim *
                         sizeof(float);
        uint64_t held_bytes = bytes / shape->k_dim;
        struct iovec pieces[2] = {0};
        struct cairn_client_source source;
        struct cairn_client_submission submission = {
            .kind = shape->attend ? CAIRN_KIND_ATTEND : CAIRN_KIND_RETRIEVE,
            .message = &question->message,
            .decode = decode_retrieve,
            .outputs.retrieve = {.shape = *shape,
                                 .result = result,
                                 .result_bytes = result_bytes,
                                 .inlined = !arena,
                                 .ret_selection = ret_selection},
        };
        int status = cairn_client_source_begin(client, call, args->queries, bytes, &source);

        if (status == CAIRN_OK)
                status = check_contexts(client, args);
        if (status != CAIRN_OK)
                return status;
        fill_question(args, shape->attend, question);
        cairn_client_region_set(&question->queries, source.arena, source.at, bytes);
        cairn_client_region_set(&question->result, arena, result, result_bytes);
        if (!source.arena)
                pieces[submission.payload_count++] = source.piece;
        if (args->held_lse) {
                cairn_client_region_set(&question->held_lse, NULL, NULL, held_bytes);
                question->held_lse.offset = source.arena ? 0 : bytes;
                pieces[submission.payload_count++] =
                    (struct iovec){(void *)args->held_lse, held_bytes};
        }
        submission.payload = pieces;
        submission.arenas[0] = source.arena;
        submission.arenas[1] = arena;
        status = cairn_client_submit(client, call, &submission);
        cairn_client_source_end(client, &source, status);
        return status;
}

int cairn_client_own_result(struct cairn_client *client, uint64_t bytes, void **ret_result,
                            uint64_t *ret_bytes)
{
        uint64_t wanted = 1 << 16;

        while (wanted < bytes)
                wanted *= 2;
        if (!cairn_client_scratch(client, &client->results, wanted))
                return CAIRN_ENOMEM; // the text is set
        *ret_result = client->results->data;
        *ret_bytes = client->results->bytes;
        return CAIRN_OK;
}

static int ask(struct cairn_client *client, struct cairn_call *call,
               const struct cairn_retrieve_args *args, bool attend, void *result,
               uint64_t result_bytes, struct cairn_selection *ret_selection)
{
        struct question *question;
        struct cairn_result_shape shape;
        bool own = !result;
        int status = check(client, args);

        if (status == CAIRN_OK && shape_of(client, args, attend, &shape) != CAIRN_OK)
                status = cairn_client_fail(client, CAIRN_EINVAL,
                                           "retrieve: contexts of one space that is open, please");
        if (status == CAIRN_OK && own && call)
                status = cairn_client_fail(client, CAIRN_EINVAL,
                                           "an asynchronous retrieve needs memory for its result");
        if (status == CAIRN_OK)
                status = cairn_client_ready(client);
        if (status == CAIRN_OK)
                status = check_contexts(client, args);
        if (status == CAIRN_OK && own)
                status = cairn_client_own_result(client, cairn_retrieve_bytes(client, args, attend),
                                                 &result, &result_bytes);
        if (status != CAIRN_OK)
                return status;
        question = malloc(sizeof(*question));
        if (!question)
                return cairn_client_fail(client, CAIRN_ENOMEM, NULL);
        status =
            ask_with(client, call, args, &shape, question, result, result_bytes, ret_selection);
        free(question);
        if (own)
                cairn_client_scratch_drop(client, &client->results, status);
        return status;
}

int cairn_retrieve(struct cairn_client *client, struct cairn_call *call,
                   const struct cairn_retrieve_args *args, void *result, uint64_t result_bytes,
                   struct cairn_selection *ret_selection)
{
        return ask(client, call, args, false, result, result_bytes, ret_selection);
}

int cairn_attend(struct cairn_client *client, struct cairn_call *call,
                 const struct cairn_retrieve_args *args, void *result, uint64_t result_bytes,
                 struct cairn_selection *ret_selection)
{
        return ask(client, call, args, true, result, result_bytes, ret_selection);
}
