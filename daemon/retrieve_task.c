// One task of a Retrieve or Attend: one (pair, step, KV head), on one scorer thread.
//
// What the worker can write to (queries, result) is read once, copied first; positions are chosen
// in scratch memory and only then copied out, so that a worker which writes into its result cannot
// mislead the gathering.
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/retrieve.h"
#include "daemon/scorer.h"
#include "daemon/secret.h"
#include "daemon/server.h"
#include "proto/codec.h"
#include "proto/status.h"

enum {
        CHUNK_TOKENS = 32 * 1024
};

static struct cairn_retrieve_place place_of(const struct cairn_retrieve *r, uint64_t task)
{
        struct cairn_retrieve_place place;
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

// Memory of the thread, or of the task's own; what was in it may be gone. NULL: none.
static uint8_t *room(struct cairn_retrieve_task *task, size_t bytes)
{
        if (!task->shared)
                return cairn_scorer_scratch(bytes);
        if (bytes <= task->memory_bytes)
                return task->memory;
        cairn_retrieve_task_end(task);
        if (bytes > task->retrieve->request->server->config->scratch_bytes)
                return NULL;
        task->memory = cairn_secret_alloc(bytes);
        task->memory_bytes = task->memory ? bytes : 0;
        return task->memory;
}

// False: no memory.
static bool set_bench(struct cairn_retrieve_task *task, uint32_t n_pieces, size_t policy_bytes,
                      size_t selection_bytes)
{
        const struct cairn_retrieve *r = task->retrieve;
        size_t group = r->group;
        size_t out_dim = cairn_space_out_dim(&r->entry->space);
        size_t chunks = r->shape.rest ? task->chunks : 0;
        size_t at = 0;
        size_t pieces = carve(&at, n_pieces * sizeof(struct cairn_landmark_piece));
        size_t queries = carve(&at, group * r->shape.k_dim * sizeof(float));
        size_t positions = carve(&at, (size_t)r->shape.k_max * sizeof(uint32_t));
        size_t scores = carve(&at, (size_t)r->shape.k_max * sizeof(float));
        size_t lse = carve(&at, 5 * group * sizeof(float));
        size_t out = carve(&at, group * out_dim * sizeof(float));
        size_t rest_lse = carve(&at, chunks * group * sizeof(float));
        size_t rest_out = carve(&at, chunks * group * out_dim * sizeof(float));
        size_t policy = carve(&at, policy_bytes);
        size_t selection = carve(&at, selection_bytes);
        uint8_t *base = room(task, at + 1);

        if (!base)
                return false;
        task->bench = (struct cairn_retrieve_bench){
            .pieces = (struct cairn_landmark_piece *)(void *)(base + pieces),
            .queries = (float *)(void *)(base + queries),
            .positions = (uint32_t *)(void *)(base + positions),
            .scores = (float *)(void *)(base + scores),
            .lse_chosen = (float *)(void *)(base + lse),
            .lse_all = (float *)(void *)(base + lse) + group,
            .part_lse = (float *)(void *)(base + lse) + 2 * group,
            .lse_held = (float *)(void *)(base + lse) + 3 * group,
            .mass_error = (float *)(void *)(base + lse) + 4 * group,
            .part_out = (float *)(void *)(base + out),
            .rest_lse = (float *)(void *)(base + rest_lse),
            .rest_out = (float *)(void *)(base + rest_out),
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

static void write_choice(const struct cairn_retrieve *r, const struct cairn_retrieve_place *place,
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
                cairn_mass_add(r->mass, pair[0], pair[1]);
        }
        write_at(r, r->layout.mass_error, place->query * sizeof(float), result->mass_error,
                 r->group * sizeof(float));
}

static void write_partial(const struct cairn_retrieve *r, const struct cairn_retrieve_place *place,
                          const float *lse, const float *out, uint64_t lse_part, uint64_t out_part)
{
        uint64_t row_bytes = cairn_space_out_dim(&r->entry->space) * sizeof(float);

        write_at(r, lse_part, place->query * sizeof(float), lse, r->group * sizeof(float));
        write_at(r, out_part, place->query * row_bytes, out, r->group * row_bytes);
}

static int gather_rows(const struct cairn_retrieve *r, const struct cairn_retrieve_place *place,
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
            .without_rest = !r->shape.rest,
        };
}

static const struct cairn_context_view *view_of(const struct cairn_retrieve_task *task)
{
        const struct cairn_retrieve *r = task->retrieve;

        return &r->views[r->views_count == 1 ? 0 : task->place.pair];
}

// The pieces of the task, in the bench.
static void fill_pieces(struct cairn_retrieve_task *task)
{
        const struct cairn_retrieve *r = task->retrieve;
        const Cairn__RetrieveRequest *message = r->request->message;
        struct cairn_landmark_piece *pieces = task->bench.pieces;

        task->request.n_pieces =
            cairn_context_fill(view_of(task), message->layers[task->place.pair], task->place.head,
                               pieces);
        for (uint32_t i = 0; r->exact && i < task->request.n_pieces; i++)
                pieces[i].code_run = NULL;
        task->request.pieces = pieces;
        task->request.queries = task->bench.queries;
        const struct cairn_present *present =
            message->demoted ? view_of(task)->demoted : view_of(task)->present;

        if (present) {
                task->request.present =
                    cairn_present_bits(present, r->entry, message->layers[task->place.pair],
                                       task->place.head);
                task->request.present_end = (uint32_t)present->end;
        }
}

// What the policy needs depends on the pieces: they are filled once to ask, and again once the
// memory has grown.
static int prepare(struct cairn_retrieve_task *task)
{
        const struct cairn_retrieve *r = task->retrieve;
        uint32_t n_pieces = cairn_context_pieces(view_of(task));
        size_t selection_bytes = 0;
        size_t rest_bytes = 0;

        task->chunk_pieces = CHUNK_TOKENS / r->entry->space.block_tokens;
        task->chunks = n_pieces > 0 ? (n_pieces - 1) / task->chunk_pieces + 1 : 1;
        if (!set_bench(task, n_pieces, 0, 0))
                return CAIRN_ENOMEM;
        fill_pieces(task);
        if (r->shape.attend)
                task->policy_bytes = cairn_landmark_attend_scratch_bytes(&task->request);
        if (r->shape.rest)
                rest_bytes = cairn_landmark_rest_scratch_bytes(&task->request);
        if (rest_bytes > task->policy_bytes)
                task->policy_bytes = rest_bytes;
        if (!r->all)
                selection_bytes = cairn_landmark_select_scratch_bytes(&task->request);
        if (!r->all && selection_bytes == 0)
                return CAIRN_EINVAL;
        if (!set_bench(task, n_pieces, task->policy_bytes, selection_bytes))
                return CAIRN_ENOMEM;
        fill_pieces(task); // grown memory may lie where it did, without what was in it
        return CAIRN_OK;
}

// The log-sum-exp of what the worker holds, copied and then checked. False: one is not a number.
static bool take_held(struct cairn_retrieve_task *task)
{
        const struct cairn_retrieve *r = task->retrieve;

        memcpy(task->bench.lse_held, r->held_lse.base + task->place.query * sizeof(float),
               r->group * sizeof(float));
        for (uint32_t g = 0; g < r->group; g++)
                if (!(task->bench.lse_held[g] < INFINITY))
                        return false;
        task->request.lse_held = task->bench.lse_held;
        return true;
}

// ---- the steps ----

int cairn_retrieve_task_begin(struct cairn_retrieve_task *task, const struct cairn_retrieve *r,
                              uint64_t index, bool shared)
{
        uint64_t query_bytes = r->shape.k_dim * sizeof(float);
        int status;

        *task = (struct cairn_retrieve_task){
            .retrieve = r, .place = place_of(r, index), .request = request_of(r), .shared = shared};
        status = prepare(task);
        if (status != CAIRN_OK)
                return status;
        memcpy(task->bench.queries, r->queries.base + task->place.query * query_bytes,
               r->group * query_bytes);
        task->result = (struct cairn_landmark_result){.positions = task->bench.positions,
                                                      .scores = task->bench.scores,
                                                      .lse_chosen = task->bench.lse_chosen,
                                                      .lse_all = task->bench.lse_all,
                                                      .mass_error = task->bench.mass_error};
        memset(task->bench.mass_error, 0, r->group * sizeof(float));
        if (r->all)
                return CAIRN_OK;
        if (r->held_lse.base && !take_held(task))
                return CAIRN_EINVAL;
        return cairn_landmark_select_begin(&task->request, task->bench.selection,
                                           task->bench.selection_bytes, &task->selection);
}

// The pieces of a chunk.
static uint32_t chunk_first(const struct cairn_retrieve_task *task, uint32_t chunk,
                            uint32_t *ret_count)
{
        uint32_t first = chunk * task->chunk_pieces;
        uint32_t left = task->request.n_pieces - first;

        *ret_count = left < task->chunk_pieces ? left : task->chunk_pieces;
        return first;
}

void cairn_retrieve_task_scan(struct cairn_retrieve_task *task, uint32_t chunk)
{
        uint32_t count;
        uint32_t first = chunk_first(task, chunk, &count);

        cairn_landmark_select_scan(task->selection, first, count);
}

void cairn_retrieve_task_weigh(struct cairn_retrieve_task *task)
{
        cairn_landmark_select_weigh(task->selection);
}

void cairn_retrieve_task_rank(struct cairn_retrieve_task *task, uint32_t chunk)
{
        uint32_t count;
        uint32_t first = chunk_first(task, chunk, &count);

        cairn_landmark_select_rank(task->selection, first, count);
}

void cairn_retrieve_task_choose(struct cairn_retrieve_task *task)
{
        cairn_landmark_select_finish(task->selection, &task->result);
}

int cairn_retrieve_task_rest(struct cairn_retrieve_task *task, uint32_t chunk)
{
        const struct cairn_retrieve *r = task->retrieve;
        size_t out_dim = cairn_space_out_dim(&r->entry->space);
        struct cairn_landmark_partial partial = {task->bench.rest_out +
                                                     (size_t)chunk * r->group * out_dim,
                                                 task->bench.rest_lse + (size_t)chunk * r->group};
        void *scratch =
            task->shared ? cairn_scorer_scratch(task->policy_bytes + 1) : task->bench.policy;
        uint32_t count;
        uint32_t first = chunk_first(task, chunk, &count);

        if (!scratch)
                return CAIRN_ENOMEM;
        cairn_landmark_rest(task->selection, first, count, 0, scratch, &partial);
        return CAIRN_OK;
}

// Attention over every row: no selection.
static int attend_all(struct cairn_retrieve_task *task)
{
        const struct cairn_retrieve *r = task->retrieve;
        struct cairn_landmark_partial partial = {task->bench.part_out, task->bench.part_lse};
        int status = cairn_landmark_attend(&task->request, NULL, 0, task->bench.policy, &partial);

        if (status != CAIRN_OK)
                return status;
        for (uint32_t g = 0; g < r->group; g++)
                task->bench.lse_chosen[g] = -INFINITY;
        task->result.lse_all = task->bench.part_lse;
        write_choice(r, &task->place, &task->result);
        write_partial(r, &task->place, partial.lse, partial.out, r->layout.part_lse,
                      r->layout.part_out);
        return CAIRN_OK;
}

static void write_rest(struct cairn_retrieve_task *task)
{
        const struct cairn_retrieve *r = task->retrieve;
        uint32_t out_dim = cairn_space_out_dim(&r->entry->space);
        struct cairn_landmark_partial whole = {task->bench.rest_out, task->bench.rest_lse};

        for (uint32_t i = 1; i < task->chunks; i++) {
                struct cairn_landmark_partial part = {whole.out + (size_t)i * r->group * out_dim,
                                                      whole.lse + (size_t)i * r->group};

                cairn_landmark_partial_merge(&whole, &part, r->group, out_dim);
        }
        write_partial(r, &task->place, whole.lse, whole.out, r->layout.rest_lse,
                      r->layout.rest_out);
}

int cairn_retrieve_task_answer(struct cairn_retrieve_task *task)
{
        const struct cairn_retrieve *r = task->retrieve;
        const struct cairn_landmark_result *result = &task->result;
        struct cairn_landmark_partial partial = {task->bench.part_out, task->bench.part_lse};
        int status = CAIRN_OK;

        if (r->all)
                return attend_all(task);
        if (r->shape.rest)
                write_rest(task);
        if (r->shape.attend) {
                cairn_landmark_attend_chosen(task->selection, task->bench.policy, &partial);
                write_partial(r, &task->place, partial.lse, partial.out, r->layout.part_lse,
                              r->layout.part_out);
        }
        if (r->shape.rows)
                status = gather_rows(r, &task->place, &task->request, result->positions,
                                     result->n_chosen);
        write_choice(r, &task->place, result);
        return status;
}

uint64_t cairn_retrieve_task_bytes(const struct cairn_retrieve_task *task)
{
        const struct cairn_landmark_layout *layout = task->request.layout;
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < task->request.n_pieces; i++)
                bytes += task->request.pieces[i].code_run
                             ? layout->resident_bytes
                             : (uint64_t)task->request.pieces[i].n_tokens * layout->raw_k_bytes /
                                   layout->shape.block_tokens;
        return bytes;
}

void cairn_retrieve_task_end(struct cairn_retrieve_task *task)
{
        free(task->memory);
        task->memory = NULL;
        task->memory_bytes = 0;
}

// ---- all steps on one thread ----

static int select_chunks(struct cairn_retrieve_task *task)
{
        int status = CAIRN_OK;

        for (uint32_t i = 0; i < task->chunks; i++)
                cairn_retrieve_task_scan(task, i);
        cairn_retrieve_task_weigh(task);
        for (uint32_t i = 0; i < task->chunks; i++)
                cairn_retrieve_task_rank(task, i);
        cairn_retrieve_task_choose(task);
        for (uint32_t i = 0; i < task->chunks && task->retrieve->shape.rest; i++)
                if (status == CAIRN_OK)
                        status = cairn_retrieve_task_rest(task, i);
        return status;
}

void cairn_retrieve_run_task(const struct cairn_retrieve *r, uint64_t index,
                             struct cairn_retrieve_worker *worker)
{
        uint64_t begun_ns = cairn_clock_ns();
        struct cairn_retrieve_task task;

        worker->status = cairn_retrieve_task_begin(&task, r, index, false);
        if (worker->status == CAIRN_OK && !r->all)
                worker->status = select_chunks(&task);
        if (worker->status != CAIRN_OK)
                return;
        worker->status = cairn_retrieve_task_answer(&task);
        worker->tokens += view_of(&task)->tokens;
        worker->bytes += cairn_retrieve_task_bytes(&task);
        worker->ns += cairn_clock_ns() - begun_ns;
}
