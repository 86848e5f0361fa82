// Checks a kernel table against the scalar one: integers and floats bit for bit, all tails, a guard
// page behind each buffer. Shared by the tests of native and emulated kernels.
#ifndef CAIRN_KERNEL_CHECKS_H
#define CAIRN_KERNEL_CHECKS_H

#ifdef CAIRN_CHECKS_ALONE // cross-built, without Criterion: the first failure ends the program
#include <stdio.h>
#include <stdlib.h>
#define cr_assert(condition, ...)                                              \
        do {                                                                   \
                if (!(condition)) {                                            \
                        printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
                        exit(1);                                               \
                }                                                              \
        } while (0)
#define cr_assert_eq(a, b, ...)       cr_assert((a) == (b))
#define cr_assert_leq(a, b, ...)      cr_assert((a) <= (b))
#define cr_assert_float_eq(a, b, gap) cr_assert(fabs((a) - (b)) <= (gap))
#else
#include <criterion/criterion.h>
#endif

#include "tests/unit/landmark_fixture.h"

static inline void same_floats(const float *a, const float *b, size_t n, const char *what)
{
        for (size_t i = 0; i < n; i++)
                cr_assert(cairn_bits_of(a[i]) == cairn_bits_of(b[i]) ||
                              (a[i] != a[i] && b[i] != b[i]),
                          "%s: float %zu: %.9g against %.9g", what, i, a[i], b[i]);
}

static inline void fill_bytes(struct rng *rng, void *at, size_t bytes)
{
        for (size_t i = 0; i < bytes; i++)
                ((uint8_t *)at)[i] = (uint8_t)rng_next(rng);
}

// Mostly plain numbers, now and then a special one.
static inline float odd_float(struct rng *rng, bool specials)
{
        static const float special[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 1e-40f};
        if (specials && rng_below(rng, 16) == 0)
                return special[rng_below(rng, 8)];
        return rng_gauss(rng) * (float)pow(10, (double)rng_below(rng, 6) - 2);
}

static inline float *odd_floats(struct rng *rng, size_t n, bool specials)
{
        float *x = guarded(n * sizeof(float));
        for (size_t i = 0; i < n; i++)
                x[i] = odd_float(rng, specials);
        return x;
}

static inline void check_table_sums(const struct cairn_kernels *k, struct rng *rng)
{
        for (uint32_t columns = 1; columns <= 144; columns += columns < 12 ? 1 : 33) {
                for (uint32_t queries = 1; queries <= 4; queries++) {
                        uint32_t groups = 1 + rng_below(rng, 3), n = groups * 32;
                        size_t code_bytes = (size_t)columns * n,
                               table_bytes = queries * columns * 32;
                        uint8_t *codes = guarded(code_bytes), *tables = guarded(table_bytes);
                        uint16_t *a = guarded(queries * n * 2), *b = guarded(queries * n * 2);
                        fill_bytes(rng, codes, code_bytes);
                        fill_bytes(rng, tables, table_bytes);
                        for (size_t i = 0; i < table_bytes; i++) // eight of them: a byte at most
                                tables[i] = columns == 9   ? 255 / CAIRN_TABLES_ADDED
                                            : columns == 8 ? (i / 16 % 8 == 5 ? tables[i] : 0)
                                                           : tables[i] & 31;
                        k->table_sums(codes, columns, groups, tables, queries, a, n,
                                      columns % 2 ? codes : NULL);
                        cairn_kernels_scalar.table_sums(codes, columns, groups, tables, queries, b,
                                                        n, NULL);
                        cr_assert_eq(memcmp(a, b, queries * n * 2), 0, "columns %u queries %u",
                                     columns, queries);
                        guarded_free(codes, code_bytes);
                        guarded_free(tables, table_bytes);
                        guarded_free(a, queries * n * 2);
                        guarded_free(b, queries * n * 2);
                }
        }
}

static inline void check_outlier_sums(const struct cairn_kernels *k, struct rng *rng)
{
        for (uint32_t pairs = 1; pairs <= 8; pairs++) {
                for (uint32_t queries = 1; queries <= 4; queries++) {
                        uint32_t groups = 1 + rng_below(rng, 4), n = groups * 32;
                        size_t row_bytes = (size_t)pairs * 2 * n;
                        uint8_t *rows = guarded(row_bytes);
                        int8_t *weights = guarded(queries * pairs * 2);
                        int16_t *a = guarded(queries * n * 2), *b = guarded(queries * n * 2);
                        fill_bytes(rng, rows, row_bytes);
                        for (uint32_t q = 0; q < queries; q++) {
                                int room = 127;
                                for (uint32_t c = 0; c < pairs * 2; c++) {
                                        int size = (int)rng_below(rng, (uint32_t)room + 1);
                                        room -= size;
                                        weights[q * pairs * 2 + c] =
                                            (int8_t)(rng_below(rng, 2) ? size : -size);
                                }
                        }
                        k->outlier_sums(rows, pairs, groups, weights, queries, a, n);
                        cairn_kernels_scalar.outlier_sums(rows, pairs, groups, weights, queries, b,
                                                          n);
                        cr_assert_eq(memcmp(a, b, queries * n * 2), 0);
                        guarded_free(rows, row_bytes);
                        guarded_free(weights, queries * pairs * 2);
                        guarded_free(a, queries * n * 2);
                        guarded_free(b, queries * n * 2);
                }
        }
}

static inline void check_finish(const struct cairn_kernels *k, struct rng *rng)
{
        for (int round = 0; round < 40; round++) {
                uint32_t groups = 1 + rng_below(rng, 4), n = groups * 32;
                uint16_t *sums = guarded(n * 2), *halves = guarded(n * 2);
                float *scales = guarded(n * 4), *again = guarded(n * 4);
                int16_t *outliers = guarded(n * 2);
                float *a = guarded(n * 4), *b = guarded(n * 4);
                fill_bytes(rng, sums, n * 2);
                fill_bytes(rng, halves, n * 2); // all halves: NaN, infinities and subnormals too
                k->halves(halves, n, scales);
                cairn_kernels_scalar.halves(halves, n, again);
                same_floats(scales, again, n, "halves");
                fill_bytes(rng, outliers, n * 2);
                struct cairn_score_terms terms = {odd_float(rng, true), odd_float(rng, true),
                                                  odd_float(rng, false), odd_float(rng, true)};
                const int16_t *extra = round % 2 ? outliers : NULL;
                float x = k->finish(sums, extra, scales, groups, &terms, a);
                float y = cairn_kernels_scalar.finish(sums, extra, scales, groups, &terms, b);
                same_floats(a, b, n, "finish");
                same_floats(&x, &y, 1, "finish's largest");
                guarded_free(sums, n * 2);
                guarded_free(scales, n * 4);
                guarded_free(again, n * 4);
                guarded_free(halves, n * 2);
                guarded_free(outliers, n * 2);
                guarded_free(a, n * 4);
                guarded_free(b, n * 4);
        }
}

// Any number of query heads at once, in records of any stride: here they share their scores.
static inline void check_exp_sums(const struct cairn_kernels *k, const float *scores, uint32_t n,
                                  float largest)
{
        float max[18], a[18] = {0}, b[18] = {0}, *none = guarded(n * 4);
        for (uint32_t q = 0; q < 18; q++)
                max[q] = largest + (float)q;
        for (uint32_t queries = 1; queries <= 9; queries++) {
                k->exp_sums(scores, 0, queries, n, max, a, 2);
                cairn_kernels_scalar.exp_sums(scores, 0, queries, n, max, b, 2);
                same_floats(a, b, 18, "exp_sums");
                for (uint32_t q = 0; q < queries; q++) {
                        float one = k->exp_sum(scores, n, max[2 * q]);
                        same_floats(&one, &a[2 * q], 1, "exp_sums of one");
                }
        }
        for (uint32_t i = 0; i < n; i++)
                none[i] = max[i % 18] = -INFINITY;
        k->exp_sums(none, 0, 9, n, max, a, 2);
        cairn_kernels_scalar.exp_sums(none, 0, 9, n, max, b, 2);
        same_floats(a, b, 18, "exp_sums of nothing");
        cr_assert_float_eq(a[0], 0, 1e-30);
        guarded_free(none, n * 4);
}

static inline void check_centre_dots(const struct cairn_kernels *k, struct rng *rng)
{
        for (uint32_t n = 16; n <= 576; n += 16 + 16 * rng_below(rng, 6)) {
                for (uint32_t queries = 1; queries <= 9; queries++) {
                        int8_t *bytes = guarded(n);
                        float *rows = guarded(queries * n * 4), *dots = guarded(queries * 4);
                        float centre[576], scale = odd_float(rng, true);
                        fill_bytes(rng, bytes, n);
                        for (uint32_t i = 0; i < queries * n; i++)
                                rows[i] = odd_float(rng, true);
                        k->centre_dots(bytes, scale, n, rows, queries, dots);
                        cairn_kernels_scalar.centre(bytes, scale, n, centre);
                        for (uint32_t q = 0; q < queries; q++) {
                                float dot = cairn_kernels_scalar.dot(rows + q * n, centre, n);
                                same_floats(&dot, &dots[q], 1, "centre_dots");
                        }
                        guarded_free(bytes, n);
                        guarded_free(rows, queries * n * 4);
                        guarded_free(dots, queries * 4);
                }
        }
}

static inline void check_exponentials(const struct cairn_kernels *k, struct rng *rng)
{
        for (int round = 0; round < 40; round++) {
                uint32_t n = 32 * (1 + rng_below(rng, 5));
                float *scores = guarded(n * 4), *a = guarded(n * 4), *b = guarded(n * 4);
                for (uint32_t i = 0; i < n; i++)
                        scores[i] = rng_below(rng, 9) ? rng_gauss(rng) * 30 : -INFINITY;
                float max = k->largest(scores, n), other = cairn_kernels_scalar.largest(scores, n);
                same_floats(&max, &other, 1, "largest");
                if (round % 5 == 0)
                        max = 1000;
                float x = k->exp_sum(scores, n, max);
                float y = cairn_kernels_scalar.exp_sum(scores, n, max);
                same_floats(&x, &y, 1, "exp_sum");
                check_exp_sums(k, scores, n, max);
                x = k->exp_weights(scores, n, max, a);
                y = cairn_kernels_scalar.exp_weights(scores, n, max, b);
                same_floats(&x, &y, 1, "sum of exp_weights");
                same_floats(a, b, n, "exp_weights");
                for (uint32_t i = 0; i < n; i++) {
                        if (scores[i] == -INFINITY)
                                cr_assert_eq(b[i], 0);
                        double exact = scores[i] > -INFINITY ? exp((double)(scores[i] - max)) : 0;
                        cr_assert_float_eq(
                            b[i], exact,
                            (exact > 0 ? 4e-7 - 8e-8 * (scores[i] - max) : 0) * exact + 5e-38);
                }
                guarded_free(scores, n * 4);
                guarded_free(a, n * 4);
                guarded_free(b, n * 4);
        }
}

static inline void check_ranks(const struct cairn_kernels *k, struct rng *rng)
{
        for (int round = 0; round < 40; round++) {
                uint32_t n = 32 * (1 + rng_below(rng, 5)), queries = 1 + rng_below(rng, 9);
                float *scores = guarded((size_t)queries * n * 4), lse[9];
                int32_t *a = guarded(n * 4), *b = guarded(n * 4);
                uint32_t *x = guarded((n + 16) * 4), *y = guarded((n + 16) * 4);
                for (uint32_t i = 0; i < n * queries; i++)
                        scores[i] = rng_below(rng, 9) ? (float)rng_below(rng, 8) - 9 : -INFINITY;
                for (uint32_t q = 0; q < queries; q++)
                        lse[q] = rng_gauss(rng);
                k->rank_sum(scores, n, queries, lse, n, a);
                cairn_kernels_scalar.rank_sum(scores, n, queries, lse, n, b);
                cr_assert_eq(memcmp(a, b, n * 4), 0);
                k->rank_max(scores, n, queries, lse, n, a);
                cairn_kernels_scalar.rank_max(scores, n, queries, lse, n, b);
                cr_assert_eq(memcmp(a, b, n * 4), 0);
                int32_t threshold = round % 4 ? a[rng_below(rng, n)] : CAIRN_KEY_NEVER + 1;
                uint32_t many = k->collect(a, n, threshold, 7, x);
                cr_assert_eq(many, cairn_kernels_scalar.collect(b, n, threshold, 7, y));
                cr_assert_eq(memcmp(x, y, many * 4), 0);
                guarded_free(scores, (size_t)queries * n * 4);
                guarded_free(a, n * 4);
                guarded_free(b, n * 4);
                guarded_free(x, (n + 16) * 4);
                guarded_free(y, (n + 16) * 4);
        }
}

// Units, means and scales of all kinds; NaN becomes -inf.
static inline void check_row_scores(const struct cairn_kernels *k, struct rng *rng, uint32_t n)
{
        uint32_t queries = 1 + rng_below(rng, 9);
        size_t query_bytes = (size_t)queries * n * 2;
        int8_t *row = guarded(n);
        int16_t *whole = guarded(query_bytes);
        float *units = odd_floats(rng, queries, true), *means = odd_floats(rng, queries, true);
        float *a = guarded(queries * 4), *b = guarded(queries * 4), scale = odd_float(rng, true);
        fill_bytes(rng, row, n);
        for (uint32_t i = 0; i < queries * n; i++)
                whole[i] =
                    (int16_t)((int32_t)rng_below(rng, 2 * CAIRN_QUERY_MAX) - CAIRN_QUERY_MAX);
        k->row_scores(row, n, whole, queries, scale, units, means, a);
        cairn_kernels_scalar.row_scores(row, n, whole, queries, scale, units, means, b);
        for (uint32_t q = 0; q < queries; q++) {
                cr_assert_eq(cairn_bits_of(a[q]), cairn_bits_of(b[q]));
                cr_assert(a[q] <= FLT_MAX);
        }
        guarded_free(row, n);
        guarded_free(whole, query_bytes);
        guarded_free(units, queries * 4);
        guarded_free(means, queries * 4);
        guarded_free(a, queries * 4);
        guarded_free(b, queries * 4);
}

static inline void check_rows(const struct cairn_kernels *k, struct rng *rng)
{
        for (uint32_t n = 16; n <= 576; n += 16) {
                uint32_t queries = 1 + rng_below(rng, 9);
                int8_t *row = guarded(n), *other = guarded(n);
                int16_t *whole = guarded((size_t)queries * n * 2);
                int32_t a[9], b[9];
                fill_bytes(rng, row, n);
                for (uint32_t i = 0; i < queries * n; i++) {
                        int32_t size = (int32_t)rng_below(rng, 2 * CAIRN_QUERY_MAX + 1);
                        whole[i] = (int16_t)(n == 576 ? CAIRN_QUERY_MAX : size - CAIRN_QUERY_MAX);
                        row[i % n] = n == 576 ? -128 : row[i % n];
                }
                k->row_dots(row, n, whole, queries, a);
                cairn_kernels_scalar.row_dots(row, n, whole, queries, b);
                cr_assert_eq(memcmp(a, b, queries * 4), 0);
                float *x = odd_floats(rng, n, false), *y = odd_floats(rng, n, false);
                float *u = guarded(n * 4), *v = guarded(n * 4);
                float p = k->dot(x, y, n), q = cairn_kernels_scalar.dot(x, y, n);
                same_floats(&p, &q, 1, "dot");
                k->centre(row, 0.37f, n, u);
                cairn_kernels_scalar.centre(row, 0.37f, n, v);
                same_floats(u, v, n, "centre");
                k->axpy(x, 1.7f, n, u);
                cairn_kernels_scalar.axpy(x, 1.7f, n, v);
                same_floats(u, v, n, "axpy");
                k->add_squares(x, n, u);
                cairn_kernels_scalar.add_squares(x, n, v);
                same_floats(u, v, n, "add_squares");
                if (n % 32 == 0)
                        memset(x, 0, n * 4);
                uint16_t half[576], halves[576];
                k->to_halves(y, n, half);
                cairn_kernels_scalar.to_halves(y, n, halves);
                cr_assert_eq(memcmp(half, halves, n * 2), 0);
                p = k->to_int8(x, n, row);
                q = cairn_kernels_scalar.to_int8(x, n, other);
                same_floats(&p, &q, 1, "to_int8");
                cr_assert_eq(memcmp(row, other, n), 0);
                k->from_int8(row, 0.9f, n % 3 ? y : NULL, n, u);
                cairn_kernels_scalar.from_int8(row, 0.9f, n % 3 ? y : NULL, n, v);
                same_floats(u, v, n, "from_int8");
                guarded_free(row, n);
                guarded_free(other, n);
                guarded_free(whole, (size_t)queries * n * 2);
                guarded_free(x, n * 4);
                guarded_free(y, n * 4);
                guarded_free(u, n * 4);
                guarded_free(v, n * 4);
        }
}

static inline void check_decode(const struct cairn_kernels *k, struct rng *rng)
{
        static const float scales[] = {0.9f, 3e-7f, 4e4f, 3e37f, NAN, 0};
        static const uint32_t dtypes[] = {CAIRN_DTYPE_F32, CAIRN_DTYPE_F16, CAIRN_DTYPE_BF16};
        for (uint32_t n = 16; n <= 576; n += 16) {
                uint32_t dtype = dtypes[n / 16 % 3];
                size_t bytes = (size_t)n * cairn_dtype_bytes(dtype);
                int8_t *row = guarded(n);
                float *centre = odd_floats(rng, n, n % 5 == 0);
                float scale = scales[rng_below(rng, 6)];
                uint8_t *a = guarded(bytes), *b = guarded(bytes);
                fill_bytes(rng, row, n);
                bool streamed = (uintptr_t)a % CAIRN_STREAM_ALIGN == 0;
                k->decode(row, scale, n % 7 ? centre : NULL, n, dtype, streamed, a);
                k->fence();
                cairn_kernels_scalar.decode(row, scale, n % 7 ? centre : NULL, n, dtype, false, b);
                if (dtype == CAIRN_DTYPE_F32)
                        same_floats((float *)(void *)a, (float *)(void *)b, n, "decode");
                else
                        cr_assert_eq(memcmp(a, b, bytes), 0, "decode: dtype %u, n %u", dtype, n);
                guarded_free(row, n);
                guarded_free(centre, n * 4);
                guarded_free(a, bytes);
                guarded_free(b, bytes);
        }
}

static inline void check_add_rows(const struct cairn_kernels *k, struct rng *rng)
{
        for (uint32_t n = 16; n <= 576; n += n < 144 ? 16 : 80) {
                uint32_t queries = 1 + rng_below(rng, 9), n_rows = rng_below(rng, 70);
                uint32_t stride = n_rows + rng_below(rng, 3);
                const int8_t *rows[70];
                int8_t *bytes = guarded((size_t)(n_rows + 1) * n);
                fill_bytes(rng, bytes, (size_t)(n_rows + 1) * n);
                for (uint32_t i = 0; i < n_rows; i++) // the last one ends at the guard page
                        rows[i] = bytes + (size_t)(1 + rng_below(rng, n_rows)) * n;
                float *weights = odd_floats(rng, (size_t)queries * stride + 1, false);
                float *a = odd_floats(rng, (size_t)queries * n, false);
                float *b = guarded((size_t)queries * n * 4);
                memcpy(b, a, (size_t)queries * n * 4);
                k->add_rows(rows, n_rows, n, weights, stride, queries, a, n);
                cairn_kernels_scalar.add_rows(rows, n_rows, n, weights, stride, queries, b, n);
                same_floats(a, b, (size_t)queries * n, "add_rows");
                guarded_free(bytes, (size_t)(n_rows + 1) * n);
                guarded_free(weights, ((size_t)queries * stride + 1) * 4);
                guarded_free(a, (size_t)queries * n * 4);
                guarded_free(b, (size_t)queries * n * 4);
        }
}

static inline void check_codes(const struct cairn_kernels *k, struct rng *rng)
{
        for (uint32_t n = 8; n <= 512; n *= 2) {
                float *x = odd_floats(rng, n, false), *y = guarded(n * 4);
                memcpy(y, x, n * 4);
                k->hadamard(x, n);
                cairn_kernels_scalar.hadamard(y, n);
                same_floats(x, y, n, "hadamard");
                guarded_free(x, n * 4);
                guarded_free(y, n * 4);
        }
        static const uint32_t bits[] = {1, 2, 4};
        for (uint32_t dim = 8; dim <= 576; dim += 8) {
                uint32_t b = bits[dim / 8 % 3], subs = dim / cairn_grid_of(b)->dims;
                float *y = guarded(dim * 4), *p = guarded(dim * 4), *q = guarded(dim * 4);
                uint8_t *a = guarded(subs), *c = guarded(subs);
                for (uint32_t j = 0; j < dim; j++)
                        y[j] = dim % 48 == 0 ? 0 : rng_gauss(rng);
                struct cairn_grid_floats grid;
                cairn_grid_expand(cairn_grid_of(b), &grid);
                k->nearest(y, subs, 0.9f, &grid, a, p);
                cairn_kernels_scalar.nearest(y, subs, 0.9f, &grid, c, q);
                cr_assert_eq(memcmp(a, c, subs), 0);
                same_floats(p, q, dim, "nearest");
                k->multiply(p, y, dim);
                cairn_kernels_scalar.multiply(q, y, dim);
                same_floats(p, q, dim, "multiply");
                float *odd = odd_floats(rng, (dim + 8) / 16 * 16, dim % 24 == 0);
                float *twin = guarded((dim + 8) / 16 * 16 * 4);
                memcpy(twin, odd, (dim + 8) / 16 * 16 * 4);
                cr_assert_eq(k->clean(odd, (dim + 8) / 16 * 16),
                             cairn_kernels_scalar.clean(twin, (dim + 8) / 16 * 16));
                same_floats(odd, twin, (dim + 8) / 16 * 16, "clean");
                guarded_free(odd, (dim + 8) / 16 * 16 * 4);
                guarded_free(twin, (dim + 8) / 16 * 16 * 4);
                guarded_free(y, dim * 4);
                guarded_free(p, dim * 4);
                guarded_free(q, dim * 4);
                guarded_free(a, subs);
                guarded_free(c, subs);
        }
}

static inline void check_values_of(const struct cairn_kernels *k, struct rng *rng, uint32_t blocks,
                                   uint32_t queries, uint32_t groups, uint32_t bits)
{
        uint32_t dim = blocks * 16 * cairn_grid_of(bits)->dims, n = groups * 32;
        size_t code_bytes = (size_t)groups * blocks * 256, out_bytes = (size_t)queries * dim * 4;
        uint8_t *codes = guarded(code_bytes), *again = guarded(n);
        uint8_t weights[4 * CAIRN_WEIGHT_TOKENS] = {0};
        float *raw = guarded(n * 4), units[4];
        uint16_t *scales = guarded(n * 2);
        float *a = guarded(out_bytes), *b = guarded(out_bytes);
        fill_bytes(rng, codes, code_bytes);
        for (uint32_t q = 0; q < queries; q++) {
                float unit;
                for (uint32_t t = 0; t < n; t++) {
                        raw[t] = q == 2 ? 0 : (float)rng_uniform(rng);
                        raw[t] = blocks == 3 && t ? 0 : raw[t];
                        raw[t] = blocks == 4 ? 1 : raw[t];
                        scales[t] = blocks == 4 ? 0x3c00 : (uint16_t)rng_below(rng, 0x7bff);
                }
                k->byte_weights(raw, scales, n, weights + q * CAIRN_WEIGHT_TOKENS, &unit);
                cairn_kernels_scalar.byte_weights(raw, scales, n, again, &units[q]);
                same_floats(&unit, &units[q], 1, "byte_weights");
                cr_assert_eq(memcmp(weights + q * CAIRN_WEIGHT_TOKENS, again, n), 0);
                uint32_t sum = 0;
                for (uint32_t t = 0; t < n; t++)
                        sum += again[t];
                cr_assert_leq(sum, CAIRN_WEIGHTS_SUM_MAX);
                if (blocks == 5) { // the largest sum of one point: 16 bits must hold it
                        memset(codes, 0, code_bytes);
                        memset(weights + q * CAIRN_WEIGHT_TOKENS, CAIRN_WEIGHTS_SUM_MAX / n, n);
                }
        }
        for (uint32_t i = 0; i < queries * dim; i++)
                a[i] = b[i] = rng_gauss(rng);
        float *outs[4], *others[4]; // in any order
        for (uint32_t q = 0; q < queries; q++) {
                outs[q] = a + (queries - 1 - q) * dim;
                others[q] = b + (queries - 1 - q) * dim;
        }
        k->value_sums(codes, groups, blocks, bits, weights, units, queries, outs, codes);
        cairn_kernels_scalar.value_sums(codes, groups, blocks, bits, weights, units, queries,
                                        others, NULL);
        same_floats(a, b, queries * dim, "value_sums");
        guarded_free(codes, code_bytes);
        guarded_free(again, n);
        guarded_free(raw, n * 4);
        guarded_free(scales, n * 2);
        guarded_free(a, out_bytes);
        guarded_free(b, out_bytes);
}

static inline void check_values(const struct cairn_kernels *k, struct rng *rng)
{
        for (uint32_t blocks = 1; blocks <= 18; blocks++)
                for (uint32_t queries = 1; queries <= 4; queries++)
                        for (uint32_t groups = 1; groups <= 4; groups++)
                                check_values_of(k, rng, blocks, queries, groups,
                                                (blocks + groups) % 2 ? 2 : 4);
}

static inline void check_kernels(const struct cairn_kernels *kernels, struct rng *rng)
{
        check_table_sums(kernels, rng);
        check_outlier_sums(kernels, rng);
        check_finish(kernels, rng);
        check_exponentials(kernels, rng);
        check_centre_dots(kernels, rng);
        check_ranks(kernels, rng);
        check_rows(kernels, rng);
        for (uint32_t n = 16; n <= 576; n += 16)
                check_row_scores(kernels, rng, n);
        check_codes(kernels, rng);
        check_values(kernels, rng);
}

#endif
