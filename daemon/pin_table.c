// A map from block to uses: linear probing, with removal by moving later entries back.
#include "daemon/pin_table.h"

#include <assert.h>
#include <stdlib.h>

#include "proto/status.h"

enum {
        CAPACITY_MIN = 64
};

void cairn_pin_table_init(struct cairn_pin_table *table, uint64_t limit_bytes)
{
        *table = (struct cairn_pin_table){.limit_bytes = limit_bytes};
}

void cairn_pin_table_finish(struct cairn_pin_table *table)
{
        assert(table->count == 0 && table->bytes == 0);
        free(table->entries);
        table->entries = NULL;
        table->capacity = 0;
}

static size_t home_of(const struct cairn_pin_table *table, const void *block)
{
        uint64_t hash = (uint64_t)(uintptr_t)block * 0x9E3779B97F4A7C15ull;

        return (size_t)(hash >> 20) & (table->capacity - 1);
}

// The block's place, or the free one where it would go. The table is never full.
static size_t place_of(const struct cairn_pin_table *table, const void *block)
{
        size_t at = home_of(table, block);

        while (table->entries[at].block && table->entries[at].block != block)
                at = (at + 1) & (table->capacity - 1);
        return at;
}

static int grow(struct cairn_pin_table *table)
{
        struct cairn_pin_table larger = *table;

        larger.capacity = table->capacity ? 2 * table->capacity : CAPACITY_MIN;
        larger.entries = calloc(larger.capacity, sizeof(larger.entries[0]));
        if (!larger.entries)
                return CAIRN_ENOMEM;
        for (size_t i = 0; i < table->capacity; i++)
                if (table->entries[i].block)
                        larger.entries[place_of(&larger, table->entries[i].block)] =
                            table->entries[i];
        free(table->entries);
        *table = larger;
        return CAIRN_OK;
}

int cairn_pin_add(struct cairn_pin_table *table, const void *block, uint64_t bytes)
{
        struct cairn_pin_entry *entry;

        assert(block);
        if (2 * (table->count + 1) > table->capacity && grow(table) != CAIRN_OK)
                return CAIRN_ENOMEM;
        entry = &table->entries[place_of(table, block)];
        if (entry->block) {
                entry->uses++;
                return CAIRN_OK;
        }
        if (bytes > table->limit_bytes || table->bytes > table->limit_bytes - bytes)
                return CAIRN_ENOMEM;
        *entry = (struct cairn_pin_entry){.block = block, .bytes = bytes, .uses = 1};
        table->count++;
        table->bytes += bytes;
        return CAIRN_OK;
}

// Fills the hole at `hole` with a later entry that could have stood there, and so on.
static void close_hole(struct cairn_pin_table *table, size_t hole)
{
        size_t mask = table->capacity - 1;

        for (size_t at = (hole + 1) & mask; table->entries[at].block; at = (at + 1) & mask) {
                size_t home = home_of(table, table->entries[at].block);

                if (((at - home) & mask) < ((at - hole) & mask))
                        continue; // it stands nearer to its home than the hole is
                table->entries[hole] = table->entries[at];
                hole = at;
        }
        table->entries[hole] = (struct cairn_pin_entry){0};
}

void cairn_pin_remove(struct cairn_pin_table *table, const void *block)
{
        size_t at;

        assert(table->capacity > 0);
        at = place_of(table, block);
        assert(table->entries[at].block == block && table->entries[at].uses > 0);
        if (--table->entries[at].uses > 0)
                return;
        table->count--;
        table->bytes -= table->entries[at].bytes;
        close_hole(table, at);
}
