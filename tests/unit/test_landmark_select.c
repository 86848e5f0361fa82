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

// The fields of two answers, bit for bit.
static void check_same(const struct answer *a, const struct answer *b, uint32_t queries)
{
        cr_assert_eq(a->result.n_chosen, b->result.n_chosen);
        cr_assert_eq(a->result.n_eligible, b->result.n_eligible);
        for (uint32_t i = 0; i < a->result.n_chosen; i++) {
                cr_assert_eq(a->result.positions[i], b->result.positions[i]);
                cr_assert_eq(cairn_bits_of(a->result.scores[i]),
                             cairn_bits_of(b->result.scores[i]));
        }
        for (uint32_t q = 0; q < queries; q++) {
                cr_assert_eq(cairn_bits_of(a->result.lse_all[q]),
                             cairn_bits_of(b->result.lse_all[q]));
                cr_assert_eq(cairn_bits_of(a->result.lse_chosen[q]),
                             cairn_bits_of(b->result.lse_chosen[q]));
        }
}

// A context of a random shape with, now and then, rows that are not finite, zero or huge.
static void random_context(struct context *c, struct rng *rng)
{
        static const uint32_t dims[] = {1, 40, 64, 80, 96, 112, 128, 132, 192, 256, 576};
        static const uint32_t blocks[] = {16, 32, 100, 128, 256, 512};
        static const uint32_t bits[] = {0, 1, 2, 2, 4, 8};
        static const uint32_t dtypes[] = {CAIRN_DTYPE_F32, CAIRN_DTYPE_F16, CAIRN_DTYPE_BF16,
                                          CAIRN_DTYPE_F8E4M3, CAIRN_DTYPE_F8E5M2};
        static const uint32_t codecs[] = {CAIRN_ROW_Q8, CAIRN_ROW_Q4, CAIRN_ROW_RAW};
        struct cairn_landmark_shape shape = {.k_dim = dims[rng_below(rng, 11)],
                                             .v_dim =
                                                 rng_below(rng, 4) ? dims[rng_below(rng, 11)] : 0,
                                             .block_tokens = blocks[rng_below(rng, 6)],
                                             .dtype = dtypes[rng_below(rng, 5)],
                                             .landmark_bits = bits[rng_below(rng, 6)],
                                             .outliers = rng_below(rng, 17),
                                             .value_bits = rng_below(rng, 3) * 2,
                                             .k_codec = codecs[rng_below(rng, 3)],
                                             .v_codec = codecs[rng_below(rng, 3)]};
        context_alloc(c, &shape, 1 + rng_below(rng, 900));
        context_fill(c, rng, 1);
        for (int i = 0; i < 12; i++) {
                static const float odd[] = {NAN, INFINITY, -INFINITY, 0, 3e38f, 1e5f, 1e-40f};
                float *row = c->k + (size_t)rng_below(rng, c->n) * shape.k_dim;
                float x = odd[rng_below(rng, 7)];
                if (rng_below(rng, 2))
                        row[rng_below(rng, shape.k_dim)] = x;
                else
                        for (uint32_t j = 0; j < shape.k_dim; j++)
                                row[j] = x;
        }
        context_encode(c, rng_below(rng, 2));
}

static struct cairn_landmark_request random_request(const struct context *c, struct rng *rng,
                                                    float *queries,
                                                    struct cairn_landmark_range *holes)
{
        uint32_t n_queries = 1 + rng_below(rng, 9), n = c->n;
        for (uint32_t i = 0; i < n_queries * c->layout.shape.k_dim; i++)
                queries[i] = rng_gauss(rng) * 2;
        if (rng_below(rng, 4) == 0)
                queries[rng_below(rng, n_queries * c->layout.shape.k_dim)] = NAN;
        struct cairn_landmark_request r = request_of(c, queries, n_queries, rng_below(rng, n + 20));
        r.rule = rng_below(rng, 2) ? CAIRN_LANDMARK_GROUP_MAX : CAIRN_LANDMARK_GROUP_SUM;
        r.rerank = rng_below(rng, 2) ? 0 : 1 + (float)rng_uniform(rng);
        r.budget = rng_below(rng, 4);
        r.target = (float)rng_uniform(rng);
        if (rng_below(rng, 5) == 0) {
                r.kind = 1 + rng_below(rng, 2);
                r.chunk_tokens = 2 + rng_below(rng, 15);
        }
        holes[0] = (struct cairn_landmark_range){0, 1 + rng_below(rng, 5)};
        holes[1] =
            (struct cairn_landmark_range){holes[0].end + rng_below(rng, n), holes[0].end + 2 * n};
        holes[1].end = holes[1].first + 1 + rng_below(rng, n);
        r.excluded = holes;
        r.n_excluded = rng_below(rng, 3);
        return r;
}

static uint32_t eligible_of(const struct cairn_landmark_request *r, uint32_t n)
{
        uint32_t count = 0;
        for (uint32_t t = 0; t < n; t++) {
                bool out = false;
                for (uint32_t i = 0; i < r->n_excluded; i++)
                        out = out || (t >= r->excluded[i].first && t < r->excluded[i].end);
                count += !out;
        }
        return count;
}

// Cases 31-34 and 36: every instruction set gives the scalar answer, blocks coded by it too, over
// dims, codecs, dtypes, groups, exclusions, rows and queries that are not finite.
Test(landmark_select, same_answer_on_every_isa)
{
        struct rng rng = rng_start("same_answer_on_every_isa");
        float *queries = malloc(16 * 576 * sizeof(float));
        for (int round = 0; round < 120; round++) {
                struct cairn_landmark_range holes[2];
                struct context c;
                cr_assert_eq(cairn_isa_choose("scalar"), CAIRN_OK);
                random_context(&c, &rng);
                struct cairn_landmark_request r = random_request(&c, &rng, queries, holes);
                struct answer a, b;
                cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
                uint32_t eligible = eligible_of(&r, c.n);
                cr_assert_eq(a.result.n_eligible, eligible);
                if (r.budget == CAIRN_LANDMARK_COUNT)
                        cr_assert_eq(a.result.n_chosen, r.k < eligible ? r.k : eligible);
                check_ascending(&a.result, c.n);
                for (uint32_t i = 0; i < a.result.n_chosen; i++)
                        for (uint32_t h = 0; h < r.n_excluded; h++)
                                cr_assert(a.result.positions[i] < holes[h].first ||
                                          a.result.positions[i] >= holes[h].end);
                for (uint32_t q = 0; q < r.n_queries; q++) {
                        cr_assert(a.result.lse_all[q] == a.result.lse_all[q]);
                        cr_assert(a.result.lse_chosen[q] <= a.result.lse_all[q] + 1e-3f ||
                                  a.result.lse_all[q] > 1e6f);
                }
                for (unsigned isa = 1; isa < CAIRN_ISA_COUNT; isa++) {
                        if (!cairn_isa_available((enum cairn_isa)isa))
                                continue;
                        cr_assert_eq(cairn_isa_choose(cairn_isa_name((enum cairn_isa)isa)),
                                     CAIRN_OK);
                        cr_assert_eq(answer_select(&r, &b), CAIRN_OK);
                        check_same(&a, &b, r.n_queries);
                        answer_free(&b);
                        uint8_t *again = aligned_alloc(64, (c.layout.total_bytes + 127) / 64 * 64);
                        void *scratch =
                            aligned_alloc(64, cairn_landmark_encode_scratch_bytes(&c.layout));
                        for (uint32_t p = 0; p < c.n_pieces; p++) {
                                if (!c.pieces[p].code_run)
                                        continue;
                                cr_assert_eq(cairn_landmark_encode(
                                                 &c.layout, c.pieces[p].k_raw, c.pieces[p].v_raw,
                                                 c.pieces[p].n_tokens, again, scratch),
                                             CAIRN_OK);
                                cr_assert_eq(
                                    memcmp(again, c.pieces[p].code_run, c.layout.total_bytes), 0);
                        }
                        free(again);
                        free(scratch);
                }
                answer_free(&a);
                context_free(&c);
        }
        free(queries);
}

// The passes may be shared out over pieces in any way and order.
Test(landmark_select, does_not_depend_on_the_split)
{
        struct rng rng = rng_start("does_not_depend_on_the_split");
        float *queries = malloc(16 * 576 * sizeof(float));
        for (int round = 0; round < 30; round++) {
                struct cairn_landmark_range holes[2];
                struct context c;
                random_context(&c, &rng);
                struct cairn_landmark_request r = random_request(&c, &rng, queries, holes);
                struct answer a, b;
                cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
                cr_assert_eq(answer_select(&r, &b), CAIRN_OK);
                cr_assert_eq(cairn_landmark_select_begin(&r, b.scratch, b.scratch_bytes,
                                                         &b.selection),
                             CAIRN_OK);
                for (uint32_t p = c.n_pieces; p > 0; p--)
                        cairn_landmark_select_scan(b.selection, p - 1, 1);
                cairn_landmark_select_weigh(b.selection);
                uint32_t half = c.n_pieces / 2;
                cairn_landmark_select_rank(b.selection, half, c.n_pieces - half);
                cairn_landmark_select_rank(b.selection, 0, half);
                cairn_landmark_select_finish(b.selection, &b.result);
                check_same(&a, &b, r.n_queries);
                answer_free(&a);
                answer_free(&b);
                context_free(&c);
        }
        free(queries);
}

// Case 34: one needle a query head is found by each, in groups of all sizes.
Test(landmark_select, one_needle_a_query_head)
{
        static const uint32_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32};
        struct rng rng = rng_start("one_needle_a_query_head");
        for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
                uint32_t n_queries = groups[g], dim = 128;
                struct cairn_landmark_shape shape = shape_of(dim, dim);
                struct context c;
                context_alloc(&c, &shape, 3000);
                context_fill(&c, &rng, 1);
                float *queries = malloc(n_queries * dim * sizeof(float));
                uint32_t needles[32];
                for (uint32_t q = 0; q < n_queries; q++) {
                        needles[q] = 90 * q + rng_below(&rng, 90);
                        for (uint32_t j = 0; j < dim; j++) {
                                queries[q * dim + j] = rng_gauss(&rng);
                                c.k[(size_t)needles[q] * dim + j] = queries[q * dim + j] * 1.2f;
                        }
                }
                context_encode(&c, true);
                struct cairn_landmark_request r = request_of(&c, queries, n_queries, n_queries);
                struct answer a;
                cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
                cr_assert_eq(a.result.n_chosen, n_queries);
                for (uint32_t q = 0; q < n_queries; q++)
                        cr_assert_eq(a.result.positions[q], needles[q]);
                answer_free(&a);
                free(queries);
                context_free(&c);
        }
}

// Case 32: the documented rule for rows and queries that are not finite.
Test(landmark_select, numbers_that_are_no_numbers)
{
        struct rng rng = rng_start("numbers_that_are_no_numbers");
        struct cairn_landmark_shape shape = shape_of(64, 64);
        struct context c;
        shape.k_codec = rng_below(&rng, 2) ? CAIRN_ROW_Q8 : CAIRN_ROW_Q4;
        context_alloc(&c, &shape, 300);
        context_fill(&c, &rng, 1);
        for (uint32_t j = 0; j < 64; j++) {
                c.k[3 * 64 + j] = NAN;
                c.k[140 * 64 + j] = INFINITY;
        }
        c.k[7 * 64 + 5] = NAN;
        c.k[280 * 64 + 1] = -INFINITY; // in the raw tail
        context_encode(&c, true);
        float queries[128];
        for (int j = 0; j < 128; j++)
                queries[j] = rng_gauss(&rng);
        struct cairn_landmark_request r = request_of(&c, queries, 2, 296);
        struct answer a;
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        cr_assert_eq(a.result.n_chosen, 296);
        for (uint32_t i = 0; i < 296; i++) {
                uint32_t p = a.result.positions[i];
                cr_assert(p != 3 && p != 7 && p != 140 && p != 280);
                cr_assert(a.result.scores[i] > -INFINITY);
        }
        answer_free(&a);
        r.k = 298; // two of the four must come: the lower positions
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        cr_assert_eq(a.result.n_chosen, 298);
        cr_assert_eq(a.result.positions[3], 3);
        cr_assert_eq(a.result.positions[7], 7);
        cr_assert_eq(a.result.scores[3], -INFINITY);
        float lse = a.result.lse_all[1];
        answer_free(&a);

        queries[10] = NAN; // the first query head is left out of the group
        r.k = 10;
        struct cairn_landmark_request alone = request_of(&c, queries + 64, 1, 10);
        struct answer b;
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        cr_assert_eq(answer_select(&alone, &b), CAIRN_OK);
        cr_assert_eq(a.result.lse_all[0], -INFINITY);
        cr_assert_float_eq(a.result.lse_all[1], lse, 0.1);
        for (int i = 0; i < 10; i++)
                cr_assert_eq(a.result.positions[i], b.result.positions[i]);
        answer_free(&a);
        answer_free(&b);
        queries[70] = INFINITY; // no query head is left: lower positions first
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        for (uint32_t i = 0; i < 10; i++)
                cr_assert_eq(a.result.positions[i], i);
        answer_free(&a);
        context_free(&c);
}

// Zero rows and zero queries: all tie, lower positions first, and the log-sum-exp is log n.
Test(landmark_select, ties_go_to_lower_positions)
{
        struct cairn_landmark_shape shape = shape_of(128, 0);
        struct context c;
        context_alloc(&c, &shape, 5000);
        context_encode(&c, true);
        float query[128];
        for (int j = 0; j < 128; j++)
                query[j] = (float)j;
        struct cairn_landmark_range holes[] = {{0, 4}, {100, 164}};
        struct cairn_landmark_request r = request_of(&c, query, 1, 200);
        r.excluded = holes;
        r.n_excluded = 2;
        struct answer a;
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        cr_assert_eq(a.result.n_eligible, 4932);
        for (uint32_t i = 0; i < 200; i++)
                cr_assert_eq(a.result.positions[i], i < 96 ? i + 4 : i + 68);
        cr_assert_float_eq(a.result.lse_all[0], log(4932), 1e-5);
        cr_assert_float_eq(a.result.lse_chosen[0], log(200), 1e-5);
        answer_free(&a);
        context_free(&c);
}

// A query head whose mass lies with the worker leaves the choice to the other heads of its group.
Test(landmark_select, held_tokens_count_in_the_softmax)
{
        struct cairn_landmark_shape shape = shape_of(64, 0);
        struct context c;
        context_alloc(&c, &shape, 100);
        c.k[0] = 20;          // token 0, held: all of query 0
        c.k[30 * 64] = 10;    // token 30: the best of query 0 among the others, a share of e-10
        c.k[60 * 64 + 1] = 5; // token 60: most of query 1
        context_encode(&c, true);
        float queries[2 * 64] = {0};
        queries[0] = 1;
        queries[64 + 1] = 1;
        struct cairn_landmark_range hole = {0, 1};
        struct cairn_landmark_request r = request_of(&c, queries, 2, 1);
        r.scale = 1;
        r.excluded = &hole;
        r.n_excluded = 1;
        struct answer a;
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        cr_assert_eq(a.result.positions[0], 60);
        cr_assert_float_eq(a.result.lse_all[0], log(exp(10) + 98), 1e-5, "of the eligible alone");
        answer_free(&a);
        float nothing[2] = {-INFINITY, -INFINITY}; // what the worker says comes before the estimate
        r.lse_held = nothing;
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        cr_assert_eq(a.result.positions[0], 30);
        answer_free(&a);
        context_free(&c);
}

// A threshold and a mass choose as few rows as they must, below the cap.
Test(landmark_select, budgets)
{
        struct rng rng = rng_start("budgets");
        struct cairn_landmark_shape shape = shape_of(64, 0);
        struct context c;
        context_alloc(&c, &shape, 2000);
        context_fill(&c, &rng, 2);
        context_encode(&c, true);
        float queries[3 * 64];
        for (int j = 0; j < 3 * 64; j++)
                queries[j] = rng_gauss(&rng) * 2;
        struct cairn_landmark_request r = request_of(&c, queries, 3, 1000);
        struct answer a;
        r.budget = CAIRN_LANDMARK_SHARE;
        r.target = 0.03125f;
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        cr_assert_eq(a.result.n_chosen, 63);
        answer_free(&a);
        r.budget = CAIRN_LANDMARK_MASS;
        r.target = 0.9f;
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        uint32_t enough = a.result.n_chosen;
        cr_assert(enough > 0 && enough < 1000);
        for (int q = 0; q < 3; q++)
                cr_assert_geq(exp(a.result.lse_chosen[q] - a.result.lse_all[q]), 0.9 - 1e-4);
        answer_free(&a);
        r.k = enough - 1; // the cap holds; with fewer candidates the estimate may ask for fewer yet
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        cr_assert(a.result.n_chosen > 0 && a.result.n_chosen <= enough - 1);
        answer_free(&a);
        r.k = 1000;
        r.budget = CAIRN_LANDMARK_THRESHOLD;
        r.target = 0.001f;
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        cr_assert(a.result.n_chosen > 0 && a.result.n_chosen < 1000);
        for (uint32_t i = 0; i < a.result.n_chosen; i++)
                cr_assert_geq(a.result.scores[i], logf(0.001f) - 1e-5f);
        answer_free(&a);
        r.target = 2;
        cr_assert_eq(answer_select(&r, &a), CAIRN_EINVAL);
        answer_free(&a);
        context_free(&c);
}

// How far the mass held is from the truth, and its error bar.
static void measure_mass(struct rng *rng, uint32_t bits, float query_size, double *ret_gap,
                         double *ret_bar)
{
        struct cairn_landmark_shape shape = shape_of(64, 0);
        struct context c;
        shape.landmark_bits = bits;
        shape.outliers = bits && bits < 8 ? 8 : 0;
        context_alloc(&c, &shape, 1500);
        context_fill(&c, rng, 1);
        context_encode(&c, true);
        float query[64], error = -1;
        for (int j = 0; j < 64; j++)
                query[j] = rng_gauss(rng) * query_size;
        struct cairn_landmark_request r = request_of(&c, query, 1, 50);
        struct answer a;
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        a.result.mass_error = &error;
        cr_assert_eq(cairn_landmark_select(&r, a.scratch, a.scratch_bytes, &a.result), CAIRN_OK);
        double all = 0, held = 0;
        for (uint32_t t = 0; t < c.n; t++)
                all += exp(exact_score(&c, query, r.scale, t));
        for (uint32_t i = 0; i < a.result.n_chosen; i++)
                held += exp(exact_score(&c, query, r.scale, a.result.positions[i]));
        *ret_gap = exp(a.result.lse_chosen[0] - a.result.lse_all[0]) - held / all;
        *ret_bar = error;
        answer_free(&a);
        context_free(&c);
}

// Two error bars cover the true mass, at all bits, and not by being wide.
Test(landmark_select, mass_error_covers)
{
        static const uint32_t bits[] = {0, 1, 2, 4, 8};
        struct rng rng = rng_start("mass_error_covers");
        for (int b = 0; b < 5; b++) {
                uint32_t inside = 0, rounds = 120;
                double bars = 0, squares = 0;
                for (uint32_t round = 0; round < rounds; round++) {
                        double gap, bar;
                        measure_mass(&rng, bits[b], (float)(1 + round % 4), &gap, &bar);
                        cr_assert(bar >= 0 && bar <= 0.501, "%g", bar);
                        inside += fabs(gap) <= 2 * bar + 1e-3;
                        bars += bar;
                        squares += gap * gap;
                }
                double off = sqrt(squares / rounds);
                fprintf(stderr,
                        "mass, %u bits: %u of %u inside two errors; mean %.4f, off by %.4f\n",
                        bits[b], inside, rounds, bars / rounds, off);
                cr_assert_geq(inside, rounds * 93 / 100);
                cr_assert_leq(bars / rounds, 4.5 * off);
        }
}

// Case 35: four million tokens.
Test(landmark_select, four_million_tokens)
{
        struct rng rng = rng_start("four_million_tokens");
        struct cairn_landmark_shape shape = shape_of(8, 0);
        uint32_t n = 4u << 20, needles[] = {5, 2097152, 4194303};
        shape.block_tokens = 1024;
        shape.outliers = 0;
        struct context c;
        context_alloc(&c, &shape, n);
        for (size_t i = 0; i < (size_t)n * 8; i++)
                c.k[i] = (float)rng_uniform(&rng) - 0.5f;
        for (int i = 0; i < 3; i++)
                for (int j = 0; j < 8; j++)
                        c.k[(size_t)needles[i] * 8 + j] = 2;
        context_encode(&c, false);
        float query[8] = {9, 9, 9, 9, 9, 9, 9, 9};
        struct cairn_landmark_request r = request_of(&c, query, 1, 3);
        struct answer a;
        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
        for (int i = 0; i < 3; i++)
                cr_assert_eq(a.result.positions[i], needles[i]);
        answer_free(&a);
        context_free(&c);
}

// Requests that make no sense are refused, and shapes too.
Test(landmark_select, refuses_nonsense)
{
        struct rng rng = {1};
        struct cairn_landmark_shape shape = shape_of(64, 64);
        struct context c;
        context_alloc(&c, &shape, 600);
        context_fill(&c, &rng, 1);
        context_encode(&c, false);
        float query[64] = {1};
        struct answer a;
        struct cairn_landmark_range bad[] = {{10, 20}, {19, 30}};
        struct cairn_landmark_request good = request_of(&c, query, 1, 5), r = good;
        r.n_queries = 0;
        cr_assert_eq(cairn_landmark_select_scratch_bytes(&r), 0);
        r = good;
        r.rerank = 0.5f;
        cr_assert_eq(cairn_landmark_select_scratch_bytes(&r), 0);
        r = good;
        r.excluded = bad;
        r.n_excluded = 2;
        cr_assert_eq(cairn_landmark_select_scratch_bytes(&r), 0);
        r = good;
        r.scale = NAN;
        cr_assert_eq(cairn_landmark_select_scratch_bytes(&r), 0);
        c.pieces[1].position = 100; // overlaps the first piece
        cr_assert_eq(cairn_landmark_select_scratch_bytes(&good), 0);
        c.pieces[1].position = 256;
        cr_assert_eq(answer_select(&good, &a), CAIRN_OK);
        cr_assert_eq(cairn_landmark_select(&good, a.scratch, a.scratch_bytes - 64, &a.result),
                     CAIRN_EINVAL);
        answer_free(&a);
        context_free(&c);
        struct cairn_landmark_layout layout;
        shape.k_dim = 0;
        cr_assert_eq(cairn_landmark_layout_init(&shape, &layout), CAIRN_EINVAL);
        shape = shape_of(577, 64);
        cr_assert_eq(cairn_landmark_layout_init(&shape, &layout), CAIRN_EINVAL);
        shape = shape_of(64, 64);
        shape.landmark_bits = 3;
        cr_assert_eq(cairn_landmark_layout_init(&shape, &layout), CAIRN_EINVAL);
        shape = shape_of(64, 64);
        shape.run_tokens = 48;
        cr_assert_eq(cairn_landmark_layout_init(&shape, &layout), CAIRN_EINVAL);
}
