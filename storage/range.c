// Reading some layers of a part, for engines that load layer by layer: the part's header and the
// pages around the layers go to memory of their own, are verified off the loop and handed out. Also
// views, which name where pinned bytes lie.
#include <stdlib.h>

#include "storage/store_internal.h"

// Where the layers lie in the part, and the pages around them.
struct extent {
        uint64_t first_byte;
        uint64_t page_from;
        uint64_t page_to;
};

static struct extent extent_of(const struct cairn_layout *layout, uint32_t part, uint32_t first,
                               uint32_t count)
{
        const uint64_t page = CAIRN_DEVICE_ALIGN_BYTES;
        struct extent extent;
        extent.first_byte = layout->header_bytes + first * layout->layer_bytes[part];
        uint64_t end = extent.first_byte + count * layout->layer_bytes[part];
        extent.page_from = extent.first_byte / page * page;
        extent.page_to = (end + page - 1) / page * page;
        return extent;
}

static void ready(struct cairn_store *store, struct cairn_range *range, int status)
{
        range->status = status;
        range->next = NULL;
        *store->ready_ranges_last = range;
        store->ready_ranges_last = &range->next;
        cairn_store_wake(store);
}

void cairn_range_end(struct cairn_store *store, struct cairn_range *range, int status)
{
        range->internal = NULL;
        range->bytes = NULL;
        ready(store, range, status);
}

static void load_free(struct cairn_range_load *load)
{
        struct cairn_store *store = load->store;
        struct cairn_block *block = load->block;
        cairn_link_remove(&load->link);
        cairn_evict_ram_free(store, cairn_block_owner(store, block), load->bytes, &load->slot);
        store->range_bytes -= load->bytes;
        free(load);
        block->refs--;
        cairn_block_refresh(store, block);
        if (store->wait_first)
                cairn_store_wake(store);
}

static void on_verified(struct cairn_work *work)
{
        struct cairn_range_load *load = CAIRN_CONTAINER(work, struct cairn_range_load, work);
        load->next = load->store->ranges_verified;
        load->store->ranges_verified = load;
        cairn_store_wake(load->store);
}

// Any thread.
static void run_verify(struct cairn_work *work)
{
        struct cairn_range_load *load = CAIRN_CONTAINER(work, struct cairn_range_load, work);
        const struct cairn_layout *layout = load->layout;
        struct cairn_part_identity found;
        struct cairn_checksum table;
        load->status = CAIRN_ECORRUPT;
        if (cairn_part_read(layout, load->part, load->slot.bytes, &found, &table) != CAIRN_OK ||
            !cairn_key_equal(&found.key, &load->identity.key) ||
            !cairn_key_equal(&found.space, &load->identity.space) ||
            found.generation != load->identity.generation)
                return;
        for (uint32_t i = 0; i < load->count; i++) {
                struct cairn_checksum sum;
                uint64_t bytes = layout->layer_bytes[load->part];
                cairn_checksum_of(load->layers + i * bytes, bytes, &sum);
                if (memcmp(sum.bytes, cairn_part_checksum(load->slot.bytes, load->first + i), 16) !=
                    0)
                        return;
        }
        load->status = CAIRN_OK;
}

static void end_load(struct cairn_range_load *load)
{
        struct cairn_store *store = load->store;
        struct cairn_range *range = load->range;
        int status = load->status;
        if (status == CAIRN_ECORRUPT) {
                store->stats.corrupt_blocks++;
                cairn_reader_condemn(store, load->block);
        } else if (status == CAIRN_EIO) {
                store->stats.io_errors++;
        }
        if (!range || status != CAIRN_OK) {
                if (range) {
                        store->deadlines -= range->deadline_ms > 0;
                        cairn_range_end(store, range, status);
                }
                load_free(load);
                return;
        }
        store->deadlines -= range->deadline_ms > 0;
        load->done = true;
        range->internal = load;
        range->bytes = load->layers;
        ready(store, range, CAIRN_OK);
}

static void on_read(struct cairn_range_load *load, int status)
{
        struct cairn_store *store = load->store;
        cairn_io_done(store);
        cairn_read_end(store);
        if (status != CAIRN_OK)
                load->status = CAIRN_EIO;
        if (--load->pending > 0)
                return;
        if (store->closing || !load->range)
                load->status = load->status == CAIRN_OK ? CAIRN_ECANCELLED : load->status;
        if (load->status != CAIRN_OK) {
                end_load(load);
                return;
        }
        load->work = (struct cairn_work){.run = run_verify, .on_done = on_verified};
        store->ops_pending++;
        store->options.executor->submit(store->options.executor, &load->work);
}

static void on_header(struct cairn_device_request *request, int status)
{
        on_read(CAIRN_CONTAINER(request, struct cairn_range_load, requests[0]), status);
}

static void on_layers(struct cairn_device_request *request, int status)
{
        on_read(CAIRN_CONTAINER(request, struct cairn_range_load, requests[1]), status);
}

void cairn_range_finish(struct cairn_store *store)
{
        while (store->ranges_verified) {
                struct cairn_range_load *load = store->ranges_verified;
                store->ranges_verified = load->next;
                store->ops_pending--;
                end_load(load);
        }
}

static void submit(struct cairn_range_load *load, uint32_t which, uint64_t part_offset,
                   uint64_t from, void *to, uint64_t bytes)
{
        struct cairn_store *store = load->store;
        struct cairn_device_request *request = &load->requests[which];
        *request = (struct cairn_device_request){
            .kind = CAIRN_DEVICE_READ,
            .file = store->slabs[load->block->slab]->file,
            .offset = part_offset + from,
            .iov_count = 1,
            .on_done = which ? on_layers : on_header,
        };
        request->iov[0] = (struct iovec){to, bytes};
        load->pending++;
        store->stats.nvme_reads++;
        cairn_read_begin(store, bytes);
        cairn_io_submit(store, request);
}

static void submit_load(struct cairn_range_load *load, const struct extent *extent)
{
        struct cairn_store *store = load->store;
        const struct cairn_layout *layout = load->layout;
        uint64_t offset = cairn_slab_offset(store, load->block->slab, load->block->slot) +
                          (load->part ? layout->part_bytes[0] : 0);
        uint8_t *to = load->slot.bytes;
        load->layers = to + layout->header_bytes + (extent->first_byte - extent->page_from);
        if (extent->page_from == layout->header_bytes) {
                submit(load, 0, offset, 0, to, extent->page_to);
                return;
        }
        submit(load, 0, offset, 0, to, layout->header_bytes);
        submit(load, 1, offset, extent->page_from, to + layout->header_bytes,
               extent->page_to - extent->page_from);
}

static bool in_ram(const struct cairn_block *block, const struct cairn_range *range)
{
        return !range->from_nvme && block->resident &&
               block->resident->parts[range->part - 1].state == CAIRN_PART_READY;
}

int cairn_range_step(struct cairn_store *store, struct cairn_range *range)
{
        struct cairn_block *block = range->block;
        const struct cairn_layout *layout = &cairn_block_space(store, block)->layout;
        uint32_t part = range->part - 1;
        if (in_ram(block, range)) {
                block->resident->parts[part].pins++;
                store->stats.pins++;
                store->stats.ram_hits++;
                cairn_block_refresh(store, block);
                range->internal = NULL;
                range->bytes =
                    cairn_part_layer(layout, part, block->resident->parts[part].slot.bytes,
                                     range->first);
                ready(store, range, CAIRN_OK);
                return CAIRN_OK;
        }
        if (range->from_ram || !cairn_block_is(block, CAIRN_BLOCK_STORED))
                return CAIRN_ENOENT;
        struct extent extent = extent_of(layout, part, range->first, range->count);
        struct cairn_range_load *load = calloc(1, sizeof(*load));
        if (!load)
                return CAIRN_ENOMEM;
        load->bytes = layout->header_bytes + extent.page_to - extent.page_from;
        int status =
            cairn_evict_ram_alloc(store, cairn_block_owner(store, block), load->bytes, &load->slot);
        if (status != CAIRN_OK) {
                free(load);
                return status;
        }
        store->range_bytes += load->bytes;
        cairn_link_add(&store->ranges, &load->link);
        load->store = store;
        load->block = block;
        load->layout = layout;
        load->range = range;
        load->part = part;
        load->first = range->first;
        load->count = range->count;
        load->identity.key = block->key;
        load->identity.space = cairn_block_space(store, block)->fingerprint;
        load->identity.generation = block->generation;
        block->refs++;
        store->deadlines += range->deadline_ms > 0;
        submit_load(load, &extent);
        return CAIRN_OK;
}

void cairn_store_range_read(struct cairn_store *store, struct cairn_range *range)
{
        const struct cairn_layout *layout = &cairn_block_space(store, range->block)->layout;
        assert(range->block->holds > 0);
        range->internal = NULL;
        range->bytes = NULL;
        int status = CAIRN_ERANGE;
        if (layout->part_bytes[range->part - 1] > 0 && range->count > 0 &&
            range->first < layout->shape.layers &&
            range->count <= layout->shape.layers - range->first)
                status = cairn_range_step(store, range);
        if (status == CAIRN_EAGAIN)
                status = cairn_wait_add(store, &(struct cairn_wait){.range = range});
        if (status < CAIRN_OK)
                cairn_range_end(store, range, status);
}

void cairn_store_range_release(struct cairn_store *store, struct cairn_range *range)
{
        struct cairn_range_load *load = range->internal;
        assert(range->bytes);
        range->bytes = NULL;
        range->internal = NULL;
        if (!load) {
                cairn_store_unpin(store, range->block, range->part);
                return;
        }
        assert(load->done);
        load_free(load);
}

// The read goes on into its own memory; nobody waits for it any more.
void cairn_range_expire(struct cairn_store *store, uint64_t now_ms)
{
        for (struct cairn_link *link = store->ranges; link; link = link->next) {
                struct cairn_range_load *load =
                    CAIRN_CONTAINER(link, struct cairn_range_load, link);
                struct cairn_range *range = load->range;
                if (load->done || !range || range->deadline_ms == 0 || now_ms < range->deadline_ms)
                        continue;
                load->range = NULL;
                store->deadlines--;
                cairn_range_end(store, range, CAIRN_EDEADLINE);
        }
}

int cairn_block_view(const struct cairn_store *store, const struct cairn_block *block,
                     enum cairn_part part, struct cairn_block_view *ret_view)
{
        const struct cairn_layout *layout = &cairn_block_space(store, block)->layout;
        if (!store->options.views || layout->part_bytes[part - 1] == 0)
                return CAIRN_EUNSUPPORTED;
        const struct cairn_part_ram *ram = &block->resident->parts[part - 1];
        assert(ram->pins > 0 && ram->state == CAIRN_PART_READY);
        struct cairn_ram_place place;
        cairn_ram_place(store->ram, &ram->slot, &place);
        *ret_view = (struct cairn_block_view){
            .fd = place.fd,
            .segment = place.segment,
            .index = place.index,
            .segment_bytes = place.segment_bytes,
            .offset = place.offset + layout->header_bytes,
            .size_bytes = layout->shape.layers * layout->layer_bytes[part - 1],
            .generation_offset = place.generation_offset,
            .generation = place.generation,
        };
        return CAIRN_OK;
}
