// Searching the block table for many keys in order. What they touch is fetched ahead, so that many
// cache misses are under way at once. Chains that were put in one go, or loaded by a start, lie in
// entries one behind the other: there the index is not asked.
#include "storage/table_internal.h"

enum {
        LINE_SLOTS = 16,
        RUN_AHEAD = 8, // entries that are fetched before they are compared
        RUN_MIN = 4,   // one behind the other, and the next is expected there
};

// A slot with the key's tag, most likely the key's own; 0: there is none. Looks at several slots at
// once, since where a search ends is nothing that a processor can foresee.
static inline uint32_t guess_slot(const struct cairn_table *table, uint64_t hash)
{
        uint32_t tag = cairn_slot_tag(table, hash), ids = cairn_table_id_mask(table);
        uint32_t at = (uint32_t)hash & table->index_mask;
        uint32_t last = at | (LINE_SLOTS - 1); // in the cache line that was fetched
        uint32_t from = at < last - 3 ? at : last - 3;
        const uint32_t *slots = &table->index[from];
        uint32_t same = (uint32_t)((slots[0] ^ tag) - 1 < ids);
        same |= (uint32_t)((slots[1] ^ tag) - 1 < ids) << 1;
        same |= (uint32_t)((slots[2] ^ tag) - 1 < ids) << 2;
        same |= (uint32_t)((slots[3] ^ tag) - 1 < ids) << 3;
        same &= ~0u << (at - from);
        if (same)
                return slots[__builtin_ctz(same)];
        while (table->index[at] && (table->index[at] & ~ids) != tag)
                at = (at + 1) & table->index_mask;
        return table->index[at];
}

static size_t group_end(const struct cairn_table_search *search, size_t group)
{
        size_t end = (group + 1) * CAIRN_SEARCH_GROUP, count = search->count - search->base;
        return end < count ? end : count;
}

// The steps of a group: its places in the index are fetched, then its entries, then compared.
static void hash_group(struct cairn_table_search *search, size_t group)
{
        const struct cairn_table *table = search->table;
        const struct cairn_key *keys = search->keys + search->base;
        size_t end = group_end(search, group);
        for (size_t i = group * CAIRN_SEARCH_GROUP; i < end; i++) {
                uint64_t hash = cairn_table_hash_of(table, search->space, &keys[i]);
                search->hashes[i % (2 * CAIRN_SEARCH_GROUP)] = hash;
                __builtin_prefetch(&table->index[(uint32_t)hash & table->index_mask]);
        }
}

static void guess_group(struct cairn_table_search *search, size_t group)
{
        const struct cairn_table *table = search->table;
        size_t end = group_end(search, group);
        for (size_t i = group * CAIRN_SEARCH_GROUP; i < end; i++) {
                size_t place = i % (2 * CAIRN_SEARCH_GROUP);
                uint32_t slot = guess_slot(table, search->hashes[place]);
                search->blocks[place] = slot ? cairn_slot_block(table, slot) : NULL;
                if (slot)
                        cairn_block_prefetch(search->blocks[place]);
        }
}

static void compare_group(struct cairn_table_search *search, size_t group)
{
        const struct cairn_key *keys = search->keys + search->base;
        size_t end = group_end(search, group);
        for (size_t i = group * CAIRN_SEARCH_GROUP; i < end; i++) {
                size_t place = i % (2 * CAIRN_SEARCH_GROUP);
                const struct cairn_block *block = search->blocks[place];
                if (block &&
                    !cairn_table_same_key(block, search->space, &keys[i])) // of the same tag
                        search->blocks[place] =
                            cairn_table_find(search->table, search->space, &keys[i]);
        }
}

// The groups begin anew at the next key.
static void start_groups(struct cairn_table_search *search)
{
        search->base = search->done;
        search->run = 0;
        search->follows = false;
        hash_group(search, 0);
        guess_group(search, 0);
        hash_group(search, 1);
}

static struct cairn_block *next_of_groups(struct cairn_table_search *search)
{
        size_t place = search->done - search->base;
        if (place % CAIRN_SEARCH_GROUP == 0) {
                size_t group = place / CAIRN_SEARCH_GROUP;
                guess_group(search, group + 1);
                hash_group(search, group + 2);
                compare_group(search, group);
        }
        return search->blocks[place % (2 * CAIRN_SEARCH_GROUP)];
}

// The entry behind the last, if it is the next key's and in the index.
static struct cairn_block *next_of_run(const struct cairn_table_search *search)
{
        uint32_t id = search->last->id + 1;
        struct cairn_block *block = search->last + 1;
        if (id % CAIRN_TABLE_CHUNK == 0) {
                if (id >= cairn_table_entries(search->table))
                        return NULL;
                block = cairn_table_at(search->table, id);
        }
        __builtin_prefetch(block + RUN_AHEAD, 1); // a hint: anywhere will do
        return cairn_block_is(block, CAIRN_BLOCK_VISIBLE) &&
                       cairn_table_same_key(block, search->space, &search->keys[search->done])
                   ? block
                   : NULL;
}

void cairn_table_search_init(struct cairn_table_search *search, const struct cairn_table *table,
                             uint16_t space, const struct cairn_key *keys, size_t count)
{
        search->table = table;
        search->keys = keys;
        search->count = count;
        search->done = 0;
        search->base = 0;
        search->space = space;
        search->run = 0;
        search->last = count > 0 ? cairn_table_find(table, space, keys) : NULL;
        search->follows = search->last != NULL;
        if (!search->follows)
                start_groups(search);
}

struct cairn_block *cairn_table_search_next(struct cairn_table_search *search)
{
        struct cairn_block *block = NULL;
        assert(search->done < search->count);
        if (search->follows) {
                block = search->done == 0 ? search->last : next_of_run(search);
                if (!block)
                        start_groups(search);
        }
        if (!block) {
                block = next_of_groups(search);
                bool behind = block && search->last && block->id == search->last->id + 1;
                search->run = behind ? search->run + 1 : 0;
                search->follows = search->run >= RUN_MIN;
        }
        search->last = block;
        search->done++;
        return block;
}
