// Snapshots of the audit: taking and searching them.
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
        if (!anchored || file->first + file->count < tail_first)
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

int cairn_audit_read_records(int fd, uint64_t at, uint64_t count, uint8_t *bytes,
                             uint64_t *ret_count)
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
        uint64_t looked;
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
                if (search->records_max > 0 && scan->looked++ == search->records_max) {
                        scan->stopped = true;
                        return;
                }
                scan->next = search->newest_first ? sequence : sequence + 1;
                if (cairn_audit_matches(bytes + at * RECORD, &search->filter) &&
                    !search->on_record(search->arg, bytes + at * RECORD))
                        scan->stopped = true;
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
                status = cairn_audit_read_records(fd, from, count, scan->chunk, &count);
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
        *ret_more = scan.stopped && !(search->newest_first && scan.next == 0);
        return status;
}
