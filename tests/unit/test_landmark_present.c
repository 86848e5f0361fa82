// Dropped rows: a selection over what is present equals one over the same tokens with the others
// excluded and held by nobody, bit for bit, on every instruction set that this machine has.
#include <criterion/criterion.h>

#include "tests/unit/landmark_fixture.h"

enum {
        TOKENS = 700, // two blocks of 256 and a raw tail
        QUERIES = 3,
        K = 40,
        DIM = 64,
};

struct fixture {
        struct context context;
        float queries[QUERIES * DIM];
        float lse_held[QUERIES]; // of nothing
        uint64_t present[(TOKENS + 63) / 64];
        struct cairn_landmark_range gaps[TOKENS]; // the same as ranges
        uint32_t n_gaps;
        uint32_t n_present;
};

static bool is_present(const struct fixture *f, uint32_t at, uint32_t end)
{
        return at >= end || (f->present[at / 64] >> at % 64 & 1);
}

// Bits of four tokens in ten are 0; those from `end` on are not looked at.
static void drop_some(struct fixture *f, struct rng *rng, uint32_t end)
{
        memset(f->present, 0, sizeof f->present);
        f->n_gaps = f->n_present = 0;
        for (uint32_t t = 0; t < end; t++)
                if (rng_below(rng, 10) >= 4)
                        f->present[t / 64] |= 1ull << t % 64;
        for (uint32_t t = 0; t < TOKENS; t++) {
                if (is_present(f, t, end))
                        f->n_present++;
                else if (f->n_gaps && f->gaps[f->n_gaps - 1].end == t)
                        f->gaps[f->n_gaps - 1].end++;
                else
                        f->gaps[f->n_gaps++] = (struct cairn_landmark_range){t, t + 1};
        }
}

static void fixture_init(struct fixture *f, struct rng *rng)
{
        struct cairn_landmark_shape shape = shape_of(DIM, DIM);

        memset(f, 0, sizeof *f);
        context_alloc(&f->context, &shape, TOKENS);
        context_fill(&f->context, rng, 1);
        context_encode(&f->context, true);
        for (uint32_t i = 0; i < QUERIES * DIM; i++)
                f->queries[i] = rng_gauss(rng);
        for (uint32_t q = 0; q < QUERIES; q++)
                f->lse_held[q] = -INFINITY;
}

static struct cairn_landmark_request request_of(const struct fixture *f)
{
        return (struct cairn_landmark_request){.layout = &f->context.layout,
                                               .pieces = f->context.pieces,
                                               .n_pieces = f->context.n_pieces,
                                               .queries = f->queries,
                                               .n_queries = QUERIES,
                                               .scale = 0.125f,
                                               .k = K};
}

struct outcome {
        struct answer answer;
        float rest[QUERIES * DIM];
        float rest_lse[QUERIES];
        float all[QUERIES * DIM];
        float all_lse[QUERIES];
};

static void ask(const struct cairn_landmark_request *request, struct outcome *o)
{
        struct cairn_landmark_partial rest = {o->rest, o->rest_lse};
        struct cairn_landmark_partial all = {o->all, o->all_lse};
        size_t bytes = cairn_landmark_rest_scratch_bytes(request);
        size_t more = cairn_landmark_attend_scratch_bytes(request);
        void *scratch = aligned_alloc(64, ((bytes > more ? bytes : more) + 127) / 64 * 64);

        cr_assert_eq(answer_select(request, &o->answer), CAIRN_OK);
        cairn_landmark_rest(o->answer.selection, 0, request->n_pieces, 0, scratch, &rest);
        cr_assert_eq(cairn_landmark_attend(request, NULL, 0, scratch, &all), CAIRN_OK);
        free(scratch);
}

static void expect_same(const struct outcome *a, const struct outcome *b)
{
        const struct cairn_landmark_result *x = &a->answer.result, *y = &b->answer.result;

        cr_assert_eq(x->n_eligible, y->n_eligible);
        cr_assert_eq(x->n_chosen, y->n_chosen);
        cr_assert_arr_eq(x->positions, y->positions, x->n_chosen * sizeof(uint32_t));
        cr_assert_arr_eq(x->scores, y->scores, x->n_chosen * sizeof(float));
        cr_assert_arr_eq(x->lse_all, y->lse_all, QUERIES * sizeof(float));
        cr_assert_arr_eq(a->rest, b->rest, sizeof a->rest);
        cr_assert_arr_eq(a->rest_lse, b->rest_lse, sizeof a->rest_lse);
        cr_assert_arr_eq(a->all, b->all, sizeof a->all);
        cr_assert_arr_eq(a->all_lse, b->all_lse, sizeof a->all_lse);
}

static void expect_drops_hide(struct fixture *f, struct rng *rng, uint32_t end)
{
        struct cairn_landmark_request dropped = request_of(f), excluded = request_of(f);
        struct outcome *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);

        drop_some(f, rng, end);
        dropped.present = f->present;
        dropped.present_end = end;
        excluded.excluded = f->gaps;
        excluded.n_excluded = f->n_gaps;
        excluded.lse_held = f->lse_held;
        ask(&dropped, a);
        ask(&excluded, b);
        expect_same(a, b);
        cr_assert_eq(a->answer.result.n_eligible, f->n_present);
        for (uint32_t i = 0; i < a->answer.result.n_chosen; i++)
                cr_assert(is_present(f, a->answer.result.positions[i], end));
        answer_free(&a->answer);
        answer_free(&b->answer);
        free(a);
        free(b);
}

Test(landmark_present, dropped_rows_count_for_nothing)
{
        struct rng rng = rng_start("dropped_rows_count_for_nothing");
        struct fixture *f = malloc(sizeof *f);
        static const uint32_t ends[] = {0, 1, 63, 64, 257, 513, TOKENS};

        fixture_init(f, &rng);
        for (int isa = 0; isa < CAIRN_ISA_COUNT; isa++) {
                if (cairn_isa_choose(cairn_isa_name((enum cairn_isa)isa)) != CAIRN_OK)
                        continue;
                for (uint32_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
                        expect_drops_hide(f, &rng, ends[i]);
        }
        context_free(&f->context);
        free(f);
}

// The excluded are a worker's: their mass counts for ranks, but not that of dropped ones among
// them.
Test(landmark_present, what_is_dropped_and_excluded_is_held_by_nobody)
{
        struct rng rng = rng_start("what_is_dropped_and_excluded_is_held_by_nobody");
        struct fixture *f = malloc(sizeof *f);
        struct cairn_landmark_range first = {0, 100};
        struct outcome *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
        struct cairn_landmark_request both, fewer;

        fixture_init(f, &rng);
        memset(f->present, 0xff, sizeof f->present);
        f->present[0] = 0; // 0..63 are gone
        both = fewer = request_of(f);
        both.present = fewer.present = f->present;
        both.present_end = fewer.present_end = TOKENS;
        both.excluded = &first;
        both.n_excluded = fewer.n_excluded = 1;
        fewer.excluded = &(struct cairn_landmark_range){64, 100};
        ask(&both, a);
        ask(&fewer, b);
        expect_same(a, b);
        cr_assert_eq(a->answer.result.n_eligible, TOKENS - 100);
        answer_free(&a->answer);
        answer_free(&b->answer);
        free(a);
        free(b);
        context_free(&f->context);
        free(f);
}

Test(landmark_present, chunks_are_of_what_is_present)
{
        struct rng rng = rng_start("chunks_are_of_what_is_present");
        struct fixture *f = malloc(sizeof *f);
        struct outcome *a = calloc(1, sizeof *a);
        struct cairn_landmark_request request;

        fixture_init(f, &rng);
        request = request_of(f);
        request.kind = CAIRN_LANDMARK_CHUNK_MEAN;
        request.chunk_tokens = 8;
        drop_some(f, &rng, TOKENS);
        memset(f->present, 0, 8);   // the chunks of 0..63 hold nothing
        f->present[0] = 1ull << 21; // but for one row, which then is its chunk's mean
        for (uint32_t j = 0; j < DIM; j++)
                f->queries[j] = 0;
        request.present = f->present;
        request.present_end = TOKENS;
        request.k = TOKENS;
        ask(&request, a);
        cr_assert_eq(a->answer.result.positions[0], 21);
        cr_assert_eq(a->answer.result.n_chosen, a->answer.result.n_eligible);
        for (uint32_t i = 0; i < a->answer.result.n_chosen; i++)
                cr_assert(is_present(f, a->answer.result.positions[i], TOKENS));
        answer_free(&a->answer);
        free(a);
        context_free(&f->context);
        free(f);
}
