// The spaces this daemon knows, by the store's numbers: what a space is, and the layout that the
// policy gives its code. May be used by: daemon. May use: proto, policy, storage. Threads: the
// loop's; entries are constant and live as long as the table, so scorers read them.
#ifndef CAIRN_SPACE_TABLE_H
#define CAIRN_SPACE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/landmark/landmark.h"
#include "proto/key.h"
#include "proto/space.h"
#include "storage/store.h"

struct cairn_space_entry {
        uint32_t id;    // the store's
        uint32_t index; // in the table, < CAIRN_SPACES_MAX
        struct cairn_space space;
        struct cairn_key fingerprint; // as workers know it
        struct cairn_key stored; // as the store knows it: unless shared, the tenant is a part of it
        bool owned;              // by `tenant`; else shared, or nobody's (below)
        uint32_t tenant;
        struct cairn_landmark_layout layout; // attention spaces only
        struct cairn_block_shape shape;
        uint64_t block_bytes; // of the raw part
        uint64_t code_bytes;  // of the code part
        bool needs_raw;       // retrieval reads raw rows: there are no codes, or none for its rows
};

// A space on its way into the store: embedded in who waits for it.
struct cairn_space_opening {
        struct cairn_space_opening *next;
        uint32_t tenant;
};

struct cairn_space_table {
        struct cairn_space_opening *openings;
        struct cairn_space_entry *entries[CAIRN_SPACES_MAX]; // owned
        uint32_t count;
};

void cairn_space_table_finish(struct cairn_space_table *table);

// Fills everything but id and index: the space of this description that `tenant` has, or the shared
// one. CAIRN_EINVAL with a sentence in ret_text[CAIRN_TEXT_BYTES_MAX].
int cairn_space_entry_init(const struct cairn_space *space, uint32_t tenant,
                           struct cairn_space_entry *ret_entry, char *ret_text);
// Whether the tenant may know of it. A space that was stored before spaces had tenants belongs to
// the tenant of its blocks, if that is one; else it is nobody's: only operators see it.
bool cairn_space_entry_visible(const struct cairn_space_entry *entry, uint32_t tenant);
// A tenant's space from before spaces had tenants, which is used on. NULL: none.
const struct cairn_space_entry *cairn_space_table_find_old(const struct cairn_space_table *table,
                                                           const struct cairn_key *fingerprint,
                                                           uint32_t tenant);
bool cairn_space_table_has(const struct cairn_space_table *table, const struct cairn_key *stored);
// Spaces that the tenant has made, with those on their way.
uint32_t cairn_space_table_count(const struct cairn_space_table *table, uint32_t tenant);
// Adds a copy under the store's number, or finds the one that is there. CAIRN_EBUSY, CAIRN_ENOMEM.
int cairn_space_table_add(struct cairn_space_table *table, const struct cairn_space_entry *entry,
                          uint32_t id, const struct cairn_space_entry **ret_entry);
const struct cairn_space_entry *cairn_space_table_find(const struct cairn_space_table *table,
                                                       uint32_t id);
// Spaces that the store remembers from earlier. Returns how many could not be understood: those
// stay unlisted.
uint32_t cairn_space_table_load(struct cairn_space_table *table, const struct cairn_store *store);

// The packed message that the store keeps as a space's description: malloc'ed.
int cairn_space_describe(const struct cairn_space_entry *entry, uint8_t **ret_bytes,
                         size_t *ret_size);

#endif
