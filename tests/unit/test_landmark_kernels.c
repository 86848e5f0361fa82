// Every kernel that this machine can run equals the scalar one, bit for bit.
#include "tests/unit/kernel_checks.h"

static void check_isa(enum cairn_isa isa)
{
        const struct cairn_kernels *kernels = cairn_kernels_of(isa);
        if (!kernels)
                cr_skip("%s: not on this machine", cairn_isa_name(isa));
        struct rng rng = rng_start(cairn_isa_name(isa));
        cr_assert_eq(kernels->isa, isa);
        check_kernels(kernels, &rng);
}

Test(landmark_kernels, scalar)
{
        check_isa(CAIRN_ISA_SCALAR);
}

Test(landmark_kernels, avx2)
{
        check_isa(CAIRN_ISA_AVX2);
}

Test(landmark_kernels, avx512)
{
        check_isa(CAIRN_ISA_AVX512);
}

Test(landmark_kernels, neon)
{
        check_isa(CAIRN_ISA_NEON);
}

// What a half stands for, by its definition.
static double half_value(uint32_t bits)
{
        uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
        double size = exponent == 0    ? ldexp(fraction, -24)
                      : exponent == 31 ? (fraction ? NAN : INFINITY)
                                       : ldexp(1024 + fraction, (int)exponent - 25);
        return bits & 0x8000 ? -size : size;
}

Test(landmark_kernels, half_floats_all_codes)
{
        for (uint32_t bits = 0; bits < 65536; bits++) {
                float x = cairn_half_to_float((uint16_t)bits), y = (float)half_value(bits);
                cr_assert(cairn_bits_of(x) == cairn_bits_of(y) || (x != x && y != y));
                if (x == x)
                        cr_assert_eq(cairn_half_from_float(x), bits);
        }
        struct rng rng = rng_start("half_floats_all_codes");
        for (int i = 0; i < 200000; i++) {
                float x = rng_gauss(&rng) * (float)pow(2, (double)rng_below(&rng, 44) - 27);
                uint32_t code = cairn_half_from_float(x), size = code & 0x7fff;
                if (size == 0x7c00) {
                        cr_assert_geq(fabs(x), 65520);
                        continue;
                }
                double gap = fabs(half_value(size) - fabs(x));
                cr_assert_leq(gap, fabs(half_value(size + 1) - fabs(x)));
                cr_assert(size == 0 || gap <= fabs(half_value(size - 1) - fabs(x)));
        }
}

// CAIRN_ISA names: an unknown one and one that the machine lacks are told apart, and change
// nothing.
Test(landmark_kernels, forcing_an_isa)
{
        cr_assert_eq(cairn_isa_choose("scalar"), CAIRN_OK);
        cr_assert_eq(cairn_isa_chosen(), CAIRN_ISA_SCALAR);
        cr_assert_eq(cairn_isa_choose("sse9"), CAIRN_EINVAL);
        cr_assert_eq(cairn_isa_choose(cairn_isa_available(CAIRN_ISA_NEON) ? "avx2" : "neon"),
                     CAIRN_EUNSUPPORTED);
        cr_assert_eq(cairn_isa_chosen(), CAIRN_ISA_SCALAR);
        cr_assert_eq(cairn_isa_choose(NULL), CAIRN_OK);
        cr_assert_eq(cairn_isa_choose(""), CAIRN_OK);
        cr_assert_str_eq(cairn_isa_name(CAIRN_ISA_AVX2), "avx2");
}
