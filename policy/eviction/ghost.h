// Ids of blocks evicted lately, in bounded memory: a ring in order of eviction and a hash table
// over it. Forgets the oldest when entries or the bytes they stood for exceed their bounds. Used by
// policy/eviction/s3fifo.c.
#ifndef CAIRN_EVICTION_GHOST_H
#define CAIRN_EVICTION_GHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cairn_ghost_entry {
        uint64_t id;
        uint64_t size_bytes; // 0: taken back, the place in the ring waits to be reused
};

struct cairn_ghost {
        struct cairn_ghost_entry *ring; // [entries_max]
        uint32_t *slots;                // [slots_count] index in the ring plus 1; 0: empty
        uint32_t entries_max;
        uint32_t slots_count; // a power of two, at least twice entries_max
        uint32_t first;       // the oldest
        uint32_t entries;     // places of the ring in use
        uint64_t bytes;
        uint64_t bytes_max;
};

// Memory for entries_max entries (1..2^24), aligned to 16.
size_t cairn_ghost_bytes(uint32_t entries_max);
void cairn_ghost_init(struct cairn_ghost *ghost, uint32_t entries_max, uint64_t bytes_max,
                      void *memory);
// An id that is there already is moved to the newest end.
void cairn_ghost_add(struct cairn_ghost *ghost, uint64_t id, uint64_t size_bytes);
// True, and forgotten, when `id` was there.
bool cairn_ghost_take(struct cairn_ghost *ghost, uint64_t id);
void cairn_ghost_resize(struct cairn_ghost *ghost, uint64_t bytes_max);

#endif
