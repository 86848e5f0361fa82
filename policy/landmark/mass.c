// Log-sum-exp: of scores, of runs, of two.
#include "policy/landmark/selection.h"

float cairn_lse_of_runs(const struct cairn_kernels *kernels, const float *run_max,
                        const float *run_sum, uint32_t n, float *work)
{
        float max = kernels->largest(run_max, n);
        if (max == -INFINITY)
                return -INFINITY;
        kernels->exp_weights(run_max, n, max, work);
        float total = kernels->dot(work, run_sum, n);
        return (float)((double)max + cairn_log(total));
}

float cairn_lse_of_scores(const struct cairn_kernels *kernels, const float *scores, uint32_t n)
{
        float max = kernels->largest(scores, n);
        if (max == -INFINITY)
                return -INFINITY;
        return (float)((double)max + cairn_log(kernels->exp_sum(scores, n, max)));
}

float cairn_lse_add(float a, float b)
{
        float high = a > b ? a : b, low = a > b ? b : a;
        if (low == -INFINITY)
                return high;
        return (float)((double)high + cairn_log(1.0 + cairn_exp_negative(low - high)));
}
