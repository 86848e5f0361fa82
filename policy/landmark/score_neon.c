// NEON kernels (arm64): look-ups by vqtbl1q, 16 tokens a vector.
#include <arm_neon.h>

#include "policy/landmark/grid.h"
#include "policy/landmark/kernels.h"
#include "policy/landmark/numeric.h"

#define LANES 4
#include "policy/landmark/score_body.h"

#define ALWAYS static inline __attribute__((always_inline))

BODY vf body_max(vf a, vf b)
{
        float32x4_t x = (float32x4_t)a, y = (float32x4_t)b;
        return (vf)vbslq_f32(vcgtq_f32(x, y), x, y);
}

BODY vf body_halves(const uint16_t *at)
{
        return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at)));
}

BODY void body_put(vf x, float *at, const bool streamed)
{
        (void)streamed; // left to the processor
        body_store(at, x);
}

BODY void body_put_halves(vf x, uint16_t *at, const bool streamed)
{
        (void)streamed;
        vst1_u16(at, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x)));
}

BODY void body_put_low(vi x, uint16_t *at, const bool streamed)
{
        (void)streamed;
        vst1_u16(at, vmovn_u32((uint32x4_t)x));
}

BODY vf body_fma(vf a, vf b, vf c)
{
        return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

BODY vi body_blend(vi mask, vi a, vi b)
{
        return (a & mask) | (b & ~mask);
}

BODY vf body_from_uint16(const uint16_t *at)
{
        return (vf)vcvtq_f32_u32(vmovl_u16(vld1_u16(at)));
}

BODY vf body_from_int16(const int16_t *at)
{
        return (vf)vcvtq_f32_s32(vmovl_s16(vld1_s16(at)));
}

BODY vi body_from_int8(const int8_t *at)
{
        int32_t four;
        memcpy(&four, at, sizeof four);
        int16x8_t x = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
        return (vi)vmovl_s16(vget_low_s16(x));
}

BODY void body_to_bytes(vi x, int8_t *at)
{
        int16x4_t y = vmovn_s32((int32x4_t)x);
        int32_t four = vget_lane_s32(vreinterpret_s32_s8(vmovn_s16(vcombine_s16(y, y))), 0);
        memcpy(at, &four, sizeof four);
}

BODY uint32_t body_mask(const int32_t *keys, int32_t threshold)
{
        static const uint32_t bits[4] = {1, 2, 4, 8};
        uint32x4_t bit = vld1q_u32(bits);
        int32x4_t limit = vdupq_n_s32(threshold);
        uint32_t mask = 0;
        for (uint32_t i = 0; i < 8; i++)
                mask |= vaddvq_u32(vandq_u32(vcgeq_s32(vld1q_s32(keys + i * 4), limit), bit))
                        << (i * 4);
        return mask;
}

BODY vf body_pick(const float table[16], vi index)
{
        return (vf){table[index[0]], table[index[1]], table[index[2]], table[index[3]]};
}

BODY vf body_swap(vf x, uint32_t h)
{
        float32x4_t y = (float32x4_t)x;
        return (vf)(h == 1 ? vrev64q_f32(y) : vextq_f32(y, y, 2));
}

// 16 tokens for a constant number of queries.
ALWAYS void half_group_sums(const uint8_t *codes, uint32_t columns, const uint8_t *tables,
                            const uint32_t queries, uint16_t *sums, uint32_t stride)
{
        const uint8x16_t nibble = vdupq_n_u8(15);
        const size_t query_bytes = (size_t)columns * 2 * CAIRN_GRID_POINTS;
        uint16x8_t low[CAIRN_BATCH], high[CAIRN_BATCH];
        for (uint32_t q = 0; q < queries; q++)
                low[q] = high[q] = vdupq_n_u16(0);
        for (uint32_t j = 0; j < columns; j++) {
                uint8x16_t a = vld1q_u8(codes + (size_t)j * CAIRN_GROUP_TOKENS);
                uint8x16_t a0 = vandq_u8(a, nibble), a1 = vshrq_n_u8(a, 4);
                CAIRN_UNROLL
                for (uint32_t q = 0; q < queries; q++) {
                        const uint8_t *table = tables + q * query_bytes + (size_t)j * 32;
                        uint8x16_t x = vaddq_u8(vqtbl1q_u8(vld1q_u8(table), a0),
                                                vqtbl1q_u8(vld1q_u8(table + 16), a1));
                        low[q] = vaddw_u8(low[q], vget_low_u8(x));
                        high[q] = vaddw_high_u8(high[q], x);
                }
        }
        for (uint32_t q = 0; q < queries; q++) {
                vst1q_u16(sums + (size_t)q * stride, low[q]);
                vst1q_u16(sums + (size_t)q * stride + 8, high[q]);
        }
}

static void table_sums(const uint8_t *codes, uint32_t columns, uint32_t groups,
                       const uint8_t *tables, uint32_t queries, uint16_t *sums, uint32_t stride,
                       const uint8_t *next)
{
        (void)next; // left to the hardware's prefetcher
        for (uint32_t g = 0; g < groups * 2; g++) {
                const uint8_t *at =
                    codes + (size_t)(g / 2) * columns * CAIRN_GROUP_TOKENS + g % 2 * 16;
                uint16_t *out = sums + (size_t)g * 16;
                switch (queries) {
                case 1: half_group_sums(at, columns, tables, 1, out, stride); break;
                case 2: half_group_sums(at, columns, tables, 2, out, stride); break;
                case 3: half_group_sums(at, columns, tables, 3, out, stride); break;
                default: half_group_sums(at, columns, tables, 4, out, stride); break;
                }
        }
}

static void outlier_sums(const uint8_t *rows, uint32_t pairs, uint32_t groups,
                         const int8_t *weights, uint32_t queries, int16_t *sums, uint32_t stride)
{
        for (uint32_t i = 0; i < groups * CAIRN_GROUP_TOKENS; i += 8) {
                const uint8_t *at = rows + (size_t)(i / 32) * pairs * 64 + i % 32 * 2;
                for (uint32_t q = 0; q < queries; q++) {
                        int16x8_t sum = vdupq_n_s16(0);
                        for (uint32_t p = 0; p < pairs; p++) {
                                const int8_t *pair = weights + (q * pairs + p) * 2;
                                uint8x8x2_t raw = vld2_u8(at + p * 64);
                                int8x8_t a =
                                    vreinterpret_s8_u8(veor_u8(raw.val[0], vdup_n_u8(128)));
                                int8x8_t b =
                                    vreinterpret_s8_u8(veor_u8(raw.val[1], vdup_n_u8(128)));
                                sum = vmlal_s8(sum, a, vdup_n_s8(pair[0]));
                                sum = vmlal_s8(sum, b, vdup_n_s8(pair[1]));
                        }
                        vst1q_s16(sums + (size_t)q * stride + i, sum);
                }
        }
}

static void row_dots(const int8_t *row, uint32_t bytes, const int16_t *queries, uint32_t n_queries,
                     int32_t *ret_dots)
{
        for (uint32_t q = 0; q < n_queries; q++) {
                const int16_t *query = queries + (size_t)q * bytes;
                int32x4_t sum = vdupq_n_s32(0);
                for (uint32_t j = 0; j < bytes; j += 8) {
                        int16x8_t x = vmovl_s8(vld1_s8(row + j)), y = vld1q_s16(query + j);
                        sum = vmlal_s16(sum, vget_low_s16(x), vget_low_s16(y));
                        sum = vmlal_high_s16(sum, x, y);
                }
                ret_dots[q] = vaddvq_s32(sum);
        }
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

// One half (low or high nibbles) of a block for one query and coordinate: 8 columns of 16-bit sums,
// added to floats.
ALWAYS void value_half(const uint8_t *codes, size_t group_bytes, uint32_t groups, int8x16_t points,
                       uint32_t half, const uint8_t *weights, float unit, float *out)
{
        int16x8_t sum = vdupq_n_s16(0);
        for (uint32_t pair = 0; pair < groups * 16; pair++) {
                uint8x16_t code =
                    vld1q_u8(codes + (size_t)(pair / 16) * group_bytes + pair % 16 * 16);
                code = half ? vshrq_n_u8(code, 4) : vandq_u8(code, vdupq_n_u8(15));
                int8x16_t x = vqtbl1q_s8(points, code);
                int8x8_t first = vget_low_s8(vuzp1q_s8(x, x));
                int8x8_t second = vget_low_s8(vuzp2q_s8(x, x));
                sum = vmlaq_n_s16(sum, vmovl_s8(first), weights[pair * 2]);
                sum = vmlaq_n_s16(sum, vmovl_s8(second), weights[pair * 2 + 1]);
        }
        vf low = (vf)vcvtq_f32_s32(vmovl_s16(vget_low_s16(sum)));
        vf high = (vf)vcvtq_f32_s32(vmovl_high_s16(sum));
        body_store(out, body_load(out) + low * unit);
        body_store(out + 4, body_load(out + 4) + high * unit);
}

static void value_sums(const uint8_t *codes, uint32_t groups, uint32_t blocks, uint32_t bits,
                       const uint8_t *weights, const float *units, uint32_t queries,
                       float *const *outs, const uint8_t *next)
{
        (void)next;
        const struct cairn_grid *grid = cairn_grid_of(bits);
        uint32_t subs = blocks * CAIRN_VALUE_BLOCK_SUBS;
        size_t bytes = (size_t)blocks * CAIRN_VALUE_BLOCK_BYTES;
        for (uint32_t i = 0; i < grid->dims; i++) {
                int8_t table[CAIRN_GRID_POINTS];
                for (uint32_t c = 0; c < CAIRN_GRID_POINTS; c++)
                        table[c] = grid->points[c * grid->dims + i];
                int8x16_t points = vld1q_s8(table);
                for (uint32_t b = 0; b < blocks * 2; b++)
                        for (uint32_t q = 0; q < queries; q++)
                                value_half(codes + (size_t)(b / 2) * CAIRN_VALUE_BLOCK_BYTES, bytes,
                                           groups, points, b % 2, weights + q * CAIRN_WEIGHT_TOKENS,
                                           units[q], outs[q] + i * subs + b * 8);
        }
}

static void fence(void)
{
}

static void to_halves(const float *from, uint32_t n, uint16_t *ret_halves)
{
        for (uint32_t i = 0; i < n; i += 4)
                vst1_u16(ret_halves + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
}

const struct cairn_kernels cairn_kernels_neon = {
    .isa = CAIRN_ISA_NEON,
    .table_sums = table_sums,
    .outlier_sums = outlier_sums,
    .row_dots = row_dots,
    .row_scores = row_scores,
    .value_sums = value_sums,
    .to_halves = to_halves,
    .fence = fence,
    BODY_KERNELS,
};
