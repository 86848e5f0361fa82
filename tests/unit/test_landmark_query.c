// Prepared queries: what kernels rely on, and how near tables come to the products they stand for.
#include <criterion/criterion.h>

#include "policy/landmark/selection.h"
#include "tests/unit/landmark_fixture.h"

static const uint32_t dims[] = {8, 40, 64, 80, 128, 192, 576};
static const uint32_t bits[] = {1, 2, 4};

// A query of any kind: even, with a few huge elements, or of zeros but one.
static void draw_query(struct rng *rng, uint32_t dim, float *ret_query)
{
        uint32_t kind = rng_below(rng, 3);
        for (uint32_t j = 0; j < dim; j++)
                ret_query[j] = kind == 2 ? 0 : rng_gauss(rng);
        for (uint32_t i = 0; i < kind; i++)
                ret_query[rng_below(rng, dim)] = rng_gauss(rng) * 1000;
}

// Sum of the largest entries of eight tables from the first-th of query q, or of those that are
// left.
static uint32_t largest_sum(const struct cairn_query *query, uint32_t q, uint32_t first)
{
        const uint8_t *table =
            query->tables + ((size_t)q * query->subs + first) * CAIRN_GRID_POINTS;
        uint32_t end = cairn_min_u32(first + CAIRN_TABLES_ADDED, query->subs), sum = 0;
        for (uint32_t i = first; i < end; i++) {
                uint32_t most = 0;
                for (uint32_t c = 0; c < CAIRN_GRID_POINTS; c++, table++)
                        most = *table > most ? *table : most;
                sum += most;
        }
        return sum;
}

static void check_tables(struct rng *rng, uint32_t dim, uint32_t landmark_bits)
{
        struct cairn_landmark_shape shape = shape_of(dim, 0);
        struct cairn_landmark_layout layout;
        struct cairn_query query;
        struct cairn_scratch scratch = {0};
        struct cairn_rotation rotation;
        float queries[5 * 576];
        shape.landmark_bits = landmark_bits;
        shape.outliers = 0;
        cr_assert_eq(cairn_landmark_layout_init(&shape, &layout), CAIRN_OK);
        for (uint32_t q = 0; q < 5; q++)
                draw_query(rng, dim, queries + (size_t)q * dim);
        cairn_query_carve(&scratch, &layout, 5, &query);
        scratch.base = aligned_alloc(64, scratch.used);
        scratch.used = 0;
        cairn_query_carve(&scratch, &layout, 5, &query);
        cairn_query_prepare(cairn_kernels_chosen(), &layout, queries, 0.3f, &rotation, &query);
        for (uint32_t q = 0; q < 5; q++)
                for (uint32_t i = 0; i < query.subs; i += CAIRN_TABLES_ADDED)
                        cr_assert_leq(largest_sum(&query, q, i), 255, "dim %u bits %u", dim,
                                      landmark_bits);
        for (uint32_t q = 0; q < 5; q++)
                for (uint32_t j = 0; j < query.padded; j++)
                        cr_assert_eq(cairn_bits_of(query.rows[q * query.padded + j]),
                                     cairn_bits_of(
                                         query.turned[(q / 4 * query.padded + j) * 4 + q % 4]));
        free(scratch.base);
}

// Eight look-ups add up in a byte, whatever the query.
Test(landmark_query, eight_tables_add_up_in_a_byte)
{
        struct rng rng = rng_start("eight_tables_add_up_in_a_byte");
        for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
                for (size_t b = 0; b < sizeof bits / sizeof bits[0]; b++)
                        for (int round = 0; round < 20; round++)
                                check_tables(&rng, dims[d], bits[b]);
}
