// Fuzzes the check of a catalog's pages: a sound file with some numbers changed. Nothing outside
// the file is read, wherever its numbers point.
#include "storage/catalog_pages.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/bytes.h"
#include "proto/status.h"
#include "storage/catalog_file.h"
#include "tests/fuzz/fuzz.h"

enum {
        PAGE = CAIRN_CATALOG_PAGE_BYTES,
        BLOCKS = 300,
        AT_ONCE = 60,
        CHANGE_BYTES = 6, // page u16, byte u16, value u16
        CHANGES_MAX = 64
};

static struct {
        uint8_t *sound;
        uint8_t *bytes; // a copy, changed and mended again
        uint64_t size_bytes;
} file;

static void write_blocks(struct cairn_catalog_file *catalog)
{
        static const char description[CAIRN_DESCRIPTION_BYTES_MAX];
        static struct cairn_catalog_op ops[AT_ONCE];
        bool recorded;
        for (uint32_t i = 0; i < BLOCKS; i += AT_ONCE / 2) {
                for (uint32_t n = 0; n < AT_ONCE; n++) {
                        uint64_t number = (i + n) * 0x9e3779b97f4a7c15ull;
                        ops[n] = (struct cairn_catalog_op){.kind = n % 3 ? CAIRN_CATALOG_PUT
                                                                         : CAIRN_CATALOG_DELETE,
                                                           .block.space_id = 1 + n % 2};
                        memcpy(ops[n].block.key.bytes, &number, sizeof(number));
                        ops[n].next = n + 1 < AT_ONCE ? &ops[n + 1] : NULL;
                }
                ops[0].kind = CAIRN_CATALOG_SPACE; // a long value, in pages of its own
                ops[0].space = (struct cairn_catalog_space){
                    .id = 1 + i % 4, .description_bytes = 3000 + i, .description = description};
                FUZZ_CHECK(cairn_catalog_file_write(catalog, ops, NULL, 0, &recorded));
        }
}

// Only the pages in use, in memory of their size: a read beyond them is seen.
static void keep(const char *path)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        uint8_t page[PAGE];
        uint64_t last = 0;
        for (uint64_t i = 0; fd >= 0 && pread(fd, page, PAGE, (off_t)(i * PAGE)) == PAGE; i++)
                last = cairn_get_u16(page + 10) != 0 ? i : last;
        file.size_bytes = (last + 1) * PAGE;
        file.sound = malloc(file.size_bytes);
        file.bytes = malloc(file.size_bytes);
        FUZZ_CHECK(fd >= 0 && file.sound && file.bytes);
        FUZZ_CHECK(pread(fd, file.sound, file.size_bytes, 0) == (ssize_t)file.size_bytes);
        memcpy(file.bytes, file.sound, file.size_bytes);
        close(fd);
}

static void make(void)
{
        char path[] = "/tmp/cairn-fuzz-pages-XXXXXX";
        char text[CAIRN_TEXT_BYTES_MAX];
        struct cairn_catalog_file *catalog;
        int fd = mkstemp(path);
        FUZZ_CHECK(fd >= 0);
        close(fd);
        const struct cairn_catalog_options options = {.path = path, .no_sync = true};
        FUZZ_CHECK(cairn_catalog_file_open(&options, &catalog, text) == CAIRN_OK);
        write_blocks(catalog);
        cairn_catalog_file_close(catalog);
        keep(path);
        (void)unlink(path);
        FUZZ_CHECK(cairn_catalog_pages_sound(file.bytes, file.size_bytes));
}

// In memory of its own size.
static void check_cut(uint64_t size_bytes)
{
        uint8_t *cut = malloc(size_bytes + 1);
        FUZZ_CHECK(cut);
        memcpy(cut, file.bytes, size_bytes);
        (void)cairn_catalog_pages_sound(cut, size_bytes);
        free(cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        uint64_t changed[CHANGES_MAX];
        uint32_t count = 0;
        if (!file.sound)
                make();
        for (; size >= CHANGE_BYTES && count < CHANGES_MAX; size -= CHANGE_BYTES) {
                uint64_t page = cairn_get_u16(bytes) % (file.size_bytes / PAGE);
                changed[count] = page * PAGE + cairn_get_u16(bytes + 2) % (PAGE - 1);
                memcpy(file.bytes + changed[count++], bytes + 4, 2);
                bytes += CHANGE_BYTES;
        }
        (void)cairn_catalog_pages_sound(file.bytes, file.size_bytes);
        if (size > 0)
                check_cut(file.size_bytes / 256 * bytes[0]);
        while (count > 0) {
                uint64_t at = changed[--count];
                memcpy(file.bytes + at, file.sound + at, 2);
        }
        FUZZ_CHECK(cairn_catalog_pages_sound(file.bytes, file.size_bytes));
        return 0;
}
