// Layer ranges, walks, and views that workers map.
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "store_fixture.h"

struct range_fixture {
        struct cairn_range range; // first
        struct fixture_result result;
};

static void on_ready(struct cairn_range *range, int status)
{
        fixture_on_status(&((struct range_fixture *)range)->result, status);
}

static int read_range(struct fixture *f, struct range_fixture *r, struct cairn_block *block,
                      enum cairn_part part, uint32_t first, uint32_t count, bool from_nvme)
{
        memset(r, 0, sizeof(*r));
        r->range = (struct cairn_range){.on_ready = on_ready,
                                        .block = block,
                                        .part = part,
                                        .first = first,
                                        .count = count,
                                        .from_nvme = from_nvme};
        cairn_store_range_read(f->store, &r->range);
        cr_assert_not(r->result.done, "called back inside the call");
        fixture_until(f, &r->result.done);
        return r->result.status;
}

static void check_range(const struct fixture *f, const struct range_fixture *r, uint64_t number)
{
        bool raw = r->range.part == CAIRN_PART_RAW;
        uint64_t size = raw ? f->shape.raw_layer_bytes : f->shape.code_layer_bytes;
        static uint8_t expected[64 << 10];
        for (uint32_t i = 0; i < r->range.count; i++) {
                fixture_pattern(expected, size, number, 1, r->range.part, r->range.first + i);
                cr_assert_eq(memcmp((const uint8_t *)r->range.bytes + i * size, expected, size), 0);
        }
}

static struct cairn_block *hold(struct fixture *f, uint64_t number)
{
        struct cairn_key key = fixture_key(number);
        struct cairn_block *block;
        cr_assert_eq(cairn_store_hold(f->store, f->space, &key, &block), CAIRN_OK);
        return block;
}

Test(range, reads_just_its_layers)
{
        struct fixture f;
        fixture_init(&f);
        f.shape = (struct cairn_block_shape){16, 20000, 3000};
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_block *block = hold(&f, 1);
        struct range_fixture r;
        for (int in_ram = 1; in_ram >= 0; in_ram--) {
                if (!in_ram)
                        cairn_store_drop_ram(f.store);
                for (uint32_t first = 0; first < 16; first += 3) {
                        for (uint32_t count = 1; first + count <= 16; count += 4) {
                                enum cairn_part part = first % 2 ? CAIRN_PART_RAW : CAIRN_PART_CODE;
                                uint64_t before = fixture_stats(&f).nvme_read_bytes;
                                cr_assert_eq(read_range(&f, &r, block, part, first, count, false),
                                             CAIRN_OK);
                                check_range(&f, &r, 1);
                                cairn_store_range_release(f.store, &r.range);
                                uint64_t bytes = fixture_stats(&f).nvme_read_bytes - before;
                                uint64_t layer = part == CAIRN_PART_RAW ? 20000 : 3000;
                                cr_assert_leq(bytes, in_ram ? 0 : count * layer + 3 * 4096);
                        }
                }
        }
        cr_assert_eq(read_range(&f, &r, block, CAIRN_PART_RAW, 15, 2, false), CAIRN_ERANGE);
        cr_assert_eq(read_range(&f, &r, block, CAIRN_PART_RAW, 16, 1, false), CAIRN_ERANGE);
        cr_assert_eq(read_range(&f, &r, block, CAIRN_PART_RAW, 0, UINT32_MAX, false), CAIRN_ERANGE);
        cr_assert_eq(read_range(&f, &r, block, CAIRN_PART_RAW, 0, 0, false), CAIRN_ERANGE);
        cairn_store_unhold(f.store, block);
        fixture_finish(&f);
}

Test(range, disk_copy_is_verified_though_ram_has_it)
{
        struct fixture f;
        fixture_init(&f);
        f.options.force_buffered = true;
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_block *block = hold(&f, 1);
        struct range_fixture r;
        cr_assert_eq(read_range(&f, &r, block, CAIRN_PART_RAW, 0, 3, true), CAIRN_OK);
        check_range(&f, &r, 1);
        cairn_store_range_release(f.store, &r.range);
        char path[512];
        snprintf(path, sizeof(path), "%s/slabs/00000000.slab", f.directory);
        int fd = open(path, O_RDWR);
        cr_assert_eq(pwrite(fd, "x", 1, CAIRN_SLAB_HEADER_BYTES + 4096 + 77), 1);
        close(fd);
        cr_assert_eq(read_range(&f, &r, block, CAIRN_PART_RAW, 1, 2, true), CAIRN_OK);
        cairn_store_range_release(f.store, &r.range);
        cr_assert_eq(read_range(&f, &r, block, CAIRN_PART_RAW, 0, 3, true), CAIRN_ECORRUPT);
        cr_assert(cairn_block_stale(block));
        cairn_store_unhold(f.store, block);
        cr_assert_eq(fixture_get(&f, 1, 1, CAIRN_PART_RAW), CAIRN_ENOENT);
        cr_assert_eq(fixture_stats(&f).corrupt_blocks, 1);
        fixture_finish(&f);
}

Test(range, walk_meets_every_block_once)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        struct cairn_key missing = fixture_key(999);
        for (uint64_t i = 0; i < 50; i++)
                cr_assert_eq(fixture_put_child(&f, i, &missing, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        for (uint64_t i = 0; i < 50; i += 2)
                cr_assert_eq(fixture_delete(&f, i), CAIRN_OK);
        uint32_t seen[50] = {0}, count = 0;
        struct cairn_block *block;
        for (uint32_t at = cairn_store_walk(f.store, 0, &block); at;
             at = cairn_store_walk(f.store, at, &block)) {
                for (uint64_t i = 0; i < 50; i++) {
                        struct cairn_key key = fixture_key(i);
                        seen[i] += cairn_key_equal(&key, cairn_block_key(block));
                }
                cairn_store_unhold(f.store, block);
                count++;
        }
        cr_assert_eq(count, 25);
        for (uint64_t i = 0; i < 50; i++)
                cr_assert_eq(seen[i], i % 2);
        fixture_finish(&f);
}

static void view_of(struct fixture *f, uint64_t number, struct cairn_block **ret_block,
                    struct cairn_block_view *ret_view)
{
        struct fixture_acquire acquire;
        *ret_block = hold(f, number);
        fixture_acquire(f, &acquire, *ret_block, CAIRN_PART_RAW);
        fixture_until(f, &acquire.result.done);
        cr_assert_eq(acquire.result.status, CAIRN_OK);
        cr_assert_eq(cairn_block_view(f->store, *ret_block, CAIRN_PART_RAW, ret_view), CAIRN_OK);
}

static void let_go(struct fixture *f, struct cairn_block *block)
{
        cairn_store_unpin(f->store, block, CAIRN_PART_RAW);
        cairn_store_unhold(f->store, block);
}

Test(view, is_read_in_place_and_tells_when_it_ended)
{
        struct fixture f;
        fixture_init(&f);
        f.options.views = true;
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_block *block;
        struct cairn_block_view view;
        view_of(&f, 1, &block, &view);
        uint8_t *bytes = mmap(NULL, view.segment_bytes, PROT_READ, MAP_SHARED, view.fd, 0);
        cr_assert_neq(bytes, MAP_FAILED);
        static uint8_t expected[FIXTURE_RAW_BYTES];
        cr_assert_eq(view.size_bytes, FIXTURE_LAYERS * FIXTURE_RAW_BYTES);
        for (uint32_t layer = 0; layer < FIXTURE_LAYERS; layer++) {
                fixture_pattern(expected, sizeof(expected), 1, 1, CAIRN_PART_RAW, layer);
                cr_assert_eq(memcmp(bytes + view.offset + layer * sizeof(expected), expected,
                                    sizeof(expected)),
                             0);
        }
        const uint64_t *generation =
            (const uint64_t *)(const void *)(bytes + view.generation_offset);
        cr_assert_eq(*generation, view.generation);
        let_go(&f, block);
        cairn_store_drop_ram(f.store);
        cr_assert_neq(*generation, view.generation);
        munmap(bytes, view.segment_bytes);
        fixture_finish(&f);
}

Test(view, cannot_be_written_in_any_way)
{
        struct fixture f;
        fixture_init(&f);
        f.options.views = true;
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_block *block;
        struct cairn_block_view view;
        view_of(&f, 1, &block, &view);
        char path[64];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", view.fd);
        int again = open(path, O_RDWR | O_CLOEXEC); // root may, and still not write
        const int fds[] = {view.fd, again};
        for (int i = 0; i < 2; i++) {
                if (fds[i] < 0)
                        continue;
                cr_assert_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0),
                             MAP_FAILED);
                cr_assert_eq(pwrite(fds[i], "x", 1, (off_t)view.offset), -1);
                cr_assert_eq(ftruncate(fds[i], 0), -1);
                cr_assert_eq(fallocate(fds[i], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
                             -1);
                void *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fds[i], 0);
                cr_assert_neq(mapped, MAP_FAILED);
                cr_assert_eq(mprotect(mapped, 4096, PROT_READ | PROT_WRITE), -1);
                munmap(mapped, 4096);
        }
        if (again >= 0)
                close(again);
        fixture_check(&f, block, CAIRN_PART_RAW, 1, 1);
        let_go(&f, block);
        fixture_finish(&f);
}

Test(view, tenants_share_no_segment)
{
        struct fixture f;
        fixture_init(&f);
        f.options.views = true;
        fixture_open(&f);
        uint64_t segments[2];
        for (uint32_t tenant = 0; tenant < 2; tenant++) {
                struct fixture_begin begin;
                memset(&begin, 0, sizeof(begin));
                begin.request = (struct cairn_put_begin){.on_begun = fixture_on_begun,
                                                         .space = f.space,
                                                         .tenant = tenant,
                                                         .key = fixture_key(tenant),
                                                         .ack = CAIRN_ACK_DISK};
                cairn_store_put_begin(f.store, &begin.request);
                fixture_until(&f, &begin.result.done);
                fixture_fill(&f, begin.result.put, tenant, 1);
                struct fixture_result result = {0};
                cairn_store_put_commit(f.store, begin.result.put, fixture_on_status, &result);
                fixture_until(&f, &result.done);
                struct cairn_block *block;
                struct cairn_block_view view;
                view_of(&f, tenant, &block, &view);
                segments[tenant] = view.segment;
                let_go(&f, block);
        }
        cr_assert_neq(segments[0], segments[1]);
        fixture_finish(&f);
}

// Sealed segments go back whole: other sizes get their memory all the same.
Test(view, budget_moves_between_sizes)
{
        struct fixture f;
        fixture_init(&f);
        f.options.views = true;
        f.options.ram_bytes = 2 << 20;
        fixture_open(&f);
        for (uint64_t i = 0; i < 60; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_block_shape shape = {4, 60000, 0};
        f.shape = shape;
        cr_assert_eq(fixture_space_open(&f, "other", &shape, &f.space), CAIRN_OK);
        for (uint64_t i = 0; i < 12; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cr_assert_eq(fixture_get(&f, 3, 1, CAIRN_PART_RAW), CAIRN_OK);
        cr_assert_leq(fixture_stats(&f).ram_used_bytes, f.options.ram_bytes);
        fixture_finish(&f);
}

Test(view, says_that_its_segment_has_ended)
{
        struct fixture f;
        fixture_init(&f);
        f.options.views = true;
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_block *block;
        struct cairn_block_view view;
        view_of(&f, 1, &block, &view);
        cr_assert_eq(cairn_block_tenant(block), 0);
        cr_assert_lt(view.index, CAIRN_VIEW_SEGMENTS_MAX);
        uint64_t *words = mmap(NULL, view.segment_bytes, PROT_READ, MAP_SHARED, view.fd, 0);
        cr_assert_neq(words, MAP_FAILED);
        cr_assert_eq(words[0], 0);
        cr_assert_gt(view.generation_offset, 0);
        let_go(&f, block);
        fixture_finish(&f);
        cr_assert_neq(words[0], 0);
        munmap(words, view.segment_bytes);
}

// Pins the block's raw part and spoils a byte of it in RAM.
static struct cairn_block *spoil(struct fixture *f, uint64_t number)
{
        struct fixture_acquire acquire;
        struct cairn_block *block = hold(f, number);
        fixture_acquire(f, &acquire, block, CAIRN_PART_RAW);
        fixture_until(f, &acquire.result.done);
        cr_assert_eq(acquire.result.status, CAIRN_OK);
        ((uint8_t *)cairn_block_raw(block, 1))[77] ^= 1;
        cr_assert_eq(cairn_block_verify(block, CAIRN_PART_RAW, 0, 1), CAIRN_OK);
        cr_assert_eq(cairn_block_verify(block, CAIRN_PART_RAW, 1, 1), CAIRN_ECORRUPT);
        return block;
}

Test(copy_in_ram, that_is_corrupt_is_read_from_nvme_again)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_block *block = spoil(&f, 1);
        cr_assert_eq(cairn_store_drop_corrupt_copy(f.store, block, CAIRN_PART_RAW), CAIRN_OK);
        cr_assert_not(cairn_block_stale(block));
        cr_assert_eq(fixture_stats(&f).corrupt_copies, 1);
        cr_assert_eq(fixture_stats(&f).corrupt_blocks, 0);
        cairn_store_unhold(f.store, block);
        cr_assert_eq(fixture_get(&f, 1, 1, CAIRN_PART_RAW), CAIRN_OK);
        cr_assert_eq(cairn_store_audit_counters(f.store), CAIRN_OK);
        fixture_finish(&f);
}

Test(copy_in_ram, that_is_corrupt_and_pinned_by_others_makes_a_miss)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_block *block = spoil(&f, 1);
        struct fixture_acquire other;
        fixture_acquire(&f, &other, block, CAIRN_PART_RAW);
        fixture_until(&f, &other.result.done);
        cr_assert_eq(cairn_store_drop_corrupt_copy(f.store, block, CAIRN_PART_RAW), CAIRN_EHELD);
        cr_assert(cairn_block_stale(block));
        cr_assert_eq(fixture_stats(&f).corrupt_blocks, 1);
        cairn_store_unpin(f.store, block, CAIRN_PART_RAW);
        cairn_store_unhold(f.store, block);
        cr_assert_eq(fixture_get(&f, 1, 1, CAIRN_PART_RAW), CAIRN_ENOENT);
        cr_assert_eq(fixture_put(&f, 1, 2, CAIRN_ACK_DISK), CAIRN_OK);
        cr_assert_eq(fixture_get(&f, 1, 2, CAIRN_PART_RAW), CAIRN_OK);
        cr_assert_eq(cairn_store_audit_counters(f.store), CAIRN_OK);
        fixture_finish(&f);
}

Test(copy_in_ram, that_is_corrupt_and_the_only_one_makes_a_miss)
{
        struct fixture f;
        fixture_init(&f);
        f.options.nvme_bytes = 0;
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        struct cairn_block *block = spoil(&f, 1);
        cr_assert_eq(cairn_store_drop_corrupt_copy(f.store, block, CAIRN_PART_RAW), CAIRN_ENOENT);
        cr_assert_eq(fixture_stats(&f).corrupt_blocks, 1);
        cairn_store_unhold(f.store, block);
        cr_assert_eq(fixture_get(&f, 1, 1, CAIRN_PART_RAW), CAIRN_ENOENT);
        cr_assert_eq(fixture_put(&f, 1, 2, CAIRN_ACK_MEMORY), CAIRN_OK);
        cr_assert_eq(fixture_get(&f, 1, 2, CAIRN_PART_RAW), CAIRN_OK);
        cr_assert_eq(cairn_store_audit_counters(f.store), CAIRN_OK);
        fixture_finish(&f);
}
