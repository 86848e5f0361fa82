// XXH3-128 of bytes, in canonical (big endian) form.
// May be used by: storage, daemon, client, tests. May use: xxHash (in checksum.c). Threads: any.
#ifndef CAIRN_CHECKSUM_H
#define CAIRN_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cairn_checksum {
        uint8_t bytes[16];
};

void cairn_checksum_of(const void *bytes, size_t size, struct cairn_checksum *ret_checksum);
bool cairn_checksum_equal(const struct cairn_checksum *a, const struct cairn_checksum *b);

// Copies and hashes in one pass over the source (chunks that stay in the cache), which others may
// change meanwhile (an arena): what is hashed is what was kept.
void cairn_checksum_copy(void *restrict to, const void *restrict from, size_t size,
                         struct cairn_checksum *ret_checksum);
// The same for a source that nobody changes; the destination goes past the caches.
void cairn_checksum_copy_own(void *restrict to, const void *restrict from, size_t size,
                             struct cairn_checksum *ret_checksum);

#endif
