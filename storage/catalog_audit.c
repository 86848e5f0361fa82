// The table `audit_tail` (sequence, u64 -> record) and the meta record "audit": the chain's end.
#include "storage/catalog_audit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"
#include "storage/catalog_record.h"

static const MDB_val end_key = {5, (void *)(uintptr_t) "audit"};

int cairn_catalog_audit_begin(struct cairn_catalog_audit *audit, MDB_txn *txn, bool through)
{
        struct cairn_audit_record own;
        int error = 0;

        if (!audit->log)
                return 0;
        cairn_audit_log_begin(audit->log);
        audit->through = through;
        if (cairn_audit_log_empties(audit->log) && !through)
                error = mdb_drop(txn, audit->tail, 0);
        while (!error && !through && cairn_audit_log_own(audit->log, &own))
                error = cairn_catalog_audit_stage(audit, txn, &own);
        return error;
}

int cairn_catalog_audit_stage(struct cairn_catalog_audit *audit, MDB_txn *txn,
                              const struct cairn_audit_record *record)
{
        uint64_t sequence;
        MDB_val key = {sizeof(sequence), &sequence};
        MDB_val value = {CAIRN_AUDIT_RECORD_BYTES, NULL};

        if (!audit->log || record->action == 0)
                return 0;
        value.mv_data = (void *)(uintptr_t)cairn_audit_log_stage(audit->log, record, &sequence);
        if (!value.mv_data || audit->through)
                return 0; // counted, or for the files
        return mdb_put(txn, audit->tail, &key, &value, MDB_APPEND);
}

int cairn_catalog_audit_finish(struct cairn_catalog_audit *audit, MDB_txn *txn)
{
        uint8_t bytes[CAIRN_RECORD_AUDIT_BYTES];
        struct cairn_audit_end end;
        MDB_val key = end_key;
        MDB_val value = {sizeof(bytes), bytes};
        int error = 0;

        if (!audit->log || !cairn_audit_log_staged(audit->log, &end))
                return 0;
        if (audit->through) {
                int status = cairn_audit_log_write_through(audit->log);

                if (status != CAIRN_OK)
                        return status;
                error = mdb_drop(txn, audit->tail, 0);
        }
        cairn_record_audit_write(&end, bytes);
        return error ? error : mdb_put(txn, audit->meta, &key, &value, 0);
}

void cairn_catalog_audit_commit(struct cairn_catalog_audit *audit)
{
        if (!audit->log)
                return;
        cairn_audit_log_commit(audit->log);
        cairn_audit_log_roll(audit->log, false);
}

// A record that is damaged or in the wrong place stays zero: reading the log shows it.
static int load_tail(MDB_txn *txn, MDB_dbi tail, uint64_t first, uint64_t count, uint8_t *bytes)
{
        MDB_cursor *cursor;
        MDB_val key, value;
        int error = mdb_cursor_open(txn, tail, &cursor);

        if (error)
                return error;
        while ((error = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
                uint64_t sequence = 0;

                if (key.mv_size != sizeof(sequence) || value.mv_size != CAIRN_AUDIT_RECORD_BYTES)
                        continue;
                memcpy(&sequence, key.mv_data, sizeof(sequence));
                if (sequence >= first && sequence - first < count)
                        memcpy(bytes + (sequence - first) * CAIRN_AUDIT_RECORD_BYTES, value.mv_data,
                               CAIRN_AUDIT_RECORD_BYTES);
        }
        mdb_cursor_close(cursor);
        return error == MDB_NOTFOUND ? 0 : error;
}

int cairn_catalog_audit_load(MDB_txn *txn, MDB_dbi meta, MDB_dbi tail,
                             struct cairn_audit_end *ret_end, uint8_t **ret_tail,
                             uint64_t *ret_count)
{
        MDB_val key = end_key;
        MDB_val value;
        MDB_stat stat;
        uint8_t *bytes;
        int error = mdb_get(txn, meta, &key, &value);

        if (!error)
                error = mdb_stat(txn, tail, &stat);
        if (error)
                return error;
        if (cairn_record_audit_read(value.mv_data, value.mv_size, ret_end) != CAIRN_OK)
                return MDB_NOTFOUND; // then the files say where the chain goes on
        if (stat.ms_entries > ret_end->count)
                return MDB_NOTFOUND;
        bytes = calloc(stat.ms_entries + 1, CAIRN_AUDIT_RECORD_BYTES);
        if (!bytes)
                return ENOMEM;
        error = load_tail(txn, tail, ret_end->count - stat.ms_entries, stat.ms_entries, bytes);
        if (error) {
                free(bytes);
                return error;
        }
        *ret_tail = bytes;
        *ret_count = stat.ms_entries;
        return 0;
}
