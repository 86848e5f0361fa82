// Exact top-k of integer keys in linear time: a guess from a sample, candidates by a kernel, then
// radix selection.
#include <assert.h>

#include "policy/landmark/selection.h"

enum {
        DIGIT_BITS = 11,
        DIGITS = 1 << DIGIT_BITS,
        SAMPLE_MAX = 1024,
        SAMPLE_WORTH = 4096
};

// Order-preserving unsigned form, so that digits compare from the top.
static uint32_t unsigned_key(int32_t key)
{
        return (uint32_t)key ^ 0x80000000u;
}

int32_t cairn_kth_largest(int32_t *keys, uint32_t n, uint32_t k)
{
        uint32_t counts[DIGITS], prefix = 0, shift = 32;
        assert(k >= 1 && k <= n);
        while (shift > 0) {
                uint32_t bits = shift >= DIGIT_BITS ? DIGIT_BITS : shift, digit, kept = 0;
                shift -= bits;
                memset(counts, 0, sizeof counts);
                for (uint32_t i = 0; i < n; i++)
                        counts[(unsigned_key(keys[i]) >> shift) & ((1u << bits) - 1)]++;
                for (digit = (1u << bits) - 1; counts[digit] < k; digit--)
                        k -= counts[digit];
                prefix = prefix << bits | digit;
                for (uint32_t i = 0; i < n; i++) {
                        keys[kept] = keys[i];
                        kept += ((unsigned_key(keys[i]) >> shift) & ((1u << bits) - 1)) == digit;
                }
                n = kept;
        }
        return (int32_t)(prefix ^ 0x80000000u);
}

// A key that about 1.2 k of the n keys reach, from an even sample; `slack` widens it.
static int32_t guess_threshold(const int32_t *keys, uint32_t n, uint32_t k, double slack,
                               int32_t *work)
{
        uint32_t step = n / SAMPLE_MAX + 1, sampled = 0;
        for (uint32_t i = step / 2; i < n; i += step)
                work[sampled++] = keys[i];
        double expected = (double)k * sampled / n;
        double rank = expected + slack * (2 + 2.5 * sqrt(expected));
        if (rank >= sampled)
                return CAIRN_KEY_NEVER + 1;
        int32_t threshold = cairn_kth_largest(work, sampled, (uint32_t)rank + 1);
        return threshold > CAIRN_KEY_NEVER ? threshold : CAIRN_KEY_NEVER + 1;
}

void cairn_topk(const struct cairn_kernels *kernels, const int32_t *keys, uint32_t n, uint32_t k,
                uint32_t *slots, int32_t *work, uint32_t *ret_slots)
{
        uint32_t count = 0;
        if (k == 0)
                return;
        for (double slack = 1; count < k; slack *= 4) {
                int32_t threshold = n >= SAMPLE_WORTH && slack < 100
                                        ? guess_threshold(keys, n, k, slack, work)
                                        : CAIRN_KEY_NEVER + 1;
                count = kernels->collect(keys, n, threshold, 0, slots);
                assert(count >= k || threshold > CAIRN_KEY_NEVER + 1);
        }
        for (uint32_t i = 0; i < count; i++)
                work[i] = keys[slots[i]];
        int32_t last = cairn_kth_largest(work, count, k);
        uint32_t above = 0, taken = 0;
        for (uint32_t i = 0; i < count; i++)
                above += keys[slots[i]] > last;
        uint32_t ties = k - above;
        for (uint32_t i = 0; i < count; i++) {
                int32_t key = keys[slots[i]];
                if (key < last || (key == last && ties == 0))
                        continue;
                ties -= key == last;
                ret_slots[taken++] = slots[i];
        }
        assert(taken == k);
}
