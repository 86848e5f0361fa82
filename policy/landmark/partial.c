// Partial attention: outputs with the log-sum-exp that lets them be merged exactly.
#include "policy/landmark/selection.h"
#include "proto/status.h"

void cairn_landmark_partial_merge(struct cairn_landmark_partial *into,
                                  const struct cairn_landmark_partial *part, uint32_t n_queries,
                                  uint32_t v_dim)
{
        for (uint32_t q = 0; q < n_queries; q++) {
                float a = into->lse[q], b = part->lse[q], total = cairn_lse_add(a, b);
                if (b == -INFINITY)
                        continue;
                float keep = a == -INFINITY ? 0 : cairn_exp_negative(a - total);
                float take = cairn_exp_negative(b - total);
                for (uint32_t j = 0; j < v_dim; j++) {
                        size_t at = (size_t)q * v_dim + j;
                        float own = a == -INFINITY ? 0 : into->out[at] * keep;
                        into->out[at] = own + part->out[at] * take;
                }
                into->lse[q] = total;
        }
}

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

enum {
        CHUNK = 128
};

struct attend {
        const struct cairn_landmark_request *request;
        const struct cairn_kernels *kernels;
        struct cairn_query query;
        struct accumulator sums;
        struct cairn_cursor rows[CHUNK];
        uint32_t n_rows;
        const void *run_of; // the code run and run that means belong to
        uint32_t run;
};

static size_t attend_carve(struct attend *a, const struct cairn_landmark_request *r, void *base)
{
        struct cairn_scratch scratch = {.base = base};
        size_t queries = r->n_queries;
        (void)cairn_scratch_take(&scratch, sizeof *a);
        a->sums.padded = cairn_round_up(r->layout->shape.v_dim, CAIRN_LANES);
        cairn_query_carve(&scratch, r->layout, r->n_queries, &a->query);
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
        return attend_carve(&a, request, NULL) + sizeof(struct cairn_rotation);
}

static void chunk_scores(struct attend *a)
{
        const struct cairn_landmark_layout *l = a->request->layout;
        for (uint32_t i = 0; i < a->n_rows; i++) {
                const struct cairn_landmark_piece *piece = &a->request->pieces[a->rows[i].piece];
                uint32_t run = a->rows[i].token / l->shape.run_tokens;
                bool centred = piece->code_run && l->centres != CAIRN_LANDMARK_NONE;
                if (centred && (piece->code_run != a->run_of || run != a->run)) {
                        float centre[CAIRN_DIM_PADDED_MAX];
                        cairn_centre_read(l, a->kernels, piece->code_run, run, centre);
                        for (uint32_t q = 0; q < a->query.n; q++)
                                a->sums.means[q] =
                                    a->kernels->dot(a->query.rows + (size_t)q * a->query.padded,
                                                    centre, a->query.padded);
                        a->run_of = piece->code_run;
                        a->run = run;
                }
                cairn_score_row(l, a->kernels, &a->query, piece, a->rows[i].token, a->sums.means, 1,
                                a->sums.scores + i, CHUNK);
        }
        for (uint32_t q = 0; q < a->query.n; q++)
                for (uint32_t i = a->n_rows; i < CHUNK; i++)
                        a->sums.scores[q * CHUNK + i] = -INFINITY;
}

// Adds the rows gathered so far.
static void chunk_add(struct attend *a)
{
        struct accumulator *sums = &a->sums;
        float value[CAIRN_DIM_PADDED_MAX];
        if (a->n_rows == 0)
                return;
        chunk_scores(a);
        for (uint32_t q = 0; q < a->query.n; q++) {
                const float *scores = sums->scores + (size_t)q * CHUNK;
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
                sums->sum[q] = sums->sum[q] + a->kernels->exp_sum(scores, CHUNK, reference);
                a->kernels->exp_weights(scores, CHUNK, reference,
                                        sums->weights + (size_t)q * CHUNK);
        }
        for (uint32_t i = 0; i < a->n_rows && sums->padded; i++) {
                (void)cairn_row_read_v(a->request->layout, a->kernels,
                                       &a->request->pieces[a->rows[i].piece], a->rows[i].token,
                                       value); // non-finite counts as 0
                for (uint32_t q = 0; q < a->query.n; q++)
                        if (sums->weights[q * CHUNK + i] > 0)
                                a->kernels->axpy(value, sums->weights[q * CHUNK + i], sums->padded,
                                                 sums->out + (size_t)q * sums->padded);
        }
        a->n_rows = 0;
}

static void add_row(struct attend *a, const struct cairn_cursor *row)
{
        a->rows[a->n_rows++] = *row;
        if (a->n_rows == CHUNK)
                chunk_add(a);
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
                                        add_row(a, &cursor);
                        }
                }
        }
}

int cairn_landmark_attend(const struct cairn_landmark_request *request, const uint32_t *positions,
                          uint32_t n_positions, void *scratch,
                          struct cairn_landmark_partial *ret_partial)
{
        struct attend *a = scratch;
        struct cairn_cursor cursor = {.pieces = request->pieces, .n_pieces = request->n_pieces};
        uint32_t v_dim = request->layout->shape.v_dim;
        for (uint32_t i = 0; positions && i < n_positions; i++)
                if (!cairn_cursor_seek(&cursor, positions[i]))
                        return CAIRN_ENOENT;
        uint8_t *end = (uint8_t *)scratch + attend_carve(a, request, scratch);
        a->request = request;
        a->kernels = cairn_kernels_chosen();
        a->n_rows = 0;
        a->run_of = NULL;
        cairn_query_prepare(a->kernels, request->layout, request->queries, request->scale,
                            (struct cairn_rotation *)(void *)end, &a->query);
        memset(a->sums.out, 0, (size_t)request->n_queries * a->sums.padded * sizeof(float));
        memset(a->sums.means, 0, request->n_queries * sizeof(float));
        for (uint32_t q = 0; q < request->n_queries; q++) {
                a->sums.max[q] = -INFINITY;
                a->sums.sum[q] = 0;
        }
        if (!positions)
                add_all(a, cursor);
        for (uint32_t i = 0; positions && i < n_positions; i++) {
                (void)cairn_cursor_seek(&cursor, positions[i]); // checked above
                add_row(a, &cursor);
        }
        chunk_add(a);
        for (uint32_t q = 0; q < request->n_queries; q++) {
                bool any = a->sums.max[q] > -INFINITY;
                float sum = a->sums.sum[q], unit = any ? 1.0f / sum : 0;
                ret_partial->lse[q] =
                    any ? (float)((double)a->sums.max[q] + cairn_log(sum)) : -INFINITY;
                for (uint32_t j = 0; j < v_dim; j++)
                        ret_partial->out[(size_t)q * v_dim + j] =
                            a->sums.out[q * a->sums.padded + j] * unit;
        }
        return CAIRN_OK;
}
