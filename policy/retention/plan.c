// Budget against mass (plan.h): scores sorted once a head, then sums from the highest down.
#include "policy/retention/plan.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/status.h"

static const float *sort_descending(float *scores, float *spare, uint32_t count);

double cairn_plan_share(uint32_t point)
{
        assert(point < CAIRN_PLAN_POINTS);
        return exp2(-10.0 * (CAIRN_PLAN_POINTS - 1 - point) / (CAIRN_PLAN_POINTS - 1));
}

size_t cairn_plan_scratch_bytes(uint32_t n_tokens)
{
        return (size_t)n_tokens * 2 * sizeof(float);
}

static bool is_protected(const struct cairn_choose_request *request, uint32_t at)
{
        if (at < request->sinks || at + (uint64_t)request->recent >= request->n_tokens)
                return true;
        for (uint32_t r = 0; r < request->n_ranges; r++) {
                if (at >= request->ranges[r].first && at < request->ranges[r].end)
                        return true;
        }
        return false;
}

static float score_at(const struct cairn_choose_request *request, uint32_t at)
{
        return request->scores[at] > 0 ? request->scores[at] : 0; // NaN too
}

// Splits present tokens into the mass of the protected and the scores of the others.
static uint32_t split(const struct cairn_choose_request *request, float *ret_scores,
                      struct cairn_plan_head *plan, double *ret_protected, double *ret_all)
{
        uint32_t others = 0;
        double protected_mass = 0;
        double all = 0;

        for (uint32_t t = 0; t < request->n_tokens; t++) {
                if (request->present && !(request->present[t / 64] >> t % 64 & 1))
                        continue;
                plan->present++;
                all += (double)score_at(request, t);
                if (is_protected(request, t)) {
                        plan->protected_tokens++;
                        protected_mass += (double)score_at(request, t);
                } else {
                        ret_scores[others++] = score_at(request, t);
                }
        }
        *ret_protected = protected_mass;
        *ret_all = all;
        return others;
}

int cairn_plan_head(const struct cairn_choose_request *request, double target_mass, void *scratch,
                    struct cairn_plan_head *ret_plan)
{
        struct cairn_plan_head plan = {.n_tokens = request->n_tokens};
        float *scores = scratch;
        const float *sorted;
        double mass;
        double all;
        uint32_t others;
        uint32_t point = 0;
        bool reached;

        if (!(target_mass >= 0 && target_mass <= 1) || request->n_tokens > CAIRN_CONTEXT_TOKENS_MAX)
                return CAIRN_EINVAL;
        others = split(request, scores, &plan, &mass, &all);
        if (all == 0) { // nothing is known: every token weighs the same
                for (uint32_t i = 0; i < others; i++)
                        scores[i] = 1;
                mass = plan.protected_tokens;
                all = plan.present ? plan.present : 1;
        }
        sorted = sort_descending(scores, scores + request->n_tokens, others);
        plan.mass_protected = mass / all;
        plan.needed = plan.protected_tokens;
        plan.mass_needed = plan.mass_protected;
        // The last bits of a sum must not ask for every token.
        reached = mass >= target_mass * all * (1 - 1e-12);
        for (uint32_t i = 0; i <= others; i++) {
                uint32_t kept = plan.protected_tokens + i;

                if (i > 0)
                        mass += (double)sorted[i - 1];
                if (!reached) {
                        plan.needed = kept;
                        plan.mass_needed = mass / all;
                        reached = mass >= target_mass * all * (1 - 1e-12);
                }
                while (point < CAIRN_PLAN_POINTS) {
                        double count = ceil(cairn_plan_share(point) * request->n_tokens - 1e-9);

                        if (kept < count && i < others)
                                break;
                        plan.kept[point] = kept;
                        plan.mass[point++] = mass / all;
                }
        }
        *ret_plan = plan;
        return CAIRN_OK;
}

double cairn_plan_mass(const struct cairn_plan_head *plan, double share)
{
        double count = share * plan->n_tokens;
        double low_kept = plan->protected_tokens;
        double low_mass = plan->mass_protected;

        if (plan->present == 0)
                return 1;
        for (uint32_t p = 0; p < CAIRN_PLAN_POINTS; p++) {
                if (count < plan->kept[p]) {
                        double part = (count - low_kept) / (plan->kept[p] - low_kept);

                        return part > 0 ? low_mass + part * (plan->mass[p] - low_mass) : low_mass;
                }
                low_kept = plan->kept[p];
                low_mass = plan->mass[p];
        }
        return low_mass;
}

void cairn_plan_total_at(const struct cairn_plan_head *plans, uint32_t n_plans, double share,
                         struct cairn_plan_total *ret_total)
{
        struct cairn_plan_total total = {.share = share, .mass_lowest = INFINITY};

        assert(n_plans > 0);
        for (uint32_t i = 0; i < n_plans; i++) {
                double mass = cairn_plan_mass(&plans[i], share);

                total.mass += mass / n_plans;
                if (mass < total.mass_lowest) {
                        total.mass_lowest = mass;
                        total.lowest = i;
                }
        }
        *ret_total = total;
}

void cairn_plan_total(const struct cairn_plan_head *plans, uint32_t n_plans, double target_mass,
                      struct cairn_plan_total *ret_total)
{
        double low = 0;
        double high = 1;

        for (int step = 0; step < 40; step++) { // mass grows with the share
                double middle = (low + high) / 2;

                cairn_plan_total_at(plans, n_plans, middle, ret_total);
                if (ret_total->mass >= target_mass * (1 - 1e-12))
                        high = middle;
                else
                        low = middle;
        }
        cairn_plan_total_at(plans, n_plans, high, ret_total);
}

// Radix sort by 11, 11 and 10 bits of f32 >= 0. Returns where the result lies: one of the two.
static const float *sort_descending(float *scores, float *spare, uint32_t count)
{
        static const int shifts[3] = {0, 11, 22};

        for (int pass = 0; pass < 3; pass++) {
                uint32_t starts[2049] = {0};
                float *swap = scores;

                for (uint32_t i = 0; i < count; i++) {
                        uint32_t bits;

                        memcpy(&bits, &scores[i], sizeof(bits));
                        starts[2048 - (bits >> shifts[pass] & 2047)]++;
                }
                for (uint32_t b = 1; b < 2049; b++) // starts[b]: where digit 2048 - b ends
                        starts[b] += starts[b - 1];
                for (uint32_t i = 0; i < count; i++) {
                        uint32_t bits;

                        memcpy(&bits, &scores[i], sizeof(bits));
                        spare[starts[2047 - (bits >> shifts[pass] & 2047)]++] = scores[i];
                }
                scores = spare;
                spare = swap;
        }
        return scores;
}
