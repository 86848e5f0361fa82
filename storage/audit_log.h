// The audit's chain as it grows: records get their sequence and digest in the order of the
// catalog's transactions, lie in the catalog's table `audit_tail` until some thousands are there
// (so that they become durable with the removals they tell of, by no sync of their own), then in
// files (audit_files.h). What the table holds is in memory too, for the files and for readers.
//
//   table, files: records [tail_first, end) are in the table; those before are in files, synced
//   files are written, then synced some transactions later, when the disk has them anyway; the next
//   transaction takes them out of the table
//   crash between: the files hold some of the table's again; they are cut
//
// May be used by: storage/index.c, storage/catalog.c, storage/audit*.c, tests. May use: proto.
// Threads: one at a time writes (the index thread); snapshot from any.
#ifndef CAIRN_AUDIT_LOG_H
#define CAIRN_AUDIT_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/audit_record.h"
#include "storage/audit_files.h"

enum {
        CAIRN_AUDIT_ROLL_RECORDS = 16384, // in the table, before they go to files
        CAIRN_AUDIT_SYNC_RECORDS = 1024,  // that follow them, before these are synced
        CAIRN_AUDIT_TAIL_RECORDS = 65536, // at most, while the files cannot be written
};

struct cairn_audit_log;

struct cairn_audit_log_options {
        const char *directory;
        uint64_t limit_bytes;
        void (*on_warning)(void *arg, const char *text); // may be NULL
        void *on_warning_arg;
};

// With a sentence in ret_text (CAIRN_TEXT_BYTES_MAX).
int cairn_audit_log_open(const struct cairn_audit_log_options *options,
                         struct cairn_audit_log **ret_log, char *ret_text);
void cairn_audit_log_destroy(struct cairn_audit_log *log); // NULL is fine

// The start: what the catalog remembers. `end` NULL: nothing (a new directory, or a lost catalog:
// the chain then goes on from the files). `tail`: the `count` records before `end`.
int cairn_audit_log_resume(struct cairn_audit_log *log, const struct cairn_audit_end *end,
                           const uint8_t *tail, uint64_t count);
// True: the chain went on from files whose catalog is lost.
bool cairn_audit_log_continued(const struct cairn_audit_log *log);

// One transaction: begin (again, if it is repeated), stage each record, commit if it was committed.
// False: no room; it is counted.
void cairn_audit_log_begin(struct cairn_audit_log *log);
bool cairn_audit_log_stage(struct cairn_audit_log *log, const struct cairn_audit_record *record);
void cairn_audit_log_lose(struct cairn_audit_log *log, uint64_t count); // said by a later record
// The log's own words, staged by begin's caller first: what was lost, what is rotated out. False:
// none.
bool cairn_audit_log_own(struct cairn_audit_log *log, struct cairn_audit_record *ret_record);
// What the transaction is to put into the table, and the chain's end that the catalog is to
// remember with it. The bytes are the log's, until the next call. False: nothing was staged.
struct cairn_audit_staged {
        const uint8_t *bytes;
        uint64_t first; // sequence
        uint64_t count;
        struct cairn_audit_end end;
};
bool cairn_audit_log_staged(const struct cairn_audit_log *log,
                            struct cairn_audit_staged *ret_staged);
// Records before this one are in files: the transaction is to take them out of the table first.
// False: there are none.
bool cairn_audit_log_leaving(const struct cairn_audit_log *log, uint64_t *ret_before);
// For a catalog without room: all that is staged goes to files before the commit, not to the table.
int cairn_audit_log_write_through(struct cairn_audit_log *log);
void cairn_audit_log_commit(struct cairn_audit_log *log);

// Moves the table's records to files if there are enough of them, or `all`: a step of it, after
// each commit. An error is a warning, once, and is tried again with the next.
void cairn_audit_log_roll(struct cairn_audit_log *log, bool all);

// The files are above their bound: a transaction, an empty one too, says so and takes the oldest.
bool cairn_audit_log_full(const struct cairn_audit_log *log);

// All that is committed, for readers on any thread; see audit_read.h.
struct cairn_audit_snapshot;
int cairn_audit_log_snapshot(struct cairn_audit_log *log,
                             struct cairn_audit_snapshot *ret_snapshot);

#endif
