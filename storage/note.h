// Notes: small facts that the catalog keeps besides spaces and blocks, and that are in memory while
// the store runs: quotas that were set, legal holds, purges under way. A note is a key and a value;
// the first byte of the key says whose it is.
//
// May be used by: daemon, storage, tests. May use: proto. Threads: the loop's. Bytes on disk:
// storage/README.md.
#ifndef CAIRN_NOTE_H
#define CAIRN_NOTE_H

#include "storage/store.h"
#include "storage/work.h"

enum {
        CAIRN_NOTE_KEY_BYTES_MAX = 80,
        CAIRN_NOTE_VALUE_BYTES_MAX = 512,
        CAIRN_NOTES_MAX = 65536,
};
// First bytes of keys. Part of the disk format: only added to.
enum {
        CAIRN_NOTE_QUOTA = 'Q',
        CAIRN_NOTE_HOLD = 'H',
        CAIRN_NOTE_PURGE = 'P'
};

struct cairn_note {
        struct cairn_note *next; // the store's
        struct cairn_link link;  // the store's
        uint32_t key_bytes;
        uint32_t value_bytes; // 0: the note is removed
        uint8_t key[CAIRN_NOTE_KEY_BYTES_MAX];
        uint8_t value[CAIRN_NOTE_VALUE_BYTES_MAX];
};

// Keeps or (value_bytes 0) removes a note, durably before the callback; copied. CAIRN_OK;
// CAIRN_EBUSY: CAIRN_NOTES_MAX reached; CAIRN_ENOMEM, CAIRN_ENOSPC, CAIRN_EIO: nothing changed. A
// note is found by the calls below once it is durable.
void cairn_store_note_set(struct cairn_store *store, const struct cairn_note *note,
                          void (*on_set)(void *arg, int status), void *arg);
const struct cairn_note *cairn_store_note_find(const struct cairn_store *store, const void *key,
                                               size_t key_bytes);
// Every note whose key begins with this byte, in no order. visit may not set notes.
void cairn_store_notes_visit(const struct cairn_store *store, uint8_t first,
                             void (*visit)(void *arg, const struct cairn_note *note), void *arg);

// Storage's own: one found in the catalog at the start; all of them at the end.
int cairn_note_load(struct cairn_store *store, const struct cairn_note *note);
void cairn_notes_finish(struct cairn_store *store);

#endif
