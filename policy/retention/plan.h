// Plan: what a budget would keep of a head and the attention mass it would hold, without doing it.
// The budget here is protected tokens first, then the highest scores; the random part of a Retain
// holds more, by chance. (What a Retain with its seed would keep exactly: cairn_choose.)
//
// Pure; no allocation. Threads: any, with scratch and outputs of their own.
// May be used by: daemon, tests. May use: proto, policy/landmark.
#ifndef CAIRN_PLAN_H
#define CAIRN_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "policy/retention/choose.h"

enum {
        CAIRN_PLAN_POINTS = 64,
};

// One head. Points lie at shares that grow by equal factors from 1/1024 to 1 (cairn_plan_share);
// at point i the count is that share of n_tokens, rounded up, at least the protected tokens.
struct cairn_plan_head {
        uint32_t n_tokens;
        uint32_t present;
        uint32_t protected_tokens;
        uint32_t needed;    // the fewest tokens, protected ones included, that hold the target mass
        double mass_needed; // what they hold: >= target, or 1 when all are needed
        double mass_protected; // masses are shares of the head's whole, 0..1
        uint32_t kept[CAIRN_PLAN_POINTS];
        double mass[CAIRN_PLAN_POINTS];
};

double cairn_plan_share(uint32_t point);

// Scratch, aligned to 8: 8 bytes a token.
size_t cairn_plan_scratch_bytes(uint32_t n_tokens);
// `request`: tokens, scores, present, sinks, recent and ranges; its budgets are not used. A head
// whose scores are all 0 counts as one of equal scores. CAIRN_EINVAL: target not in 0..1, more
// tokens than a context may have.
int cairn_plan_head(const struct cairn_choose_request *request, double target_mass, void *scratch,
                    struct cairn_plan_head *ret_plan);

// Mass that the best `share` of a head's tokens holds; between points by a straight line, which
// lies below the true curve beyond the protected tokens: an estimate on the safe side.
double cairn_plan_mass(const struct cairn_plan_head *plan, double share);

// The smallest share that, kept of every head, holds `target_mass` on average over heads, with that
// average and the lowest of them. 1 when only all tokens do. n_plans >= 1.
struct cairn_plan_total {
        double share;
        double mass;
        double mass_lowest;
        uint32_t lowest; // index of the head that holds least
};
void cairn_plan_total(const struct cairn_plan_head *plans, uint32_t n_plans, double target_mass,
                      struct cairn_plan_total *ret_total);
// The same numbers at a given share.
void cairn_plan_total_at(const struct cairn_plan_head *plans, uint32_t n_plans, double share,
                         struct cairn_plan_total *ret_total);

#endif
