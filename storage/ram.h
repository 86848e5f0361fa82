// Memory of the RAM tier: slots of any size within one exact budget. Slots of one size and tenant
// come from segments (memfds, mapped shared), sparse: a segment costs its slots in use and those
// kept for reuse, no more. When another size needs the memory, kept slots are given back to the
// system page by page. A slot has a generation, in a table at the segment's start that a reader of
// the segment can see: it changes when the slot is freed. The table's first u64 is 0 while the
// segment is in use: once it is not, readers should unmap theirs, which keeps the memory alive.
//
// Whoever needs memory frees blocks first (storage/evict.c): this module never chooses what to
// forget.
//
// May be used by: storage, tests. May use: proto. Threads: the loop thread; slot bytes: any.
#ifndef CAIRN_RAM_H
#define CAIRN_RAM_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/status.h"

enum {
        CAIRN_RAM_SEGMENTS_MAX = 4096,
        CAIRN_RAM_CLASSES_MAX = 4096, // pairs of (tenant, slot size)
};

struct cairn_ram;
struct cairn_ram_slot {
        void *bytes; // 4096-aligned; NULL: none
        uint32_t segment;
        uint32_t index;
};

// sealed: segments are sealed against writing by others, which costs the giving back of single
// slots.
int cairn_ram_create(uint64_t limit_bytes, bool sealed, struct cairn_ram **ret_ram);
void cairn_ram_destroy(struct cairn_ram *ram); // every slot must be free; NULL is fine

// A slot of `bytes` (a multiple of 4096), its content unspecified. CAIRN_EAGAIN: the budget is used
// up (free something and retry). CAIRN_ENOMEM: the system refuses.
int cairn_ram_alloc(struct cairn_ram *ram, uint32_t tenant, uint64_t bytes,
                    struct cairn_ram_slot *ret_slot);
void cairn_ram_free(struct cairn_ram *ram, struct cairn_ram_slot *slot); // clears it

// True if a slot of these bytes could be had were everything else freed.
bool cairn_ram_possible(const struct cairn_ram *ram, uint64_t bytes);
uint64_t cairn_ram_used_bytes(const struct cairn_ram *ram); // of slots in use
uint64_t cairn_ram_backed_bytes(
    const struct cairn_ram *ram); // and of kept slots and tables: <= limit
// Takes kept slots one after the other, to overwrite and free them again: *segment 0 and *left
// UINT32_MAX at first. False: that was all of them.
bool cairn_ram_take_kept(struct cairn_ram *ram, uint32_t *segment, uint32_t *left,
                         struct cairn_ram_slot *ret_slot, uint64_t *ret_bytes);
// Gives kept slots back to the system.
void cairn_ram_trim(struct cairn_ram *ram);

// Where a slot lies in its segment's file, for views.
struct cairn_ram_place {
        int fd;           // the segment's
        uint64_t segment; // its number, never used twice
        uint32_t index;   // below CAIRN_RAM_SEGMENTS_MAX, taken by one segment after the other
        uint64_t segment_bytes;
        uint64_t offset;
        uint64_t generation_offset; // of the u64 in the table
        uint64_t generation;
};
void cairn_ram_place(const struct cairn_ram *ram, const struct cairn_ram_slot *slot,
                     struct cairn_ram_place *ret_place);

#endif
