// What the parts of policy/landmark share: the bytes of a run's head, rows as floats, rotation,
// prepared queries. Used by policy/landmark and its tests and benchmarks. Threads: any; pure.
#ifndef CAIRN_LANDMARK_INTERNAL_H
#define CAIRN_LANDMARK_INTERNAL_H

#include <stddef.h>
#include <string.h>

#include "policy/landmark/grid.h"
#include "policy/landmark/kernels.h"
#include "policy/landmark/landmark.h"
#include "policy/landmark/numeric.h"

enum {
        CAIRN_RUN_TOKENS_MAX = 256,
        CAIRN_HALVES_STEP = 32,    // what the kernel for halves takes at least
        CAIRN_Q4_GROUP = 32,       // elements of a 4-bit row that share an fp16 scale
        CAIRN_Q4_GROUP_BYTES = 18, // scale, then 16 bytes: element j low, j + 16 high, offset by 8
        CAIRN_CENTRE_MAX = 127,    // a centre byte i stands for i * |i| * the run's centre scale
};

static inline uint32_t cairn_round_up(uint32_t x, uint32_t multiple)
{
        return (x + multiple - 1) / multiple * multiple;
}

static inline uint32_t cairn_min_u32(uint32_t a, uint32_t b)
{
        return a < b ? a : b;
}

// ---- A run's head: f32 centre scale; fp16 scale [channels]; channel index [channels] as u8, or
// u16 above 256 dims ----

static inline uint32_t cairn_outlier_channels(const struct cairn_landmark_shape *shape)
{
        return cairn_round_up(shape->outliers, 2);
}

static inline uint32_t cairn_run_head_bytes(const struct cairn_landmark_shape *shape)
{
        uint32_t index_bytes = shape->k_dim > 256 ? 2 : 1;
        return cairn_round_up(4 + cairn_outlier_channels(shape) * (2 + index_bytes), 4);
}

// Tokens of a run of a piece: a tail without codes has runs of the default length.
static inline uint32_t cairn_piece_run_tokens(const struct cairn_landmark_layout *layout,
                                              const struct cairn_landmark_piece *piece)
{
        return piece->code_run ? layout->shape.run_tokens : (uint32_t)CAIRN_LANDMARK_RUN_TOKENS;
}

// A run as numbers.
struct cairn_run_head {
        float centre_scale;
        uint32_t channels;
        float scales[CAIRN_HALVES_STEP];               // [channels], then zeros
        uint16_t indices[CAIRN_LANDMARK_OUTLIERS_MAX]; // always below k_dim
};

void cairn_run_head_read(const struct cairn_landmark_layout *layout,
                         const struct cairn_kernels *kernels, const uint8_t *code_run, uint32_t run,
                         struct cairn_run_head *ret_head);
void cairn_run_head_write(const struct cairn_landmark_layout *layout, uint8_t *code_run,
                          uint32_t run, const struct cairn_run_head *head);
// Centre of a run as floats, padded with zeros to a multiple of 16.
void cairn_centre_read(const struct cairn_landmark_layout *layout,
                       const struct cairn_kernels *kernels, const uint8_t *code_run, uint32_t run,
                       float *ret_centre);

// ---- Rows as floats (rows.c) ----

// Reads `dim` raw elements, clamps them to +-CAIRN_ELEMENT_MAX and pads with zeros to `padded` (a
// multiple of 16). Returns false when one is NaN or infinite (then it is written as 0).
bool cairn_row_from_raw(const struct cairn_kernels *kernels, const void *raw, uint32_t dtype,
                        uint32_t dim, uint32_t padded, float *ret_row);
// The same with no clamp and no change of NaN and infinities: what gather returns.
void cairn_row_exact(const void *raw, uint32_t dtype, uint32_t dim, float *ret_row);
void cairn_row_to_raw(const struct cairn_kernels *kernels, const float *row, uint32_t dtype,
                      uint32_t dim, void *ret_raw);

void cairn_q4_encode(const float *row, uint32_t dim, uint8_t *ret_bytes);
void cairn_q4_decode(const uint8_t *bytes, uint32_t dim, uint32_t padded, float *ret_row);
// ---- Rotation (rotate.c) ----

// Signs of the two passes for a dim, +-1.
struct cairn_rotation {
        uint32_t dim;   // a multiple of 8
        uint32_t power; // the largest power of two <= dim
        float signs[2][CAIRN_DIM_PADDED_MAX];
};

void cairn_rotation_init(struct cairn_rotation *rotation, uint32_t dim);
void cairn_rotate(const struct cairn_kernels *kernels, const struct cairn_rotation *rotation,
                  float *x);
void cairn_rotate_back(const struct cairn_kernels *kernels, const struct cairn_rotation *rotation,
                       float *x);

// Bump allocation in a caller's scratch, in steps of 64 bytes. With base NULL it only counts.
struct cairn_scratch {
        uint8_t *base;
        size_t used;
};

static inline void *cairn_scratch_take(struct cairn_scratch *scratch, size_t bytes)
{
        void *at = scratch->base ? scratch->base + scratch->used : NULL;
        scratch->used += (bytes + 63) / 64 * 64;
        return at;
}

#endif
