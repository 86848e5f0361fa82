// Arenas: which descriptors are taken, and ranges at the edges of 64 bits.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/arena.h"
#include "proto/limits.h"
#include "proto/status.h"

static char text[CAIRN_TEXT_BYTES_MAX];

static int memfd(uint64_t bytes, int seals)
{
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        cr_assert_geq(fd, 0);
        cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
        cr_assert(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
        return fd;
}

Test(arena, case_15_ranges_at_the_edges)
{
        cr_assert_eq(cairn_range_check(100, 0, 100), CAIRN_OK);
        cr_assert_eq(cairn_range_check(100, 100, 0), CAIRN_OK);
        cr_assert_eq(cairn_range_check(100, 0, 101), CAIRN_ERANGE);
        cr_assert_eq(cairn_range_check(100, 1, 100), CAIRN_ERANGE);
        cr_assert_eq(cairn_range_check(100, 101, 0), CAIRN_ERANGE);
        cr_assert_eq(cairn_range_check(100, UINT64_MAX, 2), CAIRN_ERANGE);
        cr_assert_eq(cairn_range_check(100, 2, UINT64_MAX), CAIRN_ERANGE);
        cr_assert_eq(cairn_range_check(100, UINT64_MAX, UINT64_MAX), CAIRN_ERANGE);
        cr_assert_eq(cairn_range_check(UINT64_MAX, UINT64_MAX - 1, 1), CAIRN_OK);
}

Test(arena, case_35_offsets_beyond_32_bits)
{
        uint64_t size = 5ull << 32;

        cr_assert_eq(cairn_range_check(size, (1ull << 32) + 1, 1ull << 33), CAIRN_OK);
        cr_assert_eq(cairn_range_check(size, 4ull << 32, (1ull << 32) + 1), CAIRN_ERANGE);
}

Test(arena, a_sealed_memfd_is_mapped_and_shared)
{
        int fd = memfd(8192, F_SEAL_SHRINK);
        struct cairn_arena *arena = NULL;
        char byte = 0;

        cr_assert_eq(cairn_arena_map(fd, 8192, &arena, text), CAIRN_OK, "%s", text);
        arena->base[8191] = 42;
        cr_assert_eq(pread(fd, &byte, 1, 8191), 1);
        cr_assert_eq(byte, 42);
        cairn_arena_ref(arena);
        cairn_arena_unref(arena);
        cr_assert_eq(arena->base[8191], 42, "mapped while it is in use");
        cairn_arena_unref(arena);
        (void)close(fd);
}

static void refused(int fd, uint64_t bytes, const char *says)
{
        struct cairn_arena *arena = NULL;

        cr_assert_eq(cairn_arena_map(fd, bytes, &arena, text), CAIRN_EINVAL);
        cr_assert_null(arena);
        cr_assert(strstr(text, says), "%s", text);
        (void)close(fd);
}

Test(arena, case_16_what_could_shrink_is_refused)
{
        char path[] = "/tmp/cairn-arena-XXXXXX";
        int file = mkstemp(path);
        int ends[2];

        cr_assert_eq(ftruncate(file, 8192), 0);
        (void)unlink(path);
        refused(file, 8192, "memfd");
        refused(memfd(8192, 0), 8192, "F_SEAL_SHRINK");
        refused(memfd(8192, F_SEAL_GROW), 8192, "F_SEAL_SHRINK");
        cr_assert_eq(pipe(ends), 0);
        (void)close(ends[1]);
        refused(ends[0], 8192, "memfd");
}

Test(arena, sizes_are_checked)
{
        refused(memfd(8192, F_SEAL_SHRINK), 8193, "8192");
        refused(memfd(8192, F_SEAL_SHRINK), 0, "size_bytes");
        refused(memfd(8192, F_SEAL_SHRINK), CAIRN_ARENA_BYTES_MAX + 1, "size_bytes");
        refused(memfd(8192, F_SEAL_SHRINK | F_SEAL_WRITE), 8192, "writing");
}
