// The code grids: what a nibble stands for. The numbers are made by grids.py.
#include "policy/landmark/grid.h"

#include <stddef.h>

#include "policy/landmark/grids.h"

const struct cairn_grid *cairn_grid_of(uint32_t bits)
{
        static const struct cairn_grid grids[3] = {
            {4, CAIRN_GRID_1_STEP, CAIRN_GRID_1_ERROR, CAIRN_GRID_1_POINTS},
            {2, CAIRN_GRID_2_STEP, CAIRN_GRID_2_ERROR, CAIRN_GRID_2_POINTS},
            {1, CAIRN_GRID_4_STEP, CAIRN_GRID_4_ERROR, CAIRN_GRID_4_POINTS},
        };
        switch (bits) {
        case 1: return &grids[0];
        case 2: return &grids[1];
        case 4: return &grids[2];
        default: return NULL;
        }
}
