// The NEON kernels against the scalar ones, as a program of its own for qemu-aarch64
// (emulated_neon.sh).
#define CAIRN_CHECKS_ALONE
#include "tests/unit/kernel_checks.h"

// Of proto/space.c, whose fingerprints need a library that a cross-build lacks.
uint32_t cairn_dtype_bytes(uint32_t dtype)
{
        return dtype == CAIRN_DTYPE_F32 ? 4 : dtype <= CAIRN_DTYPE_BF16 ? 2 : 1;
}

int main(void)
{
        struct rng rng = rng_start("neon");
        cr_assert(cairn_isa_choose("neon") == CAIRN_OK);
        check_kernels(cairn_kernels_of(CAIRN_ISA_NEON), &rng);
        printf("neon kernels equal the scalar ones\n");
        return 0;
}
