// The block table and the heaps: found, removed and moved against plain arrays.
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "storage/store_internal.h"

static uint64_t seed(void)
{
        const char *text = getenv("CAIRN_TEST_SEED");
        uint64_t value = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
        fprintf(stderr, "CAIRN_TEST_SEED=%lu\n", (unsigned long)value);
        return value;
}

static uint64_t next(uint64_t *state)
{
        *state = *state * 6364136223846793005ull + 1442695040888963407ull;
        return *state >> 33;
}

// Keys that collide in their first bytes.
static struct cairn_key key_of(uint32_t number)
{
        struct cairn_key key = {{0}};
        memcpy(key.bytes + 20, &number, sizeof(number));
        return key;
}

Test(table, finds_what_was_inserted_and_not_removed)
{
        enum {
                KEYS = 3000
        };
        struct cairn_table table;
        static struct cairn_block *blocks[KEYS];
        uint64_t state = seed();
        memset(blocks, 0, sizeof(blocks));
        cr_assert_eq(cairn_table_init(&table, 0, state), CAIRN_OK);
        for (int i = 0; i < 60000; i++) {
                uint32_t number = (uint32_t)next(&state) % KEYS;
                struct cairn_key key = key_of(number);
                cr_assert_eq(cairn_table_find(&table, 1, &key), blocks[number]);
                cr_assert_null(cairn_table_find(&table, 2, &key));
                if (blocks[number]) {
                        cairn_table_remove(&table, blocks[number]);
                        cairn_table_entry_free(&table, blocks[number]);
                        blocks[number] = NULL;
                        continue;
                }
                cr_assert_eq(cairn_table_reserve(&table, 1), CAIRN_OK);
                blocks[number] = cairn_table_entry(&table, false);
                cr_assert_not_null(blocks[number]);
                blocks[number]->key = key;
                blocks[number]->space = 1;
                cairn_table_insert(&table, blocks[number]);
        }
        for (uint32_t number = 0; number < KEYS; number++) {
                struct cairn_key key = key_of(number);
                cr_assert_eq(cairn_table_find(&table, 1, &key), blocks[number]);
        }
        cairn_table_finish(&table);
}

// Enough entries for ids to grow into the tags, and for chunks to come in groups.
static void fill_and_search(uint64_t expected_count)
{
        enum {
                KEYS = 300000,
                A_SEARCH = 1000
        };
        struct cairn_table table;
        uint64_t state = seed();
        struct cairn_key *keys = calloc(KEYS, sizeof(*keys));
        struct cairn_block **blocks = calloc(KEYS, sizeof(struct cairn_block *));
        cr_assert(keys && blocks);
        cr_assert_eq(cairn_table_init(&table, expected_count, state), CAIRN_OK);
        for (uint32_t i = 0; i < KEYS; i++) {
                keys[i] = key_of(i);
                if (next(&state) % 4 == 0)
                        continue; // stays absent
                cr_assert_eq(cairn_table_reserve(&table, 1), CAIRN_OK);
                blocks[i] = cairn_table_entry(&table, false);
                cr_assert_not_null(blocks[i]);
                cr_assert_eq((uintptr_t)blocks[i] % 8, 0);
                blocks[i]->key = keys[i];
                blocks[i]->space = 7;
                cairn_table_insert(&table, blocks[i]);
        }
        for (uint32_t first = 0; first < KEYS; first += A_SEARCH) {
                struct cairn_table_search search;
                cairn_table_search_init(&search, &table, 7, keys + first, A_SEARCH);
                for (uint32_t i = first; i < first + A_SEARCH; i++) {
                        cr_assert_eq(cairn_table_search_next(&search), blocks[i]);
                        cr_assert_eq(cairn_table_find(&table, 7, &keys[i]), blocks[i]);
                }
        }
        for (uint32_t i = 0; i < KEYS; i++) {
                if (!blocks[i])
                        continue;
                cairn_table_remove(&table, blocks[i]);
                cairn_table_entry_free(&table, blocks[i]);
        }
        cr_assert_eq(table.index_count, 0);
        cairn_table_finish(&table);
        free(blocks);
        free(keys);
}

Test(table, searches_find_what_single_look_ups_find)
{
        fill_and_search(0);
}

Test(table, searches_a_table_that_was_made_for_many)
{
        fill_and_search(200000);
}

// Searches follow entries that lie one behind the other: what lies there and is not in the index (a
// put under way, a block that was replaced), or has another key, must not be taken for the next.
Test(table, searches_follow_runs_and_are_not_led_astray)
{
        enum {
                KEYS = 20000,
                SEARCHES = 400,
                A_SEARCH = 300
        };
        struct cairn_table table;
        uint64_t state = seed();
        struct cairn_key *keys = calloc(A_SEARCH, sizeof(*keys));
        struct cairn_block **blocks = calloc(KEYS, sizeof(struct cairn_block *));
        cr_assert(keys && blocks);
        cr_assert_eq(cairn_table_init(&table, 0, state), CAIRN_OK);
        for (uint32_t i = 0; i < KEYS; i++) {
                cr_assert_eq(cairn_table_reserve(&table, 1), CAIRN_OK);
                bool decoy = next(&state) % 16 == 0;
                struct cairn_block *block = cairn_table_entry(&table, false);
                block->key = key_of(i);
                block->space = 7;
                if (decoy) { // lies where the key is expected
                        block = cairn_table_entry(&table, false);
                        block->key = key_of(i);
                        block->space = 7;
                }
                if (next(&state) % 32 == 0)
                        continue; // its entries are there, and it is not
                block->flags |= CAIRN_BLOCK_VISIBLE;
                cairn_table_insert(&table, block);
                blocks[i] = block;
        }
        for (uint32_t n = 0; n < SEARCHES; n++) {
                struct cairn_table_search search;
                uint32_t numbers[A_SEARCH], count = (uint32_t)(next(&state) % A_SEARCH);
                for (uint32_t i = 0, at = 0; i < count; i++) {
                        bool jumps = i == 0 || next(&state) % 20 == 0;
                        at = jumps ? (uint32_t)(next(&state) % (KEYS + 100)) : at + 1;
                        numbers[i] = at;
                        keys[i] = key_of(at);
                }
                cairn_table_search_init(&search, &table, 7, keys, count);
                for (uint32_t i = 0; i < count; i++)
                        cr_assert_eq(cairn_table_search_next(&search),
                                     numbers[i] < KEYS ? blocks[numbers[i]] : NULL,
                                     "search %u, key %u", n, i);
                cairn_table_search_init(&search, &table, 8, keys, count);
                for (uint32_t i = 0; i < count; i++)
                        cr_assert_null(cairn_table_search_next(&search), "another space's");
        }
        cairn_table_finish(&table);
        free(blocks);
        free(keys);
}

Test(table, entries_can_be_taken_by_id_before_any_other)
{
        enum {
                COUNT = 3000,
                MORE = 5000
        };
        struct cairn_table table;
        static bool taken[COUNT + MORE + 4096];
        cr_assert_eq(cairn_table_init(&table, COUNT, 1), CAIRN_OK);
        cr_assert_eq(cairn_table_prepare(&table, COUNT), CAIRN_OK);
        for (uint32_t i = 0; i < COUNT; i++) {
                uint32_t id = i * 7 % COUNT; // each once
                if (id % 3 == 0)
                        continue; // stays free
                cr_assert_eq(cairn_table_entry_at(&table, id)->id, id);
                taken[id] = true;
        }
        cairn_table_relist(&table);
        for (uint32_t i = 0; i < MORE; i++) {
                const struct cairn_block *block = cairn_table_entry(&table, false);
                cr_assert_not_null(block);
                cr_assert_lt(block->id, sizeof(taken));
                cr_assert(!taken[block->id], "%u is given twice", block->id);
                taken[block->id] = true;
                if (i == 0)
                        cr_assert_eq(block->id, 0, "the free ones before new ones");
        }
        cairn_table_finish(&table);
}

// Workers choose keys: no family of them that can be named in advance may share a place.
Test(table, keys_that_are_alike_do_not_crowd_together)
{
        enum {
                KEYS = 4000,
                RUN_MAX = 200
        };
        static const uint64_t likely[] = {0, 1, UINT64_MAX, 0x9e3779b97f4a7c15ull,
                                          0xd1b54a32d192ed03ull};
        uint64_t state = seed();
        for (uint32_t family = 0; family < 25; family++) {
                struct cairn_table table;
                uint64_t words[4] = {likely[family % 5], 0, likely[family / 5], 0};
                cr_assert_eq(cairn_table_init(&table, 2 * KEYS, next(&state)), CAIRN_OK);
                for (uint32_t i = 0; i < KEYS; i++) {
                        struct cairn_block *block = cairn_table_entry(&table, false);
                        words[1] = i % 64;
                        words[3] = i / 64;
                        memcpy(block->key.bytes, words, sizeof(words));
                        cairn_table_insert(&table, block);
                }
                uint32_t run = 0, longest = 0;
                for (uint32_t i = 0; i <= table.index_mask; i++) {
                        run = table.index[i] ? run + 1 : 0;
                        longest = run > longest ? run : longest;
                }
                cr_assert_lt(longest, RUN_MAX, "family %u", family);
                cairn_table_finish(&table);
        }
}

Test(table, ghost_hands_its_children_over)
{
        struct cairn_table table;
        cr_assert_eq(cairn_table_init(&table, 0, 1), CAIRN_OK);
        struct cairn_block *ghost = cairn_table_entry(&table, true);
        ghost->key = key_of(1);
        ghost->flags |= CAIRN_BLOCK_GHOST;
        ghost->children = 3;
        ghost->children_ram = 2;
        ghost->children_visible = 1;
        cairn_table_insert(&table, ghost);
        struct cairn_block *block = cairn_table_entry(&table, false);
        block->key = key_of(1);
        cairn_table_replace(&table, ghost, block);
        cr_assert_eq(cairn_table_find(&table, 0, &block->key), block);
        cr_assert_eq(block->children, 3);
        cr_assert_eq(block->children_ram, 2);
        cr_assert_eq(block->children_visible, 1);
        cairn_table_finish(&table);
}

Test(heap, gives_the_smallest_whatever_was_moved_and_removed)
{
        enum {
                THINGS = 300
        };
        struct cairn_heap heap = {0};
        static uint32_t places[THINGS];
        static uint64_t keys[THINGS];
        uint64_t state = seed();
        for (int i = 0; i < THINGS; i++)
                places[i] = CAIRN_HEAP_OUT;
        for (int i = 0; i < 100000; i++) {
                uint32_t thing = (uint32_t)next(&state) % THINGS;
                if (next(&state) % 3 == 0) {
                        cairn_heap_remove(&heap, &places[thing]);
                        cr_assert_eq(places[thing], CAIRN_HEAP_OUT);
                } else {
                        keys[thing] = next(&state) % 1000;
                        cr_assert(cairn_heap_set(&heap, &places[thing], keys[thing]));
                }
                if (i % 100)
                        continue;
                uint64_t smallest = UINT64_MAX;
                for (int n = 0; n < THINGS; n++) {
                        if (places[n] != CAIRN_HEAP_OUT && keys[n] < smallest)
                                smallest = keys[n];
                }
                const struct cairn_heap_item *top = cairn_heap_top(&heap);
                cr_assert(top ? top->key == smallest : smallest == UINT64_MAX);
        }
        cairn_heap_finish(&heap);
}
