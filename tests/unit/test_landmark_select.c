// Selection: counts at the edges, needles, groups, exclusions, budgets, numbers that are no
// numbers.
#include <criterion/criterion.h>

#include "tests/unit/landmark_fixture.h"

static struct cairn_landmark_request request_of(const struct context *c, const float *queries,
                                                uint32_t n_queries, uint32_t k)
{
        return (struct cairn_landmark_request){
            .layout = &c->layout,
            .pieces = c->pieces,
            .n_pieces = c->n_pieces,
            .queries = queries,
            .n_queries = n_queries,
            .scale = 1.0f / sqrtf((float)c->layout.shape.k_dim),
            .k = k,
        };
}

static void check_ascending(const struct cairn_landmark_result *r, uint32_t n)
{
        for (uint32_t i = 0; i < r->n_chosen; i++) {
                cr_assert_lt(r->positions[i], n);
                cr_assert(i == 0 || r->positions[i] > r->positions[i - 1]);
        }
}

// Case 31: exactly min(k, n) distinct positions in range.
Test(landmark_select, counts_at_the_edges)
{
        struct rng rng = rng_start("counts_at_the_edges");
        static const uint32_t sizes[] = {0, 1, 15, 16, 17, 31, 33, 127, 128, 129, 256, 257, 700};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                uint32_t n = sizes[i];
                struct context c;
                struct cairn_landmark_shape shape = shape_of(64, 64);
                context_alloc(&c, &shape, n);
                context_fill(&c, &rng, 1);
                context_encode(&c, i % 2 == 0);
                float query[64];
                for (int j = 0; j < 64; j++)
                        query[j] = rng_gauss(&rng);
                uint32_t ks[] = {0, 1, n ? n - 1 : 0, n, n + 1, 2 * n + 5};
                for (int x = 0; x < 6; x++) {
                        struct cairn_landmark_request r = request_of(&c, query, 1, ks[x]);
                        struct answer a;
                        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
                        cr_assert_eq(a.result.n_chosen, ks[x] < n ? ks[x] : n);
                        cr_assert_eq(a.result.n_eligible, n);
                        check_ascending(&a.result, n);
                        if (n == 0)
                                cr_assert_eq(a.result.lse_all[0], -INFINITY);
                        if (ks[x] == 0)
                                cr_assert_eq(a.result.lse_chosen[0], -INFINITY);
                        if (ks[x] >= n && n)
                                cr_assert_float_eq(a.result.lse_chosen[0], a.result.lse_all[0],
                                                   1e-5);
                        answer_free(&a);
                }
                context_free(&c);
        }
}

static int by_score(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;
        return x < y ? 1 : x > y ? -1 : 0;
}

// Fidelity on Gaussian keys: share of the exact top k found, and error of the log-sum-exp.
static double recall_of(uint32_t dim, uint32_t bits, uint32_t outliers, float bias, float *ret_lse)
{
        struct rng rng = {dim * 131 + bits};
        struct cairn_landmark_shape shape = shape_of(dim, 0);
        struct context c;
        uint32_t n = 4096, k = 128, found = 0;
        shape.landmark_bits = bits;
        shape.outliers = outliers;
        context_alloc(&c, &shape, n);
        context_fill(&c, &rng, 1);
        for (uint32_t t = 0; t < n && bias > 0; t++)
                for (uint32_t j = 0; j < 4; j++)
                        c.k[(size_t)t * dim + j * 7] = bias * (1 + 0.1f * rng_gauss(&rng));
        context_encode(&c, false);
        float *query = malloc(dim * sizeof(float));
        double *scores = malloc(n * sizeof(double)), *sorted = malloc(n * sizeof(double));
        for (uint32_t j = 0; j < dim; j++)
                query[j] = 2 * rng_gauss(&rng);
        struct cairn_landmark_request r = request_of(&c, query, 1, k);
        double sum = 0;
        for (uint32_t t = 0; t < n; t++)
                sorted[t] = scores[t] = exact_score(&c, query, r.scale, t);
        qsort(sorted, n, sizeof(double), by_score);
        for (uint32_t t = 0; t < n; t++)
                sum += exp(scores[t] - sorted[0]);
        struct answer a;
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        for (uint32_t i = 0; i < k; i++)
                found += scores[a.result.positions[i]] >= sorted[k - 1];
        *ret_lse = (float)(a.result.lse_all[0] - (sorted[0] + log(sum)));
        answer_free(&a);
        free(query);
        free(scores);
        free(sorted);
        context_free(&c);
        return (double)found / k;
}

Test(landmark_select, finds_the_top_of_gaussian_keys)
{
        static const struct {
                uint32_t dim, bits, outliers;
                float bias;
                double recall, lse;
        } cases[] = {
            {128, 1, 0, 0, 0.5, 0.35},  {128, 2, 0, 0, 0.8, 0.2},   {128, 2, 8, 0, 0.8, 0.2},
            {128, 4, 8, 0, 0.97, 0.05}, {128, 8, 0, 0, 0.97, 0.02}, {128, 0, 0, 0, 0.97, 0.02},
            {64, 2, 8, 0, 0.8, 0.2},    {80, 2, 8, 0, 0.8, 0.2},    {96, 2, 8, 0, 0.8, 0.2},
            {192, 2, 8, 0, 0.8, 0.2},   {576, 2, 8, 0, 0.8, 0.2},   {132, 2, 8, 0, 0.8, 0.2},
            {128, 2, 8, 200, 0.7, 0.3}, {64, 2, 8, 390, 0.7, 0.6},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
                float lse;
                double recall =
                    recall_of(cases[i].dim, cases[i].bits, cases[i].outliers, cases[i].bias, &lse);
                fprintf(stderr, "dim %u bits %u outliers %u bias %g: recall %.3f lse error %+.4f\n",
                        cases[i].dim, cases[i].bits, cases[i].outliers, cases[i].bias, recall, lse);
                cr_expect_geq(recall, cases[i].recall);
                cr_expect_leq(fabs(lse), cases[i].lse);
        }
}
