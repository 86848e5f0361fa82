// The table `notes`.
#include "storage/catalog_note.h"

#include <string.h>

#include "proto/checksum.h"
#include "proto/status.h"
#include "storage/note.h"

enum {
        SUM_BYTES = 8
};

// The key is summed with the value, so that a record under another key fails.
static void sum_of(const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                   uint8_t ret_sum[SUM_BYTES])
{
        uint8_t both[CAIRN_NOTE_KEY_BYTES_MAX + CAIRN_NOTE_VALUE_BYTES_MAX];
        struct cairn_checksum sum;
        memcpy(both, key, key_bytes);
        memcpy(both + key_bytes, value, value_bytes);
        cairn_checksum_of(both, key_bytes + value_bytes, &sum);
        memcpy(ret_sum, sum.bytes, SUM_BYTES);
}

int cairn_catalog_note_write(MDB_txn *txn, MDB_dbi notes, const struct cairn_note *note)
{
        uint8_t bytes[CAIRN_NOTE_VALUE_BYTES_MAX + SUM_BYTES];
        MDB_val key = {note->key_bytes, (void *)(uintptr_t)note->key}; // LMDB does not write to it
        MDB_val value = {note->value_bytes + SUM_BYTES, bytes};
        if (note->value_bytes == 0) {
                int error = mdb_del(txn, notes, &key, NULL);
                return error == MDB_NOTFOUND ? 0 : error;
        }
        memcpy(bytes, note->value, note->value_bytes);
        sum_of(note->key, note->key_bytes, note->value, note->value_bytes,
               bytes + note->value_bytes);
        return mdb_put(txn, notes, &key, &value, 0);
}

static bool read_note(const MDB_val *key, const MDB_val *value, struct cairn_note *ret_note)
{
        uint8_t sum[SUM_BYTES];
        if (key->mv_size == 0 || key->mv_size > CAIRN_NOTE_KEY_BYTES_MAX ||
            value->mv_size <= SUM_BYTES || value->mv_size > CAIRN_NOTE_VALUE_BYTES_MAX + SUM_BYTES)
                return false;
        *ret_note = (struct cairn_note){.key_bytes = (uint32_t)key->mv_size,
                                        .value_bytes = (uint32_t)(value->mv_size - SUM_BYTES)};
        memcpy(ret_note->key, key->mv_data, ret_note->key_bytes);
        memcpy(ret_note->value, value->mv_data, ret_note->value_bytes);
        sum_of(ret_note->key, ret_note->key_bytes, ret_note->value, ret_note->value_bytes, sum);
        return memcmp(sum, (const uint8_t *)value->mv_data + ret_note->value_bytes, SUM_BYTES) == 0;
}

int cairn_catalog_notes_load(MDB_txn *txn, MDB_dbi notes,
                             const struct cairn_catalog_visitor *visitor, uint64_t *bad_count)
{
        MDB_cursor *cursor;
        MDB_val key, value;
        int status = CAIRN_OK;
        if (!visitor->on_note)
                return CAIRN_OK;
        if (mdb_cursor_open(txn, notes, &cursor) != 0)
                return CAIRN_ENOMEM;
        while (status == CAIRN_OK && mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
                struct cairn_note note;
                if (read_note(&key, &value, &note))
                        status = visitor->on_note(visitor->arg, &note);
                else
                        ++*bad_count;
        }
        mdb_cursor_close(cursor);
        return status;
}
