// Plan and tuning: masses equal a sorted reference, the smallest budget is the smallest, tuning
// stays within bounds, does not flutter and says why.
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/retention/plan.h"
#include "policy/retention/tune.h"
#include "proto/status.h"

enum {
        N = 3000
};

static uint64_t seed_of_test(void)
{
        const char *text = getenv("CAIRN_TEST_SEED");
        uint64_t seed = text ? strtoull(text, NULL, 10) : 17;

        fprintf(stderr, "CAIRN_TEST_SEED=%llu\n", (unsigned long long)seed);
        return seed;
}

static double next_uniform(uint64_t *state)
{
        uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        z ^= z >> 31;
        return ((double)(z >> 12) + 0.5) * 0x1p-52;
}

static int descending(const void *a, const void *b)
{
        float x = *(const float *)a;
        float y = *(const float *)b;

        return (x < y) - (x > y);
}

static void plan(const struct cairn_choose_request *request, double target,
                 struct cairn_plan_head *ret_plan)
{
        void *scratch = malloc(cairn_plan_scratch_bytes(request->n_tokens) + 8);

        cr_assert_eq(cairn_plan_head(request, target, scratch, ret_plan), CAIRN_OK);
        free(scratch);
}

static void make_scores(float *scores, uint64_t seed)
{
        for (int t = 0; t < N; t++)
                scores[t] = (float)exp(6 * next_uniform(&seed) * next_uniform(&seed) - 5);
        scores[77] = 0;
}

// Protected first, then the highest: the mass of `kept` tokens, in f64 by a plain sort.
static double reference_mass(const float *scores, uint32_t sinks, uint32_t recent, uint32_t kept)
{
        static float others[N];
        uint32_t count = 0;
        double mass = 0;
        double all = 0;

        for (uint32_t t = 0; t < N; t++) {
                all += (double)scores[t];
                if (t < sinks || t >= N - recent)
                        mass += (double)scores[t];
                else
                        others[count++] = scores[t];
        }
        qsort(others, count, sizeof(float), descending);
        for (uint32_t i = 0; i < count && sinks + recent + i < kept; i++)
                mass += (double)others[i];
        return mass / all;
}

Test(plan, the_curve_and_the_smallest_budget_equal_a_sorted_reference)
{
        static float scores[N];
        struct cairn_choose_request request = {
            .n_tokens = N, .scores = scores, .sinks = 4, .recent = 26};
        struct cairn_plan_head head;

        make_scores(scores, seed_of_test());
        for (double target = 0.1; target < 1; target += 0.0999) {
                plan(&request, target, &head);
                cr_assert_eq(head.protected_tokens, 30);
                cr_assert_eq(head.present, N);
                cr_assert_geq(head.mass_needed, target);
                cr_assert_float_eq(reference_mass(scores, 4, 26, head.needed), head.mass_needed,
                                   1e-9);
                cr_assert_lt(reference_mass(scores, 4, 26, head.needed - 1), target,
                             "one token fewer holds less than %g", target);
        }
        for (uint32_t p = 0; p < CAIRN_PLAN_POINTS; p++) {
                cr_assert_float_eq(head.mass[p], reference_mass(scores, 4, 26, head.kept[p]), 1e-9);
                cr_assert_geq(head.kept[p], 30);
                cr_assert(p == 0 || head.kept[p] >= head.kept[p - 1]);
                if (cairn_plan_share(p) * N > 30)
                        cr_assert_eq(head.kept[p], (uint32_t)ceil(cairn_plan_share(p) * N - 1e-9));
        }
        cr_assert_eq(head.kept[CAIRN_PLAN_POINTS - 1], N);
        cr_assert_float_eq(head.mass[CAIRN_PLAN_POINTS - 1], 1, 1e-9);
}

Test(plan, the_dry_run_and_the_choice_agree)
{
        static float scores[N];
        uint64_t kept[(N + 63) / 64];
        void *scratch = malloc(cairn_choose_scratch_bytes(N));
        struct cairn_choose_result chosen;
        struct cairn_choose_request request = {
            .n_tokens = N, .scores = scores, .sinks = 4, .recent = 26};
        struct cairn_plan_head head;

        make_scores(scores, seed_of_test());
        plan(&request, 0.9, &head);
        request.top = head.needed - 30;
        cr_assert_eq(cairn_choose(&request, scratch, kept, &chosen), CAIRN_OK);
        cr_assert_eq(chosen.kept, head.needed);
        cr_assert_float_eq(chosen.mass_kept / chosen.mass_all, head.mass_needed, 1e-9);
        free(scratch);
}

Test(plan, extremes_are_plain)
{
        static float scores[N];
        uint64_t present[(N + 63) / 64] = {0xffull};
        struct cairn_choose_request request = {.n_tokens = N, .scores = scores};
        struct cairn_plan_head head;
        char scratch[64];

        plan(&request, 0.5, &head); // all scores 0: counted as equal
        cr_assert_eq(head.needed, N / 2);
        plan(&request, 1, &head);
        cr_assert_eq(head.needed, N);
        plan(&request, 0, &head);
        cr_assert_eq(head.needed, 0);
        scores[5] = 1;
        plan(&request, 1, &head);
        cr_assert_eq(head.needed, 1, "one token has it all");
        request.present = present;
        plan(&request, 0.5, &head);
        cr_assert_eq(head.present, 8);
        cr_assert_eq(head.kept[CAIRN_PLAN_POINTS - 1], 8);
        request.n_tokens = 0;
        plan(&request, 0.5, &head);
        cr_assert_eq(head.needed, 0);
        cr_assert_eq(cairn_plan_head(&request, NAN, scratch, &head), CAIRN_EINVAL);
        cr_assert_eq(cairn_plan_head(&request, 1.1, scratch, &head), CAIRN_EINVAL);
}

Test(plan, a_common_share_holds_the_target_on_average)
{
        static float scores[4][N];
        static struct cairn_plan_head heads[4];
        struct cairn_plan_total total;
        struct cairn_plan_total less;
        uint64_t seed = seed_of_test();
        double mass = 0;

        for (int h = 0; h < 4; h++) {
                struct cairn_choose_request request = {
                    .n_tokens = N, .scores = scores[h], .sinks = 4, .recent = 26};

                make_scores(scores[h], seed + (uint64_t)h);
                for (int t = 0; t < N; t++) // head 3 is the flattest
                        scores[h][t] = powf(scores[h][t], 1 / (float)(h + 1));
                plan(&request, 0.9, &heads[h]);
        }
        cairn_plan_total(heads, 4, 0.9, &total);
        cr_assert_float_eq(total.mass, 0.9, 1e-6);
        cr_assert_eq(total.lowest, 3);
        cr_assert_lt(total.mass_lowest, 0.9);
        cairn_plan_total_at(heads, 4, total.share * 0.98, &less);
        cr_assert_lt(less.mass, 0.9);
        for (int h = 0; h < 4; h++)
                mass += reference_mass(scores[h], 4, 26, (uint32_t)ceil(total.share * N)) / 4;
        cr_assert_geq(mass, 0.9 - 1e-9, "the estimate is on the safe side");
        cr_assert_leq(mass, 0.905, "and near");
        cairn_plan_total(heads, 4, 1, &total);
        cr_assert_geq(total.share, 0.999);
}

Test(tune, follows_what_contexts_need_and_does_not_flutter)
{
        struct cairn_tune_options options = {.target_mass = 0.95};
        struct cairn_tune tune = {0};
        struct cairn_tune_decision decision;
        uint64_t seed = seed_of_test();
        uint64_t moves;

        cr_assert_eq(cairn_tune_check(&options), CAIRN_OK);
        cairn_tune_observe(&tune, &options, 0.2, &decision);
        cairn_tune_observe(&tune, &options, 0.2, &decision);
        cr_assert_eq(decision.reason, CAIRN_TUNE_WAITING);
        cr_assert_eq(tune.share, 0);
        cairn_tune_observe(&tune, &options, 0.2, &decision);
        cr_assert_eq(decision.reason, CAIRN_TUNE_FIRST);
        cr_assert_float_eq(decision.share, 0.2, 1e-12);
        for (int i = 0; i < 1000; i++) // noise around the same need
                cairn_tune_observe(&tune, &options, 0.19 + 0.02 * next_uniform(&seed), &decision);
        cr_assert_eq(tune.moves, 1);
        cr_assert_eq(decision.reason, CAIRN_TUNE_STEADY);
        for (int i = 0; i < 50; i++)
                cairn_tune_observe(&tune, &options, 0.4, &decision);
        cr_assert_geq(tune.share, 0.4 / 1.15 - 1e-9, "%g", tune.share);
        moves = tune.moves;
        cr_assert_leq(moves, 8);
        for (int i = 0; i < 50; i++)
                cairn_tune_observe(&tune, &options, 0.9, &decision);
        cr_assert_float_eq(tune.share, 0.5, 1e-12, "the upper bound");
        cr_assert_eq(decision.reason, CAIRN_TUNE_BOUND_HIGH);
        for (int i = 0; i < 100; i++)
                cairn_tune_observe(&tune, &options, 0, &decision);
        cr_assert_float_eq(tune.share, 0.02, 1e-12, "the lower bound");
        cr_assert_eq(decision.reason, CAIRN_TUNE_BOUND_LOW);
        moves = tune.seen;
        cairn_tune_observe(&tune, &options, NAN, &decision);
        cr_assert_eq(tune.seen, moves, "no observation");
}

Test(tune, ratios_keep_their_proportions_and_the_text_its_numbers)
{
        struct cairn_tune_options options = {.target_mass = 0.95};
        struct cairn_tune tune = {0};
        struct cairn_tune_decision decision;
        struct cairn_nacl_options like;
        struct cairn_nacl_options ratios;
        char text[512];

        cairn_nacl_defaults(&like);
        cairn_tune_ratios(0.1, &like, &ratios);
        cr_assert_float_eq(ratios.proxy_keep, 0.06, 1e-12);
        cr_assert_float_eq(ratios.random_keep, 0.035, 1e-12);
        cr_assert_float_eq(ratios.protect, 0.005, 1e-12);
        cr_assert_float_eq(ratios.proxy_ratio, 0.01, 1e-12);
        for (int i = 0; i < 3; i++)
                cairn_tune_observe(&tune, &options, 0.25, &decision);
        cr_assert_lt(cairn_tune_text(&options, &decision, text, sizeof(text)), (int)sizeof(text));
        cr_assert_not_null(strstr(text, "0.2500"));
        cr_assert_not_null(strstr(text, "0.9500"));
        cr_assert_not_null(strstr(text, "first"));
}

Test(tune, bad_options_are_refused)
{
        struct cairn_tune_options options = {.target_mass = 1};

        cr_assert_eq(cairn_tune_check(&options), CAIRN_EINVAL);
        options.target_mass = NAN;
        cr_assert_eq(cairn_tune_check(&options), CAIRN_EINVAL);
        options.target_mass = 0.9;
        options.share_min = 0.6;
        cr_assert_eq(cairn_tune_check(&options), CAIRN_EINVAL, "above the default upper bound");
        options.share_min = 0.1;
        options.hysteresis = -1;
        cr_assert_eq(cairn_tune_check(&options), CAIRN_EINVAL);
}
