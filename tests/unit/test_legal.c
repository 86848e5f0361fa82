// Legal holds in the store: what is under one stays, whoever asks, whatever presses, over restarts.
#include "store_fixture.h"

#include "storage/legal.h"

static struct cairn_hold hold_on(const char *name, enum cairn_hold_kind kind)
{
        struct cairn_hold hold = {.kind = kind, .since_ms = 5};
        snprintf(hold.name, sizeof(hold.name), "%s", name);
        return hold;
}

static int set(struct fixture *f, const struct cairn_hold *hold)
{
        struct fixture_result result = {0};
        cairn_store_hold_set(f->store, hold, fixture_on_status, &result);
        cr_assert_not(result.done, "called back inside the call");
        fixture_until(f, &result.done);
        return result.status;
}

static int set_chain(struct fixture *f, const char *name, uint64_t number)
{
        struct cairn_hold hold = hold_on(name, CAIRN_HOLD_CHAIN);
        hold.space = f->space;
        hold.key = fixture_key(number);
        return set(f, &hold);
}

static int set_space(struct fixture *f, const char *name)
{
        struct cairn_hold hold = hold_on(name, CAIRN_HOLD_SPACE);
        hold.space = f->space;
        return set(f, &hold);
}

static int lift(struct fixture *f, const char *name)
{
        struct fixture_result result = {0};
        cairn_store_hold_lift(f->store, name, fixture_on_status, &result);
        cr_assert_not(result.done, "called back inside the call");
        fixture_until(f, &result.done);
        return result.status;
}

static const char *keeper(struct fixture *f, uint64_t number)
{
        struct cairn_key key = fixture_key(number);
        const struct cairn_hold *hold = cairn_store_held_by(f->store, f->space, &key);
        return hold ? hold->name : "";
}

// Blocks first..first+count-1, each the parent of the next.
static void put_chain(struct fixture *f, uint64_t first, uint64_t count)
{
        struct cairn_key parent = {{0}};
        for (uint64_t i = first; i < first + count; i++) {
                cr_assert_eq(fixture_put_child(f, i, i > first ? &parent : NULL, 1, CAIRN_ACK_DISK),
                             CAIRN_OK);
                parent = fixture_key(i);
        }
}

static int put_with(struct fixture *f, uint64_t number, uint32_t tenant, uint64_t ttl_ms)
{
        struct fixture_begin begin = {.request = {.on_begun = fixture_on_begun,
                                                  .space = f->space,
                                                  .key = fixture_key(number),
                                                  .ack = CAIRN_ACK_DISK,
                                                  .tenant = tenant,
                                                  .ttl_ms = ttl_ms}};
        cairn_store_put_begin(f->store, &begin.request);
        fixture_until(f, &begin.result.done);
        cr_assert_eq(begin.result.status, CAIRN_OK);
        fixture_fill(f, begin.result.put, number, 1);
        struct fixture_result result = {0};
        cairn_store_put_commit(f->store, begin.result.put, fixture_on_status, &result);
        fixture_until(f, &result.done);
        return result.status;
}

static bool there(struct fixture *f, uint64_t number)
{
        return fixture_get(f, number, 1, CAIRN_PART_RAW) == CAIRN_OK;
}

Test(legal, a_chain_is_kept_up_to_the_block_that_is_named)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        put_chain(&f, 0, 5);
        cr_assert_eq(set_chain(&f, "case 7", 2), CAIRN_OK);
        cr_assert_eq(set_chain(&f, "case 7", 2), CAIRN_EEXIST);
        cr_assert_eq(set_chain(&f, "other", 99), CAIRN_ENOENT);
        cr_assert_eq(cairn_store_held_blocks(f.store), 3);
        cr_assert_eq(cairn_store_hold_blocks(f.store, cairn_store_hold_at(f.store, 0)), 3);
        for (uint64_t i = 0; i < 3; i++) {
                cr_assert_eq(fixture_delete(&f, i), CAIRN_EHELD);
                cr_assert_str_eq(keeper(&f, i), "case 7");
        }
        cr_assert_str_eq(keeper(&f, 3), "");
        cr_assert_eq(fixture_delete(&f, 4), CAIRN_OK);
        cr_assert_eq(fixture_delete(&f, 3), CAIRN_OK);
        cr_assert_eq(fixture_put(&f, 1, 2, CAIRN_ACK_DISK), CAIRN_EEXIST, "nor replaced");
        cr_assert_eq(lift(&f, "other"), CAIRN_ENOENT);
        cr_assert_eq(lift(&f, "case 7"), CAIRN_OK);
        for (uint64_t i = 0; i < 3; i++)
                cr_assert_eq(fixture_delete(&f, i), CAIRN_OK);
        cr_assert_eq(cairn_store_held_blocks(f.store), 0);
        fixture_finish(&f);
}

Test(legal, two_holds_on_one_block_end_with_the_last)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        put_chain(&f, 0, 3);
        cr_assert_eq(set_chain(&f, "a", 2), CAIRN_OK);
        cr_assert_eq(set_chain(&f, "b", 1), CAIRN_OK);
        cr_assert_eq(lift(&f, "a"), CAIRN_OK);
        cr_assert_eq(fixture_delete(&f, 2), CAIRN_OK);
        cr_assert_eq(fixture_delete(&f, 1), CAIRN_EHELD);
        cr_assert_eq(fixture_delete(&f, 0), CAIRN_EHELD);
        cr_assert_eq(set_space(&f, "all"), CAIRN_OK);
        cr_assert_eq(lift(&f, "b"), CAIRN_OK);
        cr_assert_eq(fixture_delete(&f, 0), CAIRN_EHELD);
        cr_assert_str_eq(keeper(&f, 0), "all");
        cr_assert_eq(lift(&f, "all"), CAIRN_OK);
        cr_assert_eq(fixture_delete(&f, 0), CAIRN_OK);
        fixture_finish(&f);
}

Test(legal, what_comes_later_is_kept_too)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        // The child is there before its parents: what it names is held as soon as it comes.
        struct cairn_key grandparent = fixture_key(1), parent = fixture_key(2);
        cr_assert_eq(fixture_put_child(&f, 3, &parent, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        cr_assert_eq(set_chain(&f, "late", 3), CAIRN_OK);
        cr_assert_eq(cairn_store_held_blocks(f.store), 1);
        cr_assert_str_eq(keeper(&f, 1), "", "nothing says yet that it lies before");
        cr_assert_eq(fixture_put_child(&f, 2, &grandparent, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        cr_assert_eq(cairn_store_held_blocks(f.store), 3);
        for (uint64_t i = 1; i < 4; i++)
                cr_assert_eq(fixture_delete(&f, i), CAIRN_EHELD);
        cr_assert_eq(set_space(&f, "space"), CAIRN_OK);
        cr_assert_eq(fixture_put(&f, 9, 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        cr_assert_eq(fixture_delete(&f, 9), CAIRN_EHELD);
        fixture_settle(&f);
        fixture_finish(&f);
}

Test(legal, neither_pressure_nor_time_nor_a_restart_takes_it)
{
        struct fixture f;
        fixture_init(&f);
        f.options.nvme_bytes = 4 << 20;
        f.options.slab_bytes = 1 << 20;
        fixture_open(&f);
        for (uint64_t i = 0; i < 2; i++)
                cr_assert_eq(put_with(&f, i, 0, 1000), CAIRN_OK);
        put_chain(&f, 10, 3);
        cr_assert_eq(set_chain(&f, "ttl", 0), CAIRN_OK);
        cr_assert_eq(set_chain(&f, "chain", 12), CAIRN_OK);
        f.now_ms += 5000;
        for (int round = 0; round < 2; round++) {
                for (uint64_t i = 0; i < 200; i++) // more than twice what the tier holds
                        (void)fixture_put(&f, 1000 + 1000 * (uint64_t)round + i, 1, CAIRN_ACK_DISK);
                cairn_store_drop_ram(f.store);
                cr_assert(there(&f, 0), "its time to live ended, but it is held");
                cr_assert_not(there(&f, 1));
                for (uint64_t i = 10; i < 13; i++)
                        cr_assert(there(&f, i));
                cr_assert_gt(fixture_stats(&f).evicted_nvme, 50);
                cr_assert_eq(fixture_drain(&f), CAIRN_OK);
                fixture_close(&f);
                fixture_open(&f);
                cr_assert_eq(cairn_store_holds_count(f.store), 2);
                cr_assert_eq(cairn_store_held_blocks(f.store), 4);
        }
        const struct cairn_hold *hold = cairn_store_hold_find(f.store, "chain");
        cr_assert_eq(hold->since_ms, 5);
        struct cairn_key key = fixture_key(12);
        cr_assert(cairn_key_equal(&hold->key, &key));
        cr_assert_eq(lift(&f, "chain"), CAIRN_OK);
        fixture_close(&f);
        fixture_open(&f);
        cr_assert_eq(cairn_store_holds_count(f.store), 1);
        cr_assert_eq(fixture_delete(&f, 11), CAIRN_OK);
        fixture_finish(&f);
}

Test(legal, a_tier_full_of_held_blocks_refuses_and_recovers)
{
        struct fixture f;
        fixture_init(&f);
        f.options.nvme_bytes = 2 << 20;
        f.options.slab_bytes = 1 << 20;
        fixture_open(&f);
        cr_assert_eq(set_space(&f, "everything"), CAIRN_OK);
        uint64_t count = 0;
        while (count < 200 && fixture_put(&f, count, 1, CAIRN_ACK_DISK) == CAIRN_OK)
                count++;
        cr_assert_lt(count, 200);
        cr_assert_eq(fixture_put(&f, 900, 1, CAIRN_ACK_DISK), CAIRN_ENOSPC);
        for (uint64_t i = 0; i < count; i++)
                cr_assert(there(&f, i));
        cr_assert_eq(lift(&f, "everything"), CAIRN_OK);
        cr_assert_eq(fixture_put(&f, 901, 1, CAIRN_ACK_DISK), CAIRN_OK);
        fixture_finish(&f);
}

Test(legal, a_tenants_blocks_are_kept_and_no_others)
{
        struct fixture f;
        fixture_init(&f);
        fixture_open(&f);
        uint32_t tenant = 0;
        cr_assert_not(cairn_store_space_tenant(f.store, f.space, &tenant));
        cr_assert_eq(put_with(&f, 1, 7, 0), CAIRN_OK);
        cr_assert(cairn_store_space_tenant(f.store, f.space, &tenant));
        cr_assert_eq(tenant, 7);
        cr_assert_eq(put_with(&f, 2, 8, 0), CAIRN_OK);
        cr_assert_not(cairn_store_space_tenant(f.store, f.space, &tenant), "two tenants' blocks");
        struct cairn_hold hold = hold_on("seven", CAIRN_HOLD_TENANT);
        hold.tenant = 7;
        cr_assert_eq(set(&f, &hold), CAIRN_OK);
        cr_assert_eq(fixture_delete(&f, 1), CAIRN_EHELD);
        cr_assert_eq(fixture_delete(&f, 2), CAIRN_OK);
        fixture_finish(&f);
}

static int fault(void *arg)
{
        return *(const bool *)arg ? CAIRN_EIO : CAIRN_OK;
}

Test(legal, a_hold_that_cannot_be_recorded_is_not_in_force)
{
        struct fixture f;
        bool failing = false;
        fixture_init(&f);
        f.internal.on_catalog_fault = fault;
        f.internal.on_catalog_fault_arg = &failing;
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        failing = true;
        cr_assert_eq(set_space(&f, "lost"), CAIRN_EIO);
        failing = false;
        cr_assert_eq(cairn_store_holds_count(f.store), 0);
        cr_assert_eq(set_space(&f, "kept"), CAIRN_OK);
        failing = true;
        cr_assert_eq(lift(&f, "kept"), CAIRN_EIO);
        failing = false;
        cr_assert_eq(fixture_delete(&f, 1), CAIRN_EHELD, "a lift that failed changes nothing");
        cr_assert_eq(lift(&f, "kept"), CAIRN_OK);
        cr_assert_eq(fixture_delete(&f, 1), CAIRN_OK);
        struct cairn_hold hold = hold_on("nowhere", CAIRN_HOLD_SPACE);
        hold.space = f.space + 1;
        cr_assert_eq(set(&f, &hold), CAIRN_ENOENT);
        fixture_finish(&f);
}
