// Why blocks left, and the mass that selections hold.
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "daemon/stats.h"
#include "storage/gone.h"

static struct cairn_key make_key(uint32_t i)
{
        struct cairn_key key = {{0}};

        memcpy(key.bytes, &i, sizeof(i));
        return key;
}

Test(gone, remembers_the_last_reason_of_a_key_in_its_space)
{
        struct cairn_gone *gone = NULL;
        struct cairn_key key = make_key(7);

        cr_assert_eq(cairn_gone_reason(gone, 1, &key), 0);
        cairn_gone_note(&gone, 1, &key, CAIRN_AUDIT_CAPACITY);
        cr_assert_eq(cairn_gone_reason(gone, 1, &key), CAIRN_AUDIT_CAPACITY);
        cr_assert_eq(cairn_gone_reason(gone, 2, &key), 0);
        cairn_gone_note(&gone, 1, &key, CAIRN_AUDIT_EXPIRED);
        cr_assert_eq(cairn_gone_reason(gone, 1, &key), CAIRN_AUDIT_EXPIRED);
        cairn_gone_destroy(gone);
}

Test(gone, is_bounded_and_never_wrong_about_others)
{
        struct cairn_gone *gone = NULL;
        uint32_t known = 0;

        for (uint32_t i = 0; i < CAIRN_GONE_MAX; i++) {
                struct cairn_key key = make_key(i);

                cairn_gone_note(&gone, 1, &key, CAIRN_AUDIT_CAPACITY);
        }
        for (uint32_t i = 0; i < 2 * CAIRN_GONE_MAX; i++) {
                struct cairn_key key = make_key(i);
                bool remembered = cairn_gone_reason(gone, 1, &key) != 0;

                cr_assert(!remembered || i < CAIRN_GONE_MAX, "%u was never here", i);
                known += remembered;
        }
        // What hashes to one place overwrites: about 1 - 1/e stay.
        cr_assert_gt(known, CAIRN_GONE_MAX / 2);
        cairn_gone_destroy(gone);
}

Test(mass, lands_in_the_bucket_of_its_share)
{
        static struct cairn_mass mass;

        cairn_mass_add(&mass, 0, 0);                 // all
        cairn_mass_add(&mass, 1, 0);                 // an estimate above all counts as all
        cairn_mass_add(&mass, logf(0.3f), 0);        // little
        cairn_mass_add(&mass, -INFINITY, 0);         // nothing
        cairn_mass_add(&mass, NAN, 0);               // no number
        cairn_mass_add(&mass, -INFINITY, -INFINITY); // nothing of nothing
        cr_assert_eq(mass.buckets[0], 2);
        cr_assert_eq(mass.buckets[CAIRN_MASS_BUCKETS - 2], 2);
        cr_assert_eq(mass.buckets[CAIRN_MASS_BUCKETS - 1], 0);
        cr_assert_float_eq((double)mass.sum_ppb / 1e9, 2.3, 1e-6);
        cr_assert(isinf(cairn_mass_bound(CAIRN_MASS_BUCKETS - 1)));
}
