// Admission: which blocks are worth a write to NVMe. A TinyLFU filter (Einziger, Friedman, Manes,
// ACM TOS 2017): a count-min sketch of 4-bit counters behind a doorkeeper (a Bloom filter that
// takes the first use of every id), both aged by halving once a sample of uses has passed.
//
// Pure: no clock, no allocation. One thread at a time. May be used by: daemon, tests.
#ifndef CAIRN_TINYLFU_H
#define CAIRN_TINYLFU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        CAIRN_TINYLFU_ROWS = 4,
        CAIRN_TINYLFU_COUNT_MAX = 16, // 15 of the sketch and 1 of the doorkeeper
        CAIRN_TINYLFU_COUNTERS_MIN = 64,
        CAIRN_TINYLFU_COUNTERS_MAX = 1 << 28,
};

enum cairn_admission {
        CAIRN_ADMISSION_ALWAYS = 0,
        CAIRN_ADMISSION_TINYLFU = 1,
};

struct cairn_tinylfu_options {
        enum cairn_admission mode;
        // About the number of blocks that the tier holds; rounded up to a power of two, within the
        // bounds above. Memory: 10 bytes a counter.
        uint64_t counters;
        uint32_t uses_min;   // uses within the sample that admit a block; 0: 2
        uint32_t sample_per; // uses until all is halved, per counter; 0: 8
};

struct cairn_tinylfu {
        enum cairn_admission mode;
        uint32_t uses_min;
        uint64_t counters;   // of each row; a power of two
        uint64_t sample_max; // uses until all is halved
        uint64_t sample;
        uint64_t halvings;
        uint64_t admitted;
        uint64_t refused;
        uint64_t *sketch;     // [rows][counters / 16] words of 16 nibbles
        uint64_t *doorkeeper; // [counters] words: 8 bits for each use of a sample
};

size_t cairn_tinylfu_bytes(const struct cairn_tinylfu_options *options);
// `memory` of cairn_tinylfu_bytes, aligned to 8, the caller's until the last call.
void cairn_tinylfu_init(struct cairn_tinylfu *filter, const struct cairn_tinylfu_options *options,
                        void *memory);

// Counts a use of `id` (put, get or lookup; an evenly spread 64-bit name, e.g. of the key).
void cairn_tinylfu_use(struct cairn_tinylfu *filter, uint64_t id);
// Uses of `id` in the sample so far: never less than the true number since the last halving unless
// that exceeds COUNT_MAX, more when ids collide.
uint32_t cairn_tinylfu_estimate(const struct cairn_tinylfu *filter, uint64_t id);
// Whether `id` was used often enough to be written. Counts the decision.
bool cairn_tinylfu_admit(struct cairn_tinylfu *filter, uint64_t id);
// The same when room must be made: the candidate must have been used more than the victim.
bool cairn_tinylfu_admit_over(struct cairn_tinylfu *filter, uint64_t id, uint64_t victim);

#endif
