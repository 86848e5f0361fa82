// Slab files in real directories: listing, opening, creating, removing. Nothing here follows a
// symbolic link.
#include "storage/device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/status.h"

enum {
        SLAB_NAME_BYTES = 16
}; // "00000000.slab" and a zero

static void slab_name(uint32_t slab, char ret_name[SLAB_NAME_BYTES])
{
        snprintf(ret_name, SLAB_NAME_BYTES, "%08x.slab", slab);
}

bool cairn_device_slab_parse(const char *name, uint32_t *ret_slab)
{
        if (strlen(name) != 13 || strcmp(name + 8, ".slab") != 0)
                return false;
        uint32_t slab = 0;
        for (int i = 0; i < 8; i++) {
                char c = name[i];
                if (c >= '0' && c <= '9')
                        slab = slab << 4 | (uint32_t)(c - '0');
                else if (c >= 'a' && c <= 'f')
                        slab = slab << 4 | (uint32_t)(c - 'a' + 10);
                else
                        return false;
        }
        *ret_slab = slab;
        return true;
}

static int open_directory(const char *path, char *ret_text)
{
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
                goto fail;
        int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent < 0)
                goto fail;
        if (mkdirat(parent, "slabs", 0700) != 0 && errno != EEXIST) {
                close(parent);
                goto fail;
        }
        int slabs = openat(parent, "slabs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (slabs >= 0 && fsync(parent) != 0) {
                close(slabs);
                slabs = -1;
        }
        close(parent);
        if (slabs >= 0)
                return slabs;
fail:
        snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                 "cannot open the data directory %s: %s; create it, owned by the daemon's user",
                 path, strerror(errno));
        return -1;
}

// One file per directory is tried, since only an open tells whether the file system takes O_DIRECT.
static bool probe_direct(int directory)
{
        const char *name = ".probe";
        int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_DIRECT;
        int fd = openat(directory, name, flags, 0600);
        int error = errno;
        if (fd >= 0)
                close(fd);
        (void)unlinkat(directory, name, 0); // a failed open may have made it, or not
        return fd >= 0 || error != EINVAL;
}

int cairn_device_files_open(struct cairn_device_files *files,
                            const struct cairn_device_options *options, char *ret_text)
{
        *files = (struct cairn_device_files){.direct = !options->force_buffered,
                                             .on_warning = options->on_warning,
                                             .on_warning_arg = options->on_warning_arg};
        for (uint32_t i = 0; i < options->directories_count; i++) {
                int fd = open_directory(options->directories[i], ret_text);
                if (fd < 0) {
                        cairn_device_files_close(files);
                        return CAIRN_EIO;
                }
                files->directories[files->count++] = fd;
                if (!files->direct || probe_direct(fd))
                        continue;
                files->direct = false;
                char text[CAIRN_TEXT_BYTES_MAX];
                snprintf(text, sizeof(text),
                         "%s is on a file system without direct I/O: the page cache is used; put "
                         "the data "
                         "directory on ext4 or XFS",
                         options->directories[i]);
                if (files->on_warning)
                        files->on_warning(files->on_warning_arg, text);
        }
        return CAIRN_OK;
}

void cairn_device_files_close(struct cairn_device_files *files)
{
        for (uint32_t i = 0; i < files->count; i++)
                close(files->directories[i]);
        files->count = 0;
}

int cairn_device_files_list(struct cairn_device_files *files, uint32_t directory,
                            void (*on_slab)(void *arg, uint32_t slab, uint64_t size_bytes),
                            void *arg)
{
        int fd = openat(files->directories[directory], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *entries = fd < 0 ? NULL : fdopendir(fd);
        if (!entries) {
                int error = errno;
                if (fd >= 0)
                        close(fd);
                return cairn_status_from_errno(error);
        }
        for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
                uint32_t slab;
                struct stat status;
                if (!cairn_device_slab_parse(entry->d_name, &slab))
                        continue;
                if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISREG(status.st_mode))
                        on_slab(arg, slab, (uint64_t)status.st_size);
        }
        closedir(entries);
        return CAIRN_OK;
}

static int open_slab(struct cairn_device_files *files, uint32_t directory, uint32_t slab, int flags)
{
        char name[SLAB_NAME_BYTES];
        slab_name(slab, name);
        flags |= O_RDWR | O_NOFOLLOW | O_CLOEXEC | (files->direct ? O_DIRECT : 0);
        int fd = openat(files->directories[directory], name, flags, 0600);
        return fd < 0 ? -errno : fd;
}

int cairn_device_files_open_slab(struct cairn_device_files *files, uint32_t directory,
                                 uint32_t slab, int *ret_file)
{
        int fd = open_slab(files, directory, slab, 0);
        if (fd < 0)
                return cairn_status_from_errno(-fd);
        *ret_file = fd;
        return CAIRN_OK;
}

int cairn_device_files_read(int file, uint64_t offset, void *bytes, size_t size_bytes)
{
        struct cairn_device_request request = {
            .kind = CAIRN_DEVICE_READ, .file = file, .offset = offset, .iov_count = 1};
        request.iov[0] = (struct iovec){bytes, size_bytes};
        int64_t done;
        do {
                done = preadv(file, request.iov, (int)request.iov_count, (off_t)request.offset);
                if (done < 0)
                        done = -errno;
        } while (!cairn_device_advance(&request, done));
        return request.status;
}

static int write_start(int fd, struct cairn_device_request *request)
{
        struct cairn_device_request write = *request;
        write.kind = CAIRN_DEVICE_WRITE;
        write.offset = 0;
        write.attempts = 0;
        int64_t done;
        do {
                done = pwritev(fd, write.iov, (int)write.iov_count, (off_t)write.offset);
                if (done < 0)
                        done = -errno;
        } while (!cairn_device_advance(&write, done));
        return write.status;
}

static int create_slab(struct cairn_device_files *files, struct cairn_device_request *request)
{
        int directory = files->directories[request->directory];
        int fd = open_slab(files, request->directory, request->slab, O_CREAT | O_EXCL);
        if (fd < 0)
                return cairn_status_from_errno(-fd);
        int error = posix_fallocate(fd, 0, (off_t)request->offset);
        int status = error ? cairn_status_from_errno(error) : write_start(fd, request);
        if (status == CAIRN_OK && (fsync(fd) != 0 || fsync(directory) != 0))
                status = cairn_status_from_errno(errno);
        if (status == CAIRN_OK) {
                request->file = fd;
                return CAIRN_OK;
        }
        char name[SLAB_NAME_BYTES];
        slab_name(request->slab, name);
        (void)unlinkat(directory, name, 0); // the failure above is what is reported
        close(fd);
        return status;
}

static int remove_slab(struct cairn_device_files *files, struct cairn_device_request *request)
{
        char name[SLAB_NAME_BYTES];
        slab_name(request->slab, name);
        close(request->file);
        if (unlinkat(files->directories[request->directory], name, 0) != 0 && errno != ENOENT)
                return cairn_status_from_errno(errno);
        return CAIRN_OK;
}

int cairn_device_files_synced(int file, int result)
{
        struct stat status;
        if (result < 0)
                return result;
        if (fstat(file, &status) != 0)
                return -errno;
        return status.st_nlink > 0 ? 0 : -EIO;
}

int cairn_device_files_run(struct cairn_device_files *files, struct cairn_device_request *request)
{
        int error;
        switch (request->kind) {
        case CAIRN_DEVICE_CREATE: return create_slab(files, request);
        case CAIRN_DEVICE_REMOVE: return remove_slab(files, request);
        case CAIRN_DEVICE_SYNC:
                error = fdatasync(request->file) == 0 ? 0 : -errno;
                error = cairn_device_files_synced(request->file, error);
                return error < 0 ? cairn_status_from_errno(-error) : CAIRN_OK;
        case CAIRN_DEVICE_READ:
        case CAIRN_DEVICE_WRITE: break;
        }
        return CAIRN_EINTERNAL;
}
