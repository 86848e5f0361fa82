// Pins on blocks: every hold comes back exactly once, and limits hold.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/block_pins.h"
#include "proto/limits.h"
#include "proto/status.h"

enum {
        BLOCKS = 64
};

static int holds[BLOCKS]; // of the table, a block

static struct cairn_block *block_of(uint32_t i)
{
        return (struct cairn_block *)(void *)&holds[i];
}

static void release(void *arg, struct cairn_block *block)
{
        int *hold = (int *)(void *)block;

        (void)arg;
        cr_assert_gt(*hold, 0, "given back twice");
        (*hold)--;
}

static struct cairn_key key_of(uint32_t i)
{
        struct cairn_key key = {{0}};

        memcpy(key.bytes, &i, sizeof(i));
        return key;
}

static int pin(struct cairn_block_pins *pins, uint32_t i, uint32_t tenant, const char *owner,
               const void *session, uint64_t deadline_ms)
{
        struct cairn_key key = key_of(i);
        struct cairn_block_pin_id id = {1, tenant, &key, owner};
        int status;

        holds[i % BLOCKS]++;
        status = cairn_block_pins_add(pins, &id, session, deadline_ms, block_of(i % BLOCKS));
        if (status != CAIRN_OK)
                holds[i % BLOCKS]--;
        return status;
}

static bool is_pinned(const struct cairn_block_pins *pins, uint32_t i)
{
        struct cairn_key key = key_of(i);

        return cairn_block_pins_protect(pins, 1, &key, false, 0);
}

static void check_holds(const struct cairn_block_pins *pins)
{
        uint64_t sum = 0;

        for (uint32_t i = 0; i < BLOCKS; i++)
                sum += (uint64_t)holds[i];
        cr_assert_eq(sum, pins->count);
}

Test(block_pins, ends_of_every_kind)
{
        struct cairn_block_pins pins;
        struct cairn_key key = key_of(3);
        struct cairn_block_pin_id id = {1, 7, &key, "a"};
        int session;
        int other;

        cairn_block_pins_init(&pins, release, NULL);
        cr_assert_not(is_pinned(&pins, 3));
        cr_assert_eq(cairn_block_pins_remove(&pins, &id), CAIRN_ENOENT);
        cr_assert_eq(pin(&pins, 3, 7, "a", NULL, UINT64_MAX), CAIRN_OK);
        cr_assert_eq(pin(&pins, 3, 7, "a", &session, 50), CAIRN_OK, "renewed");
        cr_assert_eq(pins.count, 1);
        cr_assert_eq(pin(&pins, 3, 8, "a", NULL, UINT64_MAX), CAIRN_OK);
        cr_assert_eq(pin(&pins, 4, 7, "", &session, UINT64_MAX), CAIRN_OK);
        cr_assert_eq(pin(&pins, 5, 7, "", &other, 60), CAIRN_OK);
        check_holds(&pins);
        cr_assert(cairn_block_pins_protect(&pins, 1, &key, true, 7), "8's is there");
        cr_assert_not(cairn_block_pins_protect(&pins, 2, &key, false, 0), "another space");
        cairn_block_pins_expire(&pins, 49);
        cr_assert_eq(pins.count, 4);
        cairn_block_pins_expire(&pins, 50);
        cr_assert_eq(pins.count, 3);
        cr_assert_eq(pins.deadline_min_ms, 60);
        cairn_block_pins_end_session(&pins, &session);
        cr_assert_not(is_pinned(&pins, 4));
        cr_assert(is_pinned(&pins, 5));
        cairn_block_pins_end_tenant(&pins, 1, &key, 7);
        cr_assert(is_pinned(&pins, 3));
        cairn_block_pins_end_tenant(&pins, 1, &key, 8);
        cr_assert_not(is_pinned(&pins, 3));
        check_holds(&pins);
        cairn_block_pins_finish(&pins);
        cr_assert_eq(holds[5], 0);
}

Test(block_pins, limits)
{
        struct cairn_block_pins pins;
        uint32_t i;

        cairn_block_pins_init(&pins, release, NULL);
        for (i = 0; i < CAIRN_PINS_TENANT_MAX; i++)
                cr_assert_eq(pin(&pins, i, 1, "", NULL, UINT64_MAX), CAIRN_OK);
        cr_assert_eq(pin(&pins, i, 1, "", NULL, UINT64_MAX), CAIRN_EBUSY);
        cr_assert_eq(pin(&pins, 0, 1, "", NULL, UINT64_MAX), CAIRN_OK, "one may still renew");
        for (; i < CAIRN_PINS_MAX; i++)
                cr_assert_eq(pin(&pins, i, 2, "", NULL, UINT64_MAX), CAIRN_OK);
        cr_assert_eq(pin(&pins, i, 3, "", NULL, UINT64_MAX), CAIRN_EBUSY);
        check_holds(&pins);
        cairn_block_pins_finish(&pins);
        check_holds(&pins);
}
