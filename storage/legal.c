// Legal holds. Blocks under hold carry a flag, which eviction, expiry and deletion look at. Holds
// on chains are kept as a set of keys: those from the named block to the root, and each that a
// block under hold names as its parent, whether it is here or not.
//
// A note (note.h): key 'H' and the name; value
//   offset  size  field
//        0     1  kind
//        1     3  zeros
//        4     4  tenant
//        8     4  space
//       12    32  key
//       44     8  since, ms since 1970
//       52     n  note
#include "storage/legal.h"

#include <stdlib.h>

#include "proto/bytes.h"
#include "storage/note.h"
#include "storage/store_internal.h"

enum {
        VALUE_FIXED_BYTES = 52
};
static_assert(VALUE_FIXED_BYTES + CAIRN_HOLD_NOTE_BYTES_MAX <= CAIRN_NOTE_VALUE_BYTES_MAX &&
                  1 + CAIRN_HOLD_NAME_BYTES_MAX <= CAIRN_NOTE_KEY_BYTES_MAX,
              "a hold is a note");

struct hold_entry {
        struct cairn_hold hold;
        bool changing; // its note is on its way
};

struct held_key {
        struct cairn_key key;
        uint16_t space;
        bool taken;
};

struct cairn_legal {
        struct hold_entry *holds[CAIRN_HOLDS_MAX]; // owned
        uint32_t count;
        uint64_t blocks;       // that carry the flag
        struct held_key *keys; // open addressing; owned
        uint32_t keys_mask;
        uint32_t keys_count;
};

// ---- keys of chains ----

static struct held_key *key_place(const struct cairn_legal *legal, uint16_t space,
                                  const struct cairn_key *key)
{
        uint32_t at;
        memcpy(&at, key->bytes + 8, sizeof(at)); // keys are hashes
        at = (at ^ space) & legal->keys_mask;
        while (legal->keys[at].taken &&
               (legal->keys[at].space != space || !cairn_key_equal(&legal->keys[at].key, key)))
                at = (at + 1) & legal->keys_mask;
        return &legal->keys[at];
}

static bool key_held(const struct cairn_legal *legal, uint16_t space, const struct cairn_key *key)
{
        return legal->keys_count > 0 && key_place(legal, space, key)->taken;
}

static bool keys_grow(struct cairn_legal *legal)
{
        struct held_key *old = legal->keys;
        uint32_t old_size = old ? legal->keys_mask + 1 : 0;
        uint32_t size = old ? 2 * old_size : 256;
        struct held_key *keys = calloc(size, sizeof(*keys));
        if (!keys)
                return false;
        legal->keys = keys;
        legal->keys_mask = size - 1;
        for (uint32_t i = 0; i < old_size; i++) {
                if (old[i].taken)
                        *key_place(legal, old[i].space, &old[i].key) = old[i];
        }
        free(old);
        return true;
}

// The key and all before it, as far as they are known. Holders of a key that is there already have
// been here. False: no memory.
static bool keys_add_chain(struct cairn_store *store, uint16_t space, const struct cairn_key *key)
{
        struct cairn_legal *legal = store->legal;
        struct cairn_key at = *key;
        while (!cairn_key_is_zero(&at) && !key_held(legal, space, &at)) {
                if ((!legal->keys || legal->keys_count >= legal->keys_mask / 2) &&
                    !keys_grow(legal))
                        return false;
                *key_place(legal, space, &at) = (struct held_key){at, space, true};
                legal->keys_count++;
                const struct cairn_block *block = cairn_table_find(&store->table, space, &at);
                if (!block || !cairn_block_is(block, CAIRN_BLOCK_VISIBLE))
                        break;
                at = block->parent;
        }
        return true;
}

static bool keys_rebuild(struct cairn_store *store)
{
        struct cairn_legal *legal = store->legal;
        if (legal->keys)
                memset(legal->keys, 0, ((size_t)legal->keys_mask + 1) * sizeof(*legal->keys));
        legal->keys_count = 0;
        for (uint32_t i = 0; i < legal->count; i++) {
                const struct cairn_hold *hold = &legal->holds[i]->hold;
                const struct cairn_space_state *space =
                    hold->kind == CAIRN_HOLD_CHAIN ? cairn_space_by_id(store, hold->space) : NULL;
                if (space && !keys_add_chain(store, space->index, &hold->key))
                        return false;
        }
        return true;
}

// ---- what is held ----

static bool covers(const struct cairn_store *store, const struct cairn_hold *hold,
                   const struct cairn_block *block)
{
        if (hold->kind == CAIRN_HOLD_TENANT)
                return block->tenant == hold->tenant;
        return hold->kind == CAIRN_HOLD_SPACE && cairn_block_space(store, block)->id == hold->space;
}

static bool is_held(const struct cairn_store *store, const struct cairn_block *block)
{
        const struct cairn_legal *legal = store->legal;
        if (key_held(legal, block->space, &block->key))
                return true;
        for (uint32_t i = 0; i < legal->count; i++) {
                if (covers(store, &legal->holds[i]->hold, block))
                        return true;
        }
        return false;
}

static void flag_set(struct cairn_store *store, struct cairn_block *block, bool on)
{
        if (cairn_block_is(block, CAIRN_BLOCK_LEGAL) == on)
                return;
        block->flags ^= CAIRN_BLOCK_LEGAL;
        store->legal->blocks += on ? 1 : UINT64_MAX;
}

void cairn_legal_published(struct cairn_store *store, struct cairn_block *block)
{
        if (!store->legal || store->legal->count == 0 || !is_held(store, block))
                return;
        flag_set(store, block, true);
        if (!key_held(store->legal, block->space, &block->key))
                return;
        // What lies before it was not known until now. Those that are here carry no flag yet.
        struct cairn_key at = block->parent;
        if (!keys_add_chain(store, block->space, &at))
                return; // without memory, they are held from the next change of holds on
        struct cairn_block *parent = cairn_table_find(&store->table, block->space, &at);
        while (parent && cairn_block_is(parent, CAIRN_BLOCK_VISIBLE) &&
               !cairn_block_is(parent, CAIRN_BLOCK_LEGAL)) {
                flag_set(store, parent, true);
                cairn_block_refresh(store, parent);
                parent = cairn_table_find(&store->table, parent->space, &parent->parent);
        }
}

void cairn_legal_unpublished(struct cairn_store *store, struct cairn_block *block)
{
        if (cairn_block_is(block, CAIRN_BLOCK_LEGAL))
                flag_set(store, block, false);
}

// Every block anew, after a change of holds. False: no memory, and what was held stays so.
static bool apply(struct cairn_store *store)
{
        if (!keys_rebuild(store))
                return false;
        for (uint32_t id = 0; id < cairn_table_entries(&store->table); id++) {
                struct cairn_block *block = cairn_table_at(&store->table, id);
                if (!cairn_block_is(block, CAIRN_BLOCK_VISIBLE))
                        continue;
                bool held = is_held(store, block);
                if (held == cairn_block_is(block, CAIRN_BLOCK_LEGAL))
                        continue;
                flag_set(store, block, held);
                cairn_block_refresh(store, block);
        }
        cairn_store_wake(store); // somebody may wait for what can go now
        return true;
}

bool cairn_block_legal(const struct cairn_block *block)
{
        return cairn_block_is(block, CAIRN_BLOCK_LEGAL);
}

// ---- holds ----

static struct cairn_legal *legal_of(struct cairn_store *store)
{
        if (!store->legal)
                store->legal = calloc(1, sizeof(*store->legal));
        return store->legal;
}

static struct hold_entry *find(const struct cairn_store *store, const char *name,
                               uint32_t *ret_index)
{
        for (uint32_t i = 0; store->legal && i < store->legal->count; i++) {
                *ret_index = i;
                if (strcmp(store->legal->holds[i]->hold.name, name) == 0)
                        return store->legal->holds[i];
        }
        return NULL;
}

static struct hold_entry *entry_add(struct cairn_store *store, const struct cairn_hold *hold)
{
        struct cairn_legal *legal = legal_of(store);
        struct hold_entry *entry = legal ? calloc(1, sizeof(*entry)) : NULL;
        if (!entry)
                return NULL;
        entry->hold = *hold;
        legal->holds[legal->count++] = entry;
        return entry;
}

static void entry_remove(struct cairn_store *store, uint32_t index)
{
        struct cairn_legal *legal = store->legal;
        free(legal->holds[index]);
        legal->holds[index] = legal->holds[--legal->count];
        legal->holds[legal->count] = NULL;
}

static void note_of(const struct cairn_hold *hold, struct cairn_note *ret_note)
{
        size_t name_bytes = strlen(hold->name);
        size_t note_bytes = strlen(hold->note);
        *ret_note = (struct cairn_note){.key_bytes = (uint32_t)(1 + name_bytes),
                                        .value_bytes = (uint32_t)(VALUE_FIXED_BYTES + note_bytes)};
        ret_note->key[0] = CAIRN_NOTE_HOLD;
        memcpy(ret_note->key + 1, hold->name, name_bytes);
        ret_note->value[0] = (uint8_t)hold->kind;
        cairn_put_u32(ret_note->value + 4, hold->tenant);
        cairn_put_u32(ret_note->value + 8, hold->space);
        memcpy(ret_note->value + 12, hold->key.bytes, CAIRN_KEY_BYTES);
        cairn_put_u64(ret_note->value + 44, hold->since_ms);
        memcpy(ret_note->value + VALUE_FIXED_BYTES, hold->note, note_bytes);
}

static bool hold_of(const struct cairn_note *note, struct cairn_hold *ret_hold)
{
        if (note->value_bytes < VALUE_FIXED_BYTES || note->key_bytes < 2 ||
            note->key_bytes > 1 + CAIRN_HOLD_NAME_BYTES_MAX ||
            note->value_bytes > VALUE_FIXED_BYTES + CAIRN_HOLD_NOTE_BYTES_MAX)
                return false;
        *ret_hold = (struct cairn_hold){
            .kind = (enum cairn_hold_kind)note->value[0],
            .tenant = cairn_get_u32(note->value + 4),
            .space = cairn_get_u32(note->value + 8),
            .since_ms = cairn_get_u64(note->value + 44),
        };
        memcpy(ret_hold->name, note->key + 1, note->key_bytes - 1);
        memcpy(ret_hold->key.bytes, note->value + 12, CAIRN_KEY_BYTES);
        memcpy(ret_hold->note, note->value + VALUE_FIXED_BYTES,
               note->value_bytes - VALUE_FIXED_BYTES);
        return true;
}

static void on_loaded(void *arg, const struct cairn_note *note)
{
        struct cairn_store *store = arg;
        struct cairn_hold hold;
        if (!hold_of(note, &hold) || (store->legal && store->legal->count == CAIRN_HOLDS_MAX))
                cairn_store_warn(store, "a legal hold of the catalog is not understood and not in "
                                        "force: list the holds, and set it again");
        else if (!entry_add(store, &hold))
                cairn_store_warn(store, "no memory for a legal hold: it is not in force");
}

void cairn_legal_load(struct cairn_store *store)
{
        cairn_store_notes_visit(store, CAIRN_NOTE_HOLD, on_loaded, store);
        if (store->legal && !apply(store))
                cairn_store_warn(store, "no memory for the legal holds: some are not in force");
}

void cairn_legal_finish(struct cairn_store *store)
{
        for (uint32_t i = 0; store->legal && i < store->legal->count; i++)
                free(store->legal->holds[i]);
        if (store->legal)
                free(store->legal->keys);
        free(store->legal);
        store->legal = NULL;
}

// ---- setting and lifting ----

// A change on its way to the catalog.
struct change {
        struct cairn_store *store;
        char name[CAIRN_HOLD_NAME_BYTES_MAX + 1];
        void (*on_done)(void *arg, int status);
        void *arg;
};

static struct change *change_create(struct cairn_store *store, const char *name,
                                    void (*on_done)(void *arg, int status), void *arg)
{
        struct change *change = calloc(1, sizeof(*change));
        if (!change)
                return NULL;
        *change = (struct change){.store = store, .on_done = on_done, .arg = arg};
        memcpy(change->name, name, strlen(name) + 1);
        return change;
}

static void change_end(struct change *change, int status)
{
        void (*on_done)(void *, int) = change->on_done;
        void *arg = change->arg;
        free(change);
        on_done(arg, status);
}

static void on_set(void *arg, int status)
{
        struct change *change = arg;
        uint32_t index;
        struct hold_entry *entry = find(change->store, change->name, &index);
        assert(entry && entry->changing);
        entry->changing = false;
        if (status != CAIRN_OK) {
                entry_remove(change->store, index);
                (void)apply(change->store); // without memory, too much is held
        }
        change_end(change, status);
}

static void on_lifted(void *arg, int status)
{
        struct change *change = arg;
        uint32_t index;
        struct hold_entry *entry = find(change->store, change->name, &index);
        assert(entry && entry->changing);
        entry->changing = false;
        if (status == CAIRN_OK) {
                entry_remove(change->store, index);
                (void)apply(change->store); // as above
        }
        change_end(change, status);
}

static void answer(struct cairn_store *store, int status, void (*on_done)(void *arg, int status),
                   void *arg)
{
        struct cairn_op *op = cairn_op_reserved(store);
        op->on_status = on_done;
        op->arg = arg;
        cairn_op_ready(op, status);
}

static int check(const struct cairn_store *store, const struct cairn_hold *hold)
{
        uint32_t index;
        if (find(store, hold->name, &index))
                return CAIRN_EEXIST;
        if (store->legal && store->legal->count == CAIRN_HOLDS_MAX)
                return CAIRN_EBUSY;
        if (hold->kind == CAIRN_HOLD_TENANT)
                return CAIRN_OK;
        const struct cairn_space_state *space = cairn_space_by_id(store, hold->space);
        if (!space)
                return CAIRN_ENOENT;
        if (hold->kind == CAIRN_HOLD_SPACE)
                return CAIRN_OK;
        const struct cairn_block *block = cairn_table_find(&store->table, space->index, &hold->key);
        return block && cairn_block_is(block, CAIRN_BLOCK_VISIBLE) ? CAIRN_OK : CAIRN_ENOENT;
}

void cairn_store_hold_set(struct cairn_store *store, const struct cairn_hold *hold,
                          void (*on_done)(void *arg, int status), void *arg)
{
        assert(hold->name[0] != '\0');
        int status = check(store, hold);
        struct change *change =
            status == CAIRN_OK ? change_create(store, hold->name, on_done, arg) : NULL;
        struct hold_entry *entry = change ? entry_add(store, hold) : NULL;
        if (status == CAIRN_OK && !entry)
                status = CAIRN_ENOMEM;
        if (status == CAIRN_OK && !apply(store)) {
                entry_remove(store, store->legal->count - 1);
                status = CAIRN_ENOMEM;
        }
        if (status != CAIRN_OK) {
                free(change);
                answer(store, status, on_done, arg);
                return;
        }
        entry->changing = true;
        struct cairn_note note;
        note_of(hold, &note);
        cairn_store_note_set(store, &note, on_set, change);
}

void cairn_store_hold_lift(struct cairn_store *store, const char *name,
                           void (*on_done)(void *arg, int status), void *arg)
{
        uint32_t index;
        struct hold_entry *entry = find(store, name, &index);
        struct change *change = entry ? change_create(store, name, on_done, arg) : NULL;
        if (!change || entry->changing) {
                free(change);
                answer(store,
                       !entry   ? CAIRN_ENOENT
                       : change ? CAIRN_EAGAIN
                                : CAIRN_ENOMEM,
                       on_done, arg);
                return;
        }
        entry->changing = true;
        struct cairn_note note;
        note_of(&entry->hold, &note);
        note.value_bytes = 0;
        cairn_store_note_set(store, &note, on_lifted, change);
}

// ---- asking ----

size_t cairn_store_holds_count(const struct cairn_store *store)
{
        return store->legal ? store->legal->count : 0;
}

const struct cairn_hold *cairn_store_hold_at(const struct cairn_store *store, size_t index)
{
        assert(index < cairn_store_holds_count(store));
        return &store->legal->holds[index]->hold;
}

const struct cairn_hold *cairn_store_hold_find(const struct cairn_store *store, const char *name)
{
        uint32_t index;
        const struct hold_entry *entry = find(store, name, &index);
        return entry ? &entry->hold : NULL;
}

uint64_t cairn_store_held_blocks(const struct cairn_store *store)
{
        return store->legal ? store->legal->blocks : 0;
}

static uint64_t chain_blocks(const struct cairn_store *store, const struct cairn_hold *hold)
{
        const struct cairn_space_state *space = cairn_space_by_id(store, hold->space);
        const struct cairn_block *block =
            space ? cairn_table_find(&store->table, space->index, &hold->key) : NULL;
        uint64_t count = 0;
        while (block && cairn_block_is(block, CAIRN_BLOCK_VISIBLE) && count < CAIRN_CHAIN_MAX) {
                count++;
                block = cairn_table_find(&store->table, block->space, &block->parent);
        }
        return count;
}

uint64_t cairn_store_hold_blocks(const struct cairn_store *store, const struct cairn_hold *hold)
{
        uint64_t count = 0;
        if (hold->kind == CAIRN_HOLD_CHAIN)
                return chain_blocks(store, hold);
        for (uint32_t id = 0; id < cairn_table_entries(&store->table); id++) {
                const struct cairn_block *block = cairn_table_at(&store->table, id);
                count += cairn_block_is(block, CAIRN_BLOCK_VISIBLE) && covers(store, hold, block);
        }
        return count;
}

static bool on_chain(const struct cairn_store *store, const struct cairn_hold *hold,
                     const struct cairn_block *wanted)
{
        const struct cairn_space_state *space = cairn_space_by_id(store, hold->space);
        if (hold->kind != CAIRN_HOLD_CHAIN || !space || space->index != wanted->space)
                return false;
        const struct cairn_block *block = cairn_table_find(&store->table, space->index, &hold->key);
        for (uint32_t n = 0; block && n < CAIRN_CHAIN_MAX; n++) {
                if (block == wanted)
                        return true;
                if (!cairn_block_is(block, CAIRN_BLOCK_VISIBLE))
                        return false;
                block = cairn_table_find(&store->table, block->space, &block->parent);
        }
        return false;
}

const struct cairn_hold *cairn_store_held_by(const struct cairn_store *store, uint32_t space,
                                             const struct cairn_key *key)
{
        const struct cairn_space_state *state = cairn_space_by_id(store, space);
        const struct cairn_block *block =
            state ? cairn_table_find(&store->table, state->index, key) : NULL;
        if (!block || !cairn_block_is(block, CAIRN_BLOCK_LEGAL))
                return NULL;
        for (uint32_t i = 0; i < store->legal->count; i++) {
                const struct cairn_hold *hold = &store->legal->holds[i]->hold;
                if (covers(store, hold, block) || on_chain(store, hold, block))
                        return hold;
        }
        return &store->legal->holds[0]->hold; // of a chain that has a gap by now
}
