// Reading: parts of held blocks brought into RAM, verified off the loop, pinned for whoever asked.
#include <stdlib.h>

#include "storage/store_internal.h"

static void ready(struct cairn_store *store, struct cairn_acquire *request, int status)
{
        request->internal = (void *)(intptr_t)status;
        request->next = NULL;
        *store->ready_acquires_last = request;
        store->ready_acquires_last = &request->next;
        cairn_store_wake(store);
}

// The parts of those asked for that the space has.
static uint32_t wanted(const struct cairn_store *store, const struct cairn_block *block,
                       uint32_t parts)
{
        const struct cairn_layout *layout = &cairn_block_space(store, block)->layout;
        uint32_t mask = 0;
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                if ((parts >> i & 1) && layout->part_bytes[i] > 0)
                        mask |= 1u << i;
        }
        return mask;
}

static void pin(struct cairn_store *store, struct cairn_block *block, uint32_t mask)
{
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                if (!(mask >> i & 1))
                        continue;
                block->resident->parts[i].pins++;
                store->stats.pins++;
        }
}

static void unpin(struct cairn_store *store, struct cairn_block *block, uint32_t mask)
{
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                if (!(mask >> i & 1))
                        continue;
                assert(block->resident && block->resident->parts[i].pins > 0);
                block->resident->parts[i].pins--;
                store->stats.pins--;
        }
}

void cairn_store_unpin(struct cairn_store *store, struct cairn_block *block, uint32_t parts)
{
        unpin(store, block, wanted(store, block, parts));
        cairn_block_refresh(store, block);
        if (store->wait_first)
                cairn_store_wake(store);
}

void cairn_acquire_end(struct cairn_store *store, struct cairn_acquire *request, int status)
{
        ready(store, request, status);
}

void cairn_store_acquire(struct cairn_store *store, struct cairn_acquire *request)
{
        struct cairn_block *block = request->block;
        assert(block->holds > 0);
        uint32_t mask = wanted(store, block, request->parts);
        request->next = NULL;
        if (mask == 0) {
                ready(store, request, CAIRN_OK);
                return;
        }
        bool hit = block->resident != NULL;
        for (uint32_t i = 0; hit && i < CAIRN_PART_COUNT; i++)
                hit = !(mask >> i & 1) || block->resident->parts[i].state == CAIRN_PART_READY;
        store->stats.ram_hits += hit;
        int status = cairn_acquire_step(store, request);
        if (status == CAIRN_EAGAIN)
                status = cairn_wait_add(store, &(struct cairn_wait){.acquire = request});
        if (status < CAIRN_OK)
                cairn_acquire_end(store, request, status);
}

static void on_verified(struct cairn_work *work)
{
        struct cairn_load *load = CAIRN_CONTAINER(work, struct cairn_load, work);
        struct cairn_store *store = load->store;
        load->next = store->verified;
        store->verified = load;
        cairn_store_wake(store);
}

// Any thread. The header must be that of this very generation.
static void run_verify(struct cairn_work *work)
{
        struct cairn_load *load = CAIRN_CONTAINER(work, struct cairn_load, work);
        const struct cairn_resident *resident = load->block->resident;
        const struct cairn_layout *layout = &resident->space->layout;
        const void *bytes = resident->parts[load->part].slot.bytes;
        struct cairn_part_identity found;
        int status = cairn_part_read(layout, load->part, bytes, &found, &load->table);
        if (status == CAIRN_OK && (!cairn_key_equal(&found.key, &load->identity.key) ||
                                   !cairn_key_equal(&found.space, &load->identity.space) ||
                                   found.generation != load->identity.generation))
                status = CAIRN_ECORRUPT;
        if (status == CAIRN_OK)
                status = cairn_part_verify(layout, load->part, bytes, 0, layout->shape.layers);
        load->status = status == CAIRN_OK ? CAIRN_OK : CAIRN_ECORRUPT;
}

static void end_load(struct cairn_load *load, int status);

static void on_read(struct cairn_device_request *request, int status)
{
        struct cairn_load *load = CAIRN_CONTAINER(request, struct cairn_load, request);
        struct cairn_store *store = load->store;
        cairn_io_done(store);
        cairn_read_end(store);
        if (status == CAIRN_OK && store->closing)
                status = CAIRN_ECANCELLED;
        if (status != CAIRN_OK) {
                end_load(load, status);
                return;
        }
        load->work = (struct cairn_work){.run = run_verify, .on_done = on_verified};
        store->ops_pending++;
        store->options.executor->submit(store->options.executor, &load->work);
}

static void submit_load(struct cairn_load *load)
{
        struct cairn_store *store = load->store;
        struct cairn_block *block = load->block;
        const struct cairn_layout *layout = &cairn_block_space(store, block)->layout;
        uint64_t offset = cairn_slab_offset(store, block->slab, block->slot);
        load->request = (struct cairn_device_request){
            .kind = CAIRN_DEVICE_READ,
            .file = store->slabs[block->slab]->file,
            .offset = offset + (load->part ? layout->part_bytes[0] : 0),
            .iov_count = 1,
            .on_done = on_read,
        };
        load->request.iov[0] = (struct iovec){block->resident->parts[load->part].slot.bytes,
                                              layout->part_bytes[load->part]};
        store->stats.nvme_reads++;
        cairn_read_begin(store, layout->part_bytes[load->part]);
        cairn_io_submit(store, &load->request);
}

// CAIRN_EAGAIN: there is no RAM now.
static int start_load(struct cairn_store *store, struct cairn_block *block, uint32_t part)
{
        if (!cairn_block_is(block, CAIRN_BLOCK_STORED))
                return CAIRN_EIO;
        struct cairn_load *load = calloc(1, sizeof(*load));
        if (!load)
                return CAIRN_ENOMEM;
        int status = cairn_part_take(store, block, part);
        if (status != CAIRN_OK) {
                free(load);
                return status;
        }
        if (part == 0) {
                block->resident->cold = cairn_evict_is_cold(store, block);
                block->resident->fresh = true;
        }
        load->store = store;
        load->block = block;
        load->part = part;
        load->identity.key = block->key;
        load->identity.space = cairn_block_space(store, block)->fingerprint;
        load->identity.generation = block->generation;
        cairn_link_add(&store->loads, &load->link);
        block->refs++;
        submit_load(load);
        return CAIRN_OK;
}

// CAIRN_OK: it ended or waits for loads. CAIRN_EAGAIN: it must wait for RAM. Other: it failed.
//
// Pins are taken first, so that a part that has come stays while another is on its way, and given
// up when it must wait: who waits in the queue may not keep RAM from those before it.
int cairn_acquire_step(struct cairn_store *store, struct cairn_acquire *request)
{
        struct cairn_block *block = request->block;
        uint32_t mask = wanted(store, block, request->parts);
        bool loading = false;
        if (!cairn_block_resident(store, block))
                return CAIRN_ENOMEM;
        pin(store, block, mask);
        cairn_block_refresh(store, block);
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                if (!(mask >> i & 1) || block->resident->parts[i].state == CAIRN_PART_READY)
                        continue;
                if (block->resident->parts[i].state == CAIRN_PART_NONE) {
                        int status = start_load(store, block, i);
                        if (status != CAIRN_OK) {
                                unpin(store, block, mask);
                                cairn_block_refresh(store, block);
                                return status;
                        }
                }
                loading = true;
        }
        if (!loading) {
                cairn_acquire_end(store, request, CAIRN_OK);
                return CAIRN_OK;
        }
        store->deadlines += request->deadline_ms > 0;
        request->next = block->resident->waiters;
        block->resident->waiters = request;
        return CAIRN_OK;
}

// A bad block becomes a miss at once; its slot is not used again.
void cairn_reader_condemn(struct cairn_store *store, struct cairn_block *block)
{
        block->flags |= CAIRN_BLOCK_BAD_SLOT;
        if (!cairn_block_is(block, CAIRN_BLOCK_VISIBLE))
                return;
        struct cairn_audit_record record;
        cairn_audit_describe(store, block, CAIRN_AUDIT_EVICT, CAIRN_AUDIT_CORRUPT, &record);
        cairn_block_forget(store, block, NULL, &record);
}

static void wake_waiters(struct cairn_store *store, struct cairn_block *block, uint32_t part,
                         int status)
{
        struct cairn_acquire *request = block->resident->waiters;
        block->resident->waiters = NULL;
        while (request) {
                struct cairn_acquire *next = request->next;
                store->deadlines -= request->deadline_ms > 0;
                int outcome = status;
                unpin(store, block, wanted(store, block, request->parts)); // the step pins again
                if (status == CAIRN_OK || !(request->parts >> part & 1))
                        outcome = cairn_acquire_step(store, request);
                if (outcome == CAIRN_EAGAIN)
                        outcome = cairn_wait_add(store, &(struct cairn_wait){.acquire = request});
                if (outcome < CAIRN_OK)
                        cairn_acquire_end(store, request, outcome);
                request = next;
        }
}

static void end_load(struct cairn_load *load, int status)
{
        struct cairn_store *store = load->store;
        struct cairn_block *block = load->block;
        uint32_t part = load->part;
        if (status != CAIRN_OK && status != CAIRN_ECORRUPT && status != CAIRN_ECANCELLED)
                status = CAIRN_EIO;
        if (status == CAIRN_EIO && load->attempts++ == 0) {
                store->stats.io_errors++;
                submit_load(load);
                return;
        }
        cairn_link_remove(&load->link);
        free(load);
        if (status == CAIRN_OK)
                cairn_part_ready(store, block, part);
        else
                cairn_part_drop(store, block, part);
        if (status == CAIRN_ECORRUPT)
                store->stats.corrupt_blocks++;
        else if (status == CAIRN_EIO)
                store->stats.io_errors++;
        if (status == CAIRN_ECORRUPT || status == CAIRN_EIO)
                cairn_reader_condemn(store, block);
        wake_waiters(store, block, part, status);
        block->refs--;
        cairn_block_refresh(store, block);
}

void cairn_reader_finish(struct cairn_store *store)
{
        while (store->verified) {
                struct cairn_load *load = store->verified;
                store->verified = load->next;
                store->ops_pending--;
                end_load(load, load->status);
        }
}

static const void *part_layer(const struct cairn_block *block, uint32_t part, uint32_t layer)
{
        const struct cairn_resident *resident = block->resident;
        const struct cairn_layout *layout = &resident->space->layout;
        if (layout->part_bytes[part] == 0)
                return NULL;
        assert(layer < layout->shape.layers);
        return cairn_part_layer(layout, part, resident->parts[part].slot.bytes, layer);
}

const void *cairn_block_raw(const struct cairn_block *block, uint32_t layer)
{
        return part_layer(block, 0, layer);
}

const void *cairn_block_code(const struct cairn_block *block, uint32_t layer)
{
        return part_layer(block, 1, layer);
}

int cairn_block_verify(const struct cairn_block *block, enum cairn_part part, uint32_t first,
                       uint32_t count)
{
        const struct cairn_resident *resident = block->resident;
        const struct cairn_layout *layout = &resident->space->layout;
        if (layout->part_bytes[part - 1] == 0)
                return CAIRN_OK;
        return cairn_part_verify(layout, part - 1, resident->parts[part - 1].slot.bytes, first,
                                 count);
}

void cairn_block_checksum(const struct cairn_block *block, enum cairn_part part, uint32_t layer,
                          uint8_t ret_checksum[16])
{
        const struct cairn_resident *resident = block->resident;
        memcpy(ret_checksum, cairn_part_checksum(resident->parts[part - 1].slot.bytes, layer), 16);
}

void cairn_store_report_corrupt(struct cairn_store *store, struct cairn_block *block)
{
        store->stats.corrupt_blocks++;
        cairn_reader_condemn(store, block);
}

enum cairn_tier cairn_block_tier(const struct cairn_block *block)
{
        if (cairn_block_is(block, CAIRN_BLOCK_RAW))
                return CAIRN_TIER_RAM;
        return cairn_block_is(block, CAIRN_BLOCK_STORED) ? CAIRN_TIER_NVME : CAIRN_TIER_NONE;
}

const struct cairn_key *cairn_block_key(const struct cairn_block *block)
{
        return &block->key;
}

int cairn_store_drop_corrupt_copy(struct cairn_store *store, struct cairn_block *block,
                                  enum cairn_part part)
{
        const struct cairn_part_ram *ram = &block->resident->parts[part - 1];
        assert(block->holds > 0 && ram->pins > 0 && ram->state == CAIRN_PART_READY);
        int status = CAIRN_OK;
        if (!cairn_block_is(block, CAIRN_BLOCK_STORED) || cairn_block_is(block, CAIRN_BLOCK_DIRTY))
                status = CAIRN_ENOENT;
        else if (ram->pins > 1)
                status = CAIRN_EHELD;
        unpin(store, block, 1u << (part - 1));
        if (status == CAIRN_OK) {
                store->stats.corrupt_copies++;
                cairn_part_drop(store, block, part - 1);
        } else {
                cairn_store_report_corrupt(store, block);
        }
        cairn_block_refresh(store, block);
        if (store->wait_first)
                cairn_store_wake(store);
        return status;
}

uint32_t cairn_block_tenant(const struct cairn_block *block)
{
        return block->tenant;
}

uint64_t cairn_block_generation(const struct cairn_block *block)
{
        return block->generation;
}

bool cairn_block_stale(const struct cairn_block *block)
{
        return cairn_block_is(block, CAIRN_BLOCK_STALE);
}
