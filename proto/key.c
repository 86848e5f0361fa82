// Names of blocks by BLAKE2b-256 (libsodium), every field tagged and length-prefixed.
#include "proto/key.h"

#include <assert.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>

#include "proto/bytes.h"
#include "proto/status.h"

enum tag {
        TAG_DOMAIN = 1,
        TAG_SPACE = 2,
        TAG_PARENT = 3,
        TAG_TOKENS = 4,
        TAG_SALT = 5,
        TAG_ADAPTER = 6,
};

_Static_assert(sizeof(crypto_generichash_state) <= sizeof(((struct cairn_key_hash *)0)->state),
               "room for libsodium's state");
_Static_assert(CAIRN_KEY_BYTES == crypto_generichash_BYTES, "BLAKE2b-256");

static crypto_generichash_state *state_of(struct cairn_key_hash *hash)
{
        return (crypto_generichash_state *)hash->state;
}

static void field_begin(struct cairn_key_hash *hash, uint8_t tag, uint64_t size)
{
        uint8_t head[9] = {tag};

        cairn_put_u64(head + 1, size);
        (void)crypto_generichash_update(state_of(hash), head, sizeof(head)); // cannot fail
}

// Chooses the fastest BLAKE2b that this machine has: without it libsodium uses its portable one.
static void choose(void)
{
        (void)!sodium_init(); // fails where there is no randomness, which nothing here needs
}

void cairn_key_hash_init(struct cairn_key_hash *hash, const char *domain)
{
        static pthread_once_t chosen = PTHREAD_ONCE_INIT;

        (void)pthread_once(&chosen, choose);                                     // cannot fail
        (void)crypto_generichash_init(state_of(hash), NULL, 0, CAIRN_KEY_BYTES); // sizes are legal
        cairn_key_hash_field(hash, TAG_DOMAIN, domain, strlen(domain));
}

void cairn_key_hash_field(struct cairn_key_hash *hash, uint8_t tag, const void *bytes, size_t size)
{
        assert(bytes || size == 0);
        field_begin(hash, tag, size);
        if (size > 0)
                (void)crypto_generichash_update(state_of(hash), bytes, size); // cannot fail
}

void cairn_key_hash_u64(struct cairn_key_hash *hash, uint8_t tag, uint64_t value)
{
        uint8_t bytes[8];

        cairn_put_u64(bytes, value);
        cairn_key_hash_field(hash, tag, bytes, sizeof(bytes));
}

void cairn_key_hash_finish(struct cairn_key_hash *hash, struct cairn_key *ret_key)
{
        (void)crypto_generichash_final(state_of(hash), ret_key->bytes, CAIRN_KEY_BYTES);
        sodium_memzero(hash, sizeof(*hash));
}

// Tokens go in as u32 little endian whatever the host's order, a chunk at a time.
static void hash_tokens(struct cairn_key_hash *hash, const uint32_t *tokens, size_t count)
{
        uint8_t chunk[1024];
        size_t done = 0;

        field_begin(hash, TAG_TOKENS, (uint64_t)count * 4);
        while (done < count) {
                size_t part = count - done < sizeof(chunk) / 4 ? count - done : sizeof(chunk) / 4;

                for (size_t i = 0; i < part; i++)
                        cairn_put_u32(chunk + 4 * i, tokens[done + i]);
                (void)crypto_generichash_update(state_of(hash), chunk, 4 * part);
                done += part;
        }
}

void cairn_key_block(const struct cairn_key_seed *seed, const struct cairn_key *parent,
                     const uint32_t *tokens, size_t count, struct cairn_key *ret_key)
{
        struct cairn_key_hash hash;

        assert(tokens || count == 0);
        cairn_key_hash_init(&hash, "cairn block key 1");
        cairn_key_hash_field(&hash, TAG_SPACE, seed->space.bytes, CAIRN_KEY_BYTES);
        cairn_key_hash_field(&hash, TAG_PARENT, parent ? parent->bytes : NULL,
                             parent ? CAIRN_KEY_BYTES : 0);
        hash_tokens(&hash, tokens, count);
        cairn_key_hash_field(&hash, TAG_SALT, seed->salt, seed->salt_bytes);
        cairn_key_hash_field(&hash, TAG_ADAPTER, seed->adapter, seed->adapter_bytes);
        cairn_key_hash_finish(&hash, ret_key);
}

size_t cairn_key_chain(const struct cairn_key_seed *seed, const uint32_t *tokens, size_t count,
                       uint32_t block_tokens, struct cairn_key *ret_keys)
{
        const struct cairn_key *parent = NULL;
        size_t blocks;

        assert(block_tokens > 0);
        blocks = count / block_tokens;
        for (size_t i = 0; i < blocks; i++) {
                cairn_key_block(seed, parent, tokens + i * block_tokens, block_tokens,
                                &ret_keys[i]);
                parent = &ret_keys[i];
        }
        return blocks;
}

bool cairn_key_equal(const struct cairn_key *a, const struct cairn_key *b)
{
        return memcmp(a->bytes, b->bytes, CAIRN_KEY_BYTES) == 0;
}

bool cairn_key_is_zero(const struct cairn_key *key)
{
        static const struct cairn_key zero;
        return cairn_key_equal(key, &zero);
}

void cairn_key_hex(const struct cairn_key *key, char ret_text[2 * CAIRN_KEY_BYTES + 1])
{
        sodium_bin2hex(ret_text, 2 * CAIRN_KEY_BYTES + 1, key->bytes, CAIRN_KEY_BYTES);
}

int cairn_key_parse(const char *text, struct cairn_key *ret_key)
{
        struct cairn_key key;
        size_t parsed = 0;
        const char *end = NULL;

        if (strlen(text) != 2 * CAIRN_KEY_BYTES)
                return CAIRN_EINVAL;
        if (sodium_hex2bin(key.bytes, sizeof(key.bytes), text, 2 * CAIRN_KEY_BYTES, NULL, &parsed,
                           &end) != 0 ||
            parsed != CAIRN_KEY_BYTES)
                return CAIRN_EINVAL;
        *ret_key = key;
        return CAIRN_OK;
}
