// NACL: scores equal a plain reference, whatever the spans; what stays is protected + top + random,
// replays by its seed, and samples with the chances that softmax gives.
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/retention/choose.h"
#include "policy/retention/nacl.h"
#include "policy/retention/pieces.h"
#include "proto/status.h"

static uint64_t seed_of_test(void)
{
        const char *text = getenv("CAIRN_TEST_SEED");
        uint64_t seed = text ? strtoull(text, NULL, 10) : 31;

        fprintf(stderr, "CAIRN_TEST_SEED=%llu\n", (unsigned long long)seed);
        return seed;
}

static uint64_t next_random(uint64_t *state)
{
        uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
}

static float next_normal(uint64_t *state)
{
        double u = ((double)(next_random(state) >> 12) + 0.5) * 0x1p-52;
        double v = ((double)(next_random(state) >> 12) + 0.5) * 0x1p-52;

        return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

struct head {
        struct cairn_nacl_request request;
        float *keys;
        float *queries;
        float *scores;
        int fail_at; // a read of this token fails; -1: none
};

static int read_keys(void *arg, uint32_t first, uint32_t count, float *ret_rows)
{
        struct head *head = arg;
        uint32_t dim = head->request.keys.k_dim;

        cr_assert_leq(count, CAIRN_NACL_TILE_TOKENS);
        if (head->fail_at >= 0 && (uint32_t)head->fail_at - first < count)
                return CAIRN_EIO;
        memcpy(ret_rows, head->keys + (size_t)first * dim, (size_t)count * dim * sizeof(float));
        return CAIRN_OK;
}

static void make_head(struct head *head, uint32_t n, uint32_t dim, uint32_t proxies, uint32_t group,
                      uint64_t seed)
{
        *head = (struct head){.fail_at = -1};
        head->keys = malloc((size_t)n * dim * sizeof(float) + 1);
        head->queries = malloc((size_t)proxies * group * dim * sizeof(float));
        head->scores = malloc((size_t)n * sizeof(float) + 1);
        for (size_t i = 0; i < (size_t)n * dim; i++)
                head->keys[i] = next_normal(&seed) * 2;
        for (size_t i = 0; i < (size_t)proxies * group * dim; i++)
                head->queries[i] = next_normal(&seed) * 2;
        head->request = (struct cairn_nacl_request){
            .keys = {.read = read_keys, .arg = head, .n_tokens = n, .k_dim = dim},
            .queries = head->queries,
            .n_proxies = proxies,
            .group = group,
            .scale = 1 / sqrtf((float)dim)};
}

static void free_head(struct head *head)
{
        free(head->keys);
        free(head->queries);
        free(head->scores);
}

static int score(struct head *head)
{
        size_t bytes = cairn_nacl_scores_bytes(&head->request);
        void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
        int status = cairn_nacl_scores(&head->request, memory, head->scores);

        free(memory);
        return status;
}

// The definition, in f64, the whole matrix at once.
static void check_scores(const struct head *head)
{
        const struct cairn_nacl_request *request = &head->request;
        uint32_t n = request->keys.n_tokens;
        uint32_t dim = request->keys.k_dim;
        double *want = calloc(n, sizeof(double));
        double *products = malloc(n * sizeof(double));

        for (uint32_t q = 0; q < request->n_proxies * request->group; q++) {
                uint32_t seen = request->causal ? request->causal[q / request->group] : n;
                double greatest = -INFINITY;
                double sum = 0;

                for (uint32_t t = 0; t < n; t++) {
                        double product = 0;

                        for (uint32_t d = 0; d < dim; d++)
                                product += (double)head->queries[(size_t)q * dim + d] *
                                           (double)head->keys[(size_t)t * dim + d];
                        product *= (double)request->scale;
                        if (t >= seen || !isfinite(product) ||
                            (request->present && !(request->present[t / 64] >> t % 64 & 1)))
                                product = -INFINITY;
                        products[t] = product;
                        greatest = fmax(greatest, product);
                }
                for (uint32_t t = 0; t < n && greatest > -INFINITY; t++)
                        sum += exp(products[t] - greatest);
                for (uint32_t t = 0; t < n && greatest > -INFINITY; t++)
                        want[t] += exp(products[t] - greatest) / sum;
        }
        for (uint32_t t = 0; t < n; t++)
                cr_assert_float_eq((double)head->scores[t], want[t], 2e-5 * want[t] + 1e-12,
                                   "token %u: %g, not %g", t, (double)head->scores[t], want[t]);
        free(want);
        free(products);
}

Test(nacl, scores_equal_the_definition_for_all_dims_and_groups)
{
        static const uint32_t dims[] = {1, 7, 40, 64, 80, 96, 112, 128, 132, 192, 256, 576};
        uint64_t seed = seed_of_test();

        for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
                struct head head;

                make_head(&head, 100 + (uint32_t)i * 31, dims[i], 3, 1 + (uint32_t)i % 5, seed + i);
                cr_assert_eq(score(&head), CAIRN_OK);
                check_scores(&head);
                free_head(&head);
        }
}

Test(nacl, a_proxy_that_is_stored_sees_itself_and_what_lies_before)
{
        struct head head;
        uint32_t causal[4] = {197, 198, 1, 0};

        make_head(&head, 200, 64, 4, 2, seed_of_test());
        head.request.causal = causal;
        cr_assert_eq(score(&head), CAIRN_OK);
        check_scores(&head);
        cr_assert_eq(head.scores[198], 0, "nobody sees it");
        cr_assert_geq(head.scores[0], 2, "one proxy sees it alone, with both heads");
        free_head(&head);
}

Test(nacl, dropped_tokens_and_numbers_that_are_none_take_no_part)
{
        struct head head;
        uint64_t present[4] = {~0ull, ~0ull << 3, ~0ull, ~0ull};
        double sum = 0;

        make_head(&head, 250, 32, 3, 2, seed_of_test());
        head.request.present = present;
        head.keys[10 * 32 + 5] = NAN;
        head.keys[11 * 32 + 5] = INFINITY;
        head.keys[12 * 32 + 5] = -INFINITY;
        head.keys[64 * 32] = NAN;       // not present: never looked at
        head.queries[1 * 32 + 3] = NAN; // this query is left out
        cr_assert_eq(score(&head), CAIRN_OK);
        check_scores(&head);
        cr_assert_eq(head.scores[10], 0);
        cr_assert_eq(head.scores[65], 0);
        for (uint32_t t = 0; t < 250; t++)
                sum += (double)head.scores[t];
        cr_assert_float_eq(sum, 5, 1e-5, "five of six queries count: %g", sum);
        free_head(&head);
}

Test(nacl, great_products_do_not_overflow)
{
        struct head head;
        double sum = 0;

        make_head(&head, 300, 16, 2, 1, seed_of_test());
        for (size_t i = 0; i < 300 * 16; i++)
                head.keys[i] *= 1e6f; // products of 1e6 and more
        cr_assert_eq(score(&head), CAIRN_OK);
        for (uint32_t t = 0; t < 300; t++) {
                cr_assert(isfinite(head.scores[t]));
                sum += (double)head.scores[t];
        }
        cr_assert_float_eq(sum, 2, 1e-5);
        free_head(&head);
}

Test(nacl, spans_in_any_order_give_the_same_bits)
{
        struct head head;
        uint32_t n = 3 * CAIRN_NACL_SPAN_TOKENS - 77;
        float *again = malloc(n * sizeof(float));
        struct cairn_nacl_partial *partials;
        double lse[4];
        void *scratch;

        make_head(&head, n, 8, 2, 2, seed_of_test());
        cr_assert_eq(score(&head), CAIRN_OK);
        check_scores(&head);
        cr_assert_eq(cairn_nacl_spans(&head.request), 3);
        partials = malloc(cairn_nacl_partials_bytes(&head.request));
        scratch = aligned_alloc(64, cairn_nacl_scratch_bytes(&head.request));
        for (int span = 2; span >= 0; span--)
                cr_assert_eq(cairn_nacl_weigh(&head.request, (uint32_t)span, scratch, partials), 0);
        cairn_nacl_merge(&head.request, partials, lse);
        for (int span = 2; span >= 0; span--)
                cr_assert_eq(cairn_nacl_score(&head.request, (uint32_t)span, lse, scratch, again),
                             0);
        cr_assert_eq(memcmp(again, head.scores, n * sizeof(float)), 0);
        free(partials);
        free(scratch);
        free(again);
        free_head(&head);
}

Test(nacl, errors_of_the_reader_and_bad_fields_come_back)
{
        struct head head;
        struct cairn_nacl_options options;

        make_head(&head, 100, 8, 1, 1, 1);
        head.fail_at = 70;
        cr_assert_eq(score(&head), CAIRN_EIO);
        head.fail_at = -1;
        head.request.group = 0;
        cr_assert_eq(score(&head), CAIRN_EINVAL);
        head.request.group = 1;
        head.request.scale = NAN;
        cr_assert_eq(score(&head), CAIRN_EINVAL);
        free_head(&head);

        cairn_nacl_defaults(&options);
        cr_assert_eq(cairn_nacl_check(&options), CAIRN_OK);
        options.proxy_keep = 0.95;
        cr_assert_eq(cairn_nacl_check(&options), CAIRN_EINVAL);
        options.proxy_keep = -0.1;
        cr_assert_eq(cairn_nacl_check(&options), CAIRN_EINVAL);
        options.proxy_keep = NAN;
        cr_assert_eq(cairn_nacl_check(&options), CAIRN_EINVAL);
}

Test(nacl, counts_are_those_of_the_papers_code)
{
        struct cairn_nacl_options options;
        struct cairn_nacl_counts counts;

        cairn_nacl_defaults(&options);
        cairn_nacl_counts(&options, 5000, &counts);
        cr_assert_eq(counts.proxies, 50);
        cr_assert_eq(counts.sinks, 4);
        cr_assert_eq(counts.recent, 46);
        cr_assert_eq(counts.top, 600);
        cr_assert_eq(counts.random, 350);
        cairn_nacl_counts(&options, 100, &counts);
        cr_assert_eq(counts.sinks + counts.recent, 1);
        cr_assert_eq(counts.random, 7, "7 %% of 100 is 7");
        cairn_nacl_counts(&options, 0, &counts);
        cr_assert_eq(counts.proxies, 1);
        cr_assert_eq(counts.top, 0);
}

enum {
        PIECES = 3,
        PIECE_TOKENS = 128,
        TAIL_TOKENS = 45
};

// Blocks of a context as the daemon holds them: rows as q8 in code runs, and a raw tail.
Test(nacl, keys_come_out_of_pieces)
{
        struct cairn_landmark_shape shape = {.k_dim = 64,
                                             .block_tokens = PIECE_TOKENS,
                                             .dtype = CAIRN_DTYPE_F32,
                                             .landmark_bits = 2,
                                             .outliers = 8,
                                             .k_codec = CAIRN_ROW_Q8,
                                             .v_codec = CAIRN_ROW_NONE};
        struct cairn_landmark_layout layout;
        struct cairn_landmark_piece pieces[PIECES + 1] = {{0}};
        struct cairn_retention_pieces from = {&layout, pieces, PIECES + 1};
        uint32_t n = PIECES * PIECE_TOKENS + TAIL_TOKENS;
        struct head head;
        float *exact = malloc(n * sizeof(float));
        void *scratch;

        make_head(&head, n, 64, 4, 2, seed_of_test());
        cr_assert_eq(score(&head), CAIRN_OK);
        memcpy(exact, head.scores, n * sizeof(float));
        cr_assert_eq(cairn_landmark_layout_init(&shape, &layout), CAIRN_OK);
        scratch = aligned_alloc(64, (cairn_landmark_encode_scratch_bytes(&layout) + 63) / 64 * 64);
        for (uint32_t p = 0; p <= PIECES; p++) {
                const float *rows = head.keys + (size_t)p * PIECE_TOKENS * 64;
                void *run = aligned_alloc(32, (layout.total_bytes + 31u) / 32 * 32);

                pieces[p].position = p * PIECE_TOKENS;
                pieces[p].n_tokens = p < PIECES ? PIECE_TOKENS : TAIL_TOKENS;
                if (p < PIECES) {
                        cr_assert_eq(cairn_landmark_encode(&layout, rows, NULL, PIECE_TOKENS, run,
                                                           scratch),
                                     CAIRN_OK);
                        pieces[p].code_run = run;
                } else {
                        free(run);
                        pieces[p].k_raw = rows;
                }
        }
        cr_assert_eq(cairn_retention_pieces_keys(&from, &head.request.keys), CAIRN_OK);
        cr_assert_eq(head.request.keys.n_tokens, n);
        cr_assert_eq(score(&head), CAIRN_OK);
        for (uint32_t t = 0; t < n; t++)
                cr_assert_float_eq((double)head.scores[t], (double)exact[t],
                                   0.1 * (double)exact[t] + 1e-4, "token %u: %g, not %g", t,
                                   (double)head.scores[t], (double)exact[t]);
        pieces[1].position++;
        cr_assert_eq(cairn_retention_pieces_keys(&from, &head.request.keys), CAIRN_EINVAL, "a gap");
        for (uint32_t p = 0; p < PIECES; p++)
                free((void *)(uintptr_t)pieces[p].code_run);
        free(scratch);
        free(exact);
        free_head(&head);
}

// ---- which tokens stay ----

static void choose(const struct cairn_choose_request *request, uint64_t *kept,
                   struct cairn_choose_result *result)
{
        void *scratch = malloc(cairn_choose_scratch_bytes(request->n_tokens) + 1);

        cr_assert_eq(cairn_choose(request, scratch, kept, result), CAIRN_OK);
        free(scratch);
}

static bool is_kept(const uint64_t *kept, uint32_t t)
{
        return kept[t / 64] >> t % 64 & 1;
}

Test(nacl, kept_is_protected_and_top_and_random)
{
        enum {
                N = 1000
        };
        uint64_t random = seed_of_test();
        float scores[N];
        uint64_t kept[(N + 63) / 64];
        struct cairn_landmark_range ranges[2] = {{500, 510}, {990, 2000}};
        struct cairn_choose_request request = {.n_tokens = N,
                                               .scores = scores,
                                               .sinks = 4,
                                               .recent = 6,
                                               .top = 120,
                                               .random = 70,
                                               .ranges = ranges,
                                               .n_ranges = 2,
                                               .seed = 5};
        struct cairn_choose_result result;
        uint32_t positions[N];
        double mass = 0;
        uint32_t better = 0;

        for (int t = 0; t < N; t++)
                scores[t] = (float)(next_random(&random) % 64) / 64; // many ties
        choose(&request, kept, &result);
        cr_assert_eq(result.protected_tokens, 4 + 10 + 10);
        cr_assert_eq(result.top, 120);
        cr_assert_eq(result.random, 70);
        cr_assert_eq(result.kept, 24 + 190);
        cr_assert_eq(cairn_choose_positions(kept, N, positions), result.kept);
        for (uint32_t i = 0; i < result.kept; i++) {
                cr_assert(i == 0 || positions[i] > positions[i - 1]);
                mass += (double)scores[positions[i]];
        }
        cr_assert_float_eq(mass, result.mass_kept, 1e-9);
        cr_assert_leq(result.mass_protected + result.mass_top, result.mass_kept);
        for (uint32_t t = 0; t < N; t++) {
                if (t < 4 || t >= 990 || (t >= 500 && t < 510)) {
                        cr_assert(is_kept(kept, t));
                        continue;
                }
                if (scores[t] > result.lowest_top) {
                        cr_assert(is_kept(kept, t), "token %u", t);
                        better++;
                }
        }
        cr_assert_leq(better, 120);
        cr_assert_eq(kept[15] >> 40, 0, "no bits beyond the last token");
}

Test(nacl, ties_go_to_the_lower_position)
{
        float scores[200];
        uint64_t kept[4];
        struct cairn_choose_request request = {
            .n_tokens = 200, .scores = scores, .sinks = 10, .top = 30};
        struct cairn_choose_result result;

        for (int t = 0; t < 200; t++)
                scores[t] = 0.5f;
        scores[150] = NAN; // counts as 0
        choose(&request, kept, &result);
        for (uint32_t t = 0; t < 200; t++)
                cr_assert_eq(is_kept(kept, t), t < 40);
        cr_assert_float_eq(result.mass_all, 99.5, 1e-9);
}

Test(nacl, budgets_of_nothing_and_of_more_than_all)
{
        float scores[100] = {0};
        uint64_t present[2] = {0xffffull, 1};
        uint64_t kept[2];
        struct cairn_choose_request request = {.n_tokens = 100, .scores = scores};
        struct cairn_choose_result result;

        choose(&request, kept, &result);
        cr_assert_eq(result.kept, 0);
        request.present = present;
        request.sinks = 90;
        request.top = 1000;
        request.random = 1000;
        choose(&request, kept, &result);
        cr_assert_eq(result.kept, 17, "what is there");
        cr_assert_eq(kept[0], present[0]);
        cr_assert_eq(kept[1], present[1]);
        request = (struct cairn_choose_request){.scores = scores, .top = 5, .random = 5};
        choose(&request, kept, &result);
        cr_assert_eq(result.kept, 0, "no tokens");
}

Test(nacl, the_seed_decides_the_random_part_alone)
{
        enum {
                N = 5000
        };
        static float scores[N];
        uint64_t a[(N + 63) / 64];
        uint64_t b[(N + 63) / 64];
        uint64_t random = seed_of_test();
        struct cairn_choose_request request = {
            .n_tokens = N, .scores = scores, .sinks = 4, .top = 600, .random = 350, .seed = 1};
        struct cairn_choose_result result;
        uint32_t same = 0;

        for (int t = 0; t < N; t++)
                scores[t] = (float)(next_random(&random) >> 40);
        for (int t = 0; t < N; t++)
                scores[t] *= 0x1p-24f;
        choose(&request, a, &result);
        choose(&request, b, &result);
        cr_assert_eq(memcmp(a, b, sizeof(a)), 0);
        request.seed = 2;
        choose(&request, b, &result);
        for (uint32_t t = 0; t < N; t++) {
                same += is_kept(a, t) && is_kept(b, t);
                if (scores[t] > result.lowest_top)
                        cr_assert(is_kept(a, t) && is_kept(b, t));
        }
        cr_assert_lt(same, 4 + 600 + 350 / 4);
        cr_assert_neq(cairn_choose_seed(1, 0, 1), cairn_choose_seed(1, 1, 0));
        cr_assert_neq(cairn_choose_seed(1, 2, 3), cairn_choose_seed(2, 2, 3));
}

// Drawing one: the chance of a token is the softmax of its score. 20,000 draws of 8 tokens against
// chi-square with 7 degrees of freedom: 24.3 is exceeded once in a thousand.
Test(nacl, one_draw_follows_softmax)
{
        enum {
                N = 8,
                DRAWS = 20000
        };
        float scores[N] = {0, 0.1f, 0.5f, 1, 1.5f, 2, 0, 3};
        uint32_t drawn[N] = {0};
        double sum = 0;
        double chi = 0;
        struct cairn_choose_request request = {.n_tokens = N, .scores = scores, .random = 1};
        struct cairn_choose_result result;

        for (int i = 0; i < DRAWS; i++) {
                uint64_t kept[1];
                uint32_t position;

                request.seed = cairn_choose_seed(99, 0, (uint32_t)i);
                choose(&request, kept, &result);
                cr_assert_eq(cairn_choose_positions(kept, N, &position), 1);
                drawn[position]++;
        }
        for (int t = 0; t < N; t++)
                sum += exp((double)scores[t]);
        for (int t = 0; t < N; t++) {
                double want = DRAWS * exp((double)scores[t]) / sum;

                chi += (drawn[t] - want) * (drawn[t] - want) / want;
        }
        cr_assert_lt(chi, 24.3, "chi-square %g", chi);
}

Test(nacl, a_spread_budget_follows_the_mass_and_keeps_its_sum)
{
        static float flat[1000];
        static float peaked[1000];
        struct cairn_choose_request heads[3];
        uint32_t scratch[3];
        uint32_t top[3];

        for (int t = 0; t < 1000; t++) {
                flat[t] = 0.001f;                         // mass everywhere
                peaked[t] = t % 100 == 50 ? 0.1f : 1e-9f; // ten tokens hold all
        }
        for (int h = 0; h < 3; h++)
                heads[h] = (struct cairn_choose_request){
                    .n_tokens = 1000, .scores = h == 0 ? peaked : flat, .sinks = 4, .recent = 6};
        cr_assert_eq(cairn_choose_spread(heads, 3, 100, 0, scratch, top), CAIRN_OK);
        cr_assert_eq(top[0], 10, "all that it needs: %u", top[0]);
        cr_assert_eq(top[0] + top[1] + top[2], 300);
        cr_assert_eq(cairn_choose_spread(heads, 3, 100, 0.5, scratch, top), CAIRN_OK);
        cr_assert_eq(top[0], 55);
        cr_assert_eq(top[0] + top[1] + top[2], 300);
        cr_assert_eq(cairn_choose_spread(heads, 3, 100, 1, scratch, top), CAIRN_OK);
        cr_assert(top[0] == 100 && top[1] == 100 && top[2] == 100);
        cr_assert_eq(cairn_choose_spread(heads, 3, 5000, 0, scratch, top), CAIRN_OK);
        cr_assert(top[0] == 990 && top[1] == 990 && top[2] == 990, "no more than there is");
        heads[1].n_tokens = 110; // a short head: what it cannot take goes to the others
        cr_assert_eq(cairn_choose_spread(heads, 3, 600, 1, scratch, top), CAIRN_OK);
        cr_assert(top[0] == 850 && top[1] == 100 && top[2] == 850);
        cr_assert_eq(cairn_choose_spread(heads, 3, 0, 0.2, scratch, top), CAIRN_OK);
        cr_assert_eq(top[0] + top[1] + top[2], 0);
        cr_assert_eq(cairn_choose_spread(heads, 0, 10, 0, scratch, top), CAIRN_EINVAL);
        cr_assert_eq(cairn_choose_spread(heads, 3, 10, NAN, scratch, top), CAIRN_EINVAL);
}
