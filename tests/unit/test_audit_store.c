// The audit behind a store: floods, transactions that fail, a catalog without room.
#include "store_fixture.h"

#include <signal.h>
#include <sys/resource.h>

#include "storage/audit_log.h"
#include "storage/audit_read.h"

struct tally {
        uint64_t records;
        uint64_t evicts;
        uint64_t deletes;
        uint64_t begins;
        uint64_t lost;
        struct cairn_audit_record last;
};

static bool on_record(void *arg, const uint8_t *bytes)
{
        struct tally *tally = arg;
        struct cairn_audit_record record;
        cr_assert_eq(cairn_audit_read(bytes, &record), CAIRN_OK);
        tally->records++;
        tally->evicts += record.action == CAIRN_AUDIT_EVICT;
        tally->deletes += record.action == CAIRN_AUDIT_DELETE;
        tally->begins += record.action == CAIRN_AUDIT_BEGIN;
        tally->lost += record.action == CAIRN_AUDIT_LOST ? record.count : 0;
        tally->last = record;
        return true;
}

static void tally_of(struct cairn_audit_snapshot *snapshot, struct tally *ret_tally)
{
        struct cairn_audit_check check;
        struct cairn_audit_search search = {.on_record = on_record, .arg = ret_tally};
        uint64_t next;
        bool more;
        *ret_tally = (struct tally){0};
        cr_assert_eq(cairn_audit_snapshot_verify(snapshot, NULL, NULL, NULL, &check), CAIRN_OK);
        cr_assert_eq(check.bad, 0);
        cr_assert_eq(cairn_audit_snapshot_search(snapshot, &search, &next, &more), CAIRN_OK);
        cr_assert_eq(ret_tally->records, check.records);
        cairn_audit_snapshot_finish(snapshot);
}

static void tally_offline(const struct fixture *f, struct tally *ret_tally)
{
        struct cairn_audit_snapshot snapshot;
        char text[CAIRN_TEXT_BYTES_MAX];
        cr_assert_eq(cairn_audit_snapshot_offline(f->directory, &snapshot, text), CAIRN_OK, "%s",
                     text);
        tally_of(&snapshot, ret_tally);
}

static void tally_store(struct fixture *f, struct tally *ret_tally)
{
        struct fixture_result flushed = {0};
        struct cairn_audit_snapshot snapshot;
        cairn_store_audit_flush(f->store, fixture_on_status, &flushed);
        fixture_until(f, &flushed.done);
        cr_assert_eq(cairn_store_audit_snapshot(f->store, &snapshot), CAIRN_OK);
        tally_of(&snapshot, ret_tally);
}

static uint64_t wall(void *clock)
{
        return 1700000000000ull + fixture_now(clock);
}

static void init(struct fixture *f)
{
        fixture_init(f);
        f->options.audit_bytes = 32 << 20;
        f->options.wall_ms = wall;
}

static int delete (struct fixture *f, uint64_t number)
{
        struct fixture_result result = {0};
        struct cairn_key key = fixture_key(number);
        cairn_store_delete(f->store, f->space, &key, NULL, fixture_on_status, &result);
        fixture_until(f, &result.done);
        return result.status;
}

Test(audit_store, a_flood_is_bounded_and_what_is_lost_is_counted)
{
        enum {
                FLOOD = 50000
        };
        struct fixture f;
        struct tally tally;
        init(&f);
        fixture_open(&f);
        struct cairn_audit_record record = {
            .action = CAIRN_AUDIT_EVICT, .reason = CAIRN_AUDIT_CAPACITY, .count = 1};
        for (int i = 0; i < FLOOD; i++)
                cairn_store_audit(f.store, &record);
        tally_store(&f, &tally);
        cr_assert_eq(tally.evicts + tally.lost, FLOOD, "%lu and %lu", (unsigned long)tally.evicts,
                     (unsigned long)tally.lost);
        cr_assert_geq(tally.evicts, 16384);
        cr_assert_eq(tally.last.time_ms > 1700000000000ull, true);
        fixture_close(&f);
        tally_offline(&f, &tally);
        cr_assert_eq(tally.evicts + tally.lost, FLOOD);
        fixture_finish(&f);
}

static bool fail_now;

static int on_fault(void *arg)
{
        (void)arg;
        return fail_now ? CAIRN_EIO : CAIRN_OK;
}

Test(audit_store, a_removal_that_fails_leaves_no_record)
{
        struct fixture f;
        struct tally tally;
        init(&f);
        f.internal.on_catalog_fault = on_fault;
        fixture_open(&f);
        cr_assert_eq(fixture_put(&f, 1, 1, CAIRN_ACK_DISK), CAIRN_OK);
        fail_now = true;
        cr_assert_eq(delete (&f, 1), CAIRN_EIO);
        fail_now = false;
        tally_store(&f, &tally);
        cr_assert_eq(tally.deletes, 0);
        cr_assert_eq(delete (&f, 1), CAIRN_OK);
        cr_assert_eq(delete (&f, 1), CAIRN_ENOENT);
        tally_store(&f, &tally);
        cr_assert_eq(tally.deletes, 1);
        cr_assert_eq(tally.last.tier_from, CAIRN_TIER_NVME);
        struct cairn_key key = fixture_key(1);
        cr_assert(cairn_key_equal(&tally.last.key, &key));
        fixture_finish(&f);
}

Test(audit_store, loose_records_of_a_failed_transaction_are_kept_for_the_next)
{
        struct fixture f;
        struct tally tally;
        init(&f);
        f.internal.on_catalog_fault = on_fault;
        fixture_open(&f);
        struct cairn_audit_record record = {.action = CAIRN_AUDIT_REFUSE,
                                            .reason = CAIRN_AUDIT_OVER_QUOTA};
        fail_now = true;
        for (int i = 0; i < 10; i++) {
                struct fixture_result flushed = {0};
                cairn_store_audit(f.store, &record);
                cairn_store_audit_flush(f.store, fixture_on_status, &flushed);
                fixture_until(&f, &flushed.done);
                cr_assert_eq(flushed.status, CAIRN_EIO);
        }
        fail_now = false;
        fixture_close(&f); // commits what waits
        tally_offline(&f, &tally);
        cr_assert_eq(tally.records, 10 + tally.begins);
        fixture_finish(&f);
}

Test(audit_store, every_opening_is_a_record_and_a_crash_loses_none_of_removals)
{
        struct fixture f;
        struct tally tally;
        init(&f);
        for (uint64_t i = 0; i < 6; i++) {
                fixture_open(&f);
                cr_assert_eq(fixture_put(&f, i, 1, CAIRN_ACK_DISK), CAIRN_OK);
                cr_assert_eq(delete (&f, i), CAIRN_OK);
                if (i % 2 == 0) {
                        fixture_close(&f);
                        continue;
                }
                cairn_store_abandon(f.store);
                f.store = NULL;
        }
        tally_offline(&f, &tally);
        cr_assert_eq(tally.deletes, 6);
        cr_assert_eq(tally.begins, 6);
        fixture_finish(&f);
}

static uint32_t done, failed;

static void on_done(struct cairn_catalog_op *op, int status)
{
        (void)op;
        done++;
        failed += status != CAIRN_OK;
}

// One batch, as the index thread would make it.
static void run_ops(struct cairn_catalog *catalog, struct cairn_catalog_op *ops, uint32_t count,
                    uint64_t first, bool put)
{
        done = failed = 0;
        for (uint32_t i = 0; i < count; i++) {
                ops[i] = (struct cairn_catalog_op){
                    .kind = put ? CAIRN_CATALOG_PUT : CAIRN_CATALOG_DELETE,
                    .block = {.key = fixture_key(first + i), .space_id = 1},
                    .on_done = on_done};
                if (!put)
                        ops[i].audit = (struct cairn_audit_record){.action = CAIRN_AUDIT_DELETE,
                                                                   .reason = CAIRN_AUDIT_REQUEST,
                                                                   .key = fixture_key(first + i),
                                                                   .space = 1};
                cairn_catalog_submit(catalog, &ops[i], true);
        }
        while (done < count)
                cairn_catalog_reap(catalog);
}

// Case 20, with the audit: the catalog cannot grow, and its records have no room there.
Test(audit_store, case_20_deletes_from_a_full_catalog_have_their_records, .timeout = 120)
{
        struct fixture f;
        char path[512], audit[512], text[CAIRN_TEXT_BYTES_MAX];
        struct cairn_catalog_op *ops = calloc(1024, sizeof(*ops));
        struct cairn_catalog *catalog;
        init(&f);
        snprintf(path, sizeof(path), "%s/catalog.mdb", f.directory);
        snprintf(audit, sizeof(audit), "%s/audit", f.directory);
        const struct cairn_catalog_options options = {.path = path,
                                                      .map_bytes = 8 << 20,
                                                      .commit_batch_max = 1024,
                                                      .audit_directory = audit,
                                                      .audit_bytes = 64 << 20,
                                                      .no_thread = true,
                                                      .no_sync = true};
        cr_assert_eq(cairn_catalog_open(&options, &catalog, text), CAIRN_OK, "%s", text);
        const struct rlimit limit = {8 << 20, 8 << 20};
        signal(SIGXFSZ, SIG_IGN);
        cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        uint64_t put = 0;
        while (failed == 0 && put < 1000000) {
                run_ops(catalog, ops, 1024, put, true);
                put += failed ? 0 : 1024;
        }
        cr_assert_gt(failed, 0, "the catalog never was full");
        uint64_t deleted = 0;
        for (; deleted + 1024 <= put; deleted += 1024) {
                run_ops(catalog, ops, 1024, deleted, false);
                cr_assert_eq(failed, 0, "a delete of a full catalog failed");
        }
        cairn_catalog_finish_audit(catalog);
        cairn_catalog_destroy(catalog);
        struct tally tally;
        tally_offline(&f, &tally);
        cr_assert_eq(tally.deletes, deleted);
        cr_assert_eq(tally.lost, 0);
        free(ops);
        fixture_finish(&f);
}
