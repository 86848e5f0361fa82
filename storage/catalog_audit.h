// The audit's part in the catalog's transactions: the table `audit_tail` and the chain's end.
//
// May be used by: storage/catalog.c. May use: proto, LMDB. Threads: the index thread.
#ifndef CAIRN_CATALOG_AUDIT_H
#define CAIRN_CATALOG_AUDIT_H

#include <lmdb.h>

#include "storage/audit_log.h"

struct cairn_catalog_audit {
        struct cairn_audit_log *log; // NULL: no audit
        MDB_dbi meta;
        MDB_dbi tail;
        bool through; // this transaction's records go to files, for want of room in the map
};

// In one transaction: begin, stage each record, finish; then commit, once it is committed. They
// return LMDB's errors, or a negative status of the files, and do nothing without a log.
int cairn_catalog_audit_begin(struct cairn_catalog_audit *audit, MDB_txn *txn, bool through);
void cairn_catalog_audit_stage(struct cairn_catalog_audit *audit,
                               const struct cairn_audit_record *record);
int cairn_catalog_audit_finish(struct cairn_catalog_audit *audit, MDB_txn *txn);
void cairn_catalog_audit_commit(struct cairn_catalog_audit *audit);

// What a catalog remembers. MDB_NOTFOUND: nothing. *ret_tail is the caller's to free.
int cairn_catalog_audit_load(MDB_txn *txn, MDB_dbi meta, MDB_dbi tail,
                             struct cairn_audit_end *ret_end, uint8_t **ret_tail,
                             uint64_t *ret_count);

#endif
