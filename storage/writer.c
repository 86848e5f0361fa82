// Write-back: bytes to the slot, data sync, catalog record, visible - in this order and in groups.
// Blocks that were acknowledged in RAM take the same road later; what cannot be written stays in
// RAM alone and is tried again.
#include <stdio.h>
#include <stdlib.h>

#include "storage/store_internal.h"

enum {
        RETRIES_MAX = 1024
}; // at once

static void queue_push(struct cairn_store *store, struct cairn_put *put)
{
        struct cairn_space_state *space = cairn_block_space(store, put->block);
        put->next = NULL;
        *space->write_last = put;
        space->write_last = &put->next;
        space->write_count++;
        store->writes_queued++;
        cairn_store_wake(store);
}

static struct cairn_put *queue_pop(struct cairn_store *store, struct cairn_space_state *space)
{
        struct cairn_put *put = space->write_first;
        space->write_first = put->next;
        if (!space->write_first)
                space->write_last = &space->write_first;
        space->write_count--;
        store->writes_queued--;
        put->next = NULL;
        return put;
}

// Gives up on NVMe for now. A block that was acknowledged in RAM stays there; another leaves no
// trace.
static void give_up(struct cairn_store *store, struct cairn_put *put, int status)
{
        struct cairn_block *block = put->block;
        put->write_status = status;
        if (put->ack == CAIRN_ACK_DISK) {
                store->stats.puts_failed++;
                cairn_put_discard(store, put, status);
                return;
        }
        cairn_block_set_flag(store, block, CAIRN_BLOCK_DIRTY, false);
        cairn_block_set_flag(store, block, CAIRN_BLOCK_RAM_ONLY, true);
        if (store->retry_ms == 0 && !store->draining)
                store->retry_ms = cairn_store_now(store) + CAIRN_NVME_RETRY_MS;
        cairn_put_end(store, put, CAIRN_OK);
}

static bool admit(struct cairn_store *store, const struct cairn_block *block, uint32_t uses)
{
        return store->options.admission->admit(store->admission, cairn_evict_node(store, block)->id,
                                               uses);
}

static void count_use(struct cairn_store *store, const struct cairn_block *block)
{
        if (store->options.admission)
                store->options.admission->use(store->admission, cairn_evict_node(store, block)->id);
}

static bool admitted(struct cairn_store *store, const struct cairn_put *put)
{
        count_use(store, put->block);
        if (!store->options.admission || put->ack == CAIRN_ACK_DISK || store->draining ||
            admit(store, put->block, 0))
                return true;
        struct cairn_audit_record record;
        struct cairn_eviction_reason reason = {0};
        cairn_audit_describe(store, put->block, CAIRN_AUDIT_REFUSE, CAIRN_AUDIT_ADMISSION, &record);
        cairn_audit_decided(store, &record, store->options.admission->name, &reason);
        record.tier_to = CAIRN_TIER_NVME;
        cairn_audit_emit(store, &record);
        cairn_block_owner(store, put->block)->refused_admission++;
        return false;
}

void cairn_writer_queue(struct cairn_store *store, struct cairn_put *put)
{
        struct cairn_space_state *space = cairn_block_space(store, put->block);
        uint64_t least = CAIRN_SLAB_HEADER_BYTES + space->layout.slot_bytes;
        if (store->options.nvme_bytes < least) {
                give_up(store, put, CAIRN_ENOSPC);
                return;
        }
        if (!admitted(store, put)) {
                put->block->flags |= CAIRN_BLOCK_UNADMITTED;
                give_up(store, put, CAIRN_OK);
                return;
        }
        queue_push(store, put);
}

void cairn_writer_error(struct cairn_store *store, int status)
{
        (void)status;
        store->stats.io_errors++;
        store->errors_in_row++;
        if (store->stats.nvme_failed ||
            (store->errors_in_row < CAIRN_NVME_ERRORS_MAX && !store->slabs_refused))
                return;
        store->stats.nvme_failed = true;
        store->retry_ms = cairn_store_now(store) + CAIRN_NVME_RETRY_MS;
        cairn_store_warn(
            store,
            "NVMe writes fail again and again: blocks stay in RAM alone until one succeeds; check "
            "the disk, its mount and its permissions");
}

static void write_failed(struct cairn_store *store, struct cairn_put *put, int status)
{
        struct cairn_block *block = put->block;
        cairn_writer_error(store, status);
        cairn_block_slot_give(store, block, status == CAIRN_EIO && !store->stats.nvme_failed);
        put->attempts++;
        if (put->attempts < CAIRN_WRITE_ATTEMPTS_MAX && !cairn_block_is(block, CAIRN_BLOCK_STALE) &&
            !store->stats.nvme_failed)
                queue_push(store, put);
        else
                give_up(store, put, status);
}

static void on_written(struct cairn_device_request *request, int status)
{
        struct cairn_put *put = CAIRN_CONTAINER(request, struct cairn_put, request);
        struct cairn_store *store = put->store;
        cairn_io_done(store);
        store->writes_inflight--;
        if (status != CAIRN_OK) {
                write_failed(store, put, status);
                return;
        }
        put->written_ms = cairn_store_now(store);
        put->next = NULL;
        *store->written_last = put;
        store->written_last = &put->next;
}

static void start_write(struct cairn_store *store, struct cairn_put *put)
{
        struct cairn_block *block = put->block;
        const struct cairn_layout *layout = &cairn_block_space(store, block)->layout;
        struct cairn_slab *slab = store->slabs[block->slab];
        put->request = (struct cairn_device_request){
            .kind = CAIRN_DEVICE_WRITE,
            .file = slab->file,
            .offset = cairn_slab_offset(store, block->slab, block->slot),
            .on_done = on_written,
        };
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                if (layout->part_bytes[i] == 0)
                        continue;
                put->request.iov[put->request.iov_count++] =
                    (struct iovec){block->resident->parts[i].slot.bytes, layout->part_bytes[i]};
        }
        store->writes_inflight++;
        store->stats.nvme_writes++;
        store->stats.nvme_write_bytes += layout->slot_bytes;
        cairn_io_submit(store, &put->request);
}

// There is no slot. Where that is for the tenant's quota, whoever waits for the disk learns it.
static void refused(struct cairn_store *store, struct cairn_put *put)
{
        const struct cairn_block *block = put->block;
        struct cairn_tenant *tenant = cairn_block_owner(store, block);
        uint64_t bytes = cairn_block_space(store, block)->layout.slot_bytes;
        if (!cairn_evict_over_quota(tenant, bytes))
                return;
        put->refusal = CAIRN_REFUSAL_NVME_QUOTA;
        if (put->ack != CAIRN_ACK_DISK && put->attempts > 0)
                return; // told before; it stays in RAM and is tried again and again
        cairn_tenant_refused(store,
                             &(struct cairn_refused){.tenant = tenant,
                                                     .refusal = CAIRN_REFUSAL_NVME_QUOTA,
                                                     .space = cairn_block_space(store, block)->id,
                                                     .key = block->key,
                                                     .bytes = bytes,
                                                     .request = put->request_id,
                                                     .connection = put->connection_id});
}

// Starts what a space has queued. Stops where it must wait for a slot.
static void pump_space(struct cairn_store *store, struct cairn_space_state *space)
{
        while (space->write_first && store->writes_inflight < store->options.queue_depth) {
                struct cairn_put *put = space->write_first;
                struct cairn_block *block = put->block;
                if (cairn_block_is(block, CAIRN_BLOCK_STALE)) {
                        queue_pop(store, space);
                        cairn_block_set_flag(store, block, CAIRN_BLOCK_DIRTY, false);
                        cairn_put_end(store, put, CAIRN_OK);
                        continue;
                }
                bool probe = put->attempts > 0 || cairn_store_now(store) >= store->retry_ms;
                if (store->stats.nvme_failed && !probe) {
                        give_up(store, queue_pop(store, space), CAIRN_EIO);
                        continue;
                }
                enum cairn_slab_answer answer =
                    cairn_slab_take(store, space, cairn_block_owner(store, block), &block->slab,
                                    &block->slot);
                if (answer == CAIRN_SLAB_WAIT)
                        return;
                queue_pop(store, space);
                if (answer == CAIRN_SLAB_TAKEN)
                        cairn_block_slot_taken(store, block);
                if (answer == CAIRN_SLAB_NONE) {
                        refused(store, put);
                        give_up(store, put, store->slabs_refused ? CAIRN_EIO : CAIRN_ENOSPC);
                        continue;
                }
                if (store->stats.nvme_failed)
                        store->retry_ms = cairn_store_now(store) + CAIRN_NVME_RETRY_MS;
                start_write(store, put);
        }
}

static void on_recorded(struct cairn_catalog_op *op, int status)
{
        struct cairn_put *put = CAIRN_CONTAINER(op, struct cairn_put, op);
        struct cairn_store *store = put->store;
        struct cairn_block *block = put->block;
        store->commits_inflight--;
        if (status != CAIRN_OK) {
                block->flags &= (uint16_t)~CAIRN_BLOCK_RECORD;
                cairn_writer_error(store, status);
                if (cairn_block_is(block, CAIRN_BLOCK_STALE)) {
                        cairn_block_set_flag(store, block, CAIRN_BLOCK_DIRTY, false);
                        cairn_put_end(store, put, status);
                        return;
                }
                cairn_block_slot_give(store, block, false);
                give_up(store, put, status);
                return;
        }
        store->errors_in_row = 0;
        store->stats.nvme_failed = store->slabs_refused;
        cairn_block_set_flag(store, block, CAIRN_BLOCK_DIRTY, false);
        cairn_block_set_flag(store, block, CAIRN_BLOCK_STORED, true);
        if (put->ack == CAIRN_ACK_DISK)
                cairn_block_publish(store, block);
        cairn_put_end(store, put, CAIRN_OK);
}

static void record(struct cairn_store *store, struct cairn_put *put, bool more)
{
        struct cairn_block *block = put->block;
        block->flags |= CAIRN_BLOCK_RECORD;
        put->op = (struct cairn_catalog_op){
            .kind = CAIRN_CATALOG_PUT,
            .block =
                {
                    .key = block->key,
                    .parent = block->parent,
                    .checksum = put->checksum,
                    .generation = block->generation,
                    .used = block->used,
                    .ttl_ms = put->ttl_ms,
                    .recompute_us = put->recompute_us,
                    .space_id = cairn_block_space(store, block)->id,
                    .slab = store->slabs[block->slab]->number,
                    .slot = block->slot,
                    .tenant = block->tenant,
                },
            .on_done = on_recorded,
        };
        store->commits_inflight++;
        cairn_catalog_submit(store->catalog, &put->op, more);
}

// All files of a group are synced: its blocks go to the catalog, except where the sync failed.
static void group_synced(struct cairn_store *store)
{
        struct cairn_put *put = store->syncing;
        store->syncing = NULL;
        while (put) {
                struct cairn_put *next = put->next;
                struct cairn_block *block = put->block;
                int status = store->slabs[block->slab]->sync_status;
                if (cairn_block_is(block, CAIRN_BLOCK_STALE)) {
                        cairn_block_set_flag(store, block, CAIRN_BLOCK_DIRTY, false);
                        cairn_put_end(store, put, CAIRN_OK);
                } else if (status != CAIRN_OK) {
                        write_failed(store, put, status);
                } else {
                        record(store, put, next != NULL);
                }
                put = next;
        }
}

static void on_synced(struct cairn_device_request *request, int status)
{
        struct cairn_slab *slab = CAIRN_CONTAINER(request, struct cairn_slab, request);
        struct cairn_store *store = slab->store;
        cairn_io_done(store);
        slab->sync_wanted = false;
        slab->sync_status = status;
        if (--store->syncs_inflight == 0)
                group_synced(store);
}

static bool group_due(const struct cairn_store *store)
{
        if (!store->written_first || store->syncing)
                return false;
        return store->writes_inflight == 0 ||
               cairn_store_now(store) >= store->written_first->written_ms + CAIRN_WRITE_AGE_MS;
}

static void sync_group(struct cairn_store *store)
{
        store->syncing = store->written_first;
        store->written_first = NULL;
        store->written_last = &store->written_first;
        for (struct cairn_put *put = store->syncing; put; put = put->next) {
                struct cairn_slab *slab = store->slabs[put->block->slab];
                if (slab->sync_wanted)
                        continue;
                slab->sync_wanted = true;
                slab->request = (struct cairn_device_request){
                    .kind = CAIRN_DEVICE_SYNC, .file = slab->file, .on_done = on_synced};
                store->syncs_inflight++;
                cairn_io_submit(store, &slab->request);
        }
}

void cairn_writer_pump(struct cairn_store *store)
{
        cairn_writer_retry(store);
        cairn_slab_shrink(store);
        for (uint32_t i = 0; store->writes_queued > 0 && i < store->spaces_count; i++)
                pump_space(store, store->spaces[i]);
        if (group_due(store))
                sync_group(store);
}

bool cairn_writer_idle(const struct cairn_store *store)
{
        return store->writes_queued == 0 && store->writes_inflight == 0 && !store->written_first &&
               !store->syncing && store->commits_inflight == 0;
}

// Queues a block that lives in RAM alone for another attempt.
struct cairn_put *cairn_writer_requeue(struct cairn_store *store, struct cairn_block *block)
{
        struct cairn_put *put = calloc(1, sizeof(*put));
        if (!put)
                return NULL;
        cairn_link_add(&store->all_puts, &put->link);
        put->store = store;
        put->block = block;
        put->settled = true;
        put->attempts = 1;
        struct cairn_part_identity identity;
        struct cairn_checksum tables[CAIRN_PART_COUNT];
        const struct cairn_layout *layout = &cairn_block_space(store, block)->layout;
        uint32_t count = 0;
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                if (layout->part_bytes[i] == 0)
                        continue;
                int status = cairn_part_read(layout, i, block->resident->parts[i].slot.bytes,
                                             &identity, &tables[count++]);
                assert(status == CAIRN_OK); // sealed by ourselves and not writable by others
        }
        cairn_block_checksum_of(tables, count, &put->checksum);
        put->ttl_ms = identity.ttl_ms;
        put->recompute_us = identity.recompute_us;
        block->refs++;
        block->flags &= (uint16_t)~CAIRN_BLOCK_UNADMITTED;
        cairn_block_set_flag(store, block, CAIRN_BLOCK_RAM_ONLY, false);
        cairn_block_set_flag(store, block, CAIRN_BLOCK_DIRTY, true);
        cairn_block_refresh(store, block);
        cairn_put_active_add(store, put);
        queue_push(store, put);
        return put;
}

// Visible and in RAM alone. What waits for a second use is written before that only where its place
// is needed and it cannot be dropped, being a parent.
static bool retryable(const struct cairn_store *store, const struct cairn_block *block)
{
        return cairn_block_is(block, CAIRN_BLOCK_RAM_ONLY) &&
               cairn_block_is(block, CAIRN_BLOCK_VISIBLE) &&
               (!cairn_block_is(block, CAIRN_BLOCK_UNADMITTED) || store->draining ||
                block->children > 0);
}

static bool retry_due(const struct cairn_store *store)
{
        if (store->ram_only == 0 || store->closing || store->retry_ms == 0 ||
            store->options.nvme_bytes == 0)
                return false;
        return cairn_store_now(store) >= store->retry_ms;
}

void cairn_writer_retry(struct cairn_store *store)
{
        if (!retry_due(store))
                return;
        store->retry_ms = 0;
        store->ram_short = false;
        // While the device fails, one block is enough to see whether it still does.
        uint32_t most = store->stats.nvme_failed ? 1 : RETRIES_MAX;
        if (store->draining)
                most = UINT32_MAX;
        uint32_t entries = cairn_table_entries(&store->table);
        for (uint32_t id = 0; id < entries && most > 0; id++) {
                struct cairn_block *block = cairn_table_at(&store->table, id);
                if (cairn_block_is(block, CAIRN_BLOCK_LIVE) && retryable(store, block) &&
                    cairn_writer_requeue(store, block))
                        most--;
        }
        if (store->ram_only > 0 && !store->draining)
                store->retry_ms = cairn_store_now(store) + CAIRN_NVME_RETRY_MS;
}

void cairn_store_touch(struct cairn_store *store, struct cairn_block *block)
{
        block->used = ++store->used;
        count_use(store, block);
        cairn_evict_touch(store, block);
        bool waiting = cairn_block_is(block, CAIRN_BLOCK_UNADMITTED) &&
                       cairn_block_is(block, CAIRN_BLOCK_VISIBLE) && !store->closing;
        if (waiting && admit(store, block, 1))
                (void)cairn_writer_requeue(store, block); // without memory the next use tries again
        else
                cairn_block_refresh(store, block);
}
