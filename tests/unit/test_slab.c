// Slab files: made within the budget, shared between spaces, striped over directories, given back.
#include "store_fixture.h"

static uint32_t files_in(const struct fixture *f, const char *directory)
{
        (void)f;
        char path[512];
        snprintf(path, sizeof(path), "%s/slabs", directory);
        DIR *entries = opendir(path);
        cr_assert_not_null(entries);
        uint32_t count = 0;
        for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries))
                count += strstr(entry->d_name, ".slab") != NULL;
        closedir(entries);
        return count;
}

Test(slab, second_space_gets_room_from_a_full_first)
{
        struct fixture f;
        fixture_init(&f);
        f.options.nvme_bytes = 4 << 20;
        fixture_open(&f);
        for (uint64_t i = 0; i < 100; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        uint32_t first = f.space;
        struct cairn_block_shape shape = {5, 9000, 0};
        cr_assert_eq(fixture_space_open(&f, "second", &shape, &f.space), CAIRN_OK);
        f.shape = shape;
        for (uint64_t i = 0; i < 20; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cairn_store_drop_ram(f.store);
        cr_assert_eq(fixture_get(&f, 19, 1, CAIRN_PART_RAW), CAIRN_OK);
        struct cairn_store_stats stats = fixture_stats(&f);
        cr_assert_leq(stats.nvme_used_bytes + stats.nvme_free_bytes, f.options.nvme_bytes);
        struct cairn_store_space_info info;
        cairn_store_space_info(f.store, 0, &info);
        cr_assert_eq(info.id, first);
        cr_assert_gt(info.blocks, 0, "the first space is not emptied for it");
        fixture_finish(&f);
}

Test(slab, files_are_striped_and_given_back)
{
        struct fixture f;
        char second[300];
        fixture_init(&f);
        snprintf(second, sizeof(second), "%s/second", f.directory);
        f.options.directories[1] = second;
        f.options.directories_count = 2;
        f.options.slab_bytes = 512 << 10;
        fixture_open(&f);
        for (uint64_t i = 0; i < 60; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        uint32_t here = files_in(&f, f.directory), there = files_in(&f, second);
        cr_assert_geq(here, 2);
        cr_assert_leq(here - there, 1);
        fixture_close(&f);
        fixture_open(&f);
        cr_assert_eq(fixture_stats(&f).recovered_blocks, 60);
        for (uint64_t i = 0; i < 60; i++)
                cr_assert_eq(fixture_delete(&f, i), CAIRN_OK);
        fixture_settle(&f);
        for (int i = 0; i < 20; i++)
                fixture_poll(&f);
        cr_assert_leq(files_in(&f, f.directory) + files_in(&f, second), 1);
        cr_assert_eq(fixture_stats(&f).nvme_used_bytes, 0);
        fixture_finish(&f);
}

Test(slab, files_and_directories_are_private)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        const char *names[] = {"lock", "catalog.mdb", "slabs", "slabs/00000000.slab"};
        for (int i = 0; i < 4; i++) {
                char path[512];
                struct stat status;
                snprintf(path, sizeof(path), "%s/%s", f.directory, names[i]);
                cr_assert_eq(lstat(path, &status), 0, "%s", names[i]);
                cr_assert_eq(status.st_mode & 077, 0, "%s", names[i]);
        }
        fixture_finish(&f);
}
