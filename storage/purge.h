// Purging: blocks are forgotten and their bytes overwritten with zeros, in RAM and on NVMe. Old
// copies of the same keys, in slots that were free again already, are found and overwritten too.
//
// A note (note.h) in the catalog goes before each, so that a purge that a crash cut off is finished
// by the next start. What lies below files (a disk's spare cells, snapshots of a file system, the
// blocks of a removed file) is out of reach.
//
// May be used by: daemon, tests. May use: proto. Threads: the loop's.
#ifndef CAIRN_PURGE_H
#define CAIRN_PURGE_H

#include "storage/store.h"

// A request: the caller's, pinned until on_done has run. Requests go one after the other.
struct cairn_purge {
        // CAIRN_OK: `statuses` say what became of each key. CAIRN_ENOMEM, CAIRN_ECANCELLED: not all
        // was done; what was noted goes on at the next start.
        void (*on_done)(struct cairn_purge *purge, int status);
        uint32_t space;
        const struct cairn_key *keys;
        size_t count;
        const struct cairn_audit_record
            *cause; // request and connection of the records; may be NULL
        // Out, one a key: CAIRN_OK: overwritten, or will be (pending); CAIRN_ENOENT: nothing was
        // found; CAIRN_EHELD: under a legal hold, untouched; others: it may be there still.
        int32_t *statuses;
        // Out: blocks that somebody still reads: forgotten, and overwritten when the last lets go.
        uint32_t pending;
        struct cairn_purge *next; // the store's
        size_t waiting;           // the store's
};
void cairn_store_purge(struct cairn_store *store, struct cairn_purge *purge);

#endif
