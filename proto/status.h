// Status codes: the one error channel of cairn, from the deepest function to the worker.
// May be used by: all folders. May use: nothing. Threads: any; everything here is constant.
#ifndef CAIRN_STATUS_H
#define CAIRN_STATUS_H

// 0 or a negative code. The numbers are part of the wire: never reused, only added.
enum cairn_status {
        CAIRN_OK = 0,
        CAIRN_EINVAL = -1,         // a field is out of range or contradicts another
        CAIRN_EPROTO = -2,         // bytes that are no valid frame or message
        CAIRN_EVERSION = -3,       // protocol or disk format of another version
        CAIRN_EUNSUPPORTED = -4,   // known, but not built or not enabled
        CAIRN_ENOENT = -5,         // block, space, context or arena not there (a miss)
        CAIRN_EEXIST = -6,         // the block was there already: nothing written, nothing wrong
        CAIRN_ECORRUPT = -7,       // stored bytes fail their checksum: a miss, may be put again
        CAIRN_ENOSPC = -8,         // no room in the tier, the quota or the disk
        CAIRN_ENOMEM = -9,         // no memory left in the budget
        CAIRN_EBUSY = -10,         // too many requests, leases, arenas, contexts: wait and retry
        CAIRN_EAGAIN = -11,        // lost a race with another request: retry
        CAIRN_EDEADLINE = -12,     // the request's deadline passed
        CAIRN_ECANCELLED = -13,    // given up since the connection or the daemon ends
        CAIRN_EIO = -14,           // the device failed
        CAIRN_EPERM = -15,         // this uid may not
        CAIRN_EMISMATCH = -16,     // the space differs from the one named
        CAIRN_ERANGE = -17,        // a range leaves its arena, payload or result region
        CAIRN_ESTALE = -18,        // a lease, arena, context or generation that is no longer valid
        CAIRN_EHELD = -19,         // pinned, leased or under hold
        CAIRN_EDISCONNECTED = -20, // no daemon at the other end
        CAIRN_EINTERNAL = -21,     // a bug: please report
        CAIRN_STATUS_COUNT = 22,
};

// The code's name ("CAIRN_ENOENT"), a sentence on what happened, and a sentence on what to do.
// Never NULL; unknown codes are named as such.
const char *cairn_status_name(int status);
const char *cairn_status_text(int status);
const char *cairn_status_remedy(int status);

// Translates a positive errno where it enters.
int cairn_status_from_errno(int error);

#endif
