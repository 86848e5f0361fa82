// The device with pread and pwrite on threads of its own: for kernels that refuse io_uring, and for
// the operations that io_uring does not offer. The loop never blocks on it.
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/probe.h"
#include "proto/status.h"
#include "storage/device.h"

enum {
        THREADS_COUNT = 2
};

struct request_queue {
        struct cairn_device_request *first;
        struct cairn_device_request **last;
};

struct sync_device {
        struct cairn_device device;
        struct cairn_device_files files;
        pthread_t threads[THREADS_COUNT];
        uint32_t threads_count;
        pthread_mutex_t lock;
        pthread_cond_t wake;
        struct request_queue pending; // under the lock
        struct request_queue done;    // under the lock
        bool stopping;                // under the lock
        int event_fd;
};

static void queue_init(struct request_queue *queue)
{
        queue->first = NULL;
        queue->last = &queue->first;
}

static void queue_push(struct request_queue *queue, struct cairn_device_request *request)
{
        request->next = NULL;
        *queue->last = request;
        queue->last = &request->next;
}

static struct cairn_device_request *queue_pop(struct request_queue *queue)
{
        struct cairn_device_request *request = queue->first;
        if (request) {
                queue->first = request->next;
                if (!queue->first)
                        queue->last = &queue->first;
        }
        return request;
}

static void run_request(struct sync_device *self, struct cairn_device_request *request)
{
        if (request->kind != CAIRN_DEVICE_READ && request->kind != CAIRN_DEVICE_WRITE) {
                request->status = cairn_device_files_run(&self->files, request);
                return;
        }
        int64_t done;
        do {
                int count = (int)request->iov_count;
                if (request->kind == CAIRN_DEVICE_READ)
                        done = preadv(request->file, request->iov, count, (off_t)request->offset);
                else
                        done = pwritev(request->file, request->iov, count, (off_t)request->offset);
                if (done < 0)
                        done = -errno;
        } while (!cairn_device_advance(request, done));
}

static void *thread_main(void *arg)
{
        struct sync_device *self = arg;
        pthread_mutex_lock(&self->lock);
        for (;;) {
                struct cairn_device_request *request = queue_pop(&self->pending);
                if (!request) {
                        if (self->stopping)
                                break;
                        pthread_cond_wait(&self->wake, &self->lock);
                        continue;
                }
                pthread_mutex_unlock(&self->lock);
                run_request(self, request);
                pthread_mutex_lock(&self->lock);
                queue_push(&self->done, request);
                uint64_t one = 1;
                (void)!write(self->event_fd, &one, sizeof(one)); // full means readable already
        }
        pthread_mutex_unlock(&self->lock);
        return NULL;
}

static void sync_submit(struct cairn_device *device, struct cairn_device_request *request)
{
        struct sync_device *self = (struct sync_device *)device;
        request->attempts = 0;
        pthread_mutex_lock(&self->lock);
        assert(!self->stopping);
        queue_push(&self->pending, request);
        pthread_cond_signal(&self->wake);
        pthread_mutex_unlock(&self->lock);
}

static void sync_flush(struct cairn_device *device)
{
        (void)device; // submitted requests run by themselves
}

static void sync_reap(struct cairn_device *device)
{
        struct sync_device *self = (struct sync_device *)device;
        uint64_t count;
        (void)!read(self->event_fd, &count, sizeof(count)); // empty is fine: nothing has ended
        for (;;) {
                pthread_mutex_lock(&self->lock);
                struct cairn_device_request *request = queue_pop(&self->done);
                pthread_mutex_unlock(&self->lock);
                if (!request)
                        return;
                CAIRN_PROBE3(io__complete, request->kind, request->offset, request->status);
                request->on_done(request, request->status);
        }
}

static int sync_fd(const struct cairn_device *device)
{
        return ((const struct sync_device *)device)->event_fd;
}

static int sync_list(struct cairn_device *device, uint32_t directory,
                     void (*on_slab)(void *arg, uint32_t slab, uint64_t size_bytes), void *arg)
{
        return cairn_device_files_list(&((struct sync_device *)device)->files, directory, on_slab,
                                       arg);
}

static int sync_open(struct cairn_device *device, uint32_t directory, uint32_t slab, int *ret_file)
{
        return cairn_device_files_open_slab(&((struct sync_device *)device)->files, directory, slab,
                                            ret_file);
}

static int sync_read_now(struct cairn_device *device, int file, uint64_t offset, void *bytes,
                         size_t size_bytes)
{
        (void)device;
        return cairn_device_files_read(file, offset, bytes, size_bytes);
}

static void sync_close(struct cairn_device *device, int file)
{
        (void)device;
        close(file);
}

static void sync_destroy(struct cairn_device *device)
{
        struct sync_device *self = (struct sync_device *)device;
        pthread_mutex_lock(&self->lock);
        self->stopping = true;
        pthread_cond_broadcast(&self->wake);
        pthread_mutex_unlock(&self->lock);
        for (uint32_t i = 0; i < self->threads_count; i++)
                pthread_join(self->threads[i], NULL);
        pthread_cond_destroy(&self->wake);
        pthread_mutex_destroy(&self->lock);
        if (self->event_fd >= 0)
                close(self->event_fd);
        cairn_device_files_close(&self->files);
        free(self);
}

static const struct cairn_device_ops sync_ops = {
    .submit = sync_submit,
    .flush = sync_flush,
    .reap = sync_reap,
    .fd = sync_fd,
    .list = sync_list,
    .open = sync_open,
    .read_now = sync_read_now,
    .close = sync_close,
    .destroy = sync_destroy,
};

int cairn_device_sync_create(const struct cairn_device_options *options,
                             struct cairn_device **ret_device, char *ret_text)
{
        struct sync_device *self = calloc(1, sizeof(*self));
        if (!self) {
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "out of memory while opening the device");
                return CAIRN_ENOMEM;
        }
        self->device.ops = &sync_ops;
        queue_init(&self->pending);
        queue_init(&self->done);
        pthread_mutex_init(&self->lock, NULL);
        pthread_cond_init(&self->wake, NULL);
        self->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        int status = self->event_fd < 0 ? cairn_status_from_errno(errno) : CAIRN_OK;
        if (status != CAIRN_OK)
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "cannot make an eventfd: %s",
                         strerror(errno));
        else
                status = cairn_device_files_open(&self->files, options, ret_text);
        self->device.direct = self->files.direct;
        while (status == CAIRN_OK && self->threads_count < THREADS_COUNT) {
                int error =
                    pthread_create(&self->threads[self->threads_count], NULL, thread_main, self);
                if (error == 0) {
                        self->threads_count++;
                        continue;
                }
                snprintf(ret_text, CAIRN_TEXT_BYTES_MAX, "cannot start an I/O thread: %s",
                         strerror(error));
                status = CAIRN_ENOMEM;
        }
        if (status != CAIRN_OK) {
                sync_destroy(&self->device);
                return status;
        }
        *ret_device = &self->device;
        return CAIRN_OK;
}
