// The bounded memory of evicted ids (ghost.h): linear probing, deletion by shifting back.
#include "policy/eviction/ghost.h"

#include <assert.h>
#include <string.h>

static uint32_t slots_for(uint32_t entries_max);
static uint32_t home_slot(const struct cairn_ghost *ghost, uint64_t id);
static bool find(const struct cairn_ghost *ghost, uint64_t id, uint32_t *ret_slot);
static void empty_slot(struct cairn_ghost *ghost, uint32_t slot);
static void forget_oldest(struct cairn_ghost *ghost);

size_t cairn_ghost_bytes(uint32_t entries_max)
{
        return entries_max * sizeof(struct cairn_ghost_entry) +
               slots_for(entries_max) * sizeof(uint32_t);
}

void cairn_ghost_init(struct cairn_ghost *ghost, uint32_t entries_max, uint64_t bytes_max,
                      void *memory)
{
        assert(entries_max > 0 && entries_max <= 1u << 24);
        *ghost = (struct cairn_ghost){.ring = memory,
                                      .entries_max = entries_max,
                                      .slots_count = slots_for(entries_max),
                                      .bytes_max = bytes_max};
        ghost->slots = (uint32_t *)(void *)(ghost->ring + entries_max);
        memset(ghost->slots, 0, ghost->slots_count * sizeof(uint32_t));
}

void cairn_ghost_add(struct cairn_ghost *ghost, uint64_t id, uint64_t size_bytes)
{
        uint32_t slot;
        uint32_t place;

        assert(size_bytes > 0);
        if (size_bytes > ghost->bytes_max)
                return;
        (void)cairn_ghost_take(ghost, id); // whether it was there does not matter
        while (ghost->entries == ghost->entries_max || ghost->bytes + size_bytes > ghost->bytes_max)
                forget_oldest(ghost);
        place = (ghost->first + ghost->entries) % ghost->entries_max;
        ghost->ring[place] = (struct cairn_ghost_entry){.id = id, .size_bytes = size_bytes};
        ghost->entries++;
        ghost->bytes += size_bytes;
        (void)find(ghost, id, &slot); // not there: gives the empty slot
        ghost->slots[slot] = place + 1;
}

bool cairn_ghost_take(struct cairn_ghost *ghost, uint64_t id)
{
        uint32_t slot;
        struct cairn_ghost_entry *entry;

        if (!find(ghost, id, &slot))
                return false;
        entry = &ghost->ring[ghost->slots[slot] - 1];
        ghost->bytes -= entry->size_bytes;
        entry->size_bytes = 0;
        empty_slot(ghost, slot);
        return true;
}

void cairn_ghost_resize(struct cairn_ghost *ghost, uint64_t bytes_max)
{
        ghost->bytes_max = bytes_max;
        while (ghost->bytes > bytes_max)
                forget_oldest(ghost);
}

static uint32_t slots_for(uint32_t entries_max)
{
        uint32_t count = 4;

        while (count < 2 * entries_max)
                count *= 2;
        return count;
}

static uint32_t home_slot(const struct cairn_ghost *ghost, uint64_t id)
{
        return (uint32_t)((id * 0x9e3779b97f4a7c15ull) >> 32) & (ghost->slots_count - 1);
}

// ret_slot: where it is, or the empty slot where it would go.
static bool find(const struct cairn_ghost *ghost, uint64_t id, uint32_t *ret_slot)
{
        uint32_t slot = home_slot(ghost, id);

        while (ghost->slots[slot] != 0) {
                if (ghost->ring[ghost->slots[slot] - 1].id == id) {
                        *ret_slot = slot;
                        return true;
                }
                slot = (slot + 1) & (ghost->slots_count - 1);
        }
        *ret_slot = slot;
        return false;
}

static void empty_slot(struct cairn_ghost *ghost, uint32_t slot)
{
        uint32_t mask = ghost->slots_count - 1;
        uint32_t next = slot;

        ghost->slots[slot] = 0;
        for (;;) {
                uint32_t home;

                next = (next + 1) & mask;
                if (ghost->slots[next] == 0)
                        return;
                home = home_slot(ghost, ghost->ring[ghost->slots[next] - 1].id);
                if (((next - home) & mask) < ((next - slot) & mask))
                        continue; // its home lies behind the hole
                ghost->slots[slot] = ghost->slots[next];
                ghost->slots[next] = 0;
                slot = next;
        }
}

static void forget_oldest(struct cairn_ghost *ghost)
{
        struct cairn_ghost_entry *entry = &ghost->ring[ghost->first];
        uint32_t slot;

        assert(ghost->entries > 0);
        if (entry->size_bytes > 0 && find(ghost, entry->id, &slot)) {
                ghost->bytes -= entry->size_bytes;
                empty_slot(ghost, slot);
        }
        ghost->first = (ghost->first + 1) % ghost->entries_max;
        ghost->entries--;
}
