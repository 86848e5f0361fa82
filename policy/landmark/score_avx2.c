// AVX2 kernels: look-ups by byte shuffles, 32 tokens at a time.
#include <immintrin.h>

#include "policy/landmark/grid.h"
#include "policy/landmark/kernels.h"
#include "policy/landmark/numeric.h"

#define LANES 8
#include "policy/landmark/score_body.h"

#define ALWAYS static inline __attribute__((always_inline))

BODY vf body_max(vf a, vf b)
{
        return (vf)_mm256_max_ps((__m256)a, (__m256)b);
}

BODY vf body_fma(vf a, vf b, vf c)
{
        return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

BODY vi body_blend(vi mask, vi a, vi b)
{
        return (vi)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)mask);
}

BODY vf body_from_uint16(const uint16_t *at)
{
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)at);
        return (vf)_mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(x));
}

BODY vf body_from_int16(const int16_t *at)
{
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)at);
        return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(x));
}

BODY vi body_from_int8(const int8_t *at)
{
        return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at));
}

BODY void body_to_bytes(vi x, int8_t *at)
{
        const __m256i first =
            _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                             -1, -1, 0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1);
        __m256i y = _mm256_shuffle_epi8((__m256i)x, first);
        __m128i both = _mm_or_si128(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
        _mm_storel_epi64((__m128i *)(void *)at, both);
}

BODY vf body_pick(const float table[16], vi index)
{
        __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)index);
        __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), (__m256i)index);
        __m256 upper =
            _mm256_castsi256_ps(_mm256_slli_epi32((__m256i)index, 28)); // bit 3: the sign
        return (vf)_mm256_blendv_ps(low, high, upper);
}

BODY vf body_swap(vf x, uint32_t h)
{
        if (h == 1)
                return (vf)_mm256_permute_ps((__m256)x, 0xb1);
        if (h == 2)
                return (vf)_mm256_permute_ps((__m256)x, 0x4e);
        return (vf)_mm256_permute2f128_ps((__m256)x, (__m256)x, 1);
}

BODY vf body_halves(const uint16_t *at)
{
        return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)at));
}

BODY void body_put(vf x, float *at, const bool streamed)
{
        if (streamed)
                _mm256_stream_ps(at, (__m256)x);
        else
                body_store(at, x);
}

BODY void put16(__m128i x, uint16_t *at, const bool streamed)
{
        if (streamed)
                _mm_stream_si128((__m128i *)(void *)at, x);
        else
                _mm_storeu_si128((__m128i *)(void *)at, x);
}

// Rounding mode 0: to nearest, ties to even.
BODY void body_put_halves(vf x, uint16_t *at, const bool streamed)
{
        put16(_mm256_cvtps_ph((__m256)x, 0), at, streamed);
}

BODY void body_put_low(vi x, uint16_t *at, const bool streamed)
{
        __m128i low = _mm256_castsi256_si128((__m256i)x);
        __m128i high = _mm256_extracti128_si256((__m256i)x, 1);
        put16(_mm_packus_epi32(low, high), at, streamed);
}

BODY uint32_t body_mask(const int32_t *keys, int32_t threshold)
{
        __m256i limit = _mm256_set1_epi32(threshold);
        uint32_t below = 0;
        for (uint32_t i = 0; i < 4; i++) {
                __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(keys + i * 8));
                __m256i less = _mm256_cmpgt_epi32(limit, x);
                below |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(less)) << (i * 8);
        }
        return ~below;
}

// Keeps the compiler from putting sums off, which would spill their terms.
#define STAY(vector) __asm__("" : "+x"(vector))

ALWAYS __m256i load32(const void *at)
{
        return _mm256_loadu_si256((const __m256i *)at);
}

// 16 bytes in both lanes.
ALWAYS __m256i load16_twice(const void *at)
{
        return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)at));
}

ALWAYS __m256i look_up(const uint8_t *table, __m256i nibbles)
{
        return _mm256_shuffle_epi8(load16_twice(table), nibbles);
}

// Splits what low (sum of 16-bit lanes) and high (sum of their upper bytes) have counted into 32
// ordered 16-bit sums.
ALWAYS void store_sums(__m256i low, __m256i high, uint16_t *sums)
{
        __m256i even = _mm256_sub_epi16(low, _mm256_slli_epi16(high, 8));
        __m256i a = _mm256_unpacklo_epi16(even, high), b = _mm256_unpackhi_epi16(even, high);
        _mm256_storeu_si256((__m256i *)(void *)sums, _mm256_permute2x128_si256(a, b, 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(sums + 16), _mm256_permute2x128_si256(a, b, 0x31));
}

// Adds the look-ups of one column.
ALWAYS void add_column(const uint8_t *codes, const uint8_t *tables, size_t query_bytes,
                       const uint32_t queries, __m256i *sums)
{
        const __m256i nibble = _mm256_set1_epi8(15);
        __m256i code = load32(codes), low = _mm256_and_si256(code, nibble);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(code, 4), nibble);
        CAIRN_UNROLL
        for (uint32_t q = 0; q < queries; q++) {
                const uint8_t *table = tables + q * query_bytes;
                __m256i x = _mm256_add_epi8(look_up(table, low), look_up(table + 16, high));
                sums[q] = _mm256_add_epi8(sums[q], x);
                STAY(sums[q]);
        }
}

// One group of 32 tokens for a constant number of queries. The look-ups of four columns add up in a
// byte; bytes are then counted in 16 bits: `low` takes whole lanes, carries and all, `high` their
// upper bytes.
ALWAYS void group_sums(const uint8_t *codes, uint32_t columns, const uint8_t *tables,
                       const uint32_t queries, uint16_t *sums, uint32_t stride,
                       const uint8_t *ahead)
{
        const size_t query_bytes = (size_t)columns * 2 * CAIRN_GRID_POINTS;
        const uint8_t *end = codes + (size_t)columns * 32;
        __m256i low[CAIRN_BATCH], high[CAIRN_BATCH], bytes[CAIRN_BATCH];
        CAIRN_UNROLL
        for (uint32_t q = 0; q < queries; q++)
                low[q] = high[q] = _mm256_setzero_si256();
        while (codes < end) {
                CAIRN_UNROLL
                for (uint32_t q = 0; q < queries; q++)
                        bytes[q] = _mm256_setzero_si256();
                if (codes + 128 <= end) {
                        __builtin_prefetch(ahead);
                        CAIRN_UNROLL
                        for (uint32_t c = 0; c < 4; c++)
                                add_column(codes + c * 32, tables + c * 32, query_bytes, queries,
                                           bytes);
                        codes += 128;
                        tables += 128;
                        ahead += 64;
                } else {
                        for (; codes < end; codes += 32, tables += 32)
                                add_column(codes, tables, query_bytes, queries, bytes);
                }
                CAIRN_UNROLL
                for (uint32_t q = 0; q < queries; q++) {
                        low[q] = _mm256_add_epi16(low[q], bytes[q]);
                        high[q] = _mm256_add_epi16(high[q], _mm256_srli_epi16(bytes[q], 8));
                        STAY(low[q]);
                        STAY(high[q]);
                }
        }
        CAIRN_UNROLL
        for (uint32_t q = 0; q < queries; q++)
                store_sums(low[q], high[q], sums + (size_t)q * stride);
}

static void table_sums(const uint8_t *codes, uint32_t columns, uint32_t groups,
                       const uint8_t *tables, uint32_t queries, uint16_t *sums, uint32_t stride,
                       const uint8_t *next)
{
        for (uint32_t g = 0; g < groups; g++) {
                const uint8_t *at = codes + (size_t)g * columns * CAIRN_GROUP_TOKENS;
                const uint8_t *ahead = next ? next + (at - codes) / 2 : at;
                uint16_t *out = sums + (size_t)g * CAIRN_GROUP_TOKENS;
                switch (queries) {
                case 1: group_sums(at, columns, tables, 1, out, stride, ahead); break;
                case 2: group_sums(at, columns, tables, 2, out, stride, ahead); break;
                case 3: group_sums(at, columns, tables, 3, out, stride, ahead); break;
                default: group_sums(at, columns, tables, 4, out, stride, ahead); break;
                }
        }
}

// Of one query, for a constant number of pairs, whose weights stay in registers.
ALWAYS void outlier_sums_of(const uint8_t *rows, const uint32_t pairs, uint32_t groups,
                            const int8_t *weights, int16_t *sums)
{
        __m256i wide[CAIRN_LANDMARK_OUTLIERS_MAX / 2];
        int32_t total = 0;
        CAIRN_UNROLL
        for (uint32_t p = 0; p < pairs; p++) {
                int16_t both;
                memcpy(&both, weights + p * 2, sizeof both);
                wide[p] = _mm256_set1_epi16(both);
                total += weights[p * 2] + weights[p * 2 + 1];
        }
        const __m256i offset = _mm256_set1_epi16((int16_t)(-128 * total));
        for (uint32_t g = 0; g < groups; g++, rows += (size_t)pairs * 64, sums += 32) {
                __m256i first = offset, second = offset;
                CAIRN_UNROLL
                for (uint32_t p = 0; p < pairs; p++) {
                        __m256i a = load32(rows + p * 64), b = load32(rows + p * 64 + 32);
                        first = _mm256_add_epi16(first, _mm256_maddubs_epi16(a, wide[p]));
                        second = _mm256_add_epi16(second, _mm256_maddubs_epi16(b, wide[p]));
                }
                _mm256_storeu_si256((__m256i *)(void *)sums, first);
                _mm256_storeu_si256((__m256i *)(void *)(sums + 16), second);
        }
}

static void outlier_sums(const uint8_t *rows, uint32_t pairs, uint32_t groups,
                         const int8_t *weights, uint32_t queries, int16_t *sums, uint32_t stride)
{
        for (uint32_t q = 0; q < queries; q++, weights += pairs * 2, sums += stride)
                switch (pairs) {
                case 1: outlier_sums_of(rows, 1, groups, weights, sums); break;
                case 2: outlier_sums_of(rows, 2, groups, weights, sums); break;
                case 3: outlier_sums_of(rows, 3, groups, weights, sums); break;
                case 4: outlier_sums_of(rows, 4, groups, weights, sums); break;
                case 5: outlier_sums_of(rows, 5, groups, weights, sums); break;
                case 6: outlier_sums_of(rows, 6, groups, weights, sums); break;
                case 7: outlier_sums_of(rows, 7, groups, weights, sums); break;
                default: outlier_sums_of(rows, 8, groups, weights, sums); break;
                }
}

ALWAYS int32_t total32(__m256i x)
{
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
        return _mm_cvtsi128_si32(sum);
}

// 16 elements of a row against n query rows, `bytes` apart.
ALWAYS void row_dots_step(const int8_t *row, const int16_t *queries, size_t bytes, const uint32_t n,
                          __m256i *sums)
{
        __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)row));
        CAIRN_UNROLL
        for (uint32_t q = 0; q < n; q++) {
                sums[q] =
                    _mm256_add_epi32(sums[q], _mm256_madd_epi16(x, load32(queries + q * bytes)));
                STAY(sums[q]);
        }
}

ALWAYS void row_dots_sums(const int8_t *row, size_t bytes, const int16_t *queries, const uint32_t n,
                          __m256i *ret_sums)
{
        const int8_t *end = row + bytes;
        CAIRN_UNROLL
        for (uint32_t q = 0; q < n; q++)
                ret_sums[q] = _mm256_setzero_si256();
        for (; row + 64 <= end; row += 64, queries += 64) {
                row_dots_step(row, queries, bytes, n, ret_sums);
                row_dots_step(row + 16, queries + 16, bytes, n, ret_sums);
                row_dots_step(row + 32, queries + 32, bytes, n, ret_sums);
                row_dots_step(row + 48, queries + 48, bytes, n, ret_sums);
        }
        for (; row < end; row += 16, queries += 16)
                row_dots_step(row, queries, bytes, n, ret_sums);
}

ALWAYS __m128i row_dots_of_4(const int8_t *row, size_t bytes, const int16_t *queries)
{
        __m256i sums[4];
        row_dots_sums(row, bytes, queries, 4, sums);
        __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]),
                                        _mm256_hadd_epi32(sums[2], sums[3]));
        return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

ALWAYS int32_t row_dot(const int8_t *row, size_t bytes, const int16_t *query)
{
        __m256i sum;
        row_dots_sums(row, bytes, query, 1, &sum);
        return total32(sum);
}

static void row_dots(const int8_t *row, uint32_t bytes, const int16_t *queries, uint32_t n_queries,
                     int32_t *ret_dots)
{
        uint32_t q = 0;
        for (; q + 4 <= n_queries; q += 4)
                _mm_storeu_si128((__m128i *)(void *)(ret_dots + q),
                                 row_dots_of_4(row, bytes, queries + (size_t)q * bytes));
        for (; q < n_queries; q++)
                ret_dots[q] = row_dot(row, bytes, queries + (size_t)q * bytes);
}

static void row_scores(const int8_t *row, uint32_t bytes, const int16_t *queries,
                       uint32_t n_queries, float scale, const float *units, const float *means,
                       float *ret_scores)
{
        const __m128 lowest = _mm_set1_ps(-INFINITY), most = _mm_set1_ps(FLT_MAX);
        uint32_t q = 0;
        for (; q + 4 <= n_queries; q += 4) {
                __m128i products = row_dots_of_4(row, bytes, queries + (size_t)q * bytes);
                __m128 unit = _mm_mul_ps(_mm_set1_ps(scale), _mm_loadu_ps(units + q));
                __m128 score =
                    _mm_fmadd_ps(_mm_cvtepi32_ps(products), unit, _mm_loadu_ps(means + q));
                _mm_storeu_ps(ret_scores + q, _mm_min_ps(_mm_max_ps(score, lowest), most));
        }
        for (; q < n_queries; q++)
                ret_scores[q] = cairn_score_of(row_dot(row, bytes, queries + (size_t)q * bytes),
                                               scale * units[q], means[q]);
}

// Adds 8 columns of 16-bit sums, still apart in two lanes, to eight floats.
ALWAYS void add_columns(__m256i sums, float unit, float *out)
{
        __m128i columns =
            _mm_add_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        vf x = (vf)_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(columns));
        body_store(out, body_load(out) + x * unit);
}

enum {
        QUADS_MAX = CAIRN_WEIGHT_TOKENS / 4
};

// All coordinates of a block of 16 sub-quantizers, over up to 4 groups, for a constant number of
// dims and one or two queries: eight sums, the most that stay in registers.
ALWAYS void value_block(const uint8_t *codes, uint32_t blocks, uint32_t groups,
                        const __m256i points[2], const uint32_t dims,
                        const __m256i weights[][QUADS_MAX], const float *units,
                        const uint32_t queries, float *const *outs, size_t at, const uint8_t *ahead)
{
        const __m256i nibble = _mm256_set1_epi8(15);
        const size_t group_bytes = (size_t)blocks * CAIRN_VALUE_BLOCK_BYTES;
        __m256i sums[2][2][2]; // [query][coordinate][nibble]
        CAIRN_UNROLL
        for (uint32_t i = 0; i < 8; i++)
                sums[i / 4][i / 2 % 2][i % 2] = _mm256_setzero_si256();
        const __m256i *wide = weights[0];
        for (uint32_t g = 0; g < groups; g++, wide += 8, codes += group_bytes, ahead += group_bytes)
                CAIRN_UNROLL
        for (uint32_t quad = 0; quad < 8; quad++) {
                __m256i code = load32(codes + quad * 32), nibbles[2];
                if (quad % 2 == 0)
                        __builtin_prefetch(ahead + quad * 32);
                nibbles[0] = _mm256_and_si256(code, nibble);
                nibbles[1] = _mm256_and_si256(_mm256_srli_epi16(code, 4), nibble);
                CAIRN_UNROLL
                for (uint32_t i = 0; i < 2 * dims; i++) {
                        __m256i x = _mm256_shuffle_epi8(points[i / 2], nibbles[i % 2]);
                        CAIRN_UNROLL
                        for (uint32_t q = 0; q < queries; q++) {
                                __m256i *sum = &sums[q][i / 2][i % 2];
                                *sum = _mm256_add_epi16(
                                    *sum, _mm256_maddubs_epi16(wide[q * QUADS_MAX + quad], x));
                                STAY(*sum);
                        }
                }
        }
        CAIRN_UNROLL
        for (uint32_t q = 0; q < queries; q++) {
                CAIRN_UNROLL
                for (uint32_t i = 0; i < 2 * dims; i++)
                        add_columns(sums[q][i / 2][i % 2], units[q],
                                    outs[q] + at +
                                        (size_t)(i / 2) * blocks * CAIRN_VALUE_BLOCK_SUBS +
                                        i % 2 * 8);
        }
}

// The same for one coordinate and four queries: codes are unpacked once more, but points are looked
// up half as often, and weights stay in a register for both nibbles. Each of `dims` calls for the
// same codes prefetches its share of what lies ahead.
ALWAYS void value_block_of_four(const uint8_t *codes, uint32_t blocks, uint32_t groups,
                                __m256i points, const __m256i weights[][QUADS_MAX],
                                const float *units, float *const *outs, size_t at,
                                const uint8_t *ahead, const uint32_t dims)
{
        const __m256i nibble = _mm256_set1_epi8(15);
        const size_t group_bytes = (size_t)blocks * CAIRN_VALUE_BLOCK_BYTES;
        __m256i sums[CAIRN_BATCH][2]; // [query][nibble]
        CAIRN_UNROLL
        for (uint32_t i = 0; i < 2 * CAIRN_BATCH; i++)
                sums[i / 2][i % 2] = _mm256_setzero_si256();
        const __m256i *wide = weights[0];
        for (uint32_t g = 0; g < groups; g++, wide += 8, codes += group_bytes) {
                for (uint32_t line = 0; line < CAIRN_VALUE_BLOCK_BYTES / dims; line += 64)
                        __builtin_prefetch(ahead + line);
                ahead += group_bytes;
                CAIRN_UNROLL
                for (uint32_t quad = 0; quad < 8; quad++) {
                        __m256i code = load32(codes + quad * 32);
                        __m256i low = _mm256_and_si256(code, nibble);
                        __m256i high = _mm256_and_si256(_mm256_srli_epi16(code, 4), nibble);
                        low = _mm256_shuffle_epi8(points, low);
                        high = _mm256_shuffle_epi8(points, high);
                        CAIRN_UNROLL
                        for (uint32_t q = 0; q < CAIRN_BATCH; q++) {
                                __m256i weight = wide[q * QUADS_MAX + quad];
                                STAY(weight); // in a register
                                sums[q][0] =
                                    _mm256_add_epi16(sums[q][0], _mm256_maddubs_epi16(weight, low));
                                sums[q][1] = _mm256_add_epi16(sums[q][1],
                                                              _mm256_maddubs_epi16(weight, high));
                                STAY(sums[q][0]);
                                STAY(sums[q][1]);
                        }
                }
        }
        CAIRN_UNROLL
        for (uint32_t q = 0; q < CAIRN_BATCH; q++) {
                add_columns(sums[q][0], units[q], outs[q] + at);
                add_columns(sums[q][1], units[q], outs[q] + at + 8);
        }
}

// Weights of 4 tokens as kernels want them: the first pair all over the lower lane, the second over
// the upper.
ALWAYS void widen_weights(const uint8_t *weights, uint32_t queries, uint32_t quads,
                          __m256i wide[][QUADS_MAX])
{
        const __m256i pairs = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 2, 3,
                                               2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3);
        for (uint32_t q = 0; q < queries; q++)
                for (uint32_t quad = 0; quad < quads; quad++) {
                        int32_t four;
                        memcpy(&four, weights + q * CAIRN_WEIGHT_TOKENS + quad * 4, sizeof four);
                        wide[q][quad] = _mm256_shuffle_epi8(_mm256_set1_epi32(four), pairs);
                }
}

ALWAYS void value_sums_of(const uint8_t *codes, uint32_t groups, uint32_t blocks,
                          const __m256i points[2], const uint32_t dims,
                          const __m256i wide[][QUADS_MAX], const float *units, uint32_t queries,
                          float *const *outs, const uint8_t *ahead)
{
        for (uint32_t b = 0; b < blocks; b++) {
                size_t at = (size_t)b * CAIRN_VALUE_BLOCK_BYTES;
                size_t to = (size_t)b * CAIRN_VALUE_BLOCK_SUBS;
                uint32_t q = 0;
                for (uint32_t i = 0; i < dims && queries == CAIRN_BATCH; i++)
                        value_block_of_four(codes + at, blocks, groups, points[i], wide, units,
                                            outs, to + (size_t)i * blocks * CAIRN_VALUE_BLOCK_SUBS,
                                            ahead + at + i * (CAIRN_VALUE_BLOCK_BYTES / dims),
                                            dims);
                if (queries == CAIRN_BATCH)
                        continue;
                for (; q + 2 <= queries; q += 2)
                        value_block(codes + at, blocks, groups, points, dims, wide + q, units + q,
                                    2, outs + q, to, (q == 0 ? ahead : codes) + at);
                if (q < queries)
                        value_block(codes + at, blocks, groups, points, dims, wide + q, units + q,
                                    1, outs + q, to, (q == 0 ? ahead : codes) + at);
        }
}

static void value_sums(const uint8_t *codes, uint32_t groups, uint32_t blocks, uint32_t bits,
                       const uint8_t *weights, const float *units, uint32_t queries,
                       float *const *outs, const uint8_t *next)
{
        const struct cairn_grid *grid = cairn_grid_of(bits);
        __m256i wide[CAIRN_BATCH][QUADS_MAX], points[2];
        int8_t table[2][CAIRN_GRID_POINTS];
        for (uint32_t c = 0; c < CAIRN_GRID_POINTS; c++)
                for (uint32_t i = 0; i < 2; i++)
                        table[i][c] = grid->points[c * grid->dims + (i < grid->dims ? i : 0)];
        points[0] = load16_twice(table[0]);
        points[1] = load16_twice(table[1]);
        widen_weights(weights, queries, groups * 8, wide);
        next = next ? next : codes;
        if (grid->dims == 2)
                value_sums_of(codes, groups, blocks, points, 2, wide, units, queries, outs, next);
        else
                value_sums_of(codes, groups, blocks, points, 1, wide, units, queries, outs, next);
}

static void fence(void)
{
        _mm_sfence();
}

// Rounding mode 0: to nearest, ties to even.
static void to_halves(const float *from, uint32_t n, uint16_t *ret_halves)
{
        for (uint32_t i = 0; i < n; i += 8)
                _mm_storeu_si128((__m128i *)(void *)(ret_halves + i),
                                 _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
}

const struct cairn_kernels cairn_kernels_avx2 = {
    .isa = CAIRN_ISA_AVX2,
    .table_sums = table_sums,
    .outlier_sums = outlier_sums,
    .row_dots = row_dots,
    .row_scores = row_scores,
    .value_sums = value_sums,
    .to_halves = to_halves,
    .fence = fence,
    BODY_KERNELS,
};
