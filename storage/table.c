// The block table: entries at fixed addresses in chunks, found by (space, key) through an index of
// entry ids with linear probing. A parent that is named by children but not here is a ghost: an
// entry that counts them.
#include <stdlib.h>

#include "storage/store_internal.h"

enum {
        CHUNK_BLOCKS = 1024,
        INDEX_MIN = 1024
};
#define INDEX_MAX (1u << 30)

static uint64_t hash_of(const struct cairn_table *table, uint16_t space,
                        const struct cairn_key *key)
{
        uint64_t words[4];
        memcpy(words, key->bytes, sizeof(words));
        uint64_t hash = table->seed ^ space;
        for (int i = 0; i < 4; i++) {
                hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ull;
                hash ^= hash >> 32;
        }
        return hash;
}

int cairn_table_init(struct cairn_table *table, uint64_t expected_count, uint64_t seed)
{
        uint64_t size = INDEX_MIN;
        while (size < INDEX_MAX && size < expected_count * 2)
                size *= 2;
        *table = (struct cairn_table){.seed = seed, .index_mask = (uint32_t)size - 1};
        table->index = calloc(size, sizeof(*table->index));
        return table->index ? CAIRN_OK : CAIRN_ENOMEM;
}

void cairn_table_finish(struct cairn_table *table)
{
        for (uint32_t i = 0; i < table->chunks_count; i++)
                free(table->chunks[i]);
        free(table->chunks);
        free(table->index);
        *table = (struct cairn_table){0};
}

struct cairn_block *cairn_table_at(const struct cairn_table *table, uint32_t id)
{
        assert(id / CHUNK_BLOCKS < table->chunks_count);
        return &table->chunks[id / CHUNK_BLOCKS][id % CHUNK_BLOCKS];
}

uint32_t cairn_table_entries(const struct cairn_table *table)
{
        return table->chunks_count * CHUNK_BLOCKS;
}

static int chunk_add(struct cairn_table *table)
{
        if (table->chunks_count == table->chunks_capacity) {
                uint32_t capacity = table->chunks_capacity ? table->chunks_capacity * 2 : 64;
                struct cairn_block **chunks = realloc(table->chunks, capacity * sizeof(*chunks));
                if (!chunks)
                        return CAIRN_ENOMEM;
                table->chunks = chunks;
                table->chunks_capacity = capacity;
        }
        struct cairn_block *chunk = calloc(CHUNK_BLOCKS, sizeof(*chunk));
        if (!chunk)
                return CAIRN_ENOMEM;
        uint32_t first = table->chunks_count * CHUNK_BLOCKS;
        table->chunks[table->chunks_count++] = chunk;
        for (uint32_t i = CHUNK_BLOCKS; i-- > 0;) {
                chunk[i].id = first + i;
                chunk[i].heap = table->free_first;
                table->free_first = first + i + 1;
        }
        table->free_count += CHUNK_BLOCKS;
        return CAIRN_OK;
}

struct cairn_block *cairn_table_entry(struct cairn_table *table, bool reserve)
{
        if (table->free_count <= CAIRN_BLOCKS_RESERVE && chunk_add(table) != CAIRN_OK && !reserve)
                return NULL;
        if (table->free_count == 0)
                return NULL;
        struct cairn_block *block = cairn_table_at(table, table->free_first - 1);
        table->free_first = block->heap;
        table->free_count--;
        *block = (struct cairn_block){.id = block->id,
                                      .slab = CAIRN_NO_SLAB,
                                      .heap = CAIRN_HEAP_OUT,
                                      .flags = CAIRN_BLOCK_LIVE};
        return block;
}

void cairn_table_entry_free(struct cairn_table *table, struct cairn_block *block)
{
        assert(cairn_block_is(block, CAIRN_BLOCK_LIVE));
        assert(!block->resident && block->slab == CAIRN_NO_SLAB);
        block->flags = 0;
        block->heap = table->free_first;
        table->free_first = block->id + 1;
        table->free_count++;
}

static uint32_t slot_of(const struct cairn_table *table, uint16_t space,
                        const struct cairn_key *key)
{
        uint32_t at = (uint32_t)hash_of(table, space, key) & table->index_mask;
        while (table->index[at]) {
                const struct cairn_block *block = cairn_table_at(table, table->index[at] - 1);
                if (block->space == space && memcmp(&block->key, key, sizeof(*key)) == 0)
                        break;
                at = (at + 1) & table->index_mask;
        }
        return at;
}

struct cairn_block *cairn_table_find(const struct cairn_table *table, uint16_t space,
                                     const struct cairn_key *key)
{
        uint32_t at = slot_of(table, space, key);
        return table->index[at] ? cairn_table_at(table, table->index[at] - 1) : NULL;
}

int cairn_table_reserve(struct cairn_table *table, uint32_t more)
{
        uint64_t size = (uint64_t)table->index_mask + 1;
        if ((uint64_t)table->index_count + more + CAIRN_BLOCKS_RESERVE <= size / 4 * 3)
                return CAIRN_OK;
        while (size < INDEX_MAX &&
               size / 4 * 3 < (uint64_t)table->index_count + more + CAIRN_BLOCKS_RESERVE)
                size *= 2;
        struct cairn_table larger = *table;
        larger.index_mask = (uint32_t)size - 1;
        larger.index = calloc(size, sizeof(*larger.index));
        if (!larger.index)
                return CAIRN_ENOMEM;
        for (uint64_t i = 0; i <= table->index_mask; i++) {
                if (!table->index[i])
                        continue;
                const struct cairn_block *block = cairn_table_at(table, table->index[i] - 1);
                larger.index[slot_of(&larger, block->space, &block->key)] = table->index[i];
        }
        free(table->index);
        *table = larger;
        return CAIRN_OK;
}

// Room is there: whoever makes an entry has reserved it, and ghosts take from the margin that every
// reserve keeps.
void cairn_table_insert(struct cairn_table *table, struct cairn_block *block)
{
        (void)cairn_table_reserve(table, 1); // without memory the margin serves
        assert(table->index_count < table->index_mask);
        uint32_t at = slot_of(table, block->space, &block->key);
        assert(!table->index[at]);
        table->index[at] = block->id + 1;
        table->index_count++;
}

// Moves the entries after a hole back over it, as far as their own places allow.
void cairn_table_remove(struct cairn_table *table, struct cairn_block *block)
{
        uint32_t hole = slot_of(table, block->space, &block->key);
        assert(table->index[hole] == block->id + 1);
        uint32_t at = hole;
        for (;;) {
                at = (at + 1) & table->index_mask;
                if (!table->index[at])
                        break;
                const struct cairn_block *other = cairn_table_at(table, table->index[at] - 1);
                uint32_t home =
                    (uint32_t)hash_of(table, other->space, &other->key) & table->index_mask;
                if (((at - home) & table->index_mask) < ((at - hole) & table->index_mask))
                        continue;
                table->index[hole] = table->index[at];
                hole = at;
        }
        table->index[hole] = 0;
        table->index_count--;
}

void cairn_table_replace(struct cairn_table *table, struct cairn_block *ghost,
                         struct cairn_block *block)
{
        assert(cairn_block_is(ghost, CAIRN_BLOCK_GHOST));
        uint32_t at = slot_of(table, ghost->space, &ghost->key);
        assert(table->index[at] == ghost->id + 1);
        table->index[at] = block->id + 1;
        block->children = ghost->children;
        block->children_ram = ghost->children_ram;
        cairn_table_entry_free(table, ghost);
}
