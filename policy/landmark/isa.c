// Chooses the kernels from what the CPU and the operating system offer. Built with baseline flags.
#include <string.h>

#include "policy/landmark/kernels.h"
#include "proto/status.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const isa_names[CAIRN_ISA_COUNT] = {"scalar", "avx2", "avx512", "amx", "neon"};
static const struct cairn_kernels *chosen = &cairn_kernels_scalar;

#if defined(__x86_64__)
enum {
        XCR0_AVX = 0x6,
        XCR0_AVX512 = 0xe6
};

// What the OS saves on a context switch: XCR0, or 0 without XSAVE.
static uint64_t os_state(void)
{
        uint32_t a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
                return 0;
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        return (uint64_t)high << 32 | low;
}

static bool avx2_available(void)
{
        uint32_t a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_FMA) || !(c & bit_F16C))
                return false;
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2) || !(b & bit_BMI2))
                return false;
        return (os_state() & XCR0_AVX) == XCR0_AVX;
}

static bool avx512_available(void)
{
        uint32_t a, b, c, d;
        uint32_t want_b = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
        uint32_t want_c = bit_AVX512VBMI | bit_AVX512VBMI2 | bit_AVX512VNNI;
        if (!avx2_available() || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
                return false;
        return (b & want_b) == want_b && (c & want_c) == want_c &&
               (os_state() & XCR0_AVX512) == XCR0_AVX512;
}
#endif

const struct cairn_kernels *cairn_kernels_of(enum cairn_isa isa)
{
        switch (isa) {
        case CAIRN_ISA_SCALAR: return &cairn_kernels_scalar;
#if defined(__x86_64__)
        case CAIRN_ISA_AVX2: return avx2_available() ? &cairn_kernels_avx2 : NULL;
        case CAIRN_ISA_AVX512: return avx512_available() ? &cairn_kernels_avx512 : NULL;
#elif defined(__aarch64__)
        case CAIRN_ISA_NEON: return &cairn_kernels_neon;
#endif
        default: return NULL;
        }
}

bool cairn_isa_available(enum cairn_isa isa)
{
        return cairn_kernels_of(isa) != NULL;
}

const char *cairn_isa_name(enum cairn_isa isa)
{
        return (unsigned)isa < CAIRN_ISA_COUNT ? isa_names[isa] : "unknown";
}

static int choose_named(const char *name)
{
        for (unsigned isa = 0; isa < CAIRN_ISA_COUNT; isa++) {
                if (strcmp(name, isa_names[isa]) != 0)
                        continue;
                const struct cairn_kernels *kernels = cairn_kernels_of((enum cairn_isa)isa);
                if (!kernels)
                        return CAIRN_EUNSUPPORTED;
                chosen = kernels;
                return CAIRN_OK;
        }
        return CAIRN_EINVAL;
}

int cairn_isa_choose(const char *forced)
{
        static const enum cairn_isa best_first[] = {CAIRN_ISA_AVX512, CAIRN_ISA_AVX2,
                                                    CAIRN_ISA_NEON, CAIRN_ISA_SCALAR};
        if (forced && forced[0])
                return choose_named(forced);
        for (unsigned i = 0; i < sizeof best_first / sizeof best_first[0]; i++) {
                const struct cairn_kernels *kernels = cairn_kernels_of(best_first[i]);
                if (kernels) {
                        chosen = kernels;
                        return CAIRN_OK;
                }
        }
        return CAIRN_EINTERNAL;
}

enum cairn_isa cairn_isa_chosen(void)
{
        return chosen->isa;
}

const struct cairn_kernels *cairn_kernels_chosen(void)
{
        return chosen;
}
