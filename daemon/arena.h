// Arenas: a worker's shared memory, mapped here. The worker can write into it at any moment: read a
// byte once, copy, then validate. It cannot shrink it (the seal is required), so no access inside
// the checked size can fault. May be used by: daemon, tests. May use: proto. Threads: mapped memory
// any; the rest the loop's.
#ifndef CAIRN_ARENA_H
#define CAIRN_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct cairn_arena {
        uint32_t id;   // of its connection's arenas, never 0
        uint32_t uses; // the connection, and each request that works on it
        uint8_t *base;
        uint64_t size_bytes;
};

// Maps `size_bytes` of the memfd, which stays the caller's. CAIRN_EINVAL (with cause and remedy in
// ret_text[CAIRN_TEXT_BYTES_MAX]): no memfd, not sealed against shrinking, sealed against writing,
// shorter than it claims, 0 or above CAIRN_ARENA_BYTES_MAX. CAIRN_ENOMEM: no address space or
// memory.
int cairn_arena_map(int descriptor, uint64_t size_bytes, struct cairn_arena **ret_arena,
                    char *ret_text);
void cairn_arena_ref(struct cairn_arena *arena);
// Unmaps with the last use. NULL is fine.
void cairn_arena_unref(struct cairn_arena *arena);

// CAIRN_ERANGE unless [offset, offset + bytes) lies in `size_bytes`, whatever the numbers.
int cairn_range_check(uint64_t size_bytes, uint64_t offset, uint64_t bytes);

#endif
