// Auto-tuning of retention: what spaces keep where the configuration names a target mass and a
// Retain no shares. Plans say what share would have held the target; policy/retention/tune.h
// follows them. In memory: a restart begins anew. May be used by: daemon. May use: policy. Threads:
// the loop's.
#ifndef CAIRN_TUNING_H
#define CAIRN_TUNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/retention/plan.h"
#include "policy/retention/tune.h"
#include "proto/limits.h"

struct cairn_server;
struct cairn_space_entry;

// One a space, by its index in the table.
struct cairn_tuning {
        struct cairn_tune state[CAIRN_SPACES_MAX];
        struct cairn_tune_decision last[CAIRN_SPACES_MAX];
};

// Targets of spaces in thousandths, by model: "Qwen2.5-Coder-0.5B=990, SmolLM2-135M=950". False:
// `model` is not among them. With model NULL: whether the text is a list of targets at all.
bool cairn_tuning_target(const char *text, const char *model, uint32_t *ret_permille);

// A Plan's heads: takes the share that they needed for the target. Logs a move.
void cairn_tuning_observe(struct cairn_server *server, const struct cairn_space_entry *entry,
                          const struct cairn_plan_head *plans, uint32_t heads);
// The ratios to use; false: none yet, or no target is set.
bool cairn_tuning_ratios(const struct cairn_server *server, const struct cairn_space_entry *entry,
                         struct cairn_nacl_options *ret_options);
// What was chosen and from what, for Why; false: nothing.
bool cairn_tuning_text(const struct cairn_server *server, const struct cairn_space_entry *entry,
                       char *ret_text, size_t size);

#endif
