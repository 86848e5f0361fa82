// The catalog's table of audit records: a value may hold many, and tables of before, with one a
// value, are read as they are.
#include "store_fixture.h"

#include <lmdb.h>

#include "storage/audit_log.h"
#include "storage/audit_read.h"

enum {
        RECORD = CAIRN_AUDIT_RECORD_BYTES,
        RECORDS = 100
};

static void init(struct fixture *f)
{
        fixture_init(f);
        f->options.audit_bytes = 32 << 20;
}

static void record_all(struct fixture *f, uint64_t first)
{
        struct fixture_result flushed = {0};
        for (uint64_t i = 0; i < RECORDS; i++) {
                struct cairn_audit_record record = {.action = CAIRN_AUDIT_DEMOTE,
                                                    .reason = CAIRN_AUDIT_CAPACITY,
                                                    .key = fixture_key(first + i)};
                cairn_store_audit(f->store, &record);
        }
        cairn_store_audit_flush(f->store, fixture_on_status, &flushed);
        fixture_until(f, &flushed.done);
        cr_assert_eq(flushed.status, CAIRN_OK);
}

static void check_whole(const struct fixture *f, uint64_t least)
{
        struct cairn_audit_snapshot snapshot;
        struct cairn_audit_check check;
        char text[CAIRN_TEXT_BYTES_MAX];
        cr_assert_eq(cairn_audit_snapshot_offline(f->directory, &snapshot, text), CAIRN_OK, "%s",
                     text);
        cr_assert_eq(cairn_audit_snapshot_verify(&snapshot, NULL, NULL, NULL, &check), CAIRN_OK);
        cairn_audit_snapshot_finish(&snapshot);
        cr_assert_eq(check.bad, 0);
        cr_assert_geq(check.records, least);
        cr_assert_eq(check.lost, 0);
}

struct tail {
        uint8_t records[1024][RECORD];
        uint64_t first;
        uint64_t count;
        uint64_t values;
};

static void read_tail(MDB_txn *txn, MDB_dbi dbi, struct tail *tail)
{
        MDB_cursor *cursor;
        MDB_val key, value;
        cr_assert_eq(mdb_cursor_open(txn, dbi, &cursor), 0);
        while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
                uint64_t sequence;
                cr_assert_eq(key.mv_size, sizeof(sequence));
                memcpy(&sequence, key.mv_data, sizeof(sequence));
                if (tail->values++ == 0)
                        tail->first = sequence;
                cr_assert_eq(sequence, tail->first + tail->count);
                cr_assert_eq(value.mv_size % RECORD, 0);
                cr_assert_leq(tail->count * RECORD + value.mv_size, sizeof(tail->records));
                memcpy(tail->records[tail->count], value.mv_data, value.mv_size);
                tail->count += value.mv_size / RECORD;
        }
        mdb_cursor_close(cursor);
}

// As every build before wrote it, or with a record that is damaged.
static void rewrite_tail(const struct fixture *f, bool damaged, struct tail *tail)
{
        MDB_env *env;
        MDB_txn *txn;
        MDB_dbi dbi;
        char path[512];
        snprintf(path, sizeof(path), "%s/catalog.mdb", f->directory);
        cr_assert_eq(mdb_env_create(&env), 0);
        cr_assert_eq(mdb_env_set_maxdbs(env, 8), 0);
        cr_assert_eq(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOLOCK, 0600), 0);
        cr_assert_eq(mdb_txn_begin(env, NULL, 0, &txn), 0);
        cr_assert_eq(mdb_dbi_open(txn, "audit_tail", 0, &dbi), 0);
        read_tail(txn, dbi, tail);
        cr_assert_eq(mdb_drop(txn, dbi, 0), 0);
        for (uint64_t i = 0; i < tail->count; i++) {
                uint64_t sequence = tail->first + i;
                MDB_val key = {sizeof(sequence), &sequence};
                MDB_val value = {damaged && i == 7 ? 3 : RECORD, tail->records[i]};
                cr_assert_eq(mdb_put(txn, dbi, &key, &value, MDB_APPEND), 0);
        }
        cr_assert_eq(mdb_txn_commit(txn), 0);
        mdb_env_close(env);
}

static void crash(struct fixture *f)
{
        cairn_store_abandon(f->store);
        f->store = NULL;
}

Test(audit_tail, a_table_with_one_record_a_value_is_read_and_gone_on_with)
{
        struct fixture f;
        struct tail *tail = calloc(1, sizeof(*tail));
        init(&f);
        fixture_open(&f);
        record_all(&f, 0);
        crash(&f);
        rewrite_tail(&f, false, tail);
        cr_assert_geq(tail->count, RECORDS);
        cr_assert_lt(tail->values, tail->count, "records of a transaction share a value");
        check_whole(&f, tail->count);
        fixture_open(&f);
        record_all(&f, 1000);
        crash(&f);
        check_whole(&f, tail->count + RECORDS);
        fixture_open(&f);
        fixture_close(&f); // all to files
        check_whole(&f, tail->count + RECORDS);
        free(tail);
        fixture_finish(&f);
}

Test(audit_tail, a_value_that_is_no_record_shows_and_the_chain_goes_on)
{
        struct fixture f;
        struct tail *tail = calloc(1, sizeof(*tail));
        struct cairn_audit_snapshot snapshot;
        struct cairn_audit_check check;
        char text[CAIRN_TEXT_BYTES_MAX];
        init(&f);
        fixture_open(&f);
        record_all(&f, 0);
        crash(&f);
        rewrite_tail(&f, true, tail);
        fixture_open(&f);
        record_all(&f, 1000);
        crash(&f);
        cr_assert_eq(cairn_audit_snapshot_offline(f.directory, &snapshot, text), CAIRN_OK);
        cr_assert_eq(cairn_audit_snapshot_verify(&snapshot, NULL, NULL, NULL, &check), CAIRN_OK);
        cairn_audit_snapshot_finish(&snapshot);
        cr_assert_geq(check.records, tail->count + RECORDS);
        cr_assert_geq(check.bad, 1);
        cr_assert_leq(check.bad, 2); // it, and that the next does not follow it
        free(tail);
        fixture_finish(&f);
}
