// Which tokens stay hot: the second half of NACL (arXiv 2408.03675). Of one head, by its scores:
//
//   protected   sinks, the most recent, and ranges that the caller names: always
//   top         the highest scores of the others
//   random      sampled without replacement from what is left, chances by softmax of the score:
//               Gumbel top-k (Kool et al., ICML 2019), one number a token from seed and position,
//               so that the same seed keeps the same tokens on every machine and in any order
//
// Also: how a budget is spread over heads by where the mass lies.
// Pure; no allocation. Threads: any, with scratch and outputs of their own.
// May be used by: daemon, tests. May use: proto, policy/landmark.
#ifndef CAIRN_CHOOSE_H
#define CAIRN_CHOOSE_H

#include <stddef.h>
#include <stdint.h>

#include "policy/landmark/landmark.h"

struct cairn_choose_request {
        uint32_t n_tokens;
        const float *scores;     // [n_tokens] of nacl.h: >= 0; NaN counts as 0
        const uint64_t *present; // bit a token: 0 = dropped before, never kept. NULL: all are
        uint32_t sinks;
        uint32_t recent;
        uint32_t top;
        uint32_t random;
        const struct cairn_landmark_range *ranges; // protected too; any order, cut to n_tokens
        uint32_t n_ranges;
        uint64_t seed; // of this head: cairn_choose_seed
};

struct cairn_choose_result {
        uint32_t kept; // protected + top + random, at most what is present
        uint32_t protected_tokens;
        uint32_t top;
        uint32_t random;
        uint32_t present;
        float lowest_top; // the score below which only chance keeps a token; 0 without top
        double mass_all;  // sum of all scores: proxies * group
        double mass_kept;
        double mass_protected;
        double mass_top;
};

uint64_t cairn_choose_seed(uint64_t seed, uint32_t layer, uint32_t head);
// Words of a bitmap of n tokens.
size_t cairn_choose_words(uint32_t n_tokens);
// Scratch, aligned to 8: 8 bytes a token.
size_t cairn_choose_scratch_bytes(uint32_t n_tokens);
// Writes the bitmap of what stays (bit t % 64 of word t / 64; bits beyond n_tokens are 0).
// CAIRN_EINVAL: more tokens than a context may have.
int cairn_choose(const struct cairn_choose_request *request, void *scratch, uint64_t *ret_kept,
                 struct cairn_choose_result *ret_result);
// Ascending positions of a bitmap's bits. Returns their number.
uint32_t cairn_choose_positions(const uint64_t *kept, uint32_t n_tokens, uint32_t *ret_positions);

// Spreads `top` tokens a head over heads (of a layer, or of all layers): those that need more of
// them get more. The best n_heads * top scores of all heads together are counted a head; `even`
// (0..1) of each head's share is left as it was. Heads' own `top` is ignored. `scratch` and ret_top
// are [n_heads]; ret_top sums to n_heads * top, or to what heads hold if that is less. Heads are of
// equal mass when no query was left out. CAIRN_EINVAL: no heads, too many, or `even` out of range.
int cairn_choose_spread(const struct cairn_choose_request *heads, uint32_t n_heads, uint32_t top,
                        double even, uint32_t *scratch, uint32_t *ret_top);

#endif
