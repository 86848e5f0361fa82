// Traces of block uses, and what a policy makes of them: the simulator behind `cairn-bench trace`.
// Everything is replayable: a trace is made from a seed or read from a file (format: TRACE.md).
// Used by tests/bench/ alone.
#ifndef CAIRN_BENCH_TRACE_H
#define CAIRN_BENCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/eviction.h"

enum {
        CAIRN_TRACE_USES_MAX = 1 << 27,
        CAIRN_TRACE_NONE = UINT32_MAX
};

struct cairn_trace_block {
        uint64_t id;
        uint64_t size_bytes;
        uint64_t recompute_us;
        uint32_t parent; // index, or CAIRN_TRACE_NONE
};

struct cairn_trace_use {
        uint64_t time_ms;
        uint32_t block;
        uint32_t next; // index of the block's next use, or CAIRN_TRACE_NONE
};

struct cairn_trace {
        struct cairn_trace_block *blocks;
        struct cairn_trace_use *uses;
        uint32_t n_blocks;
        uint32_t n_uses;
        uint32_t blocks_max;
        uint32_t uses_max;
        uint64_t footprint_bytes; // of all blocks
};

void cairn_trace_init(struct cairn_trace *trace);
void cairn_trace_finish(struct cairn_trace *trace);
// Returns the block's index. Aborts when memory runs out: a benchmark has nobody to tell.
uint32_t cairn_trace_add_block(struct cairn_trace *trace, uint64_t id, uint64_t size_bytes,
                               uint64_t recompute_us, uint32_t parent);
void cairn_trace_add_use(struct cairn_trace *trace, uint64_t time_ms, uint32_t block);
// Once all uses are there: links each to the next of its block, sums the footprint.
void cairn_trace_seal(struct cairn_trace *trace);

// zipf, scan, chat or shared; about n_uses uses. -1: unknown name.
int cairn_trace_make(struct cairn_trace *trace, const char *name, uint64_t seed, uint32_t n_uses);
// -1 after printing file, line and what is wrong to stderr.
int cairn_trace_read(struct cairn_trace *trace, const char *path);
int cairn_trace_save(const struct cairn_trace *trace, const char *path);

struct cairn_trace_result {
        uint64_t used_bytes;
        uint64_t hit_bytes;
        uint64_t used_us;
        uint64_t hit_us;
        uint64_t hits;
        uint64_t evictions;
        uint64_t bypassed; // not inserted: too large, all blocked, parent absent, or by choice
        uint64_t admitted_bytes;  // written into the tier
        uint64_t unreachable;     // resident, but an ancestor was not: no hit
        uint64_t blocked_evicted; // must be 0: victims with a child, in leaf-first runs
};

struct cairn_trace_options {
        const struct cairn_eviction_ops *policy; // NULL: Belady's
        uint64_t capacity_bytes;
        bool any_order;  // not leaf-first
        bool second_use; // admission by TinyLFU
};
// Runs a sealed trace from an empty tier.
void cairn_trace_run(const struct cairn_trace *trace, const struct cairn_trace_options *options,
                     struct cairn_trace_result *ret_result);

#endif
