// Reading the audit: what is committed at one moment, from files and from the catalog's table, as
// one sequence of records. For the daemon while it runs, and for a directory that nobody has.
//
// May be used by: storage, tests. May use: proto. Threads: a snapshot belongs to one at a time; any
// thread; blocks for as long as the reading takes.
#ifndef CAIRN_AUDIT_READ_H
#define CAIRN_AUDIT_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/audit_record.h"
#include "storage/audit_files.h"

struct cairn_audit_snapshot {
        struct cairn_audit_file *files; // owned, ascending, cut where the table's records begin
        int *descriptors;               // owned, one a file
        uint32_t files_count;
        uint8_t *tail; // owned
        uint64_t tail_first;
        uint64_t tail_count;
        struct cairn_audit_end end; // as the catalog has it
        bool anchored;              // `end` is known: the catalog was there
};

// Copies the tail and opens the files, so that rotation takes nothing away from the reader. `end`
// NULL: the catalog is not there. CAIRN_ENOMEM, CAIRN_EIO and what errno says.
int cairn_audit_snapshot_take(int directory, const uint8_t *tail, uint64_t tail_first,
                              uint64_t tail_count, const struct cairn_audit_end *end,
                              struct cairn_audit_snapshot *ret_snapshot);
void cairn_audit_snapshot_finish(struct cairn_audit_snapshot *snapshot); // zeroed is fine

// Calls on_record for each record that fits, until it answers false (enough) or all were seen.
// Ascending from `cursor`, or, newest first, descending from below `cursor` (0: the end).
// *ret_next: where another call goes on; *ret_more: it may find something. CAIRN_EIO, CAIRN_ENOMEM.
struct cairn_audit_search {
        struct cairn_audit_filter filter;
        bool newest_first;
        uint64_t cursor;
        uint64_t records_max; // to look at in this call; 0: no bound
        bool (*on_record)(void *arg, const uint8_t *bytes);
        void *arg;
};
int cairn_audit_snapshot_search(const struct cairn_audit_snapshot *snapshot,
                                const struct cairn_audit_search *search, uint64_t *ret_next,
                                bool *ret_more);

struct cairn_audit_check {
        uint64_t records;
        uint64_t first;             // sequence of the oldest
        uint64_t lost;              // that records say could not be kept
        uint64_t bad;               // places where the chain does not hold
        uint64_t continued;         // times that it went on without its catalog
        struct cairn_audit_end end; // the last record's
};
// Checks every record and that each follows the one before, about a thousand a step. on_bad (may be
// NULL): a place, in words. `anchor` (may be NULL): what an operator noted of an earlier check,
// which the record before anchor->count must fit. Both and the snapshot are the caller's, until the
// last step. CAIRN_EIO, CAIRN_ENOMEM.
struct cairn_audit_checker {
        struct cairn_audit_check result; // whole once it is done
        const struct cairn_audit_snapshot *snapshot;
        const struct cairn_audit_end *anchor;
        void (*on_bad)(void *arg, uint64_t sequence, const char *text);
        void *arg;
        uint32_t file; // under way
        uint64_t from; // in it
        struct cairn_audit_end end;
        uint64_t kept_from; // rotation took what is before
        bool begun;
};
void cairn_audit_checker_init(struct cairn_audit_checker *check,
                              const struct cairn_audit_snapshot *snapshot,
                              const struct cairn_audit_end *anchor,
                              void (*on_bad)(void *arg, uint64_t sequence, const char *text),
                              void *arg);
int cairn_audit_checker_step(struct cairn_audit_checker *check, bool *ret_done);
// All steps at once.
int cairn_audit_snapshot_verify(const struct cairn_audit_snapshot *snapshot,
                                const struct cairn_audit_end *anchor,
                                void (*on_bad)(void *arg, uint64_t sequence, const char *text),
                                void *arg, struct cairn_audit_check *ret_check);

// Records [at, at + count) of one file; *ret_count says how many there are. CAIRN_EIO.
int cairn_audit_read_records(int fd, uint64_t at, uint64_t count, uint8_t *bytes,
                             uint64_t *ret_count);

// A directory that no daemon has, read alone: DIR/catalog.mdb and DIR/audit. CAIRN_EBUSY,
// CAIRN_ENOENT, CAIRN_EIO, CAIRN_ENOMEM, with a sentence in ret_text (CAIRN_TEXT_BYTES_MAX).
int cairn_audit_snapshot_offline(const char *directory, struct cairn_audit_snapshot *ret_snapshot,
                                 char *ret_text);

#endif
