// Spaces: found by fingerprint, made durably before anybody learns of them.
#include <stdlib.h>

#include "storage/store_internal.h"

struct cairn_space_state *cairn_space_by_id(const struct cairn_store *store, uint32_t id)
{
        struct cairn_space_state *space = NULL;
        if (id > 0 && id <= store->spaces_count && store->spaces[id - 1]->id == id)
                space = store->spaces[id - 1];
        for (uint32_t i = 0; !space && i < store->spaces_count; i++) {
                if (store->spaces[i]->id == id)
                        space = store->spaces[i];
        }
        return space && space->committed ? space : NULL;
}

struct cairn_space_state *cairn_space_by_fingerprint(const struct cairn_store *store,
                                                     const struct cairn_key *fingerprint)
{
        for (uint32_t i = 0; i < store->spaces_count; i++) {
                if (cairn_key_equal(&store->spaces[i]->fingerprint, fingerprint))
                        return store->spaces[i];
        }
        return NULL;
}

int cairn_space_add(struct cairn_store *store, const struct cairn_catalog_space *record,
                    struct cairn_space_state **ret_space)
{
        if (store->spaces_count >= CAIRN_SPACES_MAX)
                return CAIRN_EBUSY;
        struct cairn_space_state *space = calloc(1, sizeof(*space));
        if (!space)
                return CAIRN_ENOMEM;
        int status = cairn_layout_of(&record->shape, &space->layout);
        space->description = malloc(record->description_bytes + 1);
        if (status == CAIRN_OK && !space->description)
                status = CAIRN_ENOMEM;
        if (status != CAIRN_OK) {
                free(space->description);
                free(space);
                return status;
        }
        if (record->description_bytes > 0)
                memcpy(space->description, record->description, record->description_bytes);
        space->description_bytes = record->description_bytes;
        space->fingerprint = record->fingerprint;
        space->id = record->id;
        space->index = (uint16_t)store->spaces_count;
        space->write_last = &space->write_first;
        store->spaces[store->spaces_count++] = space;
        *ret_space = space;
        return CAIRN_OK;
}

void cairn_spaces_finish(struct cairn_store *store)
{
        for (uint32_t i = 0; i < store->spaces_count; i++) {
                cairn_evict_pools_finish(store->spaces[i]);
                free(store->spaces[i]->description);
                free(store->spaces[i]);
        }
        store->spaces_count = 0;
}

static bool same_shape(const struct cairn_block_shape *a, const struct cairn_block_shape *b)
{
        return a->layers == b->layers && a->raw_layer_bytes == b->raw_layer_bytes &&
               a->code_layer_bytes == b->code_layer_bytes;
}

// A space that could not be recorded stays, invisible, for the next attempt: indexes do not move.
static void on_space_recorded(struct cairn_catalog_op *catalog_op, int status)
{
        struct cairn_op *op = CAIRN_CONTAINER(catalog_op, struct cairn_op, op);
        struct cairn_store *store = op->store;
        struct cairn_space_state *space =
            cairn_space_by_fingerprint(store, &op->op.space.fingerprint);
        assert(space && !space->committed);
        store->ops_pending--;
        struct cairn_op *follower = space->followers;
        space->followers = NULL;
        space->committed = status == CAIRN_OK;
        space->recording = false;
        uint32_t id = space->id;
        op->value = id;
        cairn_op_ready(op, status);
        while (follower) {
                struct cairn_op *next = follower->next;
                follower->value = id;
                cairn_op_ready(follower, status);
                follower = next;
        }
}

static int open_space(struct cairn_store *store, struct cairn_op *op)
{
        const struct cairn_catalog_space *record = &op->op.space;
        struct cairn_space_state *space = cairn_space_by_fingerprint(store, &record->fingerprint);
        if (space && !same_shape(&space->layout.shape, &record->shape))
                return CAIRN_EMISMATCH;
        if (space && space->committed) {
                op->value = space->id;
                return CAIRN_OK;
        }
        if (space && space->recording) {
                op->next = space->followers;
                space->followers = op;
                return CAIRN_EAGAIN;
        }
        if (store->draining || store->closing)
                return CAIRN_ECANCELLED;
        if (!space) {
                op->op.space.id = 1;
                for (uint32_t i = 0; i < store->spaces_count; i++) {
                        if (store->spaces[i]->id >= op->op.space.id)
                                op->op.space.id = store->spaces[i]->id + 1;
                }
                int status = cairn_space_add(store, record, &space);
                if (status != CAIRN_OK)
                        return status;
        }
        space->recording = true;
        op->op.kind = CAIRN_CATALOG_SPACE;
        op->op.space.id = space->id;
        op->op.space.description = space->description;
        op->op.on_done = on_space_recorded;
        store->ops_pending++;
        cairn_catalog_submit(store->catalog, &op->op, false);
        return CAIRN_EAGAIN;
}

void cairn_store_space_open(struct cairn_store *store, const struct cairn_key *fingerprint,
                            const struct cairn_block_shape *shape, const void *description,
                            size_t description_bytes,
                            void (*on_open)(void *arg, int status, uint32_t space), void *arg)
{
        struct cairn_op *op = cairn_op_reserved(store);
        op->on_space = on_open;
        op->arg = arg;
        op->op.space = (struct cairn_catalog_space){
            .description_bytes = (uint32_t)description_bytes,
            .fingerprint = *fingerprint,
            .shape = *shape,
            .description = description,
        };
        struct cairn_layout layout;
        int status = cairn_layout_of(shape, &layout);
        if (description_bytes > CAIRN_DESCRIPTION_BYTES_MAX)
                status = CAIRN_EINVAL;
        if (status == CAIRN_OK)
                status = open_space(store, op);
        if (status != CAIRN_EAGAIN)
                cairn_op_ready(op, status);
}

size_t cairn_store_spaces_count(const struct cairn_store *store)
{
        return store->spaces_count;
}

void cairn_store_space_info(const struct cairn_store *store, size_t index,
                            struct cairn_store_space_info *ret_info)
{
        assert(index < store->spaces_count);
        const struct cairn_space_state *space = store->spaces[index];
        *ret_info = (struct cairn_store_space_info){
            .id = space->id,
            .fingerprint = space->fingerprint,
            .shape = space->layout.shape,
            .description = space->description,
            .description_bytes = space->description_bytes,
            .blocks = space->blocks,
            .ram_bytes = space->ram_bytes,
            .nvme_bytes = space->nvme_bytes,
        };
}

void cairn_block_shape(const struct cairn_store *store, const struct cairn_block *block,
                       struct cairn_block_shape *ret_shape)
{
        *ret_shape = cairn_block_space(store, block)->layout.shape;
}
