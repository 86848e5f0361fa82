// The audit of a directory that no daemon has: read alone, so that a copy can be checked too.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "proto/limits.h"
#include "proto/status.h"
#include "storage/audit_read.h"
#include "storage/catalog_file.h"

// Shared, since nothing is written. A directory without a lock file is a copy, or never had a
// daemon.
static int lock(const char *directory, int *ret_fd, char *ret_text)
{
        char name[4096];
        int fd = -1;

        errno = ENAMETOOLONG;
        if (snprintf(name, sizeof(name), "%s/lock", directory) < (int)sizeof(name))
                fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        *ret_fd = fd;
        if (fd < 0 && errno == ENOENT)
                return CAIRN_OK;
        if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0)
                return CAIRN_OK;
        if (fd < 0) {
                int error = errno;

                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "cannot open %s/lock: %s", directory,
                         strerror(error));
                return cairn_status_from_errno(error);
        }
        (void)close(fd); // was only asked
        *ret_fd = -1;
        snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                 "a daemon has the data directory %s; ask it (cairnctl audit --verify), or stop it "
                 "first",
                 directory);
        return CAIRN_EBUSY;
}

static int take(const char *directory, struct cairn_audit_snapshot *ret_snapshot, char *ret_text)
{
        struct cairn_audit_end end;
        uint8_t *tail = NULL;
        uint64_t count = 0;
        char path[4096];
        int fd, status, catalog;

        if (snprintf(path, sizeof(path), "%s/catalog.mdb", directory) >= (int)sizeof(path)) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "the directory's name is too long");
                return CAIRN_EINVAL;
        }
        catalog = cairn_catalog_file_read_audit(path, &end, &tail, &count);
        snprintf(path, sizeof(path), "%s/audit", directory);
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && (errno != ENOENT || catalog != CAIRN_OK)) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "%.300s: %s; name a data directory", path,
                         strerror(errno));
                free(tail);
                return cairn_status_from_errno(errno);
        }
        status = cairn_audit_snapshot_take(fd, tail, catalog == CAIRN_OK ? end.count - count : 0,
                                           count, catalog == CAIRN_OK ? &end : NULL, ret_snapshot);
        if (status != CAIRN_OK)
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "cannot read %.300s: %s", path,
                         cairn_status_text(status));
        if (fd >= 0)
                (void)close(fd); // was only read
        free(tail);
        return status;
}

int cairn_audit_snapshot_offline(const char *directory, struct cairn_audit_snapshot *ret_snapshot,
                                 char *ret_text)
{
        int fd;
        int status = lock(directory, &fd, ret_text);

        if (status == CAIRN_OK)
                status = take(directory, ret_snapshot, ret_text);
        if (fd >= 0)
                (void)close(fd); // and the lock with it
        return status;
}
