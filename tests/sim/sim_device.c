// The simulated device: files as two byte arrays, what reads see and what a crash leaves.
#include "sim_device.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

enum {
        FILES_MAX = 4096,
        SECTOR_BYTES = 512
};

struct sim_file {
        bool exists;
        bool creating; // a crash may leave it in any state
        uint32_t directory;
        uint32_t slab;
        uint64_t size_bytes;
        uint8_t *bytes;   // what reads see
        uint8_t *durable; // what a crash leaves for sure
        uint8_t *dirty;   // a flag a sector: differs from durable
};

struct sim_device {
        struct cairn_device device;
        struct sim_random random;
        struct sim_faults faults;
        struct sim_file files[FILES_MAX];
        uint64_t capacity_bytes;
        uint64_t used_bytes;
        uint64_t tick;
        uint64_t requests;
        uint64_t fail_at;
        bool stalled;
        struct cairn_device_request *first;
};

static struct sim_device *self_of(struct cairn_device *device)
{
        return (struct sim_device *)(void *)device;
}

static void file_free(struct sim_device *sim, struct sim_file *file)
{
        sim->used_bytes -= file->size_bytes;
        free(file->bytes);
        free(file->durable);
        free(file->dirty);
        memset(file, 0, sizeof(*file));
}

static void sim_submit(struct cairn_device *device, struct cairn_device_request *request)
{
        struct sim_device *sim = self_of(device);
        request->attempts = 0;
        request->due = sim->tick + 1;
        if (sim->faults.latency_max > 0)
                request->due += sim_below(&sim->random, sim->faults.latency_max);
        request->next = sim->first;
        sim->first = request;
        if (request->kind == CAIRN_DEVICE_CREATE)
                request->file = -1;
}

static void sim_flush(struct cairn_device *device)
{
        (void)device;
}

static int64_t fault_of(struct sim_device *sim, const struct cairn_device_request *request)
{
        sim->requests++;
        if (sim->fail_at == sim->requests || sim_chance(&sim->random, sim->faults.eio_share))
                return -EIO;
        if (request->kind == CAIRN_DEVICE_WRITE &&
            sim_chance(&sim->random, sim->faults.write_share)) {
                static const int64_t errors[] = {-EIO, -ENOSPC, -EFBIG};
                return errors[sim_below(&sim->random, 3)];
        }
        if (request->kind == CAIRN_DEVICE_CREATE &&
            sim_chance(&sim->random, sim->faults.enospc_share))
                return -ENOSPC;
        return 0;
}

static int64_t do_create(struct sim_device *sim, struct cairn_device_request *request)
{
        int index = 0;
        while (sim->files[index].exists)
                index++;
        assert(index < FILES_MAX);
        if (sim->used_bytes + request->offset > sim->capacity_bytes)
                return -ENOSPC;
        struct sim_file *file = &sim->files[index];
        *file = (struct sim_file){.exists = true,
                                  .directory = request->directory,
                                  .slab = request->slab,
                                  .size_bytes = request->offset};
        file->bytes = calloc(1, file->size_bytes);
        file->durable = calloc(1, file->size_bytes);
        file->dirty = calloc(1, file->size_bytes / SECTOR_BYTES + 1);
        if (!file->bytes || !file->durable || !file->dirty) {
                free(file->bytes);
                free(file->durable);
                free(file->dirty);
                memset(file, 0, sizeof(*file));
                return -ENOSPC;
        }
        memcpy(file->bytes, request->iov[0].iov_base, request->iov[0].iov_len);
        memcpy(file->durable, file->bytes, request->iov[0].iov_len);
        sim->used_bytes += file->size_bytes;
        request->file = index;
        return 0;
}

static int64_t do_bytes(struct sim_device *sim, struct cairn_device_request *request)
{
        struct sim_file *file = &sim->files[request->file];
        uint64_t most = cairn_device_bytes_left(request);
        assert(file->exists && request->offset % CAIRN_DEVICE_ALIGN_BYTES == 0);
        assert(request->offset + most <= file->size_bytes);
        if (sim_chance(&sim->random, sim->faults.again_share))
                return sim_below(&sim->random, 2) ? -EAGAIN : 0;
        if (sim_chance(&sim->random, sim->faults.short_share))
                most = sim_below(&sim->random, most) + 1;
        uint64_t done = 0;
        for (uint32_t i = 0; i < request->iov_count && done < most; i++) {
                uint64_t part =
                    request->iov[i].iov_len < most - done ? request->iov[i].iov_len : most - done;
                uint8_t *at = file->bytes + request->offset + done;
                assert((uintptr_t)request->iov[i].iov_base % CAIRN_DEVICE_ALIGN_BYTES == 0);
                if (request->kind == CAIRN_DEVICE_READ)
                        memcpy(request->iov[i].iov_base, at, part);
                else
                        memcpy(at, request->iov[i].iov_base, part);
                done += part;
        }
        if (request->kind == CAIRN_DEVICE_WRITE)
                memset(file->dirty + request->offset / SECTOR_BYTES, 1,
                       (done + SECTOR_BYTES - 1) / SECTOR_BYTES);
        else if (sim_chance(&sim->random, sim->faults.flip_share))
                ((uint8_t *)request->iov[0]
                     .iov_base)[sim_below(&sim->random, request->iov[0].iov_len)] ^= 4;
        return (int64_t)done;
}

static void sync_file(struct sim_file *file)
{
        for (uint64_t sector = 0; sector * SECTOR_BYTES < file->size_bytes; sector++) {
                if (!file->dirty[sector])
                        continue;
                memcpy(file->durable + sector * SECTOR_BYTES, file->bytes + sector * SECTOR_BYTES,
                       SECTOR_BYTES);
                file->dirty[sector] = 0;
        }
}

static int64_t run(struct sim_device *sim, struct cairn_device_request *request)
{
        int64_t fault = fault_of(sim, request);
        if (fault)
                return fault;
        switch (request->kind) {
        case CAIRN_DEVICE_CREATE: return do_create(sim, request);
        case CAIRN_DEVICE_REMOVE: file_free(sim, &sim->files[request->file]); return 0;
        case CAIRN_DEVICE_SYNC: sync_file(&sim->files[request->file]); return 0;
        case CAIRN_DEVICE_READ:
        case CAIRN_DEVICE_WRITE: break;
        }
        return do_bytes(sim, request);
}

static void sim_reap(struct cairn_device *device)
{
        struct sim_device *sim = self_of(device);
        if (sim->stalled)
                return;
        sim->tick++;
        struct cairn_device_request *due = NULL;
        struct cairn_device_request **link = &sim->first;
        while (*link) {
                struct cairn_device_request *request = *link;
                if (request->due > sim->tick) {
                        link = &request->next;
                        continue;
                }
                *link = request->next;
                request->next = due;
                due = request;
        }
        while (due) {
                struct cairn_device_request *request = due;
                due = request->next;
                if (cairn_device_advance(request, run(sim, request))) {
                        request->on_done(request, request->status);
                        continue;
                }
                request->due = sim->tick + 1;
                request->next = sim->first;
                sim->first = request;
        }
}

static int sim_fd(const struct cairn_device *device)
{
        (void)device;
        return -1;
}

static int sim_list(struct cairn_device *device, uint32_t directory,
                    void (*on_slab)(void *arg, uint32_t slab, uint64_t size_bytes), void *arg)
{
        struct sim_device *sim = self_of(device);
        for (int i = 0; i < FILES_MAX; i++) {
                if (sim->files[i].exists && sim->files[i].directory == directory)
                        on_slab(arg, sim->files[i].slab, sim->files[i].size_bytes);
        }
        return CAIRN_OK;
}

static int sim_open(struct cairn_device *device, uint32_t directory, uint32_t slab, int *ret_file)
{
        struct sim_device *sim = self_of(device);
        for (int i = 0; i < FILES_MAX; i++) {
                if (!sim->files[i].exists || sim->files[i].directory != directory ||
                    sim->files[i].slab != slab)
                        continue;
                *ret_file = i;
                return CAIRN_OK;
        }
        return CAIRN_ENOENT;
}

static int sim_read_now(struct cairn_device *device, int file, uint64_t offset, void *bytes,
                        size_t size_bytes)
{
        struct sim_file *at = &self_of(device)->files[file];
        if (offset + size_bytes > at->size_bytes)
                return CAIRN_EIO;
        memcpy(bytes, at->bytes + offset, size_bytes);
        return CAIRN_OK;
}

static void sim_close(struct cairn_device *device, int file)
{
        (void)device;
        (void)file;
}

static void sim_destroy(struct cairn_device *device)
{
        (void)device;
}

static const struct cairn_device_ops sim_ops = {
    .submit = sim_submit,
    .flush = sim_flush,
    .reap = sim_reap,
    .fd = sim_fd,
    .list = sim_list,
    .open = sim_open,
    .read_now = sim_read_now,
    .close = sim_close,
    .destroy = sim_destroy,
};

struct sim_device *sim_device_create(uint64_t seed, uint64_t capacity_bytes)
{
        struct sim_device *sim = calloc(1, sizeof(*sim));
        assert(sim);
        sim->device = (struct cairn_device){.ops = &sim_ops, .direct = true};
        sim->random.state = seed;
        sim->capacity_bytes = capacity_bytes;
        return sim;
}

void sim_device_destroy(struct sim_device *sim)
{
        for (int i = 0; i < FILES_MAX; i++) {
                if (sim->files[i].exists)
                        file_free(sim, &sim->files[i]);
        }
        free(sim);
}

struct cairn_device *sim_device_device(struct sim_device *sim)
{
        return &sim->device;
}

void sim_device_faults(struct sim_device *sim, const struct sim_faults *faults)
{
        sim->faults = *faults;
}

void sim_device_capacity(struct sim_device *sim, uint64_t capacity_bytes)
{
        sim->capacity_bytes = capacity_bytes;
}

void sim_device_stall(struct sim_device *sim, bool stalled)
{
        sim->stalled = stalled;
}

void sim_device_fail_at(struct sim_device *sim, uint64_t request)
{
        sim->fail_at = request;
        sim->requests = 0;
}

uint64_t sim_device_requests(const struct sim_device *sim)
{
        return sim->requests;
}

// A request that was under way may have reached the platter in part: writes are applied to what is
// not durable, then every sector decides for itself.
void sim_device_crash(struct sim_device *sim)
{
        struct sim_faults faults = sim->faults;
        sim->faults = (struct sim_faults){0};
        for (struct cairn_device_request *request = sim->first; request; request = request->next) {
                bool begun = sim_below(&sim->random, 2) == 0;
                if (begun &&
                    (request->kind == CAIRN_DEVICE_WRITE || request->kind == CAIRN_DEVICE_CREATE))
                        (void)run(sim, request);
                if (begun && request->kind == CAIRN_DEVICE_CREATE && request->file >= 0 &&
                    sim_below(&sim->random, 2) == 0)
                        memset(sim->files[request->file].durable, 0, CAIRN_DEVICE_ALIGN_BYTES);
        }
        sim->first = NULL;
        sim->faults = faults;
        for (int i = 0; i < FILES_MAX; i++) {
                struct sim_file *file = &sim->files[i];
                if (!file->exists)
                        continue;
                for (uint64_t sector = 0; sector * SECTOR_BYTES < file->size_bytes; sector++) {
                        uint64_t at = sector * SECTOR_BYTES;
                        if (file->dirty[sector] && sim_below(&sim->random, 3) > 0)
                                memcpy(file->durable + at, file->bytes + at, SECTOR_BYTES);
                        file->dirty[sector] = 0;
                }
                memcpy(file->bytes, file->durable, file->size_bytes);
        }
}
