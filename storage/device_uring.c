// The device over io_uring: reads, writes and data syncs in one ring, submitted a batch at a time.
// Creating and removing files goes to the device with threads, since it blocks. The only user of
// liburing.
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "proto/probe.h"
#include "proto/status.h"
#include "storage/device.h"

struct uring_device {
        struct cairn_device device;
        struct cairn_device *threads; // CREATE, REMOVE, and the blocking calls
        struct io_uring ring;
        bool ring_open;
        int epoll_fd; // the ring and the threads' event
        uint32_t depth;
        uint32_t inflight;
        struct cairn_device_request *pending_first; // waiting for room in the ring
        struct cairn_device_request **pending_last;
};

static void uring_submit(struct cairn_device *device, struct cairn_device_request *request)
{
        struct uring_device *self = (struct uring_device *)device;
        if (request->kind == CAIRN_DEVICE_CREATE || request->kind == CAIRN_DEVICE_REMOVE) {
                self->threads->ops->submit(self->threads, request);
                return;
        }
        request->attempts = 0;
        request->next = NULL;
        *self->pending_last = request;
        self->pending_last = &request->next;
}

static void prepare(struct io_uring_sqe *sqe, struct cairn_device_request *request)
{
        switch (request->kind) {
        case CAIRN_DEVICE_READ:
                io_uring_prep_readv(sqe, request->file, request->iov, request->iov_count,
                                    request->offset);
                break;
        case CAIRN_DEVICE_WRITE:
                io_uring_prep_writev(sqe, request->file, request->iov, request->iov_count,
                                     request->offset);
                break;
        default: io_uring_prep_fsync(sqe, request->file, IORING_FSYNC_DATASYNC); break;
        }
        io_uring_sqe_set_data(sqe, request);
}

static void uring_flush(struct cairn_device *device)
{
        struct uring_device *self = (struct uring_device *)device;
        while (self->pending_first && self->inflight < self->depth) {
                struct io_uring_sqe *sqe = io_uring_get_sqe(&self->ring);
                if (!sqe)
                        break;
                struct cairn_device_request *request = self->pending_first;
                self->pending_first = request->next;
                if (!self->pending_first)
                        self->pending_last = &self->pending_first;
                prepare(sqe, request);
                self->inflight++;
        }
        // What the kernel does not take now (EAGAIN, EBUSY) stays in the ring until the next flush.
        if (io_uring_sq_ready(&self->ring) > 0)
                (void)io_uring_submit(&self->ring);
}

static void uring_reap(struct cairn_device *device)
{
        struct uring_device *self = (struct uring_device *)device;
        self->threads->ops->reap(self->threads);
        struct io_uring_cqe *cqe;
        while (io_uring_peek_cqe(&self->ring, &cqe) == 0) {
                struct cairn_device_request *request = io_uring_cqe_get_data(cqe);
                int64_t result = cqe->res;
                io_uring_cqe_seen(&self->ring, cqe);
                assert(self->inflight > 0);
                self->inflight--;
                if (request->kind == CAIRN_DEVICE_SYNC)
                        result = cairn_device_files_synced(request->file, (int)result);
                if (cairn_device_advance(request, result)) {
                        CAIRN_PROBE3(io__complete, request->kind, request->offset, request->status);
                        request->on_done(request, request->status);
                        continue;
                }
                request->next = NULL;
                *self->pending_last = request;
                self->pending_last = &request->next;
        }
        uring_flush(device);
}

static int uring_fd(const struct cairn_device *device)
{
        return ((const struct uring_device *)device)->epoll_fd;
}

static int uring_list(struct cairn_device *device, uint32_t directory,
                      void (*on_slab)(void *arg, uint32_t slab, uint64_t size_bytes), void *arg)
{
        struct cairn_device *threads = ((struct uring_device *)device)->threads;
        return threads->ops->list(threads, directory, on_slab, arg);
}

static int uring_open(struct cairn_device *device, uint32_t directory, uint32_t slab, int *ret_file)
{
        struct cairn_device *threads = ((struct uring_device *)device)->threads;
        return threads->ops->open(threads, directory, slab, ret_file);
}

static int uring_read_now(struct cairn_device *device, int file, uint64_t offset, void *bytes,
                          size_t size_bytes)
{
        (void)device;
        return cairn_device_files_read(file, offset, bytes, size_bytes);
}

static void uring_close(struct cairn_device *device, int file)
{
        (void)device;
        close(file);
}

static void uring_destroy(struct cairn_device *device)
{
        struct uring_device *self = (struct uring_device *)device;
        assert(self->inflight == 0 && !self->pending_first);
        if (self->ring_open)
                io_uring_queue_exit(&self->ring);
        if (self->epoll_fd >= 0)
                close(self->epoll_fd);
        if (self->threads)
                self->threads->ops->destroy(self->threads);
        free(self);
}

static const struct cairn_device_ops uring_ops = {
    .submit = uring_submit,
    .flush = uring_flush,
    .reap = uring_reap,
    .fd = uring_fd,
    .list = uring_list,
    .open = uring_open,
    .read_now = uring_read_now,
    .close = uring_close,
    .destroy = uring_destroy,
};

static int ring_start(struct uring_device *self, char *ret_text)
{
        int error = io_uring_queue_init(self->depth, &self->ring, IORING_SETUP_CLAMP);
        if (error < 0) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                         "the kernel refuses io_uring (%s): reads and writes go through threads; "
                         "allow it by "
                         "kernel.io_uring_disabled=0 or the container's seccomp profile",
                         strerror(-error));
                return CAIRN_EUNSUPPORTED;
        }
        self->ring_open = true;
        return CAIRN_OK;
}

static int watch_start(struct uring_device *self, char *ret_text)
{
        self->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        int threads_fd = self->threads->ops->fd(self->threads);
        struct epoll_event event = {.events = EPOLLIN};
        if (self->epoll_fd < 0 ||
            epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, self->ring.ring_fd, &event) != 0 ||
            epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, threads_fd, &event) != 0) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "cannot watch the I/O ring: %s",
                         strerror(errno));
                return cairn_status_from_errno(errno);
        }
        return CAIRN_OK;
}

int cairn_device_uring_create(const struct cairn_device_options *options,
                              struct cairn_device **ret_device, char *ret_text)
{
        struct uring_device *self = calloc(1, sizeof(*self));
        if (!self) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "out of memory while opening the device");
                return CAIRN_ENOMEM;
        }
        self->device = (struct cairn_device){.ops = &uring_ops, .uring = true};
        self->epoll_fd = -1;
        self->depth = options->queue_depth;
        self->pending_last = &self->pending_first;
        int status = ring_start(self, ret_text);
        if (status == CAIRN_OK)
                status = cairn_device_sync_create(options, &self->threads, ret_text);
        if (status == CAIRN_OK)
                status = watch_start(self, ret_text);
        if (status != CAIRN_OK) {
                uring_destroy(&self->device);
                return status;
        }
        self->device.direct = self->threads->direct;
        *ret_device = &self->device;
        return CAIRN_OK;
}
