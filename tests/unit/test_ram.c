// The RAM tier's memory: slots within an exact budget, whatever their sizes.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "storage/ram.h"

static uint64_t backed_by_system(const struct cairn_ram *ram, const struct cairn_ram_slot *slot)
{
        struct cairn_ram_place place;
        struct stat status;
        cairn_ram_place(ram, slot, &place);
        cr_assert_eq(fstat(place.fd, &status), 0);
        return (uint64_t)status.st_blocks * 512;
}

Test(ram, budget_is_exact)
{
        struct cairn_ram *ram;
        struct cairn_ram_slot slots[64];
        cr_assert_eq(cairn_ram_create(256 << 10, false, &ram), CAIRN_OK);
        uint32_t count = 0;
        while (count < 64 && cairn_ram_alloc(ram, 0, 16 << 10, &slots[count]) == CAIRN_OK) {
                cr_assert_eq((uintptr_t)slots[count].bytes % 4096, 0);
                memset(slots[count].bytes, (int)count, 16 << 10);
                count++;
        }
        cr_assert_eq(count, 15); // and a page of the generations' table
        cr_assert_leq(cairn_ram_backed_bytes(ram), 256 << 10);
        cr_assert_eq(cairn_ram_used_bytes(ram), 15 * (16 << 10));
        struct cairn_ram_slot more;
        cr_assert_eq(cairn_ram_alloc(ram, 0, 16 << 10, &more), CAIRN_EAGAIN);
        for (uint32_t i = 0; i < count; i++) {
                const uint8_t *bytes = slots[i].bytes;
                cr_assert(bytes[0] == i && bytes[(16 << 10) - 1] == i, "slots do not overlap");
                cairn_ram_free(ram, &slots[i]);
        }
        cr_assert_eq(cairn_ram_used_bytes(ram), 0);
        cairn_ram_destroy(ram);
}

Test(ram, freed_memory_serves_other_sizes_and_tenants)
{
        struct cairn_ram *ram;
        struct cairn_ram_slot slots[200];
        cr_assert_eq(cairn_ram_create(1 << 20, false, &ram), CAIRN_OK);
        const uint64_t sizes[] = {8 << 10, 100 << 10, 4 << 10, 512 << 10, 36 << 10};
        for (int round = 0; round < 25; round++) {
                uint64_t size = sizes[round % 5];
                uint32_t count = 0;
                while (count < 200 &&
                       cairn_ram_alloc(ram, (uint32_t)round % 3, size, &slots[count]) == CAIRN_OK) {
                        memset(slots[count].bytes, 1, size);
                        count++;
                }
                cr_assert(count == 200 || (count + 1) * size + 8192 > 1 << 20, "round %d: %u slots",
                          round, count);
                cr_assert_leq(backed_by_system(ram, &slots[0]), 1 << 20);
                while (count > 0)
                        cairn_ram_free(ram, &slots[--count]);
        }
        cairn_ram_trim(ram);
        cr_assert_eq(cairn_ram_backed_bytes(ram), 0);
        cairn_ram_destroy(ram);
}

Test(ram, generation_changes_when_a_slot_is_freed)
{
        struct cairn_ram *ram;
        struct cairn_ram_slot slot;
        struct cairn_ram_place before, after;
        cr_assert_eq(cairn_ram_create(1 << 20, false, &ram), CAIRN_OK);
        cr_assert_eq(cairn_ram_alloc(ram, 0, 8192, &slot), CAIRN_OK);
        cairn_ram_place(ram, &slot, &before);
        struct cairn_ram_slot copy = slot;
        cairn_ram_free(ram, &slot);
        cr_assert_null(slot.bytes);
        cr_assert_eq(cairn_ram_alloc(ram, 0, 8192, &slot), CAIRN_OK);
        cr_assert_eq(slot.bytes, copy.bytes);
        cairn_ram_place(ram, &slot, &after);
        cr_assert_eq(after.offset, before.offset);
        cr_assert_eq(after.generation, before.generation + 1);
        cairn_ram_free(ram, &slot);
        cairn_ram_destroy(ram);
}

Test(ram, more_than_all_is_impossible)
{
        struct cairn_ram *ram;
        cr_assert_eq(cairn_ram_create(64 << 10, false, &ram), CAIRN_OK);
        cr_assert(cairn_ram_possible(ram, 60 << 10));
        cr_assert_not(cairn_ram_possible(ram, 64 << 10));
        cairn_ram_destroy(ram);
}

Test(ram, random_sizes_keep_the_sums)
{
        struct cairn_ram *ram;
        struct cairn_ram_slot slots[64] = {0};
        uint64_t sizes[64] = {0}, used = 0, state = 12345;
        cr_assert_eq(cairn_ram_create(2 << 20, false, &ram), CAIRN_OK);
        for (int i = 0; i < 20000; i++) {
                state = state * 6364136223846793005ull + 1442695040888963407ull;
                uint32_t at = (uint32_t)(state >> 58);
                if (slots[at].bytes) {
                        cairn_ram_free(ram, &slots[at]);
                        used -= sizes[at];
                } else {
                        uint64_t size = (1 + (state >> 40) % 12) * 4096;
                        uint32_t tenant = (uint32_t)(state >> 33) % 2;
                        int status = cairn_ram_alloc(ram, tenant, size, &slots[at]);
                        cr_assert(status == CAIRN_OK || status == CAIRN_EAGAIN);
                        if (status == CAIRN_OK) {
                                sizes[at] = size;
                                used += size;
                        }
                }
                cr_assert_eq(cairn_ram_used_bytes(ram), used);
                cr_assert_leq(cairn_ram_backed_bytes(ram), 2 << 20);
        }
        for (int i = 0; i < 64; i++) {
                if (slots[i].bytes)
                        cairn_ram_free(ram, &slots[i]);
        }
        cairn_ram_destroy(ram);
}
