// The audit's files: names, appending, cutting, rotation.
#include "storage/audit_files.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/status.h"

enum {
        NAME_DIGITS = 16,
        RECORD = CAIRN_AUDIT_RECORD_BYTES,
        AHEAD_RECORDS = 4096
};

void cairn_audit_file_name(uint64_t first, char ret_name[CAIRN_AUDIT_NAME_BYTES])
{
        (void)snprintf(ret_name, CAIRN_AUDIT_NAME_BYTES, "%016" PRIx64 ".log", first); // it fits
}

static bool parse_name(const char *name, uint64_t *ret_first)
{
        uint64_t first = 0;

        if (strlen(name) != NAME_DIGITS + 4 || strcmp(name + NAME_DIGITS, ".log") != 0)
                return false;
        for (int i = 0; i < NAME_DIGITS; i++) {
                static const char digits[] = "0123456789abcdef";
                const char *digit = strchr(digits, name[i]);

                if (!digit)
                        return false;
                first = first << 4 | (uint64_t)(digit - digits);
        }
        *ret_first = first;
        return true;
}

int cairn_audit_file_open(int directory, uint64_t first)
{
        char name[CAIRN_AUDIT_NAME_BYTES];

        cairn_audit_file_name(first, name);
        return openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

static int compare(const void *a, const void *b)
{
        const struct cairn_audit_file *left = a;
        const struct cairn_audit_file *right = b;

        return left->first < right->first ? -1 : left->first > right->first;
}

static int list_entries(int directory, DIR *entries, struct cairn_audit_file *files,
                        uint32_t *ret_count)
{
        const struct dirent *entry;
        uint32_t count = 0;

        while (count < CAIRN_AUDIT_FILES_MAX && (entry = readdir(entries))) {
                struct stat info;
                uint64_t first;

                if (!parse_name(entry->d_name, &first))
                        continue;
                if (fstatat(directory, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
                        return cairn_status_from_errno(errno);
                if (!S_ISREG(info.st_mode))
                        continue;
                files[count++] = (struct cairn_audit_file){first, (uint64_t)info.st_size / RECORD,
                                                           (uint32_t)(info.st_size % RECORD)};
        }
        qsort(files, count, sizeof(*files), compare);
        *ret_count = count;
        return CAIRN_OK;
}

int cairn_audit_files_list(int directory, struct cairn_audit_file **ret_files, uint32_t *ret_count)
{
        struct cairn_audit_file *files = calloc(CAIRN_AUDIT_FILES_MAX + 1, sizeof(*files));
        int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *entries = fd < 0 ? NULL : fdopendir(fd);
        int status;

        if (!files || !entries) {
                status = files ? cairn_status_from_errno(errno) : CAIRN_ENOMEM;
                if (entries)
                        (void)closedir(entries); // was only read
                else if (fd >= 0)
                        (void)close(fd); // the same
                free(files);
                return status;
        }
        status = list_entries(directory, entries, files, ret_count);
        (void)closedir(entries); // was only read
        if (status != CAIRN_OK)
                free(files);
        else
                *ret_files = files;
        return status;
}

int cairn_audit_files_init(struct cairn_audit_files *files, const char *directory,
                           uint64_t limit_bytes)
{
        int status;

        *files = (struct cairn_audit_files){.directory = -1, .last = -1};
        if (limit_bytes < CAIRN_AUDIT_BYTES_MIN)
                limit_bytes = CAIRN_AUDIT_BYTES_MIN;
        files->limit_records = limit_bytes / RECORD;
        files->file_records = files->limit_records / CAIRN_AUDIT_FILES_COUNT;
        if (mkdir(directory, 0700) != 0 && errno != EEXIST)
                return cairn_status_from_errno(errno);
        files->directory = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (files->directory < 0)
                return cairn_status_from_errno(errno);
        status = cairn_audit_files_list(files->directory, &files->files, &files->count);
        if (status != CAIRN_OK)
                cairn_audit_files_finish(files);
        return status;
}

static void close_last(struct cairn_audit_files *files)
{
        if (files->last >= 0)
                (void)close(files->last); // all of it is synced, or will be written again
        files->last = -1;
        files->unsynced = false;
}

void cairn_audit_files_finish(struct cairn_audit_files *files)
{
        if (!files->file_records)
                return;
        close_last(files);
        if (files->directory >= 0)
                (void)close(files->directory); // was only read
        files->directory = -1;
        free(files->files);
        files->files = NULL;
}

uint64_t cairn_audit_files_end(const struct cairn_audit_files *files)
{
        const struct cairn_audit_file *last;

        if (files->count == 0)
                return 0;
        last = &files->files[files->count - 1];
        return last->first + last->count;
}

int cairn_audit_files_chain(struct cairn_audit_files *files, struct cairn_audit_end *ret_end)
{
        for (uint32_t i = files->count; i > 0; i--) {
                const struct cairn_audit_file *file = &files->files[i - 1];
                struct cairn_audit_end end = {.count = file->first + file->count};
                off_t offset = (off_t)(file->count * RECORD - CAIRN_KEY_BYTES);
                int fd;
                bool whole;

                if (file->count == 0)
                        continue;
                fd = cairn_audit_file_open(files->directory, file->first);
                if (fd < 0)
                        return cairn_status_from_errno(errno);
                whole = pread(fd, end.digest.bytes, CAIRN_KEY_BYTES, offset) == CAIRN_KEY_BYTES;
                (void)close(fd); // was only read
                if (!whole)
                        return CAIRN_EIO;
                *ret_end = end;
                return CAIRN_OK;
        }
        return CAIRN_ENOENT;
}

static void remove_at(struct cairn_audit_files *files, uint32_t index)
{
        char name[CAIRN_AUDIT_NAME_BYTES];

        if (index == files->count - 1)
                close_last(files);
        cairn_audit_file_name(files->files[index].first, name);
        (void)unlinkat(files->directory, name, 0); // what stays is found by the next start
        files->count--;
        memmove(&files->files[index], &files->files[index + 1],
                (files->count - index) * sizeof(*files->files));
}

static int open_last(struct cairn_audit_files *files, int flags)
{
        char name[CAIRN_AUDIT_NAME_BYTES];

        if (files->last >= 0)
                return CAIRN_OK;
        cairn_audit_file_name(files->files[files->count - 1].first, name);
        files->last =
            openat(files->directory, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
        return files->last < 0 ? cairn_status_from_errno(errno) : CAIRN_OK;
}

// Records at and after `sequence` go, and so does the rest of a record that was half written.
static int cut(struct cairn_audit_files *files, uint64_t sequence)
{
        while (files->count > 0 && files->files[files->count - 1].first >= sequence)
                remove_at(files, files->count - 1);
        if (files->count == 0)
                return CAIRN_OK;
        struct cairn_audit_file *file = &files->files[files->count - 1];
        if (file->first + file->count <= sequence && file->excess_bytes == 0)
                return CAIRN_OK;
        uint64_t count = file->count;
        if (count > sequence - file->first)
                count = sequence - file->first;
        int status = open_last(files, 0);
        if (status != CAIRN_OK)
                return status;
        if (ftruncate(files->last, (off_t)(count * RECORD)) != 0)
                return cairn_status_from_errno(errno);
        file->count = count;
        file->excess_bytes = 0;
        return CAIRN_OK;
}

int cairn_audit_files_sync(struct cairn_audit_files *files)
{
        if (!files->unsynced)
                return CAIRN_OK;
        assert(files->count > 0 && files->last >= 0);
        if (fdatasync(files->last) != 0) {
                // Some of it may be there, or none: the next append cuts it.
                files->files[files->count - 1].excess_bytes = 1;
                return cairn_status_from_errno(errno);
        }
        files->unsynced = false;
        return CAIRN_OK;
}

static int add_file(struct cairn_audit_files *files, uint64_t first)
{
        int status = cairn_audit_files_sync(files);

        if (status != CAIRN_OK)
                return status;
        if (files->count == CAIRN_AUDIT_FILES_MAX)
                return CAIRN_ENOSPC;
        close_last(files);
        files->files[files->count++] = (struct cairn_audit_file){.first = first};
        status = open_last(files, O_CREAT | O_TRUNC);
        if (status != CAIRN_OK) {
                files->count--;
                return status;
        }
        (void)fsync(files->directory); // the sync of its bytes is what is asked for
        return CAIRN_OK;
}

// Room for the next records is taken ahead, so that the last words of a full disk are kept.
static void reserve(const struct cairn_audit_files *files, uint64_t from, uint64_t count)
{
        uint64_t room = files->file_records - from;

        if (room > count + AHEAD_RECORDS)
                room = count + AHEAD_RECORDS;
        (void)fallocate(files->last, FALLOC_FL_KEEP_SIZE, (off_t)(from * RECORD),
                        (off_t)(room * RECORD)); // without it, a full disk shows in the write
}

static int write_all(int fd, const uint8_t *bytes, size_t size, off_t offset)
{
        while (size > 0) {
                ssize_t written = pwrite(fd, bytes, size, offset);

                if (written < 0 && errno == EINTR)
                        continue;
                if (written <= 0)
                        return written < 0 ? cairn_status_from_errno(errno) : CAIRN_EIO;
                bytes += written;
                size -= (size_t)written;
                offset += written;
        }
        return CAIRN_OK;
}

int cairn_audit_files_append(struct cairn_audit_files *files, uint64_t sequence,
                             const uint8_t *bytes, uint64_t count)
{
        int status = cut(files, sequence);

        while (status == CAIRN_OK && count > 0) {
                struct cairn_audit_file *file =
                    files->count ? &files->files[files->count - 1] : NULL;
                bool follows = file && file->first + file->count == sequence;

                if (!follows || file->count >= files->file_records) {
                        status = add_file(files, sequence);
                        continue;
                }
                uint64_t some = files->file_records - file->count;
                if (some > count)
                        some = count;
                status = open_last(files, 0);
                if (status == CAIRN_OK)
                        reserve(files, file->count, some);
                if (status == CAIRN_OK)
                        status = write_all(files->last, bytes, some * RECORD,
                                           (off_t)(file->count * RECORD));
                if (status != CAIRN_OK) {
                        file->excess_bytes = 1; // some of it may be there
                        break;
                }
                files->unsynced = true;
                (void)sync_file_range(files->last, (off_t)(file->count * RECORD),
                                      (off_t)(some * RECORD),
                                      SYNC_FILE_RANGE_WRITE); // the sync tells of errors
                file->count += some;
                sequence += some;
                bytes += some * RECORD;
                count -= some;
        }
        return status;
}

bool cairn_audit_files_full(const struct cairn_audit_files *files, uint64_t *ret_first)
{
        uint64_t records = 0;

        for (uint32_t i = files->count; i > 0; i--) {
                uint64_t first = files->files[i - 1].first;

                records += i == files->count ? files->file_records : files->files[i - 1].count;
                if (records <= files->limit_records)
                        continue;
                // The newest stays in any case.
                *ret_first = i == files->count ? first : files->files[i].first;
                return i < files->count;
        }
        return false;
}

void cairn_audit_files_remove(struct cairn_audit_files *files, uint64_t before)
{
        while (files->count > 1 && files->files[0].first < before)
                remove_at(files, 0);
}
