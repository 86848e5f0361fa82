// Copies past the caches: every byte, and none beside them.
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/checksum.h"
#include "proto/copy.h"

enum {
        ROOM = 200 * 1024
};

static uint32_t next(uint32_t *state)
{
        *state = *state * 1664525u + 1013904223u;
        return *state >> 8;
}

Test(copy, takes_every_byte_and_touches_no_other)
{
        const char *given = getenv("CAIRN_TEST_SEED");
        uint32_t seed = given ? (uint32_t)strtoul(given, NULL, 10) : (uint32_t)time(NULL);
        uint32_t state = seed;
        uint8_t *from = malloc(ROOM), *to = malloc(ROOM), *expected = malloc(ROOM);

        printf("CAIRN_TEST_SEED=%u\n", seed);
        for (uint32_t i = 0; i < ROOM; i++)
                from[i] = (uint8_t)next(&state);
        for (int round = 0; round < 3000; round++) {
                size_t size = round < 600 ? (size_t)round : next(&state) % (ROOM / 2);
                size_t at = next(&state) % 300, source = next(&state) % 300;

                memset(to, round, ROOM);
                memset(expected, round, ROOM);
                memcpy(expected + at, from + source, size);
                if (round % 2) {
                        cairn_copy_past_caches(to + at, from + source, size);
                } else {
                        struct cairn_checksum copied, whole;

                        cairn_checksum_copy_own(to + at, from + source, size, &copied);
                        cairn_checksum_of(from + source, size, &whole);
                        cr_assert(cairn_checksum_equal(&copied, &whole));
                }
                cr_assert_eq(memcmp(to, expected, ROOM), 0, "%zu bytes from %zu to %zu", size,
                             source, at);
        }
        free(from);
        free(to);
        free(expected);
}
