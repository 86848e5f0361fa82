// Many blocks found, held and let go at once, beside what one at a time gives.
#include "tests/unit/store_fixture.h"

enum {
        COUNT = 100
};

static void name_keys(struct cairn_key *keys)
{
        for (uint64_t i = 0; i < COUNT; i++)
                keys[i] = fixture_key(i);
}

static void start(struct fixture *f, struct cairn_key *keys)
{
        fixture_init(f);
        fixture_open(f);
        name_keys(keys);
        for (uint64_t i = 0; i < COUNT; i++)
                cr_assert_eq(fixture_put_child(f, i, i ? &keys[i - 1] : NULL, 1, CAIRN_ACK_DISK),
                             CAIRN_OK);
        fixture_settle(f);
}

static size_t hold(struct fixture *f, const struct cairn_key *keys, size_t count,
                   struct cairn_block **blocks, uint8_t *tiers)
{
        return cairn_store_hold_prefix(f->store, f->space, keys, count, blocks, tiers);
}

Test(hold, prefix_ends_at_the_first_block_that_is_missing)
{
        struct fixture f;
        struct cairn_key keys[COUNT];
        struct cairn_block *blocks[COUNT], *again[COUNT];
        uint8_t tiers[COUNT];
        start(&f, keys);
        cr_assert_eq(hold(&f, keys, COUNT, blocks, tiers), COUNT);
        cr_assert_eq(fixture_stats(&f).holds, COUNT);
        for (uint64_t i = 0; i < COUNT; i++) {
                cr_assert_eq(memcmp(cairn_block_key(blocks[i]), &keys[i], sizeof(keys[i])), 0);
                cr_assert_eq(tiers[i], cairn_block_tier(blocks[i]));
        }
        cr_assert_eq(cairn_store_audit_counters(f.store), CAIRN_OK);
        cairn_store_unhold_many(f.store, blocks, COUNT);
        cr_assert_eq(fixture_stats(&f).holds, 0);

        for (uint64_t missing = COUNT; missing-- > COUNT - 50;) {
                cr_assert_eq(fixture_delete(&f, missing), CAIRN_OK);
                cr_assert_eq(hold(&f, keys, COUNT, blocks, tiers), missing);
                cr_assert_eq(hold(&f, keys, missing, again, tiers), missing, "asked for no more");
                cairn_store_unhold_many(f.store, again, missing);
                cairn_store_unhold_many(f.store, blocks, missing);
        }
        cr_assert_eq(hold(&f, keys, 0, blocks, tiers), 0);
        cr_assert_eq(cairn_store_hold_prefix(f.store, f.space + 1, keys, COUNT, blocks, tiers), 0);
        fixture_finish(&f);
}

Test(hold, a_parent_that_is_named_but_not_here_is_no_block)
{
        struct fixture f;
        struct cairn_key keys[2] = {fixture_key(0), fixture_key(1)};
        struct cairn_block *blocks[2];
        uint8_t tiers[2];
        fixture_init(&f);
        fixture_open(&f);
        cr_assert_eq(fixture_put_child(&f, 1, &keys[0], 1, CAIRN_ACK_MEMORY), CAIRN_OK);
        cr_assert_eq(hold(&f, keys, 2, blocks, tiers), 0);
        cr_assert_eq(hold(&f, keys + 1, 1, blocks, tiers), 1);
        cairn_store_unhold_many(f.store, blocks, 1);
        fixture_finish(&f);
}

Test(hold, tiers_follow_the_bytes_between_ram_and_disk)
{
        struct fixture f;
        struct cairn_key keys[COUNT];
        struct cairn_block *blocks[COUNT];
        uint8_t tiers[COUNT];
        start(&f, keys);
        (void)cairn_store_drop_ram(f.store);
        cr_assert_eq(fixture_get(&f, 3, 1, CAIRN_PART_RAW), CAIRN_OK);
        cr_assert_eq(hold(&f, keys, COUNT, blocks, tiers), COUNT);
        for (uint64_t i = 0; i < COUNT; i++)
                cr_assert_eq(tiers[i], i == 3 ? CAIRN_TIER_RAM : CAIRN_TIER_NVME, "block %lu",
                             (unsigned long)i);
        cairn_store_unhold_many(f.store, blocks, COUNT);
        fixture_finish(&f);
}

Test(hold, a_block_whose_time_is_over_is_not_found)
{
        struct fixture f;
        struct cairn_key key = fixture_key(7);
        struct cairn_block *block;
        uint8_t tier;
        fixture_init(&f);
        fixture_open(&f);
        struct fixture_begin begin = {
            .request = {
                .on_begun = fixture_on_begun, .space = f.space, .key = key, .ttl_ms = 1000}};
        cairn_store_put_begin(f.store, &begin.request);
        fixture_until(&f, &begin.result.done);
        cr_assert_eq(begin.result.status, CAIRN_OK);
        fixture_fill(&f, begin.result.put, 7, 1);
        struct fixture_result result = {0};
        cairn_store_put_commit(f.store, begin.result.put, fixture_on_status, &result);
        fixture_until(&f, &result.done);
        cr_assert_eq(hold(&f, &key, 1, &block, &tier), 1);
        cairn_store_unhold_many(f.store, &block, 1);
        f.now_ms += 1000;
        cr_assert_eq(hold(&f, &key, 1, &block, &tier), 0);
        fixture_finish(&f);
}

// Look-ups of chains are fast where entries lie one behind the other (table_search.c).
Test(hold, a_start_lays_blocks_in_the_order_in_which_they_were_put)
{
        struct fixture f;
        struct cairn_key keys[COUNT];
        struct cairn_block *blocks[COUNT];
        uint8_t tiers[COUNT];
        start(&f, keys);
        cr_assert_eq(fixture_delete(&f, COUNT - 1), CAIRN_OK);
        fixture_close(&f);
        fixture_open(&f);
        cr_assert_eq(hold(&f, keys, COUNT, blocks, tiers), COUNT - 1);
        for (uint32_t i = 0; i < COUNT - 1; i++)
                cr_assert_eq(blocks[i]->id, i);
        cairn_store_unhold_many(f.store, blocks, COUNT - 1);
        cr_assert_eq(fixture_put_child(&f, COUNT - 1, &keys[COUNT - 2], 1, CAIRN_ACK_DISK),
                     CAIRN_OK);
        cr_assert_eq(hold(&f, keys, COUNT, blocks, tiers), COUNT);
        cairn_store_unhold_many(f.store, blocks, COUNT);
        cr_assert_eq(cairn_store_audit_counters(f.store), CAIRN_OK);
        fixture_finish(&f);
}
