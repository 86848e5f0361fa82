// Slab files: slots taken and given, files made within the budget, empty ones given back when
// others need room.
#include <stdio.h>
#include <stdlib.h>

#include "storage/store_internal.h"

enum {
        SLAB_SLOTS_DEFAULT = 64,
        SLABS_MIN = 4
};
#define SLAB_BYTES_DEFAULT (256ull << 20)

uint32_t cairn_slab_slots_of(const struct cairn_store *store, const struct cairn_layout *layout)
{
        uint64_t bytes = store->options.slab_bytes;
        if (bytes == 0) {
                bytes = SLAB_SLOTS_DEFAULT * layout->slot_bytes;
                if (bytes < SLAB_BYTES_DEFAULT)
                        bytes = SLAB_BYTES_DEFAULT;
                // A small tier is still shared by several spaces.
                if (bytes > store->options.nvme_bytes / SLABS_MIN)
                        bytes = store->options.nvme_bytes / SLABS_MIN;
        }
        uint64_t slots = bytes > CAIRN_SLAB_HEADER_BYTES
                             ? (bytes - CAIRN_SLAB_HEADER_BYTES) / layout->slot_bytes
                             : 0;
        return slots == 0 ? 1 : slots > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)slots;
}

uint64_t cairn_slab_offset(const struct cairn_store *store, uint32_t slab, uint32_t slot)
{
        const struct cairn_slab *at = store->slabs[slab];
        return CAIRN_SLAB_HEADER_BYTES + slot * store->spaces[at->space]->layout.slot_bytes;
}

struct cairn_slab *cairn_slab_add(struct cairn_store *store, uint32_t slots, uint32_t *ret_index)
{
        uint32_t index = 0;
        while (index < store->slabs_count && store->slabs[index])
                index++;
        if (index == store->slabs_count) {
                struct cairn_slab **slabs = realloc(store->slabs, (index + 1) * sizeof(*slabs));
                if (!slabs)
                        return NULL;
                store->slabs = slabs;
                store->slabs[index] = NULL;
                store->slabs_count++;
        }
        struct cairn_slab *slab = calloc(1, sizeof(*slab));
        uint64_t *taken = calloc((slots + 63) / 64, sizeof(*taken));
        if (!slab || !taken) {
                free(slab);
                free(taken);
                return NULL;
        }
        *slab = (struct cairn_slab){
            .slots = slots, .free_count = slots, .taken = taken, .store = store, .file = -1};
        store->slabs[index] = slab;
        *ret_index = index;
        return slab;
}

void cairn_slab_drop(struct cairn_store *store, uint32_t index)
{
        struct cairn_slab *slab = store->slabs[index];
        free(slab->taken);
        free(slab->header);
        free(slab);
        store->slabs[index] = NULL;
}

bool cairn_slab_mark(struct cairn_slab *slab, uint32_t slot)
{
        uint64_t bit = 1ull << (slot % 64);
        if (slot >= slab->slots || (slab->taken[slot / 64] & bit))
                return false;
        slab->taken[slot / 64] |= bit;
        slab->free_count--;
        return true;
}

uint32_t cairn_slab_index(const struct cairn_slab *slab)
{
        uint32_t index = 0;
        while (slab->store->slabs[index] != slab)
                index++;
        return index;
}

static void on_created(struct cairn_device_request *request, int status)
{
        struct cairn_slab *slab = CAIRN_CONTAINER(request, struct cairn_slab, request);
        struct cairn_store *store = slab->store;
        struct cairn_space_state *space = store->spaces[slab->space];
        cairn_io_done(store);
        space->creating--;
        free(slab->header);
        slab->header = NULL;
        if (status == CAIRN_OK) {
                slab->state = CAIRN_SLAB_OPEN;
                slab->file = request->file;
                space->free_slots += slab->slots;
                store->stats.nvme_free_bytes += slab->slots * space->layout.slot_bytes;
                store->full = false;
                if (store->slabs_refused)
                        store->stats.nvme_failed = false;
                store->slabs_refused = false;
                return;
        }
        store->slab_bytes_total -= slab->size_bytes;
        cairn_slab_drop(store, cairn_slab_index(slab));
        // No lack of room, but a directory that has gone, or takes no files any more.
        if (status == CAIRN_ENOENT || status == CAIRN_EPERM)
                store->slabs_refused = true;
        if (status != CAIRN_ENOSPC)
                cairn_writer_error(store, status);
        else if (!store->warned_full)
                cairn_store_warn(
                    store,
                    "the disk is full below nvme_bytes: blocks are evicted to make room; free disk "
                    "space or lower nvme_bytes");
        store->warned_full = store->warned_full || status == CAIRN_ENOSPC;
        store->full = true;
        store->full_ms = cairn_store_now(store);
}

static uint32_t next_directory(const struct cairn_store *store)
{
        uint64_t bytes[CAIRN_STORE_DIRECTORIES_MAX] = {0};
        for (uint32_t i = 0; i < store->slabs_count; i++) {
                if (store->slabs[i])
                        bytes[store->slabs[i]->directory] += store->slabs[i]->size_bytes;
        }
        uint32_t best = 0;
        for (uint32_t i = 1; i < store->options.directories_count; i++) {
                if (bytes[i] < bytes[best])
                        best = i;
        }
        return best;
}

// Starts a new file for a space, if budget and disk allow.
static bool create_slab(struct cairn_store *store, struct cairn_space_state *space)
{
        if (store->full && cairn_store_now(store) < store->full_ms + CAIRN_NVME_RETRY_MS)
                return false;
        uint32_t slots = cairn_slab_slots_of(store, &space->layout);
        uint64_t room = store->options.nvme_bytes - store->slab_bytes_total;
        if (store->slab_bytes_total > store->options.nvme_bytes ||
            room < CAIRN_SLAB_HEADER_BYTES + space->layout.slot_bytes)
                return false;
        if ((room - CAIRN_SLAB_HEADER_BYTES) / space->layout.slot_bytes < slots)
                slots = (uint32_t)((room - CAIRN_SLAB_HEADER_BYTES) / space->layout.slot_bytes);
        uint32_t index;
        struct cairn_slab *slab = cairn_slab_add(store, slots, &index);
        if (!slab)
                return false;
        slab->header = aligned_alloc(CAIRN_DEVICE_ALIGN_BYTES, CAIRN_SLAB_HEADER_BYTES);
        if (!slab->header) {
                cairn_slab_drop(store, index);
                return false;
        }
        slab->state = CAIRN_SLAB_CREATING;
        slab->number = store->slab_number++;
        slab->space = space->index;
        slab->directory = next_directory(store);
        slab->size_bytes = CAIRN_SLAB_HEADER_BYTES + slots * space->layout.slot_bytes;
        struct cairn_slab_header header = {
            .slab = slab->number,
            .slots = slots,
            .space_id = space->id,
            .space = space->fingerprint,
            .shape = space->layout.shape,
            .description = space->description,
            .description_bytes = space->description_bytes,
        };
        cairn_slab_header_write(&header, space->layout.slot_bytes, slab->header);
        slab->request = (struct cairn_device_request){.kind = CAIRN_DEVICE_CREATE,
                                                      .offset = slab->size_bytes,
                                                      .directory = slab->directory,
                                                      .slab = slab->number,
                                                      .iov_count = 1,
                                                      .on_done = on_created};
        slab->request.iov[0] = (struct iovec){slab->header, CAIRN_SLAB_HEADER_BYTES};
        store->slab_bytes_total += slab->size_bytes;
        space->creating++;
        cairn_io_submit(store, &slab->request);
        return true;
}

static void on_removed(struct cairn_device_request *request, int status)
{
        struct cairn_slab *slab = CAIRN_CONTAINER(request, struct cairn_slab, request);
        struct cairn_store *store = slab->store;
        cairn_io_done(store);
        if (status != CAIRN_OK)
                cairn_writer_error(store, status);
        store->slab_bytes_total -= slab->size_bytes;
        store->full = false;
        cairn_slab_drop(store, cairn_slab_index(slab));
}

static bool is_empty(const struct cairn_slab *slab)
{
        return slab->state == CAIRN_SLAB_OPEN &&
               slab->free_count + slab->bad_count == slab->slots && !slab->sync_wanted;
}

static void remove_slab(struct cairn_store *store, struct cairn_slab *slab)
{
        struct cairn_space_state *space = store->spaces[slab->space];
        uint64_t slot_bytes = space->layout.slot_bytes;
        slab->state = CAIRN_SLAB_REMOVING;
        space->free_slots -= slab->free_count;
        space->nvme_bytes -= slab->bad_count * slot_bytes;
        store->stats.nvme_used_bytes -= slab->bad_count * slot_bytes;
        store->stats.nvme_free_bytes -= slab->free_count * slot_bytes;
        slab->request = (struct cairn_device_request){.kind = CAIRN_DEVICE_REMOVE,
                                                      .file = slab->file,
                                                      .directory = slab->directory,
                                                      .slab = slab->number,
                                                      .on_done = on_removed};
        cairn_io_submit(store, &slab->request);
}

// An empty file makes room for another space's. True: one is on its way out.
static bool remove_empty(struct cairn_store *store)
{
        for (uint32_t i = 0; i < store->slabs_count; i++) {
                struct cairn_slab *slab = store->slabs[i];
                if (!slab)
                        continue;
                if (slab->state == CAIRN_SLAB_REMOVING)
                        return true;
                if (!is_empty(slab))
                        continue;
                remove_slab(store, slab);
                return true;
        }
        return false;
}

static void mark_taken(struct cairn_store *store, struct cairn_slab *slab, uint32_t slot)
{
        struct cairn_space_state *space = store->spaces[slab->space];
        bool taken = cairn_slab_mark(slab, slot);
        assert(taken);
        (void)taken; // asserted
        space->free_slots--;
        space->nvme_bytes += space->layout.slot_bytes;
        store->stats.nvme_used_bytes += space->layout.slot_bytes;
        store->stats.nvme_free_bytes -= space->layout.slot_bytes;
}

void cairn_slab_borrow(struct cairn_store *store, uint32_t slab, uint32_t slot)
{
        mark_taken(store, store->slabs[slab], slot);
}

static void take_from(struct cairn_store *store, struct cairn_slab *slab, uint32_t *ret_slot)
{
        uint32_t words = (slab->slots + 63) / 64;
        for (uint32_t n = 0; n < words; n++) {
                uint32_t word = (slab->hint + n) % words;
                uint64_t open = ~slab->taken[word];
                if (word == words - 1 && slab->slots % 64)
                        open &= (1ull << (slab->slots % 64)) - 1;
                if (!open)
                        continue;
                *ret_slot = word * 64 + (uint32_t)__builtin_ctzll(open);
                slab->hint = word;
                mark_taken(store, slab, *ret_slot);
                return;
        }
        assert(!"a slab with free slots has none");
}

void cairn_slab_shrink(struct cairn_store *store)
{
        if (store->slab_bytes_total > store->options.nvme_bytes && !remove_empty(store))
                (void)cairn_evict_elsewhere(store, NULL,
                                            NULL); // what is held goes when it is let go
}

// While the directory takes no files nothing is written: what still can be might not be found
// again.
static enum cairn_slab_answer try_again(struct cairn_store *store, struct cairn_space_state *space)
{
        if (space->creating > 0)
                return CAIRN_SLAB_WAIT;
        if (cairn_store_now(store) < store->full_ms + CAIRN_NVME_RETRY_MS)
                return CAIRN_SLAB_NONE;
        if (create_slab(store, space))
                return CAIRN_SLAB_WAIT;
        store->slabs_refused = false; // there is no room for another: the next write tells
        return CAIRN_SLAB_NONE;
}

enum cairn_slab_answer cairn_slab_take(struct cairn_store *store, struct cairn_space_state *space,
                                       struct cairn_tenant *tenant, uint32_t *ret_slab,
                                       uint32_t *ret_slot)
{
        uint64_t slot_bytes = space->layout.slot_bytes;
        if (store->slabs_refused)
                return try_again(store, space);
        if (cairn_evict_over_quota(tenant, slot_bytes))
                return cairn_evict_own(store, tenant, slot_bytes) ? CAIRN_SLAB_WAIT
                                                                  : CAIRN_SLAB_NONE;
        for (uint32_t i = 0; space->free_slots > 0 && i < store->slabs_count; i++) {
                struct cairn_slab *slab = store->slabs[i];
                if (!slab || slab->state != CAIRN_SLAB_OPEN || slab->space != space->index ||
                    slab->free_count == 0)
                        continue;
                take_from(store, slab, ret_slot);
                *ret_slab = i;
                return CAIRN_SLAB_TAKEN;
        }
        if (space->creating > 0 || create_slab(store, space))
                return CAIRN_SLAB_WAIT;
        if (space->evicting > 0)
                return CAIRN_SLAB_WAIT;
        uint32_t wanted =
            space->write_count < CAIRN_EVICT_BATCH_MAX ? space->write_count : CAIRN_EVICT_BATCH_MAX;
        // The disk refuses files for a while: removing more would not help this space.
        bool refused = store->full && cairn_store_now(store) < store->full_ms + CAIRN_NVME_RETRY_MS;
        // What it is guaranteed others give up, rather than it its own.
        bool owed = tenant->nvme_bytes + slot_bytes <= tenant->quota.nvme_guaranteed_bytes;
        if (!refused && owed &&
            (remove_empty(store) || cairn_evict_elsewhere(store, tenant, space)))
                return CAIRN_SLAB_WAIT;
        if (cairn_evict_nvme(store, space, tenant, wanted ? wanted : 1) > 0)
                return CAIRN_SLAB_WAIT;
        if (!refused && space->nvme_bytes == 0 &&
            (remove_empty(store) || cairn_evict_elsewhere(store, tenant, NULL)))
                return CAIRN_SLAB_WAIT;
        return CAIRN_SLAB_NONE;
}

void cairn_slab_give(struct cairn_store *store, uint32_t index, uint32_t slot, bool bad)
{
        struct cairn_slab *slab = store->slabs[index];
        struct cairn_space_state *space = store->spaces[slab->space];
        uint64_t bit = 1ull << (slot % 64);
        assert(slab->state == CAIRN_SLAB_OPEN && (slab->taken[slot / 64] & bit));
        if (bad) {
                slab->bad_count++;
        } else {
                slab->taken[slot / 64] &= ~bit;
                slab->free_count++;
                space->free_slots++;
                space->nvme_bytes -= space->layout.slot_bytes;
                store->stats.nvme_used_bytes -= space->layout.slot_bytes;
                store->stats.nvme_free_bytes += space->layout.slot_bytes;
        }
        // One empty file a space is kept for what comes next.
        if (is_empty(slab) && space->free_slots > slab->free_count && !store->closing)
                remove_slab(store, slab);
        cairn_store_wake(store);
}
