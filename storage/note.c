// Notes in memory, and on their way into the catalog.
#include "storage/note.h"

#include <stdlib.h>

#include "storage/store_internal.h"

enum {
        BUCKETS = 1024
};

struct cairn_notes {
        struct cairn_note *buckets[BUCKETS];
        struct cairn_link *pending; // on their way
        uint32_t count;             // with those
};

static struct cairn_notes *notes_of(struct cairn_store *store)
{
        if (!store->notes)
                store->notes = calloc(1, sizeof(*store->notes));
        return store->notes;
}

// FNV-1a: keys of notes are few, and no worker's to choose at will.
static struct cairn_note **bucket_of(struct cairn_notes *notes, const void *key, size_t key_bytes)
{
        uint32_t hash = 2166136261u;
        for (size_t i = 0; i < key_bytes; i++)
                hash = (hash ^ ((const uint8_t *)key)[i]) * 16777619u;
        return &notes->buckets[hash % BUCKETS];
}

static struct cairn_note **find(struct cairn_notes *notes, const void *key, size_t key_bytes)
{
        struct cairn_note **at = bucket_of(notes, key, key_bytes);
        while (*at && ((*at)->key_bytes != key_bytes || memcmp((*at)->key, key, key_bytes) != 0))
                at = &(*at)->next;
        return at;
}

// The note takes the place of the one of its key; without a value, of none.
static void apply(struct cairn_notes *notes, struct cairn_note *note)
{
        struct cairn_note **at = find(notes, note->key, note->key_bytes);
        struct cairn_note *old = *at;
        note->next = old ? old->next : NULL;
        notes->count -= old != NULL;
        *at = note;
        if (note->value_bytes == 0) {
                *at = note->next;
                notes->count--;
                free(note);
        }
        free(old);
}

static void on_committed(struct cairn_catalog_op *catalog_op, int status)
{
        struct cairn_op *op = CAIRN_CONTAINER(catalog_op, struct cairn_op, op);
        struct cairn_store *store = op->store;
        struct cairn_note *note = op->op.note;
        op->op.note = NULL;
        store->ops_pending--;
        cairn_link_remove(&note->link);
        if (status == CAIRN_OK) {
                apply(store->notes, note);
        } else {
                store->notes->count--;
                free(note);
        }
        cairn_op_ready(op, status);
}

void cairn_store_note_set(struct cairn_store *store, const struct cairn_note *note,
                          void (*on_set)(void *arg, int status), void *arg)
{
        assert(note->key_bytes > 0 && note->key_bytes <= CAIRN_NOTE_KEY_BYTES_MAX &&
               note->value_bytes <= CAIRN_NOTE_VALUE_BYTES_MAX);
        struct cairn_op *op = cairn_op_reserved(store);
        struct cairn_notes *notes = notes_of(store);
        struct cairn_note *copy = notes ? malloc(sizeof(*copy)) : NULL;
        op->on_status = on_set;
        op->arg = arg;
        if (!copy) {
                cairn_op_ready(op, CAIRN_ENOMEM);
                return;
        }
        if (notes->count >= CAIRN_NOTES_MAX && note->value_bytes > 0) {
                free(copy);
                cairn_op_ready(op, CAIRN_EBUSY);
                return;
        }
        *copy = *note;
        notes->count++;
        cairn_link_add(&notes->pending, &copy->link);
        op->op.kind = CAIRN_CATALOG_NOTE;
        op->op.note = copy;
        op->op.on_done = on_committed;
        store->ops_pending++;
        cairn_catalog_submit(store->catalog, &op->op, false);
}

const struct cairn_note *cairn_store_note_find(const struct cairn_store *store, const void *key,
                                               size_t key_bytes)
{
        return store->notes ? *find(store->notes, key, key_bytes) : NULL;
}

void cairn_store_notes_visit(const struct cairn_store *store, uint8_t first,
                             void (*visit)(void *arg, const struct cairn_note *note), void *arg)
{
        for (uint32_t i = 0; store->notes && i < BUCKETS; i++) {
                const struct cairn_note *note = store->notes->buckets[i];
                for (; note; note = note->next) {
                        if (note->key[0] == first)
                                visit(arg, note);
                }
        }
}

int cairn_note_load(struct cairn_store *store, const struct cairn_note *note)
{
        struct cairn_notes *notes = notes_of(store);
        struct cairn_note *copy = notes ? malloc(sizeof(*copy)) : NULL;
        if (!copy)
                return CAIRN_ENOMEM;
        *copy = *note;
        notes->count++;
        apply(notes, copy);
        return CAIRN_OK;
}

void cairn_notes_finish(struct cairn_store *store)
{
        for (uint32_t i = 0; store->notes && i < BUCKETS; i++) {
                while (store->notes->buckets[i]) {
                        struct cairn_note *note = store->notes->buckets[i];
                        store->notes->buckets[i] = note->next;
                        free(note);
                }
        }
        while (store->notes && store->notes->pending) {
                struct cairn_note *note =
                    CAIRN_CONTAINER(store->notes->pending, struct cairn_note, link);
                cairn_link_remove(&note->link);
                free(note);
        }
        free(store->notes);
        store->notes = NULL;
}
