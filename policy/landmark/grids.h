// Code grids: 16 points a nibble, as int8 multiples of a step (grids.py).
// Errors are mean squares a dim for a standard Gaussian; the best scalar codes: 0.3634
// and 0.1175 at 1 and 2 bits.
#ifndef CAIRN_LANDMARK_GRIDS_H
#define CAIRN_LANDMARK_GRIDS_H

#include <stdint.h>

// 1 bit an element: 4 dims a nibble, error 0.34109.
#define CAIRN_GRID_1_STEP  2.63822818e-02f
#define CAIRN_GRID_1_ERROR 0.34109f
static const int8_t CAIRN_GRID_1_POINTS[16 * 4] = {
    -50, 18,  -27, -26, -42, 4,   34,  36, -40, -35, 24,  -26, -40, -29, -32, 30,
    -21, 38,  39,  -26, -18, 53,  -15, 29, -1,  1,   0,   2,   9,   -53, -28, -18,
    9,   -1,  -11, -63, 10,  -50, 27,  32, 10,  10,  -63, -2,  22,  -1,  -21, 57,
    27,  -17, 48,  -28, 31,  27,  41,  30, 34,  50,  -9,  -22, 62,  -13, -10, -1,
};

// 2 bits an element: 2 dims a nibble, error 0.10763.
#define CAIRN_GRID_2_STEP  3.14797150e-02f
#define CAIRN_GRID_2_ERROR 0.10763f
static const int8_t CAIRN_GRID_2_POINTS[16 * 2] = {
    -63, 9, -51, -30, -40, 44, -30, 5,   -18, -56, -18, -22, -11, 26,  -1, 59,
    0,   0, 11,  -28, 19,  24, 23,  -59, 28,  -4,  40,  50,  52,  -29, 58, 12,
};

// 4 bits an element: 1 dim a nibble, error 0.00957.
#define CAIRN_GRID_4_STEP  4.33592382e-02f
#define CAIRN_GRID_4_ERROR 0.00957f
static const int8_t CAIRN_GRID_4_POINTS[16 * 1] = {
    -63, -48, -37, -29, -22, -15, -9, -3, 3, 9, 15, 21, 29, 37, 47, 63,
};

#endif
