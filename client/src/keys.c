// Keys and status texts of the public API.
#include "client/src/client.h"

size_t cairn_chain_keys(const struct cairn_key *fingerprint, uint32_t block_tokens,
                        const void *salt, size_t salt_bytes, const void *adapter,
                        size_t adapter_bytes, const struct cairn_key *parent,
                        const uint32_t *tokens, size_t count, struct cairn_key *ret_keys)
{
        struct cairn_key_seed seed = {
            .space = *fingerprint,
            .salt = salt,
            .salt_bytes = salt ? salt_bytes : 0,
            .adapter = adapter,
            .adapter_bytes = adapter ? adapter_bytes : 0,
        };
        size_t blocks = block_tokens ? count / block_tokens : 0;

        for (size_t i = 0; i < blocks; i++) {
                cairn_key_block(&seed, parent, tokens + i * block_tokens, block_tokens,
                                &ret_keys[i]);
                parent = &ret_keys[i];
        }
        return blocks;
}

void cairn_key_to_text(const struct cairn_key *key, char ret_text[65])
{
        cairn_key_hex(key, ret_text);
}

int cairn_key_from_text(const char *text, struct cairn_key *ret_key)
{
        return cairn_key_parse(text, ret_key);
}

const char *cairn_error_name(int status)
{
        return cairn_status_name(status);
}

const char *cairn_error_text(int status)
{
        return cairn_status_text(status);
}

const char *cairn_error_remedy(int status)
{
        return cairn_status_remedy(status);
}
