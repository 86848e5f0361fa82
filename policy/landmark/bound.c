// The error bar of the mass that a selection holds. README.md says how it was measured.
#include "policy/landmark/selection.h"

enum {
        SAMPLES = 64,
};

// Shares of the noise that stay in a sum of many terms: of what differs from token to token, for
// the largest term alone; of what tokens have in common, of the squared noise. And of a chunk's,
// whose score is a mean or a bound of its tokens'.
static const double noise_alone = 0.6;
static const double noise_together = 0.15;
static const double noise_together_chunk = 1;
// Variance of rounding to whole units.
static const double rounding = 1.0 / 12;

// Mean square units of a coded K row's elements.
static double row_unit2(const struct cairn_landmark_layout *l, const uint8_t *code_run,
                        uint32_t token)
{
        const uint8_t *row = code_run + l->k_rows + (size_t)token * l->k_row_bytes;
        uint32_t groups = l->k_row_bytes / CAIRN_Q4_GROUP_BYTES;
        double sum = 0;
        if (l->shape.k_codec == CAIRN_ROW_Q8) {
                float unit;
                memcpy(&unit, code_run + l->k_row_scales + (size_t)token * 4, sizeof unit);
                return (double)unit * unit;
        }
        for (uint32_t g = 0; g < groups; g++) {
                uint16_t half;
                memcpy(&half, row + (size_t)g * CAIRN_Q4_GROUP_BYTES, sizeof half);
                double unit = cairn_half_to_float(half);
                sum += unit * unit;
        }
        return groups ? sum / groups : 0;
}

void cairn_bound_sample(const struct cairn_landmark_selection *s, struct cairn_bound *ret_bound)
{
        const struct cairn_landmark_layout *l = s->layout;
        uint32_t step = s->n_candidates / SAMPLES + 1, n = 0;
        double rows = 0, codes = 0;
        for (uint32_t i = 0; i < s->n_candidates; i += step, n++) {
                uint32_t p = s->candidate_pieces[i];
                uint32_t token = s->candidates[i] - s->slot_base[p];
                const uint8_t *code_run = s->request->pieces[p].code_run;
                double unit2 = 0, scale = 0;
                if (!cairn_piece_is_raw(&s->request->pieces[p], l->shape.k_codec))
                        unit2 = row_unit2(l, code_run, token);
                if (code_run && s->query.subs) {
                        uint16_t half;
                        memcpy(&half, code_run + l->scales + (size_t)token * 2, sizeof half);
                        scale = cairn_half_to_float(half);
                }
                rows += unit2 <= FLT_MAX ? unit2 : 0;
                codes += scale <= FLT_MAX ? scale * scale : 0;
        }
        *ret_bound =
            (struct cairn_bound){.row_unit2 = n ? rows / n : 0, .code_scale2 = n ? codes / n : 0};
}

// Variance of the error of log R.
static double others_variance(const struct cairn_landmark_selection *s,
                              const struct cairn_bound *bound, uint32_t q, double row_noise)
{
        double together =
            s->request->kind == CAIRN_LANDMARK_TOKENS ? noise_together : noise_together_chunk;
        double v = (double)s->noise[q] / s->n_candidates, table = 0;
        float rank = cairn_order_value(s->cutoff); // no other token has a larger one
        if (s->request->rule == CAIRN_LANDMARK_GROUP_SUM)
                rank = (float)cairn_log(rank);
        float gap = rank + s->lse_rank[q] - s->lse_others[q];
        double largest = gap < 0 ? cairn_exp_negative(gap) : 1;
        v = v > row_noise ? v : row_noise;
        if (s->query.subs)
                table = (double)s->query.table_units[q] * s->query.table_units[q] *
                        bound->code_scale2 * s->query.subs * rounding;
        return noise_alone * v * largest + together * v * (together * v) + table;
}

float cairn_bound_mass_error(const struct cairn_landmark_selection *s,
                             const struct cairn_bound *bound, uint32_t q, float largest_chosen,
                             float lse_chosen, float lse_all)
{
        const float *row = s->query.rows + (size_t)q * s->query.padded;
        if (lse_all == -INFINITY || lse_chosen == -INFINITY || s->n_candidates == 0)
                return 0;
        double row_noise = s->kernels->dot(row, row, s->query.padded) * bound->row_unit2 * rounding;
        double mass = lse_chosen < lse_all ? cairn_exp_negative(lse_chosen - lse_all) : 1;
        double others = 0, bar = 0;
        if (s->lse_others[q] > -INFINITY)
                others =
                    s->lse_others[q] < lse_all ? cairn_exp_negative(s->lse_others[q] - lse_all) : 1;
        if (others > 0) {
                double known = 1 - others > mass ? 1 - others : mass;
                double error = sqrt(others_variance(s, bound, q, row_noise));
                double change = cairn_exp_negative((float)(-2 * error));
                double most = mass / (known + others * change);
                double least = mass * change / (known * change + others);
                double up = (most - mass) / 2, all = (most - least) / 4;
                if (s->request->kind != CAIRN_LANDMARK_TOKENS)
                        all = (mass - least) / 2; // chunks may hide much more than they show
                bar = up > all ? up : all;
        }
        double weight =
            cairn_exp_negative(largest_chosen < lse_chosen ? largest_chosen - lse_chosen : 0);
        double rows = mass * (1 - mass);
        return (float)sqrt(bar * bar + rows * rows * row_noise * weight);
}
