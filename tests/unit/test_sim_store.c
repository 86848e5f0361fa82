// The store over a device that fails on command: the fault cases of storage, by their numbers.
#include "tests/sim/sim_device.h"
#include "store_fixture.h"

enum {
        BOTH = CAIRN_PART_RAW | CAIRN_PART_CODE
};

struct faulty {
        struct fixture f;
        struct sim_device *device;
};

static void init(struct faulty *faulty)
{
        fixture_init(&faulty->f);
        faulty->device = sim_device_create(3, UINT64_MAX);
        faulty->f.internal.device = sim_device_device(faulty->device);
        faulty->f.internal.catalog_inline = true;
        faulty->f.internal.catalog_no_sync = true;
}

static void finish(struct faulty *faulty)
{
        fixture_finish(&faulty->f);
        sim_device_destroy(faulty->device);
}

// Case 1: 200 puts on a disk tier of 64 blocks with failing writes.
Test(sim_store, case_1_failed_write_leaves_no_trace)
{
        struct faulty faulty;
        struct fixture *f = &faulty.f;
        bool stored[200];
        uint32_t failed = 0;
        init(&faulty);
        f->shape = (struct cairn_block_shape){4, 60000, 0};
        f->options.ram_bytes = 32 << 20;
        f->options.nvme_bytes = 80 << 20;
        fixture_open(f);
        struct sim_faults faults = {.write_share = 200000};
        sim_device_faults(faulty.device, &faults);
        for (uint64_t i = 0; i < 200; i++) {
                stored[i] = fixture_put(f, i, 1, CAIRN_ACK_DISK) == CAIRN_OK;
                failed += !stored[i];
                struct cairn_key key = fixture_key(i);
                struct cairn_block *block;
                int status = cairn_store_hold(f->store, f->space, &key, &block);
                cr_assert_eq(status, stored[i] ? CAIRN_OK : CAIRN_ENOENT);
                if (status == CAIRN_OK)
                        cairn_store_unhold(f->store, block);
        }
        cr_assert_gt(failed, 0);
        cr_assert_eq(fixture_stats(f).puts_failed, failed);
        cr_assert_geq(fixture_stats(f).io_errors, failed * CAIRN_WRITE_ATTEMPTS_MAX);
        sim_device_faults(faulty.device, &(struct sim_faults){0});
        cairn_store_drop_ram(f->store);
        for (uint64_t i = 0; i < 200; i++)
                cr_assert_eq(fixture_get(f, i, 1, CAIRN_PART_RAW),
                             stored[i] ? CAIRN_OK : CAIRN_ENOENT);
        for (uint64_t i = 0; i < 200; i++) {
                if (!stored[i])
                        cr_assert_eq(fixture_put(f, i, 2, CAIRN_ACK_DISK), CAIRN_OK);
        }
        cairn_store_drop_ram(f->store);
        for (uint64_t i = 0; i < 200; i++)
                cr_assert_eq(fixture_get(f, i, stored[i] ? 1 : 2, CAIRN_PART_RAW), CAIRN_OK);
        finish(&faulty);
}

// Case 9: the reader gives up, its RAM is wanted by others, and then the read ends.
Test(sim_store, case_9_memory_of_a_late_read_is_not_reused_before_it_ends)
{
        struct faulty faulty;
        struct fixture *f = &faulty.f;
        init(&faulty);
        f->options.ram_bytes = 512 << 10;
        fixture_open(f);
        for (uint64_t i = 0; i < 40; i++)
                cr_assert_eq(fixture_put(f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cairn_store_drop_ram(f->store);
        sim_device_stall(faulty.device, true);
        struct cairn_block *blocks[5];
        struct fixture_acquire acquires[5];
        for (uint64_t i = 0; i < 5; i++) {
                struct cairn_key key = fixture_key(i);
                cr_assert_eq(cairn_store_hold(f->store, f->space, &key, &blocks[i]), CAIRN_OK);
                memset(&acquires[i], 0, sizeof(acquires[i]));
                acquires[i].request = (struct cairn_acquire){.on_ready = fixture_on_ready,
                                                             .block = blocks[i],
                                                             .parts = BOTH,
                                                             .deadline_ms = 1500};
                cairn_store_acquire(f->store, &acquires[i].request);
        }
        fixture_poll(f);
        f->now_ms = 1500;
        for (int i = 0; i < 5; i++) {
                fixture_until(f, &acquires[i].result.done);
                cr_assert_eq(acquires[i].result.status, CAIRN_EDEADLINE);
                cairn_store_unhold(f->store, blocks[i]);
        }
        // Others fill all of RAM with unwritten bytes; then the reads end.
        struct fixture_begin begins[20];
        for (uint64_t i = 0; i < 20; i++)
                fixture_begin(f, &begins[i], 100 + i, NULL, CAIRN_ACK_MEMORY);
        fixture_poll(f);
        bool filled[20];
        for (int i = 0; i < 20; i++) {
                filled[i] = begins[i].result.done;
                if (filled[i])
                        fixture_fill(f, begins[i].result.put, 100 + (uint64_t)i, 1);
        }
        sim_device_stall(faulty.device, false);
        for (int i = 0; i < 20; i++) {
                fixture_until(f, &begins[i].result.done);
                cr_assert_eq(begins[i].result.status, CAIRN_OK);
                if (!filled[i])
                        fixture_fill(f, begins[i].result.put, 100 + (uint64_t)i, 1);
                struct fixture_result result = {0};
                cairn_store_put_commit(f->store, begins[i].result.put, fixture_on_status, &result);
                fixture_until(f, &result.done);
        }
        fixture_settle(f);
        for (uint64_t i = 0; i < 20; i++)
                cr_assert_eq(fixture_get(f, 100 + i, 1, BOTH), CAIRN_OK);
        finish(&faulty);
}

// Case 10: short completions and interruptions end in exact bytes; what never goes on, in a miss
// after a bounded retry.
Test(sim_store, case_10_short_completions)
{
        struct faulty faulty;
        struct fixture *f = &faulty.f;
        init(&faulty);
        fixture_open(f);
        struct sim_faults faults = {.short_share = 700000, .again_share = 200000};
        sim_device_faults(faulty.device, &faults);
        uint32_t done = 0;
        for (uint64_t i = 0; i < 50; i++) {
                int put = fixture_put(f, i, 1, CAIRN_ACK_DISK);
                cairn_store_drop_ram(f->store);
                int get = fixture_get(f, i, 1, BOTH);
                cr_assert(put == CAIRN_OK || put == CAIRN_EIO);
                cr_assert(get == CAIRN_OK || get == CAIRN_EIO ||
                          (put != CAIRN_OK && get == CAIRN_ENOENT));
                done += get == CAIRN_OK;
        }
        cr_assert_gt(done, 25);
        faults = (struct sim_faults){.again_share = 1000000};
        sim_device_faults(faulty.device, &faults);
        cr_assert_eq(fixture_put(f, 100, 1, CAIRN_ACK_DISK), CAIRN_EIO);
        cr_assert_eq(fixture_get(f, 100, 1, BOTH), CAIRN_ENOENT);
        finish(&faulty);
}

// Case 21: the disk is full below the limit, then freed.
Test(sim_store, case_21_disk_full_below_the_limit)
{
        struct faulty faulty;
        struct fixture *f = &faulty.f;
        init(&faulty);
        f->options.nvme_bytes = 16 << 20;
        f->options.slab_bytes = 1 << 20;
        fixture_open(f);
        sim_device_capacity(faulty.device, 3 << 20);
        for (uint64_t i = 0; i < 200; i++)
                cr_assert_eq(fixture_put(f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        struct cairn_store_stats stats = fixture_stats(f);
        cr_assert_gt(stats.evicted_nvme, 0);
        cr_assert_leq(stats.nvme_used_bytes, 3 << 20);
        cr_assert_eq(f->warnings, 1);
        cr_assert_eq(fixture_delete(f, 199), CAIRN_OK);
        uint64_t evicted = stats.evicted_nvme;
        sim_device_capacity(faulty.device, 16 << 20);
        f->now_ms += 2 * CAIRN_NVME_RETRY_MS;
        for (uint64_t i = 300; i < 400; i++)
                cr_assert_eq(fixture_put(f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cr_assert_eq(fixture_stats(f).evicted_nvme, evicted);
        cr_assert_gt(fixture_stats(f).nvme_used_bytes, 3 << 20);
        finish(&faulty);
}

// Case 22: filled to 90 %, restarted, half as much again.
Test(sim_store, case_22_restart_keeps_the_limit)
{
        for (int crash = 0; crash < 2; crash++) {
                struct faulty faulty;
                struct fixture *f = &faulty.f;
                init(&faulty);
                f->options.nvme_bytes = 4 << 20;
                fixture_open(f);
                uint64_t fit =
                    (4u << 20) /
                    cairn_block_space(f->store, &(struct cairn_block){0})->layout.slot_bytes;
                uint64_t most = fit * 9 / 10;
                for (uint64_t i = 0; i < most; i++)
                        cr_assert_eq(fixture_put(f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
                uint64_t evicted = fixture_stats(f).evicted_nvme;
                if (crash) {
                        sim_device_crash(faulty.device);
                        cairn_store_abandon(f->store);
                } else {
                        fixture_close(f);
                }
                fixture_open(f);
                cr_assert_eq(fixture_stats(f).recovered_blocks, most - evicted);
                cr_assert_eq(fixture_stats(f).recovered_orphans, 0);
                for (uint64_t i = most; i < most * 3 / 2; i++) {
                        cr_assert_eq(fixture_put(f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
                        struct cairn_store_stats stats = fixture_stats(f);
                        cr_assert_leq(stats.nvme_used_bytes + stats.nvme_free_bytes,
                                      f->options.nvme_bytes);
                        cr_assert_eq(cairn_store_audit_counters(f->store), CAIRN_OK);
                }
                finish(&faulty);
        }
}

// Case 25: the disk stalls: who set a deadline hears of it in time, and RAM serves on.
Test(sim_store, case_25_stalled_disk)
{
        struct faulty faulty;
        struct fixture *f = &faulty.f;
        init(&faulty);
        fixture_open(f);
        cr_assert_eq(fixture_put(f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cairn_store_drop_ram(f->store);
        cr_assert_eq(fixture_put(f, 2, 1, CAIRN_ACK_DISK), CAIRN_OK);
        sim_device_stall(faulty.device, true);
        struct cairn_key key = fixture_key(1);
        struct cairn_block *block;
        struct fixture_acquire acquire = {0};
        cr_assert_eq(cairn_store_hold(f->store, f->space, &key, &block), CAIRN_OK);
        acquire.request = (struct cairn_acquire){.on_ready = fixture_on_ready,
                                                 .block = block,
                                                 .parts = BOTH,
                                                 .deadline_ms = f->now_ms + 1000};
        cairn_store_acquire(f->store, &acquire.request);
        for (int i = 0; i < 60; i++) {
                f->now_ms += 1000;
                cr_assert_eq(fixture_get(f, 2, 1, BOTH), CAIRN_OK);
                cr_assert_eq(fixture_put(f, 100 + (uint64_t)i, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
                cr_assert_eq(fixture_get(f, 100 + (uint64_t)i, 1, BOTH), CAIRN_OK);
                cr_assert(acquire.result.done);
        }
        cr_assert_eq(acquire.result.status, CAIRN_EDEADLINE);
        cairn_store_unhold(f->store, block);
        sim_device_stall(faulty.device, false);
        fixture_settle(f);
        cairn_store_drop_ram(f->store);
        for (uint64_t i = 100; i < 160; i++)
                cr_assert_eq(fixture_get(f, i, 1, BOTH), CAIRN_OK);
        cr_assert_eq(fixture_get(f, 1, 1, BOTH), CAIRN_OK);
        finish(&faulty);
}

// Case 43: every write fails: RAM alone and one alarm; then it recovers by itself.
Test(sim_store, case_43_device_gone_and_back)
{
        struct faulty faulty;
        struct fixture *f = &faulty.f;
        init(&faulty);
        fixture_open(f);
        struct sim_faults faults = {.eio_share = 1000000};
        sim_device_faults(faulty.device, &faults);
        for (uint64_t i = 0; i < 30; i++)
                cr_assert_eq(fixture_put(f, i, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        for (int i = 0; i < 50; i++) {
                f->now_ms += 500;
                fixture_poll(f);
        }
        cr_assert(fixture_stats(f).nvme_failed);
        cr_assert_eq(f->warnings, 1);
        int status = fixture_put(f, 100, 1, CAIRN_ACK_DISK);
        cr_assert(status == CAIRN_EIO || status == CAIRN_ENOSPC);
        for (uint64_t i = 0; i < 30; i++)
                cr_assert_eq(fixture_get(f, i, 1, BOTH), CAIRN_OK);
        sim_device_faults(faulty.device, &(struct sim_faults){0});
        for (int i = 0; i < 50; i++) {
                f->now_ms += 500;
                fixture_poll(f);
        }
        fixture_settle(f);
        cr_assert_not(fixture_stats(f).nvme_failed);
        cairn_store_drop_ram(f->store);
        for (uint64_t i = 0; i < 30; i++)
                cr_assert_eq(fixture_get(f, i, 1, BOTH), CAIRN_OK);
        finish(&faulty);
}

// A limit that was lowered while the daemon was down holds after the start.
Test(sim_store, lowered_limit_is_reached_by_eviction)
{
        struct faulty faulty;
        struct fixture *f = &faulty.f;
        init(&faulty);
        f->options.nvme_bytes = 8 << 20;
        f->options.slab_bytes = 1 << 20;
        fixture_open(f);
        for (uint64_t i = 0; i < 120; i++)
                cr_assert_eq(fixture_put(f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
        fixture_close(f);
        f->options.nvme_bytes = 3 << 20;
        fixture_open(f);
        for (int i = 0; i < 200; i++)
                fixture_poll(f);
        struct cairn_store_stats stats = fixture_stats(f);
        cr_assert_leq(stats.nvme_used_bytes + stats.nvme_free_bytes, 3 << 20);
        cr_assert_gt(stats.blocks, 20);
        finish(&faulty);
}

// Blocks that name each other as parents have no leaf: they are evicted all the same.
Test(sim_store, parents_in_a_circle_do_not_fill_the_disk)
{
        struct faulty faulty;
        struct fixture *f = &faulty.f;
        init(&faulty);
        f->options.nvme_bytes = 2 << 20;
        fixture_open(f);
        for (uint64_t i = 0; i < 200; i++) {
                struct cairn_key other = fixture_key(i ^ 1);
                cr_assert_eq(fixture_put_child(f, i, &other, 1, CAIRN_ACK_DISK), CAIRN_OK,
                             "block %lu", (unsigned long)i);
        }
        finish(&faulty);
}

static int fail_once(void *arg)
{
        int *status = arg;
        int now = *status;
        *status = CAIRN_OK;
        return now;
}

// A delete fails while the key is put again: the old version is back for a moment, and then the new
// one takes its place.
Test(sim_store, put_over_a_delete_that_fails)
{
        for (int ack = 0; ack < 2; ack++) {
                struct faulty faulty;
                struct fixture *f = &faulty.f;
                int status = CAIRN_OK;
                init(&faulty);
                f->internal.on_catalog_fault = fail_once;
                f->internal.on_catalog_fault_arg = &status;
                fixture_open(f);
                cr_assert_eq(fixture_put(f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
                struct cairn_key key = fixture_key(1);
                struct fixture_result deleted = {0}, committed = {0};
                struct fixture_begin begin;
                status = CAIRN_EIO;
                cairn_store_delete(f->store, f->space, &key, NULL, fixture_on_status, &deleted);
                fixture_begin(f, &begin, 1, NULL, (enum cairn_ack)ack);
                fixture_until(f, &begin.result.done);
                cr_assert_eq(begin.result.status, CAIRN_OK);
                fixture_until(f, &deleted.done);
                cr_assert_eq(deleted.status, CAIRN_EIO);
                cr_assert_eq(fixture_get(f, 1, 1, BOTH), CAIRN_OK);
                fixture_fill(f, begin.result.put, 1, 2);
                cairn_store_put_commit(f->store, begin.result.put, fixture_on_status, &committed);
                fixture_until(f, &committed.done);
                cr_assert_eq(fixture_get(f, 1, 2, BOTH), CAIRN_OK);
                fixture_settle(f);
                fixture_close(f);
                fixture_open(f);
                cr_assert_eq(fixture_get(f, 1, 2, BOTH), CAIRN_OK);
                cr_assert_eq(fixture_stats(f).blocks, 1);
                finish(&faulty);
        }
}
