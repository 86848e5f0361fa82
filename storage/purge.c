// Purges, one after the other, each in steps:
//   NOTE    a note for each key, durable
//   FORGET  the blocks leave table and catalog; each becomes a victim
//   ZERO    victims that nobody holds any more: their RAM, their slots, a data sync
//   SCAN    free slots of the space whose headers have one of the keys (purge_scan.c); a data sync
//   SCRUB   RAM slots that are kept for reuse
//   UNNOTE  the notes go, but for blocks that somebody still holds
// One piece of I/O or work is under way at a time, but for the scan's reads.
#include "storage/purge_internal.h"

#include <stdlib.h>

#include "proto/bytes.h"
#include "storage/note.h"

enum {
        ZERO_BYTES = 1 << 20, // written at once, twice over
};

static struct cairn_purges *purges_of(struct cairn_store *store)
{
        struct cairn_purges *purges = store->purges;
        if (purges)
                return purges;
        purges = calloc(1, sizeof(*purges));
        if (!purges)
                return NULL;
        purges->last = &purges->first;
        purges->store = store;
        purges->zeros = aligned_alloc(CAIRN_DEVICE_ALIGN_BYTES, ZERO_BYTES);
        purges->headers =
            aligned_alloc(CAIRN_DEVICE_ALIGN_BYTES, CAIRN_PURGE_LANES * CAIRN_DEVICE_ALIGN_BYTES);
        if (!purges->zeros || !purges->headers) {
                free(purges->zeros);
                free(purges->headers);
                free(purges);
                return NULL;
        }
        memset(purges->zeros, 0, ZERO_BYTES);
        store->purges = purges;
        return purges;
}

void cairn_purges_finish(struct cairn_store *store)
{
        struct cairn_purges *purges = store->purges;
        if (!purges)
                return;
        while (purges->victims) {
                struct cairn_victim *victim = purges->victims;
                purges->victims = victim->next;
                free(victim);
        }
        free(purges->resumed);
        free(purges->scan_keys);
        free(purges->zeros);
        free(purges->headers);
        free(purges);
        store->purges = NULL;
}

// ---- notes: key 'P', space (u32), key; value: the store's generation (u64), so that a block put
// later is another one ----

static void note_of(const struct cairn_store *store, uint32_t space, const struct cairn_key *key,
                    bool keep, struct cairn_note *ret_note)
{
        *ret_note = (struct cairn_note){.key_bytes = 5 + CAIRN_KEY_BYTES,
                                        .value_bytes = keep ? sizeof(uint64_t) : 0};
        ret_note->key[0] = CAIRN_NOTE_PURGE;
        cairn_put_u32(ret_note->key + 1, space);
        memcpy(ret_note->key + 5, key->bytes, CAIRN_KEY_BYTES);
        cairn_put_u64(ret_note->value, store->generation);
}

// ---- victims ----

static void victim_free(struct cairn_purges *purges, struct cairn_victim *victim)
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

static bool victim_of_key(const struct cairn_purges *purges, uint32_t space,
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
        victim_free(purges, victim);
        if (block) {
                for (uint32_t i = 0; block->resident && i < CAIRN_PART_COUNT; i++) {
                        if (block->resident->parts[i].state == CAIRN_PART_READY)
                                block->resident->parts[i].pins--;
                }
                block->refs--;
                cairn_block_refresh(store, block);
        }
        if (late && !victim_of_key(purges, space, &key)) {
                struct cairn_note note;
                note_of(store, space, &key, false, &note);
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
                uint64_t bytes =
                    purges->left_bytes < ZERO_BYTES ? purges->left_bytes : (uint64_t)ZERO_BYTES;
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

// True: something was begun.
static bool zero_step(struct cairn_purges *purges)
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

// ---- the steps of a request ----

static void on_noted(void *arg, int status)
{
        struct cairn_purges *purges = arg;
        struct cairn_purge *purge = purges->first;
        // One status for all: a note that is missing makes the purge one that a crash may undo.
        if (status != CAIRN_OK)
                purges->status = status;
        purge->waiting--;
        cairn_store_wake(purges->store);
}

static void note_set(struct cairn_purges *purges, size_t index, bool keep)
{
        struct cairn_purge *purge = purges->first;
        struct cairn_note note;
        note_of(purges->store, purge->space, &purge->keys[index], keep, &note);
        purge->waiting++;
        cairn_store_note_set(purges->store, &note, on_noted, purges);
}

static void note_all(struct cairn_purges *purges)
{
        struct cairn_purge *purge = purges->first;
        for (size_t i = 0; i < purge->count; i++) {
                bool held = cairn_store_held_by(purges->store, purge->space, &purge->keys[i]);
                purge->statuses[i] = held ? CAIRN_EHELD : CAIRN_ENOENT;
                if (!held && purge != &purges->resume) // which has its notes
                        note_set(purges, i, true);
        }
}

// A note stays for what could not be done, or is not done yet.
static void unnote_all(struct cairn_purges *purges)
{
        struct cairn_purge *purge = purges->first;
        for (size_t i = 0; i < purge->count; i++) {
                int status = purge->statuses[i];
                bool held = status == CAIRN_EHELD && purge == &purges->resume;
                if ((status == CAIRN_OK || status == CAIRN_ENOENT || held) &&
                    !victim_of_key(purges, purge->space, &purge->keys[i]))
                        note_set(purges, i, false);
        }
}

static void on_forgot(void *arg, int status)
{
        struct cairn_victim *victim = arg;
        struct cairn_purges *purges = victim->purges;
        victim->forgetting = false;
        purges->first->waiting--;
        bool back = status != CAIRN_OK && victim->block &&
                    cairn_block_is(victim->block, CAIRN_BLOCK_VISIBLE);
        purges->first->statuses[victim->index] = back ? status : CAIRN_OK;
        if (back) {
                victim->block->flags &= (uint16_t)~CAIRN_BLOCK_PURGE;
                victim_free(purges, victim);
        }
        cairn_store_wake(purges->store);
}

static int forget(struct cairn_purges *purges, size_t index, struct cairn_block *block)
{
        struct cairn_purge *purge = purges->first;
        struct cairn_store *store = purges->store;
        struct cairn_victim *victim = calloc(1, sizeof(*victim));
        struct cairn_op *op = victim ? cairn_op_create(store) : NULL;
        struct cairn_audit_record record;
        if (!op) {
                free(victim);
                return CAIRN_ENOMEM;
        }
        *victim = (struct cairn_victim){.next = purges->victims,
                                        .purges = purges,
                                        .block = block,
                                        .space = purge->space,
                                        .key = block->key,
                                        .slab = CAIRN_NO_SLAB,
                                        .index = (uint32_t)index,
                                        .forgetting = true};
        purges->victims = victim;
        block->flags |= CAIRN_BLOCK_PURGE;
        cairn_audit_describe(store, block, CAIRN_AUDIT_PURGE, CAIRN_AUDIT_REQUEST, &record);
        if (purge->cause) {
                record.request = purge->cause->request;
                record.connection = purge->cause->connection;
        }
        op->on_status = on_forgot;
        op->arg = victim;
        purge->waiting++;
        store->stats.deleted++;
        cairn_block_forget(store, block, op, &record);
        return CAIRN_OK;
}

static void forget_all(struct cairn_purges *purges)
{
        struct cairn_purge *purge = purges->first;
        struct cairn_store *store = purges->store;
        const struct cairn_space_state *space = cairn_space_by_id(store, purge->space);
        for (size_t i = 0; space && i < purge->count; i++) {
                struct cairn_block *block =
                    cairn_table_find(&store->table, space->index, &purge->keys[i]);
                if (purge->statuses[i] == CAIRN_EHELD || !block ||
                    !cairn_block_is(block, CAIRN_BLOCK_VISIBLE) ||
                    (purge == &purges->resume && block->generation > purges->resumed_generation))
                        continue;
                purge->statuses[i] = cairn_block_is(block, CAIRN_BLOCK_LEGAL)
                                         ? CAIRN_EHELD // set since the note
                                         : forget(purges, i, block);
        }
}

// Those that somebody holds are not waited for.
static void leave_held(struct cairn_purges *purges)
{
        for (struct cairn_victim *victim = purges->victims; victim; victim = victim->next) {
                purges->first->pending += victim->state == CAIRN_VICTIM_HELD && !victim->late;
                victim->late = true;
                victim->index = CAIRN_PURGE_NO_INDEX;
        }
}

static void end_request(struct cairn_purges *purges)
{
        struct cairn_purge *purge = purges->first;
        int status = purges->status;
        purges->first = purge->next;
        if (!purges->first)
                purges->last = &purges->first;
        purges->state = CAIRN_PURGE_NOTE;
        purges->status = CAIRN_OK;
        if (purge == &purges->resume) {
                free(purges->resumed);
                purges->resumed = NULL;
                if (status == CAIRN_OK)
                        cairn_purge_resume(purges->store); // those of other spaces
        } else {
                purge->on_done(purge, status);
        }
        cairn_store_wake(purges->store);
}

// The one setter of the state: when all that a step waits for has ended, the next one begins.
static void request_step(struct cairn_purges *purges)
{
        switch (purges->state) {
        case CAIRN_PURGE_NOTE:
                purges->state = CAIRN_PURGE_FORGET;
                note_all(purges);
                return;
        case CAIRN_PURGE_FORGET:
                purges->state = purges->status == CAIRN_OK ? CAIRN_PURGE_ZERO : CAIRN_PURGE_UNNOTE;
                if (purges->status == CAIRN_OK)
                        forget_all(purges);
                return;
        case CAIRN_PURGE_ZERO: // zero_step had nothing left
                purges->state = CAIRN_PURGE_SCAN;
                leave_held(purges);
                cairn_purge_scan_begin(purges);
                return;
        case CAIRN_PURGE_SCAN:
                if (!cairn_purge_scan_step(purges))
                        purges->state = CAIRN_PURGE_SCRUB;
                return;
        case CAIRN_PURGE_SCRUB:
                if (!cairn_purge_scrub_step(purges))
                        purges->state = CAIRN_PURGE_UNNOTE;
                return;
        case CAIRN_PURGE_UNNOTE:
                purges->state = CAIRN_PURGE_DONE;
                unnote_all(purges);
                return;
        case CAIRN_PURGE_DONE: end_request(purges); return;
        }
}

void cairn_purge_pump(struct cairn_store *store)
{
        struct cairn_purges *purges = store->purges;
        if (!purges || store->closing)
                return;
        while (!purges->busy && purges->lanes_busy == 0) {
                if (zero_step(purges))
                        continue;
                if (!purges->first || purges->first->waiting > 0)
                        return;
                request_step(purges);
        }
}

void cairn_purge_cancel(struct cairn_store *store)
{
        struct cairn_purges *purges = store->purges;
        struct cairn_purge *purge = purges ? purges->first : NULL;
        if (purges)
                purges->first = NULL;
        while (purge) {
                struct cairn_purge *next = purge->next;
                if (purge != &purges->resume)
                        purge->on_done(purge, CAIRN_ECANCELLED);
                purge = next;
        }
}

bool cairn_purge_busy(const struct cairn_store *store)
{
        return store->purges && store->purges->executing;
}

static void add(struct cairn_purges *purges, struct cairn_purge *purge)
{
        purge->next = NULL;
        purge->pending = 0;
        purge->waiting = 0;
        *purges->last = purge;
        purges->last = &purge->next;
        cairn_store_wake(purges->store);
}

static void on_refused(void *arg, int status)
{
        struct cairn_purge *purge = arg;
        purge->on_done(purge, status);
}

void cairn_store_purge(struct cairn_store *store, struct cairn_purge *purge)
{
        struct cairn_purges *purges = purges_of(store);
        if (purges && !store->draining && !store->closing) {
                add(purges, purge);
                return;
        }
        struct cairn_op *op = cairn_op_reserved(store);
        op->on_status = on_refused;
        op->arg = purge;
        cairn_op_ready(op, purges ? CAIRN_ECANCELLED : CAIRN_ENOMEM);
}

// ---- after a start ----

struct resuming {
        struct cairn_purges *purges;
        uint32_t space;
        size_t count;
        size_t capacity;
};

static void on_resumed(void *arg, const struct cairn_note *note)
{
        struct resuming *resuming = arg;
        struct cairn_purges *purges = resuming->purges;
        if (note->key_bytes != 5 + CAIRN_KEY_BYTES || note->value_bytes != sizeof(uint64_t))
                return;
        uint32_t space = cairn_get_u32(note->key + 1);
        uint64_t generation = cairn_get_u64(note->value);
        if (resuming->count == 0)
                resuming->space = space;
        if (space != resuming->space || resuming->count == resuming->capacity)
                return; // another round
        memcpy(purges->resumed[resuming->count++].bytes, note->key + 5, CAIRN_KEY_BYTES);
        if (generation > purges->resumed_generation)
                purges->resumed_generation = generation;
}

static void count_note(void *arg, const struct cairn_note *note)
{
        (void)note;
        ++*(size_t *)arg;
}

void cairn_purge_resume(struct cairn_store *store)
{
        size_t count = 0;
        cairn_store_notes_visit(store, CAIRN_NOTE_PURGE, count_note, &count);
        struct cairn_purges *purges = count > 0 ? purges_of(store) : NULL;
        if (!purges)
                return;
        if (purges->resumed_count > 0 && count >= purges->resumed_count)
                return; // the last round removed none: the next start tries again
        purges->resumed_count = count;
        purges->resumed_generation = 0;
        if (count > CAIRN_KEYS_MAX)
                count = CAIRN_KEYS_MAX;
        purges->resumed = calloc(count, sizeof(struct cairn_key) + sizeof(int32_t));
        if (!purges->resumed)
                return; // the next start tries again
        struct resuming resuming = {.purges = purges, .capacity = count};
        cairn_store_notes_visit(store, CAIRN_NOTE_PURGE, on_resumed, &resuming);
        purges->resume = (struct cairn_purge){
            .space = resuming.space,
            .keys = purges->resumed,
            .count = resuming.count,
            .statuses = (int32_t *)(void *)(purges->resumed + count),
        };
        add(purges, &purges->resume);
}
