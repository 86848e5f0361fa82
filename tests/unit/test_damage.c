// Bytes of the data directory cut, zeroed and flipped: a start never fails for good, a read gives
// the exact bytes or a miss, and what is missing can be put again.
#include <fcntl.h>

#include "store_fixture.h"

enum {
        BLOCKS = 60,
        BOTH = CAIRN_PART_RAW | CAIRN_PART_CODE
};

static uint64_t seed(void)
{
        const char *text = getenv("CAIRN_TEST_SEED");
        uint64_t value = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL) * 2654435761u + 1;
        cr_log_info("CAIRN_TEST_SEED=%lu", (unsigned long)value);
        fprintf(stderr, "CAIRN_TEST_SEED=%lu\n", (unsigned long)value);
        return value;
}

static void fill(struct fixture *f)
{
        fixture_init(f);
        f->options.slab_bytes = 512 << 10;
        fixture_open(f);
        struct cairn_key parent = {{0}};
        for (uint64_t i = 0; i < BLOCKS; i++) {
                cr_assert_eq(fixture_put_child(f, i, i % 10 ? &parent : NULL, 1, CAIRN_ACK_MEMORY),
                             CAIRN_OK);
                parent = fixture_key(i);
        }
        cr_assert_eq(fixture_drain(f), CAIRN_OK);
        fixture_close(f);
}

// Opens, reads everything, puts again what is missing, reads again. Returns the blocks that were
// found.
static uint32_t check(struct fixture *f)
{
        uint32_t found = 0;
        fixture_open(f);
        for (uint64_t i = 0; i < BLOCKS; i++) {
                int status = fixture_get(f, i, 1, BOTH);
                cr_assert(status == CAIRN_OK || status == CAIRN_ENOENT ||
                          status == CAIRN_ECORRUPT || status == CAIRN_EIO);
                found += status == CAIRN_OK;
                if (status != CAIRN_OK)
                        cr_assert_eq(fixture_put(f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        }
        cairn_store_drop_ram(f->store);
        for (uint64_t i = 0; i < BLOCKS; i++)
                cr_assert_eq(fixture_get(f, i, 1, BOTH), CAIRN_OK);
        fixture_close(f);
        fixture_open(f);
        for (uint64_t i = 0; i < BLOCKS; i++)
                cr_assert_eq(fixture_get(f, i, 1, BOTH), CAIRN_OK);
        fixture_close(f);
        return found;
}

static uint64_t size_of(const char *path)
{
        struct stat status;
        cr_assert_eq(stat(path, &status), 0);
        return (uint64_t)status.st_size;
}

static void slab_path(const struct fixture *f, uint32_t number, char *ret_path, size_t size)
{
        snprintf(ret_path, size, "%s/slabs/%08x.slab", f->directory, number);
}

static void overwrite(const char *path, uint64_t offset, uint64_t size, bool flip, uint64_t *random)
{
        int fd = open(path, O_RDWR);
        cr_assert_geq(fd, 0);
        for (uint64_t i = 0; i < size; i++) {
                uint8_t byte = 0;
                if (flip) {
                        (void)!pread(fd, &byte, 1, (off_t)(offset + i));
                        byte ^= (uint8_t)(1 + fixture_random(random) % 255);
                }
                cr_assert_eq(pwrite(fd, &byte, 1, (off_t)(offset + i)), 1);
        }
        close(fd);
}

static void damage(const char *path, uint64_t *random)
{
        uint64_t size = size_of(path);
        uint64_t used = size < (1 << 20) ? size : 1 << 20; // where the catalog's pages are
        uint64_t at = fixture_random(random) % used;
        switch (fixture_random(random) % 4) {
        case 0: cr_assert_eq(truncate(path, (off_t)at), 0); break;
        case 1: overwrite(path, at / 4096 * 4096, 4096, false, random); break;
        case 2: overwrite(path, at, 1 + fixture_random(random) % 64, true, random); break;
        default:
                for (int i = 0; i < 20; i++)
                        overwrite(path, fixture_random(random) % used, 1, true, random);
        }
}

Test(damage, undamaged_directory_is_found_whole)
{
        struct fixture f;
        fill(&f);
        cr_assert_eq(check(&f), BLOCKS);
        fixture_finish(&f);
}

Test(damage, slab_files, .timeout = 120)
{
        uint64_t random = seed();
        for (int round = 0; round < 25; round++) {
                struct fixture f;
                char path[512];
                fill(&f);
                slab_path(&f, (uint32_t)(fixture_random(&random) % 2), path, sizeof(path));
                damage(path, &random);
                check(&f);
                fixture_finish(&f);
        }
}

Test(damage, catalog_file, .timeout = 120)
{
        uint64_t random = seed();
        for (int round = 0; round < 25; round++) {
                struct fixture f;
                char path[512];
                fill(&f);
                snprintf(path, sizeof(path), "%s/catalog.mdb", f.directory);
                damage(path, &random);
                check(&f);
                fixture_finish(&f);
        }
}

Test(damage, lost_catalog_is_made_from_the_slabs)
{
        struct fixture f;
        char path[512];
        fill(&f);
        snprintf(path, sizeof(path), "%s/catalog.mdb", f.directory);
        cr_assert_eq(unlink(path), 0);
        cr_assert_eq(check(&f), BLOCKS);
        fixture_finish(&f);
}

Test(damage, garbage_catalog_is_moved_aside)
{
        struct fixture f;
        char path[512];
        uint64_t random = 1;
        fill(&f);
        snprintf(path, sizeof(path), "%s/catalog.mdb", f.directory);
        overwrite(path, 0, 65536, true, &random);
        cr_assert_eq(check(&f), BLOCKS);
        cr_assert_eq(f.warnings, 1);
        snprintf(path, sizeof(path), "%s/catalog.mdb.bad", f.directory);
        cr_assert_eq(access(path, F_OK), 0);
        fixture_finish(&f);
}

Test(damage, lost_slab_files_are_counted)
{
        struct fixture f;
        char path[512];
        fill(&f);
        slab_path(&f, 0, path, sizeof(path));
        cr_assert_eq(unlink(path), 0);
        fixture_open(&f);
        struct cairn_store_stats stats = fixture_stats(&f);
        cr_assert_gt(stats.recovered_orphans, 0);
        cr_assert_eq(stats.recovered_blocks + stats.recovered_orphans, BLOCKS);
        fixture_close(&f);
        check(&f);
        fixture_finish(&f);
}

Test(damage, corrupt_block_is_a_counted_miss_and_can_be_put_again)
{
        struct fixture f;
        char path[512];
        uint64_t random = 7;
        fill(&f);
        slab_path(&f, 0, path, sizeof(path));
        // In the first slot's rows, then in its codes.
        overwrite(path, CAIRN_SLAB_HEADER_BYTES + 4096 + 5, 1, true, &random);
        fixture_open(&f);
        uint32_t missing = 0;
        for (uint64_t i = 0; i < BLOCKS; i++) {
                cr_assert_eq(fixture_get(&f, i, 1, CAIRN_PART_CODE), CAIRN_OK);
                int status = fixture_get(&f, i, 1, CAIRN_PART_RAW);
                if (status == CAIRN_OK)
                        continue;
                cr_assert_eq(status, CAIRN_ECORRUPT);
                cr_assert_eq(fixture_get(&f, i, 1, CAIRN_PART_CODE), CAIRN_ENOENT);
                cr_assert_eq(fixture_put(&f, i, 2, CAIRN_ACK_DISK), CAIRN_OK);
                cairn_store_drop_ram(f.store);
                cr_assert_eq(fixture_get(&f, i, 2, BOTH), CAIRN_OK);
                missing++;
        }
        cr_assert_eq(missing, 1);
        cr_assert_eq(fixture_stats(&f).corrupt_blocks, 1);
        fixture_finish(&f);
}

Test(damage, symbolic_links_are_not_followed)
{
        struct fixture f;
        char path[512], target[512];
        fill(&f);
        slab_path(&f, 0, path, sizeof(path));
        snprintf(target, sizeof(target), "%s/elsewhere", f.directory);
        cr_assert_eq(rename(path, target), 0);
        cr_assert_eq(symlink(target, path), 0);
        fixture_open(&f);
        cr_assert_lt(fixture_stats(&f).recovered_blocks, BLOCKS);
        fixture_close(&f);
        fixture_finish(&f);
}

Test(damage, another_format_is_refused_and_left_alone)
{
        struct fixture f;
        char path[512];
        fill(&f);
        slab_path(&f, 0, path, sizeof(path));
        uint8_t *bytes = aligned_alloc(4096, CAIRN_SLAB_HEADER_BYTES);
        int fd = open(path, O_RDWR);
        cr_assert_eq(pread(fd, bytes, CAIRN_SLAB_HEADER_BYTES, 0), CAIRN_SLAB_HEADER_BYTES);
        bytes[8] = CAIRN_FORMAT_VERSION + 1;
        struct cairn_checksum sum;
        cairn_checksum_of(bytes, 8176, &sum);
        memcpy(bytes + 8176, sum.bytes, 16);
        cr_assert_eq(pwrite(fd, bytes, CAIRN_SLAB_HEADER_BYTES, 0), CAIRN_SLAB_HEADER_BYTES);
        close(fd);
        free(bytes);
        uint64_t size = size_of(path);
        char text[CAIRN_TEXT_BYTES_MAX];
        cr_assert_eq(cairn_store_open_with(&f.options, &f.internal, &f.store, text),
                     CAIRN_EVERSION);
        cr_assert_not_null(strstr(text, "another format"));
        cr_assert_eq(size_of(path), size);
        f.store = NULL;
        fixture_finish(&f);
}
