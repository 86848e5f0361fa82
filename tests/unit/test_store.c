// The store as the daemon uses it: puts with both acknowledgements, holds, reads, deletes,
// eviction, restart.
#include "store_fixture.h"

enum {
        BOTH = CAIRN_PART_RAW | CAIRN_PART_CODE
};

Test(store, put_in_memory_then_read)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        cr_assert_eq(fixture_get(&f, 1, 1, BOTH), CAIRN_OK);
        cr_assert_eq(fixture_get(&f, 2, 1, BOTH), CAIRN_ENOENT);
        cr_assert_eq(fixture_put(&f, 1, 2, CAIRN_ACK_MEMORY), CAIRN_EEXIST);
        cr_assert_eq(fixture_get(&f, 1, 1, BOTH), CAIRN_OK);
        fixture_finish(&f);
}

Test(store, put_on_disk_survives_dropping_ram)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        for (uint64_t i = 0; i < 20; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cr_assert_gt(cairn_store_drop_ram(f.store), 0);
        cr_assert_eq(fixture_stats(&f).ram_used_bytes, 0);
        for (uint64_t i = 0; i < 20; i++) {
                uint32_t parts = i % 3 == 0 ? CAIRN_PART_CODE : i % 3 == 1 ? CAIRN_PART_RAW : BOTH;
                cr_assert_eq(fixture_get(&f, i, 1, parts), CAIRN_OK);
        }
        cr_assert_gt(fixture_stats(&f).nvme_reads, 0);
        fixture_finish(&f);
}

Test(store, restart_finds_what_was_committed)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        struct cairn_key parent = {{0}};
        for (uint64_t i = 0; i < 30; i++) {
                cr_assert_eq(fixture_put_child(&f, i, i ? &parent : NULL, 1, i % 2), CAIRN_OK);
                parent = fixture_key(i);
        }
        cr_assert_eq(fixture_drain(&f), CAIRN_OK);
        fixture_close(&f);
        fixture_open(&f);
        cr_assert_eq(fixture_stats(&f).recovered_blocks, 30);
        cr_assert_eq(fixture_stats(&f).recovered_orphans, 0);
        for (uint64_t i = 0; i < 30; i++)
                cr_assert_eq(fixture_get(&f, i, 1, BOTH), CAIRN_OK);
        struct cairn_key key = fixture_key(3);
        struct cairn_block *block;
        cr_assert_eq(cairn_store_hold(f.store, f.space, &key, &block), CAIRN_OK);
        cr_assert_gt(cairn_block_generation(block), 0);
        cairn_store_unhold(f.store, block);
        fixture_finish(&f);
}

Test(store, space_is_one_of_its_shape)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        uint32_t space;
        cr_assert_eq(fixture_space_open(&f, "space", &f.shape, &space), CAIRN_OK);
        cr_assert_eq(space, f.space);
        struct cairn_block_shape other = f.shape;
        other.raw_layer_bytes++;
        cr_assert_eq(fixture_space_open(&f, "space", &other, &space), CAIRN_EMISMATCH);
        cr_assert_eq(fixture_space_open(&f, "second", &other, &space), CAIRN_OK);
        cr_assert_neq(space, f.space);
        other.layers = 0;
        cr_assert_eq(fixture_space_open(&f, "third", &other, &space), CAIRN_EINVAL);
        fixture_close(&f);
        fixture_open(&f);
        cr_assert_eq(cairn_store_spaces_count(f.store), 2);
        struct cairn_store_space_info info;
        cairn_store_space_info(f.store, 0, &info);
        cr_assert_eq(info.id, f.space);
        cr_assert_eq(info.description_bytes, 5);
        cr_assert_eq(memcmp(info.description, "space", 5), 0);
        fixture_finish(&f);
}

Test(store, delete_is_durable_and_holders_keep_reading)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_key key = fixture_key(1);
        struct cairn_block *old;
        cr_assert_eq(cairn_store_hold(f.store, f.space, &key, &old), CAIRN_OK);
        cr_assert_eq(fixture_delete(&f, 1), CAIRN_OK);
        cr_assert(cairn_block_stale(old));
        cr_assert_eq(fixture_get(&f, 1, 1, BOTH), CAIRN_ENOENT);
        cr_assert_eq(fixture_delete(&f, 1), CAIRN_ENOENT);
        cr_assert_eq(fixture_put(&f, 1, 2, CAIRN_ACK_DISK), CAIRN_OK);
        cairn_store_drop_ram(f.store);
        struct fixture_acquire acquire;
        fixture_acquire(&f, &acquire, old, BOTH);
        fixture_until(&f, &acquire.result.done);
        cr_assert_eq(acquire.result.status, CAIRN_OK);
        fixture_check(&f, old, CAIRN_PART_RAW, 1, 1);
        struct cairn_block *new;
        cr_assert_eq(cairn_store_hold(f.store, f.space, &key, &new), CAIRN_OK);
        cr_assert_gt(cairn_block_generation(new), cairn_block_generation(old));
        cairn_store_unhold(f.store, new);
        cairn_store_unpin(f.store, old, BOTH);
        cairn_store_unhold(f.store, old);
        cr_assert_eq(fixture_get(&f, 1, 2, BOTH), CAIRN_OK);
        cr_assert_eq(fixture_delete(&f, 1), CAIRN_OK);
        fixture_close(&f);
        fixture_open(&f);
        cr_assert_eq(fixture_get(&f, 1, 2, BOTH), CAIRN_ENOENT);
        cr_assert_eq(fixture_stats(&f).nvme_used_bytes, 0);
        fixture_finish(&f);
}

Test(store, second_put_of_a_key_waits_for_the_first)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        struct fixture_begin first, second, third;
        fixture_begin(&f, &first, 1, NULL, CAIRN_ACK_MEMORY);
        fixture_begin(&f, &second, 1, NULL, CAIRN_ACK_MEMORY);
        fixture_begin(&f, &third, 1, NULL, CAIRN_ACK_DISK);
        fixture_until(&f, &first.result.done);
        fixture_poll(&f);
        cr_assert_not(second.result.done);
        cairn_store_put_abort(f.store, first.result.put);
        fixture_until(&f, &second.result.done);
        cr_assert_eq(second.result.status, CAIRN_OK);
        cr_assert_not(third.result.done);
        fixture_fill(&f, second.result.put, 1, 2);
        struct fixture_result result = {0};
        cairn_store_put_commit(f.store, second.result.put, fixture_on_status, &result);
        fixture_until(&f, &third.result.done);
        cr_assert_eq(third.result.status, CAIRN_EEXIST);
        cr_assert_eq(fixture_get(&f, 1, 2, BOTH), CAIRN_OK);
        fixture_finish(&f);
}

Test(store, full_ram_evicts_and_then_waits_in_order)
{
        struct fixture f;
        fixture_init(&f);
        f.options.ram_bytes = 512 << 10;
        fixture_open(&f);
        for (uint64_t i = 0; i < 100; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        cr_assert_leq(fixture_stats(&f).ram_used_bytes, f.options.ram_bytes);
        for (uint64_t i = 0; i < 100; i++)
                cr_assert_eq(fixture_get(&f, i, 1, BOTH), CAIRN_OK);
        cr_assert_gt(fixture_stats(&f).evicted_ram, 80);

        // Unfilled puts take all of RAM: the next ones wait, and go on as the first ones are given
        // up.
        struct fixture_begin begins[24];
        uint32_t done = 0;
        for (uint64_t i = 0; i < 24; i++)
                fixture_begin(&f, &begins[i], 1000 + i, NULL, CAIRN_ACK_MEMORY);
        for (int i = 0; i < 20; i++)
                fixture_poll(&f);
        while (done < 24 && begins[done].result.done)
                done++;
        cr_assert(done > 4 && done < 24);
        begins[23].request.deadline_ms = 0;
        for (uint32_t i = 0; i < 24; i++) {
                fixture_until(&f, &begins[i].result.done);
                cr_assert_eq(begins[i].result.status, CAIRN_OK);
                cairn_store_put_abort(f.store, begins[i].result.put);
        }
        fixture_finish(&f);
}

Test(store, waiting_put_ends_at_its_deadline)
{
        struct fixture f;
        fixture_init(&f);
        f.options.ram_bytes = 64 << 10;
        fixture_open(&f);
        struct fixture_begin first, second;
        fixture_begin(&f, &first, 1, NULL, CAIRN_ACK_MEMORY);
        fixture_until(&f, &first.result.done);
        cr_assert_eq(first.result.status, CAIRN_OK);
        memset(&second, 0, sizeof(second));
        second.request = (struct cairn_put_begin){.on_begun = fixture_on_begun,
                                                  .space = f.space,
                                                  .key = fixture_key(2),
                                                  .deadline_ms = 2000};
        cairn_store_put_begin(f.store, &second.request);
        for (int i = 0; i < 5; i++)
                fixture_poll(&f);
        cr_assert_not(second.result.done);
        f.now_ms = 2000;
        fixture_until(&f, &second.result.done);
        cr_assert_eq(second.result.status, CAIRN_EDEADLINE);
        cairn_store_put_abort(f.store, first.result.put);
        fixture_finish(&f);
}

Test(store, block_larger_than_ram_is_refused)
{
        struct fixture f;
        fixture_init(&f);
        f.options.ram_bytes = 40 << 10;
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_MEMORY), CAIRN_ENOMEM);
        fixture_finish(&f);
}

Test(store, full_nvme_evicts_leaves_first)
{
        struct fixture f;
        fixture_init(&f);
        f.options.nvme_bytes = 2 << 20;
        fixture_open(&f);
        struct cairn_key parent = {{0}};
        for (uint64_t i = 0; i < 20; i++) {
                cr_assert_eq(fixture_put_child(&f, i, i ? &parent : NULL, 1, CAIRN_ACK_DISK),
                             CAIRN_OK);
                parent = fixture_key(i);
        }
        for (uint64_t i = 100; i < 160; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_store_stats stats = fixture_stats(&f);
        cr_assert_gt(stats.evicted_nvme, 0);
        cr_assert_leq(stats.nvme_used_bytes + stats.nvme_free_bytes, f.options.nvme_bytes);
        // Of the chain a prefix is left: no block without its parent.
        bool missing = false;
        for (uint64_t i = 0; i < 20; i++) {
                int status = fixture_get(&f, i, 1, BOTH);
                cr_assert(status == CAIRN_OK ? !missing : status == CAIRN_ENOENT);
                missing = missing || status != CAIRN_OK;
        }
        fixture_finish(&f);
}

Test(store, held_blocks_are_never_evicted)
{
        struct fixture f;
        fixture_init(&f);
        f.options.nvme_bytes = 1 << 20;
        fixture_open(&f);
        struct cairn_block *held[64];
        uint32_t count = 0;
        int status;
        while ((status = fixture_put(&f, count, 1, CAIRN_ACK_DISK)) == CAIRN_OK) {
                cr_assert_lt(count, 64);
                struct cairn_key key = fixture_key(count);
                cr_assert_eq(cairn_store_hold(f.store, f.space, &key, &held[count]), CAIRN_OK);
                count++;
        }
        cr_assert_eq(status, CAIRN_ENOSPC);
        cr_assert_eq(fixture_get(&f, count, 1, BOTH), CAIRN_ENOENT);
        cr_assert_eq(fixture_put(&f, 1000, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        fixture_settle(&f);
        cr_assert_eq(fixture_get(&f, 1000, 1, BOTH), CAIRN_OK);
        for (uint32_t i = 0; i < count; i++) {
                cr_assert_eq(fixture_get(&f, i, 1, BOTH), CAIRN_OK);
                cairn_store_unhold(f.store, held[i]);
        }
        // What stayed in RAM alone goes to NVMe once there is room and time has passed.
        f.now_ms += 5000;
        fixture_settle(&f);
        cr_assert_eq(fixture_stats(&f).ram_blocks > 0, true);
        cairn_store_drop_ram(f.store);
        cr_assert_eq(fixture_get(&f, 1000, 1, BOTH), CAIRN_OK);
        fixture_finish(&f);
}

Test(store, second_daemon_is_refused)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        struct cairn_store *other;
        char text[CAIRN_TEXT_BYTES_MAX];
        cr_assert_eq(cairn_store_open(&f.options, &other, text), CAIRN_EBUSY);
        cr_assert_not_null(strstr(text, "another daemon"));
        fixture_finish(&f);
}

Test(store, time_to_live_ends_a_block)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        struct fixture_begin begin;
        memset(&begin, 0, sizeof(begin));
        begin.request = (struct cairn_put_begin){
            .on_begun = fixture_on_begun, .space = f.space, .key = fixture_key(1), .ttl_ms = 500};
        cairn_store_put_begin(f.store, &begin.request);
        fixture_until(&f, &begin.result.done);
        fixture_fill(&f, begin.result.put, 1, 1);
        struct fixture_result result = {0};
        cairn_store_put_commit(f.store, begin.result.put, fixture_on_status, &result);
        fixture_until(&f, &result.done);
        f.now_ms += 499;
        cr_assert_eq(fixture_get(&f, 1, 1, BOTH), CAIRN_OK);
        f.now_ms += 1;
        cr_assert_eq(fixture_get(&f, 1, 1, BOTH), CAIRN_ENOENT);
        cr_assert_eq(fixture_put(&f, 1, 2, CAIRN_ACK_MEMORY), CAIRN_OK);
        cr_assert_eq(fixture_get(&f, 1, 2, BOTH), CAIRN_OK);
        fixture_finish(&f);
}

Test(store, fallback_devices_give_the_same_answers)
{
        for (int mode = 0; mode < 4; mode++) {
                struct fixture f;
                fixture_init(&f);
                f.options.force_sync_device = mode & 1;
                f.options.force_buffered = mode & 2;
                fixture_open(&f);
                cr_assert_eq(fixture_stats(&f).device_uring && (mode & 1), false);
                for (uint64_t i = 0; i < 10; i++)
                        cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
                cairn_store_drop_ram(f.store);
                for (uint64_t i = 0; i < 10; i++)
                        cr_assert_eq(fixture_get(&f, i, 1, BOTH), CAIRN_OK);
                fixture_finish(&f);
        }
}

// Reads block after block in a circle. Returns the share of reads that RAM served, in percent, in
// the last of them.
static uint32_t circle(struct fixture *f, uint64_t first, uint32_t count, uint32_t rounds)
{
        uint64_t hits = 0;
        for (uint32_t round = 0; round < rounds; round++) {
                hits = fixture_stats(f).ram_hits;
                for (uint64_t i = 0; i < count; i++) {
                        cr_assert_eq(fixture_get(f, first + i, 1, CAIRN_PART_RAW), CAIRN_OK);
                        struct cairn_key key = fixture_key(first + i);
                        struct cairn_block *block;
                        cr_assert_eq(cairn_store_hold(f->store, f->space, &key, &block), CAIRN_OK);
                        cairn_store_touch(f->store, block);
                        cairn_store_unhold(f->store, block);
                }
                hits = fixture_stats(f).ram_hits - hits;
        }
        return (uint32_t)(100 * hits / count);
}

static void check_working_set(const char *policy)
{
        struct fixture f;
        fixture_init(&f);
        f.options.eviction = cairn_eviction_by_name(policy);
        f.shape.code_layer_bytes = 0;
        f.options.ram_bytes = (50 * 36 + 4) << 10; // fifty blocks
        fixture_open(&f);
        for (uint64_t i = 0; i < 100; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cr_assert_geq(circle(&f, 0, 40, 3), 100, "%s", policy);
        cr_assert_geq(circle(&f, 0, 55, 4), 75, "%s", policy);
        // And another working set takes its place.
        cr_assert_geq(circle(&f, 60, 40, 4), 100, "%s", policy);
        fixture_finish(&f);
}

Test(store, working_set_a_little_larger_than_ram_still_hits)
{
        for (size_t i = 0; cairn_eviction_name(i); i++)
                check_working_set(cairn_eviction_name(i));
}
