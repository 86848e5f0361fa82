// Quotas and guarantees of tenants in both tiers (case 28), expiry, admission, and puts that want
// on disk what RAM has alone.
#include "policy/admission/admission.h"
#include "store_fixture.h"

enum {
        ALICE = 1001,
        BOB = 1002
};
#define SLOT (f.store->spaces[0]->layout.slot_bytes)

struct put_as {
        int status;
        char refusal[CAIRN_TEXT_BYTES_MAX];
        bool done;
        const struct fixture *f;
        struct cairn_put *put;
};
struct begin_as {
        struct cairn_put_begin request; // first
        struct put_as put;
};

static void keep_refusal(struct put_as *put, int status)
{
        const char *why = cairn_store_refusal(put->f->store);
        put->status = status;
        put->done = true;
        snprintf(put->refusal, sizeof(put->refusal), "%s", why ? why : "");
}

static void on_begun_as(struct cairn_put_begin *request, int status, struct cairn_put *put)
{
        struct begin_as *begin = (struct begin_as *)request;
        keep_refusal(&begin->put, status);
        begin->put.put = put;
}

static void on_committed_as(void *arg, int status)
{
        keep_refusal(arg, status);
}

static void begin_as(struct fixture *f, struct begin_as *begin, uint32_t tenant, uint64_t number,
                     enum cairn_ack ack)
{
        *begin = (struct begin_as){.request = {.on_begun = on_begun_as,
                                               .space = f->space,
                                               .tenant = tenant,
                                               .key = fixture_key(number),
                                               .ack = ack},
                                   .put = {.f = f}};
        cairn_store_put_begin(f->store, &begin->request);
}

static struct put_as put_as(struct fixture *f, uint32_t tenant, uint64_t number, enum cairn_ack ack)
{
        struct begin_as begin;
        begin_as(f, &begin, tenant, number, ack);
        fixture_until(f, &begin.put.done);
        if (begin.put.status != CAIRN_OK)
                return begin.put;
        fixture_fill(f, begin.put.put, number, 1);
        begin.put.done = false;
        cairn_store_put_commit(f->store, begin.put.put, on_committed_as, &begin.put);
        fixture_until(f, &begin.put.done);
        return begin.put;
}

static struct cairn_store_tenant_info info_of(const struct fixture *f, uint32_t tenant)
{
        struct cairn_store_tenant_info info;
        for (size_t i = 0; i < cairn_store_tenants_count(f->store); i++) {
                cairn_store_tenant_info(f->store, i, &info);
                if (info.tenant == tenant)
                        return info;
        }
        cr_assert_fail("no such tenant");
        return info;
}

static bool is_there(struct fixture *f, uint64_t number)
{
        struct cairn_key key = fixture_key(number);
        struct cairn_block *block;
        if (cairn_store_hold(f->store, f->space, &key, &block) != CAIRN_OK)
                return false;
        cairn_store_unhold(f->store, block);
        return true;
}

Test(quota, case_28_put_150_of_100_and_read_back)
{
        struct fixture f;
        fixture_init(&f);
        f.options.nvme_bytes = 64 << 20;
        fixture_open(&f);
        for (uint64_t i = 1000; i < 1020; i++)
                cr_assert_eq(put_as(&f, BOB, i, CAIRN_ACK_DISK).status, CAIRN_OK);
        const struct cairn_quota quota = {.nvme_bytes = 100 * SLOT};
        cr_assert_eq(cairn_store_quota_set(f.store, ALICE, &quota), CAIRN_OK);
        for (uint64_t i = 0; i < 150; i++) {
                cr_assert_eq(put_as(&f, ALICE, i, CAIRN_ACK_DISK).status, CAIRN_OK);
                cr_assert_leq(info_of(&f, ALICE).nvme_bytes, quota.nvme_bytes);
        }
        fixture_settle(&f);
        cairn_store_drop_ram(f.store);
        // Her oldest went, and nobody else's.
        for (uint64_t i = 0; i < 150; i++)
                cr_assert_eq(fixture_get(&f, i, 1, CAIRN_PART_RAW),
                             i < 50 ? CAIRN_ENOENT : CAIRN_OK, "block %lu", (unsigned long)i);
        for (uint64_t i = 1000; i < 1020; i++)
                cr_assert_eq(fixture_get(&f, i, 1, CAIRN_PART_RAW), CAIRN_OK);
        struct cairn_store_tenant_info alice = info_of(&f, ALICE);
        cr_assert_eq(alice.blocks, 100);
        cr_assert_eq(alice.evicted[CAIRN_AUDIT_OVER_QUOTA], 50);
        cr_assert_eq(info_of(&f, BOB).blocks, 20);
        fixture_finish(&f);
}

Test(quota, case_28_many_aborted_puts_take_nothing)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        const struct cairn_quota quota = {.ram_bytes = 2 * SLOT, .nvme_bytes = 2 * SLOT};
        cr_assert_eq(cairn_store_quota_set(f.store, ALICE, &quota), CAIRN_OK);
        for (uint64_t i = 0; i < 10000; i++) {
                struct begin_as begin;
                begin_as(&f, &begin, ALICE, i, CAIRN_ACK_DISK);
                do
                        cairn_store_poll(f.store);
                while (!begin.put.done);
                cr_assert_eq(begin.put.status, CAIRN_OK);
                cairn_store_put_abort(f.store, begin.put.put);
        }
        struct cairn_store_tenant_info alice = info_of(&f, ALICE);
        cr_assert_eq(alice.blocks + alice.ram_bytes + alice.nvme_bytes, 0);
        cr_assert_eq(put_as(&f, ALICE, 1, CAIRN_ACK_DISK).status, CAIRN_OK);
        fixture_finish(&f);
}

Test(quota, case_28_a_quota_lowered_while_running_evicts)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        for (uint64_t i = 0; i < 30; i++)
                cr_assert_eq(put_as(&f, ALICE, i, CAIRN_ACK_DISK).status, CAIRN_OK);
        struct cairn_key key = fixture_key(0);
        struct cairn_block *held;
        cr_assert_eq(cairn_store_hold(f.store, f.space, &key, &held), CAIRN_OK);
        const struct cairn_quota quota = {.ram_bytes = 4 * SLOT, .nvme_bytes = 10 * SLOT};
        cr_assert_eq(cairn_store_quota_set(f.store, ALICE, &quota), CAIRN_OK);
        for (int i = 0; i < 50; i++)
                fixture_poll(&f);
        struct cairn_store_tenant_info alice = info_of(&f, ALICE);
        cr_assert_eq(alice.nvme_bytes, 10 * SLOT);
        cr_assert_leq(alice.ram_bytes, 4 * SLOT);
        cr_assert(is_there(&f, 0), "what is held stays");
        cairn_store_unhold(f.store, held);
        // A held block alone is more than the quota: it goes once it is let go.
        cr_assert_eq(cairn_store_hold(f.store, f.space, &key, &held), CAIRN_OK);
        const struct cairn_quota nothing = {.ram_bytes = 4 * SLOT, .nvme_bytes = 1};
        cr_assert_eq(cairn_store_quota_set(f.store, ALICE, &nothing), CAIRN_OK);
        for (int i = 0; i < 50; i++)
                fixture_poll(&f);
        cr_assert_eq(info_of(&f, ALICE).blocks, 1);
        cairn_store_unhold(f.store, held);
        for (int i = 0; i < 50; i++)
                fixture_poll(&f);
        cr_assert_eq(info_of(&f, ALICE).blocks, 0);
        fixture_finish(&f);
}

Test(quota, what_cannot_fit_is_refused_and_the_quota_named)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        struct cairn_quota quota = {.ram_bytes = SLOT / 2};
        cr_assert_eq(cairn_store_quota_set(f.store, ALICE, &quota), CAIRN_OK);
        struct put_as put = put_as(&f, ALICE, 1, CAIRN_ACK_MEMORY);
        cr_assert_eq(put.status, CAIRN_ENOSPC);
        cr_assert_not_null(strstr(put.refusal, "tenant 1001's quota of RAM"), "%s", put.refusal);
        cr_assert_eq(put_as(&f, BOB, 2, CAIRN_ACK_MEMORY).status, CAIRN_OK);

        quota = (struct cairn_quota){.nvme_bytes = 1 * SLOT};
        cr_assert_eq(cairn_store_quota_set(f.store, ALICE, &quota), CAIRN_OK);
        cr_assert_eq(put_as(&f, ALICE, 3, CAIRN_ACK_DISK).status, CAIRN_OK);
        struct cairn_key key = fixture_key(3);
        struct cairn_block *held;
        cr_assert_eq(cairn_store_hold(f.store, f.space, &key, &held), CAIRN_OK);
        put = put_as(&f, ALICE, 4, CAIRN_ACK_DISK);
        cr_assert_eq(put.status, CAIRN_ENOSPC);
        cr_assert_not_null(strstr(put.refusal, "tenant 1001's quota of NVMe"), "%s", put.refusal);
        cr_assert_not(is_there(&f, 4));
        // In memory it may be; it goes to disk when there is room.
        cr_assert_eq(put_as(&f, ALICE, 5, CAIRN_ACK_MEMORY).status, CAIRN_OK);
        cr_assert_eq(put_as(&f, BOB, 6, CAIRN_ACK_DISK).status, CAIRN_OK);
        cr_assert_gt(info_of(&f, ALICE).refused_quota, 2);
        cr_assert_eq(info_of(&f, BOB).refused_quota, 0);
        cairn_store_unhold(f.store, held);
        fixture_settle(&f);
        fixture_finish(&f);
}

Test(quota, impossible_quotas_are_refused)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        struct cairn_quota quota = {.ram_bytes = 1000, .ram_guaranteed_bytes = 1001};
        cr_assert_eq(cairn_store_quota_set(f.store, ALICE, &quota), CAIRN_EINVAL);
        quota = (struct cairn_quota){.ram_guaranteed_bytes = f.options.ram_bytes / 2};
        cr_assert_eq(cairn_store_quota_set(f.store, ALICE, &quota), CAIRN_OK);
        quota.ram_guaranteed_bytes += 1;
        cr_assert_eq(cairn_store_quota_set(f.store, BOB, &quota), CAIRN_EINVAL);
        cr_assert_eq(cairn_store_quota_set(f.store, ALICE, &quota), CAIRN_OK,
                     "its own is replaced");
        quota = (struct cairn_quota){.nvme_guaranteed_bytes = f.options.nvme_bytes + 1};
        cr_assert_eq(cairn_store_quota_set(f.store, BOB, &quota), CAIRN_EINVAL);
        fixture_finish(&f);
}

Test(quota, nobody_takes_anothers_guaranteed_share)
{
        struct fixture f;
        fixture_init(&f);
        f.options.ram_bytes = 1 << 20;
        f.options.nvme_bytes = 3 << 20;
        fixture_open(&f);
        const struct cairn_quota quota = {.ram_guaranteed_bytes = 5 * SLOT,
                                          .nvme_guaranteed_bytes = 20 * SLOT};
        cr_assert_eq(cairn_store_quota_set(f.store, ALICE, &quota), CAIRN_OK);
        for (uint64_t i = 0; i < 20; i++)
                cr_assert_eq(put_as(&f, ALICE, i, CAIRN_ACK_DISK).status, CAIRN_OK);
        for (uint64_t i = 100; i < 300; i++) {
                cr_assert_eq(put_as(&f, BOB, i, CAIRN_ACK_DISK).status, CAIRN_OK);
                cr_assert_geq(info_of(&f, ALICE).ram_bytes, 5 * SLOT);
        }
        cr_assert_eq(info_of(&f, ALICE).blocks, 20);
        cr_assert_gt(info_of(&f, BOB).evicted[CAIRN_AUDIT_CAPACITY], 50);
        // What is guaranteed and not there is got back from whoever has it.
        for (uint64_t i = 0; i < 20; i++)
                cr_assert_eq(fixture_delete(&f, i), CAIRN_OK);
        for (uint64_t i = 300; i < 400; i++)
                cr_assert_eq(put_as(&f, BOB, i, CAIRN_ACK_DISK).status, CAIRN_OK);
        for (uint64_t i = 0; i < 20; i++)
                cr_assert_eq(put_as(&f, ALICE, i, CAIRN_ACK_DISK).status, CAIRN_OK);
        cr_assert_eq(info_of(&f, ALICE).blocks, 20);
        fixture_finish(&f);
}

Test(quota, who_waits_for_a_quota_keeps_nobody_else_waiting)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        const struct cairn_quota quota = {.ram_bytes = 2 * SLOT};
        cr_assert_eq(cairn_store_quota_set(f.store, ALICE, &quota), CAIRN_OK);
        struct begin_as first[2], waiting;
        for (int i = 0; i < 2; i++) {
                begin_as(&f, &first[i], ALICE, (uint64_t)i, CAIRN_ACK_MEMORY);
                fixture_until(&f, &first[i].put.done);
        }
        begin_as(&f, &waiting, ALICE, 2, CAIRN_ACK_MEMORY);
        fixture_poll(&f);
        cr_assert_not(waiting.put.done);
        for (uint64_t i = 10; i < 20; i++)
                cr_assert_eq(put_as(&f, BOB, i, CAIRN_ACK_DISK).status, CAIRN_OK);
        cr_assert_not(waiting.put.done);
        cairn_store_put_abort(f.store, first[0].put.put);
        fixture_until(&f, &waiting.put.done);
        cr_assert_eq(waiting.put.status, CAIRN_OK);
        cairn_store_put_abort(f.store, waiting.put.put);
        cairn_store_put_abort(f.store, first[1].put.put);
        fixture_finish(&f);
}

Test(quota, expired_blocks_go_though_nobody_asks)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        struct fixture_begin begin;
        for (uint64_t i = 0; i < 10; i++) {
                memset(&begin, 0, sizeof(begin));
                begin.request = (struct cairn_put_begin){.on_begun = fixture_on_begun,
                                                         .space = f.space,
                                                         .key = fixture_key(i),
                                                         .ack = CAIRN_ACK_DISK,
                                                         .ttl_ms = i < 5 ? 1000 * (i + 1) : 0};
                cairn_store_put_begin(f.store, &begin.request);
                fixture_until(&f, &begin.result.done);
                fixture_fill(&f, begin.result.put, i, 1);
                struct fixture_result result = {0};
                cairn_store_put_commit(f.store, begin.result.put, fixture_on_status, &result);
                fixture_until(&f, &result.done);
        }
        f.now_ms += 3500;
        for (int i = 0; i < 20; i++)
                fixture_poll(&f);
        struct cairn_store_stats stats = fixture_stats(&f);
        cr_assert_eq(stats.blocks, 7);
        cr_assert_eq(stats.expired, 3);
        cr_assert_eq(stats.nvme_used_bytes, 7 * SLOT);
        cr_assert_eq(info_of(&f, 0).evicted[CAIRN_AUDIT_EXPIRED], 3);
        fixture_finish(&f);
}

// In real time the store wakes by itself: its descriptor says so.
Test(quota, a_store_at_rest_wakes_for_what_expires)
{
        struct fixture f;
        fixture_init(&f);
        f.real_time = true;
        fixture_open(&f);
        struct fixture_begin begin = {.request = {.on_begun = fixture_on_begun,
                                                  .space = f.space,
                                                  .key = fixture_key(1),
                                                  .ack = CAIRN_ACK_DISK,
                                                  .ttl_ms = 300}};
        cairn_store_put_begin(f.store, &begin.request);
        fixture_until(&f, &begin.result.done);
        fixture_fill(&f, begin.result.put, 1, 1);
        struct fixture_result result = {0};
        cairn_store_put_commit(f.store, begin.result.put, fixture_on_status, &result);
        fixture_until(&f, &result.done);
        cr_assert_eq(fixture_stats(&f).blocks, 1);
        for (int i = 0; i < 100 && fixture_stats(&f).blocks > 0; i++) {
                struct pollfd fd = {.fd = cairn_store_fd(f.store), .events = POLLIN};
                cr_assert_eq(poll(&fd, 1, 10000), 1, "nothing wakes it");
                cairn_store_poll(f.store);
        }
        cr_assert_eq(fixture_stats(&f).blocks, 0);
        fixture_finish(&f);
}

static void check_admission(const struct cairn_admission_ops *admission, bool remembers)
{
        struct fixture f;
        fixture_init(&f);
        f.options.admission = admission;
        fixture_open(&f);
        for (uint64_t i = 0; i < 20; i++)
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        fixture_settle(&f);
        cr_assert_eq(fixture_stats(&f).nvme_blocks, 0);
        cr_assert_eq(info_of(&f, 0).refused_admission, 20);
        for (uint64_t i = 0; i < 5; i++) {
                struct cairn_key key = fixture_key(i);
                struct cairn_block *block;
                cr_assert_eq(cairn_store_hold(f.store, f.space, &key, &block), CAIRN_OK);
                cairn_store_touch(f.store, block);
                cairn_store_unhold(f.store, block);
        }
        fixture_settle(&f);
        cr_assert_eq(fixture_stats(&f).nvme_blocks, 5);
        cr_assert_eq(fixture_put(&f, 100, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cr_assert_eq(fixture_stats(&f).nvme_blocks, 6);
        // The others are let go; put again, they are known, or not.
        cairn_store_drop_ram(f.store);
        fixture_settle(&f);
        cr_assert_eq(fixture_stats(&f).blocks, 6);
        cr_assert_eq(info_of(&f, 0).evicted[CAIRN_AUDIT_ADMISSION], 15);
        cr_assert_eq(fixture_put(&f, 10, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        fixture_settle(&f);
        cr_assert_eq(fixture_stats(&f).nvme_blocks, remembers ? 7 : 6);
        cr_assert_eq(fixture_drain(&f), CAIRN_OK);
        cr_assert_eq(fixture_stats(&f).nvme_blocks, 7);
        fixture_finish(&f);
}

Test(quota, admission_by_a_second_use)
{
        check_admission(&cairn_admission_second_use, false);
}

Test(quota, admission_by_tinylfu)
{
        check_admission(&cairn_admission_tinylfu, true);
}

// A put that asks for the disk is not told "there already" of a block that a crash would lose.
Test(quota, disk_put_waits_for_the_write_of_what_ram_has_alone)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        struct fixture_begin begin, memory, disk;
        fixture_begin(&f, &begin, 1, NULL, CAIRN_ACK_MEMORY);
        fixture_until(&f, &begin.result.done);
        fixture_fill(&f, begin.result.put, 1, 1);
        struct fixture_result result = {0};
        cairn_store_put_commit(f.store, begin.result.put, fixture_on_status, &result);
        cr_assert_eq(fixture_stats(&f).nvme_blocks, 0);
        fixture_begin(&f, &memory, 1, NULL, CAIRN_ACK_MEMORY);
        fixture_begin(&f, &disk, 1, NULL, CAIRN_ACK_DISK);
        fixture_until(&f, &memory.result.done);
        cr_assert_eq(memory.result.status, CAIRN_EEXIST);
        fixture_until(&f, &disk.result.done);
        cr_assert_eq(disk.result.status, CAIRN_EEXIST);
        cr_assert_eq(fixture_stats(&f).nvme_blocks, 1, "answered before it was on disk");
        fixture_finish(&f);
}

Test(quota, disk_put_has_written_what_was_not_admitted)
{
        struct fixture f;
        fixture_init(&f);
        f.options.admission = &cairn_admission_second_use;
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        fixture_settle(&f);
        cr_assert_eq(fixture_stats(&f).nvme_blocks, 0);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_EEXIST);
        cr_assert_eq(fixture_stats(&f).nvme_blocks, 1);
        fixture_finish(&f);
}

Test(quota, disk_put_learns_that_the_write_failed)
{
        struct fixture f;
        fixture_init(&f);
        f.options.nvme_bytes = 0;
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_ENOSPC);
        cr_assert_eq(fixture_get(&f, 1, 1, CAIRN_PART_RAW), CAIRN_OK, "RAM still has it");
        fixture_finish(&f);
}
