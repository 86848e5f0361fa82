// Notes in the catalog's file: the table `notes`. A record is the value, then the first 8 bytes of
// the XXH3-128 of key and value.
//
// May be used by: storage/catalog.c. May use: proto, LMDB. Threads: the index thread, or the loop's
// before it starts.
#ifndef CAIRN_CATALOG_NOTE_H
#define CAIRN_CATALOG_NOTE_H

#include <lmdb.h>

#include "storage/catalog.h"

// LMDB's errors.
int cairn_catalog_note_write(MDB_txn *txn, MDB_dbi notes, const struct cairn_note *note);
// Hands every good note to visitor->on_note; bad ones are counted. A status.
int cairn_catalog_notes_load(MDB_txn *txn, MDB_dbi notes,
                             const struct cairn_catalog_visitor *visitor, uint64_t *bad_count);

#endif
