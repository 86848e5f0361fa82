// Partial attention: outputs with the log-sum-exp that lets them be merged exactly.
#include "policy/landmark/selection.h"
#include "proto/status.h"

void cairn_landmark_partial_merge(struct cairn_landmark_partial *into,
                                  const struct cairn_landmark_partial *part, uint32_t n_queries,
                                  uint32_t out_dim)
{
        for (uint32_t q = 0; q < n_queries; q++) {
                float a = into->lse[q], b = part->lse[q], total = cairn_lse_add(a, b);
                if (b == -INFINITY)
                        continue;
                float keep = a == -INFINITY ? 0 : cairn_exp_negative(a - total);
                float take = cairn_exp_negative(b - total);
                for (uint32_t j = 0; j < out_dim; j++) {
                        size_t at = (size_t)q * out_dim + j;
                        float own = a == -INFINITY ? 0 : into->out[at] * keep;
                        into->out[at] = own + part->out[at] * take;
                }
                into->lse[q] = total;
        }
}

enum {
        CHUNK = 64,     // rows that are scored, then summed
        CHUNK_PART = 8, // rows summed between prefetches
};

// The running sums of one attention: a maximum, a sum and an output a query head.
struct accumulator {
        float *out; // [queries][padded]
        float *max;
        float *sum;
        float *scores; // [queries][CHUNK]
        float *weights;
        float *means; // [queries], of the run last seen
        uint32_t padded;
};

struct chunk {
        struct cairn_cursor rows[CHUNK];
        uint32_t candidates[CHUNK]; // of the selection, where there is one
        uint32_t n;
};

// Rows are collected a chunk ahead of the sums, so that they can be prefetched.
struct attend {
        const struct cairn_landmark_request *request;
        const struct cairn_landmark_selection *selection; // whose scores serve, or NULL
        struct cairn_landmark_layout layout;
        const struct cairn_kernels *kernels;
        struct cairn_query query;
        struct accumulator sums;
        struct chunk chunks[2];
        uint32_t filling;               // the other one is summed next
        struct cairn_row_reader reader; // of values that are a part of the key
        const void *run_of;             // the code run and run that means belong to
        uint32_t run;
};

static size_t attend_carve(struct attend *a, const struct cairn_landmark_request *r, void *base)
{
        struct cairn_scratch scratch = {.base = base};
        size_t queries = r->n_queries;
        (void)cairn_scratch_take(&scratch, sizeof *a);
        a->layout = *r->layout;
        a->layout.shape.landmark_bits = 0; // queries need no tables
        a->sums.padded = cairn_round_up(cairn_landmark_out_dim(r->layout), CAIRN_LANES);
        cairn_query_carve(&scratch, &a->layout, r->n_queries, &a->query);
        a->sums.out = cairn_scratch_take(&scratch, queries * a->sums.padded * sizeof(float));
        a->sums.max = cairn_scratch_take(&scratch, queries * sizeof(float));
        a->sums.sum = cairn_scratch_take(&scratch, queries * sizeof(float));
        a->sums.scores = cairn_scratch_take(&scratch, queries * CHUNK * sizeof(float));
        a->sums.weights = cairn_scratch_take(&scratch, queries * CHUNK * sizeof(float));
        a->sums.means = cairn_scratch_take(&scratch, queries * sizeof(float));
        return scratch.used;
}

size_t cairn_landmark_attend_scratch_bytes(const struct cairn_landmark_request *request)
{
        struct attend a;
        return attend_carve(&a, request, NULL);
}

static const struct cairn_landmark_piece *piece_of(const struct attend *a,
                                                   const struct cairn_cursor *row)
{
        return &a->request->pieces[row->piece];
}

// Keeps query . centre of the row's run.
static void set_means(struct attend *a, const struct cairn_cursor *row)
{
        const struct cairn_landmark_layout *l = &a->layout;
        const uint8_t *code_run = piece_of(a, row)->code_run;
        uint32_t run = row->token / l->shape.run_tokens;
        float centre[CAIRN_DIM_PADDED_MAX];
        if (!code_run || l->centres == CAIRN_LANDMARK_NONE ||
            (code_run == a->run_of && run == a->run))
                return;
        cairn_centre_read(l, a->kernels, code_run, run, centre);
        for (uint32_t q = 0; q < a->query.n; q++)
                a->sums.means[q] = a->kernels->dot(a->query.rows + (size_t)q * a->query.padded,
                                                   centre, a->query.padded);
        a->run_of = code_run;
        a->run = run;
}

// Scores of a chunk's rows by all queries; their values are prefetched meanwhile.
static void chunk_scores(struct attend *a, const struct chunk *chunk)
{
        const struct cairn_landmark_layout *l = &a->layout;
        const struct cairn_landmark_selection *s = a->selection;
        for (uint32_t q = 0; s && q < a->query.n; q++)
                for (uint32_t i = 0; i < chunk->n; i++)
                        a->sums.scores[q * CHUNK + i] =
                            s->candidate_scores[(size_t)q * s->stride + chunk->candidates[i]];
        for (uint32_t i = 0; !s && i < chunk->n; i++) {
                const struct cairn_cursor *row = &chunk->rows[i];
                cairn_prefetch_v(l, piece_of(a, row), row->token);
                set_means(a, row);
                cairn_score_row(l, a->kernels, &a->query, piece_of(a, row), row->token,
                                a->sums.means, 1, a->sums.scores + i, CHUNK);
        }
        for (uint32_t q = 0; q < a->query.n; q++)
                for (uint32_t i = chunk->n; i < CHUNK; i++)
                        a->sums.scores[q * CHUNK + i] = -INFINITY;
}

// Weights of a chunk's rows, and what they change of the running sums.
static void chunk_weights(struct attend *a)
{
        struct accumulator *sums = &a->sums;
        float ones[CHUNK];
        for (uint32_t i = 0; i < CHUNK; i++)
                ones[i] = 1;
        for (uint32_t q = 0; q < a->query.n; q++) {
                const float *scores = sums->scores + (size_t)q * CHUNK;
                float *weights = sums->weights + (size_t)q * CHUNK;
                float max = a->kernels->largest(scores, CHUNK);
                if (max > sums->max[q]) {
                        float shrink =
                            sums->max[q] == -INFINITY ? 0 : cairn_exp_negative(sums->max[q] - max);
                        for (uint32_t j = 0; j < sums->padded; j++)
                                sums->out[q * sums->padded + j] *= shrink;
                        sums->sum[q] *= shrink;
                        sums->max[q] = max;
                }
                float reference = sums->max[q] > -INFINITY ? sums->max[q] : 0;
                a->kernels->exp_weights(scores, CHUNK, reference, weights);
                sums->sum[q] = sums->sum[q] + a->kernels->dot(weights, ones, CHUNK);
        }
}

// Of the rows that values are in, or a part of.
static uint32_t value_codec(const struct attend *a)
{
        return a->layout.shape.v_prefix ? a->layout.shape.k_codec : a->layout.shape.v_codec;
}

static bool has_int8_values(const struct attend *a, const struct cairn_landmark_piece *piece)
{
        return piece->code_run && value_codec(a) == CAIRN_ROW_Q8;
}

static const int8_t *int8_value(const struct attend *a, const struct cairn_cursor *row,
                                float *ret_scale)
{
        const struct cairn_landmark_layout *l = &a->layout;
        const uint8_t *code_run = piece_of(a, row)->code_run;
        size_t token = row->token;
        if (!l->shape.v_prefix) {
                memcpy(ret_scale, code_run + l->v_row_scales + token * 4, 4);
                return (const int8_t *)code_run + l->v_rows + token * l->v_row_bytes;
        }
        memcpy(ret_scale, code_run + l->k_row_scales + token * 4, 4);
        if (!(*ret_scale <= FLT_MAX))
                *ret_scale = 0; // of a key that is not finite: it weighs nothing
        return (const int8_t *)code_run + l->k_rows + token * l->k_row_bytes;
}

// What q8 keys leave out when they serve as values: the centre of each run, times its rows'
// weights.
static void add_centres(struct attend *a, const struct chunk *chunk)
{
        struct accumulator *sums = &a->sums;
        uint32_t run_tokens = a->layout.shape.run_tokens;
        for (uint32_t i = 0, end; i < chunk->n; i = end) {
                const struct cairn_cursor *row = &chunk->rows[i];
                uint32_t run = row->token / run_tokens;
                for (end = i + 1; end < chunk->n && chunk->rows[end].piece == row->piece &&
                                  chunk->rows[end].token / run_tokens == run;)
                        end++;
                if (!has_int8_values(a, piece_of(a, row)))
                        continue;
                const float *centre = cairn_row_centre(&a->reader, piece_of(a, row)->code_run, run);
                for (uint32_t q = 0; q < a->query.n; q++) {
                        float weight = 0;
                        for (uint32_t j = i; j < end; j++)
                                weight = weight + sums->weights[q * CHUNK + j];
                        a->kernels->axpy(centre, weight, sums->padded,
                                         sums->out + (size_t)q * sums->padded);
                }
        }
}

// Adds the values of q8 rows, eight rows at a time; the keys of the next chunk are prefetched
// meanwhile. Rows that are coded otherwise count as zeros here.
static void add_coded(struct attend *a, const struct chunk *chunk, const struct chunk *next)
{
        static const int8_t zeros[CAIRN_DIM_PADDED_MAX] = {0};
        const struct cairn_landmark_layout *l = &a->layout;
        struct accumulator *sums = &a->sums;
        const int8_t *rows[CHUNK];
        float scales[CHUNK];
        for (uint32_t i = 0; i < chunk->n; i++) {
                scales[i] = 1;
                rows[i] = zeros;
                if (has_int8_values(a, piece_of(a, &chunk->rows[i])))
                        rows[i] = int8_value(a, &chunk->rows[i], &scales[i]);
        }
        for (uint32_t i = chunk->n; i < CHUNK; i++)
                scales[i] = 0;
        if (l->shape.v_prefix)
                add_centres(a, chunk);
        for (uint32_t q = 0; q < a->query.n; q++)
                a->kernels->multiply(sums->weights + (size_t)q * CHUNK, scales, CHUNK);
        for (uint32_t first = 0; first < CHUNK; first += CHUNK_PART) {
                uint32_t end = first + CHUNK_PART;
                for (uint32_t i = first; i < end && i < next->n; i++) {
                        const struct cairn_cursor *row = &next->rows[i];
                        if (a->selection && !l->shape.v_prefix) {
                                cairn_prefetch_v(l, piece_of(a, row), row->token);
                                continue;
                        }
                        cairn_prefetch_k(l, piece_of(a, row), row->token);
                        cairn_prefetch_centre(l, piece_of(a, row), row->token);
                }
                if (first < chunk->n)
                        a->kernels->add_rows(rows + first,
                                             cairn_min_u32(chunk->n - first, CHUNK_PART),
                                             sums->padded, sums->weights + first, CHUNK, a->query.n,
                                             sums->out, sums->padded);
        }
}

// Adds the values of rows that are not q8.
static void add_others(struct attend *a, const struct chunk *chunk)
{
        const struct cairn_landmark_layout *l = &a->layout;
        struct accumulator *sums = &a->sums;
        float value[CAIRN_DIM_PADDED_MAX];
        for (uint32_t i = 0; i < chunk->n; i++) {
                const struct cairn_landmark_piece *piece = piece_of(a, &chunk->rows[i]);
                uint32_t token = chunk->rows[i].token;
                if (has_int8_values(a, piece))
                        continue;
                if (l->shape.v_prefix) // non-finite counts as 0, or weighs nothing
                        (void)cairn_row_read_k(&a->reader, piece, token, value);
                else
                        (void)cairn_row_read_v(l, a->kernels, piece, token, value);
                for (uint32_t q = 0; q < a->query.n; q++)
                        if (sums->weights[q * CHUNK + i] > 0)
                                a->kernels->axpy(value, sums->weights[q * CHUNK + i], sums->padded,
                                                 sums->out + (size_t)q * sums->padded);
        }
}

// Sums the chunk that was filled before the last; the last is summed next time.
static void turn(struct attend *a)
{
        struct chunk *next = &a->chunks[a->filling];
        struct chunk *chunk = &a->chunks[1 - a->filling];
        if (chunk->n > 0) {
                chunk_scores(a, chunk);
                chunk_weights(a);
                if (a->sums.padded && value_codec(a) == CAIRN_ROW_Q8)
                        add_coded(a, chunk, next);
                if (a->sums.padded)
                        add_others(a, chunk);
        }
        chunk->n = 0;
        a->filling = 1 - a->filling;
}

static void add_row(struct attend *a, const struct cairn_cursor *row, uint32_t candidate)
{
        struct chunk *chunk = &a->chunks[a->filling];
        chunk->candidates[chunk->n] = candidate;
        chunk->rows[chunk->n++] = *row;
        if (chunk->n == CHUNK)
                turn(a);
}

static void add_all(struct attend *a, struct cairn_cursor cursor)
{
        const struct cairn_landmark_request *r = a->request;
        for (cursor.piece = 0; cursor.piece < r->n_pieces; cursor.piece++) {
                uint32_t first = r->pieces[cursor.piece].position, from, to;
                uint32_t end = first + r->pieces[cursor.piece].n_tokens;
                for (uint32_t at = first; at < end; at = to) {
                        if (!cairn_excluded_next(r, at, end, &from, &to))
                                from = to = end;
                        for (; at < from; at++) {
                                cursor.token = at - first;
                                if (cairn_is_present(r, at))
                                        add_row(a, &cursor, 0);
                        }
                }
        }
}

static struct attend *begin(const struct cairn_landmark_request *request, void *scratch)
{
        struct attend *a = scratch;
        (void)attend_carve(a, request, scratch);
        a->request = request;
        a->selection = NULL;
        a->kernels = cairn_kernels_chosen();
        a->reader.layout = &a->layout;
        a->reader.kernels = a->kernels;
        a->reader.code_run = NULL;
        a->chunks[0].n = a->chunks[1].n = a->filling = 0;
        a->run_of = NULL;
        memset(a->sums.out, 0, (size_t)request->n_queries * a->sums.padded * sizeof(float));
        memset(a->sums.means, 0, request->n_queries * sizeof(float));
        for (uint32_t q = 0; q < request->n_queries; q++) {
                a->sums.max[q] = -INFINITY;
                a->sums.sum[q] = 0;
        }
        return a;
}

static void finish(struct attend *a, struct cairn_landmark_partial *ret_partial)
{
        uint32_t out_dim = cairn_landmark_out_dim(&a->layout);
        turn(a);
        turn(a);
        for (uint32_t q = 0; q < a->query.n; q++) {
                bool any = a->sums.max[q] > -INFINITY;
                float sum = a->sums.sum[q], unit = any ? 1.0f / sum : 0;
                ret_partial->lse[q] =
                    any ? (float)((double)a->sums.max[q] + cairn_log(sum)) : -INFINITY;
                for (uint32_t j = 0; j < out_dim; j++)
                        ret_partial->out[(size_t)q * out_dim + j] =
                            a->sums.out[q * a->sums.padded + j] * unit;
        }
}

int cairn_landmark_attend(const struct cairn_landmark_request *request, const uint32_t *positions,
                          uint32_t n_positions, void *scratch,
                          struct cairn_landmark_partial *ret_partial)
{
        struct attend *a = begin(request, scratch);
        struct cairn_cursor cursor = {.pieces = request->pieces, .n_pieces = request->n_pieces};
        cairn_query_prepare(a->kernels, &a->layout, request->queries, request->scale, NULL,
                            &a->query);
        if (!positions)
                add_all(a, cursor);
        for (uint32_t i = 0; positions && i < n_positions; i++) {
                if (!cairn_cursor_seek(&cursor, positions[i]))
                        return CAIRN_ENOENT;
                add_row(a, &cursor, 0);
        }
        finish(a, ret_partial);
        return CAIRN_OK;
}

void cairn_landmark_attend_chosen(const struct cairn_landmark_selection *selection, void *scratch,
                                  struct cairn_landmark_partial *ret_partial)
{
        const struct cairn_landmark_selection *s = selection;
        struct attend *a = begin(s->request, scratch);
        a->selection = s;
        for (uint32_t i = 0; i < s->n_candidates; i++) {
                uint32_t p = s->candidate_pieces[i];
                struct cairn_cursor row = {.piece = p, .token = s->candidates[i] - s->slot_base[p]};
                if (s->chosen[i])
                        add_row(a, &row, i);
        }
        finish(a, ret_partial);
}
