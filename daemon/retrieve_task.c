// One task of a Retrieve or Attend: one (pair, step, KV head), on one scorer thread.
//
// What the worker can write to (queries, result) is read once, copied first; positions are chosen
// in scratch memory and only then copied out, so that a worker which writes into its result cannot
// mislead the gathering.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/retrieve.h"
#include "daemon/scorer.h"
#include "proto/codec.h"
#include "proto/status.h"

// The scratch of a task, carved from the thread's.
struct bench {
        struct cairn_landmark_piece *pieces;
        float *queries;      // [group][k_dim]
        uint32_t *positions; // [k_max]
        float *scores;       // [k_max]
        float *lse_chosen;   // [group]
        float *lse_all;      // [group]
        float *part_lse;     // [group]
        float *part_out;     // [group][v_dim]
        uint8_t *policy;     // for one call of the policy at a time, but for the selection
        uint8_t *selection;
        size_t selection_bytes;
};

struct place {
        uint32_t pair;
        uint32_t step;
        uint32_t head;
        uint64_t row;   // (pair * steps + step) * KV heads + head
        uint64_t query; // index of the group's first query head among all
};

static struct place place_of(const struct cairn_retrieve *r, uint64_t task)
{
        struct place place;
        uint64_t step_index = task / r->shape.kv_heads;

        place.head = (uint32_t)(task % r->shape.kv_heads);
        place.step = (uint32_t)(step_index % r->shape.steps);
        place.pair = (uint32_t)(step_index / r->shape.steps);
        place.row = task;
        place.query = step_index * r->shape.query_heads + (uint64_t)place.head * r->group;
        return place;
}

static size_t carve(size_t *at, size_t bytes)
{
        size_t offset = *at;

        *at += (bytes + 63) & ~(size_t)63;
        return offset;
}

// False: no memory.
static bool set_bench(const struct cairn_retrieve *r, uint32_t n_pieces, size_t policy_bytes,
                      size_t selection_bytes, struct bench *ret_bench)
{
        size_t group = r->group;
        size_t at = 0;
        size_t pieces = carve(&at, n_pieces * sizeof(struct cairn_landmark_piece));
        size_t queries = carve(&at, group * r->shape.k_dim * sizeof(float));
        size_t positions = carve(&at, (size_t)r->shape.k_max * sizeof(uint32_t));
        size_t scores = carve(&at, (size_t)r->shape.k_max * sizeof(float));
        size_t lse = carve(&at, 3 * group * sizeof(float));
        size_t out = carve(&at, group * r->shape.v_dim * sizeof(float));
        size_t policy = carve(&at, policy_bytes);
        size_t selection = carve(&at, selection_bytes);
        uint8_t *base = cairn_scorer_scratch(at + 1);

        if (!base)
                return false;
        *ret_bench = (struct bench){
            .pieces = (struct cairn_landmark_piece *)(void *)(base + pieces),
            .queries = (float *)(void *)(base + queries),
            .positions = (uint32_t *)(void *)(base + positions),
            .scores = (float *)(void *)(base + scores),
            .lse_chosen = (float *)(void *)(base + lse),
            .lse_all = (float *)(void *)(base + lse) + group,
            .part_lse = (float *)(void *)(base + lse) + 2 * group,
            .part_out = (float *)(void *)(base + out),
            .policy = base + policy,
            .selection = base + selection,
            .selection_bytes = selection_bytes,
        };
        return true;
}

static void write_at(const struct cairn_retrieve *r, uint64_t part, uint64_t index,
                     const void *from, size_t bytes)
{
        if (bytes > 0)
                memcpy(r->result.bulk.base + part + index, from, bytes);
}

static void write_choice(const struct cairn_retrieve *r, const struct place *place,
                         const struct cairn_landmark_result *result)
{
        uint64_t k = r->shape.k_max;
        uint32_t count = result->n_chosen;

        assert(count <= k);
        memset(result->positions + count, 0, (k - count) * sizeof(uint32_t));
        memset(result->scores + count, 0, (k - count) * sizeof(float));
        write_at(r, r->layout.counts, place->row * sizeof(count), &count, sizeof(count));
        write_at(r, r->layout.positions, place->row * k * sizeof(uint32_t), result->positions,
                 k * sizeof(uint32_t));
        write_at(r, r->layout.scores, place->row * k * sizeof(float), result->scores,
                 k * sizeof(float));
        for (uint32_t g = 0; g < r->group; g++) {
                float pair[2] = {result->lse_chosen[g], result->lse_all[g]};

                write_at(r, r->layout.lse, (place->query + g) * sizeof(pair), pair, sizeof(pair));
        }
}

static void write_partial(const struct cairn_retrieve *r, const struct place *place,
                          const struct bench *bench, uint64_t lse_part, uint64_t out_part)
{
        uint64_t row_bytes = r->shape.v_dim * sizeof(float);

        write_at(r, lse_part, place->query * sizeof(float), bench->part_lse,
                 r->group * sizeof(float));
        write_at(r, out_part, place->query * row_bytes, bench->part_out, r->group * row_bytes);
}

static int gather_rows(const struct cairn_retrieve *r, const struct place *place,
                       const struct cairn_landmark_request *request, const uint32_t *positions,
                       uint32_t count)
{
        uint64_t element = cairn_dtype_bytes(r->shape.row_dtype);
        uint64_t first = place->row * r->shape.k_max;
        uint8_t *k = r->result.bulk.base + r->layout.k_rows + first * r->shape.k_dim * element;
        uint8_t *v = r->layout.v_rows == UINT64_MAX ? NULL
                                                    : r->result.bulk.base + r->layout.v_rows +
                                                          first * r->shape.v_dim * element;

        if (count == 0)
                return CAIRN_OK;
        return cairn_landmark_gather(request->layout, request->pieces, request->n_pieces, positions,
                                     count, r->shape.row_dtype, k, r->shape.v_dim > 0 ? v : NULL);
}

// Attention over every row: no selection.
static int attend_all(const struct cairn_retrieve *r, const struct place *place,
                      const struct cairn_landmark_request *request, struct bench *bench)
{
        struct cairn_landmark_partial partial = {bench->part_out, bench->part_lse};
        struct cairn_landmark_result none = {.positions = bench->positions,
                                             .scores = bench->scores,
                                             .lse_chosen = bench->lse_chosen,
                                             .lse_all = bench->part_lse};
        int status = cairn_landmark_attend(request, NULL, 0, bench->policy, &partial);

        if (status != CAIRN_OK)
                return status;
        for (uint32_t g = 0; g < r->group; g++)
                none.lse_chosen[g] = -INFINITY;
        write_choice(r, place, &none);
        write_partial(r, place, bench, r->layout.part_lse, r->layout.part_out);
        return CAIRN_OK;
}

static int select_and_answer(const struct cairn_retrieve *r, const struct place *place,
                             const struct cairn_landmark_request *request, struct bench *bench)
{
        struct cairn_landmark_partial partial = {bench->part_out, bench->part_lse};
        struct cairn_landmark_result result = {.positions = bench->positions,
                                               .scores = bench->scores,
                                               .lse_chosen = bench->lse_chosen,
                                               .lse_all = bench->lse_all};
        struct cairn_landmark_selection *selection;
        int status = cairn_landmark_select_begin(request, bench->selection, bench->selection_bytes,
                                                 &selection);

        if (status != CAIRN_OK)
                return status;
        cairn_landmark_select_scan(selection, 0, request->n_pieces);
        cairn_landmark_select_weigh(selection);
        cairn_landmark_select_rank(selection, 0, request->n_pieces);
        cairn_landmark_select_finish(selection, &result);
        if (r->shape.rest) {
                cairn_landmark_rest(selection, 0, request->n_pieces, 0, bench->policy, &partial);
                write_partial(r, place, bench, r->layout.rest_lse, r->layout.rest_out);
        }
        if (r->shape.attend) {
                status = cairn_landmark_attend(request, result.positions, result.n_chosen,
                                               bench->policy, &partial);
                if (status != CAIRN_OK)
                        return status;
                write_partial(r, place, bench, r->layout.part_lse, r->layout.part_out);
        }
        if (r->shape.rows)
                status = gather_rows(r, place, request, result.positions, result.n_chosen);
        write_choice(r, place, &result);
        return status;
}

// What the scan reads of this head, in bytes.
static uint64_t scanned_bytes(const struct cairn_retrieve *r,
                              const struct cairn_landmark_request *request)
{
        const struct cairn_landmark_layout *layout = request->layout;
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < request->n_pieces; i++)
                bytes += request->pieces[i].code_run
                             ? layout->resident_bytes
                             : (uint64_t)request->pieces[i].n_tokens * layout->raw_k_bytes /
                                   r->entry->space.block_tokens;
        return bytes;
}

static struct cairn_landmark_request request_of(const struct cairn_retrieve *r)
{
        const Cairn__RetrieveRequest *message = r->request->message;

        return (struct cairn_landmark_request){
            .layout = &r->entry->layout,
            .n_queries = r->group,
            .scale = r->scale,
            .k = r->shape.k_max,
            .budget = r->budget,
            .target = r->target,
            .rerank = message->rerank_factor,
            .rule = message->group == CAIRN__GROUP_RULE__GROUP_SUM ? CAIRN_LANDMARK_GROUP_SUM
                                                                   : CAIRN_LANDMARK_GROUP_MAX,
            .kind = r->kind,
            .chunk_tokens = message->chunk_tokens,
            .excluded = r->excluded,
            .n_excluded = r->excluded_count,
        };
}

// Pieces and queries of the task, in the bench.
static void fill_bench(const struct cairn_retrieve *r, const struct place *place,
                       const struct cairn_context_view *view, struct bench *bench,
                       struct cairn_landmark_request *request)
{
        const Cairn__RetrieveRequest *message = r->request->message;

        request->n_pieces =
            cairn_context_fill(view, message->layers[place->pair], place->head, bench->pieces);
        for (uint32_t i = 0; r->exact && i < request->n_pieces; i++)
                bench->pieces[i].code_run = NULL;
        request->pieces = bench->pieces;
        request->queries = bench->queries;
}

// What the policy needs depends on the pieces: they are filled once to ask, and again if the memory
// then had to grow.
static int prepare(const struct cairn_retrieve *r, const struct place *place,
                   const struct cairn_context_view *view, struct bench *ret_bench,
                   struct cairn_landmark_request *ret_request)
{
        uint32_t n_pieces = cairn_context_pieces(view);
        bool selects = !r->all;
        size_t attend_bytes = 0;
        size_t rest_bytes = 0;
        size_t selection_bytes = 0;
        const void *before;

        if (!set_bench(r, n_pieces, 0, 0, ret_bench))
                return CAIRN_ENOMEM;
        before = ret_bench->pieces;
        fill_bench(r, place, view, ret_bench, ret_request);
        if (r->shape.attend)
                attend_bytes = cairn_landmark_attend_scratch_bytes(ret_request);
        if (r->shape.rest)
                rest_bytes = cairn_landmark_rest_scratch_bytes(ret_request);
        if (selects)
                selection_bytes = cairn_landmark_select_scratch_bytes(ret_request);
        if (selects && selection_bytes == 0)
                return CAIRN_EINVAL;
        if (!set_bench(r, n_pieces, attend_bytes > rest_bytes ? attend_bytes : rest_bytes,
                       selection_bytes, ret_bench))
                return CAIRN_ENOMEM;
        if (ret_bench->pieces != before)
                fill_bench(r, place, view, ret_bench, ret_request);
        return CAIRN_OK;
}

void cairn_retrieve_run_task(const struct cairn_retrieve *r, uint64_t task,
                             struct cairn_retrieve_worker *worker)
{
        struct place place = place_of(r, task);
        const struct cairn_context_view *view = &r->views[r->views_count == 1 ? 0 : place.pair];
        struct cairn_landmark_request request = request_of(r);
        uint64_t query_bytes = r->shape.k_dim * sizeof(float);
        uint64_t begun_ns = cairn_clock_ns();
        struct bench bench;

        worker->status = prepare(r, &place, view, &bench, &request);
        if (worker->status != CAIRN_OK)
                return;
        memcpy(bench.queries, r->queries.base + place.query * query_bytes, r->group * query_bytes);
        worker->status = r->all ? attend_all(r, &place, &request, &bench)
                                : select_and_answer(r, &place, &request, &bench);
        worker->tokens += view->tokens;
        worker->bytes += scanned_bytes(r, &request);
        worker->ns += cairn_clock_ns() - begun_ns;
}
