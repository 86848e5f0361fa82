// Leases: ends by release, deadline and connection; each block given back once.
#include <criterion/criterion.h>
#include <stdlib.h>

#include "daemon/lease.h"
#include "proto/limits.h"
#include "proto/status.h"

// Blocks are opaque to the table: addresses stand for them.
static struct ledger {
        int released[8];
        int views_ended;
        uint64_t view_bytes;
} ledger;

static void on_release(void *arg, struct cairn_block *const *blocks, size_t count)
{
        struct ledger *l = arg;

        for (size_t i = 0; i < count; i++)
                l->released[(uintptr_t)blocks[i] - 1]++;
}

static void on_view_end(void *arg, const struct cairn_lease_view *view)
{
        struct ledger *l = arg;

        l->views_ended++;
        l->view_bytes += view->bytes;
}

static struct cairn_block **blocks_of(size_t first, size_t count)
{
        struct cairn_block **blocks = malloc(count * sizeof(*blocks));

        for (size_t i = 0; i < count; i++)
                blocks[i] = (struct cairn_block *)(uintptr_t)(first + i + 1);
        return blocks;
}

static void start(struct cairn_lease_table *table)
{
        ledger = (struct ledger){0};
        cairn_lease_table_init(table, on_release, on_view_end, &ledger);
}

Test(lease, release_gives_each_block_back_once)
{
        struct cairn_lease_table table;

        start(&table);
        cr_assert_eq(cairn_lease_add(&table, 7, 100, blocks_of(0, 3), 3), CAIRN_OK);
        cr_assert_eq(cairn_lease_release(&table, 8), CAIRN_ESTALE, "another's lease");
        cr_assert_eq(ledger.released[0], 0);
        cr_assert_eq(cairn_lease_release(&table, 7), CAIRN_OK);
        for (int i = 0; i < 3; i++)
                cr_assert_eq(ledger.released[i], 1);
        cr_assert_eq(cairn_lease_release(&table, 7), CAIRN_ESTALE, "a second time");
        cr_assert_eq(table.count, 0);
        cairn_lease_table_finish(&table);
}

Test(lease, case_19_two_leases_on_a_block_end_apart)
{
        struct cairn_lease_table table;

        start(&table);
        cr_assert_eq(cairn_lease_add(&table, 1, 100, blocks_of(0, 1), 1), CAIRN_OK);
        cr_assert_eq(cairn_lease_add(&table, 2, 100, blocks_of(0, 1), 1), CAIRN_OK);
        cr_assert_eq(cairn_lease_release(&table, 1), CAIRN_OK);
        cr_assert_eq(ledger.released[0], 1, "one hold is left");
        cairn_lease_table_finish(&table);
        cr_assert_eq(ledger.released[0], 2, "the connection's end frees the rest");
}

Test(lease, deadlines_end_what_is_due_and_no_more)
{
        struct cairn_lease_table table;

        start(&table);
        cr_assert_eq(cairn_lease_add(&table, 1, 100, blocks_of(0, 1), 1), CAIRN_OK);
        cr_assert_eq(cairn_lease_add(&table, 2, 200, blocks_of(1, 1), 1), CAIRN_OK);
        cr_assert_eq(cairn_lease_expire(&table, 99), 0);
        cr_assert_not_null(cairn_lease_find(&table, 1, 99));
        cr_assert_null(cairn_lease_find(&table, 1, 100), "past its deadline, though not swept yet");
        cr_assert_eq(cairn_lease_expire(&table, 100), 1);
        cr_assert_eq(ledger.released[0], 1);
        cr_assert_eq(ledger.released[1], 0);
        cr_assert_eq(cairn_lease_expire(&table, 1000), 1);
        cr_assert_eq(ledger.released[1], 1);
        cr_assert_eq(table.deadline_min_ms, UINT64_MAX);
        cairn_lease_table_finish(&table);
}

Test(lease, a_connection_holds_a_bounded_number)
{
        struct cairn_lease_table table;
        struct cairn_block **one = blocks_of(0, 1);

        start(&table);
        for (uint64_t i = 1; i <= CAIRN_LEASES_MAX; i++)
                cr_assert_eq(cairn_lease_add(&table, i, 100, NULL, 0), CAIRN_OK);
        cr_assert_eq(cairn_lease_add(&table, 9999, 100, one, 1), CAIRN_EBUSY);
        cr_assert_eq(ledger.released[0], 0, "a refused lease leaves its blocks alone");
        free(one);
        cairn_lease_table_finish(&table);
        cr_assert_eq(table.count, 0);
}

static int add_view(struct cairn_lease_table *table, uint64_t id, uint64_t block)
{
        struct cairn_lease_view view = {(struct cairn_block *)(uintptr_t)(block * 64), 10};

        return cairn_lease_add_view(table, id, 50, &view);
}

Test(lease, its_views_end_with_it_each_once)
{
        struct cairn_lease_table table;
        const struct cairn_lease *lease;

        start(&table);
        cr_assert_eq(cairn_lease_add(&table, 1, 100, blocks_of(0, 1), 1), CAIRN_OK);
        cr_assert_eq(cairn_lease_add(&table, 2, 50, NULL, 0), CAIRN_OK);
        cr_assert_eq(add_view(&table, 2, 1), CAIRN_ESTALE, "it ended at 50");
        cr_assert_eq(add_view(&table, 3, 1), CAIRN_ESTALE, "there is none");
        for (uint64_t block = 1; block <= 5000; block++)
                cr_assert_eq(add_view(&table, 1, block), CAIRN_OK);
        lease = cairn_lease_find(&table, 1, 50);
        for (uint64_t block = 1; block <= 5000; block++) {
                cr_assert_eq(add_view(&table, 1, block), CAIRN_EEXIST);
                cr_assert(cairn_lease_has_view(lease, (void *)(uintptr_t)(block * 64)));
        }
        cr_assert_not(cairn_lease_has_view(lease, (void *)(uintptr_t)(5001 * 64)));
        cr_assert_not(cairn_lease_has_view(cairn_lease_find(&table, 2, 10), (void *)(uintptr_t)64));
        cr_assert_eq(ledger.views_ended, 0);
        cr_assert_eq(cairn_lease_release(&table, 1), CAIRN_OK);
        cr_assert_eq(ledger.views_ended, 5000);
        cr_assert_eq(ledger.view_bytes, 50000);
        cr_assert_eq(ledger.released[0], 1);
        cairn_lease_table_finish(&table);
}
