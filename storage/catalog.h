// The catalog: which blocks are where, in LMDB, written in groups by one thread. The only user of
// LMDB. Nothing is read from it after the start: the block table in memory answers.
//
// May be used by: storage, tests. May use: proto. Threads: open, load, start, submit, reap and
// destroy on the loop thread; transactions on the index thread (or inside reap, when it was opened
// without a thread). Bytes of its records: catalog.c.
#ifndef CAIRN_CATALOG_H
#define CAIRN_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/audit_record.h"
#include "proto/checksum.h"
#include "storage/buffer.h"

struct cairn_catalog;
struct cairn_note; // note.h

struct cairn_catalog_block {
        struct cairn_key key;
        struct cairn_key parent;
        struct cairn_checksum checksum;
        uint64_t generation;
        uint64_t used; // order of use
        uint64_t ttl_ms;
        uint64_t recompute_us;
        uint32_t space_id;
        uint32_t slab; // number
        uint32_t slot;
        uint32_t tenant;
};

struct cairn_catalog_space {
        uint32_t id;
        uint32_t description_bytes;
        struct cairn_key fingerprint;
        struct cairn_block_shape shape;
        const void *description;
};

enum cairn_catalog_kind {
        CAIRN_CATALOG_PUT,     // `block`
        CAIRN_CATALOG_DELETE,  // `block.space_id`, `block.key`; absent is fine
        CAIRN_CATALOG_SPACE,   // `space`
        CAIRN_CATALOG_NOTE,    // `note`
        CAIRN_CATALOG_NOTHING, // done when what was handed over before is committed
};

// One change. Embedded; pinned until on_done. CAIRN_OK: on stable storage. CAIRN_ENOSPC, CAIRN_EIO:
// nothing changed.
struct cairn_catalog_op {
        enum cairn_catalog_kind kind;
        struct cairn_catalog_block block;
        struct cairn_catalog_space space;
        struct cairn_note *note;         // the submitter's
        struct cairn_audit_record audit; // in the same transaction; action 0: none
        void (*on_done)(struct cairn_catalog_op *op, int status);
        struct cairn_catalog_op *next; // the catalog's
        int status;                    // the catalog's
};

struct cairn_catalog_options {
        const char *path; // of catalog.mdb
        uint64_t map_bytes;
        uint32_t commit_delay_us;
        uint32_t commit_batch_max;
        const char *audit_directory; // NULL: no audit
        uint64_t audit_bytes;        // bound of its files
        bool no_thread;              // transactions run inside reap (tests that replay by a seed)
        bool no_sync;                // and are not synced (the same)
        // Asked before each transaction: a status other than CAIRN_OK makes it fail (tests). May be
        // NULL.
        int (*on_fault)(void *arg);
        void *on_fault_arg;
        void (*on_warning)(void *arg, const char *text); // may be NULL
        void *on_warning_arg;
};

// CAIRN_EVERSION (another format), CAIRN_ECORRUPT, CAIRN_EIO, CAIRN_ENOSPC, CAIRN_ENOMEM, with a
// sentence in ret_text.
int cairn_catalog_open(const struct cairn_catalog_options *options,
                       struct cairn_catalog **ret_catalog, char *ret_text);
void cairn_catalog_destroy(
    struct cairn_catalog *catalog); // waits for the index thread; NULL is fine

// First generation of this opening: above all that were ever used.
uint64_t cairn_catalog_generation(const struct cairn_catalog *catalog);

struct cairn_catalog_visitor {
        int (*on_space)(void *arg, const struct cairn_catalog_space *space);
        int (*on_block)(void *arg, const struct cairn_catalog_block *block);
        void *arg;
        int (*on_note)(void *arg, const struct cairn_note *note); // may be NULL
};
// Every space, every note, then every block. Records that fail their checksum are skipped and
// counted. Before start.
int cairn_catalog_load(struct cairn_catalog *catalog, const struct cairn_catalog_visitor *visitor,
                       uint64_t *ret_bad_count);
// True when the catalog was made by this opening: the slab files may hold blocks that it does not
// name.
bool cairn_catalog_fresh(const struct cairn_catalog *catalog);
// Makes generations begin above this one. Before start.
int cairn_catalog_set_generation(struct cairn_catalog *catalog, uint64_t above);
// Commits a list (linked by `next`) at once, blocking; on_done is not called. Before start.
int cairn_catalog_write_now(struct cairn_catalog *catalog, struct cairn_catalog_op *first);
int cairn_catalog_start(struct cairn_catalog *catalog);

// Order is kept. `more`: others follow soon; the commit may wait commit_delay_us for them.
void cairn_catalog_submit(struct cairn_catalog *catalog, struct cairn_catalog_op *op, bool more);
// A record of the audit that goes with no change: committed with the next transaction, or within
// about a second by one for all that wait. Copied; beyond a bound counted alone, in a record that
// says how many.
void cairn_catalog_audit(struct cairn_catalog *catalog, const struct cairn_audit_record *record);
// NULL: there is none. For snapshots, from any thread.
struct cairn_audit_log *cairn_catalog_audit_log(const struct cairn_catalog *catalog);
// Before a destroy that is no crash: what waits is committed and the log's files are complete.
void cairn_catalog_finish_audit(struct cairn_catalog *catalog);
void cairn_catalog_reap(struct cairn_catalog *catalog);    // runs on_done of what is committed
int cairn_catalog_fd(const struct cairn_catalog *catalog); // readable when reap has work
uint64_t cairn_catalog_commits(const struct cairn_catalog *catalog);

#endif
