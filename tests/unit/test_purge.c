// Purging in the store: the bytes are looked for in the files themselves, and in memory.
#include "store_fixture.h"

#include "storage/legal.h"
#include "storage/note.h"
#include "storage/purge.h"

enum {
        BOTH = CAIRN_PART_RAW | CAIRN_PART_CODE,
        KEYS_MAX = 64
};

struct purging {
        struct cairn_purge purge; // first
        struct fixture_result result;
        struct cairn_key keys[KEYS_MAX];
        int32_t statuses[KEYS_MAX];
};

static void on_purged(struct cairn_purge *purge, int status)
{
        fixture_on_status(&((struct purging *)purge)->result, status);
}

static void begin(struct fixture *f, struct purging *p, uint64_t first, size_t count)
{
        memset(p, 0, sizeof(*p));
        for (size_t i = 0; i < count; i++)
                p->keys[i] = fixture_key(first + i);
        p->purge = (struct cairn_purge){.on_done = on_purged,
                                        .space = f->space,
                                        .keys = p->keys,
                                        .count = count,
                                        .statuses = p->statuses};
        cairn_store_purge(f->store, &p->purge);
        cr_assert_not(p->result.done, "called back inside the call");
}

static int purge(struct fixture *f, struct purging *p, uint64_t number)
{
        begin(f, p, number, 1);
        fixture_until(f, &p->result.done);
        cr_assert_eq(p->result.status, CAIRN_OK);
        return p->statuses[0];
}

// What every file of the directories has of a block, by its patterns of every part and layer.
static struct {
        uint8_t needles[2 * FIXTURE_LAYERS][48];
        size_t found;
} search;

static int search_file(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
        (void)walk;
        if (kind != FTW_F || info->st_size == 0)
                return 0;
        FILE *file = fopen(path, "re");
        uint8_t *bytes = malloc((size_t)info->st_size);
        cr_assert(file && bytes);
        size_t size = fread(bytes, 1, (size_t)info->st_size, file);
        fclose(file);
        for (int i = 0; i < 2 * FIXTURE_LAYERS; i++) {
                const uint8_t *at = bytes;
                while ((at = memmem(at, size - (size_t)(at - bytes), search.needles[i], 48))) {
                        search.found++;
                        at++;
                }
        }
        free(bytes);
        return 0;
}

static size_t in_files(struct fixture *f, uint64_t number, uint64_t version)
{
        for (uint32_t part = 0; part < 2; part++) {
                for (uint32_t layer = 0; layer < FIXTURE_LAYERS; layer++)
                        fixture_pattern(search.needles[part * FIXTURE_LAYERS + layer], 48, number,
                                        version, part + 1, layer);
        }
        search.found = 0;
        for (uint32_t i = 0; i < f->options.directories_count; i++)
                cr_assert_eq(nftw(f->options.directories[i], search_file, 16, FTW_PHYS), 0);
        return search.found;
}

static size_t notes(struct fixture *f)
{
        size_t count = 0;
        for (uint64_t i = 0; i < 100; i++) {
                uint8_t key[5 + CAIRN_KEY_BYTES] = {CAIRN_NOTE_PURGE};
                struct cairn_key wanted = fixture_key(i);
                memcpy(key + 1, &f->space, 4);
                memcpy(key + 5, wanted.bytes, CAIRN_KEY_BYTES);
                count += cairn_store_note_find(f->store, key, sizeof(key)) != NULL;
        }
        return count;
}

static void settle(struct fixture *f)
{
        for (int i = 0; i < 50; i++)
                fixture_poll(f);
        fixture_settle(f);
}

Test(purge, the_bytes_are_gone_from_files_and_memory)
{
        struct fixture f;
        struct purging p;
        fixture_init(&f);
        fixture_open(&f);
        for (uint64_t i = 0; i < 6; i++)
                cr_assert_eq(fixture_put(&f, i, 1, i % 2), CAIRN_OK);
        settle(&f);
        struct cairn_key key = fixture_key(2);
        struct cairn_block *block;
        struct fixture_acquire acquire;
        cr_assert_eq(cairn_store_hold(f.store, f.space, &key, &block), CAIRN_OK);
        fixture_acquire(&f, &acquire, block, BOTH);
        fixture_until(&f, &acquire.result.done);
        const uint8_t *raw = cairn_block_raw(block, 1); // mapped as long as its segment is
        cairn_store_unpin(f.store, block, BOTH);
        cairn_store_unhold(f.store, block);
        cr_assert_eq(in_files(&f, 2, 1), 2 * FIXTURE_LAYERS, "the test finds what is there");
        cr_assert_eq(purge(&f, &p, 2), CAIRN_OK);
        cr_assert_eq(p.purge.pending, 0);
        cr_assert_eq(in_files(&f, 2, 1), 0);
        for (size_t i = 0; i < FIXTURE_RAW_BYTES; i++)
                cr_assert_eq(raw[i], 0, "byte %zu in RAM", i);
        cr_assert_eq(notes(&f), 0);
        cr_assert_eq(purge(&f, &p, 2), CAIRN_ENOENT);
        cr_assert_eq(purge(&f, &p, 77), CAIRN_ENOENT);
        for (uint64_t i = 0; i < 6; i++)
                cr_assert_eq(fixture_get(&f, i, 1, BOTH), i == 2 ? CAIRN_ENOENT : CAIRN_OK);
        cr_assert_eq(in_files(&f, 3, 1), 2 * FIXTURE_LAYERS, "nothing else was touched");
        cr_assert_eq(fixture_put(&f, 2, 5, CAIRN_ACK_DISK), CAIRN_OK, "it may be put again");
        cr_assert_eq(fixture_get(&f, 2, 5, BOTH), CAIRN_OK);
        fixture_finish(&f);
}

Test(purge, old_copies_in_free_slots_are_found)
{
        struct fixture f;
        struct purging p;
        fixture_init(&f);
        fixture_open(&f);
        for (uint64_t i = 0; i < 8; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        for (uint64_t i = 0; i < 4; i++)
                cr_assert_eq(fixture_delete(&f, i), CAIRN_OK);
        cr_assert_eq(in_files(&f, 1, 1), 2 * FIXTURE_LAYERS, "a delete leaves the bytes");
        begin(&f, &p, 0, 6);
        fixture_until(&f, &p.result.done);
        for (int i = 0; i < 6; i++)
                cr_assert_eq(p.statuses[i], CAIRN_OK, "key %d", i);
        for (uint64_t i = 0; i < 6; i++)
                cr_assert_eq(in_files(&f, i, 1), 0, "block %lu", (unsigned long)i);
        cr_assert_eq(in_files(&f, 7, 1), 2 * FIXTURE_LAYERS);
        cr_assert_eq(cairn_store_audit_counters(f.store), CAIRN_OK);
        fixture_finish(&f);
}

Test(purge, who_reads_goes_on_and_the_last_one_ends_it)
{
        struct fixture f;
        struct purging p;
        struct cairn_block *block;
        struct cairn_key key = fixture_key(1);
        fixture_init(&f);
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cr_assert_eq(cairn_store_hold(f.store, f.space, &key, &block), CAIRN_OK);
        cr_assert_eq(purge(&f, &p, 1), CAIRN_OK);
        cr_assert_eq(p.purge.pending, 1);
        cr_assert_eq(notes(&f), 1, "what is not done yet is noted");
        cr_assert_eq(fixture_get(&f, 1, 1, BOTH), CAIRN_ENOENT, "gone for all others");
        cairn_store_drop_ram(f.store);
        struct fixture_acquire acquire;
        fixture_acquire(&f, &acquire, block, BOTH);
        fixture_until(&f, &acquire.result.done);
        cr_assert_eq(acquire.result.status, CAIRN_OK);
        fixture_check(&f, block, CAIRN_PART_RAW, 1, 1);
        cairn_store_unpin(f.store, block, BOTH);
        // A new one of this key is another block.
        cr_assert_eq(fixture_put(&f, 1, 2, CAIRN_ACK_DISK), CAIRN_OK);
        cr_assert_gt(in_files(&f, 1, 1), 0);
        cairn_store_unhold(f.store, block);
        settle(&f);
        cr_assert_eq(in_files(&f, 1, 1), 0);
        cr_assert_eq(notes(&f), 0);
        cr_assert_eq(fixture_get(&f, 1, 2, BOTH), CAIRN_OK);
        cairn_store_drop_ram(f.store);
        cr_assert_eq(fixture_get(&f, 1, 2, BOTH), CAIRN_OK);
        fixture_finish(&f);
}

Test(purge, a_crash_between_is_made_good_by_the_next_start)
{
        struct fixture f;
        struct purging p;
        struct cairn_block *block;
        struct cairn_key key = fixture_key(3);
        fixture_init(&f);
        fixture_open(&f);
        for (uint64_t i = 0; i < 5; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        settle(&f);
        cr_assert_eq(cairn_store_hold(f.store, f.space, &key, &block), CAIRN_OK);
        cr_assert_eq(purge(&f, &p, 3), CAIRN_OK);
        cr_assert_eq(p.purge.pending, 1);
        begin(&f, &p, 4, 1);
        for (int i = 0; i < 100 && notes(&f) < 2; i++)
                fixture_poll(&f);           // as far as its note, or further
        cairn_store_unhold(f.store, block); // of no effect any more
        cairn_store_abandon(f.store);
        f.executor.first = NULL;
        f.executor.last = &f.executor.first;
        cr_assert_gt(in_files(&f, 3, 1), 0);
        fixture_open(&f);
        settle(&f);
        for (uint64_t i = 3; i < 5; i++) {
                cr_assert_eq(in_files(&f, i, 1), 0, "block %lu", (unsigned long)i);
                cr_assert_eq(fixture_get(&f, i, 1, BOTH), CAIRN_ENOENT);
        }
        cr_assert_eq(notes(&f), 0);
        for (uint64_t i = 0; i < 3; i++)
                cr_assert_eq(fixture_get(&f, i, 1, BOTH), CAIRN_OK);
        fixture_finish(&f);
}

Test(purge, a_legal_hold_wins)
{
        struct fixture f;
        struct purging p;
        fixture_init(&f);
        fixture_open(&f);
        for (uint64_t i = 0; i < 2; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_hold hold = {.name = "case", .kind = CAIRN_HOLD_CHAIN, .space = f.space};
        hold.key = fixture_key(0);
        struct fixture_result result = {0};
        cairn_store_hold_set(f.store, &hold, fixture_on_status, &result);
        fixture_until(&f, &result.done);
        begin(&f, &p, 0, 2);
        fixture_until(&f, &p.result.done);
        cr_assert_eq(p.statuses[0], CAIRN_EHELD);
        cr_assert_eq(p.statuses[1], CAIRN_OK);
        cr_assert_eq(fixture_get(&f, 0, 1, BOTH), CAIRN_OK);
        cr_assert_eq(in_files(&f, 0, 1), 2 * FIXTURE_LAYERS);
        cr_assert_eq(notes(&f), 0);
        fixture_finish(&f);
}

Test(purge, every_directory_and_large_slots)
{
        struct fixture f;
        struct purging p;
        char second[300];
        fixture_init(&f);
        snprintf(second, sizeof(second), "%s-2", f.directory);
        f.options.directories[1] = second;
        f.options.directories_count = 2;
        f.options.nvme_bytes = 64 << 20;
        f.options.ram_bytes = 32 << 20;
        f.options.slab_bytes = 1 << 20;
        fixture_open(&f);
        for (uint64_t i = 0; i < 60; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        begin(&f, &p, 0, 60);
        fixture_until(&f, &p.result.done);
        for (uint64_t i = 0; i < 60; i++) {
                cr_assert_eq(p.statuses[i], CAIRN_OK);
                cr_assert_eq(in_files(&f, i, 1), 0);
        }
        // Above what is written at once.
        f.shape = (struct cairn_block_shape){1, 5 << 20, 0};
        cr_assert_eq(fixture_space_open(&f, "large", &f.shape, &f.space), CAIRN_OK);
        struct fixture_begin put;
        fixture_begin(&f, &put, 1, NULL, CAIRN_ACK_DISK);
        fixture_until(&f, &put.result.done);
        cr_assert_eq(put.result.status, CAIRN_OK);
        fixture_pattern(cairn_put_raw(put.result.put, 0), 5 << 20, 1, 9, 1, 0);
        memcpy((uint8_t *)cairn_put_raw(put.result.put, 0) + (5 << 20) - 48,
               cairn_put_raw(put.result.put, 0), 48);
        cairn_put_seal(put.result.put, CAIRN_PART_RAW, 0);
        struct fixture_result result = {0};
        cairn_store_put_commit(f.store, put.result.put, fixture_on_status, &result);
        fixture_until(&f, &result.done);
        cr_assert_eq(in_files(&f, 1, 9), 2, "at both ends");
        cr_assert_eq(purge(&f, &p, 1), CAIRN_OK);
        cr_assert_eq(in_files(&f, 1, 9), 0);
        fixture_close(&f);
        nftw(second, fixture_unlink, 16, FTW_DEPTH | FTW_PHYS);
        fixture_finish(&f);
}
