// Directories checked without a store: every part of every block, over several directories, and
// never a byte written.
#include <fcntl.h>

#include "storage/verify.h"
#include "store_fixture.h"

enum {
        BLOCKS = 40,
        SLOT_BYTES = 36864 + 12288, // the fixture's shape: raw, then code
        RAW_BYTES = 36864,
        SPOTS_MAX = 64,
};

struct spots {
        uint32_t slots[SPOTS_MAX];
        char what[SPOTS_MAX][80];
        uint32_t count;
};

static void on_bad(void *arg, uint32_t slab, uint32_t slot, const char *what)
{
        struct spots *spots = arg;
        (void)slab;
        cr_assert_lt(spots->count, SPOTS_MAX);
        spots->slots[spots->count] = slot;
        snprintf(spots->what[spots->count++], sizeof(spots->what[0]), "%s", what);
}

static void fill(struct fixture *f)
{
        fixture_init(f);
        f->options.slab_bytes = 512 << 10;
        fixture_open(f);
        for (uint64_t i = 0; i < BLOCKS; i++)
                cr_assert_eq(fixture_put(f, i, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        cr_assert_eq(fixture_drain(f), CAIRN_OK);
}

static int check(const struct fixture *f, struct cairn_verify_result *ret_result,
                 struct spots *ret_spots, char *ret_text)
{
        struct cairn_verify_options options = {.on_bad = on_bad, .on_bad_arg = ret_spots};
        *ret_spots = (struct spots){0};
        options.directories_count = f->options.directories_count;
        for (uint32_t i = 0; i < options.directories_count; i++)
                options.directories[i] = f->options.directories[i];
        return cairn_verify_directories(&options, ret_result, ret_text);
}

static void flip(const struct fixture *f, uint32_t slot, uint64_t offset)
{
        char path[512];
        uint8_t byte;
        off_t at = (off_t)(CAIRN_SLAB_HEADER_BYTES + (uint64_t)slot * SLOT_BYTES + offset);
        snprintf(path, sizeof(path), "%s/slabs/00000000.slab", f->directory);
        int fd = open(path, O_RDWR);
        cr_assert_eq(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
        close(fd);
}

Test(verify, every_part_of_a_block_is_checked)
{
        struct fixture f;
        struct cairn_verify_result result;
        struct spots spots;
        char text[CAIRN_TEXT_BYTES_MAX];
        fill(&f);
        fixture_close(&f);
        cr_assert_eq(check(&f, &result, &spots, text), CAIRN_OK);
        cr_assert_eq(result.blocks, BLOCKS);
        cr_assert_eq(result.corrupt + result.lost + result.unnamed + result.slabs_bad, 0);
        cr_assert_eq(result.bytes, (uint64_t)BLOCKS * SLOT_BYTES);
        cr_assert_eq(result.catalog, CAIRN_VERIFY_CATALOG_SOUND);
        cr_assert_eq(result.slabs, 4);                          // of ten slots
        flip(&f, 0, 70);                                        // the key in the raw header
        flip(&f, 2, 4096 + 29999);                              // the last raw byte
        flip(&f, 4, RAW_BYTES + 200);                           // the code part's table
        flip(&f, 6, RAW_BYTES + 4096 + 3 * FIXTURE_CODE_BYTES); // padding: nobody's
        flip(&f, 8, RAW_BYTES + 4096 + 1);                      // a code
        cr_assert_eq(check(&f, &result, &spots, text), CAIRN_OK);
        cr_assert_eq(result.blocks, BLOCKS);
        cr_assert_eq(result.corrupt, 4);
        cr_assert_eq(spots.count, 4);
        const uint32_t slots[] = {0, 2, 4, 8};
        cr_assert_arr_eq(spots.slots, slots, sizeof(slots));
        cr_assert_str_eq(spots.what[0], "a header does not fit its checksum");
        cr_assert_str_eq(spots.what[1], "a layer does not fit its checksum");
        cr_assert_str_eq(spots.what[2], "a header does not fit its checksum");
        cr_assert_str_eq(spots.what[3], "a layer does not fit its checksum");
        fixture_finish(&f);
}

// Whole slots that changed places are whole, and yet not what the catalog says.
Test(verify, another_block_than_the_catalog_says)
{
        struct fixture f;
        struct cairn_verify_result result;
        struct spots spots;
        char text[CAIRN_TEXT_BYTES_MAX], path[512];
        uint8_t *slots = malloc(2 * SLOT_BYTES);
        fill(&f);
        fixture_close(&f);
        snprintf(path, sizeof(path), "%s/slabs/00000000.slab", f.directory);
        int fd = open(path, O_RDWR);
        cr_assert_eq(pread(fd, slots, 2 * SLOT_BYTES, CAIRN_SLAB_HEADER_BYTES), 2 * SLOT_BYTES);
        cr_assert_eq(pwrite(fd, slots + SLOT_BYTES, SLOT_BYTES, CAIRN_SLAB_HEADER_BYTES),
                     SLOT_BYTES);
        // The second keeps its rows and gets the codes of the first.
        cr_assert_eq(pwrite(fd, slots + RAW_BYTES, SLOT_BYTES - RAW_BYTES,
                            CAIRN_SLAB_HEADER_BYTES + SLOT_BYTES + RAW_BYTES),
                     SLOT_BYTES - RAW_BYTES);
        close(fd);
        free(slots);
        cr_assert_eq(check(&f, &result, &spots, text), CAIRN_OK);
        cr_assert_eq(result.corrupt, 2);
        cr_assert_str_eq(spots.what[0], "it holds another block than the catalog says");
        cr_assert_str_eq(spots.what[1], "its parts are of two blocks");
        fixture_finish(&f);
}

Test(verify, several_directories_and_a_store_that_has_them)
{
        struct fixture f;
        struct cairn_verify_result result;
        struct spots spots;
        char text[CAIRN_TEXT_BYTES_MAX], second[512];
        fixture_init(&f);
        snprintf(second, sizeof(second), "%s/second", f.directory);
        f.options.directories[1] = second;
        f.options.directories_count = 2;
        f.options.slab_bytes = 512 << 10;
        fixture_open(&f);
        for (uint64_t i = 0; i < BLOCKS; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        cr_assert_eq(fixture_drain(&f), CAIRN_OK);
        cr_assert_eq(check(&f, &result, &spots, text), CAIRN_EBUSY);
        cr_assert_not_null(strstr(text, "a daemon has the data directory"));
        fixture_close(&f);
        cr_assert_eq(check(&f, &result, &spots, text), CAIRN_OK);
        cr_assert_eq(result.blocks, BLOCKS);
        cr_assert_eq(result.corrupt + result.lost, 0);
        f.options.directories_count = 1; // half of it
        cr_assert_eq(check(&f, &result, &spots, text), CAIRN_OK);
        cr_assert_eq(result.blocks + result.lost, BLOCKS);
        cr_assert_gt(result.lost, 0);
        fixture_finish(&f);
}
