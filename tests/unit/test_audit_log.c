// The audit's log: records in the catalog's transactions, rolled to files, rotated; every way of
// tampering shows with its place; whatever crashes, one record a vanished block.
#include "store_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "storage/audit_log.h"
#include "storage/audit_read.h"

enum {
        RECORD = CAIRN_AUDIT_RECORD_BYTES
};

struct log_fixture {
        char directory[256];
        struct cairn_audit_log_options options;
        struct cairn_audit_log *log;
        uint8_t table[8 << 20]; // what LMDB would hold
        uint64_t table_count;
        struct cairn_audit_end end; // the catalog's
        bool remembered;
        uint64_t next; // number of the next record
};

static void log_open(struct log_fixture *f)
{
        char text[CAIRN_TEXT_BYTES_MAX];
        cr_assert_eq(cairn_audit_log_open(&f->options, &f->log, text), CAIRN_OK, "%s", text);
        cr_assert_eq(cairn_audit_log_resume(f->log, f->remembered ? &f->end : NULL, f->table,
                                            f->table_count),
                     CAIRN_OK);
}

static struct log_fixture *log_create(uint64_t limit_bytes)
{
        struct log_fixture *f = calloc(1, sizeof(*f));
        snprintf(f->directory, sizeof(f->directory), "/tmp/cairn-audit-XXXXXX");
        cr_assert_not_null(mkdtemp(f->directory));
        f->options =
            (struct cairn_audit_log_options){.directory = f->directory, .limit_bytes = limit_bytes};
        log_open(f);
        return f;
}

static void log_finish(struct log_fixture *f)
{
        cairn_audit_log_destroy(f->log);
        nftw(f->directory, fixture_unlink, 16, FTW_DEPTH | FTW_PHYS);
        free(f);
}

static void crash(struct log_fixture *f)
{
        cairn_audit_log_destroy(f->log);
        log_open(f);
}

static struct cairn_audit_record record_of(uint64_t number)
{
        return (struct cairn_audit_record){.action = CAIRN_AUDIT_EVICT,
                                           .reason = CAIRN_AUDIT_CAPACITY,
                                           .time_ms = 1000 + number,
                                           .tenant = (uint32_t)(number % 3),
                                           .space = 1,
                                           .key = fixture_key(number),
                                           .count = 1,
                                           .bytes = number};
}

// One transaction, as catalog_audit.c makes it; `committed`: whether LMDB did.
static void transaction(struct log_fixture *f, uint64_t count, bool committed)
{
        struct cairn_audit_record record;
        struct cairn_audit_staged staged;
        uint64_t before;
        uint64_t leaving = 0;
        cairn_audit_log_begin(f->log);
        while (cairn_audit_log_own(f->log, &record))
                cr_assert(cairn_audit_log_stage(f->log, &record));
        if (cairn_audit_log_leaving(f->log, &before))
                leaving = before - (f->end.count - f->table_count);
        for (uint64_t i = 0; i < count; i++) {
                record = record_of(f->next + i);
                cr_assert(cairn_audit_log_stage(f->log, &record));
        }
        if (!committed)
                return;
        cr_assert_leq(leaving, f->table_count);
        f->table_count -= leaving;
        memmove(f->table, f->table + leaving * RECORD, f->table_count * RECORD);
        if (cairn_audit_log_staged(f->log, &staged)) {
                if (f->remembered)
                        cr_assert_eq(staged.first, f->end.count);
                f->remembered = true;
                cr_assert_leq((f->table_count + staged.count) * RECORD, sizeof(f->table));
                memcpy(f->table + f->table_count * RECORD, staged.bytes, staged.count * RECORD);
                f->table_count += staged.count;
                f->end = staged.end;
        }
        f->next += count;
        cairn_audit_log_commit(f->log);
}

struct places {
        uint64_t count;
        uint64_t sequences[64];
        char text[256]; // the first's
};

static void on_bad(void *arg, uint64_t sequence, const char *text)
{
        struct places *places = arg;
        if (places->count == 0)
                snprintf(places->text, sizeof(places->text), "%s", text);
        if (places->count < 64)
                places->sequences[places->count] = sequence;
        places->count++;
}

static struct cairn_audit_check check_log(struct log_fixture *f, struct places *ret_places)
{
        struct cairn_audit_snapshot snapshot;
        struct cairn_audit_check check;
        *ret_places = (struct places){0};
        cr_assert_eq(cairn_audit_log_snapshot(f->log, &snapshot), CAIRN_OK);
        cr_assert_eq(cairn_audit_snapshot_verify(&snapshot, NULL, on_bad, ret_places, &check),
                     CAIRN_OK);
        cairn_audit_snapshot_finish(&snapshot);
        cr_assert_eq(check.bad, ret_places->count);
        return check;
}

static void check_whole(struct log_fixture *f, uint64_t records)
{
        struct places places;
        struct cairn_audit_check check = check_log(f, &places);
        cr_assert_eq(check.bad, 0, "%lu: %s", (unsigned long)places.sequences[0], places.text);
        cr_assert_eq(check.records, records, "%lu records", (unsigned long)check.records);
        cr_assert_eq(check.end.count, f->end.count);
}

struct found {
        uint64_t count;
        uint64_t last;
        bool ascending;
};

static bool on_found(void *arg, const uint8_t *bytes)
{
        struct found *found = arg;
        struct cairn_audit_record record;
        cr_assert_eq(cairn_audit_read(bytes, &record), CAIRN_OK);
        if (found->count > 0)
                cr_assert(found->ascending ? record.sequence > found->last
                                           : record.sequence < found->last);
        found->last = record.sequence;
        found->count++;
        return true;
}

Test(audit_log, records_go_from_the_table_to_files_and_stay_one_chain)
{
        struct log_fixture *f = log_create(8 << 20);
        transaction(f, 10, true);
        check_whole(f, 10);
        cairn_audit_log_roll(f->log, true);
        check_whole(f, 10);
        transaction(f, 5, true); // empties the table first
        cr_assert_eq(f->table_count, 5);
        check_whole(f, 15);
        transaction(f, 7, false);
        check_whole(f, 15);
        transaction(f, 7, true);
        check_whole(f, 22);
        crash(f);
        check_whole(f, 22);
        log_finish(f);
}

Test(audit_log, a_crash_between_files_and_table_doubles_nothing)
{
        struct log_fixture *f = log_create(8 << 20);
        transaction(f, 100, true);
        cairn_audit_log_roll(f->log, true); // the files have them, and so has the table
        crash(f);
        check_whole(f, 100);
        transaction(f, 20, true);
        check_whole(f, 120);
        cairn_audit_log_roll(f->log, true);
        transaction(f, 1, true);
        check_whole(f, 121);
        crash(f);
        check_whole(f, 121);
        log_finish(f);
}

static void file_path(const struct log_fixture *f, uint64_t first, char ret_path[512])
{
        char name[CAIRN_AUDIT_NAME_BYTES];
        cairn_audit_file_name(first, name);
        snprintf(ret_path, 512, "%s/%s", f->directory, name);
}

// Files are written by one step and synced by a later one; crashes between any two of them, with
// bytes of the file lost that were never synced.
Test(audit_log, records_roll_in_steps_and_a_crash_between_them_loses_none)
{
        struct log_fixture *f = log_create(1 << 20); // files of 256 records, steps of 256 and 16
        uint64_t most = 0;
        for (int i = 0; i < 200; i++) {
                char path[512];
                struct stat info;
                uint64_t first; // not synced from here on
                transaction(f, 7 + (uint64_t)i % 5, true);
                cairn_audit_log_roll(f->log, false);
                (void)cairn_audit_log_leaving(f->log, &first);
                if (f->table_count > most)
                        most = f->table_count;
                if (i % 3 != 0)
                        continue;
                file_path(f, first / 256 * 256, path);
                cairn_audit_log_destroy(f->log);
                if (stat(path, &info) == 0 && (uint64_t)info.st_size > (first % 256) * RECORD + 100)
                        cr_assert_eq(truncate(path, (off_t)((first % 256) * RECORD + 100)), 0);
                log_open(f);
                check_whole(f, f->end.count);
        }
        cr_assert_gt(f->end.count, 1700);
        cr_assert_leq(most, 2 * 256 + 64);
        check_whole(f, f->end.count);
        log_finish(f);
}

Test(audit_log, what_a_failed_commit_wrote_through_is_cut)
{
        struct log_fixture *f = log_create(8 << 20);
        transaction(f, 10, true);
        transaction(f, 9, false);
        cr_assert_eq(cairn_audit_log_write_through(f->log), CAIRN_OK);
        check_whole(f, 10); // clipped, though the files have 19
        crash(f);
        check_whole(f, 10);
        transaction(f, 3, true);
        cairn_audit_log_roll(f->log, true);
        transaction(f, 2, true);
        check_whole(f, 15);
        log_finish(f);
}

Test(audit_log, half_a_record_at_the_end_is_cut_and_written_again)
{
        struct log_fixture *f = log_create(8 << 20);
        char path[512];
        transaction(f, 10, true);
        cairn_audit_log_roll(f->log, true);
        file_path(f, 0, path);
        cr_assert_eq(truncate(path, 7 * RECORD + 100), 0); // as a crash in the append leaves it
        crash(f);
        check_whole(f, 10);
        cairn_audit_log_roll(f->log, true);
        transaction(f, 1, true);
        check_whole(f, 11);
        log_finish(f);
}

Test(audit_log, rotation_is_bounded_and_says_what_it_took)
{
        struct log_fixture *f = log_create(64 << 10); // 16 files of 16 records
        struct places places;
        struct cairn_audit_check check;
        for (int i = 0; i < 400; i++) {
                struct stat info;
                uint64_t bytes = 0;
                transaction(f, 5, true);
                cairn_audit_log_roll(f->log, false);
                for (uint64_t first = 0; first <= f->end.count; first++) {
                        char path[512];
                        file_path(f, first, path);
                        if (stat(path, &info) == 0)
                                bytes += (uint64_t)info.st_size;
                }
                cr_assert_leq(bytes, (64u << 10) + 2 * 16 * RECORD);
                if (i % 37 == 0)
                        crash(f);
        }
        check = check_log(f, &places);
        cr_assert_eq(check.bad, 0, "%lu: %s", (unsigned long)places.sequences[0], places.text);
        cr_assert_gt(check.first, 1500);
        cr_assert_gt(check.records, 200);
        log_finish(f);
}

static void rolled(struct log_fixture *f, uint64_t count)
{
        transaction(f, count, true);
        cairn_audit_log_roll(f->log, true);
        transaction(f, 4, true);
}

static void edit(const struct log_fixture *f, uint64_t file, off_t at, const void *bytes,
                 size_t size)
{
        char path[512];
        file_path(f, file, path);
        int fd = open(path, O_WRONLY);
        cr_assert_geq(fd, 0);
        cr_assert_eq(pwrite(fd, bytes, size, at), (ssize_t)size);
        close(fd);
}

static void read_at(const struct log_fixture *f, uint64_t file, off_t at, void *bytes, size_t size)
{
        char path[512];
        file_path(f, file, path);
        int fd = open(path, O_RDONLY);
        cr_assert_geq(fd, 0);
        cr_assert_eq(pread(fd, bytes, size, at), (ssize_t)size);
        close(fd);
}

Test(audit_log, any_changed_byte_is_found_in_its_record)
{
        struct log_fixture *f = log_create(8 << 20);
        struct places places;
        rolled(f, 20);
        for (off_t at = 0; at < 20 * RECORD; at += 37) {
                uint8_t byte, changed;
                read_at(f, 0, at, &byte, 1);
                changed = byte ^ 0x10;
                edit(f, 0, at, &changed, 1);
                (void)check_log(f, &places);
                cr_assert_geq(places.count, 1, "byte %ld", (long)at);
                // A changed digest spoils the next one too.
                cr_assert_leq(places.count, 2, "byte %ld", (long)at);
                cr_assert_eq(places.sequences[0], (uint64_t)at / RECORD, "byte %ld", (long)at);
                edit(f, 0, at, &byte, 1);
        }
        check_whole(f, 24);
        log_finish(f);
}

Test(audit_log, a_rewritten_removed_or_moved_record_is_found)
{
        struct log_fixture *f = log_create(8 << 20);
        struct places places;
        uint8_t all[20 * RECORD], moved[20 * RECORD];
        rolled(f, 20);
        read_at(f, 0, 0, all, sizeof(all));

        // A record that was written anew, with a digest that fits: the next does not follow it.
        struct cairn_audit_record record;
        struct cairn_audit_end end;
        cr_assert_eq(cairn_audit_read(all + 5 * RECORD, &record), CAIRN_OK);
        record.tenant = 99;
        cairn_audit_end_before(all + 5 * RECORD, &end);
        cairn_audit_append(&end, &record, moved);
        edit(f, 0, 5 * RECORD, moved, RECORD);
        (void)check_log(f, &places);
        cr_assert_eq(places.count, 1);
        cr_assert_eq(places.sequences[0], 6);
        edit(f, 0, 0, all, sizeof(all));

        // Two that changed places.
        memcpy(moved, all + 8 * RECORD, RECORD);
        memcpy(moved + RECORD, all + 7 * RECORD, RECORD);
        edit(f, 0, 7 * RECORD, moved, 2 * RECORD);
        (void)check_log(f, &places);
        cr_assert_geq(places.count, 1);
        cr_assert_eq(places.sequences[0], 7);
        edit(f, 0, 0, all, sizeof(all));

        // One that was taken out of the middle.
        char path[512];
        file_path(f, 0, path);
        edit(f, 0, 3 * RECORD, all + 4 * RECORD, 16 * RECORD);
        cr_assert_eq(truncate(path, 19 * RECORD), 0);
        (void)check_log(f, &places);
        cr_assert_eq(places.count, 1, "%lu places", (unsigned long)places.count);
        cr_assert_eq(places.sequences[0], 3);
        edit(f, 0, 0, all, sizeof(all));
        check_whole(f, 24);

        // The last ones of a file.
        cr_assert_eq(truncate(path, 15 * RECORD), 0);
        (void)check_log(f, &places);
        cr_assert_eq(places.count, 1);
        cr_assert_eq(places.sequences[0], 15);
        log_finish(f);
}

Test(audit_log, removed_files_and_a_shorter_table_are_found)
{
        struct log_fixture *f = log_create(64 << 10);
        struct places places;
        char path[512];
        transaction(f, 100, true);
        cairn_audit_log_roll(f->log, true);
        transaction(f, 4, true);
        file_path(f, 32, path);
        cr_assert_eq(rename(path, "/tmp/cairn-audit-moved"), 0);
        (void)check_log(f, &places);
        cr_assert_eq(places.count, 1);
        cr_assert_eq(places.sequences[0], 32);
        cr_assert_eq(rename("/tmp/cairn-audit-moved", path), 0);
        check_whole(f, 104);
        file_path(f, 0, path);
        cr_assert_eq(unlink(path), 0);
        (void)check_log(f, &places);
        cr_assert_eq(places.count, 1);
        cr_assert_eq(places.sequences[0], 0);
        cr_assert(strstr(places.text, "oldest"), "%s", places.text);
        log_finish(f);

        f = log_create(8 << 20);
        rolled(f, 10);
        struct cairn_audit_snapshot snapshot;
        struct cairn_audit_check check;
        cr_assert_eq(cairn_audit_log_snapshot(f->log, &snapshot), CAIRN_OK);
        snapshot.tail_count--; // as if somebody had cut it there, and not in the end's record
        cr_assert_eq(cairn_audit_snapshot_verify(&snapshot, NULL, NULL, NULL, &check), CAIRN_OK);
        cr_assert_eq(check.bad, 1);
        cairn_audit_snapshot_finish(&snapshot);
        log_finish(f);
}

Test(audit_log, a_rewritten_log_does_not_fit_what_was_noted)
{
        struct log_fixture *f = log_create(8 << 20);
        struct cairn_audit_snapshot snapshot;
        struct cairn_audit_check check;
        rolled(f, 10);
        struct cairn_audit_end noted = f->end;
        transaction(f, 5, true);
        cr_assert_eq(cairn_audit_log_snapshot(f->log, &snapshot), CAIRN_OK);
        cr_assert_eq(cairn_audit_snapshot_verify(&snapshot, &noted, NULL, NULL, &check), CAIRN_OK);
        cr_assert_eq(check.bad, 0);
        noted.digest.bytes[3] ^= 1;
        cr_assert_eq(cairn_audit_snapshot_verify(&snapshot, &noted, NULL, NULL, &check), CAIRN_OK);
        cr_assert_eq(check.bad, 1);
        noted.count = 1000;
        cr_assert_eq(cairn_audit_snapshot_verify(&snapshot, &noted, NULL, NULL, &check), CAIRN_OK);
        cr_assert_eq(check.bad, 1);
        cairn_audit_snapshot_finish(&snapshot);
        log_finish(f);
}

Test(audit_log, a_lost_catalog_leaves_a_chain_that_goes_on)
{
        struct log_fixture *f = log_create(8 << 20);
        rolled(f, 30); // 4 more are in the table alone
        f->remembered = false;
        f->table_count = 0;
        crash(f);
        cr_assert(cairn_audit_log_continued(f->log));
        transaction(f, 3, true);
        check_whole(f, 33);
        log_finish(f);
}

Test(audit_log, searches_page_in_both_directions)
{
        struct log_fixture *f = log_create(1 << 20); // files of 256 records
        struct cairn_audit_snapshot snapshot;
        uint32_t tenant = 1;
        for (int i = 0; i < 30; i++) {
                transaction(f, 100, true);
                cairn_audit_log_roll(f->log, i == 20);
        }
        cr_assert_eq(cairn_audit_log_snapshot(f->log, &snapshot), CAIRN_OK);
        for (int newest = 0; newest < 2; newest++) {
                struct found found = {.ascending = !newest};
                struct cairn_audit_search search = {.filter = {.tenant = &tenant},
                                                    .newest_first = newest,
                                                    .on_record = on_found,
                                                    .arg = &found,
                                                    .records_max = 77};
                bool more = true;
                uint64_t calls = 0;
                while (more) {
                        cr_assert_eq(cairn_audit_snapshot_search(&snapshot, &search, &search.cursor,
                                                                 &more),
                                     CAIRN_OK);
                        calls++;
                }
                cr_assert_eq(found.count, 1000);
                cr_assert_eq(calls, 3000 / 77 + 1);
                found = (struct found){.ascending = !newest};
                struct cairn_key key = fixture_key(1234);
                search = (struct cairn_audit_search){.filter = {.key = &key},
                                                     .newest_first = newest,
                                                     .on_record = on_found,
                                                     .arg = &found};
                cr_assert_eq(cairn_audit_snapshot_search(&snapshot, &search, &search.cursor, &more),
                             CAIRN_OK);
                cr_assert_eq(found.count, 1);
                cr_assert_eq(found.last, 1234);
                cr_assert_not(more);
        }
        cairn_audit_snapshot_finish(&snapshot);
        log_finish(f);
}
