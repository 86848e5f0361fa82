// Signed Walsh-Hadamard rotations of any dim that is a multiple of 8.
//
// A dim that is no power of two is rotated twice, by the largest power of two that fits: once its
// head, once its tail with other signs. The two overlap, so that energy spreads over the whole
// vector.
#include <assert.h>

#include "policy/landmark/internal.h"

// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014: the finalizer of
// SplitMix64.
static uint64_t mix(uint64_t x)
{
        x += 0x9e3779b97f4a7c15ull;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
}

void cairn_rotation_init(struct cairn_rotation *rotation, uint32_t dim)
{
        assert(dim >= 8 && dim % 8 == 0 && dim <= CAIRN_DIM_PADDED_MAX);
        rotation->dim = dim;
        rotation->power = 8;
        while (rotation->power * 2 <= dim)
                rotation->power *= 2;
        for (uint32_t pass = 0; pass < 2; pass++)
                for (uint32_t j = 0; j < dim; j++)
                        rotation->signs[pass][j] = mix(pass * 4096 + j) & 1 ? -1.0f : 1.0f;
}

void cairn_rotate(const struct cairn_kernels *kernels, const struct cairn_rotation *rotation,
                  float *x)
{
        kernels->multiply(x, rotation->signs[0], rotation->dim);
        kernels->hadamard(x, rotation->power);
        if (rotation->power == rotation->dim)
                return;
        kernels->multiply(x, rotation->signs[1], rotation->dim);
        kernels->hadamard(x + rotation->dim - rotation->power, rotation->power);
}

void cairn_rotate_back(const struct cairn_kernels *kernels, const struct cairn_rotation *rotation,
                       float *x)
{
        if (rotation->power != rotation->dim) {
                kernels->hadamard(x + rotation->dim - rotation->power, rotation->power);
                kernels->multiply(x, rotation->signs[1], rotation->dim);
        }
        kernels->hadamard(x, rotation->power);
        kernels->multiply(x, rotation->signs[0], rotation->dim);
}
