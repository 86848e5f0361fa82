// The bytes of a block's parts and of a slab's start: written, read and checked.
#include "storage/buffer.h"

#include <assert.h>
#include <string.h>

#include "storage/device.h"

struct part_header {
        uint8_t magic[8];
        uint32_t version;
        uint32_t part;
        uint64_t generation;
        uint64_t layer_bytes;
        uint32_t layers;
        uint32_t tenant;
        uint64_t ttl_ms;
        uint64_t recompute_us;
        uint64_t reserved;
        struct cairn_key key;
        struct cairn_key parent;
        struct cairn_key space;
        struct cairn_checksum table;
        struct cairn_checksum header;
};
static_assert(sizeof(struct part_header) == CAIRN_PART_HEADER_BYTES, "part header");
static_assert(offsetof(struct part_header, generation) == 16, "part header");
static_assert(offsetof(struct part_header, key) == 64, "part header");
static_assert(offsetof(struct part_header, table) == 160, "part header");
static_assert(offsetof(struct part_header, header) == 176, "part header");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bytes on disk are little endian");

struct slab_header {
        uint8_t magic[8];
        uint32_t version;
        uint32_t slab;
        uint64_t slot_bytes;
        uint32_t slots;
        uint32_t layers;
        uint64_t raw_layer_bytes;
        uint64_t code_layer_bytes;
        struct cairn_key space;
        uint32_t space_id;
        uint32_t description_bytes;
        uint64_t reserved;
        uint8_t description[CAIRN_DESCRIPTION_BYTES_MAX];
        uint8_t zeros[3984];
        struct cairn_checksum checksum;
};
static_assert(sizeof(struct slab_header) == CAIRN_SLAB_HEADER_BYTES, "slab header");
static_assert(offsetof(struct slab_header, description) == 96, "slab header");
static_assert(offsetof(struct slab_header, checksum) == 8176, "slab header");

static const uint8_t part_magic[8] = "CRNPART1";
static const uint8_t slab_magic[8] = "CRNSLAB1";

static uint64_t round_up(uint64_t bytes)
{
        return (bytes + CAIRN_DEVICE_ALIGN_BYTES - 1) & ~(uint64_t)(CAIRN_DEVICE_ALIGN_BYTES - 1);
}

int cairn_layout_of(const struct cairn_block_shape *shape, struct cairn_layout *ret_layout)
{
        if (shape->layers == 0 || shape->layers > CAIRN_LAYERS_MAX || shape->raw_layer_bytes == 0)
                return CAIRN_EINVAL;
        uint64_t most = CAIRN_BLOCK_BYTES_MAX / shape->layers;
        if (shape->raw_layer_bytes > most || shape->code_layer_bytes > most)
                return CAIRN_EINVAL;
        struct cairn_layout layout = {.shape = *shape};
        layout.header_bytes = round_up(CAIRN_PART_HEADER_BYTES + 16 * (uint64_t)shape->layers);
        layout.layer_bytes[0] = shape->raw_layer_bytes;
        layout.layer_bytes[1] = shape->code_layer_bytes;
        for (int i = 0; i < CAIRN_PARTS_COUNT; i++) {
                if (layout.layer_bytes[i] == 0)
                        continue;
                layout.part_bytes[i] =
                    layout.header_bytes + round_up(shape->layers * layout.layer_bytes[i]);
                layout.slot_bytes += layout.part_bytes[i];
        }
        *ret_layout = layout;
        return CAIRN_OK;
}

void cairn_part_prepare(const struct cairn_layout *layout, uint32_t part, void *bytes)
{
        assert(layout->part_bytes[part] > 0);
        uint8_t *end = cairn_part_layer(layout, part, bytes, layout->shape.layers);
        memset(bytes, 0, layout->header_bytes);
        memset(end, 0, (size_t)((uint8_t *)bytes + layout->part_bytes[part] - end));
}

void cairn_part_seal(const struct cairn_layout *layout, uint32_t part,
                     const struct cairn_part_identity *identity, void *bytes,
                     struct cairn_checksum *ret_table)
{
        struct part_header header = {
            .version = CAIRN_FORMAT_VERSION,
            .part = part + 1,
            .generation = identity->generation,
            .layer_bytes = layout->layer_bytes[part],
            .layers = layout->shape.layers,
            .tenant = identity->tenant,
            .ttl_ms = identity->ttl_ms,
            .recompute_us = identity->recompute_us,
            .key = identity->key,
            .parent = identity->parent,
            .space = identity->space,
        };
        memcpy(header.magic, part_magic, sizeof(part_magic));
        cairn_checksum_of(cairn_part_checksum(bytes, 0), 16 * (size_t)layout->shape.layers,
                          &header.table);
        cairn_checksum_of(&header, offsetof(struct part_header, header), &header.header);
        memcpy(bytes, &header, sizeof(header));
        *ret_table = header.table;
}

int cairn_part_read(const struct cairn_layout *layout, uint32_t part, const void *bytes,
                    struct cairn_part_identity *ret_identity, struct cairn_checksum *ret_table)
{
        struct part_header header;
        memcpy(&header, bytes, sizeof(header));
        struct cairn_checksum sum;
        if (memcmp(header.magic, part_magic, sizeof(part_magic)) != 0)
                return CAIRN_ECORRUPT;
        cairn_checksum_of(&header, offsetof(struct part_header, header), &sum);
        if (!cairn_checksum_equal(&sum, &header.header))
                return CAIRN_ECORRUPT;
        if (header.version != CAIRN_FORMAT_VERSION)
                return CAIRN_EVERSION;
        if (header.part != part + 1 || header.layers != layout->shape.layers ||
            header.layer_bytes != layout->layer_bytes[part])
                return CAIRN_ECORRUPT;
        cairn_checksum_of(cairn_part_checksum((void *)(uintptr_t)bytes, 0),
                          16 * (size_t)header.layers, &sum);
        if (!cairn_checksum_equal(&sum, &header.table))
                return CAIRN_ECORRUPT;
        *ret_identity = (struct cairn_part_identity){.key = header.key,
                                                     .parent = header.parent,
                                                     .space = header.space,
                                                     .generation = header.generation,
                                                     .ttl_ms = header.ttl_ms,
                                                     .recompute_us = header.recompute_us,
                                                     .tenant = header.tenant};
        *ret_table = header.table;
        return CAIRN_OK;
}

int cairn_part_verify(const struct cairn_layout *layout, uint32_t part, const void *bytes,
                      uint32_t first, uint32_t count)
{
        assert(first <= layout->shape.layers && count <= layout->shape.layers - first);
        void *part_bytes = (void *)(uintptr_t)bytes;
        for (uint32_t layer = first; layer < first + count; layer++) {
                struct cairn_checksum sum;
                cairn_checksum_of(cairn_part_layer(layout, part, part_bytes, layer),
                                  layout->layer_bytes[part], &sum);
                if (memcmp(sum.bytes, cairn_part_checksum(part_bytes, layer), 16) != 0)
                        return CAIRN_ECORRUPT;
        }
        return CAIRN_OK;
}

void cairn_block_checksum_of(const struct cairn_checksum tables[CAIRN_PARTS_COUNT], uint32_t count,
                             struct cairn_checksum *ret_checksum)
{
        cairn_checksum_of(tables, count * sizeof(tables[0]), ret_checksum);
}

void cairn_slab_header_write(const struct cairn_slab_header *header, uint64_t slot_bytes,
                             uint8_t ret_bytes[CAIRN_SLAB_HEADER_BYTES])
{
        assert(header->description_bytes <= CAIRN_DESCRIPTION_BYTES_MAX);
        struct slab_header *out = (struct slab_header *)(void *)ret_bytes;
        memset(out, 0, sizeof(*out));
        memcpy(out->magic, slab_magic, sizeof(slab_magic));
        out->version = CAIRN_FORMAT_VERSION;
        out->slab = header->slab;
        out->slot_bytes = slot_bytes;
        out->slots = header->slots;
        out->layers = header->shape.layers;
        out->raw_layer_bytes = header->shape.raw_layer_bytes;
        out->code_layer_bytes = header->shape.code_layer_bytes;
        out->space = header->space;
        out->space_id = header->space_id;
        out->description_bytes = header->description_bytes;
        if (header->description_bytes > 0)
                memcpy(out->description, header->description, header->description_bytes);
        cairn_checksum_of(out, offsetof(struct slab_header, checksum), &out->checksum);
}

int cairn_slab_header_read(const uint8_t bytes[CAIRN_SLAB_HEADER_BYTES],
                           struct cairn_slab_header *ret_header)
{
        const struct slab_header *in = (const struct slab_header *)(const void *)bytes;
        struct cairn_checksum sum;
        cairn_checksum_of(in, offsetof(struct slab_header, checksum), &sum);
        if (memcmp(in->magic, slab_magic, sizeof(slab_magic)) != 0 ||
            !cairn_checksum_equal(&sum, &in->checksum))
                return CAIRN_ECORRUPT;
        if (in->version != CAIRN_FORMAT_VERSION)
                return CAIRN_EVERSION;
        if (in->description_bytes > CAIRN_DESCRIPTION_BYTES_MAX)
                return CAIRN_ECORRUPT;
        struct cairn_slab_header header = {
            .slab = in->slab,
            .slots = in->slots,
            .space_id = in->space_id,
            .space = in->space,
            .shape = {in->layers, in->raw_layer_bytes, in->code_layer_bytes},
            .description = in->description,
            .description_bytes = in->description_bytes,
        };
        struct cairn_layout layout;
        if (cairn_layout_of(&header.shape, &layout) != CAIRN_OK ||
            layout.slot_bytes != in->slot_bytes)
                return CAIRN_ECORRUPT;
        *ret_header = header;
        return CAIRN_OK;
}
