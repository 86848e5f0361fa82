// The table `audit_tail` (sequence, u64 -> record) and the meta record "audit": the chain's end.
#include "storage/catalog_audit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"
#include "storage/catalog_record.h"

static const MDB_val end_key = {5, (void *)(uintptr_t) "audit"};

// Values of the table lie in pages of their own: equal runs of them are found again easily.
enum {
        VALUE_RECORDS = (4 * 4096 - 16) / CAIRN_AUDIT_RECORD_BYTES
};

// Takes out what is in files.
static int leave(MDB_txn *txn, MDB_dbi tail, uint64_t before)
{
        MDB_cursor *cursor;
        MDB_val key, value;
        int error = mdb_cursor_open(txn, tail, &cursor);

        if (error)
                return error;
        while ((error = mdb_cursor_get(cursor, &key, &value, MDB_FIRST)) == 0) {
                uint64_t first = before;

                if (key.mv_size == sizeof(first))
                        memcpy(&first, key.mv_data, sizeof(first));
                if (first >= before)
                        break;
                error = mdb_cursor_del(cursor, 0);
                if (error)
                        break;
        }
        mdb_cursor_close(cursor);
        return error == MDB_NOTFOUND ? 0 : error;
}

int cairn_catalog_audit_begin(struct cairn_catalog_audit *audit, MDB_txn *txn, bool through)
{
        struct cairn_audit_record own;
        uint64_t before;

        if (!audit->log)
                return 0;
        cairn_audit_log_begin(audit->log);
        audit->through = through;
        while (!through && cairn_audit_log_own(audit->log, &own))
                cairn_catalog_audit_stage(audit, &own);
        if (!through && cairn_audit_log_leaving(audit->log, &before))
                return leave(txn, audit->tail, before);
        return 0;
}

void cairn_catalog_audit_stage(struct cairn_catalog_audit *audit,
                               const struct cairn_audit_record *record)
{
        if (audit->log && record->action != 0)
                (void)cairn_audit_log_stage(audit->log, record); // without room it is counted
}

static int put_staged(MDB_txn *txn, MDB_dbi tail, const struct cairn_audit_staged *staged)
{
        uint64_t done = 0;
        int error = 0;

        while (!error && done < staged->count) {
                uint64_t sequence = staged->first + done;
                uint64_t some = staged->count - done;
                MDB_val key = {sizeof(sequence), &sequence};
                MDB_val value = {0, (void *)(uintptr_t)(staged->bytes +
                                                        done * CAIRN_AUDIT_RECORD_BYTES)};

                if (some > VALUE_RECORDS)
                        some = VALUE_RECORDS;
                value.mv_size = some * CAIRN_AUDIT_RECORD_BYTES;
                error = mdb_put(txn, tail, &key, &value, MDB_APPEND);
                done += some;
        }
        return error;
}

int cairn_catalog_audit_finish(struct cairn_catalog_audit *audit, MDB_txn *txn)
{
        uint8_t bytes[CAIRN_RECORD_AUDIT_BYTES];
        struct cairn_audit_staged staged;
        MDB_val key = end_key;
        MDB_val value = {sizeof(bytes), bytes};
        int error;

        if (!audit->log || !cairn_audit_log_staged(audit->log, &staged))
                return 0;
        if (audit->through) {
                int status = cairn_audit_log_write_through(audit->log);

                if (status != CAIRN_OK)
                        return status;
                error = mdb_drop(txn, audit->tail, 0);
        } else {
                error = put_staged(txn, audit->tail, &staged);
        }
        cairn_record_audit_write(&staged.end, bytes);
        return error ? error : mdb_put(txn, audit->meta, &key, &value, 0);
}

void cairn_catalog_audit_commit(struct cairn_catalog_audit *audit)
{
        if (!audit->log)
                return;
        cairn_audit_log_commit(audit->log);
        cairn_audit_log_roll(audit->log, false);
}

// Where the table begins: [*ret_first, end) is in it. MDB_NOTFOUND: it makes no sense.
static int find_first(MDB_cursor *cursor, uint64_t end, uint64_t *ret_first)
{
        MDB_val key, value;
        int error = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);

        *ret_first = end;
        if (error)
                return error == MDB_NOTFOUND ? 0 : error;
        if (key.mv_size != sizeof(*ret_first))
                return MDB_NOTFOUND;
        memcpy(ret_first, key.mv_data, sizeof(*ret_first));
        return *ret_first < end && end - *ret_first <= CAIRN_AUDIT_TAIL_RECORDS ? 0 : MDB_NOTFOUND;
}

// A record that is damaged or in the wrong place stays zero: reading the log shows it.
static int load_tail(MDB_cursor *cursor, uint64_t first, uint64_t count, uint8_t *bytes)
{
        MDB_val key, value;
        int error = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);

        for (; error == 0; error = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
                uint64_t sequence = 0;
                uint64_t some = value.mv_size / CAIRN_AUDIT_RECORD_BYTES;

                if (key.mv_size != sizeof(sequence))
                        continue;
                memcpy(&sequence, key.mv_data, sizeof(sequence));
                if (sequence >= first && sequence - first < count &&
                    some <= count - (sequence - first))
                        memcpy(bytes + (sequence - first) * CAIRN_AUDIT_RECORD_BYTES, value.mv_data,
                               some * CAIRN_AUDIT_RECORD_BYTES);
        }
        return error == MDB_NOTFOUND ? 0 : error;
}

static int load(MDB_cursor *cursor, uint64_t end, uint8_t **ret_tail, uint64_t *ret_count)
{
        uint8_t *bytes;
        uint64_t first;
        int error = find_first(cursor, end, &first);

        if (error)
                return error;
        bytes = calloc(end - first + 1, CAIRN_AUDIT_RECORD_BYTES);
        if (!bytes)
                return ENOMEM;
        error = load_tail(cursor, first, end - first, bytes);
        if (error) {
                free(bytes);
                return error;
        }
        *ret_tail = bytes;
        *ret_count = end - first;
        return 0;
}

int cairn_catalog_audit_load(MDB_txn *txn, MDB_dbi meta, MDB_dbi tail,
                             struct cairn_audit_end *ret_end, uint8_t **ret_tail,
                             uint64_t *ret_count)
{
        MDB_val key = end_key;
        MDB_val value;
        MDB_cursor *cursor;
        int error = mdb_get(txn, meta, &key, &value);

        if (error)
                return error;
        if (cairn_record_audit_read(value.mv_data, value.mv_size, ret_end) != CAIRN_OK)
                return MDB_NOTFOUND; // then the files say where the chain goes on
        error = mdb_cursor_open(txn, tail, &cursor);
        if (error)
                return error;
        error = load(cursor, ret_end->count, ret_tail, ret_count);
        mdb_cursor_close(cursor);
        return error;
}
