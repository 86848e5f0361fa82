// The AVX-512 kernels under emulation, so that a machine without them tests them too.
#if defined(__x86_64__)
// The emulation adds 8- and 16-bit lanes as signed integers that wrap.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((no_sanitize("undefined"))), apply_to = function)
#else
#pragma GCC optimize("wrapv")
#endif
#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wpsabi"
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

// This version's aliases of these are missing or take the masked form's arguments.
#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)

#define CAIRN_EMULATED
#define cairn_kernels_avx512 cairn_kernels_avx512_emulated
extern const struct cairn_kernels cairn_kernels_avx512_emulated;
#include "policy/landmark/score_avx512.c"
#undef cairn_kernels_avx512

#include "tests/unit/kernel_checks.h"

Test(landmark_emulated, avx512)
{
        struct rng rng = rng_start("avx512 emulated");
        check_kernels(&cairn_kernels_avx512_emulated, &rng);
}
#pragma GCC diagnostic pop
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
#include <criterion/criterion.h>

Test(landmark_emulated, avx512)
{
        cr_skip("emulated on x86-64 alone");
}
#endif
