// Old copies: slots that are free again keep the bytes of the block that they last had, and its
// header says which that was; RAM slots kept for reuse keep theirs.
#include <stdlib.h>

#include "storage/purge_internal.h"

// ---- keys of the request, by hash ----

static uint32_t hash_of(const struct cairn_key *key)
{
        uint32_t hash; // keys are hashes
        memcpy(&hash, key->bytes + 4, sizeof(hash));
        return hash;
}

static bool keys_index(struct cairn_purges *purges)
{
        const struct cairn_purge *purge = purges->first;
        uint32_t size = 16;
        while (size < 2 * purge->count)
                size *= 2;
        purges->scan_keys = calloc(size, sizeof(uint32_t));
        purges->scan_mask = size - 1;
        for (size_t i = 0; purges->scan_keys && i < purge->count; i++) {
                uint32_t at = hash_of(&purge->keys[i]) & purges->scan_mask;
                if (purge->statuses[i] == CAIRN_EHELD)
                        continue;
                while (purges->scan_keys[at])
                        at = (at + 1) & purges->scan_mask;
                purges->scan_keys[at] = (uint32_t)i + 1;
        }
        return purges->scan_keys != NULL;
}

static bool key_find(const struct cairn_purges *purges, const struct cairn_key *key,
                     uint32_t *ret_index)
{
        uint32_t at = hash_of(key) & purges->scan_mask;
        for (; purges->scan_keys[at]; at = (at + 1) & purges->scan_mask) {
                *ret_index = purges->scan_keys[at] - 1;
                if (cairn_key_equal(&purges->first->keys[*ret_index], key))
                        return true;
        }
        return false;
}

// ---- the scan ----

void cairn_purge_scan_begin(struct cairn_purges *purges)
{
        purges->scan_slab = 0;
        purges->scan_slot = 0;
        purges->scrub_segment = 0;
        purges->scrub_left = UINT32_MAX;
        if (!keys_index(purges)) {
                purges->status = CAIRN_ENOMEM;
                purges->scan_slab = UINT32_MAX;
        }
}

// An old copy becomes a victim without a block: its slot stays taken until the zeros are synced.
static bool condemn(struct cairn_purges *purges, const struct cairn_purge_lane *lane,
                    const struct cairn_key *key, uint32_t index)
{
        struct cairn_purge *purge = purges->first;
        struct cairn_victim *victim = calloc(1, sizeof(*victim));
        if (!victim) {
                purge->statuses[index] = CAIRN_ENOMEM;
                return false;
        }
        *victim = (struct cairn_victim){.next = purges->victims,
                                        .purges = purges,
                                        .key = *key,
                                        .space = purge->space,
                                        .slab = lane->slab,
                                        .slot = lane->slot,
                                        .index = index,
                                        .state = CAIRN_VICTIM_READY};
        purges->victims = victim;
        if (purge->statuses[index] == CAIRN_ENOENT) {
                struct cairn_audit_record record = {
                    .action = CAIRN_AUDIT_PURGE,
                    .reason = CAIRN_AUDIT_REQUEST,
                    .space = purge->space,
                    .key = *key,
                    .layer = CAIRN_AUDIT_ALL,
                    .head = CAIRN_AUDIT_ALL,
                    .count = 1,
                    .request = purge->cause ? purge->cause->request : 0,
                    .connection = purge->cause ? purge->cause->connection : 0,
                    .tier_from = CAIRN_TIER_NVME,
                };
                cairn_audit_emit(purges->store, &record);
                purge->statuses[index] = CAIRN_OK;
        }
        return true;
}

static void on_header(struct cairn_device_request *request, int status)
{
        struct cairn_purge_lane *lane = CAIRN_CONTAINER(request, struct cairn_purge_lane, request);
        struct cairn_purges *purges = lane->purges;
        struct cairn_store *store = purges->store;
        const uint8_t *header =
            purges->headers + (size_t)(lane - purges->lanes) * CAIRN_DEVICE_ALIGN_BYTES;
        struct cairn_key key;
        uint32_t index;
        cairn_io_done(store);
        purges->lanes_busy--;
        // By its key alone: a header that fails its checksum may have been true.
        memcpy(key.bytes, header + 64, CAIRN_KEY_BYTES);
        bool found = status == CAIRN_OK && !store->closing && key_find(purges, &key, &index) &&
                     condemn(purges, lane, &key, index);
        if (!found)
                cairn_slab_give(store, lane->slab, lane->slot, false);
        if (purges->lanes_busy == 0)
                cairn_store_wake(store);
}

static void read_header(struct cairn_purges *purges, uint32_t slab, uint32_t slot)
{
        struct cairn_store *store = purges->store;
        struct cairn_purge_lane *lane = &purges->lanes[purges->lanes_busy];
        *lane = (struct cairn_purge_lane){.purges = purges, .slab = slab, .slot = slot};
        lane->request = (struct cairn_device_request){
            .kind = CAIRN_DEVICE_READ,
            .file = store->slabs[slab]->file,
            .offset = cairn_slab_offset(store, slab, slot),
            .iov_count = 1,
            .on_done = on_header,
        };
        lane->request.iov[0] =
            (struct iovec){purges->headers + (size_t)purges->lanes_busy * CAIRN_DEVICE_ALIGN_BYTES,
                           CAIRN_DEVICE_ALIGN_BYTES};
        purges->lanes_busy++;
        cairn_io_submit(store, &lane->request);
}

static bool is_free(const struct cairn_slab *slab, uint32_t slot)
{
        return !(slab->taken[slot / 64] & 1ull << (slot % 64));
}

// Starts reads of the next free slots.
bool cairn_purge_scan_step(struct cairn_purges *purges)
{
        struct cairn_store *store = purges->store;
        const struct cairn_space_state *space = cairn_space_by_id(store, purges->first->space);
        for (; space && purges->scan_slab < store->slabs_count; purges->scan_slab++) {
                struct cairn_slab *slab = store->slabs[purges->scan_slab];
                bool ours = slab && slab->state == CAIRN_SLAB_OPEN && slab->space == space->index;
                for (; ours && purges->scan_slot < slab->slots; purges->scan_slot++) {
                        if (purges->lanes_busy == CAIRN_PURGE_LANES)
                                return true;
                        if (!is_free(slab, purges->scan_slot))
                                continue;
                        cairn_slab_borrow(store, purges->scan_slab, purges->scan_slot);
                        read_header(purges, purges->scan_slab, purges->scan_slot);
                }
                purges->scan_slot = 0;
        }
        if (purges->lanes_busy > 0)
                return true;
        free(purges->scan_keys);
        purges->scan_keys = NULL;
        return false;
}

// ---- the scrub ----

static void run_scrub(struct cairn_work *work)
{
        struct cairn_purges *purges = CAIRN_CONTAINER(work, struct cairn_purges, work);
        explicit_bzero(purges->scrub_slot.bytes, purges->scrub_bytes);
}

static void on_scrubbed(struct cairn_work *work)
{
        struct cairn_purges *purges = CAIRN_CONTAINER(work, struct cairn_purges, work);
        purges->busy = purges->executing = false;
        cairn_ram_free(purges->store->ram, &purges->scrub_slot);
        cairn_store_wake(purges->store);
}

// Zeroes the next kept slot.
bool cairn_purge_scrub_step(struct cairn_purges *purges)
{
        struct cairn_store *store = purges->store;
        if (!cairn_ram_take_kept(store->ram, &purges->scrub_segment, &purges->scrub_left,
                                 &purges->scrub_slot, &purges->scrub_bytes))
                return false;
        purges->busy = purges->executing = true;
        purges->work = (struct cairn_work){.run = run_scrub, .on_done = on_scrubbed};
        store->options.executor->submit(store->options.executor, &purges->work);
        return true;
}
