// Records of the catalog, written and read.
#include "storage/catalog_record.h"

#include <assert.h>
#include <string.h>

#include "proto/bytes.h"
#include "proto/status.h"

enum {
        SUM_BYTES = 8,
        SPACE_FIXED_BYTES = 64
};
static_assert(CAIRN_RECORD_BLOCK_BYTES == 104 + SUM_BYTES, "block record");
static_assert(CAIRN_RECORD_META_BYTES == 16 + SUM_BYTES, "meta record");
static_assert(CAIRN_RECORD_AUDIT_BYTES == 8 + CAIRN_KEY_BYTES + SUM_BYTES, "audit record");
static_assert(CAIRN_RECORD_KEY_BYTES == 4 + CAIRN_KEY_BYTES, "block key");

static const uint8_t meta_magic[8] = "CRNCATLG";

// The key is hashed with the value, so that a record under another key fails.
static void sum_of(const void *key, size_t key_size, const uint8_t *bytes, size_t size,
                   uint8_t ret_sum[SUM_BYTES])
{
        uint8_t both[CAIRN_RECORD_KEY_BYTES + CAIRN_RECORD_SPACE_BYTES];
        struct cairn_checksum sum;
        assert(key_size + size <= sizeof(both));
        if (key_size > 0)
                memcpy(both, key, key_size);
        memcpy(both + key_size, bytes, size);
        cairn_checksum_of(both, key_size + size, &sum);
        memcpy(ret_sum, sum.bytes, SUM_BYTES);
}

static bool sum_is(const void *key, size_t key_size, const uint8_t *bytes, size_t size)
{
        uint8_t sum[SUM_BYTES];
        sum_of(key, key_size, bytes, size, sum);
        return memcmp(sum, bytes + size, SUM_BYTES) == 0;
}

size_t cairn_record_meta_write(const struct cairn_record_meta *meta, uint8_t *ret_bytes)
{
        memcpy(ret_bytes, meta_magic, sizeof(meta_magic));
        cairn_put_u32(ret_bytes + 8, meta->version);
        cairn_put_u32(ret_bytes + 12, meta->openings);
        sum_of(NULL, 0, ret_bytes, 16, ret_bytes + 16);
        return CAIRN_RECORD_META_BYTES;
}

int cairn_record_meta_read(const void *bytes, size_t size, struct cairn_record_meta *ret_meta)
{
        const uint8_t *in = bytes;
        if (size != CAIRN_RECORD_META_BYTES || memcmp(in, meta_magic, sizeof(meta_magic)) != 0 ||
            !sum_is(NULL, 0, in, 16))
                return CAIRN_ECORRUPT;
        ret_meta->version = cairn_get_u32(in + 8);
        ret_meta->openings = cairn_get_u32(in + 12);
        return ret_meta->version == CAIRN_FORMAT_VERSION ? CAIRN_OK : CAIRN_EVERSION;
}

void cairn_record_key_write(uint32_t space_id, const struct cairn_key *key,
                            uint8_t ret_bytes[CAIRN_RECORD_KEY_BYTES])
{
        cairn_put_u32(ret_bytes, htobe32(space_id));
        memcpy(ret_bytes + 4, key->bytes, CAIRN_KEY_BYTES);
}

size_t cairn_record_block_write(const struct cairn_catalog_block *block, uint8_t *ret_bytes)
{
        uint8_t key[CAIRN_RECORD_KEY_BYTES];
        memset(ret_bytes, 0, CAIRN_RECORD_BLOCK_BYTES);
        cairn_put_u64(ret_bytes, block->generation);
        cairn_put_u64(ret_bytes + 8, block->used);
        cairn_put_u64(ret_bytes + 16, block->ttl_ms);
        cairn_put_u64(ret_bytes + 24, block->recompute_us);
        cairn_put_u32(ret_bytes + 32, block->slab);
        cairn_put_u32(ret_bytes + 36, block->slot);
        cairn_put_u32(ret_bytes + 40, block->tenant);
        memcpy(ret_bytes + 48, block->parent.bytes, CAIRN_KEY_BYTES);
        memcpy(ret_bytes + 80, block->checksum.bytes, sizeof(block->checksum.bytes));
        cairn_record_key_write(block->space_id, &block->key, key);
        sum_of(key, sizeof(key), ret_bytes, 104, ret_bytes + 104);
        return CAIRN_RECORD_BLOCK_BYTES;
}

int cairn_record_block_read(const void *key, size_t key_size, const void *bytes, size_t size,
                            struct cairn_catalog_block *ret_block)
{
        const uint8_t *in = bytes;
        if (key_size != CAIRN_RECORD_KEY_BYTES || size != CAIRN_RECORD_BLOCK_BYTES ||
            !sum_is(key, key_size, in, 104))
                return CAIRN_ECORRUPT;
        *ret_block = (struct cairn_catalog_block){
            .generation = cairn_get_u64(in),
            .used = cairn_get_u64(in + 8),
            .ttl_ms = cairn_get_u64(in + 16),
            .recompute_us = cairn_get_u64(in + 24),
            .slab = cairn_get_u32(in + 32),
            .slot = cairn_get_u32(in + 36),
            .tenant = cairn_get_u32(in + 40),
            .space_id = be32toh(cairn_get_u32(key)),
        };
        memcpy(ret_block->key.bytes, (const uint8_t *)key + 4, CAIRN_KEY_BYTES);
        memcpy(ret_block->parent.bytes, in + 48, CAIRN_KEY_BYTES);
        memcpy(ret_block->checksum.bytes, in + 80, sizeof(ret_block->checksum.bytes));
        return CAIRN_OK;
}

size_t cairn_record_audit_write(const struct cairn_audit_end *end, uint8_t *ret_bytes)
{
        cairn_put_u64(ret_bytes, end->count);
        memcpy(ret_bytes + 8, end->digest.bytes, CAIRN_KEY_BYTES);
        sum_of(NULL, 0, ret_bytes, 8 + CAIRN_KEY_BYTES, ret_bytes + 8 + CAIRN_KEY_BYTES);
        return CAIRN_RECORD_AUDIT_BYTES;
}

int cairn_record_audit_read(const void *bytes, size_t size, struct cairn_audit_end *ret_end)
{
        const uint8_t *in = bytes;
        if (size != CAIRN_RECORD_AUDIT_BYTES || !sum_is(NULL, 0, in, 8 + CAIRN_KEY_BYTES))
                return CAIRN_ECORRUPT;
        ret_end->count = cairn_get_u64(in);
        memcpy(ret_end->digest.bytes, in + 8, CAIRN_KEY_BYTES);
        return CAIRN_OK;
}

size_t cairn_record_space_write(const struct cairn_catalog_space *space, uint8_t *ret_bytes)
{
        size_t n = space->description_bytes;
        assert(n <= CAIRN_DESCRIPTION_BYTES_MAX);
        memset(ret_bytes, 0, SPACE_FIXED_BYTES + n + 16);
        cairn_put_u32(ret_bytes, space->id);
        cairn_put_u32(ret_bytes + 4, (uint32_t)n);
        cairn_put_u32(ret_bytes + 8, space->shape.layers);
        cairn_put_u64(ret_bytes + 16, space->shape.raw_layer_bytes);
        cairn_put_u64(ret_bytes + 24, space->shape.code_layer_bytes);
        memcpy(ret_bytes + 32, space->fingerprint.bytes, CAIRN_KEY_BYTES);
        if (n > 0)
                memcpy(ret_bytes + SPACE_FIXED_BYTES, space->description, n);
        sum_of(NULL, 0, ret_bytes, SPACE_FIXED_BYTES + n, ret_bytes + SPACE_FIXED_BYTES + n);
        return SPACE_FIXED_BYTES + n + 16;
}

int cairn_record_space_read(const void *bytes, size_t size, struct cairn_catalog_space *ret_space)
{
        const uint8_t *in = bytes;
        if (size < SPACE_FIXED_BYTES + 16 || size > CAIRN_RECORD_SPACE_BYTES)
                return CAIRN_ECORRUPT;
        uint32_t n = cairn_get_u32(in + 4);
        if (n != size - SPACE_FIXED_BYTES - 16 || !sum_is(NULL, 0, in, SPACE_FIXED_BYTES + n))
                return CAIRN_ECORRUPT;
        *ret_space = (struct cairn_catalog_space){
            .id = cairn_get_u32(in),
            .description_bytes = n,
            .shape = {cairn_get_u32(in + 8), cairn_get_u64(in + 16), cairn_get_u64(in + 24)},
            .description = in + SPACE_FIXED_BYTES,
        };
        memcpy(ret_space->fingerprint.bytes, in + 32, CAIRN_KEY_BYTES);
        return CAIRN_OK;
}
