// The block table: entries at fixed addresses in chunks, found by (space, key) through an index
// with linear probing. A parent that is named by children but not here is a ghost: an entry that
// counts them.
//
// A slot of the index is an entry's id + 1 in the low `id_bits` bits and as much of the key's hash
// as fits above them, so that a look-up touches the entry of its own key alone. Large tables lie in
// pages of 2 MiB where the kernel has them: look-ups go all over them (table_search.c).
#include <stdlib.h>
#include <sys/mman.h>

#include "storage/table_internal.h"

enum {
        GROUP_CHUNKS = 128, // allocated at once in a large table
        CHUNK_ALIGN_BYTES = 64,
        INDEX_MIN = 1024,
        ID_BITS_MIN = 16,
        REHASH_AHEAD = 16,
};
#define INDEX_MAX  (1u << 30)
#define PAGE_BYTES ((size_t)2 << 20)

// ---- memory ----

static size_t whole_pages(size_t bytes)
{
        return (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

// Zeroed; from PAGE_BYTES on at a multiple of it, in large pages if the kernel has some.
static void *memory_take(size_t bytes)
{
        if (bytes < PAGE_BYTES)
                return calloc(1, bytes);
        size_t size = whole_pages(bytes), all = size + PAGE_BYTES;
        uint8_t *start = mmap(NULL, all, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED)
                return NULL;
        size_t before = (size_t)(-(uintptr_t)start & (PAGE_BYTES - 1));
        if (before > 0)
                (void)munmap(start, before); // a part of a mapping of ours: cannot fail, nor hurt
        if (all - before > size)
                (void)munmap(start + before + size, all - before - size); // as above
        (void)madvise(start + before, size, MADV_HUGEPAGE); // without them it is slower
        return start + before;
}

static void memory_give(void *start, size_t bytes)
{
        if (bytes < PAGE_BYTES)
                free(start);
        else if (start)
                (void)munmap(start, whole_pages(bytes)); // cannot fail: it is ours
}

static size_t index_bytes(const struct cairn_table *table)
{
        return ((size_t)table->index_mask + 1) * sizeof(*table->index);
}

// ---- slots ----

// Ids are about to need a bit more: the tags give it.
static void widen_ids(struct cairn_table *table)
{
        uint32_t old = cairn_table_id_mask(table);
        table->id_bits++;
        for (uint64_t i = 0; i <= table->index_mask; i++)
                table->index[i] &= ~cairn_table_id_mask(table) | old;
}

// ---- life ----

// The numbers that a seed stands for (splitmix64).
static uint64_t secret_of(uint64_t seed, uint64_t index)
{
        uint64_t secret = seed + index * 0x9e3779b97f4a7c15ull;
        secret = (secret ^ (secret >> 30)) * 0xbf58476d1ce4e5b9ull;
        secret = (secret ^ (secret >> 27)) * 0x94d049bb133111ebull;
        return secret ^ (secret >> 31);
}

int cairn_table_init(struct cairn_table *table, uint64_t expected_count, uint64_t seed)
{
        uint64_t size = INDEX_MIN;
        while (size < INDEX_MAX && size < expected_count * 2)
                size *= 2;
        *table = (struct cairn_table){
            .seed = seed, .index_mask = (uint32_t)size - 1, .id_bits = ID_BITS_MIN};
        for (int i = 0; i < 4; i++)
                table->secrets[i] = secret_of(seed, (uint64_t)i + 1);
        // The first chunks of a small table are allocated singly.
        if (expected_count < (uint64_t)GROUP_CHUNKS * CAIRN_TABLE_CHUNK)
                table->groups_from = GROUP_CHUNKS;
        table->index = memory_take(index_bytes(table));
        return table->index ? CAIRN_OK : CAIRN_ENOMEM;
}

static size_t group_bytes(void)
{
        return (size_t)GROUP_CHUNKS * CAIRN_TABLE_CHUNK * sizeof(struct cairn_block);
}

void cairn_table_finish(struct cairn_table *table)
{
        for (uint32_t i = 0; i < table->chunks_count; i++) {
                if (i < table->groups_from)
                        free(table->chunks[i]);
                else if (i % GROUP_CHUNKS == 0)
                        memory_give(table->chunks[i], group_bytes());
        }
        free(table->chunks);
        memory_give(table->index, index_bytes(table));
        *table = (struct cairn_table){0};
}

struct cairn_block *cairn_table_at(const struct cairn_table *table, uint32_t id)
{
        assert(id / CAIRN_TABLE_CHUNK < table->chunks_count);
        return &table->chunks[id / CAIRN_TABLE_CHUNK][id % CAIRN_TABLE_CHUNK];
}

uint32_t cairn_table_entries(const struct cairn_table *table)
{
        return table->chunks_count * CAIRN_TABLE_CHUNK;
}

// Memory of the next chunk: of its own, the first of a new group, or the next of the last group.
static struct cairn_block *chunk_take(const struct cairn_table *table)
{
        size_t bytes = CAIRN_TABLE_CHUNK * sizeof(struct cairn_block);
        if (table->chunks_count < table->groups_from)
                return aligned_alloc(CHUNK_ALIGN_BYTES, bytes);
        if (table->chunks_count % GROUP_CHUNKS == 0)
                return memory_take(group_bytes());
        return table->chunks[table->chunks_count - 1] + CAIRN_TABLE_CHUNK;
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
        struct cairn_block *chunk = chunk_take(table);
        if (!chunk)
                return CAIRN_ENOMEM;
        memset(chunk, 0, CAIRN_TABLE_CHUNK * sizeof(*chunk));
        uint32_t first = table->chunks_count * CAIRN_TABLE_CHUNK;
        table->chunks[table->chunks_count++] = chunk;
        while (cairn_table_entries(table) > cairn_table_id_mask(table))
                widen_ids(table);
        for (uint32_t i = CAIRN_TABLE_CHUNK; i-- > 0;) {
                chunk[i].id = first + i;
                chunk[i].heap = table->free_first;
                table->free_first = first + i + 1;
        }
        table->free_count += CAIRN_TABLE_CHUNK;
        return CAIRN_OK;
}

static void take(struct cairn_block *block)
{
        *block = (struct cairn_block){.id = block->id,
                                      .slab = CAIRN_NO_SLAB,
                                      .heap = CAIRN_HEAP_OUT,
                                      .flags = CAIRN_BLOCK_LIVE};
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
        take(block);
        return block;
}

int cairn_table_prepare(struct cairn_table *table, uint32_t count)
{
        while (cairn_table_entries(table) < count) {
                if (chunk_add(table) != CAIRN_OK)
                        return CAIRN_ENOMEM;
        }
        return CAIRN_OK;
}

struct cairn_block *cairn_table_entry_at(struct cairn_table *table, uint32_t id)
{
        struct cairn_block *block = cairn_table_at(table, id);
        assert(!cairn_block_is(block, CAIRN_BLOCK_LIVE));
        take(block);
        return block;
}

void cairn_table_relist(struct cairn_table *table)
{
        table->free_first = 0;
        table->free_count = 0;
        for (uint32_t id = cairn_table_entries(table); id-- > 0;) {
                struct cairn_block *block = cairn_table_at(table, id);
                if (cairn_block_is(block, CAIRN_BLOCK_LIVE))
                        continue;
                block->heap = table->free_first;
                table->free_first = id + 1;
                table->free_count++;
        }
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

// ---- finding ----

// Where the key is, or the empty slot that ends its search.
static uint32_t slot_of(const struct cairn_table *table, uint16_t space,
                        const struct cairn_key *key, uint64_t hash)
{
        uint32_t tag = cairn_slot_tag(table, hash), ids = cairn_table_id_mask(table);
        uint32_t at = (uint32_t)hash & table->index_mask;
        for (; table->index[at]; at = (at + 1) & table->index_mask) {
                if ((table->index[at] & ~ids) == tag &&
                    cairn_table_same_key(cairn_slot_block(table, table->index[at]), space, key))
                        break;
        }
        return at;
}

struct cairn_block *cairn_table_find(const struct cairn_table *table, uint16_t space,
                                     const struct cairn_key *key)
{
        uint32_t at = slot_of(table, space, key, cairn_table_hash_of(table, space, key));
        return table->index[at] ? cairn_slot_block(table, table->index[at]) : NULL;
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
        larger.index = memory_take(index_bytes(&larger));
        if (!larger.index)
                return CAIRN_ENOMEM;
        for (uint64_t i = 0; i <= table->index_mask; i++) {
                uint32_t ahead = table->index[(i + REHASH_AHEAD) & table->index_mask];
                if (ahead)
                        cairn_block_prefetch(cairn_slot_block(table, ahead));
                if (!table->index[i])
                        continue;
                const struct cairn_block *block = cairn_slot_block(table, table->index[i]);
                uint64_t hash = cairn_table_hash_of(table, block->space, &block->key);
                uint32_t at = (uint32_t)hash & larger.index_mask;
                while (larger.index[at])
                        at = (at + 1) & larger.index_mask;
                larger.index[at] = table->index[i];
        }
        memory_give(table->index, index_bytes(table));
        *table = larger;
        return CAIRN_OK;
}

// ---- changing ----

// Room is there: whoever makes an entry has reserved it, and ghosts take from the margin that every
// reserve keeps.
void cairn_table_insert(struct cairn_table *table, struct cairn_block *block)
{
        (void)cairn_table_reserve(table, 1); // without memory the margin serves
        assert(table->index_count < table->index_mask);
        uint64_t hash = cairn_table_hash_of(table, block->space, &block->key);
        uint32_t at = slot_of(table, block->space, &block->key, hash);
        assert(!table->index[at]);
        table->index[at] = cairn_slot_make(table, hash, block);
        table->index_count++;
}

// Moves the entries after a hole back over it, as far as their own places allow.
void cairn_table_remove(struct cairn_table *table, struct cairn_block *block)
{
        uint64_t hash = cairn_table_hash_of(table, block->space, &block->key);
        uint32_t hole = slot_of(table, block->space, &block->key, hash);
        assert(table->index[hole] == cairn_slot_make(table, hash, block));
        uint32_t at = hole;
        for (;;) {
                at = (at + 1) & table->index_mask;
                if (!table->index[at])
                        break;
                const struct cairn_block *other = cairn_slot_block(table, table->index[at]);
                uint32_t home = (uint32_t)cairn_table_hash_of(table, other->space, &other->key) &
                                table->index_mask;
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
        uint64_t hash = cairn_table_hash_of(table, ghost->space, &ghost->key);
        uint32_t at = slot_of(table, ghost->space, &ghost->key, hash);
        assert(table->index[at] == cairn_slot_make(table, hash, ghost));
        table->index[at] = cairn_slot_make(table, hash, block);
        block->children = ghost->children;
        block->children_ram = ghost->children_ram;
        block->children_visible = ghost->children_visible;
        cairn_table_entry_free(table, ghost);
}
