// The slab files of a store behind one interface: io_uring, threads with pread/pwrite, or a
// simulation in tests. A file is named by (directory index, slab number). Bytes move asynchronously
// by requests; the few calls that block are for the start, before the loop runs.
//
// May be used by: storage, tests/sim, tests/unit. May use: proto. Threads: the loop thread, except
// inside a device.
#ifndef CAIRN_DEVICE_H
#define CAIRN_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "proto/limits.h"

enum {
        CAIRN_DEVICE_ALIGN_BYTES = 4096, // of offsets, sizes and memory
        CAIRN_DEVICE_IOV_MAX = 2,
        CAIRN_DEVICE_ATTEMPTS_MAX = 8, // without any progress, before CAIRN_EIO
        CAIRN_DEVICE_DIRECTORIES_MAX = 8,
};

enum cairn_device_kind {
        CAIRN_DEVICE_READ,
        CAIRN_DEVICE_WRITE,
        CAIRN_DEVICE_SYNC,   // data of one file to stable storage
        CAIRN_DEVICE_CREATE, // a new file of `offset` bytes, preallocated, iov[0] written at its
                             // start, all durable
        CAIRN_DEVICE_REMOVE, // closes and unlinks `file`
};

// A request: embedded in what it serves, pinned from submit until on_done. `iov` is the device's
// meanwhile.
struct cairn_device_request {
        enum cairn_device_kind kind;
        int file;        // CREATE: set when it succeeds
        uint64_t offset; // CREATE: size of the file
        struct iovec iov[CAIRN_DEVICE_IOV_MAX];
        uint32_t iov_count;
        uint32_t directory; // CREATE, REMOVE
        uint32_t slab;      // CREATE, REMOVE
        // CAIRN_OK (all bytes), CAIRN_EIO, CAIRN_ENOSPC. Called by reap, on the loop thread.
        void (*on_done)(struct cairn_device_request *request, int status);
        // The device's own.
        struct cairn_device_request *next;
        uint64_t due;
        uint32_t attempts;
        int status;
};

struct cairn_device;
struct cairn_device_ops {
        void (*submit)(struct cairn_device *device, struct cairn_device_request *request);
        void (*flush)(struct cairn_device *device);   // starts what was submitted
        void (*reap)(struct cairn_device *device);    // runs on_done of what has ended
        int (*fd)(const struct cairn_device *device); // readable when reap has work
        // Blocking, at start and end. list calls on_slab for every slab file of a directory.
        int (*list)(struct cairn_device *device, uint32_t directory,
                    void (*on_slab)(void *arg, uint32_t slab, uint64_t size_bytes), void *arg);
        int (*open)(struct cairn_device *device, uint32_t directory, uint32_t slab, int *ret_file);
        int (*read_now)(struct cairn_device *device, int file, uint64_t offset, void *bytes,
                        size_t size_bytes);
        void (*close)(struct cairn_device *device, int file);
        void (*destroy)(struct cairn_device *device); // no request may be in flight
};

struct cairn_device {
        const struct cairn_device_ops *ops;
        bool uring;
        bool direct;
};

struct cairn_device_options {
        const char *const *directories;
        uint32_t directories_count;
        uint32_t queue_depth;
        bool force_buffered;
        void (*on_warning)(void *arg, const char *text);
        void *on_warning_arg;
};

// CAIRN_EUNSUPPORTED when the kernel refuses io_uring. Errors leave a sentence in ret_text
// (CAIRN_TEXT_BYTES_MAX).
int cairn_device_uring_create(const struct cairn_device_options *options,
                              struct cairn_device **ret_device, char *ret_text);
int cairn_device_sync_create(const struct cairn_device_options *options,
                             struct cairn_device **ret_device, char *ret_text);
// io_uring, or threads with one warning.
int cairn_device_create(const struct cairn_device_options *options, bool force_sync,
                        struct cairn_device **ret_device, char *ret_text);

// What every device does after one raw completion (`result`: bytes or a negative errno): advances
// the request. True: it has ended, with request->status. False: submit what is left again.
bool cairn_device_advance(struct cairn_device_request *request, int64_t result);
uint64_t cairn_device_bytes_left(const struct cairn_device_request *request);

// Files of real devices, shared by both.
struct cairn_device_files {
        int directories[CAIRN_DEVICE_DIRECTORIES_MAX]; // of <dir>/slabs
        uint32_t count;
        bool direct;
        void (*on_warning)(void *arg, const char *text);
        void *on_warning_arg;
};
int cairn_device_files_open(struct cairn_device_files *files,
                            const struct cairn_device_options *options, char *ret_text);
void cairn_device_files_close(struct cairn_device_files *files);
int cairn_device_files_list(struct cairn_device_files *files, uint32_t directory,
                            void (*on_slab)(void *arg, uint32_t slab, uint64_t size_bytes),
                            void *arg);
int cairn_device_files_open_slab(struct cairn_device_files *files, uint32_t directory,
                                 uint32_t slab, int *ret_file);
// True if the name is that of a slab file.
bool cairn_device_slab_parse(const char *name, uint32_t *ret_slab);
int cairn_device_files_read(int file, uint64_t offset, void *bytes, size_t size_bytes);
// What a data sync comes to that ended with 0 or a negative errno: -EIO too if the file has no name
// any more, and would not be found again.
int cairn_device_files_synced(int file, int result);
// Blocking; CREATE, REMOVE and SYNC on the thread that calls. Returns the status.
int cairn_device_files_run(struct cairn_device_files *files, struct cairn_device_request *request);

#endif
