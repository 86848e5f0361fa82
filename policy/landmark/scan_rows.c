// Scores of a run's int8 rows against many queries at once, where the machine has tiles for it.
#include "policy/landmark/selection.h"

enum {
        ROWS_AT_ONCE = 16
};

// Where the rows of a piece lie that are scored as int8, and their scales.
struct int8_rows {
        const int8_t *rows;
        uint32_t stride;
        const uint8_t *scales;
        bool halves; // scales are fp16, else f32
};

static bool find_rows(const struct cairn_landmark_layout *l,
                      const struct cairn_landmark_piece *piece, uint32_t padded,
                      struct int8_rows *ret_rows)
{
        const uint8_t *code_run = piece->code_run;
        if (!code_run)
                return false;
        if (l->shape.landmark_bits == 8) {
                *ret_rows = (struct int8_rows){.rows = (const int8_t *)code_run + l->codes,
                                               .stride = padded,
                                               .scales = code_run + l->scales,
                                               .halves = true};
                return true;
        }
        if (l->shape.landmark_bits != 0 || l->shape.k_codec != CAIRN_ROW_Q8)
                return false;
        *ret_rows = (struct int8_rows){.rows = (const int8_t *)code_run + l->k_rows,
                                       .stride = l->k_row_bytes,
                                       .scales = code_run + l->k_row_scales};
        return true;
}

static float scale_of(const struct int8_rows *rows, uint32_t token)
{
        uint16_t half;
        float scale;
        if (rows->halves) {
                memcpy(&half, rows->scales + (size_t)token * 2, sizeof half);
                return cairn_half_to_float(half);
        }
        memcpy(&scale, rows->scales + (size_t)token * 4, sizeof scale);
        return scale;
}

bool cairn_scan_rows(const struct cairn_landmark_layout *layout,
                     const struct cairn_kernels *kernels, const struct cairn_query *query,
                     const struct cairn_landmark_piece *piece, uint32_t first, uint32_t n,
                     const float *means, uint32_t mean_stride, float *ret_scores,
                     uint64_t score_stride)
{
        int32_t dots[ROWS_AT_ONCE * CAIRN_GROUP_MAX * 2];
        struct int8_rows rows;
        if (!kernels->rows_dots || query->n < CAIRN_MANY_QUERIES ||
            !find_rows(layout, piece, query->padded, &rows))
                return false;
        uint32_t at_once =
            2 * ROWS_AT_ONCE * CAIRN_GROUP_MAX / query->n / ROWS_AT_ONCE * ROWS_AT_ONCE;
        for (uint32_t t0 = 0; t0 < n; t0 += at_once) {
                uint32_t here = cairn_min_u32(n - t0, at_once);
                kernels->rows_dots(rows.rows + (size_t)(first + t0) * rows.stride, here,
                                   rows.stride, query->padded, query->whole, query->n, dots);
                for (uint32_t t = 0; t < here; t++) {
                        float scale = scale_of(&rows, first + t0 + t);
                        for (uint32_t q = 0; q < query->n; q++)
                                ret_scores[q * score_stride + t0 + t] =
                                    cairn_score_of(dots[(size_t)t * query->n + q],
                                                   scale * query->whole_units[q],
                                                   means[(size_t)q * mean_stride]);
                }
        }
        return true;
}
