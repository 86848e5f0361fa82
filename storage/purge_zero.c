// Victims: entries whose bytes are overwritten before they end, and free slots with old copies.
#include <stdlib.h>

#include "proto/bytes.h"
#include "storage/note.h"
#include "storage/purge_internal.h"

// ---- notes: key 'P', space (u32), key; value: the store's generation (u64), so that a block put
// later is another one ----

void cairn_purge_note_of(const struct cairn_store *store, uint32_t space,
                         const struct cairn_key *key, bool keep, struct cairn_note *ret_note)
{
        *ret_note = (struct cairn_note){.key_bytes = 5 + CAIRN_KEY_BYTES,
                                        .value_bytes = keep ? sizeof(uint64_t) : 0};
        ret_note->key[0] = CAIRN_NOTE_PURGE;
        cairn_put_u32(ret_note->key + 1, space);
        memcpy(ret_note->key + 5, key->bytes, CAIRN_KEY_BYTES);
        cairn_put_u64(ret_note->value, store->generation);
}

// ---- victims ----

void cairn_victim_free(struct cairn_purges *purges, struct cairn_victim *victim)
{
        struct cairn_victim **link = &purges->victims;
        while (*link != victim)
                link = &(*link)->next;
        *link = victim->next;
        free(victim);
}

static struct cairn_victim *victim_in(const struct cairn_purges *purges,
                                      enum cairn_victim_state state)
{
        struct cairn_victim *victim = purges->victims;
        while (victim && (victim->state != state || victim->forgetting))
                victim = victim->next;
        return victim;
}

bool cairn_victim_of_key(const struct cairn_purges *purges, uint32_t space,
                         const struct cairn_key *key)
{
        const struct cairn_victim *victim = purges->victims;
        while (victim && (victim->space != space || !cairn_key_equal(&victim->key, key)))
                victim = victim->next;
        return victim != NULL;
}

bool cairn_purge_catch(struct cairn_store *store, struct cairn_block *block)
{
        struct cairn_victim *victim = store->purges ? store->purges->victims : NULL;
        while (victim && victim->block != block)
                victim = victim->next;
        block->flags &= (uint16_t)~CAIRN_BLOCK_PURGE;
        if (victim && store->closing)
                victim->block = NULL;
        if (!victim || store->closing)
                return false; // the next start finds the note
        victim->state = CAIRN_VICTIM_READY;
        block->refs++;
        for (uint32_t i = 0; block->resident && i < CAIRN_PART_COUNT; i++) {
                if (block->resident->parts[i].state == CAIRN_PART_READY)
                        block->resident->parts[i].pins++; // nobody's: not counted
        }
        cairn_store_wake(store);
        return true;
}

static void on_note_gone(void *arg, int status)
{
        (void)arg;
        (void)status; // what is left names an older generation than any block to come
}

// Its bytes are gone from everywhere: the entry ends.
static void victim_end(struct cairn_purges *purges, struct cairn_victim *victim)
{
        struct cairn_store *store = purges->store;
        struct cairn_block *block = victim->block;
        bool late = victim->late;
        uint32_t space = victim->space;
        struct cairn_key key = victim->key;
        if (!block && victim->slab != CAIRN_NO_SLAB)
                cairn_slab_give(store, victim->slab, victim->slot, false);
        cairn_victim_free(purges, victim);
        if (block) {
                for (uint32_t i = 0; block->resident && i < CAIRN_PART_COUNT; i++) {
                        if (block->resident->parts[i].state == CAIRN_PART_READY)
                                block->resident->parts[i].pins--;
                }
                block->refs--;
                cairn_block_refresh(store, block);
        }
        if (late && !cairn_victim_of_key(purges, space, &key)) {
                struct cairn_note note;
                cairn_purge_note_of(store, space, &key, false, &note);
                cairn_store_note_set(store, &note, on_note_gone, NULL);
        }
}

// ---- zeroing one victim: RAM by the executor, the slot by the device ----

static void victim_failed(struct cairn_purges *purges, struct cairn_victim *victim, int status)
{
        cairn_writer_error(purges->store, status);
        if (victim->index < CAIRN_PURGE_NO_INDEX && purges->first)
                purges->first->statuses[victim->index] = status;
        victim->late = false; // its note stays: the next start tries again
        victim_end(purges, victim);
}

static void write_zeros(struct cairn_purges *purges);

static void on_zeros_written(struct cairn_device_request *request, int status)
{
        struct cairn_purges *purges = CAIRN_CONTAINER(request, struct cairn_purges, request);
        cairn_io_done(purges->store);
        purges->busy = false;
        if (status != CAIRN_OK)
                victim_failed(purges, purges->working, status);
        else if (purges->left_bytes > 0)
                write_zeros(purges);
        else
                purges->working->state = CAIRN_VICTIM_WRITTEN;
        cairn_store_wake(purges->store);
}

static void write_zeros(struct cairn_purges *purges)
{
        struct cairn_store *store = purges->store;
        const struct cairn_victim *victim = purges->working;
        purges->request = (struct cairn_device_request){
            .kind = CAIRN_DEVICE_WRITE,
            .file = store->slabs[victim->slab]->file,
            .offset = cairn_slab_offset(store, victim->slab, victim->slot) + purges->at_bytes,
            .on_done = on_zeros_written,
        };
        while (purges->left_bytes > 0 && purges->request.iov_count < CAIRN_DEVICE_IOV_MAX) {
                uint64_t bytes = purges->left_bytes < CAIRN_PURGE_ZERO_BYTES
                                     ? purges->left_bytes
                                     : (uint64_t)CAIRN_PURGE_ZERO_BYTES;
                purges->request.iov[purges->request.iov_count++] =
                    (struct iovec){purges->zeros, bytes};
                purges->at_bytes += bytes;
                purges->left_bytes -= bytes;
        }
        purges->busy = true;
        store->stats.nvme_writes++;
        cairn_io_submit(store, &purges->request);
}

static void start_slot(struct cairn_purges *purges)
{
        struct cairn_store *store = purges->store;
        struct cairn_victim *victim = purges->working;
        if (victim->block) {
                victim->slab = victim->block->slab;
                victim->slot = victim->block->slot;
        }
        if (victim->slab == CAIRN_NO_SLAB) {
                victim->state = CAIRN_VICTIM_WRITTEN; // nothing to sync either
                cairn_store_wake(store);
                return;
        }
        purges->at_bytes = 0;
        purges->left_bytes = store->spaces[store->slabs[victim->slab]->space]->layout.slot_bytes;
        write_zeros(purges);
}

static void run_zero_ram(struct cairn_work *work)
{
        struct cairn_purges *purges = CAIRN_CONTAINER(work, struct cairn_purges, work);
        struct cairn_resident *resident = purges->working->block->resident;
        for (uint32_t i = 0; i < CAIRN_PART_COUNT; i++) {
                if (resident->parts[i].state == CAIRN_PART_READY)
                        explicit_bzero(resident->parts[i].slot.bytes,
                                       resident->space->layout.part_bytes[i]);
        }
}

static void on_ram_zeroed(struct cairn_work *work)
{
        struct cairn_purges *purges = CAIRN_CONTAINER(work, struct cairn_purges, work);
        purges->busy = purges->executing = false;
        start_slot(purges);
}

static void start_victim(struct cairn_purges *purges, struct cairn_victim *victim)
{
        purges->working = victim;
        victim->state = CAIRN_VICTIM_WORKING;
        if (!victim->block || !victim->block->resident) {
                start_slot(purges);
                return;
        }
        purges->busy = purges->executing = true;
        purges->work = (struct cairn_work){.run = run_zero_ram, .on_done = on_ram_zeroed};
        purges->store->options.executor->submit(purges->store->options.executor, &purges->work);
}

// ---- data sync of all that was written, a file at a time ----

static void on_zeros_synced(struct cairn_device_request *request, int status)
{
        struct cairn_purges *purges = CAIRN_CONTAINER(request, struct cairn_purges, request);
        struct cairn_store *store = purges->store;
        uint32_t slab = purges->syncing;
        cairn_io_done(store);
        purges->busy = false;
        struct cairn_victim *victim = purges->victims;
        while (victim) {
                struct cairn_victim *next = victim->next;
                if (victim->state == CAIRN_VICTIM_WRITTEN && victim->slab == slab) {
                        if (status == CAIRN_OK)
                                victim_end(purges, victim);
                        else
                                victim_failed(purges, victim, status);
                }
                victim = next;
        }
        cairn_store_wake(store);
}

static void start_sync(struct cairn_purges *purges, const struct cairn_victim *victim)
{
        purges->syncing = victim->slab;
        purges->busy = true;
        purges->request =
            (struct cairn_device_request){.kind = CAIRN_DEVICE_SYNC,
                                          .file = purges->store->slabs[victim->slab]->file,
                                          .on_done = on_zeros_synced};
        cairn_io_submit(purges->store, &purges->request);
}

bool cairn_purge_zero_step(struct cairn_purges *purges)
{
        struct cairn_victim *victim = victim_in(purges, CAIRN_VICTIM_READY);
        if (victim) {
                start_victim(purges, victim);
                return true;
        }
        while ((victim = victim_in(purges, CAIRN_VICTIM_WRITTEN))) {
                if (victim->slab != CAIRN_NO_SLAB) {
                        start_sync(purges, victim);
                        return true;
                }
                victim_end(purges, victim);
        }
        return false;
}
