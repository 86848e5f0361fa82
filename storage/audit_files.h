// The files of the audit: DIR/<sequence of the first record, 16 hex digits>.log, records of
// CAIRN_AUDIT_RECORD_BYTES one after the other, so that a name and a position give a sequence
// whatever the bytes say. Bytes are appended and cut, never changed. proto/audit_record.h says what
// a record is; nothing here looks into one, but for the end of a chain.
//
// May be used by: storage, tests. May use: proto. Threads: one at a time.
#ifndef CAIRN_AUDIT_FILES_H
#define CAIRN_AUDIT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/audit_record.h"

enum {
        CAIRN_AUDIT_FILES_COUNT = 16, // that share the bound; one more while one is rotated out
        CAIRN_AUDIT_FILES_MAX = 4096, // that a directory may hold: more are not looked at
        CAIRN_AUDIT_NAME_BYTES = 32,
};
#define CAIRN_AUDIT_BYTES_MIN (64ull << 10)

struct cairn_audit_file {
        uint64_t first; // sequence
        uint64_t count; // whole records
        uint32_t excess_bytes;
};

struct cairn_audit_files {
        int directory;                  // descriptor
        int last;                       // descriptor of the newest, for appending; -1: none yet
        struct cairn_audit_file *files; // ascending
        uint32_t count;
        uint64_t file_records; // a file is full with so many
        uint64_t limit_records;
        bool unsynced; // the newest file
};

// Makes the directory and reads its names. A zeroed struct may be finished. CAIRN_EIO, CAIRN_ENOMEM
// and what errno says.
int cairn_audit_files_init(struct cairn_audit_files *files, const char *directory,
                           uint64_t limit_bytes);
void cairn_audit_files_finish(struct cairn_audit_files *files);

// Reads the names in a directory, ascending; the caller's to free. CAIRN_ENOENT, CAIRN_EIO,
// CAIRN_ENOMEM.
int cairn_audit_files_list(int directory, struct cairn_audit_file **ret_files, uint32_t *ret_count);
// For reading. -1 with errno.
int cairn_audit_file_open(int directory, uint64_t first);
void cairn_audit_file_name(uint64_t first, char ret_name[CAIRN_AUDIT_NAME_BYTES]);

// Where the newest file ends; 0: there is none.
uint64_t cairn_audit_files_end(const struct cairn_audit_files *files);
// The same as the chain's end, by position: for a log whose catalog is lost. CAIRN_ENOENT: there
// are no records.
int cairn_audit_files_chain(struct cairn_audit_files *files, struct cairn_audit_end *ret_end);

// Writes records from `sequence` on. What the files hold there already is cut: the caller has it.
// They are on their way to the disk then, and there after a sync. The caller may try again after an
// error of either, with the same records.
int cairn_audit_files_append(struct cairn_audit_files *files, uint64_t sequence,
                             const uint8_t *bytes, uint64_t count);
int cairn_audit_files_sync(struct cairn_audit_files *files);

// True: the bound is passed, and files before `*ret_first` are to go.
bool cairn_audit_files_full(const struct cairn_audit_files *files, uint64_t *ret_first);
void cairn_audit_files_remove(struct cairn_audit_files *files, uint64_t before);

#endif
