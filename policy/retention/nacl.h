// Scores of tokens by the attention of proxy tokens: the first half of NACL (Chen et al., ACL 2024,
// arXiv 2408.03675). One KV head at a time:
//
//   score[t] = sum over proxies and query heads of the group of softmax over tokens(scale * q.k)[t]
//
// so the scores of a head sum to proxies * group (less those that see nothing). As in the paper's
// code, a proxy sees every stored token; `causal` limits proxies that are stored tokens themselves
// to what lies before them, and to themselves. Which tokens stay by these scores: choose.h.
//
// Numbers that are no numbers: a token whose product with a query is not finite is left out of that
// query's softmax (probability 0); a query that has no finite product is left out. Products and
// exponentials are those of the landmark kernels, in f32 and the same on every instruction set
// (relative error of a weight: 1e-5); sums over tokens and queries are in f64.
//
// Pure: no I/O, no clock, no allocation. Threads: the passes below, each span by any one thread.
// May be used by: daemon, tests. May use: proto, policy/landmark.
#ifndef CAIRN_NACL_H
#define CAIRN_NACL_H

#include <stddef.h>
#include <stdint.h>

enum {
        CAIRN_NACL_SPAN_TOKENS = 16384, // what one thread scores in one call
        CAIRN_NACL_TILE_TOKENS = 32,    // what `read` is asked for at most
        CAIRN_NACL_PROXIES_MAX = 65536,
        CAIRN_NACL_SINKS = 4, // the default
};

// Shares of the tokens. Defaults as in the paper's code: 1 %, 12 %, 7 %, 1 %.
struct cairn_nacl_options {
        double proxy_ratio; // the last tokens, whose queries are sent
        double proxy_keep;  // kept by score
        double random_keep; // sampled from the rest
        double protect;     // sinks and the most recent, together
        uint32_t sinks;     // first tokens, out of `protect`
};

struct cairn_nacl_counts {
        uint32_t proxies; // at least 1
        uint32_t sinks;
        uint32_t recent;
        uint32_t top;
        uint32_t random;
};

void cairn_nacl_defaults(struct cairn_nacl_options *ret_options);
// CAIRN_EINVAL: a share that is not in 0..1, or more kept than there is.
int cairn_nacl_check(const struct cairn_nacl_options *options);
// Shares are rounded down, as in the paper's code.
void cairn_nacl_counts(const struct cairn_nacl_options *options, uint32_t n_tokens,
                       struct cairn_nacl_counts *ret_counts);

// Where keys come from. `read` writes rows [first, first + count) as f32 [count][k_dim], count <=
// CAIRN_NACL_TILE_TOKENS; may be called by several threads at once; its error ends the pass. Rows
// that are not present may be anything.
struct cairn_nacl_keys {
        int (*read)(void *arg, uint32_t first, uint32_t count, float *ret_rows);
        void *arg;
        uint32_t n_tokens;
        uint32_t k_dim;
};

struct cairn_nacl_request {
        struct cairn_nacl_keys keys;
        const float *queries; // [n_proxies][group][k_dim]
        uint32_t n_proxies;
        uint32_t group;          // query heads of this KV head
        float scale;             // usually 1/sqrt(head dim)
        const uint32_t *causal;  // [n_proxies] tokens seen: the proxy's position + 1. NULL: all
        const uint64_t *present; // bit a token: 0 = dropped before, never scored. NULL: all are
};

// What one span adds to a query's softmax: the greatest product and the sum of exp(product - it).
struct cairn_nacl_partial {
        double greatest; // -inf: nothing seen
        double sum;
};

// All on this thread; memory of cairn_nacl_scores_bytes, aligned to 64. Writes all n_tokens scores.
// CAIRN_EINVAL: a field out of range; or what `read` returned.
size_t cairn_nacl_scores_bytes(const struct cairn_nacl_request *request);
int cairn_nacl_scores(const struct cairn_nacl_request *request, void *memory, float *ret_scores);

// The same in passes; the answer does not depend on which thread does what.
//   weigh    every span, any threads; scratch of its own a thread; partials shared,
//   [spans][queries] merge    one thread, when all spans are weighed: log-sum-exps [queries] score
//   every span, any threads: writes that span's part of the scores
uint32_t cairn_nacl_spans(const struct cairn_nacl_request *request);
size_t cairn_nacl_partials_bytes(const struct cairn_nacl_request *request);
size_t cairn_nacl_scratch_bytes(const struct cairn_nacl_request *request);
int cairn_nacl_weigh(const struct cairn_nacl_request *request, uint32_t span, void *scratch,
                     struct cairn_nacl_partial *partials);
void cairn_nacl_merge(const struct cairn_nacl_request *request,
                      const struct cairn_nacl_partial *partials, double *ret_lse);
int cairn_nacl_score(const struct cairn_nacl_request *request, uint32_t span, const double *lse,
                     void *scratch, float *ret_scores);

#endif
