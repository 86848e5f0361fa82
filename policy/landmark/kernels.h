// The kernel table: what each instruction set does in its own way and with the same result, bit for
// bit. Used by policy/ and its tests. Threads: any, once chosen.
//
// Codes are laid out as README.md says: groups of 32 tokens. Of eight tables that follow one
// another (from a multiple of eight) the largest entries add up to a byte, and so do look-ups.
// Queries come in batches of up to CAIRN_BATCH.
#ifndef CAIRN_LANDMARK_KERNELS_H
#define CAIRN_LANDMARK_KERNELS_H

#include <stdint.h>

#include "policy/landmark/grid.h"
#include "policy/landmark/landmark.h"

enum {
        CAIRN_GROUP_TOKENS = 32,
        CAIRN_BATCH = 4,
        CAIRN_TABLES_ADDED = 8,
        CAIRN_TABLES_SUM = 251, // of the largest of eight tables, before each is rounded
        CAIRN_OUTLIER_WEIGHTS_MAX =
            128, // sum of the weights' sizes: sums of products with bytes fit 16 bits
        CAIRN_QUERY_MAX = 8191, // size of a quantized query element: sums over 576 dims fit 32 bits
        CAIRN_WEIGHT_TOKENS = 128,   // whose values are summed in 16 bits
        CAIRN_WEIGHTS_SUM_MAX = 520, // of their weights, each at most 255
        CAIRN_STREAM_ALIGN = 64,     // bytes
        CAIRN_MANY_QUERIES = 8,      // from which on rows_dots serves
        CAIRN_DIM_PADDED_MAX = 576,  // the largest dim, padded to 16 or 32
};

// Before a loop of a small constant count whose arrays should live in registers. Clang unrolls such
// loops unasked.
#if defined(__clang__)
#define CAIRN_UNROLL
#else
#define CAIRN_UNROLL _Pragma("GCC unroll 16")
#endif

// Turns integers into scores: (sum * unit + base) * scale[token] + (outlier * outlier_unit + mean),
// each product and sum rounded once (fmaf).
struct cairn_score_terms {
        float unit;
        float base;
        float outlier_unit;
        float mean;
};

struct cairn_kernels {
        enum cairn_isa isa;

        // sums[q * stride + t] = sum over columns of tables[q][2j][low nibble] + tables[q][2j +
        // 1][high nibble]. codes [groups][columns][32], tables [queries][2 * columns][16]. next:
        // the codes of the call after this one, or NULL; of them the first half is prefetched, at
        // least.
        void (*table_sums)(const uint8_t *codes, uint32_t columns, uint32_t groups,
                           const uint8_t *tables, uint32_t queries, uint16_t *sums, uint32_t stride,
                           const uint8_t *next);
        // sums[q * stride + t] = sum over channels of (rows - 128) * weights[q][channel].
        // rows [groups][pairs][32][2], weights [queries][2 * pairs].
        void (*outlier_sums)(const uint8_t *rows, uint32_t pairs, uint32_t groups,
                             const int8_t *weights, uint32_t queries, int16_t *sums,
                             uint32_t stride);
        // Halves as floats; n a multiple of 32.
        void (*halves)(const uint16_t *halves, uint32_t n, float *ret_floats);
        // The reverse, rounded to nearest even; NaN stays NaN. n a multiple of 8.
        void (*to_halves)(const float *floats, uint32_t n, uint16_t *ret_halves);
        // Scores of `groups` groups. outliers may be NULL. Scores may be NaN: what follows takes it
        // for -inf. Returns the largest, at least -inf.
        float (*finish)(const uint16_t *sums, const int16_t *outliers, const float *scales,
                        uint32_t groups, const struct cairn_score_terms *terms, float *ret_scores);
        // The largest of n scores (a multiple of 32), at least -inf.
        float (*largest)(const float *scores, uint32_t n);
        // Sum of exp(scores[i] - max) over n (a multiple of 32), in lanes; at least n *
        // exp(CAIRN_EXP_LOWEST).
        float (*exp_sum)(const float *scores, uint32_t n, float max);
        // sums[q * record_stride] = exp_sum of the scores at q * stride, with their largest, max[q
        // * record_stride], or 0 for -inf.
        void (*exp_sums)(const float *scores, uint64_t stride, uint32_t queries, uint32_t n,
                         const float *max, float *ret_sums, uint32_t record_stride);
        // weights[i] = exp(scores[i] - max). Returns their sum, in lanes.
        float (*exp_weights)(const float *scores, uint32_t n, float max, float *ret_weights);
        // keys[i] = order key of max over q of scores[q * stride + i] - lse[q]; n a multiple of 32.
        void (*rank_max)(const float *scores, uint64_t stride, uint32_t queries, const float *lse,
                         uint32_t n, int32_t *ret_keys);
        // keys[i] = order key of sum over q of exp(scores[q * stride + i] - lse[q]).
        void (*rank_sum)(const float *scores, uint64_t stride, uint32_t queries, const float *lse,
                         uint32_t n, int32_t *ret_keys);
        // Appends first + i for every keys[i] >= threshold, in order; returns how many. ret_slots
        // has room for n + 16.
        uint32_t (*collect)(const int32_t *keys, uint32_t n, int32_t threshold, uint32_t first,
                            uint32_t *ret_slots);
        // scores[q] = row . query row q * (scale * units[q]) + means[q], rounded once; NaN becomes
        // -inf, and nothing is beyond FLT_MAX. bytes a multiple of 16, queries [n_queries][bytes].
        void (*row_scores)(const int8_t *row, uint32_t bytes, const int16_t *queries,
                           uint32_t n_queries, float scale, const float *units, const float *means,
                           float *ret_scores);
        // dots[q] = sum of row[j] * queries[q * bytes + j]; bytes a multiple of 16.
        void (*row_dots)(const int8_t *row, uint32_t bytes, const int16_t *queries,
                         uint32_t n_queries, int32_t *ret_dots);
        // dots[r * n_queries + q] = row r . query row q, as row_dots has it, for rows at a stride
        // of row_stride bytes. NULL: this machine gains nothing from many queries at once.
        void (*rows_dots)(const int8_t *rows, uint32_t n_rows, uint32_t row_stride, uint32_t bytes,
                          const int16_t *queries, uint32_t n_queries, int32_t *ret_dots);
        // A run's centre: out[j] = i * |i| * scale for bytes i; n a multiple of 16.
        void (*centre)(const int8_t *bytes, float scale, uint32_t n, float *out);
        // dots[q] = what `dot` gives for query row q and what `centre` gives; rows [n_rows][n].
        void (*centre_dots)(const int8_t *bytes, float scale, uint32_t n, const float *rows,
                            uint32_t n_rows, float *ret_dots);
        // bytes[j] = round(row[j] * 127 / largest size); returns largest / 127. n a multiple of 16.
        float (*to_int8)(const float *row, uint32_t n, int8_t *ret_bytes);
        // out[j] = bytes[j] * scale, plus centre[j] unless it is NULL; n a multiple of 16.
        void (*from_int8)(const int8_t *bytes, float scale, const float *centre, uint32_t n,
                          float *out);
        // The same as f32, f16 or bf16 (enum cairn_dtype), rounded to nearest even. streamed: `out`
        // is aligned to CAIRN_STREAM_ALIGN and not worth a place in the caches.
        void (*decode)(const int8_t *bytes, float scale, const float *centre, uint32_t n,
                       uint32_t dtype, bool streamed, void *out);
        // Makes what decode has streamed visible to others.
        void (*fence)(void);
        // out[j] += row[j] * row[j]; n a multiple of 16.
        void (*add_squares)(const float *row, uint32_t n, float *out);
        // Sum of a[j] * b[j] in lanes; n a multiple of 16.
        float (*dot)(const float *a, const float *b, uint32_t n);
        // out[j] += row[j] * weight; n a multiple of 16.
        void (*axpy)(const float *row, float weight, uint32_t n, float *out);
        // out[q * out_stride + j] += rows[i][j] * weights[q * weight_stride + i], for i in order,
        // each rounded once (fmaf); n a multiple of 16.
        void (*add_rows)(const int8_t *const *rows, uint32_t n_rows, uint32_t n,
                         const float *weights, uint32_t weight_stride, uint32_t queries, float *out,
                         uint32_t out_stride);
        // Orthonormal Walsh-Hadamard transform in place; n a power of two >= 8.
        void (*hadamard)(float *x, uint32_t n);
        // codes[s] = nearest grid point to (y[s], y[s + subs], ...) / unit; ret_points gets the
        // points times 1, planar like y. subs a multiple of 2. Nearness is the dot less half
        // the norm; ties: the lower code.
        void (*nearest)(const float *y, uint32_t subs, float inverse,
                        const struct cairn_grid_floats *grid, uint8_t *ret_codes,
                        float *ret_points);
        // x[j] *= y[j]; n a multiple of 8.
        void (*multiply)(float *x, const float *y, uint32_t n);
        // Clamps a row to +-CAIRN_ELEMENT_MAX and sets to 0 what is NaN or infinite; n a multiple
        // of
        // 16. Returns whether all was finite.
        bool (*clean)(float *row, uint32_t n);
        // Value weights of n tokens (32, 64, 96 or 128) as bytes in units of *ret_unit: weights[t]
        // * scales[t], so that the bytes add up to no more than CAIRN_WEIGHTS_SUM_MAX. All zeros
        // and a unit of 0 when nothing weighs.
        void (*byte_weights)(const float *weights, const uint16_t *scales, uint32_t n,
                             uint8_t *ret_bytes, float *ret_unit);
        // outs[q][planar dim] += units[q] * sum over tokens of
        // weights[q * CAIRN_WEIGHT_TOKENS + t] * point.
        // codes: up to 4 groups, each [blocks][8][32]; bits 2 or 4. next: the codes of the call
        // after this one, or NULL; they are prefetched.
        void (*value_sums)(const uint8_t *codes, uint32_t groups, uint32_t blocks, uint32_t bits,
                           const uint8_t *weights, const float *units, uint32_t queries,
                           float *const *outs, const uint8_t *next);
};

extern const struct cairn_kernels cairn_kernels_scalar;
#if defined(__x86_64__)
extern const struct cairn_kernels cairn_kernels_avx2;
extern const struct cairn_kernels cairn_kernels_avx512;
// AMX: its rows_dots beside AVX-512's others.
void cairn_amx_rows_dots(const int8_t *rows, uint32_t n_rows, uint32_t row_stride, uint32_t bytes,
                         const int16_t *queries, uint32_t n_queries, int32_t *ret_dots);
#elif defined(__aarch64__)
extern const struct cairn_kernels cairn_kernels_neon;
#endif

typedef void cairn_rows_dots_function(const int8_t *rows, uint32_t n_rows, uint32_t row_stride,
                                      uint32_t bytes, const int16_t *queries, uint32_t n_queries,
                                      int32_t *ret_dots);
// Whether it gives what the scalar row_dots gives, on a small fixed input: asked before it is used
// on a machine, since none of those that build and test this has tiles.
bool cairn_rows_dots_check(cairn_rows_dots_function *rows_dots);

// The chosen table (isa.c).
const struct cairn_kernels *cairn_kernels_chosen(void);
// The table of an ISA, or NULL where this build or machine lacks it.
const struct cairn_kernels *cairn_kernels_of(enum cairn_isa isa);

#endif
