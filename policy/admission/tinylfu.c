// The sketch and the doorkeeper of tinylfu.h. Counters are raised conservatively: only the rows
// that hold the minimum, which lowers what collisions add.
#include "policy/admission/tinylfu.h"

#include <assert.h>
#include <string.h>

enum {
        DOORS = 3 // bits an id sets in the doorkeeper
};

static uint64_t mix(uint64_t x);
static uint32_t counter_of(const struct cairn_tinylfu *filter, uint32_t row, uint64_t index);
static bool doorkeeper_has(const struct cairn_tinylfu *filter, uint64_t hash);
static void halve(struct cairn_tinylfu *filter);

static uint64_t counters_for(const struct cairn_tinylfu_options *options)
{
        uint64_t counters = CAIRN_TINYLFU_COUNTERS_MIN;

        while (counters < options->counters && counters < CAIRN_TINYLFU_COUNTERS_MAX)
                counters *= 2;
        return counters;
}

static size_t sketch_words(uint64_t counters)
{
        return CAIRN_TINYLFU_ROWS * counters / 16;
}

size_t cairn_tinylfu_bytes(const struct cairn_tinylfu_options *options)
{
        uint64_t counters = counters_for(options);

        return (sketch_words(counters) + counters) * sizeof(uint64_t);
}

void cairn_tinylfu_init(struct cairn_tinylfu *filter, const struct cairn_tinylfu_options *options,
                        void *memory)
{
        uint64_t counters = counters_for(options);

        assert(options->mode == CAIRN_ADMISSION_ALWAYS || options->mode == CAIRN_ADMISSION_TINYLFU);
        *filter = (struct cairn_tinylfu){.mode = options->mode,
                                         .uses_min = options->uses_min ? options->uses_min : 2,
                                         .counters = counters,
                                         .sketch = memory};
        filter->sample_max = counters * (options->sample_per ? options->sample_per : 8);
        filter->doorkeeper = filter->sketch + sketch_words(counters);
        memset(memory, 0, cairn_tinylfu_bytes(options));
}

// Places of an id in row `row`: the two halves of one hash, combined (Kirsch and Mitzenmacher).
static uint64_t place(const struct cairn_tinylfu *filter, uint64_t hash, uint32_t row)
{
        uint64_t step = (hash >> 32) | 1;

        return mix(hash + row * step) & (filter->counters - 1);
}

// Bit `i` of the doorkeeper for an id.
static uint64_t door(const struct cairn_tinylfu *filter, uint64_t hash, uint32_t i)
{
        uint64_t step = (hash >> 32) | 1;

        return mix(hash + (CAIRN_TINYLFU_ROWS + i) * step) & (64 * filter->counters - 1);
}

static uint32_t sketch_minimum(const struct cairn_tinylfu *filter, uint64_t hash)
{
        uint32_t least = UINT32_MAX;

        for (uint32_t row = 0; row < CAIRN_TINYLFU_ROWS; row++) {
                uint32_t count = counter_of(filter, row, place(filter, hash, row));

                if (count < least)
                        least = count;
        }
        return least;
}

void cairn_tinylfu_use(struct cairn_tinylfu *filter, uint64_t id)
{
        uint64_t hash = mix(id);
        uint32_t least;

        if (!doorkeeper_has(filter, hash)) {
                for (uint32_t i = 0; i < DOORS; i++) {
                        uint64_t bit = door(filter, hash, i);

                        filter->doorkeeper[bit / 64] |= 1ull << bit % 64;
                }
        } else if ((least = sketch_minimum(filter, hash)) < 15) {
                for (uint32_t row = 0; row < CAIRN_TINYLFU_ROWS; row++) {
                        uint64_t index = place(filter, hash, row);

                        if (counter_of(filter, row, index) == least)
                                filter->sketch[(row * filter->counters + index) / 16] +=
                                    1ull << index % 16 * 4;
                }
        }
        if (++filter->sample >= filter->sample_max)
                halve(filter);
}

uint32_t cairn_tinylfu_estimate(const struct cairn_tinylfu *filter, uint64_t id)
{
        uint64_t hash = mix(id);

        return sketch_minimum(filter, hash) + (doorkeeper_has(filter, hash) ? 1 : 0);
}

bool cairn_tinylfu_admit(struct cairn_tinylfu *filter, uint64_t id)
{
        bool admit = filter->mode == CAIRN_ADMISSION_ALWAYS ||
                     cairn_tinylfu_estimate(filter, id) >= filter->uses_min;

        *(admit ? &filter->admitted : &filter->refused) += 1;
        return admit;
}

bool cairn_tinylfu_admit_over(struct cairn_tinylfu *filter, uint64_t id, uint64_t victim)
{
        bool admit = filter->mode == CAIRN_ADMISSION_ALWAYS ||
                     cairn_tinylfu_estimate(filter, id) > cairn_tinylfu_estimate(filter, victim);

        *(admit ? &filter->admitted : &filter->refused) += 1;
        return admit;
}

static uint64_t mix(uint64_t x)
{
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
}

static uint32_t counter_of(const struct cairn_tinylfu *filter, uint32_t row, uint64_t index)
{
        uint64_t word = filter->sketch[(row * filter->counters + index) / 16];

        return (uint32_t)(word >> index % 16 * 4) & 15;
}

static bool doorkeeper_has(const struct cairn_tinylfu *filter, uint64_t hash)
{
        for (uint32_t i = 0; i < DOORS; i++) {
                uint64_t bit = door(filter, hash, i);

                if (!(filter->doorkeeper[bit / 64] >> bit % 64 & 1))
                        return false;
        }
        return true;
}

static void halve(struct cairn_tinylfu *filter)
{
        size_t words = sketch_words(filter->counters);

        for (size_t i = 0; i < words; i++)
                filter->sketch[i] = filter->sketch[i] >> 1 & 0x7777777777777777ull;
        memset(filter->doorkeeper, 0, filter->counters * sizeof(uint64_t));
        filter->sample = 0;
        filter->halvings++;
}
