// The kept set of one head, and budgets spread over heads (choose.h). Selection is by a radix
// search for the threshold: linear, whatever the scores, and ties go to the lower position.
#include "policy/retention/choose.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/status.h"

static uint64_t mix(uint64_t x);
static void protect(const struct cairn_choose_request *request, uint64_t *kept);
static uint32_t take_best(uint64_t *keys, uint32_t n_tokens, uint32_t count, uint64_t *kept,
                          uint64_t *ret_lowest);
static uint32_t spread_candidates(const struct cairn_choose_request *head);
static void count_above(const struct cairn_choose_request *heads, uint32_t n_heads, uint64_t total,
                        uint32_t *ret_counts);

static bool bit(const uint64_t *bits, uint32_t at)
{
        return bits[at / 64] >> at % 64 & 1;
}

static bool is_present(const struct cairn_choose_request *request, uint32_t at)
{
        return !request->present || bit(request->present, at);
}

static float score_at(const struct cairn_choose_request *request, uint32_t at)
{
        return request->scores[at] > 0 ? request->scores[at] : 0; // NaN too
}

// Keys order as the numbers do; 0 is kept for tokens that are no candidates.
static uint64_t key_of_score(float score)
{
        uint32_t bits;

        memcpy(&bits, &score, sizeof(bits));
        return (uint64_t)bits + 1;
}

static uint64_t key_of_number(double number)
{
        uint64_t bits;

        memcpy(&bits, &number, sizeof(bits));
        return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// A standard Gumbel number for a token: -log(-log(u)), u in (0, 1).
static double gumbel(uint64_t seed, uint32_t at)
{
        uint64_t random = mix(seed + (at + 1ull) * 0x9e3779b97f4a7c15ull);
        double u = ((double)(random >> 12) + 0.5) * 0x1p-52;

        return -log(-log(u));
}

uint64_t cairn_choose_seed(uint64_t seed, uint32_t layer, uint32_t head)
{
        return mix(mix(seed + 0x9e3779b97f4a7c15ull) ^ ((uint64_t)layer << 32 | head));
}

size_t cairn_choose_words(uint32_t n_tokens)
{
        return ((size_t)n_tokens + 63) / 64;
}

size_t cairn_choose_scratch_bytes(uint32_t n_tokens)
{
        return (size_t)n_tokens * sizeof(uint64_t);
}

// Bits and mass of the kept set so far.
static uint32_t weigh_kept(const struct cairn_choose_request *request, const uint64_t *kept,
                           double *ret_mass)
{
        uint32_t count = 0;
        double mass = 0;

        for (uint32_t t = 0; t < request->n_tokens; t++) {
                if (bit(kept, t)) {
                        count++;
                        mass += (double)score_at(request, t);
                }
        }
        *ret_mass = mass;
        return count;
}

static void fill_top_keys(const struct cairn_choose_request *request, const uint64_t *kept,
                          uint64_t *keys)
{
        for (uint32_t t = 0; t < request->n_tokens; t++)
                keys[t] = is_present(request, t) && !bit(kept, t)
                              ? key_of_score(score_at(request, t))
                              : 0;
}

static void fill_random_keys(const struct cairn_choose_request *request, const uint64_t *kept,
                             uint64_t *keys)
{
        for (uint32_t t = 0; t < request->n_tokens; t++)
                keys[t] =
                    is_present(request, t) && !bit(kept, t)
                        ? key_of_number((double)score_at(request, t) + gumbel(request->seed, t))
                        : 0;
}

int cairn_choose(const struct cairn_choose_request *request, void *scratch, uint64_t *ret_kept,
                 struct cairn_choose_result *ret_result)
{
        struct cairn_choose_result result = {0};
        uint64_t *keys = scratch;
        uint64_t lowest = 0;

        if (request->n_tokens > CAIRN_CONTEXT_TOKENS_MAX)
                return CAIRN_EINVAL;
        for (uint32_t t = 0; t < request->n_tokens; t++) {
                if (is_present(request, t)) {
                        result.present++;
                        result.mass_all += (double)score_at(request, t);
                }
        }
        protect(request, ret_kept);
        result.protected_tokens = weigh_kept(request, ret_kept, &result.mass_protected);
        if (request->top > 0) {
                fill_top_keys(request, ret_kept, keys);
                result.top = take_best(keys, request->n_tokens, request->top, ret_kept, &lowest);
                if (result.top > 0) {
                        uint32_t bits = (uint32_t)(lowest - 1);

                        memcpy(&result.lowest_top, &bits, sizeof(bits));
                }
        }
        (void)weigh_kept(request, ret_kept, &result.mass_top); // the count is known
        result.mass_top -= result.mass_protected;
        if (request->random > 0) {
                fill_random_keys(request, ret_kept, keys);
                result.random =
                    take_best(keys, request->n_tokens, request->random, ret_kept, &lowest);
        }
        result.kept = weigh_kept(request, ret_kept, &result.mass_kept);
        assert(result.kept == result.protected_tokens + result.top + result.random);
        *ret_result = result;
        return CAIRN_OK;
}

uint32_t cairn_choose_positions(const uint64_t *kept, uint32_t n_tokens, uint32_t *ret_positions)
{
        uint32_t count = 0;

        for (size_t w = 0; w < cairn_choose_words(n_tokens); w++) {
                for (uint64_t word = kept[w]; word; word &= word - 1)
                        ret_positions[count++] =
                            (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(word);
        }
        return count;
}

// Hands `left` tokens out to heads with room, as evenly as can be.
static void hand_out(uint32_t *room, uint32_t n_heads, uint64_t left, uint32_t *tops)
{
        uint64_t open = 1;

        while (left > 0 && open > 0) {
                uint64_t each;

                open = 0;
                for (uint32_t h = 0; h < n_heads; h++)
                        open += room[h] > 0;
                each = open > 0 && left > open ? left / open : 1;
                for (uint32_t h = 0; h < n_heads && left > 0; h++) {
                        uint64_t more = room[h] < each ? room[h] : each;

                        more = more < left ? more : left;
                        tops[h] += (uint32_t)more;
                        room[h] -= (uint32_t)more;
                        left -= more;
                }
        }
}

int cairn_choose_spread(const struct cairn_choose_request *heads, uint32_t n_heads, uint32_t top,
                        double even, uint32_t *scratch, uint32_t *ret_top)
{
        uint64_t left = (uint64_t)n_heads * top;

        if (n_heads < 1 || n_heads > CAIRN_LAYERS_MAX * CAIRN_KV_HEADS_MAX ||
            !(even >= 0 && even <= 1))
                return CAIRN_EINVAL;
        count_above(heads, n_heads, left, ret_top);
        for (uint32_t h = 0; h < n_heads; h++) {
                uint32_t candidates = spread_candidates(&heads[h]);
                double share = even * (double)top + (1 - even) * (double)ret_top[h];

                ret_top[h] = share < (double)candidates ? (uint32_t)share : candidates;
                scratch[h] = candidates - ret_top[h];
                left -= ret_top[h];
        }
        hand_out(scratch, n_heads, left, ret_top); // what rounding and full heads left over
        return CAIRN_OK;
}

static uint64_t mix(uint64_t x)
{
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
}

static void protect_range(const struct cairn_choose_request *request, uint32_t first, uint32_t end,
                          uint64_t *kept)
{
        for (uint32_t t = first; t < end && t < request->n_tokens; t++) {
                if (is_present(request, t))
                        kept[t / 64] |= 1ull << t % 64;
        }
}

static void protect(const struct cairn_choose_request *request, uint64_t *kept)
{
        uint32_t n = request->n_tokens;

        memset(kept, 0, cairn_choose_words(n) * sizeof(*kept));
        protect_range(request, 0, request->sinks, kept);
        protect_range(request, request->recent < n ? n - request->recent : 0, n, kept);
        for (uint32_t r = 0; r < request->n_ranges; r++)
                protect_range(request, request->ranges[r].first, request->ranges[r].end, kept);
}

// The `rank`-th greatest key (1 = the greatest) by its bytes from the highest. ret_above: how many
// are greater.
static uint64_t find_rank(const uint64_t *keys, uint32_t n_tokens, uint32_t rank,
                          uint32_t *ret_above)
{
        uint64_t prefix = 0;
        uint64_t mask = 0;
        uint32_t above = 0;

        for (int shift = 56; shift >= 0; shift -= 8) {
                uint32_t counts[256] = {0};
                int byte = 255;

                for (uint32_t t = 0; t < n_tokens; t++) {
                        if (keys[t] != 0 && (keys[t] & mask) == prefix)
                                counts[keys[t] >> shift & 255]++;
                }
                while (above + counts[byte] < rank)
                        above += counts[byte--];
                assert(byte >= 0);
                prefix |= (uint64_t)byte << shift;
                mask |= 255ull << shift;
        }
        *ret_above = above;
        return prefix;
}

// Adds the `count` greatest keys to the kept set (all, if there are fewer). Returns how many.
static uint32_t take_best(uint64_t *keys, uint32_t n_tokens, uint32_t count, uint64_t *kept,
                          uint64_t *ret_lowest)
{
        uint32_t candidates = 0;
        uint32_t above;
        uint32_t ties;

        for (uint32_t t = 0; t < n_tokens; t++)
                candidates += keys[t] != 0;
        if (count > candidates)
                count = candidates;
        if (count == 0)
                return 0;
        *ret_lowest = find_rank(keys, n_tokens, count, &above);
        ties = count - above;
        for (uint32_t t = 0; t < n_tokens; t++) {
                if (keys[t] < *ret_lowest || (keys[t] == *ret_lowest && ties == 0))
                        continue;
                ties -= keys[t] == *ret_lowest;
                kept[t / 64] |= 1ull << t % 64;
        }
        return count;
}

static bool is_spread_candidate(const struct cairn_choose_request *head, uint32_t at)
{
        if (at < head->sinks || at + (uint64_t)head->recent >= head->n_tokens)
                return false;
        for (uint32_t r = 0; r < head->n_ranges; r++) {
                if (at >= head->ranges[r].first && at < head->ranges[r].end)
                        return false;
        }
        return is_present(head, at);
}

static uint32_t spread_candidates(const struct cairn_choose_request *head)
{
        uint32_t count = 0;

        for (uint32_t t = 0; t < head->n_tokens; t++)
                count += is_spread_candidate(head, t);
        return count;
}

// How many of the `total` best scores of all heads each head has; ties go to the earlier head.
static void count_above(const struct cairn_choose_request *heads, uint32_t n_heads, uint64_t total,
                        uint32_t *ret_counts)
{
        uint64_t prefix = 0;
        uint64_t mask = 0;
        uint64_t above = 0;
        uint64_t ties;

        for (int shift = 32; shift >= 0; shift -= 8) { // a score's key has 33 bits
                uint64_t counts[256] = {0};
                int byte = 255;

                for (uint32_t h = 0; h < n_heads; h++) {
                        for (uint32_t t = 0; t < heads[h].n_tokens; t++) {
                                uint64_t key = key_of_score(score_at(&heads[h], t));

                                if ((key & mask) == prefix && is_spread_candidate(&heads[h], t))
                                        counts[key >> shift & 255]++;
                        }
                }
                while (byte > 0 && above + counts[byte] < total)
                        above += counts[byte--];
                prefix |= (uint64_t)byte << shift;
                mask |= 255ull << shift;
        }
        ties = total - above;
        for (uint32_t h = 0; h < n_heads; h++) {
                ret_counts[h] = 0;
                for (uint32_t t = 0; t < heads[h].n_tokens; t++) {
                        uint64_t key = key_of_score(score_at(&heads[h], t));

                        if (key < prefix || !is_spread_candidate(&heads[h], t))
                                continue;
                        if (key == prefix && ties == 0)
                                continue;
                        ties -= key == prefix;
                        ret_counts[h]++;
                }
        }
}
