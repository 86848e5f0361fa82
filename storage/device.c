// What all devices share: progress of short completions, the choice between io_uring and threads.
#include "storage/device.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/status.h"

uint64_t cairn_device_bytes_left(const struct cairn_device_request *request)
{
        uint64_t left = 0;
        for (uint32_t i = 0; i < request->iov_count; i++)
                left += request->iov[i].iov_len;
        return left;
}

static bool end(struct cairn_device_request *request, int status)
{
        request->status = status;
        return true;
}

static void skip(struct cairn_device_request *request, uint64_t bytes)
{
        request->offset += bytes;
        while (bytes > 0) {
                assert(request->iov_count > 0);
                struct iovec *first = &request->iov[0];
                if (bytes < first->iov_len) {
                        first->iov_base = (uint8_t *)first->iov_base + bytes;
                        first->iov_len -= bytes;
                        return;
                }
                bytes -= first->iov_len;
                request->iov_count--;
                memmove(&request->iov[0], &request->iov[1],
                        request->iov_count * sizeof(struct iovec));
        }
}

// Direct I/O goes on only from an aligned offset: the odd bytes of a short completion are done
// again.
bool cairn_device_advance(struct cairn_device_request *request, int64_t result)
{
        if (request->kind != CAIRN_DEVICE_READ && request->kind != CAIRN_DEVICE_WRITE)
                return end(request, result < 0 ? cairn_status_from_errno((int)-result) : CAIRN_OK);
        if (result == -EAGAIN || result == -EINTR || result == 0) {
                if (++request->attempts >= CAIRN_DEVICE_ATTEMPTS_MAX)
                        return end(request, CAIRN_EIO);
                return false;
        }
        if (result < 0) {
                bool full = result == -ENOSPC || result == -EFBIG || result == -EDQUOT;
                return end(request, full ? CAIRN_ENOSPC : CAIRN_EIO);
        }
        uint64_t left = cairn_device_bytes_left(request);
        if ((uint64_t)result > left)
                return end(request, CAIRN_EIO);
        uint64_t done = (uint64_t)result;
        if (done < left)
                done -= done % CAIRN_DEVICE_ALIGN_BYTES;
        if (done == 0) {
                if (++request->attempts >= CAIRN_DEVICE_ATTEMPTS_MAX)
                        return end(request, CAIRN_EIO);
                return false;
        }
        request->attempts = 0;
        skip(request, done);
        return cairn_device_bytes_left(request) == 0 ? end(request, CAIRN_OK) : false;
}

int cairn_device_create(const struct cairn_device_options *options, bool force_sync,
                        struct cairn_device **ret_device, char *ret_text)
{
        if (force_sync)
                return cairn_device_sync_create(options, ret_device, ret_text);
        int status = cairn_device_uring_create(options, ret_device, ret_text);
        if (status != CAIRN_EUNSUPPORTED)
                return status;
        if (options->on_warning)
                options->on_warning(options->on_warning_arg, ret_text);
        return cairn_device_sync_create(options, ret_device, ret_text);
}
