// The catalog's file: LMDB, seen by the index thread alone. See catalog.h for what is in it.
//
// May be used by: storage/index.c, tests. May use: proto. Threads: one at a time.
#ifndef CAIRN_CATALOG_FILE_H
#define CAIRN_CATALOG_FILE_H

#include "storage/catalog.h"

struct cairn_catalog_file;

// Opens or makes the file. One that is damaged is moved aside (".bad") with a warning, and a fresh
// one begun.
int cairn_catalog_file_open(const struct cairn_catalog_options *options,
                            struct cairn_catalog_file **ret_file, char *ret_text);
void cairn_catalog_file_close(struct cairn_catalog_file *file); // NULL is fine
bool cairn_catalog_file_fresh(const struct cairn_catalog_file *file);
uint64_t cairn_catalog_file_generation(const struct cairn_catalog_file *file);
int cairn_catalog_file_set_generation(struct cairn_catalog_file *file, uint64_t above);

int cairn_catalog_file_load(struct cairn_catalog_file *file,
                            const struct cairn_catalog_visitor *visitor, uint64_t *ret_bad_count);
// Visits the records of a file that nobody has open, which is opened for reading alone and stays as
// it is. CAIRN_ENOENT; CAIRN_ECORRUPT: it is damaged, and nothing was visited.
int cairn_catalog_file_read(const char *path, const struct cairn_catalog_visitor *visitor,
                            uint64_t *ret_bad_count);
// One transaction for the whole list; each op's status is set. True if anything was committed.
bool cairn_catalog_file_write(struct cairn_catalog_file *file, struct cairn_catalog_op *first);

#endif
