// Chooses the kernels from what the CPU and the operating system offer. Built with baseline flags.
#include <string.h>

#include "policy/landmark/kernels.h"
#include "proto/status.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const isa_names[CAIRN_ISA_COUNT] = {"scalar", "avx2", "avx512", "amx", "neon"};
static const struct cairn_kernels *chosen = &cairn_kernels_scalar;
static const char *warning; // of what was found wrong while choosing

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

// The kernel lets a process use tiles once it has asked: arch_prctl(ARCH_REQ_XCOMP_PERM,
// XFEATURE_XTILEDATA). Threads started later have what this one has.
static bool amx_available(void)
{
        enum {
                AMX_TILE = 1 << 24,
                AMX_INT8 = 1 << 25,
                XCR0_TILES = 0x60000,
                REQUEST_PERMISSION = 0x1023,
                TILE_DATA = 18
        };
        uint32_t a, b, c, d;
        return avx512_available() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_TILE) &&
               (d & AMX_INT8) && (os_state() & XCR0_TILES) == XCR0_TILES &&
               syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

// AVX-512's table with the tiles' kernel; NULL where there are none, or where they do not give what
// they should.
static const struct cairn_kernels *amx_table(void)
{
        static struct cairn_kernels table;
        static enum {
                UNASKED,
                MISSING,
                WRONG,
                GOOD
        } state = UNASKED;
        if (state == UNASKED) {
                state = MISSING;
                if (amx_available()) {
                        state = cairn_rows_dots_check(cairn_amx_rows_dots) ? GOOD : WRONG;
                        table = cairn_kernels_avx512;
                        table.isa = CAIRN_ISA_AMX;
                        table.rows_dots = cairn_amx_rows_dots;
                }
                warning = state == WRONG ? "AMX tiles do not multiply as they should" : NULL;
        }
        return state == GOOD ? &table : NULL;
}
#endif

bool cairn_rows_dots_check(cairn_rows_dots_function *rows_dots)
{
        enum {
                ROWS = 19, // more than a tile
                QUERIES = 17,
                BYTES = 112
        };
        int8_t rows[ROWS * BYTES];
        int16_t queries[QUERIES * BYTES];
        int32_t dots[ROWS * QUERIES], want[QUERIES];
        for (int i = 0; i < ROWS * BYTES; i++)
                rows[i] = (int8_t)(i * 89 % 255 - 127);
        for (int i = 0; i < QUERIES * BYTES; i++)
                queries[i] = (int16_t)(i * 7919 % (2 * CAIRN_QUERY_MAX + 1) - CAIRN_QUERY_MAX);
        rows_dots(rows, ROWS, BYTES, BYTES, queries, QUERIES, dots);
        for (int r = 0; r < ROWS; r++) {
                cairn_kernels_scalar.row_dots(rows + (size_t)r * BYTES, BYTES, queries, QUERIES,
                                              want);
                if (memcmp(want, dots + (size_t)r * QUERIES, sizeof want) != 0)
                        return false;
        }
        return true;
}

const struct cairn_kernels *cairn_kernels_of(enum cairn_isa isa)
{
        switch (isa) {
        case CAIRN_ISA_SCALAR: return &cairn_kernels_scalar;
#if defined(__x86_64__)
        case CAIRN_ISA_AVX2: return avx2_available() ? &cairn_kernels_avx2 : NULL;
        case CAIRN_ISA_AVX512: return avx512_available() ? &cairn_kernels_avx512 : NULL;
        case CAIRN_ISA_AMX: return amx_table();
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
        static const enum cairn_isa best_first[] = {CAIRN_ISA_AMX, CAIRN_ISA_AVX512, CAIRN_ISA_AVX2,
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

const char *cairn_isa_warning(void)
{
        return warning;
}

const struct cairn_kernels *cairn_kernels_chosen(void)
{
        return chosen;
}
