// The rest: attention over what a selection left out, estimated from landmark scores and value
// codes.
//
// A token's weight is exp(score - log-sum-exp of the rest). Weights times value scales become bytes
// a group of 32 tokens; the value kernel sums bytes times grid points, in the rotated space of the
// codes. Pieces without value codes are summed from their rows.
#include "policy/landmark/selection.h"

static const float skip_default = 4e-3f;

struct rest {
        const struct cairn_landmark_selection *s;
        float *coded;    // [queries][value_dim], rotated
        float *plain;    // [queries][padded]
        uint32_t *heads; // query heads for which the run at hand is summed
        uint32_t n_heads;
        float *weights; // [n_heads][CAIRN_RUN_TOKENS_MAX], of its tokens
        float *kept;    // [queries], weight of what was summed, in units of total
        float skip;     // of the whole: runs that weigh less are not summed
        uint8_t *bytes; // [batch][CAIRN_WEIGHT_TOKENS]
        float *total;   // [queries], log-sum-exp of the whole rest
        float *share;   // [queries], mass of the rest
        float *run_max; // [queries][runs padded], for the log-sum-exp of these pieces
        float *run_sum;
        float *work;
        struct cairn_rotation *rotation;
        uint32_t padded;
        uint32_t runs_padded;
};

static size_t carve(struct rest *r, const struct cairn_landmark_layout *layout, uint32_t n_queries,
                    uint32_t runs_padded, void *base)
{
        struct cairn_scratch scratch = {.base = base};
        size_t queries = n_queries, records = queries * runs_padded;
        r->padded = cairn_round_up(cairn_landmark_out_dim(layout), CAIRN_LANES);
        r->runs_padded = runs_padded;
        r->coded = cairn_scratch_take(&scratch, queries * layout->value_dim * sizeof(float));
        r->plain = cairn_scratch_take(&scratch, queries * r->padded * sizeof(float));
        r->heads = cairn_scratch_take(&scratch, queries * sizeof(uint32_t));
        r->kept = cairn_scratch_take(&scratch, queries * sizeof(float));
        r->weights = cairn_scratch_take(&scratch, queries * CAIRN_RUN_TOKENS_MAX * sizeof(float));
        r->bytes = cairn_scratch_take(&scratch, CAIRN_BATCH * CAIRN_WEIGHT_TOKENS);
        r->total = cairn_scratch_take(&scratch, queries * sizeof(float));
        r->share = cairn_scratch_take(&scratch, queries * sizeof(float));
        r->run_max = cairn_scratch_take(&scratch, records * sizeof(float));
        r->run_sum = cairn_scratch_take(&scratch, records * sizeof(float));
        r->work = cairn_scratch_take(&scratch, runs_padded * sizeof(float));
        r->rotation = cairn_scratch_take(&scratch, sizeof(struct cairn_rotation));
        return scratch.used;
}

static uint32_t count_runs(const struct cairn_landmark_request *request)
{
        uint32_t runs = 0;
        for (uint32_t p = 0; p < request->n_pieces; p++) {
                uint32_t run = cairn_piece_run_tokens(request->layout, &request->pieces[p]);
                runs += (request->pieces[p].n_tokens + run - 1) / run;
        }
        return cairn_round_up(runs, CAIRN_GROUP_TOKENS);
}

size_t cairn_landmark_rest_scratch_bytes(const struct cairn_landmark_request *request)
{
        struct rest r;
        return carve(&r, request->layout, request->n_queries, count_runs(request), NULL);
}

// Whether a run without candidates weighs too little for a query head, as the scan's sums tell; if
// so, they are its record.
static bool is_light(struct rest *r, uint32_t q, uint32_t record)
{
        const struct cairn_landmark_selection *s = r->s;
        size_t at = (size_t)q * s->n_runs_padded + record,
               own = (size_t)q * r->runs_padded + record;
        if (s->touched[record])
                return false;
        float below = s->run_max[at] - r->total[q];
        float weight = below < 0 ? s->run_sum[at] * cairn_exp_negative(below) : 1;
        if (!(weight * r->share[q] < r->skip))
                return false;
        r->run_max[own] = s->run_max[at];
        r->run_sum[own] = s->run_sum[at];
        return true;
}

// Weights of a run's tokens for the query heads for which they are worth summing, whose numbers are
// left in r->heads. Scores of chosen tokens are -inf by now.
static void run_weights(struct rest *r, uint32_t base, uint32_t n, uint32_t record)
{
        const struct cairn_landmark_selection *s = r->s;
        r->n_heads = 0;
        for (uint32_t q = 0; q < s->n_queries; q++) {
                float *weights = r->weights + (size_t)r->n_heads * CAIRN_RUN_TOKENS_MAX;
                const float *scores = s->scores + (size_t)q * s->score_stride + base;
                float total = r->total[q];
                if (total == -INFINITY || is_light(r, q, record))
                        continue;
                float sum = s->kernels->exp_weights(scores, n, total, weights);
                r->run_max[(size_t)q * r->runs_padded + record] = sum > 0 ? total : -INFINITY;
                r->run_sum[(size_t)q * r->runs_padded + record] = sum;
                if (!(sum * r->share[q] >= r->skip))
                        continue;
                r->kept[q] = r->kept[q] + sum;
                r->heads[r->n_heads++] = q;
        }
}

// The value codes behind those of this piece that end at token `end`: of the next piece behind the
// last. NULL: there are none.
static const uint8_t *next_codes(const struct rest *r, const struct cairn_landmark_piece *piece,
                                 uint32_t end, uint32_t group_bytes)
{
        const struct cairn_landmark_request *request = r->s->request;
        if (end >= piece->n_tokens) {
                end = 0;
                if (++piece == request->pieces + request->n_pieces)
                        return NULL;
        }
        if (!piece->code_run)
                return NULL;
        const uint8_t *code_run = piece->code_run;
        const uint8_t *scales = code_run + r->s->layout->value_scales + (size_t)end * 2;
        for (uint32_t at = 0; at < CAIRN_WEIGHT_TOKENS * 2; at += 64)
                __builtin_prefetch(scales + at);
        return code_run + r->s->layout->value_codes +
               (size_t)(end / CAIRN_GROUP_TOKENS) * group_bytes;
}

static void add_coded(struct rest *r, const struct cairn_landmark_piece *piece, uint32_t first,
                      uint32_t n)
{
        const struct cairn_landmark_selection *s = r->s;
        const struct cairn_landmark_layout *l = s->layout;
        uint32_t bits = l->shape.value_bits, group_bytes = l->value_dim * bits * 4;
        uint32_t blocks = group_bytes / CAIRN_VALUE_BLOCK_BYTES;
        const uint8_t *code_run = piece->code_run;
        float step = cairn_grid_of(bits)->step;
        for (uint32_t t = 0; t < n; t += CAIRN_WEIGHT_TOKENS) {
                uint32_t group = (first + t) / CAIRN_GROUP_TOKENS;
                uint32_t tokens = cairn_min_u32(n - t, CAIRN_WEIGHT_TOKENS);
                uint32_t groups = tokens / CAIRN_GROUP_TOKENS;
                const uint8_t *codes = code_run + l->value_codes + (size_t)group * group_bytes;
                const uint16_t *scales =
                    (const uint16_t *)(const void *)(code_run + l->value_scales +
                                                     (size_t)(first + t) * 2);
                const uint8_t *next = next_codes(r, piece, first + t + tokens, group_bytes);
                for (uint32_t h = 0; h < r->n_heads; h += CAIRN_BATCH) {
                        uint32_t batch = cairn_min_u32(r->n_heads - h, CAIRN_BATCH);
                        float units[CAIRN_BATCH], *outs[CAIRN_BATCH];
                        for (uint32_t i = 0; i < batch; i++) {
                                s->kernels->byte_weights(
                                    r->weights + (size_t)(h + i) * CAIRN_RUN_TOKENS_MAX + t, scales,
                                    tokens, r->bytes + i * CAIRN_WEIGHT_TOKENS, &units[i]);
                                units[i] = units[i] * step;
                                outs[i] = r->coded + (size_t)r->heads[h + i] * l->value_dim;
                        }
                        s->kernels->value_sums(codes, groups, blocks, bits, r->bytes, units, batch,
                                               outs, h == 0 ? next : NULL);
                }
        }
}

// Adds the centre of a run whose value codes are of centred keys.
static void add_centre(struct rest *r, const struct cairn_landmark_piece *piece, uint32_t first,
                       uint32_t record)
{
        const struct cairn_landmark_selection *s = r->s;
        float centre[CAIRN_DIM_PADDED_MAX];
        cairn_centre_read(s->layout, s->kernels, piece->code_run,
                          first / s->layout->shape.run_tokens, centre);
        for (uint32_t h = 0; h < r->n_heads; h++) {
                size_t q = r->heads[h];
                s->kernels->axpy(centre, r->run_sum[q * r->runs_padded + record], r->padded,
                                 r->plain + q * r->padded);
        }
}

static void add_rows(struct rest *r, const struct cairn_landmark_piece *piece, uint32_t first,
                     uint32_t n)
{
        const struct cairn_landmark_selection *s = r->s;
        struct cairn_row_reader reader = {.layout = s->layout, .kernels = s->kernels};
        float row[CAIRN_DIM_PADDED_MAX];
        for (uint32_t t = 0; t < n; t++) {
                if (s->layout->shape.v_prefix) // non-finite counts as 0, or weighs nothing
                        (void)cairn_row_read_k(&reader, piece, first + t, row);
                else
                        (void)cairn_row_read_v(s->layout, s->kernels, piece, first + t, row);
                for (uint32_t h = 0; h < r->n_heads; h++) {
                        float weight = r->weights[(size_t)h * CAIRN_RUN_TOKENS_MAX + t];
                        if (weight > 0)
                                s->kernels->axpy(row, weight, r->padded,
                                                 r->plain + (size_t)r->heads[h] * r->padded);
                }
        }
}

static void add_piece(struct rest *r, uint32_t p)
{
        const struct cairn_landmark_selection *s = r->s;
        const struct cairn_landmark_piece *piece = &s->request->pieces[p];
        uint32_t run_tokens = cairn_piece_run_tokens(s->layout, piece);
        for (uint32_t first = 0; first < piece->n_tokens; first += run_tokens) {
                uint32_t n = cairn_min_u32(piece->n_tokens - first, run_tokens);
                uint32_t padded = cairn_round_up(n, CAIRN_GROUP_TOKENS);
                uint32_t record = s->run_base[p] + first / run_tokens;
                run_weights(r, s->slot_base[p] + first, padded, record);
                if (r->n_heads == 0)
                        continue;
                bool coded = piece->code_run && s->layout->shape.value_bits;
                if (coded)
                        add_coded(r, piece, first, padded);
                if (coded && s->layout->shape.v_prefix)
                        add_centre(r, piece, first, record);
                if (!coded && r->padded)
                        add_rows(r, piece, first, n);
        }
}

static void write_partial(struct rest *r, struct cairn_landmark_partial *ret)
{
        const struct cairn_landmark_selection *s = r->s;
        uint32_t out_dim = cairn_landmark_out_dim(s->layout), value_dim = s->layout->value_dim;
        if (value_dim)
                cairn_rotation_init(r->rotation, value_dim);
        for (uint32_t q = 0; q < s->n_queries; q++) {
                size_t at = (size_t)q * r->runs_padded;
                float lse = cairn_lse_of_runs(s->kernels, r->run_max + at, r->run_sum + at,
                                              r->runs_padded, r->work);
                bool some = lse > -INFINITY; // a share too small for a float counts as nothing
                float share = some ? cairn_exp_negative(lse - r->total[q]) : 0;
                float unit = share > 0 && r->kept[q] > 0 ? 1.0f / r->kept[q] : 0;
                if (value_dim)
                        cairn_rotate_back(s->kernels, r->rotation,
                                          r->coded + (size_t)q * value_dim);
                some = share > 0;
                ret->lse[q] = some ? lse : -INFINITY;
                for (uint32_t j = 0; j < out_dim; j++) {
                        float x = r->plain[(size_t)q * r->padded + j];
                        x = value_dim ? x + r->coded[(size_t)q * value_dim + j] : x;
                        ret->out[(size_t)q * out_dim + j] = some ? x * unit : 0;
                }
        }
}

void cairn_landmark_rest(const struct cairn_landmark_selection *selection, uint32_t first_piece,
                         uint32_t n_pieces, float skip, void *scratch,
                         struct cairn_landmark_partial *ret_partial)
{
        const struct cairn_landmark_selection *s = selection;
        struct rest r = {.s = s};
        (void)carve(&r, s->layout, s->n_queries, s->n_runs_padded, scratch);
        size_t records = (size_t)s->n_queries * r.runs_padded;
        r.skip = (skip == 0 ? skip_default : skip) / (float)(s->n_runs ? s->n_runs : 1);
        memset(r.kept, 0, s->n_queries * sizeof(float));
        memset(r.coded, 0, (size_t)s->n_queries * s->layout->value_dim * sizeof(float));
        memset(r.plain, 0, (size_t)s->n_queries * r.padded * sizeof(float));
        for (size_t i = 0; i < records; i++) {
                r.run_max[i] = -INFINITY;
                r.run_sum[i] = 0;
        }
        for (uint32_t q = 0; q < s->n_queries; q++) {
                r.total[q] = s->lse_rest[q];
                r.share[q] = cairn_exp_negative(r.total[q] - s->lse[q]);
        }
        for (uint32_t p = first_piece; p < first_piece + n_pieces; p++)
                add_piece(&r, p);
        write_partial(&r, ret_partial);
}
