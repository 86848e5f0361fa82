// Fuzzes the audit's files: names and bytes of a directory, read as a log. Whatever lies there,
// reading ends, finds no more records than the bytes hold, and says that it is whole only if every
// record follows the one before.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/status.h"
#include "storage/audit_read.h"
#include "tests/fuzz/fuzz.h"

enum {
        FILES_MAX = 4,
        RECORD = CAIRN_AUDIT_RECORD_BYTES
};

static char folder[64];

static void leave(void)
{
        char command[128];

        (void)snprintf(command, sizeof(command), "rm -rf %s", folder);
        (void)!system(command); // what stays is in /tmp
}

// Each file: a byte of sequence, two of size, then the bytes. Returns what is left for the tail.
static size_t write_files(const uint8_t *bytes, size_t size, uint64_t ret_firsts[FILES_MAX],
                          uint32_t *ret_count)
{
        size_t at = 0;

        for (*ret_count = 0; *ret_count < FILES_MAX && size - at >= 3;) {
                char path[128], name[CAIRN_AUDIT_NAME_BYTES];
                size_t length = (size_t)bytes[at + 1] | (size_t)bytes[at + 2] << 8;
                uint64_t first = bytes[at];
                int fd;

                at += 3;
                if (length > size - at)
                        length = size - at;
                cairn_audit_file_name(first, name);
                (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
                fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
                FUZZ_CHECK(fd >= 0);
                FUZZ_CHECK(write(fd, bytes + at, length) == (ssize_t)length);
                (void)close(fd); // was written
                ret_firsts[(*ret_count)++] = first;
                at += length;
        }
        return at;
}

static bool on_record(void *arg, const uint8_t *bytes)
{
        uint64_t *count = arg;

        (void)bytes;
        (*count)++;
        return true;
}

static void read_log(int directory, const uint8_t *tail, uint64_t tail_first, uint64_t tail_count,
                     bool anchored, uint64_t records_max)
{
        struct cairn_audit_end end = {.count = tail_first + tail_count};
        struct cairn_audit_snapshot snapshot;
        struct cairn_audit_check check;
        uint64_t count = 0, next;
        bool more;

        if (tail_count > 0)
                memcpy(end.digest.bytes, tail + tail_count * RECORD - CAIRN_KEY_BYTES,
                       CAIRN_KEY_BYTES);
        FUZZ_CHECK(cairn_audit_snapshot_take(directory, tail, tail_first, tail_count,
                                             anchored ? &end : NULL, &snapshot) == CAIRN_OK);
        FUZZ_CHECK(cairn_audit_snapshot_verify(&snapshot, NULL, NULL, NULL, &check) == CAIRN_OK);
        FUZZ_CHECK(check.records <= records_max);
        if (check.bad == 0 && check.records > 0)
                FUZZ_CHECK(check.end.count == check.first + check.records);
        for (int newest = 0; newest < 2; newest++) {
                struct cairn_audit_search search = {
                    .newest_first = newest, .on_record = on_record, .arg = &count};

                count = 0;
                FUZZ_CHECK(cairn_audit_snapshot_search(&snapshot, &search, &next, &more) ==
                           CAIRN_OK);
                FUZZ_CHECK(!more && count == check.records);
        }
        cairn_audit_snapshot_finish(&snapshot);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        uint64_t firsts[FILES_MAX];
        uint32_t count;
        size_t used;
        int directory;

        if (!folder[0]) {
                (void)snprintf(folder, sizeof(folder), "/tmp/cairn-fuzz-audit-XXXXXX");
                FUZZ_CHECK(mkdtemp(folder) != NULL);
                (void)atexit(leave); // or it stays in /tmp
        }
        if (size < 1)
                return 0;
        used = 1 + write_files(bytes + 1, size - 1, firsts, &count);
        directory = open(folder, O_RDONLY | O_DIRECTORY);
        FUZZ_CHECK(directory >= 0);
        read_log(directory, bytes + used, bytes[0] >> 1, (size - used) / RECORD, bytes[0] & 1,
                 size / RECORD);
        for (uint32_t i = 0; i < count; i++) {
                char name[CAIRN_AUDIT_NAME_BYTES];

                cairn_audit_file_name(firsts[i], name);
                (void)unlinkat(directory, name, 0); // twice the same name is one file
        }
        (void)close(directory); // was only read
        return 0;
}
