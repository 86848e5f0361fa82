// Synthetic contexts for benchmarks of the landmark kernels: Gaussian keys, values and queries,
// encoded, copied until they are well beyond the caches. Used by tests/bench/ alone.
#ifndef CAIRN_BENCH_KEYS_H
#define CAIRN_BENCH_KEYS_H

#include <stdint.h>

#include "policy/landmark/landmark.h"
#include "tests/bench/bench.h"

enum {
        CAIRN_BENCH_ROUNDS = 7
};

// Copies of one context, each with code runs of its own, so that going through them reads DRAM.
struct cairn_bench_keys {
        struct cairn_landmark_layout layout;
        uint32_t tokens;
        uint32_t blocks;
        uint32_t drawn; // blocks whose rows differ; longer contexts repeat them
        uint32_t contexts;
        uint32_t queries;
        uint32_t k;
        size_t run_bytes; // of one block's code run, padded to its alignment
        uint8_t *runs;    // [contexts][blocks]
        float *k_rows;    // one context's raw rows
        float *v_rows;
        float *query;
        struct cairn_landmark_piece *pieces; // [contexts][blocks]
};

// Shape and sizes from the flags of `scan`; as many contexts as least_bytes of resident codes need
// (one with --warm). -1 after saying what was wrong.
int cairn_bench_keys_init(struct cairn_bench_keys *s, int argc, char **argv, size_t least_bytes);
// Draws and encodes all rows and queries; the same at every run.
void cairn_bench_keys_fill(struct cairn_bench_keys *s);
void cairn_bench_keys_finish(struct cairn_bench_keys *s);

// What scan and select must have as scratch.
size_t cairn_bench_keys_scratch_bytes(const struct cairn_bench_keys *s);
struct cairn_landmark_request cairn_bench_keys_request(const struct cairn_bench_keys *s,
                                                       uint32_t context);
void cairn_bench_keys_params(const struct cairn_bench_keys *s, struct cairn_bench_report *report);

// Bytes of a code run that select (and, with values, the rest) reads.
size_t cairn_bench_keys_bytes(const struct cairn_bench_keys *s, bool values);
// Seconds of a plain read of the first `bytes` of each block of contexts [first, end).
double cairn_bench_keys_read_s(const struct cairn_bench_keys *s, size_t bytes, uint32_t first,
                               uint32_t end);
// 64-byte aligned; ends the program when there is none.
void *cairn_bench_allocate(size_t bytes);
// (0, 1), and of the same state normally distributed.
double cairn_bench_uniform(void);

#endif
