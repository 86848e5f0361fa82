// Status codes: names, sentences and remedies, one table.
#include "proto/status.h"

#include <errno.h>
#include <stddef.h>

struct row {
        int status;
        const char *name;
        const char *text;
        const char *remedy;
};

static const struct row rows[] = {
    {CAIRN_OK, "CAIRN_OK", "done", "nothing to do"},
    {CAIRN_EINVAL, "CAIRN_EINVAL", "a field is out of range or contradicts another",
     "correct the field that the error's text names"},
    {CAIRN_EPROTO, "CAIRN_EPROTO", "these bytes are no valid frame or message",
     "check that the client speaks cairn's protocol (proto/README.md); the connection is closed"},
    {CAIRN_EVERSION, "CAIRN_EVERSION", "the protocol or disk format is of another version",
     "use a client and a data directory of the daemon's version, or upgrade the daemon"},
    {CAIRN_EUNSUPPORTED, "CAIRN_EUNSUPPORTED", "this daemon does not offer that",
     "ask for what Hello's features list, or upgrade the daemon"},
    {CAIRN_ENOENT, "CAIRN_ENOENT", "it is not there", "a miss: compute it and put it"},
    {CAIRN_EEXIST, "CAIRN_EEXIST", "the block was there already",
     "nothing to do: the stored bytes stay as they are"},
    {CAIRN_ECORRUPT, "CAIRN_ECORRUPT", "the stored bytes fail their checksum",
     "treat it as a miss and put the block again; look at the disk's health"},
    {CAIRN_ENOSPC, "CAIRN_ENOSPC", "no room in the tier, the quota or the disk",
     "free or add disk, raise nvme_bytes or the tenant's quota, or delete blocks"},
    {CAIRN_ENOMEM, "CAIRN_ENOMEM", "the memory budget is used up",
     "raise ram_bytes or context_bytes, close contexts, or ask for less at once"},
    {CAIRN_EBUSY, "CAIRN_EBUSY", "too many of these are under way or open",
     "wait for replies, release what is held, then retry"},
    {CAIRN_EAGAIN, "CAIRN_EAGAIN", "another request was faster", "retry"},
    {CAIRN_EDEADLINE, "CAIRN_EDEADLINE", "the request's deadline passed",
     "allow more time, or look for a slow disk in the statistics"},
    {CAIRN_ECANCELLED, "CAIRN_ECANCELLED", "given up since the connection or the daemon is ending",
     "reconnect and retry"},
    {CAIRN_EIO, "CAIRN_EIO", "the device failed",
     "look at the kernel's log and the disk; the block counts as a miss"},
    {CAIRN_EPERM, "CAIRN_EPERM", "this uid may not do that",
     "run as the daemon's uid or root, or ask its operator"},
    {CAIRN_EMISMATCH, "CAIRN_EMISMATCH", "the space differs from the one named",
     "compare the description field by field: model, revision, dims, dtype, block size, ranks"},
    {CAIRN_ERANGE, "CAIRN_ERANGE", "a range leaves its arena, payload or result region",
     "check offset and length against the registered size; the text says what is needed"},
    {CAIRN_ESTALE, "CAIRN_ESTALE", "the lease, arena, context or generation is no longer valid",
     "look up or open it again"},
    {CAIRN_EHELD, "CAIRN_EHELD", "it is pinned, leased or under hold",
     "release it first, or wait for its deadline"},
    {CAIRN_EDISCONNECTED, "CAIRN_EDISCONNECTED", "no daemon answers at the socket",
     "start cairnd, or name its socket by CAIRN_SOCKET"},
    {CAIRN_EINTERNAL, "CAIRN_EINTERNAL", "cairn failed an inner check",
     "please report this with the daemon's log"},
};
_Static_assert(sizeof(rows) / sizeof(rows[0]) == CAIRN_STATUS_COUNT, "one row a status");

static const struct row *row_of(int status)
{
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                if (rows[i].status == status)
                        return &rows[i];
        }
        return NULL;
}

const char *cairn_status_name(int status)
{
        const struct row *row = row_of(status);
        return row ? row->name : "unknown status";
}

const char *cairn_status_text(int status)
{
        const struct row *row = row_of(status);
        return row ? row->text : "a status that this version does not know";
}

const char *cairn_status_remedy(int status)
{
        const struct row *row = row_of(status);
        return row ? row->remedy : "use a client of the daemon's version";
}

int cairn_status_from_errno(int error)
{
        switch (error) {
        case 0: return CAIRN_OK;
        case ENOENT: return CAIRN_ENOENT;
        case EEXIST: return CAIRN_EEXIST;
        case ENOSPC:
        case EDQUOT:
        case EFBIG: return CAIRN_ENOSPC;
        case ENOMEM: return CAIRN_ENOMEM;
        case EBUSY:
        case EMFILE:
        case ENFILE: return CAIRN_EBUSY;
        case EAGAIN:
        case EINTR: return CAIRN_EAGAIN;
        case EACCES:
        case EPERM:
        case EROFS: return CAIRN_EPERM;
        case EINVAL:
        case ENAMETOOLONG: return CAIRN_EINVAL;
        case ETIMEDOUT: return CAIRN_EDEADLINE;
        case ECANCELED: return CAIRN_ECANCELLED;
        case ECONNREFUSED:
        case ECONNRESET:
        case EPIPE:
        case ENOTCONN: return CAIRN_EDISCONNECTED;
        case ENOSYS:
        case EOPNOTSUPP: return CAIRN_EUNSUPPORTED;
        default: return CAIRN_EIO;
        }
}
