// The AMX kernel over emulated tiles, against the scalar one, and what asks for it.
#if defined(__x86_64__)
#include "tests/unit/emulated_amx.h"

#define CAIRN_EMULATED
#define cairn_amx_rows_dots amx_rows_dots_emulated
#include "policy/landmark/score_amx.c"
#undef cairn_amx_rows_dots

#include <criterion/criterion.h>

#include "policy/landmark/selection.h"
#include "tests/unit/landmark_fixture.h"

static void check_dots(struct rng *rng, uint32_t bytes, uint32_t n_rows, uint32_t n_queries,
                       uint32_t gap, bool extreme)
{
        uint32_t stride = bytes + gap;
        size_t row_bytes = (size_t)(n_rows - 1) * stride + bytes;
        size_t query_bytes = (size_t)n_queries * bytes * 2,
               dot_bytes = (size_t)n_rows * n_queries * 4;
        int8_t *rows = guarded(row_bytes);
        int16_t *queries = guarded(query_bytes);
        int32_t *dots = guarded(dot_bytes), want[CAIRN_GROUP_MAX];
        for (size_t i = 0; i < row_bytes; i++)
                rows[i] = extreme ? (int8_t)(i % 3 ? -128 : 127) : (int8_t)rng_next(rng);
        for (size_t i = 0; i < query_bytes / 2; i++)
                queries[i] = (int16_t)(extreme ? (i % 2 ? CAIRN_QUERY_MAX : -CAIRN_QUERY_MAX)
                                               : (int)rng_below(rng, 2 * CAIRN_QUERY_MAX + 1) -
                                                     CAIRN_QUERY_MAX);
        amx_rows_dots_emulated(rows, n_rows, stride, bytes, queries, n_queries, dots);
        cr_assert(!amx.configured, "released");
        for (uint32_t r = 0; r < n_rows; r++) {
                cairn_kernels_scalar.row_dots(rows + (size_t)r * stride, bytes, queries, n_queries,
                                              want);
                cr_assert_eq(memcmp(want, dots + (size_t)r * n_queries, n_queries * 4), 0,
                             "bytes %u, row %u of %u, %u queries", bytes, r, n_rows, n_queries);
        }
        guarded_free(rows, row_bytes);
        guarded_free(queries, query_bytes);
        guarded_free(dots, dot_bytes);
}

// Cases 33 and 34: all dims, tails of rows and of queries, a guard page behind each buffer.
Test(landmark_amx, dots_are_the_scalar_ones)
{
        static const uint32_t queries[] = {1, 2, 8, 12, 15, 16, 17, 32, 33, 128};
        struct rng rng = rng_start("amx dots");
        for (uint32_t bytes = 16; bytes <= CAIRN_DIM_PADDED_MAX; bytes += 16)
                check_dots(&rng, bytes, 1 + rng_below(&rng, 40), 1 + rng_below(&rng, 20),
                           16 * rng_below(&rng, 2), false);
        for (uint32_t i = 0; i < sizeof queries / sizeof queries[0]; i++)
                for (uint32_t rows = 1; rows <= 33; rows += rows == 1 ? 14 : 1 + rows % 2)
                        check_dots(&rng, 112, rows, queries[i], 0, false);
        check_dots(&rng, CAIRN_DIM_PADDED_MAX, 17, 17, 0, true);
        check_dots(&rng, 16, 1, 1, 0, true);
}

static void wrong_rows_dots(const int8_t *rows, uint32_t n_rows, uint32_t row_stride,
                            uint32_t bytes, const int16_t *queries, uint32_t n_queries,
                            int32_t *ret_dots)
{
        amx_rows_dots_emulated(rows, n_rows, row_stride, bytes, queries, n_queries, ret_dots);
        ret_dots[n_rows * n_queries - 1]++;
}

// What is asked of a machine with tiles before they serve.
Test(landmark_amx, the_check_tells_right_from_wrong)
{
        cr_assert(cairn_rows_dots_check(amx_rows_dots_emulated));
        cr_assert(!cairn_rows_dots_check(wrong_rows_dots));
        if (!cairn_isa_available(CAIRN_ISA_AMX)) {
                cr_assert_eq(cairn_isa_choose("amx"), CAIRN_EUNSUPPORTED);
                cr_assert_neq(cairn_isa_chosen(), CAIRN_ISA_AMX);
        }
}

// Scores of a run by many queries at once are those of one row after the other.
static void check_scan(struct rng *rng, uint32_t bits, uint32_t k_dim, uint32_t n_queries)
{
        struct cairn_landmark_shape shape = shape_of(k_dim, 0);
        struct cairn_kernels kernels = cairn_kernels_scalar;
        struct context c;
        kernels.rows_dots = amx_rows_dots_emulated;
        shape.landmark_bits = bits;
        shape.outliers = 0;
        context_alloc(&c, &shape, 300);
        context_fill(&c, rng, 2);
        c.k[5 * k_dim] = NAN; // case 32: the documented rule
        context_encode(&c, false);
        float *queries = calloc((size_t)n_queries * k_dim, sizeof(float));
        for (size_t i = 0; i < (size_t)n_queries * k_dim; i++)
                queries[i] = rng_gauss(rng);
        if (n_queries > 3)
                queries[3 * k_dim] = NAN;
        struct cairn_landmark_request r = {.layout = &c.layout,
                                           .pieces = c.pieces,
                                           .n_pieces = c.n_pieces,
                                           .queries = queries,
                                           .n_queries = n_queries,
                                           .scale = 0.1f,
                                           .k = 20};
        struct cairn_landmark_selection *s;
        size_t scratch_bytes = cairn_landmark_select_scratch_bytes(&r);
        void *scratch = aligned_alloc(64, (scratch_bytes + 63) / 64 * 64);
        cr_assert_eq(cairn_landmark_select_begin(&r, scratch, scratch_bytes, &s), CAIRN_OK);
        cairn_landmark_select_scan(s, 0, r.n_pieces);
        float *scores = calloc((size_t)n_queries * 256, sizeof(float));
        for (uint32_t run = 0; run < 2; run++) {
                const float *means = s->run_mean + run;
                bool many = cairn_scan_rows(&c.layout, &kernels, &s->query, &c.pieces[0], run * 128,
                                            128, means, s->n_runs_padded, scores, 256);
                cr_assert_eq(many, bits != 2 && n_queries >= CAIRN_MANY_QUERIES);
                for (uint32_t q = 0; many && q < n_queries; q++)
                        for (uint32_t t = 0; t < 128; t++) {
                                float want = s->scores[(size_t)q * s->score_stride + run * 128 + t];
                                float got = scores[(size_t)q * 256 + t];
                                cr_assert_eq(cairn_bits_of(got), cairn_bits_of(want), "%g %g", got,
                                             want);
                        }
        }
        cr_assert(!cairn_scan_rows(&c.layout, &cairn_kernels_scalar, &s->query, &c.pieces[0], 0,
                                   128, s->run_mean, s->n_runs_padded, scores, 256));
        free(scores);
        free(queries);
        free(scratch);
        context_free(&c);
}

Test(landmark_amx, scans_are_the_scalar_ones)
{
        static const uint32_t queries[] = {7, 8, 16, 33, 128}, dims[] = {40, 64, 132, 576};
        struct rng rng = rng_start("amx scans");
        for (uint32_t i = 0; i < 5; i++)
                for (uint32_t j = 0; j < 4; j++) {
                        check_scan(&rng, 8, dims[j], queries[i]);
                        check_scan(&rng, 0, dims[j], queries[i]);
                }
        check_scan(&rng, 2, 64, 16);
}
#else
#include <criterion/criterion.h>

Test(landmark_amx, dots_are_the_scalar_ones)
{
        cr_skip("emulated on x86-64 alone");
}
#endif
