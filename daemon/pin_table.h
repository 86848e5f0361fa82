// What open contexts keep in RAM: each block once, however many contexts share it, within a share
// of the RAM tier, so that puts and gets always find room to flow through. May be used by: daemon,
// tests. May use: proto. Threads: the loop's.
#ifndef CAIRN_PIN_TABLE_H
#define CAIRN_PIN_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct cairn_pin_entry {
        const void *block; // NULL: free
        uint64_t bytes;
        uint32_t uses;
};

struct cairn_pin_table {
        struct cairn_pin_entry *entries; // open addressing; a power of two
        size_t capacity;
        size_t count;
        uint64_t bytes; // of distinct blocks
        uint64_t limit_bytes;
};

void cairn_pin_table_init(struct cairn_pin_table *table, uint64_t limit_bytes);
void cairn_pin_table_finish(struct cairn_pin_table *table);

// One more use of the block, which keeps `bytes` in RAM. CAIRN_ENOMEM: above the limit, or no
// memory.
int cairn_pin_add(struct cairn_pin_table *table, const void *block, uint64_t bytes);
// One use less; asserts that there was one.
void cairn_pin_remove(struct cairn_pin_table *table, const void *block);

#endif
