// doctor: the directory where blocks are kept.
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/doctor.h"
#include "client/cli/sample.h"

#define SET(field, ...) ((void)snprintf((field), sizeof(field), __VA_ARGS__))

enum {
        PIECE_BYTES = 1 << 20,
        PIECES = 128, // 128 MiB: past the cache of most drives' controllers it need not be
        ALIGNMENT = 4096
};

// A file without a name in the directory; goes with the descriptor. -1 and errno.
static int open_scratch(const char *directory, int flags)
{
        return open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
}

void cairn_cli_check_direct(const char *directory, struct cairn_cli_finding *ret_finding)
{
        int fd = open_scratch(directory, O_DIRECT);

        ret_finding->what = "O_DIRECT";
        if (fd >= 0) {
                SET(ret_finding->found, "works in %.100s", directory);
                (void)close(fd); // nothing was written
                return;
        }
        if (errno == ENOENT || errno == EACCES || errno == EPERM) {
                ret_finding->verdict = CAIRN_CLI_BAD;
                SET(ret_finding->found, "cannot write to %.80s: %s", directory, strerror(errno));
                SET(ret_finding->advice, "name the data directory (cairnctl doctor DIRECTORY), and "
                                         "run as the daemon's user");
                return;
        }
        ret_finding->verdict = CAIRN_CLI_SLOWER;
        SET(ret_finding->found, "refused in %.80s: %s", directory, strerror(errno));
        SET(ret_finding->advice, "put data_dir on ext4 or xfs, not on tmpfs or overlayfs");
}

// Seconds for all pieces, one way; -1 and errno.
static double pass(int fd, uint8_t *piece, bool writing, bool progress)
{
        double begin_s = cairn_cli_now_s();

        for (int i = 0; i < PIECES; i++) {
                off_t at = (off_t)i * PIECE_BYTES;
                ssize_t done = writing ? pwrite(fd, piece, PIECE_BYTES, at)
                                       : pread(fd, piece, PIECE_BYTES, at);

                if (done != PIECE_BYTES) {
                        errno = done < 0 ? errno : ENOSPC;
                        return -1;
                }
                if (progress && cairn_cli_now_s() - begin_s > 2)
                        fprintf(stderr, "\r%s: %d of %d MiB ", writing ? "writing" : "reading",
                                i + 1, PIECES);
        }
        if (writing && fdatasync(fd) != 0)
                return -1;
        if (progress && cairn_cli_now_s() - begin_s > 2)
                fputc('\n', stderr);
        return cairn_cli_now_s() - begin_s;
}

void cairn_cli_check_disk(const char *directory, bool progress,
                          struct cairn_cli_finding *ret_finding, double *ret_read_bytes_s)
{
        int fd = open_scratch(directory, O_DIRECT);
        uint8_t *piece = aligned_alloc(ALIGNMENT, PIECE_BYTES);
        struct statvfs room;
        double write_s = -1;
        double read_s = -1;
        char room_text[16] = "?";

        *ret_read_bytes_s = 0;
        ret_finding->what = "disk";
        if (fd < 0 && errno == EINVAL)
                fd = open_scratch(directory, 0);
        if (statvfs(directory, &room) == 0)
                cairn_cli_bytes((double)room.f_bavail * (double)room.f_frsize, room_text);
        if (fd >= 0 && piece) {
                for (size_t i = 0; i < PIECE_BYTES; i++)
                        piece[i] = (uint8_t)(i * 2654435761u >> 13); // a drive may compress zeros
                write_s = pass(fd, piece, true, progress);
                if (write_s >= 0)
                        read_s = pass(fd, piece, false, progress);
        }
        if (read_s > 0) {
                double bytes = (double)PIECES * PIECE_BYTES;

                *ret_read_bytes_s = bytes / read_s;
                SET(ret_finding->found,
                    "reads %.2f GB/s, writes %.2f GB/s (1 MiB at once, one at a time), %s free",
                    bytes / read_s / 1e9, bytes / write_s / 1e9, room_text);
                if (bytes / read_s < 0.5e9) {
                        ret_finding->verdict = CAIRN_CLI_SLOWER;
                        SET(ret_finding->advice, "NVMe is what the NVMe tier is for; see whether "
                                                 "loading pays: --model-bytes-per-token");
                }
        } else {
                ret_finding->verdict = CAIRN_CLI_BAD;
                SET(ret_finding->found, "cannot be measured in %.60s: %s; %s free", directory,
                    strerror(errno), room_text);
                SET(ret_finding->advice, "give it 128 MiB of room and the right to write");
        }
        free(piece);
        if (fd >= 0)
                (void)close(fd); // the scratch goes with it
}
