// The reference kernels: plain C, the order of operations that all others repeat.
#include <assert.h>

#include "policy/landmark/grid.h"
#include "policy/landmark/kernels.h"
#include "policy/landmark/numeric.h"

static float lanes_total(float lanes[CAIRN_LANES])
{
        for (uint32_t half = CAIRN_LANES / 2; half > 0; half /= 2)
                for (uint32_t i = 0; i < half; i++)
                        lanes[i] = lanes[i] + lanes[i + half];
        return lanes[0];
}

static void table_sums(const uint8_t *codes, uint32_t columns, uint32_t groups,
                       const uint8_t *tables, uint32_t queries, uint16_t *sums, uint32_t stride,
                       const uint8_t *next)
{
        (void)next;
        for (uint32_t q = 0; q < queries; q++) {
                const uint8_t *table = tables + (size_t)q * columns * 2 * CAIRN_GRID_POINTS;
                for (uint32_t i = 0; i < groups * CAIRN_GROUP_TOKENS; i++) {
                        uint32_t group = i / CAIRN_GROUP_TOKENS, token = i % CAIRN_GROUP_TOKENS;
                        const uint8_t *code =
                            codes + (size_t)group * columns * CAIRN_GROUP_TOKENS + token;
                        uint32_t sum = 0;
                        for (uint32_t j = 0; j < columns; j++) {
                                uint8_t byte = code[(size_t)j * CAIRN_GROUP_TOKENS];
                                sum += table[(2 * j) * CAIRN_GRID_POINTS + (byte & 15u)];
                                sum += table[(2 * j + 1) * CAIRN_GRID_POINTS + (byte >> 4)];
                        }
                        sums[(size_t)q * stride + i] = (uint16_t)sum;
                }
        }
}

static void outlier_sums(const uint8_t *rows, uint32_t pairs, uint32_t groups,
                         const int8_t *weights, uint32_t queries, int16_t *sums, uint32_t stride)
{
        for (uint32_t q = 0; q < queries; q++) {
                for (uint32_t i = 0; i < groups * CAIRN_GROUP_TOKENS; i++) {
                        uint32_t group = i / CAIRN_GROUP_TOKENS, token = i % CAIRN_GROUP_TOKENS;
                        const uint8_t *row =
                            rows + (size_t)group * pairs * 2 * CAIRN_GROUP_TOKENS + token * 2;
                        int32_t sum = 0;
                        for (uint32_t p = 0; p < pairs; p++) {
                                const uint8_t *pair = row + (size_t)p * 2 * CAIRN_GROUP_TOKENS;
                                const int8_t *weight = weights + (q * pairs + p) * 2;
                                sum += ((int32_t)pair[0] - 128) * weight[0];
                                sum += ((int32_t)pair[1] - 128) * weight[1];
                        }
                        sums[(size_t)q * stride + i] = (int16_t)sum;
                }
        }
}

static void halves(const uint16_t *from, uint32_t n, float *ret_floats)
{
        for (uint32_t i = 0; i < n; i++)
                ret_floats[i] = cairn_half_to_float(from[i]);
}

static void to_halves(const float *from, uint32_t n, uint16_t *ret_halves)
{
        for (uint32_t i = 0; i < n; i++)
                ret_halves[i] = cairn_half_from_float(from[i]);
}

static float finish(const uint16_t *sums, const int16_t *outliers, const float *scales,
                    uint32_t groups, const struct cairn_score_terms *terms, float *ret_scores)
{
        float max = -INFINITY;
        for (uint32_t i = 0; i < groups * CAIRN_GROUP_TOKENS; i++) {
                float score = fmaf((float)sums[i], terms->unit, terms->base), rest = terms->mean;
                if (outliers)
                        rest = fmaf((float)outliers[i], terms->outlier_unit, rest);
                score = fmaf(score, scales[i], rest);
                ret_scores[i] = score;
                max = score > max ? score : max;
        }
        return max;
}

static float largest(const float *scores, uint32_t n)
{
        float max = -INFINITY;
        for (uint32_t i = 0; i < n; i++)
                max = scores[i] > max ? scores[i] : max;
        return max;
}

static float exp_sum(const float *scores, uint32_t n, float max)
{
        float lanes[CAIRN_LANES] = {0};
        for (uint32_t i = 0; i < n; i++)
                lanes[i % CAIRN_LANES] = lanes[i % CAIRN_LANES] + cairn_exp_floor(scores[i] - max);
        return lanes_total(lanes);
}

static void exp_sums(const float *scores, uint64_t stride, uint32_t queries, uint32_t n,
                     const float *max, float *ret_sums, uint32_t record_stride)
{
        for (uint32_t q = 0; q < queries; q++) {
                float largest = max[(size_t)q * record_stride];
                ret_sums[(size_t)q * record_stride] =
                    exp_sum(scores + q * stride, n, largest > -INFINITY ? largest : 0);
        }
}

static float exp_weights(const float *scores, uint32_t n, float max, float *ret_weights)
{
        float lanes[CAIRN_LANES] = {0};
        for (uint32_t i = 0; i < n; i++) {
                ret_weights[i] = cairn_exp_negative(scores[i] - max);
                lanes[i % CAIRN_LANES] = lanes[i % CAIRN_LANES] + ret_weights[i];
        }
        return lanes_total(lanes);
}

static void rank_max(const float *scores, uint64_t stride, uint32_t queries, const float *lse,
                     uint32_t n, int32_t *ret_keys)
{
        for (uint32_t i = 0; i < n; i++) {
                float best = -INFINITY;
                for (uint32_t q = 0; q < queries; q++) {
                        float rank = scores[q * stride + i] - lse[q];
                        best = rank > best ? rank : best;
                }
                ret_keys[i] = cairn_order_key(best);
        }
}

static void rank_sum(const float *scores, uint64_t stride, uint32_t queries, const float *lse,
                     uint32_t n, int32_t *ret_keys)
{
        for (uint32_t i = 0; i < n; i++) {
                float sum = 0;
                for (uint32_t q = 0; q < queries; q++)
                        sum = sum + cairn_exp_negative(scores[q * stride + i] - lse[q]);
                ret_keys[i] = cairn_order_key(sum);
        }
}

static uint32_t collect(const int32_t *keys, uint32_t n, int32_t threshold, uint32_t first,
                        uint32_t *ret_slots)
{
        uint32_t count = 0;
        for (uint32_t i = 0; i < n; i++) {
                ret_slots[count] = first + i;
                count += keys[i] >= threshold;
        }
        return count;
}

static void row_dots(const int8_t *row, uint32_t bytes, const int16_t *queries, uint32_t n_queries,
                     int32_t *ret_dots)
{
        for (uint32_t q = 0; q < n_queries; q++) {
                const int16_t *query = queries + (size_t)q * bytes;
                int32_t sum = 0;
                for (uint32_t j = 0; j < bytes; j++)
                        sum += row[j] * query[j];
                ret_dots[q] = sum;
        }
}

static void row_scores(const int8_t *row, uint32_t bytes, const int16_t *queries,
                       uint32_t n_queries, float scale, const float *units, const float *means,
                       float *ret_scores)
{
        for (uint32_t q = 0; q < n_queries; q++) {
                int32_t product;
                row_dots(row, bytes, queries + (size_t)q * bytes, 1, &product);
                ret_scores[q] = cairn_score_of(product, scale * units[q], means[q]);
        }
}

static void centre(const int8_t *bytes, float scale, uint32_t n, float *out)
{
        for (uint32_t j = 0; j < n; j++) {
                int32_t i = bytes[j];
                out[j] = (float)(i * (i < 0 ? -i : i)) * scale;
        }
}

static float to_int8(const float *row, uint32_t n, int8_t *ret_bytes)
{
        float max = 0;
        for (uint32_t j = 0; j < n; j++)
                max = fabsf(row[j]) > max ? fabsf(row[j]) : max;
        float inverse = cairn_int8_inverse(max);
        for (uint32_t j = 0; j < n; j++)
                ret_bytes[j] = (int8_t)cairn_round(row[j] * inverse);
        return inverse > 0 ? max * (1.0f / 127.0f) : 0;
}

static void from_int8(const int8_t *bytes, float scale, const float *centre_or_null, uint32_t n,
                      float *out)
{
        for (uint32_t j = 0; j < n; j++) {
                float x = (float)bytes[j];
                out[j] = centre_or_null ? fmaf(x, scale, centre_or_null[j]) : x * scale;
        }
}

static void decode(const int8_t *bytes, float scale, const float *centre_or_null, uint32_t n,
                   uint32_t dtype, bool streamed, void *out)
{
        (void)streamed; // to the caches alone
        float row[CAIRN_DIM_PADDED_MAX];
        uint16_t *halves = out;
        from_int8(bytes, scale, centre_or_null, n, dtype == CAIRN_DTYPE_F32 ? out : row);
        for (uint32_t j = 0; dtype != CAIRN_DTYPE_F32 && j < n; j++)
                halves[j] = dtype == CAIRN_DTYPE_F16 ? cairn_half_from_float(row[j])
                                                     : cairn_bf16_from_float(row[j]);
}

static void fence(void)
{
}

static void add_squares(const float *row, uint32_t n, float *out)
{
        for (uint32_t j = 0; j < n; j++)
                out[j] = out[j] + row[j] * row[j];
}

static float dot(const float *a, const float *b, uint32_t n)
{
        float lanes[CAIRN_LANES] = {0};
        for (uint32_t j = 0; j < n; j++)
                lanes[j % CAIRN_LANES] = lanes[j % CAIRN_LANES] + a[j] * b[j];
        return lanes_total(lanes);
}

static void centre_dots(const int8_t *bytes, float scale, uint32_t n, const float *rows,
                        uint32_t n_rows, float *ret_dots)
{
        float out[CAIRN_DIM_PADDED_MAX];
        centre(bytes, scale, n, out);
        for (uint32_t q = 0; q < n_rows; q++)
                ret_dots[q] = dot(rows + (size_t)q * n, out, n);
}

static void axpy(const float *row, float weight, uint32_t n, float *out)
{
        for (uint32_t j = 0; j < n; j++)
                out[j] = out[j] + row[j] * weight;
}

static void add_rows(const int8_t *const *rows, uint32_t n_rows, uint32_t n, const float *weights,
                     uint32_t weight_stride, uint32_t queries, float *out, uint32_t out_stride)
{
        for (uint32_t q = 0; q < queries; q++)
                for (uint32_t i = 0; i < n_rows; i++) {
                        float weight = weights[(size_t)q * weight_stride + i];
                        float *to = out + (size_t)q * out_stride;
                        for (uint32_t j = 0; j < n; j++)
                                to[j] = fmaf((float)rows[i][j], weight, to[j]);
                }
}

static void hadamard(float *x, uint32_t n)
{
        for (uint32_t h = 1; h < n; h *= 2) {
                for (uint32_t i = 0; i < n; i += 2 * h) {
                        for (uint32_t j = i; j < i + h; j++) {
                                float a = x[j], b = x[j + h];
                                x[j] = a + b;
                                x[j + h] = a - b;
                        }
                }
        }
        float unit = (float)(1.0 / sqrt(n));
        for (uint32_t i = 0; i < n; i++)
                x[i] = x[i] * unit;
}

static void nearest(const float *y, uint32_t subs, float inverse,
                    const struct cairn_grid_floats *grid, uint8_t *ret_codes, float *ret_points)
{
        for (uint32_t s = 0; s < subs; s++) {
                float best = -INFINITY;
                uint32_t code = 0;
                for (uint32_t c = 0; c < CAIRN_GRID_POINTS; c++) {
                        float nearness = -grid->halves[c];
                        for (uint32_t i = 0; i < grid->dims; i++)
                                nearness =
                                    nearness + y[s + i * subs] * inverse * grid->points[c][i];
                        code = nearness > best ? c : code;
                        best = nearness > best ? nearness : best;
                }
                ret_codes[s] = (uint8_t)code;
                for (uint32_t i = 0; i < grid->dims; i++)
                        ret_points[s + i * subs] = grid->points[code][i];
        }
}

static void multiply(float *x, const float *y, uint32_t n)
{
        for (uint32_t j = 0; j < n; j++)
                x[j] = x[j] * y[j];
}

static bool clean(float *row, uint32_t n)
{
        bool finite = true;
        for (uint32_t j = 0; j < n; j++) {
                float x = row[j];
                if (!(fabsf(x) <= FLT_MAX)) {
                        finite = false;
                        x = 0;
                }
                x = x > -CAIRN_ELEMENT_MAX ? x : -CAIRN_ELEMENT_MAX;
                row[j] = x < CAIRN_ELEMENT_MAX ? x : CAIRN_ELEMENT_MAX;
        }
        return finite;
}

static void byte_weights(const float *weights, const uint16_t *scales, uint32_t n,
                         uint8_t *ret_bytes, float *ret_unit)
{
        float products[CAIRN_WEIGHT_TOKENS], lanes[CAIRN_LANES] = {0}, max = 0;
        for (uint32_t t = 0; t < n; t++) {
                products[t] = weights[t] * cairn_half_to_float(scales[t]);
                lanes[t % CAIRN_LANES] = lanes[t % CAIRN_LANES] + products[t];
                max = products[t] > max ? products[t] : max;
        }
        float inverse = cairn_byte_weights_inverse(lanes_total(lanes), max, n);
        for (uint32_t t = 0; t < n; t++)
                ret_bytes[t] = (uint8_t)cairn_round(products[t] * inverse);
        *ret_unit = inverse > 0 ? 1.0f / inverse : 0;
}

static void value_sums(const uint8_t *codes, uint32_t groups, uint32_t blocks, uint32_t bits,
                       const uint8_t *weights, const float *units, uint32_t queries,
                       float *const *outs, const uint8_t *next)
{
        (void)next;
        const struct cairn_grid *grid = cairn_grid_of(bits);
        uint32_t subs = blocks * CAIRN_VALUE_BLOCK_SUBS;
        for (uint32_t q = 0; q < queries; q++) {
                for (uint32_t s = 0; s < subs; s++) {
                        int32_t sums[CAIRN_GRID_DIMS_MAX] = {0};
                        for (uint32_t t = 0; t < groups * CAIRN_GROUP_TOKENS; t++) {
                                const uint8_t *group = codes + (size_t)(t / CAIRN_GROUP_TOKENS) *
                                                                   blocks * CAIRN_VALUE_BLOCK_BYTES;
                                uint32_t code = cairn_value_code(group, s, t % CAIRN_GROUP_TOKENS);
                                for (uint32_t i = 0; i < grid->dims; i++)
                                        sums[i] += weights[q * CAIRN_WEIGHT_TOKENS + t] *
                                                   grid->points[code * grid->dims + i];
                        }
                        for (uint32_t i = 0; i < grid->dims; i++) {
                                float *at = outs[q] + s + i * subs;
                                *at = *at + (float)sums[i] * units[q];
                        }
                }
        }
}

const struct cairn_kernels cairn_kernels_scalar = {
    .isa = CAIRN_ISA_SCALAR,
    .table_sums = table_sums,
    .outlier_sums = outlier_sums,
    .halves = halves,
    .to_halves = to_halves,
    .finish = finish,
    .largest = largest,
    .exp_sum = exp_sum,
    .exp_sums = exp_sums,
    .exp_weights = exp_weights,
    .rank_max = rank_max,
    .rank_sum = rank_sum,
    .collect = collect,
    .row_dots = row_dots,
    .row_scores = row_scores,
    .centre = centre,
    .centre_dots = centre_dots,
    .to_int8 = to_int8,
    .from_int8 = from_int8,
    .decode = decode,
    .fence = fence,
    .add_squares = add_squares,
    .dot = dot,
    .axpy = axpy,
    .add_rows = add_rows,
    .hadamard = hadamard,
    .nearest = nearest,
    .multiply = multiply,
    .clean = clean,
    .byte_weights = byte_weights,
    .value_sums = value_sums,
};
