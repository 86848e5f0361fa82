// Checking the audit: every record, and that each follows the one before.
#include <stdlib.h>

#include "proto/status.h"
#include "storage/audit_read.h"

enum {
        RECORD = CAIRN_AUDIT_RECORD_BYTES,
        CHUNK_RECORDS = 1024
};

static void bad(struct cairn_audit_checker *check, uint64_t sequence, const char *text)
{
        check->result.bad++;
        if (check->on_bad)
                check->on_bad(check->arg, sequence, text);
}

static void begin(struct cairn_audit_checker *check, const uint8_t *bytes, uint64_t first)
{
        check->begun = true;
        check->result.first = first;
        if (first > 0)
                cairn_audit_end_before(bytes, &check->end);
        check->end.count = first;
}

static void note(struct cairn_audit_checker *check, const uint8_t *bytes)
{
        const struct cairn_audit_filter begins = {.action = CAIRN_AUDIT_BEGIN};
        const struct cairn_audit_filter losses = {.action = CAIRN_AUDIT_LOST};
        struct cairn_audit_record record;

        if ((!cairn_audit_matches(bytes, &begins) && !cairn_audit_matches(bytes, &losses)) ||
            cairn_audit_read(bytes, &record) != CAIRN_OK)
                return;
        if (record.action == CAIRN_AUDIT_LOST)
                check->result.lost += record.count;
        if (record.action != CAIRN_AUDIT_BEGIN)
                return;
        check->result.continued += record.reason == CAIRN_AUDIT_CORRUPT;
        if (record.reason == CAIRN_AUDIT_CAPACITY && record.numbers[1] >= 0)
                check->kept_from = (uint64_t)record.numbers[1];
}

static void check_anchor(struct cairn_audit_checker *check)
{
        const struct cairn_audit_end *anchor = check->anchor;

        if (anchor && check->end.count == anchor->count &&
            !cairn_key_equal(&check->end.digest, &anchor->digest))
                bad(check, anchor->count > 0 ? anchor->count - 1 : 0,
                    "another digest than the one that was noted: the log was rewritten up to here");
}

// `joint`: a file or the table begins here, at a sequence that is known whatever the bytes say.
static void check_records(struct cairn_audit_checker *check, const uint8_t *bytes, uint64_t first,
                          uint64_t count, bool joint)
{
        if (count == 0)
                return;
        if (!check->begun)
                begin(check, bytes, first);
        if (joint && check->end.count != first) {
                bad(check, check->end.count, "records are missing from here");
                cairn_audit_end_before(bytes, &check->end); // said: no more words about it
                check->end.count = first;
        }
        for (uint64_t i = 0; i < count; i++, bytes += RECORD) {
                int status = cairn_audit_verify(&check->end, bytes, 1);

                check->result.records++;
                if (status == CAIRN_EMISMATCH)
                        bad(check, first + i,
                            "does not follow the record before: something was changed, removed, "
                            "inserted or moved");
                else if (status != CAIRN_OK)
                        bad(check, first + i,
                            status == CAIRN_ECORRUPT ? "was changed: its digest does not fit"
                                                     : "is no record");
                if (status != CAIRN_OK)
                        cairn_audit_end_behind(bytes, &check->end);
                note(check, bytes);
                check_anchor(check);
        }
}

// Some records of the file that is under way.
static int step_file(struct cairn_audit_checker *check, uint8_t *chunk)
{
        const struct cairn_audit_file *file = &check->snapshot->files[check->file];
        uint64_t count = file->count - check->from;
        int status;

        if (count > CHUNK_RECORDS)
                count = CHUNK_RECORDS;
        status = cairn_audit_read_records(check->snapshot->descriptors[check->file], check->from,
                                          count, chunk, &count);
        if (status != CAIRN_OK)
                return status;
        check_records(check, chunk, file->first + check->from, count, check->from == 0);
        check->from += count;
        if (count > 0 && check->from < file->count)
                return CAIRN_OK;
        if (file->excess_bytes > 0)
                bad(check, file->first + file->count, "bytes at the end of a file are no record");
        check->file++;
        check->from = 0;
        return CAIRN_OK;
}

static void check_ends(struct cairn_audit_checker *check)
{
        const struct cairn_audit_snapshot *snapshot = check->snapshot;
        const struct cairn_audit_end *end = &snapshot->end;

        if (check->result.first > check->kept_from)
                bad(check, check->kept_from,
                    "the oldest files are missing: no rotation tells of them");
        if (snapshot->anchored &&
            (check->end.count != end->count || !cairn_key_equal(&check->end.digest, &end->digest)))
                bad(check, check->end.count,
                    "the log does not end where the catalog says: records were cut off or added");
        if (check->anchor && check->anchor->count > check->end.count)
                bad(check, check->end.count,
                    "the log ends before what was noted: records were cut off");
}

void cairn_audit_checker_init(struct cairn_audit_checker *check,
                              const struct cairn_audit_snapshot *snapshot,
                              const struct cairn_audit_end *anchor,
                              void (*on_bad)(void *arg, uint64_t sequence, const char *text),
                              void *arg)
{
        *check = (struct cairn_audit_checker){
            .snapshot = snapshot, .anchor = anchor, .on_bad = on_bad, .arg = arg};
}

int cairn_audit_checker_step(struct cairn_audit_checker *check, bool *ret_done)
{
        const struct cairn_audit_snapshot *snapshot = check->snapshot;

        *ret_done = check->file >= snapshot->files_count;
        if (!*ret_done) {
                uint8_t *chunk = malloc((size_t)CHUNK_RECORDS * RECORD);
                int status = chunk ? step_file(check, chunk) : CAIRN_ENOMEM;

                free(chunk);
                return status;
        }
        check_records(check, snapshot->tail, snapshot->tail_first, snapshot->tail_count, true);
        check_ends(check);
        check->result.end = check->end;
        return CAIRN_OK;
}

int cairn_audit_snapshot_verify(const struct cairn_audit_snapshot *snapshot,
                                const struct cairn_audit_end *anchor,
                                void (*on_bad)(void *arg, uint64_t sequence, const char *text),
                                void *arg, struct cairn_audit_check *ret_check)
{
        struct cairn_audit_checker check;
        bool done = false;
        int status = CAIRN_OK;

        cairn_audit_checker_init(&check, snapshot, anchor, on_bad, arg);
        while (status == CAIRN_OK && !done)
                status = cairn_audit_checker_step(&check, &done);
        if (status == CAIRN_OK)
                *ret_check = check.result;
        return status;
}
