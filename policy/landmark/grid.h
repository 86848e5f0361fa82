// The code grids: what a nibble stands for.
// Used by policy/landmark alone. Threads: any; constant.
#ifndef CAIRN_LANDMARK_GRID_H
#define CAIRN_LANDMARK_GRID_H

#include <stdint.h>

enum {
        CAIRN_GRID_POINTS = 16,
        CAIRN_GRID_DIMS_MAX = 4
};

// A nibble c stands for points[c * dims .. c * dims + dims - 1] * step, for elements of unit
// variance.
struct cairn_grid {
        uint32_t dims;
        float step;
        float error; // mean square a dim for a standard Gaussian
        const int8_t *points;
};

// bits: 1, 2 or 4; NULL for others.
const struct cairn_grid *cairn_grid_of(uint32_t bits);

// The points as floats, times the step, and half their squared norms.
struct cairn_grid_floats {
        uint32_t dims;
        float points[CAIRN_GRID_POINTS][CAIRN_GRID_DIMS_MAX];
        float halves[CAIRN_GRID_POINTS];
};

static inline void cairn_grid_expand(const struct cairn_grid *grid,
                                     struct cairn_grid_floats *ret_floats)
{
        ret_floats->dims = grid->dims;
        for (uint32_t c = 0; c < CAIRN_GRID_POINTS; c++) {
                ret_floats->halves[c] = 0;
                for (uint32_t i = 0; i < CAIRN_GRID_DIMS_MAX; i++) {
                        float x = i < grid->dims
                                      ? (float)grid->points[c * grid->dims + i] * grid->step
                                      : 0;
                        ret_floats->points[c][i] = x;
                        ret_floats->halves[c] = ret_floats->halves[c] + 0.5f * x * x;
                }
        }
}

// Value codes of one group of 32 tokens: [block][quad of tokens][lane: 2 tokens][column: 8][token
// of the pair]. A byte holds sub-quantizer 16 * block + column in its low nibble and the one 8
// further in its high nibble.
enum {
        CAIRN_VALUE_BLOCK_SUBS = 16,
        CAIRN_VALUE_BLOCK_BYTES = 8 * 32
};

static inline uint32_t cairn_value_code_offset(uint32_t sub, uint32_t token)
{
        uint32_t block = sub / CAIRN_VALUE_BLOCK_SUBS, column = sub % 8;
        return block * CAIRN_VALUE_BLOCK_BYTES + token / 4 * 32 + token % 4 / 2 * 16 + column * 2 +
               token % 2;
}

static inline uint32_t cairn_value_code(const uint8_t *codes, uint32_t sub, uint32_t token)
{
        uint8_t byte = codes[cairn_value_code_offset(sub, token)];
        return sub % CAIRN_VALUE_BLOCK_SUBS < 8 ? byte & 15u : byte >> 4;
}

#endif
