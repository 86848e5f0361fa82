// Fuzzes the catalog's records: what reads as a record reads the same after it was written again.
// Checksums are repaired where byte 0 says so: else no input would get behind them.
#include <string.h>

#include "proto/checksum.h"
#include "proto/status.h"
#include "storage/catalog_record.h"
#include "tests/fuzz/fuzz.h"

enum {
        INPUT_BYTES_MAX = CAIRN_RECORD_SPACE_BYTES + CAIRN_RECORD_KEY_BYTES
};

// The checksum of bytes[0, size) goes to the 8 bytes at `to`.
static void repair(const uint8_t *bytes, size_t size, uint8_t *to)
{
        struct cairn_checksum sum;

        cairn_checksum_of(bytes, size, &sum);
        memcpy(to, sum.bytes, 8);
}

static void check_meta(uint8_t *bytes, size_t size, bool repaired)
{
        struct cairn_record_meta meta;
        uint8_t written[CAIRN_RECORD_META_BYTES];

        if (repaired && size == CAIRN_RECORD_META_BYTES)
                repair(bytes, 16, bytes + 16);
        if (cairn_record_meta_read(bytes, size, &meta) != CAIRN_OK)
                return;
        FUZZ_CHECK(cairn_record_meta_write(&meta, written) == size);
        FUZZ_CHECK(memcmp(written, bytes, size) == 0);
}

// The block's key stands before its record.
static void check_block(uint8_t *bytes, size_t size, bool repaired)
{
        struct cairn_catalog_block block;
        struct cairn_catalog_block again;
        uint8_t written[CAIRN_RECORD_BLOCK_BYTES];
        uint8_t key[CAIRN_RECORD_KEY_BYTES];
        uint8_t *record = bytes + sizeof(key);

        if (size < sizeof(key))
                return;
        size -= sizeof(key);
        if (repaired && size == CAIRN_RECORD_BLOCK_BYTES)
                repair(bytes, sizeof(key) + 104, record + 104);
        if (cairn_record_block_read(bytes, sizeof(key), record, size, &block) != CAIRN_OK)
                return;
        cairn_record_key_write(block.space_id, &block.key, key);
        FUZZ_CHECK(memcmp(key, bytes, sizeof(key)) == 0);
        FUZZ_CHECK(cairn_record_block_write(&block, written) == size);
        FUZZ_CHECK(cairn_record_block_read(key, sizeof(key), written, size, &again) == CAIRN_OK);
        FUZZ_CHECK(again.generation == block.generation && again.used == block.used);
        FUZZ_CHECK(again.slab == block.slab && again.slot == block.slot);
        FUZZ_CHECK(cairn_key_equal(&again.parent, &block.parent));
}

static void check_space(uint8_t *bytes, size_t size, bool repaired)
{
        struct cairn_catalog_space space;
        struct cairn_catalog_space again;
        uint8_t written[CAIRN_RECORD_SPACE_BYTES];

        if (repaired && size >= 80)
                repair(bytes, size - 16, bytes + size - 16);
        if (cairn_record_space_read(bytes, size, &space) != CAIRN_OK)
                return;
        FUZZ_CHECK(space.description_bytes <= CAIRN_DESCRIPTION_BYTES_MAX);
        FUZZ_CHECK(cairn_record_space_write(&space, written) == size);
        FUZZ_CHECK(cairn_record_space_read(written, size, &again) == CAIRN_OK);
        FUZZ_CHECK(again.id == space.id && again.description_bytes == space.description_bytes);
        FUZZ_CHECK(memcmp(again.description, space.description, space.description_bytes) == 0);
}

// Byte 0: 0 meta, 1 block, 2 space; from 128 on, the checksum is repaired.
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        static uint8_t copy[INPUT_BYTES_MAX];
        bool repaired;

        if (size < 1 || size - 1 > sizeof(copy))
                return 0;
        repaired = bytes[0] >= 128;
        memcpy(copy, bytes + 1, size - 1);
        if (bytes[0] % 3 == 0)
                check_meta(copy, size - 1, repaired);
        if (bytes[0] % 3 == 1)
                check_block(copy, size - 1, repaired);
        if (bytes[0] % 3 == 2)
                check_space(copy, size - 1, repaired);
        return 0;
}
