// One pass of a kernel over contexts of synthetic keys, by one thread or several. Used by
// tests/bench/ alone.
#ifndef CAIRN_BENCH_PASSES_H
#define CAIRN_BENCH_PASSES_H

#include "tests/bench/keys.h"

enum {
        CAIRN_BENCH_THREADS_MAX = 64
};

// What one thread does: contexts [first, end), with a scratch of its own.
struct cairn_bench_pass {
        const struct cairn_bench_keys *keys;
        uint32_t first;
        uint32_t end;
        size_t bytes; // of a block: read alone
        void *scratch;
        uint32_t *chosen; // [k], or NULL: where select leaves the last context's positions
        uint32_t n_chosen;
};
typedef void (*cairn_bench_pass_fn)(struct cairn_bench_pass *pass);

void cairn_bench_pass_read(struct cairn_bench_pass *pass);
void cairn_bench_pass_scan(struct cairn_bench_pass *pass);
void cairn_bench_pass_select(struct cairn_bench_pass *pass);
void cairn_bench_pass_rest(struct cairn_bench_pass *pass);

// Seconds of a pass over all contexts of `s`, shared evenly among `threads`. Scratch is allocated
// and touched before the clock starts.
double cairn_bench_pass_run(const struct cairn_bench_keys *s, cairn_bench_pass_fn fn, size_t bytes,
                            uint32_t threads);
// The positions that one select chooses in the first context; returns how many (at most s->k).
uint32_t cairn_bench_pass_choose(const struct cairn_bench_keys *s, uint32_t *ret_positions);

#endif
