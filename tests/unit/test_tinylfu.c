// Admission: the second use admits, counts never fall short, age forgets, `always` admits all.
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "policy/admission/tinylfu.h"

static void begin(struct cairn_tinylfu *filter, enum cairn_admission mode, uint64_t counters,
                  uint32_t sample_per)
{
        struct cairn_tinylfu_options options = {
            .mode = mode, .counters = counters, .sample_per = sample_per};

        cairn_tinylfu_init(filter, &options, malloc(cairn_tinylfu_bytes(&options)));
}

static void end(struct cairn_tinylfu *filter)
{
        free(filter->sketch);
}

static uint64_t next_random(uint64_t *state)
{
        uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
}

static uint64_t seed_of_test(void)
{
        const char *text = getenv("CAIRN_TEST_SEED");
        uint64_t seed = text ? strtoull(text, NULL, 10) : 7;

        fprintf(stderr, "CAIRN_TEST_SEED=%llu\n", (unsigned long long)seed);
        return seed;
}

Test(tinylfu, the_second_use_admits)
{
        struct cairn_tinylfu filter;

        begin(&filter, CAIRN_ADMISSION_TINYLFU, 1000, 0);
        cr_assert_eq(filter.counters, 1024);
        cr_assert_not(cairn_tinylfu_admit(&filter, 42));
        cairn_tinylfu_use(&filter, 42);
        cr_assert_not(cairn_tinylfu_admit(&filter, 42));
        cairn_tinylfu_use(&filter, 42);
        cr_assert(cairn_tinylfu_admit(&filter, 42));
        cr_assert_eq(filter.admitted, 1);
        cr_assert_eq(filter.refused, 2);
        end(&filter);
}

Test(tinylfu, always_admits_all)
{
        struct cairn_tinylfu filter;

        begin(&filter, CAIRN_ADMISSION_ALWAYS, 0, 0);
        for (uint64_t id = 0; id < 1000; id++) {
                cr_assert(cairn_tinylfu_admit(&filter, id));
                cr_assert(cairn_tinylfu_admit_over(&filter, id, id + 1));
        }
        cr_assert_eq(filter.refused, 0);
        end(&filter);
}

Test(tinylfu, estimates_never_fall_short_and_seldom_exceed)
{
        uint64_t random = seed_of_test();
        struct cairn_tinylfu filter;
        static uint32_t truth[2000];
        size_t exact = 0;

        begin(&filter, CAIRN_ADMISSION_TINYLFU, 4096, 10);
        for (int i = 0; i < 20000; i++) { // below the sample of 40,960: nothing is halved
                size_t id = (size_t)(2000 * pow((double)(next_random(&random) >> 11) * 0x1p-53, 3));

                cairn_tinylfu_use(&filter, id);
                truth[id]++;
        }
        cr_assert_eq(filter.halvings, 0);
        for (size_t id = 0; id < 2000; id++) {
                uint32_t most =
                    truth[id] < CAIRN_TINYLFU_COUNT_MAX ? truth[id] : CAIRN_TINYLFU_COUNT_MAX;
                uint32_t estimate = cairn_tinylfu_estimate(&filter, id);

                cr_assert_geq(estimate, most, "id %zu: %u < %u", id, estimate, most);
                exact += estimate == most;
        }
        cr_assert_geq(exact, 1800, "%zu of 2000 exact", exact);
        end(&filter);
}

Test(tinylfu, blocks_seen_once_are_kept_from_the_disk)
{
        struct cairn_tinylfu filter;
        uint64_t random = seed_of_test();
        size_t once_admitted = 0;
        size_t often_admitted = 0;

        begin(&filter, CAIRN_ADMISSION_TINYLFU, 8192, 0);
        for (uint64_t i = 0; i < 100000; i++) { // half of the uses are of 1,000 ids
                bool often = i % 2;
                uint64_t id = often ? next_random(&random) % 1000 : 1000000 + i;

                cairn_tinylfu_use(&filter, id);
                *(often ? &often_admitted : &once_admitted) += cairn_tinylfu_admit(&filter, id);
        }
        cr_assert_gt(filter.halvings, 0);
        cr_assert_leq(once_admitted, 50000 / 20, "%zu of 50000 seen once", once_admitted);
        cr_assert_geq(often_admitted, 45000, "%zu of 50000 seen often", often_admitted);
        end(&filter);
}

Test(tinylfu, age_forgets)
{
        struct cairn_tinylfu filter;

        begin(&filter, CAIRN_ADMISSION_TINYLFU, 64, 1);
        for (int i = 0; i < 20; i++)
                cairn_tinylfu_use(&filter, 1);
        cr_assert_eq(cairn_tinylfu_estimate(&filter, 1), 16);
        while (filter.halvings < 5)
                cairn_tinylfu_use(&filter, 2);
        cr_assert_eq(cairn_tinylfu_estimate(&filter, 1), 0);
        end(&filter);
}

Test(tinylfu, over_a_victim_the_more_used_wins)
{
        struct cairn_tinylfu filter;

        begin(&filter, CAIRN_ADMISSION_TINYLFU, 1024, 0);
        for (int i = 0; i < 3; i++)
                cairn_tinylfu_use(&filter, 1);
        cairn_tinylfu_use(&filter, 2);
        cr_assert(cairn_tinylfu_admit_over(&filter, 1, 2));
        cr_assert_not(cairn_tinylfu_admit_over(&filter, 2, 1));
        cr_assert_not(cairn_tinylfu_admit_over(&filter, 1, 1), "a tie stays out");
        end(&filter);
}
