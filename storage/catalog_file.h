// The catalog's file: LMDB, seen by the index thread alone. See catalog.h for what is in it.
//
// May be used by: storage/index.c, tests. May use: proto. Threads: one at a time.
#ifndef CAIRN_CATALOG_FILE_H
#define CAIRN_CATALOG_FILE_H

#include "storage/audit_log.h"
#include "storage/catalog.h"

enum {
        CAIRN_CATALOG_DATABASES = 5
};

struct cairn_catalog_file;

// Opens or makes the file. One that is damaged is moved aside (".bad") with a warning, and a fresh
// one begun.
int cairn_catalog_file_open(const struct cairn_catalog_options *options,
                            struct cairn_catalog_file **ret_file, char *ret_text);
// NULL is fine. One whose bytes went away while it was open keeps its memory and descriptors: LMDB
// cannot end a transaction that broke off.
void cairn_catalog_file_close(struct cairn_catalog_file *file);
bool cairn_catalog_file_fresh(const struct cairn_catalog_file *file);
uint64_t cairn_catalog_file_generation(const struct cairn_catalog_file *file);
int cairn_catalog_file_set_generation(struct cairn_catalog_file *file, uint64_t above);

int cairn_catalog_file_load(struct cairn_catalog_file *file,
                            const struct cairn_catalog_visitor *visitor, uint64_t *ret_bad_count);
// Visits the records of a file that nobody has open, which is opened for reading alone and stays as
// it is. CAIRN_ENOENT; CAIRN_ECORRUPT: it is damaged, and nothing was visited.
int cairn_catalog_file_read(const char *path, const struct cairn_catalog_visitor *visitor,
                            uint64_t *ret_bad_count);
// Whether every page of a file can be read; reads it in a process of its own.
bool cairn_catalog_check(const char *path, uint64_t size_bytes);
// One transaction for the whole list and for `records`; each op's status is set. True if anything
// was committed; *ret_recorded: the records too.
bool cairn_catalog_file_write(struct cairn_catalog_file *file, struct cairn_catalog_op *first,
                              const struct cairn_audit_record *records, size_t records_count,
                              bool *ret_recorded);
// The audit's chain as the file remembers it, into `log`, which later transactions write. Before
// the first.
int cairn_catalog_file_resume(struct cairn_catalog_file *file, struct cairn_audit_log *log);
// The same of a file that nobody has open. CAIRN_ENOENT: it remembers none. *ret_tail (the
// caller's to free): the records before the end.
int cairn_catalog_file_read_audit(const char *path, struct cairn_audit_end *ret_end,
                                  uint8_t **ret_tail, uint64_t *ret_tail_count);

#endif
