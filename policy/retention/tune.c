// Follows the share that contexts need for a target mass (tune.h).
#include "policy/retention/tune.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "proto/status.h"

static const char *const reason_names[CAIRN_TUNE_REASON_COUNT] = {
    "waiting", "first", "steady", "raised", "lowered", "at-lower-bound", "at-upper-bound"};

static void fill_defaults(const struct cairn_tune_options *options,
                          struct cairn_tune_options *ret_options)
{
        *ret_options = *options;
        if (ret_options->share_min == 0)
                ret_options->share_min = 0.02;
        if (ret_options->share_max == 0)
                ret_options->share_max = 0.5;
        if (ret_options->hysteresis == 0)
                ret_options->hysteresis = 0.15;
        if (ret_options->weight == 0)
                ret_options->weight = 0.2;
        if (ret_options->observations == 0)
                ret_options->observations = 3;
}

int cairn_tune_check(const struct cairn_tune_options *options)
{
        struct cairn_tune_options full;

        fill_defaults(options, &full);
        if (!(full.target_mass > 0 && full.target_mass < 1) ||
            !(full.share_min > 0 && full.share_min <= full.share_max && full.share_max <= 1) ||
            !(full.hysteresis > 0 && full.hysteresis <= 1) ||
            !(full.weight > 0 && full.weight <= 1))
                return CAIRN_EINVAL;
        return CAIRN_OK;
}

static double clamp(double value, double low, double high)
{
        return value < low ? low : value > high ? high : value;
}

static enum cairn_tune_reason decide(const struct cairn_tune *tune,
                                     const struct cairn_tune_options *options, double wanted)
{
        if (tune->seen < options->observations)
                return CAIRN_TUNE_WAITING;
        if (tune->share != 0 &&
            fabs(tune->average - tune->share) <= options->hysteresis * tune->share)
                return CAIRN_TUNE_STEADY;
        if (tune->average < options->share_min)
                return CAIRN_TUNE_BOUND_LOW;
        if (tune->average > options->share_max)
                return CAIRN_TUNE_BOUND_HIGH;
        if (tune->share == 0)
                return CAIRN_TUNE_FIRST;
        return wanted > tune->share ? CAIRN_TUNE_RAISED : CAIRN_TUNE_LOWERED;
}

void cairn_tune_observe(struct cairn_tune *tune, const struct cairn_tune_options *options,
                        double needed, struct cairn_tune_decision *ret_decision)
{
        struct cairn_tune_options full;
        double before = tune->share;
        double wanted;
        enum cairn_tune_reason reason;

        fill_defaults(options, &full);
        if (!isnan(needed)) {
                // A plain mean at first, then a moving one.
                double weight = fmax(full.weight, 1.0 / (double)(tune->seen + 1));

                needed = clamp(needed, 0, 1);
                tune->average += weight * (needed - tune->average);
                tune->seen++;
        }
        wanted = clamp(tune->average, full.share_min, full.share_max);
        reason = decide(tune, &full, wanted);
        if (reason != CAIRN_TUNE_WAITING && reason != CAIRN_TUNE_STEADY && wanted != before) {
                tune->share = wanted;
                tune->moves++;
        }
        *ret_decision = (struct cairn_tune_decision){.reason = reason,
                                                     .needed = needed,
                                                     .average = tune->average,
                                                     .share_before = before,
                                                     .share = tune->share,
                                                     .seen = tune->seen};
}

void cairn_tune_ratios(double share, const struct cairn_nacl_options *like,
                       struct cairn_nacl_options *ret_options)
{
        double all = like->proxy_keep + like->random_keep + like->protect;

        *ret_options = *like;
        if (all > 0) {
                ret_options->proxy_keep = share * like->proxy_keep / all;
                ret_options->random_keep = share * like->random_keep / all;
                ret_options->protect = share * like->protect / all;
        } else {
                ret_options->proxy_keep = share;
        }
}

const char *cairn_tune_reason_name(enum cairn_tune_reason reason)
{
        return (unsigned)reason < CAIRN_TUNE_REASON_COUNT ? reason_names[reason] : "unknown";
}

int cairn_tune_text(const struct cairn_tune_options *options,
                    const struct cairn_tune_decision *decision, char *ret_text, size_t size)
{
        struct cairn_tune_options full;

        fill_defaults(options, &full);
        return snprintf(ret_text, size,
                        "keeps %.4f of the tokens (before: %.4f): %s. For a mass of %.4f this "
                        "context needs %.4f, %llu contexts %.4f on average; bounds %.4f to %.4f, "
                        "moves of less than %.0f %% are not made",
                        decision->share, decision->share_before,
                        cairn_tune_reason_name(decision->reason), full.target_mass,
                        decision->needed, (unsigned long long)decision->seen, decision->average,
                        full.share_min, full.share_max, 100 * full.hysteresis);
}
