// The end of a selection: candidates, re-rank, the choice by budget, and its log-sum-exps.
#include <assert.h>

#include "policy/landmark/selection.h"

enum {
        PREFETCH_AHEAD = 12,
};
#define LEFT_LEAST (1.0 / 64)

// Four candidates at a time; every machine has vectors of 16 bytes.
typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t v4i __attribute__((vector_size(16), aligned(4), may_alias));

static void locate(struct cairn_landmark_selection *s)
{
        uint32_t piece = 0;
        for (uint32_t i = 0; i < s->n_candidates; i++) {
                while (s->candidates[i] >= s->slot_base[piece + 1])
                        piece++;
                s->candidate_pieces[i] = piece;
        }
}

static void prefetch_row(const struct cairn_landmark_selection *s, uint32_t candidate)
{
        const struct cairn_landmark_layout *l = s->layout;
        uint32_t p = s->candidate_pieces[candidate];
        const uint8_t *code_run = s->request->pieces[p].code_run;
        if (!code_run || l->k_rows == CAIRN_LANDMARK_NONE)
                return;
        uint32_t token = s->candidates[candidate] - s->slot_base[p];
        const uint8_t *row = code_run + l->k_rows + (size_t)token * l->k_row_bytes;
        for (uint32_t at = 0; at < l->k_row_bytes; at += 64)
                __builtin_prefetch(row + at);
        __builtin_prefetch(row + l->k_row_bytes - 1); // rows need not begin where a line does
        if (l->k_row_scales != CAIRN_LANDMARK_NONE)
                __builtin_prefetch(code_run + l->k_row_scales + (size_t)token * 4);
}

// The scores of a candidate whose rows are int8.
static void rerank_int8(struct cairn_landmark_selection *s, uint32_t i, const uint8_t *code_run,
                        uint32_t token, const float *means)
{
        const struct cairn_landmark_layout *l = s->layout;
        const uint8_t *row = code_run + l->k_rows + (size_t)token * l->k_row_bytes;
        float scale, scores[CAIRN_GROUP_MAX], *to = s->candidate_scores + i;
        memcpy(&scale, code_run + l->k_row_scales + (size_t)token * 4, sizeof scale);
        s->kernels->row_scores((const int8_t *)row, s->query.padded, s->query.whole, s->n_queries,
                               scale, s->query.whole_units, means, scores);
        for (uint32_t q = 0; q < s->n_queries; q++, to += s->stride)
                *to = scores[q];
}

// Scores the candidates by their rows.
static void rerank(struct cairn_landmark_selection *s)
{
        float means[CAIRN_GROUP_MAX];
        uint32_t end = 0; // of the run that means are of
        bool int8 = s->layout->shape.k_codec == CAIRN_ROW_Q8;
        memset(s->touched, 0, s->n_runs);
        for (uint32_t i = 0; i < cairn_min_u32(PREFETCH_AHEAD, s->n_candidates); i++)
                prefetch_row(s, i);
        for (uint32_t i = 0; i < s->n_candidates; i++) {
                uint32_t slot = s->candidates[i], p = s->candidate_pieces[i];
                const struct cairn_landmark_piece *piece = &s->request->pieces[p];
                if (i + PREFETCH_AHEAD < s->n_candidates)
                        prefetch_row(s, i + PREFETCH_AHEAD);
                if (slot >= end) {
                        uint32_t run_tokens = cairn_piece_run_tokens(s->layout, piece);
                        uint32_t run = (slot - s->slot_base[p]) / run_tokens;
                        end = cairn_min_u32(s->slot_base[p] + (run + 1) * run_tokens,
                                            s->slot_base[p + 1]);
                        run += s->run_base[p];
                        s->touched[run] = 1;
                        for (uint32_t q = 0; q < s->n_queries; q++)
                                means[q] = s->run_mean[(size_t)q * s->n_runs_padded + run];
                }
                if (piece->code_run && int8)
                        rerank_int8(s, i, piece->code_run, slot - s->slot_base[p], means);
                else
                        cairn_score_row(s->layout, s->kernels, &s->query, piece,
                                        slot - s->slot_base[p], means, 1, s->candidate_scores + i,
                                        s->stride);
        }
}

// Collects the candidates' landmark scores.
static void take_landmarks(struct cairn_landmark_selection *s)
{
        uint32_t n = s->n_candidates;
        for (uint32_t q = 0; q < s->n_queries; q++) {
                const float *slots = s->scores + (size_t)q * s->score_stride;
                float *landmarks = s->candidate_landmarks + (size_t)q * s->stride;
                for (uint32_t i = 0; i < n; i++) {
                        uint32_t ahead = cairn_min_u32(i + 2 * PREFETCH_AHEAD, n - 1);
                        __builtin_prefetch(slots + s->candidates[ahead]);
                        landmarks[i] = slots[s->candidates[i]];
                }
        }
}

// How far re-ranking moved the candidates.
static void compare(struct cairn_landmark_selection *s)
{
        const v4 most = (v4){0} + FLT_MAX;
        for (uint32_t q = 0; q < s->n_queries; q++) {
                float *scores = s->candidate_scores + (size_t)q * s->stride;
                float *landmarks = s->candidate_landmarks + (size_t)q * s->stride;
                for (uint32_t i = s->n_candidates; i < s->stride; i++)
                        scores[i] = landmarks[i] = -INFINITY;
                for (uint32_t i = 0; i < s->stride; i += 4) {
                        v4 gap = *(const v4 *)(scores + i) - *(const v4 *)(landmarks + i);
                        v4i finite = (gap <= most) & (gap >= -most);
                        *(v4i *)(void *)(s->candidate_work + i) = (v4i)gap & finite;
                }
                s->noise[q] = s->kernels->dot(s->candidate_work, s->candidate_work, s->stride);
        }
}

// Sums up a query head's runs again, without the candidates.
static float sum_others(struct cairn_landmark_selection *s, uint32_t q)
{
        uint32_t done = UINT32_MAX;
        float *run_max = s->run_max + (size_t)q * s->n_runs_padded;
        float *run_sum = s->run_sum + (size_t)q * s->n_runs_padded;
        for (uint32_t i = 0; i < s->n_candidates; i++)
                s->scores[(size_t)q * s->score_stride + s->candidates[i]] = -INFINITY;
        for (uint32_t i = 0; i < s->n_candidates; i++) {
                uint32_t p = s->candidate_pieces[i];
                const struct cairn_landmark_piece *piece = &s->request->pieces[p];
                uint32_t run_tokens = cairn_piece_run_tokens(s->layout, piece);
                uint32_t run = (s->candidates[i] - s->slot_base[p]) / run_tokens;
                if (s->run_base[p] + run == done)
                        continue;
                done = s->run_base[p] + run;
                uint32_t first = run * run_tokens;
                uint32_t n = cairn_min_u32(piece->n_tokens - first, run_tokens);
                const float *scores =
                    s->scores + (size_t)q * s->score_stride + s->slot_base[p] + first;
                n = cairn_round_up(n, CAIRN_GROUP_TOKENS);
                float max = s->kernels->largest(scores, n);
                run_max[done] = max;
                run_sum[done] = s->kernels->exp_sum(scores, n, max > -INFINITY ? max : 0);
        }
        return cairn_lse_of_runs(s->kernels, run_max, run_sum, s->n_runs_padded, s->run_work);
}

// Log-sum-exp of what is no candidate: the scan's less the candidates' landmark scores, unless so
// little would be left that rounding could show; then by summing again.
static void weigh_others(struct cairn_landmark_selection *s)
{
        for (uint32_t q = 0; q < s->n_queries; q++) {
                float taken =
                    cairn_lse_of_scores(s->kernels, s->candidate_landmarks + (size_t)q * s->stride,
                                        s->stride);
                double left = 1;
                if (taken > -INFINITY)
                        left = taken < s->lse_scan[q]
                                   ? 1 - (double)cairn_exp_negative(taken - s->lse_scan[q])
                                   : 0;
                s->lse_others[q] = left > LEFT_LEAST
                                       ? (float)((double)s->lse_scan[q] + cairn_log(left))
                                       : sum_others(s, q);
        }
}

// ---- Budgets ----

// ret_work = scores, but -inf where `chosen` is not as asked.
static void keep_only(const struct cairn_landmark_selection *s, const float *scores, bool chosen,
                      float *ret_work)
{
        const v4i flip = (v4i){0} - (chosen ? 0 : 1);
        const v4i lowest = (v4i){0} + (int32_t)cairn_bits_of(-INFINITY);
        for (uint32_t i = 0; i < s->stride; i += 4) {
                v4i keep = *(const v4i *)(s->chosen + i) ^ flip;
                v4i bits = *(const v4i *)(const void *)(scores + i);
                *(v4i *)(void *)(ret_work + i) = (bits & keep) | (lowest & ~keep);
        }
}

static void choose_all_above(struct cairn_landmark_selection *s, int32_t key, uint32_t k)
{
        // The k-th key may be shared: lower positions first.
        v4i above = {0}, equal = {0};
        for (uint32_t i = 0; i < s->stride; i += 4) {
                v4i keys = *(const v4i *)(s->candidate_keys + i);
                above -= keys > key;
                equal -= keys == key;
                *(v4i *)(s->chosen + i) = keys >= key;
        }
        uint32_t ties = k - (uint32_t)(above[0] + above[1] + above[2] + above[3]);
        if ((uint32_t)(equal[0] + equal[1] + equal[2] + equal[3]) <= ties)
                return;
        for (uint32_t i = 0; i < s->n_candidates; i++) {
                if (s->candidate_keys[i] != key)
                        continue;
                s->chosen[i] = ties > 0 ? -1 : 0;
                ties -= ties > 0;
        }
}

static void choose_count(struct cairn_landmark_selection *s, uint32_t k)
{
        memset(s->chosen, 0, s->stride * sizeof(int32_t));
        k = cairn_min_u32(k, s->n_candidates);
        if (k == 0)
                return;
        memcpy(s->slot_keys, s->candidate_keys, s->n_candidates * sizeof(int32_t));
        choose_all_above(s, cairn_kth_largest(s->slot_keys, s->n_candidates, k), k);
}

static uint32_t count_at_least(const struct cairn_landmark_selection *s, float probability)
{
        bool sum = s->request->rule == CAIRN_LANDMARK_GROUP_SUM;
        float floor = sum ? probability : (float)cairn_log(probability);
        uint32_t n = 0;
        for (uint32_t i = 0; i < s->n_candidates; i++)
                n += s->candidate_keys[i] >= cairn_order_key(floor);
        return n;
}

// The smallest k whose rows hold `target` of every query head's mass, or s->k: mass grows with k,
// so halving finds it.
static uint32_t count_for_mass(struct cairn_landmark_selection *s, const float *lse_all)
{
        uint32_t low = 0, high = s->k; // low fails or is 0, high is the answer at worst
        while (low < high) {
                uint32_t middle = low + (high - low) / 2;
                bool holds = true;
                choose_count(s, middle);
                for (uint32_t q = 0; q < s->n_queries && holds; q++) {
                        const float *scores = s->candidate_scores + (size_t)q * s->stride;
                        keep_only(s, scores, true, s->candidate_work);
                        float lse = cairn_lse_of_scores(s->kernels, s->candidate_work, s->stride);
                        holds = lse_all[q] == -INFINITY ||
                                cairn_exp_negative(lse - lse_all[q]) >= s->request->target ||
                                lse >= lse_all[q];
                }
                if (holds)
                        high = middle;
                else
                        low = middle + 1;
        }
        return high;
}

static void choose(struct cairn_landmark_selection *s, const float *lse_all)
{
        uint32_t k = s->k;
        if (s->request->budget == CAIRN_LANDMARK_THRESHOLD)
                k = cairn_min_u32(k, count_at_least(s, s->request->target));
        if (s->request->budget == CAIRN_LANDMARK_MASS)
                k = count_for_mass(s, lse_all);
        choose_count(s, k);
}

// ---- The answer ----

// Leaves the scores as the rest wants them: -inf for the chosen, re-rank scores for candidates that
// were not.
static void leave_rest(struct cairn_landmark_selection *s)
{
        uint32_t n = s->n_candidates;
        for (uint32_t q = 0; q < s->n_queries; q++) {
                const float *scores = s->candidate_scores + (size_t)q * s->stride;
                float *slots = s->scores + (size_t)q * s->score_stride;
                keep_only(s, scores, false, s->candidate_work);
                for (uint32_t i = 0; i < n; i++) {
                        uint32_t ahead = cairn_min_u32(i + 2 * PREFETCH_AHEAD, n - 1);
                        __builtin_prefetch(slots + s->candidates[ahead], 1);
                        slots[s->candidates[i]] = s->candidate_work[i];
                }
                s->lse_rest[q] =
                    cairn_lse_add(cairn_lse_of_scores(s->kernels, s->candidate_work, s->stride),
                                  s->lse_others[q]);
        }
}

static void write_result(struct cairn_landmark_selection *s, struct cairn_landmark_result *result)
{
        bool sum = s->request->rule == CAIRN_LANDMARK_GROUP_SUM;
        uint32_t n = 0, count = 0;
        for (uint32_t i = 0; i < s->n_candidates; i++)
                count -= (uint32_t)s->chosen[i];
        for (uint32_t i = 0; n < count; i++) { // no branch on what was chosen: it would mispredict
                uint32_t p = s->candidate_pieces[i];
                result->positions[n] =
                    s->request->pieces[p].position + s->candidates[i] - s->slot_base[p];
                result->scores[n] = cairn_order_value(s->candidate_keys[i]);
                n -= (uint32_t)s->chosen[i];
        }
        for (uint32_t i = 0; sum && i < n; i++)
                result->scores[i] = (float)cairn_log(result->scores[i]);
        struct cairn_bound bound;
        if (result->mass_error)
                cairn_bound_sample(s, &bound);
        for (uint32_t q = 0; q < s->n_queries; q++) {
                const float *scores = s->candidate_scores + (size_t)q * s->stride;
                keep_only(s, scores, true, s->candidate_work);
                result->lse_chosen[q] =
                    cairn_lse_of_scores(s->kernels, s->candidate_work, s->stride);
                if (result->mass_error)
                        result->mass_error[q] = cairn_bound_mass_error(
                            s, &bound, q, s->kernels->largest(s->candidate_work, s->stride),
                            result->lse_chosen[q], result->lse_all[q]);
        }
        result->n_chosen = n;
        result->n_eligible = s->n_eligible;
}

void cairn_landmark_select_finish(struct cairn_landmark_selection *s,
                                  struct cairn_landmark_result *ret_result)
{
        bool sum = s->request->rule == CAIRN_LANDMARK_GROUP_SUM;
        s->n_candidates = s->candidates_max;
        s->cutoff = cairn_topk(s->kernels, s->keys, s->n_slots, s->n_candidates, s->slots,
                               s->slot_keys, s->candidates);
        take_landmarks(s);
        locate(s);
        rerank(s);
        compare(s);
        weigh_others(s);
        for (uint32_t q = 0; q < s->n_queries; q++) {
                float lse =
                    cairn_lse_of_scores(s->kernels, s->candidate_scores + (size_t)q * s->stride,
                                        s->stride);
                ret_result->lse_all[q] = cairn_lse_add(lse, s->lse_others[q]);
                cairn_selection_set_lse(s, q, ret_result->lse_all[q]);
        }
        (sum ? s->kernels->rank_sum : s->kernels->rank_max)(
            s->candidate_scores, s->stride, s->n_queries, s->lse, s->stride, s->candidate_keys);
        choose(s, ret_result->lse_all);
        write_result(s, ret_result);
        if (!s->request->without_rest)
                leave_rest(s);
}
