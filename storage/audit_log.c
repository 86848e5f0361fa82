// The audit's chain as it grows: staging, committing, rolling to files, rotation.
#include "storage/audit_log.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/status.h"
#include "storage/audit_read.h"

enum {
        RECORD = CAIRN_AUDIT_RECORD_BYTES,
        CAPACITY_FIRST = 1024
};

struct cairn_audit_log {
        struct cairn_audit_log_options options;
        pthread_mutex_t lock; // files, tail, end: for snapshots
        struct cairn_audit_files files;
        struct cairn_audit_end end;
        uint8_t *tail; // owned; records [tail_first, tail_first + tail_count), then staged ones
        uint64_t tail_first;
        uint64_t tail_count;
        uint64_t tail_capacity;
        uint64_t written; // the first of the tail that are in files too, not synced yet
        uint64_t lost;    // not yet said
        bool table_stale;
        bool warned;
        bool continued;
        // Of the transaction under way.
        struct cairn_audit_end staged_end;
        uint64_t staged_count;
        uint64_t staged_lost; // said by a staged record
        uint64_t refused;     // found no room
        uint64_t rotated;     // files before this sequence go; 0: none
        bool written_through;
};

int cairn_audit_log_open(const struct cairn_audit_log_options *options,
                         struct cairn_audit_log **ret_log, char *ret_text)
{
        struct cairn_audit_log *log = calloc(1, sizeof(*log));
        int status = CAIRN_ENOMEM;

        if (log) {
                log->options = *options;
                status =
                    cairn_audit_files_init(&log->files, options->directory, options->limit_bytes);
        }
        if (status != CAIRN_OK) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         "cannot open the audit's directory %s: %s; check its owner and the disk",
                         options->directory, cairn_status_text(status));
                free(log);
                return status;
        }
        log->options.directory = NULL;
        pthread_mutex_init(&log->lock, NULL);
        *ret_log = log;
        return CAIRN_OK;
}

void cairn_audit_log_destroy(struct cairn_audit_log *log)
{
        if (!log)
                return;
        cairn_audit_files_finish(&log->files);
        pthread_mutex_destroy(&log->lock);
        free(log->tail);
        free(log);
}

static void warn(struct cairn_audit_log *log, const char *text)
{
        if (log->options.on_warning)
                log->options.on_warning(log->options.on_warning_arg, text);
}

static bool grow(struct cairn_audit_log *log, uint64_t records)
{
        uint64_t capacity = log->tail_capacity ? log->tail_capacity : CAPACITY_FIRST;
        uint8_t *tail;

        if (records <= log->tail_capacity)
                return true;
        while (capacity < records)
                capacity *= 2;
        if (capacity > CAIRN_AUDIT_TAIL_RECORDS)
                return false;
        pthread_mutex_lock(&log->lock);
        tail = realloc(log->tail, capacity * RECORD);
        if (tail) {
                log->tail = tail;
                log->tail_capacity = capacity;
        }
        pthread_mutex_unlock(&log->lock);
        return tail != NULL;
}

int cairn_audit_log_resume(struct cairn_audit_log *log, const struct cairn_audit_end *end,
                           const uint8_t *tail, uint64_t count)
{
        uint64_t files_end = cairn_audit_files_end(&log->files);
        int status;

        if (!end) {
                status = cairn_audit_files_chain(&log->files, &log->end);
                log->continued = status == CAIRN_OK;
                log->tail_first = log->end.count;
                return status == CAIRN_ENOENT ? CAIRN_OK : status;
        }
        if (count > end->count || !grow(log, count))
                return count > end->count ? CAIRN_ECORRUPT : CAIRN_ENOMEM;
        if (count > 0)
                memcpy(log->tail, tail, count * RECORD);
        log->end = *end;
        log->tail_first = end->count - count;
        log->tail_count = count;
        if (files_end < log->tail_first)
                warn(log, "records of the audit are missing: its files end before the catalog says "
                          "so; run cairnctl audit --verify");
        return CAIRN_OK;
}

bool cairn_audit_log_continued(const struct cairn_audit_log *log)
{
        return log->continued;
}

void cairn_audit_log_begin(struct cairn_audit_log *log)
{
        log->staged_end = log->end;
        log->staged_count = 0;
        log->staged_lost = 0;
        log->refused = 0;
        log->rotated = 0;
        log->written_through = false;
}

bool cairn_audit_log_stage(struct cairn_audit_log *log, const struct cairn_audit_record *record)
{
        uint64_t at = log->tail_count + log->staged_count;

        if (!grow(log, at + 1)) {
                log->refused++;
                return false;
        }
        cairn_audit_append(&log->staged_end, record, log->tail + at * RECORD);
        log->staged_count++;
        return true;
}

void cairn_audit_log_lose(struct cairn_audit_log *log, uint64_t count)
{
        log->lost += count;
}

bool cairn_audit_log_own(struct cairn_audit_log *log, struct cairn_audit_record *ret_record)
{
        uint64_t first;

        if (!grow(log, log->tail_count + log->staged_count + 2))
                return false;
        *ret_record = (struct cairn_audit_record){
            .layer = CAIRN_AUDIT_ALL, .head = CAIRN_AUDIT_ALL, .reason = CAIRN_AUDIT_CAPACITY};
        if (log->lost > log->staged_lost) {
                ret_record->action = CAIRN_AUDIT_LOST;
                ret_record->count = log->lost > UINT32_MAX ? UINT32_MAX : (uint32_t)log->lost;
                log->staged_lost = log->lost;
                return true;
        }
        if (log->rotated == 0 && cairn_audit_files_full(&log->files, &first)) {
                uint64_t oldest = log->files.files[0].first;

                ret_record->action = CAIRN_AUDIT_BEGIN;
                ret_record->count = (uint32_t)(first - oldest);
                ret_record->bytes = (first - oldest) * RECORD;
                ret_record->numbers[0] = (double)oldest;
                ret_record->numbers[1] = (double)first;
                log->rotated = first;
                return true;
        }
        return false;
}

bool cairn_audit_log_staged(const struct cairn_audit_log *log,
                            struct cairn_audit_staged *ret_staged)
{
        if (log->staged_count == 0)
                return false;
        *ret_staged = (struct cairn_audit_staged){.bytes = log->tail + log->tail_count * RECORD,
                                                  .first = log->tail_first + log->tail_count,
                                                  .count = log->staged_count,
                                                  .end = log->staged_end};
        return true;
}

bool cairn_audit_log_leaving(const struct cairn_audit_log *log, uint64_t *ret_before)
{
        *ret_before = log->tail_first;
        return log->table_stale;
}

// Under the lock. The first `count` of the tail, with all that is staged, or without.
static int write_files(struct cairn_audit_log *log, uint64_t count)
{
        int status = cairn_audit_files_append(&log->files, log->tail_first, log->tail, count);

        log->written = status == CAIRN_OK ? count : 0;
        return status;
}

int cairn_audit_log_write_through(struct cairn_audit_log *log)
{
        int status;

        pthread_mutex_lock(&log->lock);
        status = write_files(log, log->tail_count + log->staged_count);
        if (status == CAIRN_OK)
                status = cairn_audit_files_sync(&log->files);
        log->written = 0; // what is staged may not be committed: then all are written again
        pthread_mutex_unlock(&log->lock);
        log->written_through = status == CAIRN_OK;
        return status;
}

void cairn_audit_log_commit(struct cairn_audit_log *log)
{
        pthread_mutex_lock(&log->lock);
        log->tail_count += log->staged_count;
        log->end = log->staged_end;
        log->table_stale = false;
        if (log->written_through) {
                log->tail_first += log->tail_count;
                log->tail_count = 0;
        }
        if (log->rotated > 0)
                cairn_audit_files_remove(&log->files, log->rotated);
        pthread_mutex_unlock(&log->lock);
        log->lost -= log->staged_lost;
        log->lost += log->refused;
        cairn_audit_log_begin(log);
}

// Under the lock. What was written leaves the tail once it is synced.
static int sync_files(struct cairn_audit_log *log)
{
        int status = cairn_audit_files_sync(&log->files);

        if (status == CAIRN_OK) {
                log->tail_first += log->written;
                log->tail_count -= log->written;
                memmove(log->tail, log->tail + log->written * RECORD, log->tail_count * RECORD);
                log->table_stale = true;
        }
        log->written = 0;
        return status;
}

void cairn_audit_log_roll(struct cairn_audit_log *log, bool all)
{
        uint64_t enough = log->files.file_records;
        uint64_t settled = CAIRN_AUDIT_SYNC_RECORDS;
        int status = CAIRN_OK;

        if (enough > CAIRN_AUDIT_ROLL_RECORDS)
                enough = CAIRN_AUDIT_ROLL_RECORDS;
        if (settled > enough / 16)
                settled = enough / 16;
        if (log->tail_count == 0)
                return;
        if (log->tail_count >= 2 * enough)
                all = true; // crashes or a failing disk kept them: no more steps
        pthread_mutex_lock(&log->lock);
        if (log->written > 0 && (all || log->tail_count >= log->written + settled))
                status = sync_files(log);
        else if (log->written == 0 && !all && log->tail_count >= enough)
                status = write_files(log, log->tail_count);
        if (all && status == CAIRN_OK && log->tail_count > 0)
                status = write_files(log, log->tail_count);
        if (all && status == CAIRN_OK && log->written > 0)
                status = sync_files(log);
        pthread_mutex_unlock(&log->lock);
        if (status != CAIRN_OK && !log->warned)
                warn(log, "the audit's files cannot be written: records stay in the catalog until "
                          "that is full, then they are counted alone; check the disk");
        log->warned = status != CAIRN_OK;
}

bool cairn_audit_log_full(const struct cairn_audit_log *log)
{
        uint64_t first;

        return cairn_audit_files_full(&log->files, &first);
}

int cairn_audit_log_snapshot(struct cairn_audit_log *log, struct cairn_audit_snapshot *ret_snapshot)
{
        int status;

        pthread_mutex_lock(&log->lock);
        status = cairn_audit_snapshot_take(log->files.directory, log->tail, log->tail_first,
                                           log->tail_count, &log->end, ret_snapshot);
        pthread_mutex_unlock(&log->lock);
        return status;
}
