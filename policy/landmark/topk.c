// Exact top-k of integer keys in linear time: a guess from a sample, candidates by a kernel, then
// selection by buckets.
#include <assert.h>

#include "policy/landmark/selection.h"

enum {
        BUCKETS = 1024,
        SAMPLE_MAX = 1024,
        SAMPLE_WORTH = 4096
};

int32_t cairn_kth_largest(int32_t *keys, uint32_t n, uint32_t k)
{
        uint32_t counts[BUCKETS];
        assert(k >= 1 && k <= n);
        for (;;) { // the range of the keys shrinks to a bucket of itself
                int32_t low = keys[0], high = keys[0];
                for (uint32_t i = 1; i < n; i++) {
                        low = keys[i] < low ? keys[i] : low;
                        high = keys[i] > high ? keys[i] : high;
                }
                uint32_t range = (uint32_t)high - (uint32_t)low, shift = 0, kept = 0;
                if (range == 0)
                        return low;
                while (range >> shift >= BUCKETS)
                        shift++;
                uint32_t bucket = range >> shift;
                memset(counts, 0, (bucket + 1) * sizeof(uint32_t));
                for (uint32_t i = 0; i < n; i++)
                        counts[((uint32_t)keys[i] - (uint32_t)low) >> shift]++;
                for (; counts[bucket] < k; bucket--)
                        k -= counts[bucket];
                if (shift == 0)
                        return (int32_t)((uint32_t)low + bucket);
                for (uint32_t i = 0; i < n; i++) {
                        keys[kept] = keys[i];
                        kept += ((uint32_t)keys[i] - (uint32_t)low) >> shift == bucket;
                }
                n = kept;
        }
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

int32_t cairn_topk(const struct cairn_kernels *kernels, const int32_t *keys, uint32_t n, uint32_t k,
                   uint32_t *slots, int32_t *work, uint32_t *ret_slots)
{
        uint32_t count = 0;
        if (k == 0)
                return INT32_MAX;
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
        return last;
}
