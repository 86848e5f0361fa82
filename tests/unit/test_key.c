// Keys: no two different inputs share one; hex round trip; chains link.
#include <criterion/criterion.h>
#include <string.h>

#include "proto/key.h"
#include "proto/status.h"

static struct cairn_key key_of(const char *salt, const char *adapter, const uint32_t *tokens,
                               size_t count, const struct cairn_key *parent)
{
        struct cairn_key_seed seed = {.salt = salt,
                                      .salt_bytes = salt ? strlen(salt) : 0,
                                      .adapter = adapter,
                                      .adapter_bytes = adapter ? strlen(adapter) : 0};
        struct cairn_key key;

        cairn_key_block(&seed, parent, tokens, count, &key);
        return key;
}

Test(key, case_6_fields_are_tagged_and_measured)
{
        static const uint32_t tokens[] = {1, 2, 3};
        struct cairn_key zero = {{0}};
        const struct cairn_key keys[] = {
            key_of("x", NULL, tokens, 3, NULL),   key_of(NULL, "x", tokens, 3, NULL),
            key_of("ab", "c", tokens, 3, NULL),   key_of("a", "bc", tokens, 3, NULL),
            key_of(NULL, NULL, tokens, 3, NULL),  key_of(NULL, NULL, tokens, 2, NULL),
            key_of(NULL, NULL, tokens, 3, &zero), key_of("abc", NULL, tokens, 3, NULL),
        };
        const size_t count = sizeof(keys) / sizeof(keys[0]);

        for (size_t i = 0; i < count; i++) {
                for (size_t j = i + 1; j < count; j++)
                        cr_assert_not(cairn_key_equal(&keys[i], &keys[j]), "%zu and %zu", i, j);
        }
}

Test(key, chain_links_each_block_to_the_one_before)
{
        uint32_t tokens[40];
        struct cairn_key_seed seed = {.space = {{7}}};
        struct cairn_key keys[5];
        struct cairn_key again;

        for (uint32_t i = 0; i < 40; i++)
                tokens[i] = 0xffffffffu - i;
        cr_assert_eq(cairn_key_chain(&seed, tokens, 39, 8, keys), 4, "whole blocks alone");
        cairn_key_block(&seed, NULL, tokens, 8, &again);
        cr_assert(cairn_key_equal(&again, &keys[0]));
        cairn_key_block(&seed, &keys[2], tokens + 24, 8, &again);
        cr_assert(cairn_key_equal(&again, &keys[3]));
        tokens[0] ^= 1;
        cr_assert_eq(cairn_key_chain(&seed, tokens, 40, 8, keys), 5);
        cr_assert_not(cairn_key_equal(&again, &keys[3]), "a changed root changes all that follow");
}

Test(key, long_token_lists_hash_like_short_ones_joined)
{
        static uint32_t tokens[5000];
        struct cairn_key_seed seed = {.space = {{1}}};
        struct cairn_key a;
        struct cairn_key b;

        for (uint32_t i = 0; i < 5000; i++)
                tokens[i] = i * 2654435761u;
        cairn_key_block(&seed, NULL, tokens, 5000, &a);
        cairn_key_block(&seed, NULL, tokens, 5000, &b);
        cr_assert(cairn_key_equal(&a, &b));
        tokens[4999]++;
        cairn_key_block(&seed, NULL, tokens, 5000, &b);
        cr_assert_not(cairn_key_equal(&a, &b));
}

Test(key, hex_round_trip_and_refusals)
{
        struct cairn_key key = key_of("salt", NULL, NULL, 0, NULL);
        struct cairn_key back;
        char text[2 * CAIRN_KEY_BYTES + 1];

        cairn_key_hex(&key, text);
        cr_assert_eq(strlen(text), 64);
        cr_assert_eq(cairn_key_parse(text, &back), CAIRN_OK);
        cr_assert(cairn_key_equal(&key, &back));
        text[63] = 'g';
        cr_assert_eq(cairn_key_parse(text, &back), CAIRN_EINVAL);
        cr_assert_eq(cairn_key_parse("abc", &back), CAIRN_EINVAL);
        cr_assert_eq(cairn_key_parse("", &back), CAIRN_EINVAL);
}
