// Prepares the query rows of a step: scaled floats, integers for int8 rows, and byte tables for
// codes.
#include "policy/landmark/selection.h"

void cairn_query_carve(struct cairn_scratch *scratch, const struct cairn_landmark_layout *layout,
                       uint32_t n_queries, struct cairn_query *ret_query)
{
        const struct cairn_grid *grid = cairn_grid_of(layout->shape.landmark_bits);
        struct cairn_query *q = ret_query;
        q->n = n_queries;
        q->padded = cairn_round_up(layout->shape.k_dim, CAIRN_LANES);
        q->subs = grid ? layout->code_dim / grid->dims : 0;
        q->rows = cairn_scratch_take(scratch, (size_t)n_queries * q->padded * sizeof(float));
        q->turned = cairn_scratch_take(scratch, (size_t)cairn_round_up(n_queries, CAIRN_BATCH) *
                                                    q->padded * sizeof(float));
        q->whole = cairn_scratch_take(scratch, (size_t)n_queries * q->padded * sizeof(int16_t));
        q->whole_units = cairn_scratch_take(scratch, n_queries * sizeof(float));
        q->tables = cairn_scratch_take(scratch, (size_t)n_queries * q->subs * CAIRN_GRID_POINTS);
        q->table_units = cairn_scratch_take(scratch, n_queries * sizeof(float));
        q->table_bases = cairn_scratch_take(scratch, n_queries * sizeof(float));
}

// Scales and clamps one query row; false when it is not finite (then it is zero).
static bool load(const float *query, float scale, uint32_t k_dim, uint32_t padded, float *ret_row)
{
        bool finite = true;
        for (uint32_t j = 0; j < padded; j++) {
                float x = j < k_dim ? query[j] * scale : 0;
                finite = finite && (j >= k_dim || fabsf(query[j]) <= FLT_MAX);
                x = x < CAIRN_ELEMENT_MAX ? x : CAIRN_ELEMENT_MAX;
                ret_row[j] = x > -CAIRN_ELEMENT_MAX ? x : -CAIRN_ELEMENT_MAX;
        }
        if (!finite)
                memset(ret_row, 0, padded * sizeof(float));
        return finite;
}

static void make_integers(struct cairn_query *query, uint32_t q)
{
        const float *row = query->rows + (size_t)q * query->padded;
        int16_t *whole = query->whole + (size_t)q * query->padded;
        float largest = 0;
        for (uint32_t j = 0; j < query->padded; j++)
                largest = fabsf(row[j]) > largest ? fabsf(row[j]) : largest;
        float inverse = largest > 1e-30f ? CAIRN_QUERY_MAX / largest : 0;
        for (uint32_t j = 0; j < query->padded; j++)
                whole[j] = (int16_t)cairn_round(row[j] * inverse);
        query->whole_units[q] = largest > 1e-30f ? largest / CAIRN_QUERY_MAX : 0;
}

// The largest sum over eight tables of what their entries span: those that add up in a byte.
static float widest_eight(const float *spans, uint32_t subs)
{
        float widest = 0;
        for (uint32_t s = 0; s < subs; s += CAIRN_TABLES_ADDED) {
                float sum = 0;
                for (uint32_t i = s; i < cairn_min_u32(s + CAIRN_TABLES_ADDED, subs); i++)
                        sum = sum + spans[i];
                widest = sum > widest ? sum : widest;
        }
        return widest;
}

// Four grid points at a time; every machine has vectors of 16 bytes.
typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t v4i __attribute__((vector_size(16), aligned(4), may_alias));

static v4 least_of(v4 a, v4 b)
{
        v4i less = a < b;
        return (v4)(((v4i)a & less) | ((v4i)b & ~less));
}

// y . point for the points of one table, and the least and largest of them.
static void multiply_points(const float *y, uint32_t subs, const struct cairn_grid *grid,
                            const float points[CAIRN_GRID_DIMS_MAX][CAIRN_GRID_POINTS],
                            float *ret_products, float *ret_least, float *ret_most)
{
        v4 low = (v4){0} + FLT_MAX, high = low; // high: of the negatives
        for (uint32_t c = 0; c < CAIRN_GRID_POINTS; c += 4) {
                v4 x = {0};
                for (uint32_t i = 0; i < grid->dims; i++)
                        x = x + *(const v4 *)(points[i] + c) * y[i * subs];
                *(v4 *)(ret_products + c) = x;
                low = least_of(x, low);
                high = least_of(-x, high);
        }
        *ret_least = low[0];
        *ret_most = -high[0];
        for (uint32_t i = 1; i < 4; i++) {
                *ret_least = low[i] < *ret_least ? low[i] : *ret_least;
                *ret_most = -high[i] > *ret_most ? -high[i] : *ret_most;
        }
}

// Bytes of one table: round((product - least) * inverse).
static void round_table(const float *products, float least, float inverse, uint8_t *ret_table)
{
        int32_t whole[CAIRN_GRID_POINTS];
        for (uint32_t c = 0; c < CAIRN_GRID_POINTS; c += 4) {
                v4 x = (*(const v4 *)(products + c) - least) * inverse;
                *(v4i *)(whole + c) = (v4i)(x + 12582912.0f) - 0x4b400000; // cairn_round
        }
        for (uint32_t c = 0; c < CAIRN_GRID_POINTS; c++)
                ret_table[c] = (uint8_t)whole[c];
}

// Byte tables of one query: entry = round((y . point - least of the table) / unit); the sum of the
// least is the base.
static void make_tables(struct cairn_query *query, const struct cairn_grid *grid, const float *y,
                        uint32_t q)
{
        struct cairn_grid_floats floats;
        float products[CAIRN_DIM_PADDED_MAX][CAIRN_GRID_POINTS], least[CAIRN_DIM_PADDED_MAX];
        float points[CAIRN_GRID_DIMS_MAX][CAIRN_GRID_POINTS];
        float spans[CAIRN_DIM_PADDED_MAX], base = 0, most;
        uint32_t subs = query->subs;
        cairn_grid_expand(grid, &floats);
        for (uint32_t i = 0; i < grid->dims; i++)
                for (uint32_t c = 0; c < CAIRN_GRID_POINTS; c++)
                        points[i][c] = floats.points[c][i];
        for (uint32_t s = 0; s < subs; s++) {
                multiply_points(y + s, subs, grid, points, products[s], &least[s], &most);
                spans[s] = most - least[s];
                base = base + least[s];
        }
        float span = widest_eight(spans, subs);
        float inverse = span > 1e-30f ? CAIRN_TABLES_SUM / span : 0;
        uint8_t *table = query->tables + (size_t)q * subs * CAIRN_GRID_POINTS;
        for (uint32_t s = 0; s < subs; s++, table += CAIRN_GRID_POINTS)
                round_table(products[s], least[s], inverse, table);
        query->table_units[q] = span > 1e-30f ? span / CAIRN_TABLES_SUM : 0;
        query->table_bases[q] = base;
}

// Elements of four query rows side by side, as outlier weights want them.
static void turn(struct cairn_query *query)
{
        float *to = query->turned;
        for (uint32_t q0 = 0; q0 < query->n; q0 += CAIRN_BATCH)
                for (uint32_t j = 0; j < query->padded; j++)
                        for (uint32_t q = q0; q < q0 + CAIRN_BATCH; q++)
                                *to++ =
                                    q < query->n ? query->rows[(size_t)q * query->padded + j] : 0;
}

void cairn_query_prepare(const struct cairn_kernels *kernels,
                         const struct cairn_landmark_layout *layout, const float *queries,
                         float scale, struct cairn_rotation *rotation, struct cairn_query *query)
{
        const struct cairn_grid *grid = cairn_grid_of(layout->shape.landmark_bits);
        uint32_t k_dim = layout->shape.k_dim;
        float y[CAIRN_DIM_PADDED_MAX];
        if (grid)
                cairn_rotation_init(rotation, layout->code_dim);
        for (uint32_t q = 0; q < query->n; q++) {
                float *row = query->rows + (size_t)q * query->padded;
                bool finite = load(queries + (size_t)q * k_dim, scale, k_dim, query->padded, row);
                make_integers(query, q);
                if (grid) {
                        memcpy(y, row, layout->code_dim * sizeof(float));
                        cairn_rotate(kernels, rotation, y);
                        make_tables(query, grid, y, q);
                }
                if (finite)
                        continue;
                query->whole_units[q] = NAN;
                if (grid)
                        query->table_bases[q] = NAN;
                for (uint32_t j = 0; j < k_dim; j++)
                        row[j] = NAN;
        }
        turn(query);
}
