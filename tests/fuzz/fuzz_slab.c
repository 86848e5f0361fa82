// Fuzzes the first bytes of a slab file and of a slot: what reads as a header has sizes that fit
// together, so that what uses them stays inside the slot. Checksums are repaired, or no input would
// get behind them.
#include <string.h>

#include "proto/status.h"
#include "storage/buffer.h"
#include "tests/fuzz/fuzz.h"

enum {
        TABLE_LAYERS = 4,
        PART_BYTES = 4096
};

static void check_slab(const uint8_t *bytes, size_t size)
{
        _Alignas(64) static uint8_t header[CAIRN_SLAB_HEADER_BYTES];
        _Alignas(64) static uint8_t written[CAIRN_SLAB_HEADER_BYTES];
        struct cairn_slab_header read;
        struct cairn_slab_header again;
        struct cairn_layout layout;

        memset(header, 0, sizeof(header));
        memcpy(header, bytes, size < sizeof(header) ? size : sizeof(header));
        cairn_checksum_of(header, 8176, (struct cairn_checksum *)(void *)(header + 8176));
        if (cairn_slab_header_read(header, &read) != CAIRN_OK)
                return;
        FUZZ_CHECK(cairn_layout_of(&read.shape, &layout) == CAIRN_OK);
        FUZZ_CHECK(layout.slot_bytes >= layout.part_bytes[0] + layout.part_bytes[1]);
        FUZZ_CHECK(layout.part_bytes[0] >=
                   layout.header_bytes + read.shape.layers * layout.layer_bytes[0]);
        FUZZ_CHECK(layout.slot_bytes % 4096 == 0);
        cairn_slab_header_write(&read, layout.slot_bytes, written);
        FUZZ_CHECK(cairn_slab_header_read(written, &again) == CAIRN_OK);
        FUZZ_CHECK(again.slab == read.slab && again.slots == read.slots);
        FUZZ_CHECK(memcmp(again.description, read.description, read.description_bytes) == 0);
}

// A part of four small layers: 192 bytes of header, the table, zeros, then the layers.
static void check_part(const uint8_t *bytes, size_t size)
{
        struct cairn_block_shape shape = {TABLE_LAYERS, 512, 0};
        _Alignas(64) static uint8_t part[2 * PART_BYTES];
        struct cairn_part_identity identity;
        struct cairn_checksum table;
        struct cairn_layout layout;

        FUZZ_CHECK(cairn_layout_of(&shape, &layout) == CAIRN_OK);
        FUZZ_CHECK(layout.part_bytes[0] <= sizeof(part));
        memset(part, 0, sizeof(part));
        memcpy(part, bytes, size < sizeof(part) ? size : sizeof(part));
        cairn_checksum_of(part + 192, 16 * TABLE_LAYERS,
                          (struct cairn_checksum *)(void *)(part + 160));
        cairn_checksum_of(part, 176, (struct cairn_checksum *)(void *)(part + 176));
        if (cairn_part_read(&layout, 0, part, &identity, &table) != CAIRN_OK)
                return;
        if (cairn_part_verify(&layout, 0, part, 0, TABLE_LAYERS) != CAIRN_OK)
                return;
        cairn_part_seal(&layout, 0, &identity, part, &table);
        FUZZ_CHECK(cairn_part_read(&layout, 0, part, &identity, &table) == CAIRN_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        if (size < 1)
                return 0;
        if (bytes[0] & 1)
                check_part(bytes + 1, size - 1);
        else
                check_slab(bytes + 1, size - 1);
        return 0;
}
