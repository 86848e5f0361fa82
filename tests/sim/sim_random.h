// Random numbers of a simulation: one stream, from a seed, so that a run can be replayed.
#ifndef CAIRN_SIM_RANDOM_H
#define CAIRN_SIM_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct sim_random {
        uint64_t state;
};

static inline uint64_t sim_next(struct sim_random *random)
{
        uint64_t z = (random->state += 0x9e3779b97f4a7c15ull);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
}
// Below n.
static inline uint64_t sim_below(struct sim_random *random, uint64_t n)
{
        return sim_next(random) % n;
}
// True in `share` of a million.
static inline bool sim_chance(struct sim_random *random, uint32_t share)
{
        return share > 0 && sim_below(random, 1000000) < share;
}

#endif
