// Names of blocks: BLAKE2b-256 over tagged, length-prefixed fields, so that no two different inputs
// read the same. The byte format (and golden vectors): proto/README.md, tests/e2e/golden_keys.json.
// May be used by: all folders. May use: libsodium (in key.c). Threads: any.
#ifndef CAIRN_KEY_H
#define CAIRN_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

struct cairn_key {
        uint8_t bytes[CAIRN_KEY_BYTES];
};

// What a chain's keys depend on beside the tokens. `salt` and `adapter` may be NULL with size 0;
// both are bytes.
struct cairn_key_seed {
        struct cairn_key space; // fingerprint of the space
        const void *salt;
        size_t salt_bytes;
        const void *adapter;
        size_t adapter_bytes;
};

// ret_key = hash(space, parent or nothing, tokens[count] as u32 little endian, salt, adapter).
// `parent` NULL: a root.
void cairn_key_block(const struct cairn_key_seed *seed, const struct cairn_key *parent,
                     const uint32_t *tokens, size_t count, struct cairn_key *ret_key);

// Keys of all full blocks of `tokens`: count / block_tokens of them are written to ret_keys.
// Returns their number.
size_t cairn_key_chain(const struct cairn_key_seed *seed, const uint32_t *tokens, size_t count,
                       uint32_t block_tokens, struct cairn_key *ret_keys);

bool cairn_key_equal(const struct cairn_key *a, const struct cairn_key *b);
bool cairn_key_is_zero(const struct cairn_key *key);
// 64 hex digits and a zero.
void cairn_key_hex(const struct cairn_key *key, char ret_text[2 * CAIRN_KEY_BYTES + 1]);
// CAIRN_EINVAL unless `text` is 64 hex digits.
int cairn_key_parse(const char *text, struct cairn_key *ret_key);

// Incremental hashing of tagged fields, for space fingerprints.
struct cairn_key_hash {
        _Alignas(64) uint8_t state[512];
};
void cairn_key_hash_init(struct cairn_key_hash *hash, const char *domain);
void cairn_key_hash_field(struct cairn_key_hash *hash, uint8_t tag, const void *bytes, size_t size);
void cairn_key_hash_u64(struct cairn_key_hash *hash, uint8_t tag, uint64_t value);
void cairn_key_hash_finish(struct cairn_key_hash *hash, struct cairn_key *ret_key);

#endif
