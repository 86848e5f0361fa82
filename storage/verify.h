// Checks data directories that no daemon has: every slot that the catalog names (or, without a
// readable catalog, every slot that was ever written) against its headers and checksums. Opens for
// reading alone and never writes, so that a copy can be checked on its way to a repair.
//
// May be used by: daemon, tests. May use: proto. Blocks the caller for as long as the reading
// takes.
#ifndef CAIRN_VERIFY_H
#define CAIRN_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/store.h"

enum cairn_verify_catalog {
        CAIRN_VERIFY_CATALOG_SOUND,
        CAIRN_VERIFY_CATALOG_DAMAGED, // the next start makes it anew from the slabs
        CAIRN_VERIFY_CATALOG_ABSENT,
};

struct cairn_verify_result {
        uint64_t blocks;  // that were checked, good or bad
        uint64_t corrupt; // of these: another header than it should be, or bytes that do not fit
        uint64_t lost;    // records whose slot is not there
        uint64_t unnamed; // whole headers in slots that a sound catalog does not name: deleted
        uint64_t bytes;   // read and checked
        uint64_t slabs;
        uint64_t slabs_bad;   // files without a readable start, or cut
        uint64_t records_bad; // of a sound catalog: records that fail their checksum
        enum cairn_verify_catalog catalog;
};

struct cairn_verify_options {
        const char *directories[CAIRN_STORE_DIRECTORIES_MAX]; // as the daemon has them, in order
        uint32_t directories_count;
        // Each bad slot (UINT32_MAX: the whole file). May be NULL.
        void (*on_bad)(void *arg, uint32_t slab, uint32_t slot, const char *what);
        void *on_bad_arg;
};

// CAIRN_EBUSY (a daemon has the directory), CAIRN_ENOENT (no data directory), CAIRN_EIO,
// CAIRN_EVERSION, CAIRN_ENOMEM, with a sentence in ret_text (CAIRN_TEXT_BYTES_MAX). CAIRN_OK says
// that all was read: what was found stands in the result.
int cairn_verify_directories(const struct cairn_verify_options *options,
                             struct cairn_verify_result *ret_result, char *ret_text);

#endif
