// Auto-tuning: the share of tokens that a space's contexts keep, from a target mass instead of
// ratios. Every context's plan says what share it would have needed; the tuner follows their moving
// average within bounds, and moves only when the change is worth it, so that budgets do not
// flutter. It says what it did and from which numbers (for Why).
//
// Pure: the state is the caller's, to be stored with the space. One thread at a time.
// May be used by: daemon, tests. May use: nothing.
#ifndef CAIRN_TUNE_H
#define CAIRN_TUNE_H

#include <stddef.h>
#include <stdint.h>

#include "policy/retention/nacl.h"

struct cairn_tune_options {
        double target_mass;    // in (0, 1)
        double share_min;      // bounds of the share kept; 0: the default, 0.02
        double share_max;      // 0: the default, 0.5
        double hysteresis;     // relative change that is worth a move; 0: the default, 0.15
        double weight;         // of the newest observation in the average; 0: the default, 0.2
        uint32_t observations; // before the first move away from the start; 0: the default, 3
};

// All zero at first. `share` is what to use now; 0: nothing seen yet, use the paper's ratios.
struct cairn_tune {
        double share;
        double average; // of the shares needed
        uint64_t seen;
        uint64_t moves;
};

enum cairn_tune_reason {
        CAIRN_TUNE_WAITING = 0, // too few observations
        CAIRN_TUNE_FIRST = 1,
        CAIRN_TUNE_STEADY = 2, // within the hysteresis
        CAIRN_TUNE_RAISED = 3,
        CAIRN_TUNE_LOWERED = 4,
        CAIRN_TUNE_BOUND_LOW = 5, // the average lies below share_min
        CAIRN_TUNE_BOUND_HIGH = 6,
        CAIRN_TUNE_REASON_COUNT = 7,
};

// The numbers behind a decision.
struct cairn_tune_decision {
        enum cairn_tune_reason reason;
        double needed; // by this context
        double average;
        double share_before;
        double share;
        uint64_t seen;
};

// CAIRN_EINVAL: target, bounds, hysteresis or weight out of range.
int cairn_tune_check(const struct cairn_tune_options *options);
// `needed`: the smallest share that would have held the target (cairn_plan_total); cut to 0..1, NaN
// is ignored.
void cairn_tune_observe(struct cairn_tune *tune, const struct cairn_tune_options *options,
                        double needed, struct cairn_tune_decision *ret_decision);
// Ratios that keep `share` in all, split between score, chance and protection as in `like`.
void cairn_tune_ratios(double share, const struct cairn_nacl_options *like,
                       struct cairn_nacl_options *ret_options);
const char *cairn_tune_reason_name(enum cairn_tune_reason reason);
// One sentence for Why. Returns its length, as snprintf does.
int cairn_tune_text(const struct cairn_tune_options *options,
                    const struct cairn_tune_decision *decision, char *ret_text, size_t size);

#endif
