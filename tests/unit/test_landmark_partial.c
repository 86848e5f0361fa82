// Attention over parts, the rest, merging, and gathering rows.
#include <criterion/criterion.h>

#include "tests/unit/landmark_fixture.h"

enum {
        QUERIES = 5
};

struct part {
        struct cairn_landmark_partial p;
        float out[QUERIES * 576];
        float lse[QUERIES];
};

static void part_init(struct part *part)
{
        memset(part, 0, sizeof *part);
        part->p.out = part->out;
        part->p.lse = part->lse;
        for (int q = 0; q < QUERIES; q++)
                part->lse[q] = -INFINITY;
}

static struct cairn_landmark_request request_of(const struct context *c, const float *queries,
                                                uint32_t k)
{
        return (struct cairn_landmark_request){.layout = &c->layout,
                                               .pieces = c->pieces,
                                               .n_pieces = c->n_pieces,
                                               .queries = queries,
                                               .n_queries = QUERIES,
                                               .scale = 1.0f / sqrtf((float)c->layout.shape.k_dim),
                                               .k = k};
}

// Softmax attention in doubles over the tokens that are kept (NULL: all).
static void exact_attention(const struct context *c, const struct cairn_landmark_request *r,
                            const bool *keep, uint32_t q, double *ret_out, double *ret_lse)
{
        uint32_t k_dim = c->layout.shape.k_dim, v_dim = c->layout.shape.v_dim;
        double max = -INFINITY, sum = 0;
        for (uint32_t t = 0; t < c->n; t++) {
                double s = exact_score(c, r->queries + (size_t)q * k_dim, r->scale, t);
                max = (!keep || keep[t]) && s > max ? s : max;
        }
        memset(ret_out, 0, v_dim * sizeof(double));
        for (uint32_t t = 0; t < c->n; t++) {
                if (keep && !keep[t])
                        continue;
                double w = exp(exact_score(c, r->queries + (size_t)q * k_dim, r->scale, t) - max);
                sum += w;
                for (uint32_t j = 0; j < v_dim; j++)
                        ret_out[j] += w * c->v[(size_t)t * v_dim + j];
        }
        *ret_lse = max + log(sum);
        for (uint32_t j = 0; j < v_dim && sum > 0; j++)
                ret_out[j] /= sum;
}

static double distance(const float *a, const double *b, uint32_t n, double *ret_size)
{
        double gap = 0, size = 0;
        for (uint32_t j = 0; j < n; j++) {
                gap += (a[j] - b[j]) * (a[j] - b[j]);
                size += b[j] * b[j];
        }
        *ret_size = sqrt(size);
        return sqrt(gap);
}

static void attend(const struct cairn_landmark_request *r, const uint32_t *positions, uint32_t n,
                   struct part *part)
{
        void *scratch = aligned_alloc(64, (cairn_landmark_attend_scratch_bytes(r) + 127) / 64 * 64);
        cr_assert_eq(cairn_landmark_attend(r, positions, n, scratch, &part->p), CAIRN_OK);
        free(scratch);
}

static void random_queries(struct rng *rng, float *queries, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                queries[i] = rng_gauss(rng) * 2;
}

// Attend over all rows equals exact attention: to float error with raw rows, closely with q8 rows.
Test(landmark_partial, attends_all_rows)
{
        static const uint32_t dims[][2] = {{1, 1},    {40, 64},   {64, 40},   {80, 80},  {128, 128},
                                           {132, 96}, {192, 128}, {256, 256}, {576, 512}};
        struct rng rng = rng_start("attends_all_rows");
        for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
                for (uint32_t codec = CAIRN_ROW_RAW; codec <= CAIRN_ROW_Q8; codec++) {
                        struct cairn_landmark_shape shape = shape_of(dims[i][0], dims[i][1]);
                        shape.k_codec = shape.v_codec = codec;
                        struct context c;
                        context_alloc(&c, &shape, 700);
                        context_fill(&c, &rng, 1);
                        context_encode(&c, true);
                        float *queries = malloc(QUERIES * shape.k_dim * sizeof(float));
                        random_queries(&rng, queries, QUERIES * shape.k_dim);
                        struct cairn_landmark_request r = request_of(&c, queries, 0);
                        struct part part;
                        part_init(&part);
                        attend(&r, NULL, 0, &part);
                        double bound = codec == CAIRN_ROW_RAW ? 1e-5 : 0.08;
                        for (uint32_t q = 0; q < QUERIES; q++) {
                                double exact[576], lse, size;
                                exact_attention(&c, &r, NULL, q, exact, &lse);
                                double gap =
                                    distance(part.out + q * shape.v_dim, exact, shape.v_dim, &size);
                                cr_assert_float_eq(part.lse[q], lse, bound);
                                cr_assert_leq(gap, bound * (size + 0.3),
                                              "dim %u codec %u: %g of %g", shape.k_dim, codec, gap,
                                              size);
                        }
                        free(queries);
                        context_free(&c);
                }
        }
}

// Attend over the rows of a selection, by the scores it has, equals Attend over their positions: to
// the bit, whatever the codecs, the budget and the order of heads.
Test(landmark_partial, attends_the_chosen_by_their_scores)
{
        struct rng rng = rng_start("attends_the_chosen_by_their_scores");
        for (uint32_t round = 0; round < 24; round++) {
                struct cairn_landmark_shape shape =
                    shape_of(round % 3 ? 128 : 80, round % 4 ? 96 : 0);
                shape.k_codec = round % 5 == 4   ? CAIRN_ROW_RAW
                                : round % 5 == 3 ? CAIRN_ROW_Q4
                                                 : CAIRN_ROW_Q8;
                shape.v_codec = round % 7 == 6   ? CAIRN_ROW_RAW
                                : round % 7 == 5 ? CAIRN_ROW_Q4
                                                 : CAIRN_ROW_Q8;
                struct context c;
                context_alloc(&c, &shape, 300 + rng_below(&rng, 900));
                context_fill(&c, &rng, 1);
                context_encode(&c, round % 2);
                float queries[QUERIES * 128];
                random_queries(&rng, queries, QUERIES * shape.k_dim);
                struct cairn_landmark_request r =
                    request_of(&c, queries, round == 0 ? 0 : 1 + rng_below(&rng, 400));
                r.budget = round % 3 == 1 ? CAIRN_LANDMARK_MASS : CAIRN_LANDMARK_COUNT;
                r.target = 0.6f;
                struct answer a;
                struct part by_scores, by_positions;
                part_init(&by_scores);
                part_init(&by_positions);
                cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
                void *scratch =
                    aligned_alloc(64, (cairn_landmark_attend_scratch_bytes(&r) + 127) / 64 * 64);
                cairn_landmark_attend_chosen(a.selection, scratch, &by_scores.p);
                attend(&r, a.result.positions, a.result.n_chosen, &by_positions);
                cr_assert_eq(memcmp(by_scores.lse, by_positions.lse, sizeof by_scores.lse), 0);
                cr_assert_eq(memcmp(by_scores.out, by_positions.out, sizeof by_scores.out), 0,
                             "round %u", round);
                for (uint32_t q = 0; q < QUERIES && a.result.n_chosen; q++)
                        cr_assert_float_eq(by_scores.lse[q], a.result.lse_chosen[q], 1e-5);
                free(scratch);
                answer_free(&a);
                context_free(&c);
        }
}

// Chosen, excluded and left-out rows merged are the whole; a position in no piece is an error.
Test(landmark_partial, parts_merge_to_the_whole)
{
        struct rng rng = rng_start("parts_merge_to_the_whole");
        struct cairn_landmark_shape shape = shape_of(64, 64);
        struct context c;
        context_alloc(&c, &shape, 1000);
        context_fill(&c, &rng, 1);
        context_encode(&c, true);
        float queries[QUERIES * 64];
        random_queries(&rng, queries, QUERIES * 64);
        struct cairn_landmark_request r = request_of(&c, queries, 0);
        struct part whole, sum, part;
        part_init(&whole);
        part_init(&sum);
        attend(&r, NULL, 0, &whole);
        uint32_t positions[1000];
        for (uint32_t pick = 0; pick < 3; pick++) {
                uint32_t n = 0;
                for (uint32_t t = 0; t < 1000; t++)
                        if (t * 7 % 3 == pick)
                                positions[n++] = t;
                part_init(&part);
                attend(&r, positions, n, &part);
                cairn_landmark_partial_merge(&sum.p, &part.p, QUERIES, 64);
        }
        part_init(&part); // nothing is neutral
        attend(&r, positions, 0, &part);
        cr_assert_eq(part.lse[0], -INFINITY);
        cairn_landmark_partial_merge(&sum.p, &part.p, QUERIES, 64);
        for (uint32_t i = 0; i < QUERIES * 64; i++)
                cr_assert_float_eq(sum.out[i], whole.out[i], 1e-5);
        for (uint32_t q = 0; q < QUERIES; q++)
                cr_assert_float_eq(sum.lse[q], whole.lse[q], 1e-5);
        positions[0] = 1000;
        void *scratch =
            aligned_alloc(64, (cairn_landmark_attend_scratch_bytes(&r) + 127) / 64 * 64);
        cr_assert_eq(cairn_landmark_attend(&r, positions, 1, scratch, &part.p), CAIRN_ENOENT);
        free(scratch);
        context_free(&c);
}

static void rest_of(const struct cairn_landmark_request *r, const struct answer *a, uint32_t first,
                    uint32_t n, struct part *part)
{
        void *scratch = aligned_alloc(64, (cairn_landmark_rest_scratch_bytes(r) + 127) / 64 * 64);
        cairn_landmark_rest(a->selection, first, n, 0, scratch, &part->p);
        free(scratch);
}

// The chosen rows and the rest are closer to full attention than the chosen rows alone; parts of
// the rest merge to it.
Test(landmark_partial, the_rest_completes_the_chosen)
{
        struct rng rng = rng_start("the_rest_completes_the_chosen");
        for (uint32_t bits = 0; bits <= 4; bits += 2) {
                struct cairn_landmark_shape shape = shape_of(128, bits == 2 ? 80 : 128);
                shape.value_bits = bits;
                struct context c;
                context_alloc(&c, &shape, 4000);
                context_fill(&c, &rng, 1);
                for (uint32_t t = 0; t < c.n; t++) // values with a mean, as real ones have
                        c.v[(size_t)t * shape.v_dim] += 1;
                context_encode(&c, true);
                float queries[QUERIES * 128];
                random_queries(&rng, queries, QUERIES * 128);
                struct cairn_landmark_request r = request_of(&c, queries, 125);
                struct answer a;
                cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
                struct part chosen, rest, pieces;
                part_init(&chosen);
                part_init(&rest);
                part_init(&pieces);
                attend(&r, a.result.positions, a.result.n_chosen, &chosen);
                rest_of(&r, &a, 0, c.n_pieces, &rest);
                for (uint32_t p = 0; p < c.n_pieces; p += 3) {
                        struct part some;
                        part_init(&some);
                        rest_of(&r, &a, p, c.n_pieces - p < 3 ? c.n_pieces - p : 3, &some);
                        cairn_landmark_partial_merge(&pieces.p, &some.p, QUERIES, shape.v_dim);
                }
                double alone = 0, both = 0;
                for (uint32_t q = 0; q < QUERIES; q++) {
                        double exact[576], lse, size;
                        cr_assert_float_eq(chosen.lse[q], a.result.lse_chosen[q], 1e-4);
                        cr_assert_float_eq(pieces.lse[q], rest.lse[q], 1e-4);
                        for (uint32_t j = 0; j < shape.v_dim; j++)
                                cr_assert_float_eq(pieces.out[q * shape.v_dim + j],
                                                   rest.out[q * shape.v_dim + j], 2e-3);
                        exact_attention(&c, &r, NULL, q, exact, &lse);
                        alone += distance(chosen.out + q * shape.v_dim, exact, shape.v_dim, &size);
                        cairn_landmark_partial_merge(&chosen.p, &rest.p, 0, shape.v_dim);
                }
                cairn_landmark_partial_merge(&chosen.p, &rest.p, QUERIES, shape.v_dim);
                double whole = 0;
                for (uint32_t q = 0; q < QUERIES; q++) {
                        double exact[576], lse, size;
                        exact_attention(&c, &r, NULL, q, exact, &lse);
                        cr_assert_float_eq(chosen.lse[q], a.result.lse_all[q], 1e-4);
                        cr_assert_float_eq(chosen.lse[q], lse, 0.25);
                        both += distance(chosen.out + q * shape.v_dim, exact, shape.v_dim, &size);
                        whole += size;
                }
                fprintf(stderr, "value bits %u: error alone %.3f, with the rest %.3f, of %.3f\n",
                        bits, alone, both, whole);
                cr_assert_lt(both, alone * 0.35);
                answer_free(&a);
                context_free(&c);
        }
}

static void rest_with(const struct cairn_landmark_request *r, float skip, struct part *part)
{
        struct answer a;
        void *scratch = aligned_alloc(64, (cairn_landmark_rest_scratch_bytes(r) + 127) / 64 * 64);
        part_init(part);
        cr_assert_eq(answer_select(r, &a), CAIRN_OK);
        cairn_landmark_rest(a.selection, 0, r->n_pieces, skip, scratch, &part->p);
        free(scratch);
        answer_free(&a);
}

// Runs are left out by what all of them weigh together: of even weights none is, however many there
// are, and what is left out moves the output by no more than its share.
Test(landmark_partial, skipping_is_bounded)
{
        struct rng rng = rng_start("skipping_is_bounded");
        struct cairn_landmark_shape shape = shape_of(64, 64);
        struct context c;
        context_alloc(&c, &shape, 256 * 16);
        context_fill(&c, &rng, 1);
        for (uint32_t t = 256 * 8; t < c.n; t++) // the second half: weighs much for one query head
                c.k[(size_t)t * 64] += 4;
        context_encode(&c, false);
        float queries[QUERIES * 64] = {0};
        queries[64] = 8;
        struct cairn_landmark_request r = request_of(&c, queries, 8);
        struct part all, most;
        rest_with(&r, 1e-9f, &all);
        rest_with(&r, 0.5f, &most);
        cr_assert_eq(memcmp(all.lse, most.lse, sizeof all.lse), 0);
        cr_assert_eq(memcmp(all.out, most.out, 64 * sizeof(float)), 0, "of even weights");
        double gap = 0, size = 0;
        for (uint32_t j = 64; j < 128; j++) {
                gap += (all.out[j] - most.out[j]) * (all.out[j] - most.out[j]);
                size += all.out[j] * all.out[j];
        }
        cr_assert_gt(gap, 0, "the first half is left out");
        cr_assert_leq(gap, 0.5 * 0.5 * size);
        context_free(&c);
}

// Case 45: the rest of nothing, and a selection of one token with all the mass.
Test(landmark_partial, the_rest_of_nothing)
{
        struct rng rng = rng_start("the_rest_of_nothing");
        struct cairn_landmark_shape shape = shape_of(64, 64);
        struct context c;
        context_alloc(&c, &shape, 300);
        context_fill(&c, &rng, 1);
        for (uint32_t j = 0; j < 64; j++)
                c.k[150 * 64 + j] = 300;
        context_encode(&c, true);
        float queries[QUERIES * 64];
        for (uint32_t i = 0; i < QUERIES * 64; i++)
                queries[i] = 5;
        struct cairn_landmark_range all = {0, 1000};
        struct cairn_landmark_request r = request_of(&c, queries, 300);
        for (int round = 0; round < 3; round++) {
                struct answer a;
                struct part rest, chosen;
                part_init(&rest);
                part_init(&chosen);
                r.n_excluded = round == 1;
                r.excluded = &all;
                r.k = round == 2 ? 1 : 300;
                cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
                rest_of(&r, &a, 0, c.n_pieces, &rest);
                attend(&r, a.result.positions, a.result.n_chosen, &chosen);
                for (uint32_t q = 0; q < QUERIES; q++) {
                        if (round < 2)
                                cr_assert_eq(rest.lse[q], -INFINITY);
                        else
                                cr_assert_lt(rest.lse[q], a.result.lse_all[q] - 80);
                }
                for (uint32_t i = 0; i < QUERIES * 64; i++) {
                        cr_assert(rest.out[i] == rest.out[i]);
                        if (round < 2)
                                cr_assert_eq(rest.out[i], 0);
                }
                cairn_landmark_partial_merge(&chosen.p, &rest.p, QUERIES, 64);
                for (uint32_t i = 0; i < QUERIES * 64; i++)
                        cr_assert(chosen.out[i] == chosen.out[i]);
                if (round == 2)
                        cr_assert_eq(a.result.positions[0], 150);
                answer_free(&a);
        }
        context_free(&c);
}

// The rest is the same, bit for bit, on every instruction set.
Test(landmark_partial, same_rest_on_every_isa)
{
        struct rng rng = rng_start("same_rest_on_every_isa");
        for (int round = 0; round < 12; round++) {
                static const uint32_t dims[] = {1, 40, 64, 96, 128, 512};
                struct cairn_landmark_shape shape = shape_of(64, dims[round % 6]);
                shape.value_bits = round % 3 * 2;
                struct context c;
                context_alloc(&c, &shape, 100 + rng_below(&rng, 900));
                context_fill(&c, &rng, 1);
                context_encode(&c, round % 2);
                float queries[QUERIES * 64];
                random_queries(&rng, queries, QUERIES * 64);
                struct cairn_landmark_request r = request_of(&c, queries, 20);
                struct part first;
                for (unsigned isa = 0; isa < CAIRN_ISA_COUNT; isa++) {
                        struct answer a;
                        struct part part, all;
                        if (cairn_isa_choose(cairn_isa_name((enum cairn_isa)isa)) != CAIRN_OK)
                                continue;
                        part_init(&part);
                        part_init(&all);
                        cr_assert_eq(answer_select(&r, &a), CAIRN_OK);
                        rest_of(&r, &a, 0, c.n_pieces, &part);
                        attend(&r, NULL, 0, &all);
                        cairn_landmark_partial_merge(&part.p, &all.p, QUERIES, shape.v_dim);
                        if (isa == 0)
                                first = part;
                        cr_assert_eq(memcmp(part.out, first.out, sizeof part.out), 0);
                        cr_assert_eq(memcmp(part.lse, first.lse, sizeof part.lse), 0);
                        answer_free(&a);
                }
                context_free(&c);
        }
}

// Gathered raw rows are the exact bytes; q8 rows are within half a step; conversions between dtypes
// round.
Test(landmark_partial, gathers_rows)
{
        struct rng rng = rng_start("gathers_rows");
        static const uint32_t dtypes[] = {CAIRN_DTYPE_F32, CAIRN_DTYPE_F16, CAIRN_DTYPE_BF16,
                                          CAIRN_DTYPE_F8E4M3, CAIRN_DTYPE_F8E5M2};
        for (int round = 0; round < 15; round++) {
                struct cairn_landmark_shape shape = shape_of(96, 132);
                shape.dtype = dtypes[round % 5];
                shape.k_codec = shape.v_codec = round < 5 ? CAIRN_ROW_RAW : CAIRN_ROW_Q8;
                struct context c;
                context_alloc(&c, &shape, 600);
                context_fill(&c, &rng, 1);
                c.k[5] = NAN;
                context_encode(&c, true);
                uint32_t positions[100], element = cairn_dtype_bytes(shape.dtype);
                for (uint32_t i = 0; i < 100; i++)
                        positions[i] = i * 6;
                size_t k_bytes = 100 * 96 * element, v_bytes = 100 * 132 * element;
                uint8_t *k = guarded(k_bytes), *v = guarded(v_bytes);
                float *k32 = guarded(100 * 96 * 4), *v32 = guarded(100 * 132 * 4);
                cr_assert_eq(cairn_landmark_gather(&c.layout, c.pieces, c.n_pieces, positions, 100,
                                                   shape.dtype, k, v),
                             CAIRN_OK);
                cr_assert_eq(cairn_landmark_gather(&c.layout, c.pieces, c.n_pieces, positions, 100,
                                                   CAIRN_DTYPE_F32, k32, v32),
                             CAIRN_OK);
                for (uint32_t i = 0; i < 100; i++) {
                        if (shape.k_codec == CAIRN_ROW_RAW || positions[i] >= 512) {
                                cr_assert_eq(memcmp(k + (size_t)i * 96 * element,
                                                    c.raw_k + (size_t)positions[i] * 96 * element,
                                                    96 * element),
                                             0);
                                cr_assert_eq(memcmp(v + (size_t)i * 132 * element,
                                                    c.raw_v + (size_t)positions[i] * 132 * element,
                                                    132 * element),
                                             0);
                        }
                        for (uint32_t j = 0; j < 132 && i > 0; j++) {
                                cr_assert_float_eq(v32[i * 132 + j], c.v[positions[i] * 132 + j],
                                                   0.03);
                                if (j < 96)
                                        cr_assert_float_eq(k32[i * 96 + j],
                                                           c.k[positions[i] * 96 + j], 0.03);
                        }
                }
                cr_assert(k32[5] != k32[5]);
                positions[99] = 600;
                cr_assert_eq(cairn_landmark_gather(&c.layout, c.pieces, c.n_pieces, positions, 100,
                                                   shape.dtype, k, v),
                             CAIRN_ENOENT);
                guarded_free(k, k_bytes);
                guarded_free(v, v_bytes);
                guarded_free(k32, 100 * 96 * 4);
                guarded_free(v32, 100 * 132 * 4);
                context_free(&c);
        }
}

// Case 36: all codes of the 8-bit dtypes survive a round trip through floats.
Test(landmark_partial, all_codes_of_fp8)
{
        for (uint32_t bits = 0; bits < 256; bits++) {
                static const uint32_t dtypes[] = {CAIRN_DTYPE_F8E4M3, CAIRN_DTYPE_F8E5M2};
                for (int i = 0; i < 2; i++) {
                        uint8_t code = (uint8_t)bits, back;
                        float x;
                        cairn_row_exact(&code, dtypes[i], 1, &x);
                        cairn_row_to_raw(&cairn_kernels_scalar, &x, dtypes[i], 1, &back);
                        if (x == x)
                                cr_assert_eq(back, code, "dtype %u code %u", dtypes[i], bits);
                        else
                                cr_assert_geq(back & 0x7f, i ? 0x7d : 0x7f);
                }
        }
        float e4m3, e5m2;
        uint8_t most = 0x7e, least = 0x01, five = 0x7b;
        cairn_row_exact(&most, CAIRN_DTYPE_F8E4M3, 1, &e4m3);
        cr_assert_eq(e4m3, 448);
        cairn_row_exact(&least, CAIRN_DTYPE_F8E4M3, 1, &e4m3);
        cr_assert_eq(e4m3, 0x1p-9f);
        cairn_row_exact(&five, CAIRN_DTYPE_F8E5M2, 1, &e5m2);
        cr_assert_eq(e5m2, 57344);
}
