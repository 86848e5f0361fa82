// Spaces by number.
#include "daemon/space_table.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/status.h"

void cairn_space_table_finish(struct cairn_space_table *table)
{
        for (uint32_t i = 0; i < table->count; i++)
                free(table->entries[i]);
        table->count = 0;
}

static bool has_codec(uint32_t codec)
{
        return codec == CAIRN_ROW_Q8 || codec == CAIRN_ROW_Q4;
}

static int init_attention(struct cairn_space_entry *entry, char *ret_text)
{
        const struct cairn_space *space = &entry->space;
        struct cairn_landmark_shape shape;

        cairn_landmark_shape_from_space(space, &shape);
        if (cairn_landmark_layout_init(&shape, &entry->layout) != CAIRN_OK) {
                (void)snprintf(ret_text, CAIRN_TEXT_BYTES_MAX,
                               "space: no code layout for k_dim %u, v_dim %u, landmark_bits %u, "
                               "outliers %u, run_tokens %u, value_bits %u; run_tokens must be "
                               "block_tokens, or a multiple of 32 below it",
                               space->k_dim, space->v_dim, space->landmark_bits, space->outliers,
                               space->run_tokens, space->value_bits);
                return CAIRN_EINVAL;
        }
        entry->shape = (struct cairn_block_shape){
            .layers = space->layers,
            .raw_layer_bytes = cairn_space_layer_bytes(space),
            .code_layer_bytes = (uint64_t)space->kv_heads * entry->layout.total_bytes,
        };
        entry->code_bytes = entry->shape.code_layer_bytes * space->layers;
        entry->needs_raw = space->landmark_bits == 0 || entry->layout.total_bytes == 0 ||
                           !has_codec(space->k_codec) ||
                           (space->v_dim > 0 && !has_codec(space->v_codec));
        return CAIRN_OK;
}

int cairn_space_entry_init(const struct cairn_space *space, struct cairn_space_entry *ret_entry,
                           char *ret_text)
{
        int status = cairn_space_check(space, ret_text, CAIRN_TEXT_BYTES_MAX);

        if (status != CAIRN_OK)
                return status;
        *ret_entry = (struct cairn_space_entry){.space = *space};
        cairn_space_fingerprint(space, &ret_entry->fingerprint);
        ret_entry->block_bytes = cairn_space_block_bytes(space);
        if (space->kind == CAIRN_SPACE_ATTENTION)
                return init_attention(ret_entry, ret_text);
        ret_entry->shape =
            (struct cairn_block_shape){.layers = 1, .raw_layer_bytes = ret_entry->block_bytes};
        return CAIRN_OK;
}

const struct cairn_space_entry *cairn_space_table_find(const struct cairn_space_table *table,
                                                       uint32_t id)
{
        for (uint32_t i = 0; i < table->count; i++)
                if (table->entries[i]->id == id)
                        return table->entries[i];
        return NULL;
}

int cairn_space_table_add(struct cairn_space_table *table, const struct cairn_space_entry *entry,
                          uint32_t id, const struct cairn_space_entry **ret_entry)
{
        const struct cairn_space_entry *known = cairn_space_table_find(table, id);
        struct cairn_space_entry *copy;

        if (known) {
                assert(cairn_key_equal(&known->fingerprint, &entry->fingerprint));
                *ret_entry = known;
                return CAIRN_OK;
        }
        if (table->count == CAIRN_SPACES_MAX)
                return CAIRN_EBUSY;
        copy = malloc(sizeof(*copy));
        if (!copy)
                return CAIRN_ENOMEM;
        *copy = *entry;
        copy->id = id;
        copy->index = table->count;
        table->entries[table->count++] = copy;
        *ret_entry = copy;
        return CAIRN_OK;
}

// A description is an OpenSpace request that names the space alone.
int cairn_space_describe(const struct cairn_space *space, uint8_t **ret_bytes, size_t *ret_size)
{
        Cairn__OpenSpaceRequest request = CAIRN__OPEN_SPACE_REQUEST__INIT;
        Cairn__Space message;
        uint8_t *bytes;
        size_t size;

        cairn_codec_space_to(space, &message);
        request.space = &message;
        size = cairn_codec_size(&request);
        bytes = malloc(size);
        if (!bytes)
                return CAIRN_ENOMEM;
        cairn_codec_pack(&request, bytes);
        *ret_bytes = bytes;
        *ret_size = size;
        return CAIRN_OK;
}

// The disk is hostile too: a description must give back the fingerprint and the shape that it was
// stored under.
static int load_one(struct cairn_space_table *table, const struct cairn_store_space_info *info)
{
        struct cairn_codec_arena arena;
        struct cairn_space_entry entry;
        const struct cairn_space_entry *added;
        struct cairn_space space;
        char text[CAIRN_TEXT_BYTES_MAX];
        void *message;
        int status;

        cairn_codec_arena_init(&arena, CAIRN_DECODE_BYTES_MAX);
        status = cairn_codec_unpack(CAIRN_KIND_OPEN_SPACE, false, 0, info->description,
                                    info->description_bytes, &arena, &message);
        if (status == CAIRN_OK) {
                const Cairn__OpenSpaceRequest *request = message;

                status =
                    request->space ? cairn_codec_space_from(request->space, &space) : CAIRN_EINVAL;
        }
        cairn_codec_arena_finish(&arena);
        if (status == CAIRN_OK)
                status = cairn_space_entry_init(&space, &entry, text);
        if (status != CAIRN_OK)
                return status;
        if (!cairn_key_equal(&entry.fingerprint, &info->fingerprint) ||
            entry.shape.layers != info->shape.layers ||
            entry.shape.raw_layer_bytes != info->shape.raw_layer_bytes ||
            entry.shape.code_layer_bytes != info->shape.code_layer_bytes)
                return CAIRN_EMISMATCH;
        return cairn_space_table_add(table, &entry, info->id, &added);
}

uint32_t cairn_space_table_load(struct cairn_space_table *table, const struct cairn_store *store)
{
        uint32_t refused = 0;

        for (size_t i = 0; i < cairn_store_spaces_count(store); i++) {
                struct cairn_store_space_info info;

                cairn_store_space_info(store, i, &info);
                if (load_one(table, &info) != CAIRN_OK)
                        refused++;
        }
        return refused;
}
