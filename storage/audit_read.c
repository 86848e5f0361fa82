// Snapshots of the audit: taking them, searching them.
#include "storage/audit_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/status.h"

enum {
        RECORD = CAIRN_AUDIT_RECORD_BYTES,
        CHUNK_RECORDS = 1024
};

// Files may hold some of the table's records again, after a crash or a commit that failed.
static void clip(struct cairn_audit_file *file, uint64_t tail_first, bool anchored)
{
        if (!anchored || file->first + file->count <= tail_first)
                return;
        file->count = file->first < tail_first ? tail_first - file->first : 0;
        file->excess_bytes = 0;
}

static int open_files(int directory, struct cairn_audit_snapshot *snapshot)
{
        uint32_t count;
        int status = cairn_audit_files_list(directory, &snapshot->files, &count);

        if (status != CAIRN_OK)
                return status;
        snapshot->descriptors = calloc(count + 1, sizeof(*snapshot->descriptors));
        if (!snapshot->descriptors)
                return CAIRN_ENOMEM;
        for (uint32_t i = 0; i < count; i++) {
                int fd = cairn_audit_file_open(directory, snapshot->files[i].first);

                if (fd < 0)
                        return cairn_status_from_errno(errno);
                clip(&snapshot->files[i], snapshot->tail_first, snapshot->anchored);
                snapshot->descriptors[snapshot->files_count++] = fd;
        }
        return CAIRN_OK;
}

int cairn_audit_snapshot_take(int directory, const uint8_t *tail, uint64_t tail_first,
                              uint64_t tail_count, const struct cairn_audit_end *end,
                              struct cairn_audit_snapshot *ret_snapshot)
{
        struct cairn_audit_snapshot snapshot = {
            .tail_first = tail_first, .tail_count = tail_count, .anchored = end != NULL};
        int status = CAIRN_OK;

        if (end)
                snapshot.end = *end;
        snapshot.tail = malloc(tail_count * RECORD + 1);
        if (!snapshot.tail)
                return CAIRN_ENOMEM;
        if (tail_count > 0)
                memcpy(snapshot.tail, tail, tail_count * RECORD);
        if (directory >= 0)
                status = open_files(directory, &snapshot);
        if (status != CAIRN_OK)
                cairn_audit_snapshot_finish(&snapshot);
        else
                *ret_snapshot = snapshot;
        return status;
}

void cairn_audit_snapshot_finish(struct cairn_audit_snapshot *snapshot)
{
        for (uint32_t i = 0; i < snapshot->files_count; i++)
                (void)close(snapshot->descriptors[i]); // were only read
        free(snapshot->descriptors);
        free(snapshot->files);
        free(snapshot->tail);
        *snapshot = (struct cairn_audit_snapshot){0};
}

// Records [first, first + count) of one file into `bytes`; *ret_count says how many there are.
static int read_records(int fd, uint64_t at, uint64_t count, uint8_t *bytes, uint64_t *ret_count)
{
        size_t done = 0;

        while (done < count * RECORD) {
                ssize_t some =
                    pread(fd, bytes + done, count * RECORD - done, (off_t)(at * RECORD + done));

                if (some < 0 && errno == EINTR)
                        continue;
                if (some < 0)
                        return cairn_status_from_errno(errno);
                if (some == 0)
                        break;
                done += (size_t)some;
        }
        *ret_count = done / RECORD;
        return CAIRN_OK;
}

struct scan {
        const struct cairn_audit_search *search;
        uint8_t *chunk;
        uint64_t next; // the cursor after what was looked at
        bool stopped;
};

// `bytes` are records [first, first + count).
static void look(struct scan *scan, const uint8_t *bytes, uint64_t first, uint64_t count)
{
        const struct cairn_audit_search *search = scan->search;

        for (uint64_t i = 0; i < count && !scan->stopped; i++) {
                uint64_t at = search->newest_first ? count - 1 - i : i;
                uint64_t sequence = first + at;

                if (search->newest_first ? search->cursor > 0 && sequence >= search->cursor
                                         : sequence < search->cursor)
                        continue;
                if (cairn_audit_matches(bytes + at * RECORD, &search->filter) &&
                    !search->on_record(search->arg, bytes + at * RECORD)) {
                        scan->stopped = true;
                        return;
                }
                scan->next = search->newest_first ? sequence : sequence + 1;
        }
}

static bool outside(const struct cairn_audit_search *search, uint64_t first, uint64_t count)
{
        if (search->newest_first)
                return search->cursor > 0 && first >= search->cursor;
        return first + count <= search->cursor;
}

static int look_file(struct scan *scan, const struct cairn_audit_file *file, int fd)
{
        uint64_t chunks = (file->count + CHUNK_RECORDS - 1) / CHUNK_RECORDS;

        for (uint64_t i = 0; i < chunks && !scan->stopped; i++) {
                uint64_t from = (scan->search->newest_first ? chunks - 1 - i : i) * CHUNK_RECORDS;
                uint64_t count = file->count - from;
                int status;

                if (count > CHUNK_RECORDS)
                        count = CHUNK_RECORDS;
                if (outside(scan->search, file->first + from, count))
                        continue;
                status = read_records(fd, from, count, scan->chunk, &count);
                if (status != CAIRN_OK)
                        return status;
                look(scan, scan->chunk, file->first + from, count);
        }
        return CAIRN_OK;
}

int cairn_audit_snapshot_search(const struct cairn_audit_snapshot *snapshot,
                                const struct cairn_audit_search *search, uint64_t *ret_next,
                                bool *ret_more)
{
        struct scan scan = {.search = search, .next = search->cursor};
        int status = CAIRN_OK;

        scan.chunk = malloc((size_t)CHUNK_RECORDS * RECORD);
        if (!scan.chunk)
                return CAIRN_ENOMEM;
        if (search->newest_first)
                look(&scan, snapshot->tail, snapshot->tail_first, snapshot->tail_count);
        for (uint32_t i = 0; i < snapshot->files_count && status == CAIRN_OK && !scan.stopped;
             i++) {
                uint32_t at = search->newest_first ? snapshot->files_count - 1 - i : i;

                status = look_file(&scan, &snapshot->files[at], snapshot->descriptors[at]);
        }
        if (!search->newest_first && status == CAIRN_OK)
                look(&scan, snapshot->tail, snapshot->tail_first, snapshot->tail_count);
        free(scan.chunk);
        *ret_next = scan.next;
        *ret_more = scan.stopped;
        return status;
}

// ---- checking ----

struct check {
        const struct cairn_audit_end *anchor;
        void (*on_bad)(void *arg, uint64_t sequence, const char *text);
        void *arg;
        struct cairn_audit_check *result;
        struct cairn_audit_end end; // so far
        bool begun;
        uint64_t kept_from; // rotation took what is before
};

static void bad(struct check *check, uint64_t sequence, const char *text)
{
        check->result->bad++;
        if (check->on_bad)
                check->on_bad(check->arg, sequence, text);
}

static void begin(struct check *check, const uint8_t *bytes, uint64_t first)
{
        check->begun = true;
        check->result->first = first;
        if (first > 0)
                cairn_audit_end_before(bytes, &check->end);
        check->end.count = first;
}

static void note(struct check *check, const uint8_t *bytes)
{
        const struct cairn_audit_filter begins = {.action = CAIRN_AUDIT_BEGIN};
        const struct cairn_audit_filter losses = {.action = CAIRN_AUDIT_LOST};
        struct cairn_audit_record record;

        if ((!cairn_audit_matches(bytes, &begins) && !cairn_audit_matches(bytes, &losses)) ||
            cairn_audit_read(bytes, &record) != CAIRN_OK)
                return;
        if (record.action == CAIRN_AUDIT_LOST)
                check->result->lost += record.count;
        if (record.action != CAIRN_AUDIT_BEGIN)
                return;
        check->result->continued += record.reason == CAIRN_AUDIT_CORRUPT;
        if (record.reason == CAIRN_AUDIT_CAPACITY && record.numbers[1] >= 0)
                check->kept_from = (uint64_t)record.numbers[1];
}

static void check_anchor(struct check *check)
{
        const struct cairn_audit_end *anchor = check->anchor;

        if (anchor && check->end.count == anchor->count &&
            !cairn_key_equal(&check->end.digest, &anchor->digest))
                bad(check, anchor->count > 0 ? anchor->count - 1 : 0,
                    "another digest than the one that was noted: the log was rewritten up to here");
}

// `joint`: a file or the table begins here, at a sequence that is known whatever the bytes say.
static void check_records(struct check *check, const uint8_t *bytes, uint64_t first, uint64_t count,
                          bool joint)
{
        if (count == 0)
                return;
        if (!check->begun)
                begin(check, bytes, first);
        if (joint && check->end.count != first)
                bad(check, check->end.count, "records are missing from here");
        if (joint)
                check->end.count = first;
        for (uint64_t i = 0; i < count; i++, bytes += RECORD) {
                int status = cairn_audit_verify(&check->end, bytes, 1);

                check->result->records++;
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

static int check_file(struct check *check, const struct cairn_audit_file *file, int fd,
                      uint8_t *chunk)
{
        for (uint64_t from = 0; from < file->count;) {
                uint64_t count = file->count - from;
                int status;

                if (count > CHUNK_RECORDS)
                        count = CHUNK_RECORDS;
                status = read_records(fd, from, count, chunk, &count);
                if (status != CAIRN_OK)
                        return status;
                if (count == 0)
                        break; // it was cut meanwhile: the next file or the tail shows it
                check_records(check, chunk, file->first + from, count, from == 0);
                from += count;
        }
        if (file->excess_bytes > 0)
                bad(check, file->first + file->count, "bytes at the end of a file are no record");
        return CAIRN_OK;
}

static void check_ends(struct check *check, const struct cairn_audit_snapshot *snapshot)
{
        const struct cairn_audit_end *end = &snapshot->end;

        if (check->result->first > check->kept_from)
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

int cairn_audit_snapshot_verify(const struct cairn_audit_snapshot *snapshot,
                                const struct cairn_audit_end *anchor,
                                void (*on_bad)(void *arg, uint64_t sequence, const char *text),
                                void *arg, struct cairn_audit_check *ret_check)
{
        struct check check = {.anchor = anchor, .on_bad = on_bad, .arg = arg, .result = ret_check};
        uint8_t *chunk = malloc((size_t)CHUNK_RECORDS * RECORD);
        int status = chunk ? CAIRN_OK : CAIRN_ENOMEM;

        *ret_check = (struct cairn_audit_check){0};
        for (uint32_t i = 0; i < snapshot->files_count && status == CAIRN_OK; i++) {
                status = check_file(&check, &snapshot->files[i], snapshot->descriptors[i], chunk);
        }
        free(chunk);
        if (status != CAIRN_OK)
                return status;
        check_records(&check, snapshot->tail, snapshot->tail_first, snapshot->tail_count, true);
        check_ends(&check, snapshot);
        ret_check->end = check.end;
        return CAIRN_OK;
}
