// Scores tokens by rows and by chunks of rows, and passes over pieces; codes.c scores by codes.
#include <assert.h>

#include "policy/landmark/selection.h"

// ---- Rows of a piece ----

const float *cairn_row_centre(struct cairn_row_reader *reader, const void *code_run, uint32_t run)
{
        if (reader->code_run != code_run || reader->run != run) {
                cairn_centre_read(reader->layout, reader->kernels, code_run, run, reader->centre);
                reader->code_run = code_run;
                reader->run = run;
        }
        return reader->centre;
}

// The coded K row, plus its centre unless that is NULL.
static void read_k_coded(const struct cairn_landmark_layout *layout,
                         const struct cairn_kernels *kernels, const uint8_t *code_run,
                         uint32_t token, const float *centre, float *ret_row)
{
        const uint8_t *row = code_run + layout->k_rows + (size_t)token * layout->k_row_bytes;
        uint32_t padded = cairn_round_up(layout->shape.k_dim, CAIRN_LANES);
        if (layout->shape.k_codec == CAIRN_ROW_Q4) {
                cairn_q4_decode(row, layout->shape.k_dim, padded, ret_row);
                for (uint32_t j = 0; centre && j < padded; j++)
                        ret_row[j] = ret_row[j] + centre[j];
                return;
        }
        float scale;
        memcpy(&scale, code_run + layout->k_row_scales + (size_t)token * 4, 4);
        kernels->from_int8((const int8_t *)row, scale, centre, padded, ret_row);
}

bool cairn_row_read_k(struct cairn_row_reader *reader, const struct cairn_landmark_piece *piece,
                      uint32_t token, float *ret_row)
{
        const struct cairn_landmark_layout *l = reader->layout;
        uint32_t padded = cairn_round_up(l->shape.k_dim, CAIRN_LANES);
        if (cairn_piece_is_raw(piece, l->shape.k_codec)) {
                size_t bytes = (size_t)l->shape.k_dim * cairn_dtype_bytes(l->shape.dtype);
                return cairn_row_from_raw(reader->kernels,
                                          (const uint8_t *)piece->k_raw + token * bytes,
                                          l->shape.dtype, l->shape.k_dim, padded, ret_row);
        }
        const float *centre =
            cairn_row_centre(reader, piece->code_run, token / l->shape.run_tokens);
        read_k_coded(l, reader->kernels, piece->code_run, token, centre, ret_row);
        return ret_row[0] == ret_row[0];
}

bool cairn_row_read_v(const struct cairn_landmark_layout *layout,
                      const struct cairn_kernels *kernels, const struct cairn_landmark_piece *piece,
                      uint32_t token, float *ret_row)
{
        const struct cairn_landmark_shape *s = &layout->shape;
        uint32_t padded = cairn_round_up(s->v_dim, CAIRN_LANES);
        if (cairn_piece_is_raw(piece, s->v_codec)) {
                size_t bytes = (size_t)s->v_dim * cairn_dtype_bytes(s->dtype);
                return cairn_row_from_raw(kernels, (const uint8_t *)piece->v_raw + token * bytes,
                                          s->dtype, s->v_dim, padded, ret_row);
        }
        const uint8_t *code_run = piece->code_run;
        const uint8_t *row = code_run + layout->v_rows + (size_t)token * layout->v_row_bytes;
        if (s->v_codec == CAIRN_ROW_Q4) {
                cairn_q4_decode(row, s->v_dim, padded, ret_row);
                return true;
        }
        float scale;
        memcpy(&scale, code_run + layout->v_row_scales + (size_t)token * 4, 4);
        kernels->from_int8((const int8_t *)row, scale, NULL, padded, ret_row);
        return true;
}

// ---- Scores by rows ----

// NaN becomes -inf, +inf the largest float.
static float sane(float score)
{
        score = score > -INFINITY ? score : -INFINITY;
        return score < FLT_MAX ? score : FLT_MAX;
}

static void score_int8(const struct cairn_kernels *kernels, const struct cairn_query *query,
                       const int8_t *row, float scale, const float *means, uint32_t mean_stride,
                       float *ret_scores, uint64_t score_stride)
{
        float near[CAIRN_GROUP_MAX], scores[CAIRN_GROUP_MAX];
        for (uint32_t q = 0; q < query->n; q++)
                near[q] = means[(size_t)q * mean_stride];
        kernels->row_scores(row, query->padded, query->whole, query->n, scale, query->whole_units,
                            near, scores);
        for (uint32_t q = 0; q < query->n; q++)
                ret_scores[q * score_stride] = scores[q];
}

// By a row that is not int8.
static void score_floats(const struct cairn_landmark_layout *layout,
                         const struct cairn_kernels *kernels, const struct cairn_query *query,
                         const struct cairn_landmark_piece *piece, uint32_t token,
                         const float *means, uint32_t mean_stride, float *ret_scores,
                         uint32_t score_stride)
{
        float row[CAIRN_DIM_PADDED_MAX];
        bool raw = cairn_piece_is_raw(piece, layout->shape.k_codec), finite = true;
        if (raw) {
                size_t bytes = (size_t)layout->shape.k_dim * cairn_dtype_bytes(layout->shape.dtype);
                finite = cairn_row_from_raw(kernels, (const uint8_t *)piece->k_raw + token * bytes,
                                            layout->shape.dtype, layout->shape.k_dim, query->padded,
                                            row);
        } else {
                read_k_coded(layout, kernels, piece->code_run, token, NULL, row);
        }
        for (uint32_t q = 0; q < query->n; q++) {
                float score =
                    kernels->dot(query->rows + (size_t)q * query->padded, row, query->padded);
                score = raw ? score : score + means[(size_t)q * mean_stride];
                ret_scores[(size_t)q * score_stride] = finite ? sane(score) : -INFINITY;
        }
}

void cairn_score_row(const struct cairn_landmark_layout *layout,
                     const struct cairn_kernels *kernels, const struct cairn_query *query,
                     const struct cairn_landmark_piece *piece, uint32_t token, const float *means,
                     uint32_t mean_stride, float *ret_scores, uint32_t score_stride)
{
        const uint8_t *code_run = piece->code_run;
        float scale;
        if (cairn_piece_is_raw(piece, layout->shape.k_codec) ||
            layout->shape.k_codec != CAIRN_ROW_Q8) {
                score_floats(layout, kernels, query, piece, token, means, mean_stride, ret_scores,
                             score_stride);
                return;
        }
        memcpy(&scale, code_run + layout->k_row_scales + (size_t)token * 4, 4);
        score_int8(kernels, query,
                   (const int8_t *)code_run + layout->k_rows + (size_t)token * layout->k_row_bytes,
                   scale, means, mean_stride, ret_scores, score_stride);
}

// ---- Scores by codes of 8 bits ----

static void scan_int8(const struct cairn_landmark_layout *layout,
                      const struct cairn_kernels *kernels, const struct cairn_query *query,
                      const uint8_t *code_run, uint32_t token, const float *means, uint32_t stride,
                      float *ret_scores, uint64_t score_stride)
{
        uint16_t half;
        memcpy(&half, code_run + layout->scales + (size_t)token * 2, 2);
        score_int8(kernels, query,
                   (const int8_t *)code_run + layout->codes + (size_t)token * query->padded,
                   cairn_half_to_float(half), means, stride, ret_scores, score_stride);
}

// ---- Scores by chunks of rows, to compare ----

// Mean, or for bounds minimum and maximum, of the chunk's finite keys. Returns how many those are.
static uint32_t chunk_summary(const struct cairn_landmark_selection *s,
                              const struct cairn_landmark_piece *piece, uint32_t first, uint32_t n,
                              struct cairn_row_reader *reader, float *low, float *high)
{
        uint32_t padded = s->query.padded, finite = 0;
        bool mean = s->request->kind == CAIRN_LANDMARK_CHUNK_MEAN;
        float row[CAIRN_DIM_PADDED_MAX];
        memset(low, 0, padded * sizeof(float));
        memset(high, 0, padded * sizeof(float));
        for (uint32_t t = 0; t < n; t++) {
                if (!cairn_is_present(s->request, piece->position + first + t) ||
                    !cairn_row_read_k(reader, piece, first + t, row))
                        continue;
                for (uint32_t j = 0; j < padded; j++) {
                        if (mean)
                                low[j] = low[j] + row[j];
                        else {
                                low[j] = finite == 0 || row[j] < low[j] ? row[j] : low[j];
                                high[j] = finite == 0 || row[j] > high[j] ? row[j] : high[j];
                        }
                }
                finite++;
        }
        for (uint32_t j = 0; mean && finite && j < padded; j++)
                low[j] = low[j] / (float)finite;
        return finite;
}

static void scan_chunk(const struct cairn_landmark_selection *s,
                       const struct cairn_landmark_piece *piece, uint32_t first, uint32_t n,
                       struct cairn_row_reader *reader, float *scores)
{
        float low[CAIRN_DIM_PADDED_MAX], high[CAIRN_DIM_PADDED_MAX];
        uint32_t finite = chunk_summary(s, piece, first, n, reader, low, high);
        for (uint32_t q = 0; q < s->n_queries; q++) {
                const float *query = s->query.rows + (size_t)q * s->query.padded;
                float score = 0;
                if (s->request->kind == CAIRN_LANDMARK_CHUNK_MEAN)
                        score = s->kernels->dot(query, low, s->query.padded);
                else
                        for (uint32_t j = 0; j < s->query.padded; j++) {
                                float a = query[j] * low[j], b = query[j] * high[j];
                                score = score + (a > b ? a : b);
                        }
                for (uint32_t t = 0; t < n; t++)
                        scores[(size_t)q * s->score_stride + t] = finite ? sane(score) : -INFINITY;
        }
}

// ---- The pass ----

bool cairn_excluded_next(const struct cairn_landmark_request *request, uint32_t first, uint32_t end,
                         uint32_t *ret_first, uint32_t *ret_end)
{
        uint32_t low = 0, high = request->n_excluded;
        while (low < high) { // the first range that ends behind `first`
                uint32_t middle = (low + high) / 2;
                if (request->excluded[middle].end > first)
                        high = middle;
                else
                        low = middle + 1;
        }
        if (low == request->n_excluded || request->excluded[low].first >= end)
                return false;
        uint32_t from = request->excluded[low].first;
        *ret_first = from > first ? from : first;
        *ret_end = cairn_min_u32(request->excluded[low].end, end);
        return *ret_first < *ret_end;
}

// Sums up the scores of the run's excluded tokens, for the record of the run.
static void weigh_held(struct cairn_landmark_selection *s, const struct cairn_landmark_piece *piece,
                       uint32_t first, uint32_t n, uint32_t record, const float *scores)
{
        uint32_t at = piece->position + first, padded = cairn_round_up(n, CAIRN_GROUP_TOKENS);
        uint32_t end = at + n, from, to;
        float held[CAIRN_RUN_TOKENS_MAX];

        for (uint32_t q = 0; q < s->n_queries; q++) {
                const float *row = scores + (size_t)q * s->score_stride;
                size_t to_record = (size_t)q * s->n_runs_padded + record;

                for (uint32_t t = 0; t < padded; t++)
                        held[t] = -INFINITY;
                for (uint32_t p = at; cairn_excluded_next(s->request, p, end, &from, &to); p = to)
                        memcpy(held + (from - at), row + (from - at), (to - from) * sizeof(float));
                float max = s->kernels->largest(held, padded);
                s->held_max[to_record] = max;
                s->held_sum[to_record] =
                    s->kernels->exp_sum(held, padded, max > -INFINITY ? max : 0);
        }
}

// Lowers to -inf what was dropped. Returns whether any token was.
static bool blank_dropped(struct cairn_landmark_selection *s, uint32_t at, uint32_t n,
                          float *scores)
{
        bool any = false;
        if (!s->request->present || at >= s->request->present_end)
                return false;
        for (uint32_t t = 0; t < n; t++) {
                if (cairn_is_present(s->request, at + t))
                        continue;
                any = true;
                for (uint32_t q = 0; q < s->n_queries; q++)
                        scores[(size_t)q * s->score_stride + t] = -INFINITY;
        }
        return any;
}

// Lowers to -inf what may not be chosen among the run's slots. Returns whether any token was.
static bool blank(struct cairn_landmark_selection *s, const struct cairn_landmark_piece *piece,
                  uint32_t first, uint32_t n, uint32_t record, float *scores)
{
        uint32_t padded = cairn_round_up(n, CAIRN_GROUP_TOKENS), at = piece->position + first;
        uint32_t end = at + n, from, to;
        bool any = blank_dropped(s, at, n, scores) || padded > n;
        if (!s->request->lse_held && cairn_excluded_next(s->request, at, end, &from, &to))
                weigh_held(s, piece, first, n, record, scores);
        for (uint32_t q = 0; q < s->n_queries; q++)
                for (uint32_t t = n; t < padded; t++)
                        scores[(size_t)q * s->score_stride + t] = -INFINITY;
        for (uint32_t p = at; cairn_excluded_next(s->request, p, end, &from, &to); p = to) {
                any = true;
                for (uint32_t q = 0; q < s->n_queries; q++)
                        for (uint32_t t = from - at; t < to - at; t++)
                                scores[(size_t)q * s->score_stride + t] = -INFINITY;
        }
        return any;
}

// Fills the scores of one run of a piece; returns whether its maxima and sums were filled too.
static bool score_run(struct cairn_landmark_selection *s, const struct cairn_landmark_piece *piece,
                      uint32_t run, uint32_t n, uint32_t record, float *scores)
{
        const struct cairn_landmark_layout *l = s->layout;
        uint32_t first = run * cairn_piece_run_tokens(l, piece), stride = s->n_runs_padded;
        uint32_t chunk = s->request->chunk_tokens;
        float *means = s->run_mean + record;
        bool by_codes = piece->code_run && s->query.subs;
        if (by_codes && s->request->kind == CAIRN_LANDMARK_TOKENS) {
                const struct cairn_landmark_piece *last =
                    s->request->pieces + s->request->n_pieces - 1;
                const uint8_t *next = piece->code_run;
                if (first + n >= piece->n_tokens)
                        next = piece < last ? piece[1].code_run : NULL;
                struct cairn_run_records records = {s->run_max + record, s->run_sum + record, means,
                                                    stride};
                cairn_scan_codes(l, s->kernels, &s->query, piece->code_run, run, n, next, scores,
                                 s->score_stride, &records);
                return true;
        }
        if (piece->code_run && l->centres != CAIRN_LANDMARK_NONE)
                cairn_run_means(l, s->kernels, &s->query, piece->code_run, run, means, stride);
        if (s->request->kind != CAIRN_LANDMARK_TOKENS) {
                // Not above: clearing it costs more than a run's exponentials.
                struct cairn_row_reader reader = {.layout = l, .kernels = s->kernels};
                for (uint32_t t = 0; t < n; t += chunk)
                        scan_chunk(s, piece, first + t, cairn_min_u32(n - t, chunk), &reader,
                                   scores + t);
                return false;
        }
        if (cairn_scan_rows(l, s->kernels, &s->query, piece, first, n, means, stride, scores,
                            s->score_stride))
                return false;
        for (uint32_t t = 0; t < n; t++) {
                if (piece->code_run && l->shape.landmark_bits == 8)
                        scan_int8(l, s->kernels, &s->query, piece->code_run, first + t, means,
                                  stride, scores + t, s->score_stride);
                else
                        cairn_score_row(l, s->kernels, &s->query, piece, first + t, means, stride,
                                        scores + t, s->score_stride);
        }
        return false;
}

// Scores one run of piece p, with its records.
static void scan_run(struct cairn_landmark_selection *s, uint32_t p, uint32_t run)
{
        const struct cairn_landmark_piece *piece = &s->request->pieces[p];
        uint32_t run_tokens = cairn_piece_run_tokens(s->layout, piece);
        uint32_t first = run * run_tokens, record = s->run_base[p] + run;
        uint32_t n = cairn_min_u32(piece->n_tokens - first, run_tokens);
        uint32_t padded = cairn_round_up(n, CAIRN_GROUP_TOKENS);
        float *scores = s->scores + s->slot_base[p] + first;
        bool weighed = score_run(s, piece, run, n, record, scores);
        weighed = !blank(s, piece, first, n, record, scores) && weighed;
        for (uint32_t q = 0; q < s->n_queries && !weighed; q++) {
                const float *row = scores + (size_t)q * s->score_stride;
                size_t at = (size_t)q * s->n_runs_padded + record;
                float max = s->kernels->largest(row, padded);
                s->run_max[at] = max;
                s->run_sum[at] = s->kernels->exp_sum(row, padded, max > -INFINITY ? max : 0);
        }
}

void cairn_landmark_select_scan(struct cairn_landmark_selection *s, uint32_t first_piece,
                                uint32_t n_pieces)
{
        assert(first_piece + n_pieces <= s->request->n_pieces);
        for (uint32_t p = first_piece; p < first_piece + n_pieces; p++) {
                const struct cairn_landmark_piece *piece = &s->request->pieces[p];
                uint32_t run_tokens = cairn_piece_run_tokens(s->layout, piece);
                for (uint32_t run = 0; run * run_tokens < piece->n_tokens; run++)
                        scan_run(s, p, run);
        }
}
