// Spaces by number.
#include "daemon/space_table.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/status.h"
#include "storage/legal.h"

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

// Walls by construction: without the tenant, the stored fingerprint is another one.
static void stored_fingerprint(struct cairn_space_entry *entry)
{
        struct cairn_key_hash hash;

        entry->stored = entry->fingerprint;
        if (!entry->owned)
                return;
        cairn_key_hash_init(&hash, "cairn stored space 1");
        cairn_key_hash_field(&hash, 2, entry->fingerprint.bytes, sizeof(entry->fingerprint.bytes));
        cairn_key_hash_u64(&hash, 3, entry->tenant);
        cairn_key_hash_finish(&hash, &entry->stored);
}

int cairn_space_entry_init(const struct cairn_space *space, uint32_t tenant,
                           struct cairn_space_entry *ret_entry, char *ret_text)
{
        int status = cairn_space_check(space, ret_text, CAIRN_TEXT_BYTES_MAX);

        if (status != CAIRN_OK)
                return status;
        *ret_entry = (struct cairn_space_entry){
            .space = *space, .owned = space->shared == 0, .tenant = tenant};
        cairn_space_fingerprint(space, &ret_entry->fingerprint);
        stored_fingerprint(ret_entry);
        ret_entry->block_bytes = cairn_space_block_bytes(space);
        if (space->kind == CAIRN_SPACE_ATTENTION)
                return init_attention(ret_entry, ret_text);
        ret_entry->shape =
            (struct cairn_block_shape){.layers = 1, .raw_layer_bytes = ret_entry->block_bytes};
        return CAIRN_OK;
}

bool cairn_space_entry_visible(const struct cairn_space_entry *entry, uint32_t tenant)
{
        return entry->space.shared != 0 || (entry->owned && entry->tenant == tenant);
}

const struct cairn_space_entry *cairn_space_table_find_old(const struct cairn_space_table *table,
                                                           const struct cairn_key *fingerprint,
                                                           uint32_t tenant)
{
        for (uint32_t i = 0; i < table->count; i++) {
                const struct cairn_space_entry *entry = table->entries[i];

                if (entry->owned && entry->tenant == tenant &&
                    cairn_key_equal(&entry->stored, fingerprint))
                        return entry;
        }
        return NULL;
}

bool cairn_space_table_has(const struct cairn_space_table *table, const struct cairn_key *stored)
{
        for (uint32_t i = 0; i < table->count; i++)
                if (cairn_key_equal(&table->entries[i]->stored, stored))
                        return true;
        return false;
}

uint32_t cairn_space_table_count(const struct cairn_space_table *table, uint32_t tenant)
{
        uint32_t count = 0;

        for (uint32_t i = 0; i < table->count; i++)
                count += table->entries[i]->tenant == tenant;
        for (const struct cairn_space_opening *at = table->openings; at; at = at->next)
                count += at->tenant == tenant;
        return count;
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
                assert(cairn_key_equal(&known->stored, &entry->stored));
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

int cairn_space_describe(const struct cairn_space_entry *entry, uint8_t **ret_bytes,
                         size_t *ret_size)
{
        Cairn__StoredSpace stored = CAIRN__STORED_SPACE__INIT;
        Cairn__Space message;
        uint8_t *bytes;
        size_t size;

        cairn_codec_space_to(&entry->space, &message);
        stored.space = &message;
        stored.owned = entry->owned;
        stored.tenant = entry->tenant;
        size = cairn_codec_size(&stored);
        bytes = malloc(size);
        if (!bytes)
                return CAIRN_ENOMEM;
        cairn_codec_pack(&stored, bytes);
        *ret_bytes = bytes;
        *ret_size = size;
        return CAIRN_OK;
}

// The disk is hostile too: a description must give back the fingerprint and the shape that it was
// stored under.
static int read_description(const struct cairn_store_space_info *info,
                            struct cairn_space_entry *ret_entry)
{
        struct cairn_codec_arena arena;
        struct cairn_space space;
        Cairn__StoredSpace *stored;
        char text[CAIRN_TEXT_BYTES_MAX];
        int status;

        cairn_codec_arena_init(&arena, CAIRN_DECODE_BYTES_MAX);
        status =
            cairn_codec_stored_space(info->description, info->description_bytes, &arena, &stored);
        if (status == CAIRN_OK)
                status =
                    stored->space ? cairn_codec_space_from(stored->space, &space) : CAIRN_EINVAL;
        if (status == CAIRN_OK)
                status = cairn_space_entry_init(&space, stored->tenant, ret_entry, text);
        if (status == CAIRN_OK && !space.shared && !stored->owned) {
                ret_entry->owned = false; // from before spaces had tenants
                ret_entry->stored = ret_entry->fingerprint;
        }
        cairn_codec_arena_finish(&arena);
        return status;
}

static int load_one(struct cairn_space_table *table, const struct cairn_store *store,
                    const struct cairn_store_space_info *info)
{
        struct cairn_space_entry entry;
        const struct cairn_space_entry *added;
        int status = read_description(info, &entry);

        if (status != CAIRN_OK)
                return status;
        if (!entry.space.shared && !entry.owned)
                entry.owned = cairn_store_space_tenant(store, info->id, &entry.tenant);
        if (!cairn_key_equal(&entry.stored, &info->fingerprint) ||
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
                if (load_one(table, store, &info) != CAIRN_OK)
                        refused++;
        }
        return refused;
}
