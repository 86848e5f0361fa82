// The float kernels of every vector instruction set, by the compiler's vector types: the same
// operations in the same order as score_scalar.c, LANES at a time. The including file first defines
// LANES (4, 8 or 16), and afterwards, for its ISA, body_halves (LANES fp16 to floats) and body_mask
// (bit i: keys[i] >= threshold, of 32 keys). May be included by: score_avx2.c, score_avx512.c,
// score_neon.c. May use: no intrinsics.
#ifndef CAIRN_LANDMARK_SCORE_BODY_H
#define CAIRN_LANDMARK_SCORE_BODY_H

#ifndef LANES
#error "define LANES before including score_body.h"
#endif

#define BODY static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));
typedef float vf_at __attribute__((vector_size(LANES * 4), aligned(4), may_alias));   // in memory
typedef int32_t vi_at __attribute__((vector_size(LANES * 4), aligned(4), may_alias)); // in memory
typedef int16_t vs __attribute__((vector_size(LANES * 2)));
typedef uint16_t vus __attribute__((vector_size(LANES * 2)));
typedef int8_t vb __attribute__((vector_size(LANES)));

// What the including file defines for its ISA.
BODY vf body_max(vf a, vf b);                 // a > b ? a : b
BODY vf body_fma(vf a, vf b, vf c);           // a * b + c, rounded once
BODY vi body_blend(vi mask, vi a, vi b);      // mask ? a : b, for masks of all bits or none
BODY vf body_halves(const uint16_t *at);      // LANES fp16 to floats
BODY vf body_from_uint16(const uint16_t *at); // LANES integers to floats
BODY vf body_from_int16(const int16_t *at);
BODY vi body_from_int8(const int8_t *at);
BODY void body_to_bytes(vi x, int8_t *at); // the low bytes of integers in -128..255
BODY uint32_t body_mask(const int32_t *keys,
                        int32_t threshold);         // bit i: keys[i] >= threshold, of 32
BODY vf body_pick(const float table[16], vi index); // table[index[i]], indices below 16
// Stores; streamed: past the caches, to an aligned place.
BODY void body_put(vf x, float *at, const bool streamed);
BODY void body_put_halves(vf x, uint16_t *at, const bool streamed); // to nearest even
BODY void body_put_low(vi x, uint16_t *at, const bool streamed);    // of integers in 0..65535
BODY vf body_swap(vf x, uint32_t h); // lane i gets lane i ^ h; h a constant below LANES

enum {
        PARTS = CAIRN_LANES / LANES
}; // vectors that hold the 16 lanes of a sum

BODY vf body_load(const float *at)
{
        return (vf) * (const vf_at *)at;
}

BODY void body_store(float *at, vf x)
{
        *(vf_at *)at = (vf_at)x; // no memcpy: checked copies would stay calls
}

BODY vf body_all(float x)
{
        return x - (vf){0};
}

BODY vi body_round(vf x)
{
        return (vi)(x + 12582912.0f) - 0x4b400000;
}

// cairn_exp_floor
BODY vf body_exp_floor(vf x)
{
        vf t = body_max(x, body_all(CAIRN_EXP_LOWEST)), log2e = body_all(CAIRN_EXP_LOG2E);
        vf shifted = body_fma(t, log2e, body_all(CAIRN_EXP_ROUND));
        vf f = body_fma(t, log2e, body_all(CAIRN_EXP_ROUND) - shifted);
        vf p = body_fma(body_all(CAIRN_EXP_C5), f, body_all(CAIRN_EXP_C4));
        p = body_fma(p, f, body_all(CAIRN_EXP_C3));
        p = body_fma(p, f, body_all(CAIRN_EXP_C2));
        p = body_fma(p, f, body_all(CAIRN_EXP_C1));
        p = body_fma(p, f, body_all(1.0f));
        return (vf)((vi)p + ((vi)shifted << 23));
}

// cairn_exp_negative
BODY vf body_exp(vf x)
{
        return (vf)((vi)body_exp_floor(x) & (x > body_all(CAIRN_EXP_LOWEST)));
}

BODY float body_total(const vf parts[PARTS])
{
        vf sums[PARTS];
        CAIRN_UNROLL
        for (uint32_t i = 0; i < PARTS; i++)
                sums[i] = parts[i];
        CAIRN_UNROLL
        for (uint32_t half = PARTS / 2; half > 0; half /= 2)
                for (uint32_t i = 0; i < half; i++)
                        sums[i] = sums[i] + sums[i + half];
        vf x = sums[0];
        CAIRN_UNROLL
        for (uint32_t h = LANES / 2; h > 0; h /= 2)
                x = x + body_swap(x, h);
        return x[0];
}

BODY float body_highest(vf x)
{
        CAIRN_UNROLL
        for (uint32_t h = LANES / 2; h > 0; h /= 2)
                x = body_max(x, body_swap(x, h));
        return x[0];
}

static void body_halves_all(const uint16_t *halves, uint32_t n, float *ret_floats)
{
        for (uint32_t i = 0; i < n; i += LANES)
                body_store(ret_floats + i, body_halves(halves + i));
}

BODY float body_finish_as(const uint16_t *sums, const int16_t *outliers, const float *scales,
                          uint32_t n, const struct cairn_score_terms *terms, float *ret_scores,
                          const bool with_outliers)
{
        vf max = body_all(-INFINITY), unit = body_all(terms->unit), base = body_all(terms->base);
        vf outlier_unit = body_all(terms->outlier_unit), mean = body_all(terms->mean);
        for (uint32_t i = 0; i < n; i += LANES) {
                vf score = body_fma(body_from_uint16(sums + i), unit, base), rest = mean;
                if (with_outliers)
                        rest = body_fma(body_from_int16(outliers + i), outlier_unit, rest);
                score = body_fma(score, body_load(scales + i), rest);
                body_store(ret_scores + i, score);
                max = body_max(score, max);
        }
        return body_highest(max);
}

static float body_finish(const uint16_t *sums, const int16_t *outliers, const float *scales,
                         uint32_t groups, const struct cairn_score_terms *terms, float *ret_scores)
{
        uint32_t n = groups * CAIRN_GROUP_TOKENS;
        if (outliers)
                return body_finish_as(sums, outliers, scales, n, terms, ret_scores, true);
        return body_finish_as(sums, NULL, scales, n, terms, ret_scores, false);
}

static float body_largest(const float *scores, uint32_t n)
{
        vf max = body_all(-INFINITY);
        for (uint32_t i = 0; i < n; i += LANES)
                max = body_max(body_load(scores + i), max);
        return body_highest(max);
}

BODY void body_exp_parts(const float *scores, uint32_t n, float max, vf parts[PARTS])
{
        CAIRN_UNROLL
        for (uint32_t p = 0; p < PARTS; p++)
                parts[p] = (vf){0};
        for (uint32_t i = 0; i < n; i += CAIRN_LANES)
                CAIRN_UNROLL
        for (uint32_t p = 0; p < PARTS; p++)
                parts[p] = parts[p] + body_exp_floor(body_load(scores + i + p * LANES) - max);
}

static float body_exp_sum(const float *scores, uint32_t n, float max)
{
        vf parts[PARTS];
        body_exp_parts(scores, n, max, parts);
        return body_total(parts);
}

// Totals last: until then no query waits for another.
static void body_exp_sums(const float *scores, uint64_t stride, uint32_t queries, uint32_t n,
                          const float *max, float *ret_sums, uint32_t record_stride)
{
        for (uint32_t q = 0; q < queries; q += CAIRN_BATCH) {
                vf parts[CAIRN_BATCH][PARTS];
                uint32_t batch = queries - q < CAIRN_BATCH ? queries - q : CAIRN_BATCH;
                for (uint32_t i = 0; i < batch; i++) {
                        float largest = max[(size_t)(q + i) * record_stride];
                        body_exp_parts(scores + (q + i) * stride, n,
                                       largest > -INFINITY ? largest : 0, parts[i]);
                }
                for (uint32_t i = 0; i < batch; i++)
                        ret_sums[(size_t)(q + i) * record_stride] = body_total(parts[i]);
        }
}

static float body_exp_weights(const float *scores, uint32_t n, float max, float *ret_weights)
{
        vf parts[PARTS] = {{0}};
        for (uint32_t i = 0; i < n; i += CAIRN_LANES)
                CAIRN_UNROLL
        for (uint32_t p = 0; p < PARTS; p++) {
                vf x = body_exp(body_load(scores + i + p * LANES) - max);
                body_store(ret_weights + i + p * LANES, x);
                parts[p] = parts[p] + x;
        }
        return body_total(parts);
}

BODY void body_store_keys(vf x, int32_t *ret_keys)
{
        vi bits = (vi)(x + 0.0f);
        bits = bits ^ ((bits >> 31) & 0x7fffffff);
        *(vi_at *)ret_keys = (vi_at)bits;
}

static void body_rank_max(const float *scores, uint64_t stride, uint32_t queries, const float *lse,
                          uint32_t n, int32_t *ret_keys)
{
        for (uint32_t i = 0; i < n; i += LANES) {
                vf best = body_all(-INFINITY);
                for (uint32_t q = 0; q < queries; q++)
                        best = body_max(body_load(scores + q * stride + i) - lse[q], best);
                body_store_keys(best, ret_keys + i);
        }
}

static void body_rank_sum(const float *scores, uint64_t stride, uint32_t queries, const float *lse,
                          uint32_t n, int32_t *ret_keys)
{
        for (uint32_t i = 0; i < n; i += LANES) {
                vf sum = {0};
                for (uint32_t q = 0; q < queries; q++)
                        sum = sum + body_exp(body_load(scores + q * stride + i) - lse[q]);
                body_store_keys(sum, ret_keys + i);
        }
}

static uint32_t body_collect(const int32_t *keys, uint32_t n, int32_t threshold, uint32_t first,
                             uint32_t *ret_slots)
{
        uint32_t count = 0;
        for (uint32_t i = 0; i < n; i += 32)
                for (uint32_t mask = body_mask(keys + i, threshold); mask; mask &= mask - 1)
                        ret_slots[count++] = first + i + (uint32_t)__builtin_ctz(mask);
        return count;
}

static float body_to_int8(const float *row, uint32_t n, int8_t *ret_bytes)
{
        vf largest = {0};
        for (uint32_t j = 0; j < n; j += LANES)
                largest = body_max((vf)((vi)body_load(row + j) & 0x7fffffff), largest);
        float max = body_highest(largest), inverse = cairn_int8_inverse(max);
        for (uint32_t j = 0; j < n; j += LANES) {
                body_to_bytes(body_round(body_load(row + j) * inverse), ret_bytes + j);
        }
        return inverse > 0 ? max * (1.0f / 127.0f) : 0;
}

static void body_from_int8_row(const int8_t *bytes, float scale, const float *centre, uint32_t n,
                               float *out)
{
        for (uint32_t j = 0; j < n; j += LANES) {
                vf x = __builtin_convertvector(body_from_int8(bytes + j), vf),
                   unit = body_all(scale);
                body_store(out + j, centre ? body_fma(x, unit, body_load(centre + j)) : x * unit);
        }
}

BODY void body_put_bf16(vf x, uint16_t *at, const bool streamed)
{
        vu bits = (vu)x, rounded = bits + 0x7fff + (bits >> 16 & 1);
        vi is_nan = x != x;
        body_put_low((vi)((vu)body_blend(is_nan, (vi)(bits | 0x400000), (vi)rounded) >> 16), at,
                     streamed);
}

BODY void body_decode_as(const int8_t *bytes, float scale, const float *centre, uint32_t n,
                         const uint32_t dtype, const bool streamed, void *out)
{
        for (uint32_t j = 0; j < n; j += CAIRN_LANES) {
                CAIRN_UNROLL
                for (uint32_t p = 0; p < PARTS; p++) {
                        uint32_t at = j + p * LANES;
                        vf x = __builtin_convertvector(body_from_int8(bytes + at), vf);
                        x = centre ? body_fma(x, body_all(scale), body_load(centre + at))
                                   : x * scale;
                        if (dtype == CAIRN_DTYPE_F32)
                                body_put(x, (float *)out + at, streamed);
                        else if (dtype == CAIRN_DTYPE_F16)
                                body_put_halves(x, (uint16_t *)out + at, streamed);
                        else
                                body_put_bf16(x, (uint16_t *)out + at, streamed);
                }
        }
}

BODY void body_decode_to(const int8_t *bytes, float scale, const float *centre, uint32_t n,
                         uint32_t dtype, const bool streamed, void *out)
{
        if (dtype == CAIRN_DTYPE_F32)
                body_decode_as(bytes, scale, centre, n, CAIRN_DTYPE_F32, streamed, out);
        else if (dtype == CAIRN_DTYPE_F16)
                body_decode_as(bytes, scale, centre, n, CAIRN_DTYPE_F16, streamed, out);
        else
                body_decode_as(bytes, scale, centre, n, CAIRN_DTYPE_BF16, streamed, out);
}

static void body_decode(const int8_t *bytes, float scale, const float *centre, uint32_t n,
                        uint32_t dtype, bool streamed, void *out)
{
        if (streamed)
                body_decode_to(bytes, scale, centre, n, dtype, true, out);
        else
                body_decode_to(bytes, scale, centre, n, dtype, false, out);
}

static void body_add_squares(const float *row, uint32_t n, float *out)
{
        for (uint32_t j = 0; j < n; j += LANES) {
                vf x = body_load(row + j);
                body_store(out + j, body_load(out + j) + x * x);
        }
}

static float body_dot(const float *a, const float *b, uint32_t n)
{
        vf parts[PARTS] = {{0}};
        for (uint32_t j = 0; j < n; j += CAIRN_LANES)
                CAIRN_UNROLL
        for (uint32_t p = 0; p < PARTS; p++)
                parts[p] = parts[p] + body_load(a + j + p * LANES) * body_load(b + j + p * LANES);
        return body_total(parts);
}

BODY vf body_centre_of(const int8_t *bytes, float scale)
{
        vi i = body_from_int8(bytes);
        vi size = (i ^ (i >> 31)) - (i >> 31);
        return __builtin_convertvector(i * size, vf) * scale;
}

static void body_centre(const int8_t *bytes, float scale, uint32_t n, float *out)
{
        for (uint32_t j = 0; j < n; j += LANES)
                body_store(out + j, body_centre_of(bytes + j, scale));
}

// A centre against a constant number of rows; sums stay in registers.
BODY void body_centre_dots_of(const int8_t *bytes, float scale, size_t n, const float *rows,
                              const uint32_t n_rows, float *ret_dots)
{
        vf parts[CAIRN_BATCH][PARTS] = {{{0}}};
        for (size_t j = 0; j < n; j += CAIRN_LANES)
                CAIRN_UNROLL
        for (uint32_t p = 0; p < PARTS; p++) {
                vf x = body_centre_of(bytes + j + p * LANES, scale);
                CAIRN_UNROLL
                for (uint32_t q = 0; q < n_rows; q++)
                        parts[q][p] = parts[q][p] + body_load(rows + q * n + j + p * LANES) * x;
        }
        CAIRN_UNROLL
        for (uint32_t q = 0; q < n_rows; q++)
                ret_dots[q] = body_total(parts[q]);
}

static void body_centre_dots(const int8_t *bytes, float scale, uint32_t n, const float *rows,
                             uint32_t n_rows, float *ret_dots)
{
        uint32_t q = 0;
        for (; q + CAIRN_BATCH <= n_rows; q += CAIRN_BATCH)
                body_centre_dots_of(bytes, scale, n, rows + (size_t)q * n, CAIRN_BATCH,
                                    ret_dots + q);
        for (; q < n_rows; q++)
                body_centre_dots_of(bytes, scale, n, rows + (size_t)q * n, 1, ret_dots + q);
}

static void body_axpy(const float *row, float weight, uint32_t n, float *out)
{
        for (uint32_t j = 0; j < n; j += LANES)
                body_store(out + j, body_load(out + j) + body_load(row + j) * weight);
}

// The 16 columns at `first` of all rows for a constant number of queries; sums stay in registers.
BODY void body_add_columns(const int8_t *const *rows, size_t n_rows, size_t first,
                           const float *weights, size_t weight_stride, const uint32_t queries,
                           float *out, size_t out_stride)
{
        vf sums[CAIRN_BATCH][PARTS];
        const float *own[CAIRN_BATCH];
        CAIRN_UNROLL
        for (uint32_t q = 0; q < queries; q++) {
                own[q] = weights + q * weight_stride;
                CAIRN_UNROLL
                for (uint32_t p = 0; p < PARTS; p++)
                        sums[q][p] = body_load(out + q * out_stride + first + p * LANES);
        }
        for (size_t i = 0; i < n_rows; i++) {
                const int8_t *row = rows[i] + first;
                vf x[PARTS];
                CAIRN_UNROLL
                for (uint32_t p = 0; p < PARTS; p++)
                        x[p] = __builtin_convertvector(body_from_int8(row + p * LANES), vf);
                CAIRN_UNROLL
                for (uint32_t q = 0; q < queries; q++) {
                        vf weight = body_all(own[q][i]);
                        CAIRN_UNROLL
                        for (uint32_t p = 0; p < PARTS; p++)
                                sums[q][p] = body_fma(x[p], weight, sums[q][p]);
                }
        }
        CAIRN_UNROLL
        for (uint32_t q = 0; q < queries; q++) {
                CAIRN_UNROLL
                for (uint32_t p = 0; p < PARTS; p++)
                        body_store(out + q * out_stride + first + p * LANES, sums[q][p]);
        }
}

static void body_add_rows(const int8_t *const *rows, uint32_t n_rows, uint32_t n,
                          const float *weights, uint32_t weight_stride, uint32_t queries,
                          float *out, uint32_t out_stride)
{
        for (uint32_t q = 0; q < queries; q += queries - q >= CAIRN_BATCH ? CAIRN_BATCH : 1)
                for (uint32_t j = 0; j < n; j += CAIRN_LANES) {
                        const float *own = weights + (size_t)q * weight_stride;
                        float *to = out + (size_t)q * out_stride;
                        if (queries - q >= CAIRN_BATCH)
                                body_add_columns(rows, n_rows, j, own, weight_stride, CAIRN_BATCH,
                                                 to, out_stride);
                        else
                                body_add_columns(rows, n_rows, j, own, weight_stride, 1, to,
                                                 out_stride);
                }
}

// The sign bits of the lanes that have bit h set, h = 1, 2, 4, 8.
#define BODY_SIGN INT32_MIN
static const int32_t body_upper[4][16] = {
    {0, BODY_SIGN, 0, BODY_SIGN, 0, BODY_SIGN, 0, BODY_SIGN, 0, BODY_SIGN, 0, BODY_SIGN, 0,
     BODY_SIGN, 0, BODY_SIGN},
    {0, 0, BODY_SIGN, BODY_SIGN, 0, 0, BODY_SIGN, BODY_SIGN, 0, 0, BODY_SIGN, BODY_SIGN, 0, 0,
     BODY_SIGN, BODY_SIGN},
    {0, 0, 0, 0, BODY_SIGN, BODY_SIGN, BODY_SIGN, BODY_SIGN, 0, 0, 0, 0, BODY_SIGN, BODY_SIGN,
     BODY_SIGN, BODY_SIGN},
    {0, 0, 0, 0, 0, 0, 0, 0, BODY_SIGN, BODY_SIGN, BODY_SIGN, BODY_SIGN, BODY_SIGN, BODY_SIGN,
     BODY_SIGN, BODY_SIGN},
};

// Butterflies at a distance h below LANES: each lane adds its partner to itself, or to its negative
// in the upper lane.
BODY vf body_butterfly(vf x, const uint32_t h)
{
        vi flip = (vi) * (const vi_at *)body_upper[__builtin_ctz(h)];
        return body_swap(x, h) + (vf)((vi)x ^ flip);
}

// Butterflies at distances h and 2 h of four vectors, times `unit`; by 1 nothing changes.
BODY void body_butterflies(float *x, uint32_t h, vf unit)
{
        vf a = body_load(x), b = body_load(x + h);
        vf c = body_load(x + 2 * h), d = body_load(x + 3 * h);
        vf sum = a + b, gap = a - b, sum2 = c + d, gap2 = c - d;
        body_store(x, (sum + sum2) * unit);
        body_store(x + h, (gap + gap2) * unit);
        body_store(x + 2 * h, (sum - sum2) * unit);
        body_store(x + 3 * h, (gap - gap2) * unit);
}

static void body_hadamard(float *x, uint32_t n)
{
        if (n < LANES) {
                cairn_kernels_scalar.hadamard(x, n);
                return;
        }
        for (uint32_t i = 0; i < n; i += LANES) {
                vf y = body_load(x + i);
                CAIRN_UNROLL
                for (uint32_t h = 1; h < LANES; h *= 2)
                        y = body_butterfly(y, h);
                body_store(x + i, y);
        }
        // Two distances at a time, so that half as much goes through memory.
        vf unit = body_all((float)(1.0 / sqrt(n)));
        uint32_t h = LANES;
        for (; h * 2 < n; h *= 4) {
                vf last = h * 4 == n ? unit : body_all(1.0f);
                for (uint32_t i = 0; i < n; i += 4 * h)
                        for (uint32_t j = i; j < i + h; j += LANES)
                                body_butterflies(x + j, h, last);
        }
        for (uint32_t j = 0; h < n && j < h; j += LANES) {
                vf a = body_load(x + j), b = body_load(x + j + h);
                body_store(x + j, (a + b) * unit);
                body_store(x + j + h, (a - b) * unit);
        }
        for (uint32_t i = 0; n == LANES && i < n; i += LANES)
                body_store(x + i, body_load(x + i) * unit);
}

// Codes of LANES * `vectors` sub-quantizers at y, whose coordinates lie `apart`.
BODY void body_nearest_block(const float *y, uint32_t apart, float inverse, const uint32_t dims,
                             const uint32_t vectors, const struct cairn_grid_floats *grid,
                             int32_t *ret_codes)
{
        vf scaled[2][CAIRN_GRID_DIMS_MAX], best[2] = {body_all(-INFINITY), body_all(-INFINITY)};
        vi code[2] = {{0}, {0}};
        CAIRN_UNROLL
        for (uint32_t v = 0; v < vectors; v++) {
                CAIRN_UNROLL
                for (uint32_t i = 0; i < dims; i++)
                        scaled[v][i] = body_load(y + v * LANES + i * apart) * inverse;
        }
        for (int32_t c = 0; c < CAIRN_GRID_POINTS; c++) {
                vf start = body_all(-grid->halves[c]);
                vi this = (vi){0} + c;
                CAIRN_UNROLL
                for (uint32_t v = 0; v < vectors; v++) {
                        vf nearness = start;
                        CAIRN_UNROLL
                        for (uint32_t i = 0; i < dims; i++)
                                nearness = nearness + scaled[v][i] * grid->points[c][i];
                        code[v] = body_blend(nearness > best[v], this, code[v]);
                        best[v] = body_max(nearness, best[v]);
                }
        }
        CAIRN_UNROLL
        for (uint32_t v = 0; v < vectors; v++)
                *(vi_at *)(ret_codes + v * LANES) = (vi_at)code[v];
}

BODY void body_nearest_of(const float *y, uint32_t subs, float inverse, const uint32_t dims,
                          const struct cairn_grid_floats *grid, uint8_t *ret_codes,
                          float *ret_points)
{
        int32_t codes[CAIRN_DIM_PADDED_MAX + LANES];
        float last[CAIRN_GRID_DIMS_MAX * LANES] = {0};
        uint32_t s = 0;
        for (; s + 2 * LANES <= subs; s += 2 * LANES)
                body_nearest_block(y + s, subs, inverse, dims, 2, grid, codes + s);
        for (; s < subs; s += LANES) { // the tail: a padded copy
                uint32_t n = subs - s < LANES ? subs - s : LANES;
                for (uint32_t i = 0; i < dims; i++)
                        memcpy(last + i * LANES, y + s + i * subs, n * sizeof(float));
                body_nearest_block(last, LANES, inverse, dims, 1, grid, codes + s);
        }
        float table[CAIRN_GRID_DIMS_MAX][CAIRN_GRID_POINTS];
        for (uint32_t i = 0; i < dims; i++)
                for (uint32_t c = 0; c < CAIRN_GRID_POINTS; c++)
                        table[i][c] = grid->points[c][i];
        uint32_t j = 0;
        for (; j + LANES <= subs; j += LANES) {
                vi code = (vi) * (const vi_at *)(codes + j);
                body_to_bytes(code, (int8_t *)ret_codes + j);
                CAIRN_UNROLL
                for (uint32_t i = 0; i < dims; i++)
                        body_store(ret_points + j + i * subs, body_pick(table[i], code));
        }
        for (; j < subs; j++) {
                ret_codes[j] = (uint8_t)codes[j];
                for (uint32_t i = 0; i < dims; i++)
                        ret_points[j + i * subs] = table[i][codes[j]];
        }
}

static void body_nearest(const float *y, uint32_t subs, float inverse,
                         const struct cairn_grid_floats *grid, uint8_t *ret_codes,
                         float *ret_points)
{
        switch (grid->dims) {
        case 1: body_nearest_of(y, subs, inverse, 1, grid, ret_codes, ret_points); break;
        case 2: body_nearest_of(y, subs, inverse, 2, grid, ret_codes, ret_points); break;
        default: body_nearest_of(y, subs, inverse, 4, grid, ret_codes, ret_points); break;
        }
}

static void body_multiply(float *x, const float *y, uint32_t n)
{
        uint32_t j = 0;
        for (; j + LANES <= n; j += LANES)
                body_store(x + j, body_load(x + j) * body_load(y + j));
        for (; j < n; j++)
                x[j] = x[j] * y[j];
}

static bool body_clean(float *row, uint32_t n)
{
        vf high = body_all(CAIRN_ELEMENT_MAX), most = {0};
        for (uint32_t j = 0; j < n; j += LANES) {
                vf x = body_load(row + j);
                vi finite = (vf)((vi)x & 0x7fffffff) <= body_all(FLT_MAX);
                x = (vf)((vi)x & finite);
                most = body_max((vf)(~finite & 0x3f800000), most); // 1 where it is not
                x = body_max(x, -high);
                body_store(row + j, -body_max(-x, -high));
        }
        return body_highest(most) == 0;
}

static void body_byte_weights(const float *weights, const uint16_t *scales, uint32_t n,
                              uint8_t *ret_bytes, float *ret_unit)
{
        float products[CAIRN_WEIGHT_TOKENS];
        vf parts[PARTS] = {{0}}, max = {0};
        for (uint32_t i = 0; i < n; i += CAIRN_LANES) {
                CAIRN_UNROLL
                for (uint32_t p = 0; p < PARTS; p++) {
                        uint32_t at = i + p * LANES;
                        vf product = body_load(weights + at) * body_halves(scales + at);
                        body_store(products + at, product);
                        parts[p] = parts[p] + product;
                        max = body_max(product, max);
                }
        }
        float inverse = cairn_byte_weights_inverse(body_total(parts), body_highest(max), n);
        for (uint32_t i = 0; i < n; i += LANES)
                body_to_bytes(body_round(body_load(products + i) * inverse),
                              (int8_t *)ret_bytes + i);
        *ret_unit = inverse > 0 ? 1.0f / inverse : 0;
}

#define BODY_KERNELS                                                                              \
        .halves = body_halves_all, .finish = body_finish, .largest = body_largest,                \
        .exp_sum = body_exp_sum, .exp_sums = body_exp_sums, .exp_weights = body_exp_weights,      \
        .rank_max = body_rank_max, .rank_sum = body_rank_sum, .collect = body_collect,            \
        .centre = body_centre, .centre_dots = body_centre_dots, .to_int8 = body_to_int8,          \
        .from_int8 = body_from_int8_row, .decode = body_decode, .add_squares = body_add_squares,  \
        .dot = body_dot, .axpy = body_axpy, .add_rows = body_add_rows, .hadamard = body_hadamard, \
        .nearest = body_nearest, .multiply = body_multiply, .clean = body_clean,                  \
        .byte_weights = body_byte_weights

#endif
