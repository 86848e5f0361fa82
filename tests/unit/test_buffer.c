// Bytes of parts and slab starts: written, read, and refused when any byte differs.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"
#include "storage/buffer.h"

static struct cairn_layout layout_of(uint32_t layers, uint64_t raw, uint64_t code)
{
        struct cairn_block_shape shape = {layers, raw, code};
        struct cairn_layout layout;
        cr_assert_eq(cairn_layout_of(&shape, &layout), CAIRN_OK);
        return layout;
}

Test(buffer, sizes_follow_from_the_shape)
{
        struct cairn_layout layout = layout_of(3, 5000, 100);
        cr_assert_eq(layout.header_bytes, 4096);
        cr_assert_eq(layout.part_bytes[0], 4096 + 16384);
        cr_assert_eq(layout.part_bytes[1], 4096 + 4096);
        cr_assert_eq(layout.slot_bytes, layout.part_bytes[0] + layout.part_bytes[1]);
        layout = layout_of(256, 4096, 0);
        cr_assert_eq(layout.header_bytes, 8192);
        cr_assert_eq(layout.part_bytes[1], 0);
        const struct cairn_block_shape bad[] = {{0, 1, 0},
                                                {257, 1, 0},
                                                {1, 0, 5},
                                                {1, CAIRN_BLOCK_BYTES_MAX + 1, 0},
                                                {2, 1, UINT64_MAX}};
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                cr_assert_eq(cairn_layout_of(&bad[i], &layout), CAIRN_EINVAL);
}

Test(buffer, every_byte_of_a_part_is_guarded)
{
        struct cairn_layout layout = layout_of(2, 300, 40);
        struct cairn_part_identity identity = {.generation = 77,
                                               .ttl_ms = 5,
                                               .recompute_us = 6,
                                               .tenant = 8},
                                   found;
        memset(&identity.key, 1, sizeof(identity.key));
        memset(&identity.parent, 2, sizeof(identity.parent));
        memset(&identity.space, 3, sizeof(identity.space));
        uint8_t *bytes = aligned_alloc(4096, layout.part_bytes[1]);
        memset(bytes, 0xee, layout.part_bytes[1]);
        cairn_part_prepare(&layout, 1, bytes);
        for (uint32_t layer = 0; layer < 2; layer++) {
                struct cairn_checksum sum;
                memset(cairn_part_layer(&layout, 1, bytes, layer), (int)layer + 1, 40);
                cairn_checksum_of(cairn_part_layer(&layout, 1, bytes, layer), 40, &sum);
                memcpy(cairn_part_checksum(bytes, layer), sum.bytes, 16);
        }
        struct cairn_checksum table, read;
        cairn_part_seal(&layout, 1, &identity, bytes, &table);
        cr_assert_eq(cairn_part_read(&layout, 1, bytes, &found, &read), CAIRN_OK);
        cr_assert_eq(memcmp(&identity.key, &found.key, sizeof(found.key)), 0);
        cr_assert_eq(memcmp(&identity.parent, &found.parent, sizeof(found.parent)), 0);
        cr_assert_eq(memcmp(&identity.space, &found.space, sizeof(found.space)), 0);
        cr_assert_eq(found.generation, 77);
        cr_assert_eq(found.ttl_ms, 5);
        cr_assert_eq(found.recompute_us, 6);
        cr_assert_eq(found.tenant, 8);
        cr_assert(cairn_checksum_equal(&table, &read));
        cr_assert_eq(cairn_part_verify(&layout, 1, bytes, 0, 2), CAIRN_OK);
        for (size_t i = 0; i < CAIRN_PART_HEADER_BYTES + 32; i++) {
                bytes[i] ^= 1;
                cr_assert_neq(cairn_part_read(&layout, 1, bytes, &found, &read), CAIRN_OK,
                              "byte %zu", i);
                bytes[i] ^= 1;
        }
        for (size_t i = layout.header_bytes; i < layout.header_bytes + 80; i++) {
                bytes[i] ^= 1;
                cr_assert_eq(cairn_part_verify(&layout, 1, bytes, 0, 2), CAIRN_ECORRUPT);
                uint32_t other = i < layout.header_bytes + 40 ? 1 : 0;
                cr_assert_eq(cairn_part_verify(&layout, 1, bytes, other, 1), CAIRN_OK);
                bytes[i] ^= 1;
        }
        for (size_t i = layout.header_bytes + 80; i < layout.part_bytes[1]; i++)
                cr_assert_eq(bytes[i], 0, "padding is zero");
        cr_assert_eq(cairn_part_read(&layout, 0, bytes, &found, &read), CAIRN_ECORRUPT,
                     "the other part's header");
        free(bytes);
}

Test(buffer, slab_start_says_all_of_its_space)
{
        struct cairn_layout layout = layout_of(4, 1000, 0);
        struct cairn_slab_header header = {.slab = 9,
                                           .slots = 12,
                                           .space_id = 3,
                                           .shape = layout.shape,
                                           .description = "words",
                                           .description_bytes = 5};
        struct cairn_slab_header read;
        memset(&header.space, 4, sizeof(header.space));
        uint8_t *bytes = aligned_alloc(4096, CAIRN_SLAB_HEADER_BYTES);
        cairn_slab_header_write(&header, layout.slot_bytes, bytes);
        cr_assert_eq(cairn_slab_header_read(bytes, &read), CAIRN_OK);
        cr_assert(read.slab == 9 && read.slots == 12 && read.space_id == 3 &&
                  read.shape.layers == 4);
        cr_assert_eq(memcmp(read.description, "words", 5), 0);
        for (size_t i = 0; i < CAIRN_SLAB_HEADER_BYTES; i += 7) {
                bytes[i] ^= 0x10;
                cr_assert_neq(cairn_slab_header_read(bytes, &read), CAIRN_OK, "byte %zu", i);
                bytes[i] ^= 0x10;
        }
        free(bytes);
}
