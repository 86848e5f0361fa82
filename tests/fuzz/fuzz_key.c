// Fuzzes keys: hex text round trips, and no two ways to cut tokens, salt and adapter give the same
// key.
#include <string.h>

#include "proto/key.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

static void check_text(const uint8_t *bytes, size_t size)
{
        char text[80] = {0};
        char back[2 * CAIRN_KEY_BYTES + 1];
        struct cairn_key key;

        memcpy(text, bytes, size < sizeof(text) - 1 ? size : sizeof(text) - 1);
        if (cairn_key_parse(text, &key) != CAIRN_OK)
                return;
        cairn_key_hex(&key, back);
        FUZZ_CHECK(strlen(text) == 2 * CAIRN_KEY_BYTES);
        for (size_t i = 0; i < sizeof(back) - 1; i++)
                FUZZ_CHECK((back[i] | 0x20) == (text[i] | 0x20));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        struct cairn_key_seed seed = {0};
        struct cairn_key_seed shifted = {0};
        struct cairn_key a;
        struct cairn_key b;
        uint32_t tokens[4] = {0};
        size_t cut;

        check_text(bytes, size);
        if (size < 4)
                return 0;
        cut = bytes[0] % (size - 1);
        memcpy(tokens, bytes, size < sizeof(tokens) ? size : sizeof(tokens));
        seed.salt = bytes + 1;
        seed.salt_bytes = cut;
        seed.adapter = bytes + 1 + cut;
        seed.adapter_bytes = size - 1 - cut;
        shifted = seed; // the same bytes, cut elsewhere
        shifted.salt_bytes = cut > 0 ? cut - 1 : cut + 1;
        shifted.adapter = bytes + 1 + shifted.salt_bytes;
        shifted.adapter_bytes = size - 1 - shifted.salt_bytes;
        cairn_key_block(&seed, NULL, tokens, 4, &a);
        cairn_key_block(&shifted, NULL, tokens, 4, &b);
        FUZZ_CHECK(!cairn_key_equal(&a, &b));
        cairn_key_block(&seed, &a, tokens, 4, &b);
        FUZZ_CHECK(!cairn_key_equal(&a, &b));
        return 0;
}
