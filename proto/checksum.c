// XXH3-128 by xxHash.
#include "proto/checksum.h"

#include <assert.h>
#include <string.h>

// The streaming state lives on the stack, which the header offers to static users alone.
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "proto/copy.h"

enum {
        CHUNK_BYTES = 32 * 1024
}; // fits the first-level cache beside the destination

static void canonical(XXH128_hash_t hash, struct cairn_checksum *ret_checksum)
{
        XXH128_canonical_t canon;

        XXH128_canonicalFromHash(&canon, hash);
        memcpy(ret_checksum->bytes, canon.digest, sizeof(ret_checksum->bytes));
}

void cairn_checksum_of(const void *bytes, size_t size, struct cairn_checksum *ret_checksum)
{
        assert(bytes || size == 0);
        canonical(XXH3_128bits(bytes, size), ret_checksum);
}

bool cairn_checksum_equal(const struct cairn_checksum *a, const struct cairn_checksum *b)
{
        return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

static void begin(XXH3_state_t *state)
{
        XXH3_INITSTATE(state);
        (void)XXH3_128bits_reset(state); // fails for NULL alone
}

// The destination is hashed, not the source: a source that another process may still change (an
// arena) is read once, so what is hashed is what was kept.
void cairn_checksum_copy(void *restrict to, const void *restrict from, size_t size,
                         struct cairn_checksum *ret_checksum)
{
        XXH3_state_t state;
        uint8_t *out = to;
        const uint8_t *in = from;

        begin(&state);
        while (size > 0) {
                size_t part = size < CHUNK_BYTES ? size : CHUNK_BYTES;

                memcpy(out, in, part);
                (void)XXH3_128bits_update(&state, out, part);
                out += part;
                in += part;
                size -= part;
        }
        canonical(XXH3_128bits_digest(&state), ret_checksum);
}

// The source is hashed, since the destination does not come into the cache.
void cairn_checksum_copy_own(void *restrict to, const void *restrict from, size_t size,
                             struct cairn_checksum *ret_checksum)
{
        XXH3_state_t state;
        uint8_t *out = to;
        const uint8_t *in = from;

        begin(&state);
        while (size > 0) {
                size_t part = size < CHUNK_BYTES ? size : CHUNK_BYTES;

                (void)XXH3_128bits_update(&state, in, part);
                cairn_copy_past_caches(out, in, part);
                out += part;
                in += part;
                size -= part;
        }
        canonical(XXH3_128bits_digest(&state), ret_checksum);
}
