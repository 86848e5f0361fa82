// Rows as floats: raw dtypes, 8-bit and 4-bit row codecs, and the head of a run.
#include <assert.h>

#include "policy/landmark/internal.h"

// ---- dtypes ----

static float e4m3_to_float(uint8_t bits)
{
        uint32_t magnitude = bits & 0x7fu;
        uint32_t sign = (uint32_t)(bits & 0x80u) << 24;
        if (magnitude == 0x7f) // the only NaN; there is no infinity
                return cairn_float_of(sign | 0x7fc00000u);
        float value = cairn_float_of(magnitude << 20) * 0x1p120f; // exponent bias 7 against 127
        return cairn_float_of(cairn_bits_of(value) | sign);
}

static uint8_t e4m3_from_float(float x)
{
        uint8_t sign = (uint8_t)((cairn_bits_of(x) >> 24) & 0x80u);
        uint32_t bits = cairn_bits_of(x) & 0x7fffffffu;
        if (bits > 0x7f800000u)
                return sign | 0x7fu;
        float size = cairn_float_of(bits);
        if (size >= 464.0f) // beyond the midpoint of 448 and the next step: NaN
                return sign | 0x7fu;
        if (size < 0x1p-6f) {
                float shifted = size + 0x1p14f; // its step is 2^-9
                return (uint8_t)(sign | (cairn_bits_of(shifted) - 0x46800000u));
        }
        uint32_t rounded = bits + 0x7ffffu + ((bits >> 20) & 1u);
        return (uint8_t)(sign | ((rounded - 0x3c000000u) >> 20));
}

static float element(const uint8_t *raw, uint32_t dtype, uint32_t index)
{
        uint16_t half;
        float x;
        switch (dtype) {
        case CAIRN_DTYPE_F32: memcpy(&x, raw + (size_t)index * 4, 4); return x;
        case CAIRN_DTYPE_F16:
                memcpy(&half, raw + (size_t)index * 2, 2);
                return cairn_half_to_float(half);
        case CAIRN_DTYPE_BF16:
                memcpy(&half, raw + (size_t)index * 2, 2);
                return cairn_bf16_to_float(half);
        case CAIRN_DTYPE_F8E4M3: return e4m3_to_float(raw[index]);
        case CAIRN_DTYPE_F8E5M2: return cairn_half_to_float((uint16_t)(raw[index] << 8));
        default: assert(false); return 0;
        }
}

void cairn_row_exact(const void *raw, uint32_t dtype, uint32_t dim, float *ret_row)
{
        if (dtype == CAIRN_DTYPE_F32) {
                memcpy(ret_row, raw, (size_t)dim * 4);
                return;
        }
        if (dtype == CAIRN_DTYPE_BF16) {
                const uint8_t *bytes = raw;
                for (uint32_t j = 0; j < dim; j++) {
                        uint16_t half;
                        memcpy(&half, bytes + (size_t)j * 2, 2);
                        ret_row[j] = cairn_bf16_to_float(half);
                }
                return;
        }
        for (uint32_t j = 0; j < dim; j++)
                ret_row[j] = element(raw, dtype, j);
}

bool cairn_row_from_raw(const struct cairn_kernels *kernels, const void *raw, uint32_t dtype,
                        uint32_t dim, uint32_t padded, float *ret_row)
{
        const uint8_t *bytes = raw;
        uint32_t j = 0;
        if (dtype == CAIRN_DTYPE_F16) { // what fills whole vectors goes through the kernel
                uint16_t halves[CAIRN_DIM_PADDED_MAX];
                j = dim / 32 * 32;
                memcpy(halves, bytes, (size_t)j * 2);
                kernels->halves(halves, j, ret_row);
        }
        cairn_row_exact(bytes + (size_t)j * cairn_dtype_bytes(dtype), dtype, dim - j, ret_row + j);
        memset(ret_row + dim, 0, (padded - dim) * sizeof(float));
        return kernels->clean(ret_row, padded);
}

static uint8_t e5m2_from_float(float x)
{
        // Through a half rounded to odd, so that the second rounding sees what the first cut.
        uint16_t half = cairn_half_from_float(x);
        float back = cairn_half_to_float(half);
        if (!(fabsf(x) <= FLT_MAX) || fabsf(x) >= 61440.0f)
                return (uint8_t)((half & 0x8000u) >> 8 | (x != x ? 0x7eu : 0x7cu));
        if (back != x) {
                if (fabsf(back) > fabsf(x))
                        half--;
                half |= 1u;
        }
        uint32_t rounded = (half & 0x7fffu) + 0x7fu + ((half >> 8) & 1u);
        return (uint8_t)((half & 0x8000u) >> 8 | rounded >> 8);
}

void cairn_row_to_raw(const struct cairn_kernels *kernels, const float *row, uint32_t dtype,
                      uint32_t dim, void *ret_raw)
{
        uint8_t *bytes = ret_raw;
        uint16_t halves[CAIRN_DIM_PADDED_MAX];
        switch (dtype) {
        case CAIRN_DTYPE_F32: memcpy(bytes, row, (size_t)dim * 4); break;
        case CAIRN_DTYPE_F16:
                kernels->to_halves(row, dim / 8 * 8, halves);
                for (uint32_t j = dim / 8 * 8; j < dim; j++)
                        halves[j] = cairn_half_from_float(row[j]);
                memcpy(bytes, halves, (size_t)dim * 2);
                break;
        case CAIRN_DTYPE_BF16:
                for (uint32_t j = 0; j < dim; j++)
                        halves[j] = cairn_bf16_from_float(row[j]);
                memcpy(bytes, halves, (size_t)dim * 2);
                break;
        case CAIRN_DTYPE_F8E4M3:
                for (uint32_t j = 0; j < dim; j++)
                        bytes[j] = e4m3_from_float(row[j]);
                break;
        default:
                for (uint32_t j = 0; j < dim; j++)
                        bytes[j] = e5m2_from_float(row[j]);
                break;
        }
}

// ---- Row codecs ----

void cairn_q4_encode(const float *row, uint32_t dim, uint8_t *ret_bytes)
{
        for (uint32_t first = 0; first < dim; first += CAIRN_Q4_GROUP) {
                uint32_t n = cairn_min_u32(dim - first, CAIRN_Q4_GROUP);
                float largest = 0;
                for (uint32_t j = 0; j < n; j++)
                        largest = fabsf(row[first + j]) > largest ? fabsf(row[first + j]) : largest;
                float unit = largest / 7 < 65504.0f ? largest / 7 : 65504.0f;
                uint16_t scale = cairn_half_from_float(unit);
                float rounded = cairn_half_to_float(scale);
                memcpy(ret_bytes, &scale, 2);
                memset(ret_bytes + 2, 0x88, CAIRN_Q4_GROUP / 2);
                for (uint32_t j = 0; j < n && rounded > 0; j++) {
                        float x = row[first + j] / rounded;
                        x = x > 7 ? 7 : x < -8 ? -8 : x;
                        uint32_t code = (uint32_t)(cairn_round(x) + 8);
                        uint8_t *byte = ret_bytes + 2 + j % 16;
                        *byte = j < 16 ? (uint8_t)((*byte & 0xf0u) | code)
                                       : (uint8_t)((*byte & 0x0fu) | code << 4);
                }
                ret_bytes += CAIRN_Q4_GROUP_BYTES;
        }
}

void cairn_q4_decode(const uint8_t *bytes, uint32_t dim, uint32_t padded, float *ret_row)
{
        for (uint32_t first = 0; first < dim; first += CAIRN_Q4_GROUP) {
                uint32_t n = cairn_min_u32(dim - first, CAIRN_Q4_GROUP);
                uint16_t half;
                memcpy(&half, bytes, 2);
                float scale = cairn_half_to_float(half);
                for (uint32_t j = 0; j < n; j++) {
                        uint8_t byte = bytes[2 + j % 16];
                        int32_t code = (int32_t)(j < 16 ? byte & 15u : byte >> 4) - 8;
                        ret_row[first + j] = (float)code * scale;
                }
                bytes += CAIRN_Q4_GROUP_BYTES;
        }
        for (uint32_t j = dim; j < padded; j++)
                ret_row[j] = 0;
}

// ---- The head of a run ----

void cairn_run_head_read(const struct cairn_landmark_layout *layout,
                         const struct cairn_kernels *kernels, const uint8_t *code_run, uint32_t run,
                         struct cairn_run_head *ret_head)
{
        const struct cairn_landmark_shape *shape = &layout->shape;
        const uint8_t *at = code_run + layout->run_heads + run * cairn_run_head_bytes(shape);
        uint32_t channels = cairn_outlier_channels(shape);
        const uint8_t *indices = at + 4 + channels * 2;
        memcpy(&ret_head->centre_scale, at, 4);
        ret_head->channels = channels;
        uint16_t halves[CAIRN_HALVES_STEP] = {0};
        memcpy(halves, at + 4, (size_t)channels * 2);
        kernels->halves(halves, CAIRN_HALVES_STEP, ret_head->scales);
        for (uint32_t c = 0; c < channels; c++) {
                uint16_t index = 0;
                if (shape->k_dim > 256)
                        memcpy(&index, indices + c * 2, 2);
                else
                        index = indices[c];
                ret_head->indices[c] = index < shape->k_dim ? index : 0;
        }
}

void cairn_run_head_write(const struct cairn_landmark_layout *layout, uint8_t *code_run,
                          uint32_t run, const struct cairn_run_head *head)
{
        const struct cairn_landmark_shape *shape = &layout->shape;
        uint8_t *at = code_run + layout->run_heads + run * cairn_run_head_bytes(shape);
        uint8_t *indices = at + 4 + head->channels * 2;
        memcpy(at, &head->centre_scale, 4);
        for (uint32_t c = 0; c < head->channels; c++) {
                uint16_t half = cairn_half_from_float(head->scales[c]);
                memcpy(at + 4 + c * 2, &half, 2);
                if (shape->k_dim > 256)
                        memcpy(indices + c * 2, &head->indices[c], 2);
                else
                        indices[c] = (uint8_t)head->indices[c];
        }
}

void cairn_centre_read(const struct cairn_landmark_layout *layout,
                       const struct cairn_kernels *kernels, const uint8_t *code_run, uint32_t run,
                       float *ret_centre)
{
        uint32_t padded = cairn_round_up(layout->shape.k_dim, CAIRN_LANES);
        const int8_t *bytes = (const int8_t *)code_run + layout->centres + run * padded;
        float scale;
        memcpy(&scale, code_run + layout->run_heads + run * cairn_run_head_bytes(&layout->shape),
               4);
        kernels->centre(bytes, scale, padded, ret_centre);
}
