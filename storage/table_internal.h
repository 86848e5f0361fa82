// The block table's inside: keys' hashes and the slots of its index, for table.c and table_search.c
// alone.
#ifndef CAIRN_TABLE_INTERNAL_H
#define CAIRN_TABLE_INTERNAL_H

#include "storage/store_internal.h"

enum {
        CAIRN_TABLE_CHUNK = 1024 // entries side by side
};

static inline uint64_t cairn_word_of(const struct cairn_key *key, int index)
{
        uint64_t word;
        memcpy(&word, key->bytes + 8 * index, sizeof(word));
        return word;
}

// The product's halves, folded: every bit of the factors reaches every bit.
static inline uint64_t cairn_word_mix(uint64_t a, uint64_t b)
{
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
}

// Secrets go into every factor: a worker that knew one could make it zero, and all its keys alike.
static inline uint64_t cairn_table_hash_of(const struct cairn_table *table, uint16_t space,
                                           const struct cairn_key *key)
{
        const uint64_t *secrets = table->secrets;
        uint64_t left =
            cairn_word_mix(cairn_word_of(key, 0) ^ secrets[0], cairn_word_of(key, 1) ^ secrets[1]);
        uint64_t right =
            cairn_word_mix(cairn_word_of(key, 2) ^ secrets[2], cairn_word_of(key, 3) ^ secrets[3]);
        return cairn_word_mix(left ^ secrets[2] ^ space, right ^ secrets[1]);
}

static inline bool cairn_table_same_key(const struct cairn_block *block, uint16_t space,
                                        const struct cairn_key *key)
{
        uint64_t differ = cairn_word_of(&block->key, 0) ^ cairn_word_of(key, 0);
        differ |= cairn_word_of(&block->key, 1) ^ cairn_word_of(key, 1);
        differ |= cairn_word_of(&block->key, 2) ^ cairn_word_of(key, 2);
        differ |= cairn_word_of(&block->key, 3) ^ cairn_word_of(key, 3);
        return (differ | (uint64_t)(block->space ^ space)) == 0;
}

static inline uint32_t cairn_table_id_mask(const struct cairn_table *table)
{
        return (1u << table->id_bits) - 1;
}

static inline uint32_t cairn_slot_tag(const struct cairn_table *table, uint64_t hash)
{
        return (uint32_t)(hash >> 32) & ~cairn_table_id_mask(table);
}

static inline struct cairn_block *cairn_slot_block(const struct cairn_table *table, uint32_t slot)
{
        return cairn_table_at(table, (slot & cairn_table_id_mask(table)) - 1);
}

static inline uint32_t cairn_slot_make(const struct cairn_table *table, uint64_t hash,
                                       const struct cairn_block *block)
{
        assert(block->id < cairn_table_id_mask(table));
        return cairn_slot_tag(table, hash) | (block->id + 1);
}

#endif
