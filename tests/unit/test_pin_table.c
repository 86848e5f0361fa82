// The table of what contexts pin: shared blocks count once, the limit holds, and it agrees with a
// plain list.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/pin_table.h"
#include "proto/status.h"

static const void *block(uintptr_t i)
{
        return (const void *)(0x7f0000000000 + i * 192);
}

Test(pin_table, shared_blocks_count_once)
{
        struct cairn_pin_table table;

        cairn_pin_table_init(&table, 100);
        cr_assert_eq(cairn_pin_add(&table, block(1), 60), CAIRN_OK);
        cr_assert_eq(cairn_pin_add(&table, block(1), 60), CAIRN_OK);
        cr_assert_eq(table.bytes, 60);
        cr_assert_eq(cairn_pin_add(&table, block(2), 41), CAIRN_ENOMEM);
        cr_assert_eq(cairn_pin_add(&table, block(2), 40), CAIRN_OK);
        cairn_pin_remove(&table, block(1));
        cr_assert_eq(table.bytes, 100, "one context is left");
        cairn_pin_remove(&table, block(1));
        cr_assert_eq(table.bytes, 40);
        cairn_pin_remove(&table, block(2));
        cairn_pin_table_finish(&table);
}

Test(pin_table, agrees_with_a_plain_list)
{
        const char *replay = getenv("CAIRN_TEST_SEED");
        unsigned seed = replay ? (unsigned)strtoul(replay, NULL, 10) : (unsigned)time(NULL);
        static uint32_t uses[500];
        struct cairn_pin_table table;
        uint64_t bytes = 0;

        cr_log_info("CAIRN_TEST_SEED=%u", seed);
        cairn_pin_table_init(&table, UINT64_MAX);
        for (int i = 0; i < 200000; i++) {
                uintptr_t at = (uintptr_t)rand_r(&seed) % 500;

                if (uses[at] > 0 && rand_r(&seed) % 2 == 0) {
                        cairn_pin_remove(&table, block(at));
                        bytes -= --uses[at] == 0 ? at + 1 : 0;
                } else if (uses[at] < 3) {
                        cr_assert_eq(cairn_pin_add(&table, block(at), at + 1), CAIRN_OK);
                        bytes += uses[at]++ == 0 ? at + 1 : 0;
                }
                cr_assert_eq(table.bytes, bytes);
        }
        for (uintptr_t at = 0; at < 500; at++)
                for (; uses[at] > 0; uses[at]--)
                        cairn_pin_remove(&table, block(at));
        cairn_pin_table_finish(&table);
}
