// AVX-512 kernels: two columns of 32 tokens at a time; vpermb looks up in four tables at once.
// The tests compile this file against an emulation of the intrinsics (CAIRN_EMULATED), on machines
// without AVX-512.
#ifndef CAIRN_EMULATED
#include <immintrin.h>
#endif

#include "policy/landmark/grid.h"
#include "policy/landmark/kernels.h"
#include "policy/landmark/numeric.h"

#define LANES 16
#include "policy/landmark/score_body.h"

#define ALWAYS static inline __attribute__((always_inline))

// Vectors of the compiler and of the intrinsics; under emulation they are different types.
BODY vf from_ps(__m512 x)
{
        vf y;
        memcpy(&y, &x, sizeof y);
        return y;
}

BODY __m512 to_ps(vf x)
{
        __m512 y;
        memcpy(&y, &x, sizeof y);
        return y;
}

BODY vf from_halves(__m256 low, __m256 high)
{
        vf x;
        memcpy(&x, &low, sizeof low);
        memcpy((char *)&x + sizeof low, &high, sizeof high);
        return x;
}

BODY vf body_max(vf a, vf b)
{
        return from_ps(_mm512_max_ps(to_ps(a), to_ps(b)));
}

BODY vf body_fma(vf a, vf b, vf c)
{
#ifdef CAIRN_EMULATED // whose products would be rounded
        for (uint32_t i = 0; i < LANES; i++)
                a[i] = fmaf(a[i], b[i], c[i]);
        return a;
#else
        return from_ps(_mm512_fmadd_ps(to_ps(a), to_ps(b), to_ps(c)));
#endif
}

BODY vi body_blend(vi mask, vi a, vi b)
{
        return (a & mask) | (b & ~mask);
}

BODY vf body_from_uint16(const uint16_t *at)
{
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)at);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(at + 8));
        return from_halves(_mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(a)),
                           _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(b)));
}

BODY vf body_from_int16(const int16_t *at)
{
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)at);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(at + 8));
        return from_halves(_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(a)),
                           _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(b)));
}

BODY vi body_from_int8(const int8_t *at)
{
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)at);
        __m256i halves[2] = {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))};
        vi y; // no conversion of vectors: GCC takes bytes one by one
        memcpy(&y, halves, sizeof y);
        return y;
}

BODY void body_to_bytes(vi x, int8_t *at)
{
        vb y = __builtin_convertvector(x, vb);
        memcpy(at, &y, sizeof y);
}

BODY vf body_pick(const float table[16], vi index)
{
        return (vf)_mm512_permutexvar_ps((__m512i)index, _mm512_loadu_ps(table));
}

BODY vf body_swap(vf x, uint32_t h)
{
        switch (h) {
        case 1:
                return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12,
                                               15, 14);
        case 2:
                return __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15,
                                               12, 13);
        case 4:
                return __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9,
                                               10, 11);
        default:
                return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5,
                                               6, 7);
        }
}

BODY vf body_halves(const uint16_t *at)
{
        return from_halves(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)at)),
                           _mm256_cvtph_ps(
                               _mm_loadu_si128((const __m128i *)(const void *)(at + 8))));
}

// 32 bytes.
ALWAYS void put_bytes(__m256i x, void *at, const bool streamed)
{
        if (streamed)
                _mm256_stream_si256(at, x);
        else
                _mm256_storeu_si256(at, x);
}

BODY void body_put(vf x, float *at, const bool streamed)
{
        __m256i halves[2];
        memcpy(halves, &x, sizeof halves);
        put_bytes(halves[0], at, streamed);
        put_bytes(halves[1], at + 8, streamed);
}

// Rounding mode 0: to nearest, ties to even.
BODY void body_put_halves(vf x, uint16_t *at, const bool streamed)
{
        __m256 parts[2];
        memcpy(parts, &x, sizeof parts);
        put_bytes(_mm256_set_m128i(_mm256_cvtps_ph(parts[1], 0), _mm256_cvtps_ph(parts[0], 0)), at,
                  streamed);
}

BODY void body_put_low(vi x, uint16_t *at, const bool streamed)
{
        __m256i parts[2];
        memcpy(parts, &x, sizeof parts);
        __m256i low = _mm256_packus_epi32(parts[0], parts[1]);
        put_bytes(_mm256_permute4x64_epi64(low, 0xd8), at, streamed);
}

BODY uint32_t body_mask(const int32_t *keys, int32_t threshold)
{
        __m512i limit = _mm512_set1_epi32(threshold);
        __m512i a = _mm512_loadu_si512(keys), b = _mm512_loadu_si512(keys + 16);
        uint32_t below_a = _mm512_cmpgt_epi32_mask(limit, a);
        uint32_t below_b = _mm512_cmpgt_epi32_mask(limit, b);
        return ~(below_a | below_b << 16);
}

// Sums of the upper 256 bits are added to the lower; low and high as in score_avx2.c.
ALWAYS void store_sums(__m512i low512, __m512i high512, uint16_t *sums)
{
        __m256i low =
            _mm256_add_epi16(_mm512_castsi512_si256(low512), _mm512_extracti64x4_epi64(low512, 1));
        __m256i high = _mm256_add_epi16(_mm512_castsi512_si256(high512),
                                        _mm512_extracti64x4_epi64(high512, 1));
        __m256i even = _mm256_sub_epi16(low, _mm256_slli_epi16(high, 8));
        __m256i a = _mm256_unpacklo_epi16(even, high), b = _mm256_unpackhi_epi16(even, high);
        _mm256_storeu_si256((__m256i *)(void *)sums, _mm256_permute2x128_si256(a, b, 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(sums + 16), _mm256_permute2x128_si256(a, b, 0x31));
}

// The 32 bytes at `at` in the lower half, zeros above.
ALWAYS __m512i lower_half(const uint8_t *at)
{
        return _mm512_inserti64x4(_mm512_setzero_si512(),
                                  _mm256_loadu_si256((const __m256i *)(const void *)at), 0);
}

// Indices into the four tables of a pair of columns: the lower half's nibbles choose in tables 0
// and 1, the upper half's in 2 and 3.
ALWAYS void indices(__m512i codes, __m512i *ret_low, __m512i *ret_high)
{
        const __m512i nibble = _mm512_set1_epi8(15);
        const __m512i first = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi8(32), 1);
        *ret_low = _mm512_or_si512(_mm512_and_si512(codes, nibble), first);
        *ret_high = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble),
                                    _mm512_or_si512(first, _mm512_set1_epi8(16)));
}

ALWAYS void group_sums(const uint8_t *codes, uint32_t columns, const uint8_t *tables,
                       const uint32_t queries, uint16_t *sums, uint32_t stride,
                       const uint8_t *ahead)
{
        const size_t query_bytes = (size_t)columns * 2 * CAIRN_GRID_POINTS;
        __m512i low[CAIRN_BATCH], high[CAIRN_BATCH], a0, a1, b0, b1;
        CAIRN_UNROLL
        for (uint32_t q = 0; q < queries; q++)
                low[q] = high[q] = _mm512_setzero_si512();
        uint32_t j = 0;
        for (; j + 4 <= columns; j += 4) {
                __builtin_prefetch(ahead + (size_t)j * 32);
                __builtin_prefetch(ahead + (size_t)j * 32 + 64);
                indices(_mm512_loadu_si512(codes + (size_t)j * 32), &a0, &a1);
                indices(_mm512_loadu_si512(codes + (size_t)j * 32 + 64), &b0, &b1);
                CAIRN_UNROLL
                for (uint32_t q = 0; q < queries; q++) {
                        const uint8_t *table = tables + q * query_bytes + (size_t)j * 32;
                        __m512i s = _mm512_loadu_si512(table), t = _mm512_loadu_si512(table + 64);
                        __m512i x = _mm512_add_epi8(_mm512_permutexvar_epi8(a0, s),
                                                    _mm512_permutexvar_epi8(a1, s));
                        __m512i y = _mm512_add_epi8(_mm512_permutexvar_epi8(b0, t),
                                                    _mm512_permutexvar_epi8(b1, t));
                        x = _mm512_add_epi8(x, y);
                        low[q] = _mm512_add_epi16(low[q], x);
                        high[q] = _mm512_add_epi16(high[q], _mm512_srli_epi16(x, 8));
                }
        }
        for (; j < columns;
             j++) { // one column in the lower half; the upper half looks up zeros (s is zero there)
                indices(lower_half(codes + (size_t)j * 32), &a0, &a1);
                CAIRN_UNROLL
                for (uint32_t q = 0; q < queries; q++) {
                        __m512i s = lower_half(tables + q * query_bytes + (size_t)j * 32);
                        __m512i x = _mm512_add_epi8(_mm512_permutexvar_epi8(a0, s),
                                                    _mm512_permutexvar_epi8(a1, s));
                        low[q] = _mm512_add_epi16(low[q], x);
                        high[q] = _mm512_add_epi16(high[q], _mm512_srli_epi16(x, 8));
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
                const uint8_t *ahead = next ? next + (at - codes) : at;
                uint16_t *out = sums + (size_t)g * CAIRN_GROUP_TOKENS;
                switch (queries) {
                case 1: group_sums(at, columns, tables, 1, out, stride, ahead); break;
                case 2: group_sums(at, columns, tables, 2, out, stride, ahead); break;
                case 3: group_sums(at, columns, tables, 3, out, stride, ahead); break;
                default: group_sums(at, columns, tables, 4, out, stride, ahead); break;
                }
        }
}

static void outlier_sums(const uint8_t *rows, uint32_t pairs, uint32_t groups,
                         const int8_t *weights, uint32_t queries, int16_t *sums, uint32_t stride)
{
        for (uint32_t q = 0; q < queries; q++) {
                int16_t wide[CAIRN_LANDMARK_OUTLIERS_MAX / 2];
                int32_t offset = 0;
                memcpy(wide, weights + (size_t)q * pairs * 2, pairs * sizeof(int16_t));
                for (uint32_t c = 0; c < 2 * pairs; c++)
                        offset += weights[q * pairs * 2 + c];
                for (uint32_t g = 0; g < groups; g++) {
                        const uint8_t *at = rows + (size_t)g * pairs * 64;
                        __m512i sum = _mm512_set1_epi16((int16_t)(-128 * offset));
                        for (uint32_t p = 0; p < pairs; p++)
                                sum = _mm512_add_epi16(
                                    sum, _mm512_maddubs_epi16(_mm512_loadu_si512(at + p * 64),
                                                              _mm512_set1_epi16(wide[p])));
                        _mm512_storeu_si512(sums + (size_t)q * stride + g * CAIRN_GROUP_TOKENS,
                                            sum);
                }
        }
}

ALWAYS int32_t total32(__m256i x)
{
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
        return _mm_cvtsi128_si32(sum);
}

ALWAYS void row_dots_of(const int8_t *row, uint32_t bytes, const int16_t *queries, const uint32_t n,
                        int32_t *ret_dots)
{
        __m512i sums[CAIRN_BATCH];
        uint32_t j = 0;
        CAIRN_UNROLL
        for (uint32_t q = 0; q < n; q++)
                sums[q] = _mm512_setzero_si512();
        for (; j + 32 <= bytes; j += 32) {
                __m512i x = _mm512_cvtepi8_epi16(
                    _mm256_loadu_si256((const __m256i *)(const void *)(row + j)));
                CAIRN_UNROLL
                for (uint32_t q = 0; q < n; q++)
                        sums[q] = _mm512_add_epi32(
                            sums[q], _mm512_madd_epi16(x, _mm512_loadu_si512(
                                                              queries + (size_t)q * bytes + j)));
        }
        CAIRN_UNROLL
        for (uint32_t q = 0; q < n; q++) {
                __m256i sum = _mm256_add_epi32(_mm512_castsi512_si256(sums[q]),
                                               _mm512_extracti64x4_epi64(sums[q], 1));
                if (j < bytes) { // 16 left
                        const int16_t *query = queries + (size_t)q * bytes + j;
                        __m256i x = _mm256_cvtepi8_epi16(
                            _mm_loadu_si128((const __m128i *)(const void *)(row + j)));
                        __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)query);
                        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, y));
                }
                ret_dots[q] = total32(sum);
        }
}

static void row_dots(const int8_t *row, uint32_t bytes, const int16_t *queries, uint32_t n_queries,
                     int32_t *ret_dots)
{
        uint32_t q = 0;
        for (; q + 4 <= n_queries; q += 4)
                row_dots_of(row, bytes, queries + (size_t)q * bytes, 4, ret_dots + q);
        for (; q < n_queries; q++)
                row_dots_of(row, bytes, queries + (size_t)q * bytes, 1, ret_dots + q);
}

static void row_scores(const int8_t *row, uint32_t bytes, const int16_t *queries,
                       uint32_t n_queries, float scale, const float *units, const float *means,
                       float *ret_scores)
{
        int32_t products[CAIRN_BATCH];
        for (uint32_t q0 = 0; q0 < n_queries; q0 += CAIRN_BATCH) {
                uint32_t n = n_queries - q0 < CAIRN_BATCH ? n_queries - q0 : CAIRN_BATCH;
                row_dots(row, bytes, queries + (size_t)q0 * bytes, n, products);
                for (uint32_t q = 0; q < n; q++)
                        ret_scores[q0 + q] =
                            cairn_score_of(products[q], scale * units[q0 + q], means[q0 + q]);
        }
}

// Adds 8 columns of 16-bit sums, still apart in four lanes, to eight floats.
ALWAYS void add_columns(__m512i sums, float unit, float *out)
{
        __m256i lanes =
            _mm256_add_epi16(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
        __m128i columns =
            _mm_add_epi16(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
        __m256 x = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(columns));
        x = _mm256_mul_ps(x, _mm256_set1_ps(unit));
        _mm256_storeu_ps(out, _mm256_add_ps(_mm256_loadu_ps(out), x));
}

enum {
        EIGHTS_MAX = CAIRN_WEIGHT_TOKENS / 8
};

// One nibble half and one coordinate of a block of 16 sub-quantizers, over up to 4 groups, for a
// constant number of queries.
ALWAYS void value_half(const uint8_t *codes, size_t group_bytes, uint32_t groups, __m512i points,
                       const __m512i weights[][EIGHTS_MAX], const float *units, const bool upper,
                       const uint32_t queries, float *const *outs, size_t at)
{
        const __m512i nibble = _mm512_set1_epi8(15);
        __m512i sums[CAIRN_BATCH];
        CAIRN_UNROLL
        for (uint32_t q = 0; q < queries; q++)
                sums[q] = _mm512_setzero_si512();
        for (uint32_t g = 0; g < groups; g++, codes += group_bytes) {
                for (uint32_t i = 0; i < 4; i++) {
                        __m512i code = _mm512_loadu_si512(codes + i * 64);
                        code = upper ? _mm512_srli_epi16(code, 4) : code;
                        __m512i x = _mm512_shuffle_epi8(points, _mm512_and_si512(code, nibble));
                        CAIRN_UNROLL
                        for (uint32_t q = 0; q < queries; q++)
                                sums[q] = _mm512_add_epi16(
                                    sums[q], _mm512_maddubs_epi16(weights[q][g * 4 + i], x));
                }
        }
        CAIRN_UNROLL
        for (uint32_t q = 0; q < queries; q++)
                add_columns(sums[q], units[q], outs[q] + at);
}

static void value_sums(const uint8_t *codes, uint32_t groups, uint32_t blocks, uint32_t bits,
                       const uint8_t *weights, const float *units, uint32_t queries,
                       float *const *outs, const uint8_t *next)
{
        (void)next;
        const struct cairn_grid *grid = cairn_grid_of(bits);
        __m512i wide[CAIRN_BATCH][EIGHTS_MAX], points[2];
        uint8_t table[2][64], pairs[64];
        uint32_t subs = blocks * CAIRN_VALUE_BLOCK_SUBS;
        size_t bytes = (size_t)blocks * CAIRN_VALUE_BLOCK_BYTES;
        for (uint32_t i = 0; i < 64; i++) {
                pairs[i] = (uint8_t)(i / 16 * 2 + i % 2);
                for (uint32_t d = 0; d < 2; d++)
                        table[d][i] =
                            (uint8_t)grid->points[i % 16 * grid->dims + (d < grid->dims ? d : 0)];
        }
        for (uint32_t d = 0; d < 2; d++)
                points[d] = _mm512_loadu_si512(table[d]);
        for (uint32_t q = 0; q < queries; q++)
                for (uint32_t i = 0; i < groups * 4; i++) {
                        int64_t eight;
                        memcpy(&eight, weights + q * CAIRN_WEIGHT_TOKENS + i * 8, sizeof eight);
                        wide[q][i] = _mm512_shuffle_epi8(_mm512_set1_epi64(eight),
                                                         _mm512_loadu_si512(pairs));
                }
        for (uint32_t i = 0; i < blocks * grid->dims; i++) {
                uint32_t b = i / grid->dims, d = i % grid->dims, n = queries == 4 ? 4 : 1;
                const uint8_t *at = codes + (size_t)b * CAIRN_VALUE_BLOCK_BYTES;
                size_t to = (size_t)b * CAIRN_VALUE_BLOCK_SUBS + (size_t)d * subs;
                for (uint32_t q = 0; q < queries; q += n) {
                        if (n == 4) {
                                value_half(at, bytes, groups, points[d], wide, units, false, 4,
                                           outs, to);
                                value_half(at, bytes, groups, points[d], wide, units, true, 4, outs,
                                           to + 8);
                        } else {
                                value_half(at, bytes, groups, points[d], wide + q, units + q, false,
                                           1, outs + q, to);
                                value_half(at, bytes, groups, points[d], wide + q, units + q, true,
                                           1, outs + q, to + 8);
                        }
                }
        }
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

const struct cairn_kernels cairn_kernels_avx512 = {
    .isa = CAIRN_ISA_AVX512,
    .table_sums = table_sums,
    .outlier_sums = outlier_sums,
    .row_dots = row_dots,
    .row_scores = row_scores,
    .value_sums = value_sums,
    .to_halves = to_halves,
    .fence = fence,
    BODY_KERNELS,
};
