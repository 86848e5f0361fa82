// The bytes of a block in memory, as they lie in its slot: for each part a header, then its layers.
// A part can be written, read and verified alone, without the catalog. Also the first bytes of a
// slab file.
//
// May be used by: storage, tests. May use: proto. Threads: any; pure.
//
// A slot is [RAW part][CODE part, if the space has one]; each part is a multiple of 4096 bytes,
// zero padded:
//   offset  size  field            (little endian)
//        0     8  magic            "CRNPART1"
//        8     4  format version   CAIRN_FORMAT_VERSION
//       12     4  part             1 RAW, 2 CODE
//       16     8  generation
//       24     8  layer bytes
//       32     4  layers
//       36     4  tenant
//       40     8  time to live     ms, 0: for ever
//       48     8  recompute cost   us, 0: unknown
//       56     8  reserved         0
//       64    32  key
//       96    32  parent key       zeros: a root
//      128    32  space            fingerprint
//      160    16  table checksum   XXH3-128 of the table at 192
//      176    16  header checksum  XXH3-128 of bytes 0 to 175
//      192  16*n  table            XXH3-128 of each layer
//   then zeros up to a multiple of 4096, then the layers, then zeros up to a multiple of 4096
#ifndef CAIRN_BUFFER_H
#define CAIRN_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/checksum.h"
#include "proto/key.h"
#include "storage/store.h"

enum {
        CAIRN_FORMAT_VERSION = 1,
        CAIRN_PART_HEADER_BYTES = 192,
        CAIRN_SLAB_HEADER_BYTES = 8192,
        CAIRN_DESCRIPTION_BYTES_MAX = 4096,
        CAIRN_PARTS_COUNT = 2,
};

// Sizes that follow from a shape. Index 0 is RAW, 1 is CODE (all zero when the space has none).
struct cairn_layout {
        struct cairn_block_shape shape;
        uint64_t header_bytes; // of each part: offset of layer 0
        uint64_t layer_bytes[CAIRN_PARTS_COUNT];
        uint64_t part_bytes[CAIRN_PARTS_COUNT];
        uint64_t slot_bytes;
};

// CAIRN_EINVAL: no layers, too many, no raw bytes, or a slot above CAIRN_BLOCK_BYTES_MAX twice
// over.
int cairn_layout_of(const struct cairn_block_shape *shape, struct cairn_layout *ret_layout);

// What a part's header says beside its sizes.
struct cairn_part_identity {
        struct cairn_key key;
        struct cairn_key parent;
        struct cairn_key space;
        uint64_t generation;
        uint64_t ttl_ms;
        uint64_t recompute_us;
        uint32_t tenant;
};

static inline uint8_t *cairn_part_layer(const struct cairn_layout *layout, uint32_t part,
                                        void *bytes, uint32_t layer)
{
        return (uint8_t *)bytes + layout->header_bytes + layer * layout->layer_bytes[part];
}
// The 16 bytes of the table for one layer.
static inline uint8_t *cairn_part_checksum(void *bytes, uint32_t layer)
{
        return (uint8_t *)bytes + CAIRN_PART_HEADER_BYTES + 16 * (size_t)layer;
}

// Zeroes the header and the padding of a part that is about to be filled.
void cairn_part_prepare(const struct cairn_layout *layout, uint32_t part, void *bytes);
// Writes the header over a filled table. ret_table: the table's checksum.
void cairn_part_seal(const struct cairn_layout *layout, uint32_t part,
                     const struct cairn_part_identity *identity, void *bytes,
                     struct cairn_checksum *ret_table);
// Header alone: magic, version, checksums, sizes. CAIRN_ECORRUPT, CAIRN_EVERSION.
int cairn_part_read(const struct cairn_layout *layout, uint32_t part, const void *bytes,
                    struct cairn_part_identity *ret_identity, struct cairn_checksum *ret_table);
// Layers [first, first + count) against the table.
int cairn_part_verify(const struct cairn_layout *layout, uint32_t part, const void *bytes,
                      uint32_t first, uint32_t count);
// The block's checksum, as the catalog keeps it: of the tables' checksums.
void cairn_block_checksum_of(const struct cairn_checksum tables[CAIRN_PARTS_COUNT], uint32_t count,
                             struct cairn_checksum *ret_checksum);

// The start of a slab file, 8192 bytes, so that a directory can be read without its catalog:
//   offset  size  field            (little endian)
//        0     8  magic            "CRNSLAB1"
//        8     4  format version
//       12     4  slab             number, as in the file's name
//       16     8  slot bytes
//       24     4  slots
//       28     4  layers
//       32     8  raw layer bytes
//       40     8  code layer bytes
//       48    32  space            fingerprint
//       80     4  space id
//       84     4  description bytes <= 4096
//       88     8  reserved         0
//       96  4096  description      zero padded
//     8176    16  checksum         XXH3-128 of bytes 0 to 8175
struct cairn_slab_header {
        uint32_t slab;
        uint32_t slots;
        uint32_t space_id;
        struct cairn_key space;
        struct cairn_block_shape shape;
        const void *description; // read: points into the bytes
        uint32_t description_bytes;
};
void cairn_slab_header_write(const struct cairn_slab_header *header, uint64_t slot_bytes,
                             uint8_t ret_bytes[CAIRN_SLAB_HEADER_BYTES]);
int cairn_slab_header_read(const uint8_t bytes[CAIRN_SLAB_HEADER_BYTES],
                           struct cairn_slab_header *ret_header);

#endif
