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
        purges->zeros = aligned_alloc(CAIRN_DEVICE_ALIGN_BYTES, CAIRN_PURGE_ZERO_BYTES);
        purges->headers =
            aligned_alloc(CAIRN_DEVICE_ALIGN_BYTES, CAIRN_PURGE_LANES * CAIRN_DEVICE_ALIGN_BYTES);
        if (!purges->zeros || !purges->headers) {
                free(purges->zeros);
                free(purges->headers);
                free(purges);
                return NULL;
        }
        memset(purges->zeros, 0, CAIRN_PURGE_ZERO_BYTES);
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

// A note that stays names an older generation than any block to come: it does no harm.
static void on_unnoted(void *arg, int status)
{
        struct cairn_purges *purges = arg;
        (void)status; // as above
        purges->first->waiting--;
        cairn_store_wake(purges->store);
}

static void note_set(struct cairn_purges *purges, size_t index, bool keep)
{
        struct cairn_purge *purge = purges->first;
        struct cairn_note note;
        cairn_purge_note_of(purges->store, purge->space, &purge->keys[index], keep, &note);
        purge->waiting++;
        cairn_store_note_set(purges->store, &note, keep ? on_noted : on_unnoted, purges);
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
                    !cairn_victim_of_key(purges, purge->space, &purge->keys[i]))
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
                cairn_victim_free(purges, victim);
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
                if (cairn_purge_zero_step(purges))
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
