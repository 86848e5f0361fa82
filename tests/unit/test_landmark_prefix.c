// Latent attention: values that are the first dims of the key.
#include <criterion/criterion.h>

#include "tests/unit/landmark_fixture.h"

enum {
        QUERIES = 6,
        OUT_MAX = 576
};

struct part {
        struct cairn_landmark_partial p;
        float out[QUERIES * OUT_MAX];
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

static struct cairn_landmark_shape latent(uint32_t k_dim, uint32_t prefix)
{
        struct cairn_landmark_shape shape = shape_of(k_dim, 0);
        shape.v_prefix = prefix;
        shape.outliers = k_dim > 8 ? 8 : 0;
        return shape;
}

// Keys whose channels have means of the size of what differs, as latents have.
static void fill(struct context *c, struct rng *rng)
{
        const struct cairn_landmark_shape *s = &c->layout.shape;
        float means[576];
        for (uint32_t j = 0; j < s->k_dim; j++)
                means[j] = rng_gauss(rng) * 1.5f;
        for (size_t i = 0; i < (size_t)c->n * s->k_dim; i++)
                c->k[i] = rng_gauss(rng) + means[i % s->k_dim];
}

static struct cairn_landmark_request request_of(const struct context *c, struct rng *rng,
                                                float *queries, uint32_t k)
{
        for (uint32_t i = 0; i < QUERIES * c->layout.shape.k_dim; i++)
                queries[i] = rng_gauss(rng);
        return (struct cairn_landmark_request){.layout = &c->layout,
                                               .pieces = c->pieces,
                                               .n_pieces = c->n_pieces,
                                               .queries = queries,
                                               .n_queries = QUERIES,
                                               .scale = 1.5f / sqrtf((float)c->layout.shape.k_dim),
                                               .k = k};
}

// Softmax attention in doubles; of all tokens but those of a NaN.
static void exact_attention(const struct context *c, const struct cairn_landmark_request *r,
                            uint32_t q, double *ret_out, double *ret_lse)
{
        uint32_t k_dim = c->layout.shape.k_dim, out_dim = cairn_landmark_out_dim(&c->layout);
        double max = -INFINITY, sum = 0;
        memset(ret_out, 0, out_dim * sizeof(double));
        for (uint32_t t = 0; t < c->n; t++) {
                double s = exact_score(c, r->queries + (size_t)q * k_dim, r->scale, t);
                max = s > max ? s : max;
        }
        for (uint32_t t = 0; t < c->n; t++) {
                double s = exact_score(c, r->queries + (size_t)q * k_dim, r->scale, t);
                double w = s == s ? exp(s - max) : 0;
                sum += w;
                for (uint32_t j = 0; j < out_dim && w > 0; j++)
                        ret_out[j] += w * c->k[(size_t)t * k_dim + j];
        }
        *ret_lse = max + log(sum);
        for (uint32_t j = 0; j < out_dim; j++)
                ret_out[j] /= sum;
}

static double distance(const float *a, const double *b, uint32_t n)
{
        double gap = 0;
        for (uint32_t j = 0; j < n; j++)
                gap += (a[j] - b[j]) * (a[j] - b[j]);
        return sqrt(gap);
}

// RMS of what differs between tokens: the scale of errors.
static double spread(uint32_t n)
{
        return sqrt(n);
}

static void attend(const struct cairn_landmark_request *r, struct part *part)
{
        void *scratch = aligned_alloc(64, (cairn_landmark_attend_scratch_bytes(r) + 127) / 64 * 64);
        cr_assert_eq(cairn_landmark_attend(r, NULL, 0, scratch, &part->p), CAIRN_OK);
        free(scratch);
}

// Attend takes values out of the K rows, whatever their codec; a key that is not finite counts for
// nothing, and does not spoil the sums.
Test(landmark_prefix, attends_to_a_part_of_the_key)
{
        static const uint32_t dims[][2] = {{576, 512}, {40, 13}, {64, 64}, {1, 1}, {192, 128}};
        static const double bounds[] = {3e-5, 0.03, 0.2}; // raw, q8, q4
        struct rng rng = rng_start("attends_to_a_part_of_the_key");
        for (uint32_t round = 0; round < 15; round++) {
                uint32_t k_dim = dims[round / 3][0], prefix = dims[round / 3][1];
                struct cairn_landmark_shape shape = latent(k_dim, prefix);
                shape.k_codec = round % 3;
                struct context c;
                context_alloc(&c, &shape, 600);
                fill(&c, &rng);
                c.k[(size_t)77 * k_dim] = NAN;
                context_encode(&c, true);
                float *queries = malloc(QUERIES * k_dim * sizeof(float));
                struct cairn_landmark_request r = request_of(&c, &rng, queries, 0);
                struct part part;
                part_init(&part);
                attend(&r, &part);
                for (uint32_t q = 0; q < QUERIES; q++) {
                        double exact[OUT_MAX], lse;
                        exact_attention(&c, &r, q, exact, &lse);
                        double gap = distance(part.out + q * prefix, exact, prefix);
                        cr_assert_leq(gap, bounds[shape.k_codec] * spread(prefix),
                                      "dims %u %u, codec %u: %g", k_dim, prefix, shape.k_codec,
                                      gap);
                        cr_assert_float_eq(part.lse[q], lse, 10 * bounds[shape.k_codec]);
                }
                free(queries);
                context_free(&c);
        }
}

struct outcome {
        struct part chosen;
        struct part whole;
};

static void select_and_complete(const struct cairn_landmark_request *r, struct outcome *o)
{
        struct answer a;
        struct part rest;
        part_init(&rest);
        part_init(&o->chosen);
        part_init(&o->whole);
        cr_assert_eq(answer_select(r, &a), CAIRN_OK);
        size_t bytes =
            cairn_landmark_rest_scratch_bytes(r) + cairn_landmark_attend_scratch_bytes(r);
        void *scratch = aligned_alloc(64, (bytes + 127) / 64 * 64);
        cairn_landmark_attend_chosen(a.selection, scratch, &o->chosen.p);
        memcpy(o->whole.out, o->chosen.out, sizeof o->whole.out);
        memcpy(o->whole.lse, o->chosen.lse, sizeof o->whole.lse);
        cairn_landmark_rest(a.selection, 0, r->n_pieces, 0, scratch, &rest.p);
        cairn_landmark_partial_merge(&o->whole.p, &rest.p, QUERIES,
                                     cairn_landmark_out_dim(r->layout));
        free(scratch);
        answer_free(&a);
}

// What is chosen and the rest merge to the whole: closely with value codes of the centred prefix,
// more closely than with codes of a copy of it in V rows, which are not centred.
Test(landmark_prefix, the_rest_completes_the_chosen)
{
        struct rng rng = rng_start("the_rest_completes_the_chosen");
        double error[3] = {0}, alone[3] = {0}, copied = 0;
        for (uint32_t round = 0; round < 3; round++) {
                struct cairn_landmark_shape shape = latent(576, 512);
                shape.value_bits = round * 2;
                struct context c, twin;
                context_alloc(&c, &shape, 1500);
                fill(&c, &rng);
                context_encode(&c, true);
                float *queries = malloc(QUERIES * 576 * sizeof(float));
                struct cairn_landmark_request r = request_of(&c, &rng, queries, 60), other = r;
                struct outcome o;
                double exact[QUERIES][OUT_MAX], lse;
                select_and_complete(&r, &o);
                for (uint32_t q = 0; q < QUERIES; q++) {
                        exact_attention(&c, &r, q, exact[q], &lse);
                        error[round] += distance(o.whole.out + q * 512, exact[q], 512) / QUERIES;
                        alone[round] += distance(o.chosen.out + q * 512, exact[q], 512) / QUERIES;
                        cr_assert_float_eq(o.whole.lse[q], lse, 0.5); // by 2-bit scores
                }
                shape.v_prefix = 0;
                shape.v_dim = 512;
                context_alloc(&twin, &shape, c.n);
                memcpy(twin.k, c.k, (size_t)c.n * 576 * sizeof(float));
                for (uint32_t t = 0; t < c.n; t++)
                        memcpy(twin.v + (size_t)t * 512, c.k + (size_t)t * 576,
                               512 * sizeof(float));
                context_encode(&twin, true);
                other.layout = &twin.layout;
                other.pieces = twin.pieces;
                select_and_complete(&other, &o);
                for (uint32_t q = 0; q < QUERIES && round == 1; q++)
                        copied += distance(o.whole.out + q * 512, exact[q], 512) / QUERIES;
                printf("value bits %u: error alone %.3f, with the rest %.3f\n", round * 2,
                       alone[round], error[round]);
                free(queries);
                context_free(&c);
                context_free(&twin);
        }
        printf("2-bit values in rows of their own: %.3f\n", copied);
        for (uint32_t round = 0; round < 3; round++)
                cr_assert_leq(error[round], 0.35 * alone[round]);
        cr_assert_leq(error[1], copied);
}

static void compare(const struct context *c, const struct cairn_landmark_request *r, uint32_t isa,
                    const struct outcome *scalar)
{
        struct outcome o;
        (void)c;
        cr_assert_eq(cairn_isa_choose(cairn_isa_name((enum cairn_isa)isa)), CAIRN_OK);
        select_and_complete(r, &o);
        cr_assert_eq(memcmp(&o.whole.out, &scalar->whole.out, sizeof o.whole.out), 0, "isa %u",
                     isa);
        cr_assert_eq(memcmp(&o.whole.lse, &scalar->whole.lse, sizeof o.whole.lse), 0, "isa %u",
                     isa);
}

Test(landmark_prefix, same_on_every_isa)
{
        struct rng rng = rng_start("same_on_every_isa");
        for (uint32_t round = 0; round < 6; round++) {
                struct cairn_landmark_shape shape =
                    latent(round % 2 ? 576 : 80, round % 2 ? 512 : 40);
                shape.value_bits = round % 3 * 2;
                struct context c;
                context_alloc(&c, &shape, 400 + rng_below(&rng, 400));
                fill(&c, &rng);
                context_encode(&c, round % 2);
                float *queries = malloc(QUERIES * shape.k_dim * sizeof(float));
                struct cairn_landmark_request r = request_of(&c, &rng, queries, 50);
                struct outcome scalar;
                cr_assert_eq(cairn_isa_choose("scalar"), CAIRN_OK);
                select_and_complete(&r, &scalar);
                for (uint32_t isa = 0; isa < CAIRN_ISA_COUNT; isa++)
                        if (cairn_isa_available((enum cairn_isa)isa))
                                compare(&c, &r, isa, &scalar);
                cr_assert_eq(cairn_isa_choose(NULL), CAIRN_OK);
                free(queries);
                context_free(&c);
        }
}

// Code runs of latent attention hold no V rows, and value codes of the prefix alone.
Test(landmark_prefix, lays_out_no_v_rows)
{
        struct cairn_landmark_shape shape = latent(576, 512);
        struct cairn_landmark_layout l;
        cr_assert_eq(cairn_landmark_layout_init(&shape, &l), CAIRN_OK);
        cr_assert_eq(l.v_rows, CAIRN_LANDMARK_NONE);
        cr_assert_eq(l.v_row_scales, CAIRN_LANDMARK_NONE);
        cr_assert_eq(l.value_dim, 512);
        cr_assert_eq(l.raw_bytes, l.raw_k_bytes);
        cr_assert_eq(cairn_landmark_out_dim(&l), 512);
        shape.v_prefix = 577;
        cr_assert_eq(cairn_landmark_layout_init(&shape, &l), CAIRN_EINVAL);
        shape.v_prefix = 512;
        shape.v_dim = 1;
        cr_assert_eq(cairn_landmark_layout_init(&shape, &l), CAIRN_EINVAL);
}
