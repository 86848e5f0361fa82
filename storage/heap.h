// A binary heap of things by a 64-bit key, smallest first. The thing holds its own place (a
// uint32_t, CAIRN_HEAP_OUT when it is not in), by which it is found, moved and removed.
//
// May be used by: storage, tests. May use: nothing. Threads: the owner's.
#ifndef CAIRN_HEAP_H
#define CAIRN_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#define CAIRN_HEAP_OUT UINT32_MAX

struct cairn_heap_item {
        uint64_t key;
        uint32_t *place; // in the thing
};
struct cairn_heap {
        struct cairn_heap_item *items; // owned
        uint32_t count;
        uint32_t capacity;
};

void cairn_heap_finish(struct cairn_heap *heap);
// Makes room, so that the next sets cannot fail. CAIRN_ENOMEM.
int cairn_heap_reserve(struct cairn_heap *heap, uint32_t count);
// Puts a thing in or moves it. False: it is not in, for want of memory.
bool cairn_heap_set(struct cairn_heap *heap, uint32_t *place, uint64_t key);
void cairn_heap_remove(struct cairn_heap *heap, uint32_t *place); // nothing if it is not in
// The smallest, or NULL.
const struct cairn_heap_item *cairn_heap_top(const struct cairn_heap *heap);

#endif
