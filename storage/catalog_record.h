// The bytes of the catalog's records. Four LMDB databases:
//   meta    "format" -> meta record, "audit" -> audit record
//   spaces  u32 id   -> space record
//   blocks  space id (u32, big endian), key (32 bytes) -> block record
//   audit_tail  sequence of the first (u64, of this machine) -> 1 to 63 records of the audit, one
//               after the other, proto/audit_record.h: those that are not in its files yet
// Every record but those of the audit ends with the first 8 bytes of the XXH3-128 of its key and of
// what stands before.
//
// Meta record, 24 bytes (little endian, as all below):
//   offset  size  field
//        0     8  magic            "CRNCATLG"
//        8     4  format version   CAIRN_FORMAT_VERSION
//       12     4  openings         how often the store was opened: generations of one opening begin
//       at openings << 40 16     8  checksum
// Block record, 112 bytes:
//        0     8  generation
//        8     8  used             order of use
//       16     8  time to live     ms, 0: for ever
//       24     8  recompute cost   us
//       32     4  slab             number
//       36     4  slot
//       40     4  tenant
//       44     4  reserved         0
//       48    32  parent key
//       80    16  checksum         of the block: XXH3-128 of its tables' checksums
//       96     8  reserved         0
//      104     8  checksum         of the record
// Space record, 80 + n bytes:
//        0     4  id
//        4     4  description bytes n
//        8     4  layers
//       12     4  reserved         0
//       16     8  raw layer bytes
//       24     8  code layer bytes
//       32    32  fingerprint
//       64     n  description
//     64+n     8  checksum
//     72+n     8  zeros
// Audit record, 48 bytes: the end of the audit's chain
//        0     8  count            of records so far; the next one's sequence
//        8    32  digest           of the last
//       40     8  checksum
// Used by: storage/catalog.c, tests.
#ifndef CAIRN_CATALOG_RECORD_H
#define CAIRN_CATALOG_RECORD_H

#include "proto/audit_record.h"
#include "storage/catalog.h"

enum {
        CAIRN_RECORD_META_BYTES = 24,
        CAIRN_RECORD_KEY_BYTES = 36,
        CAIRN_RECORD_AUDIT_BYTES = 48,
        CAIRN_RECORD_BLOCK_BYTES = 112,
        CAIRN_RECORD_SPACE_BYTES = 80 + CAIRN_DESCRIPTION_BYTES_MAX, // at most
};

struct cairn_record_meta {
        uint32_t version;
        uint32_t openings;
};

// The writers return the bytes written; the readers CAIRN_ECORRUPT, or CAIRN_EVERSION with ret_meta
// filled.
size_t cairn_record_meta_write(const struct cairn_record_meta *meta, uint8_t *ret_bytes);
int cairn_record_meta_read(const void *bytes, size_t size, struct cairn_record_meta *ret_meta);

void cairn_record_key_write(uint32_t space_id, const struct cairn_key *key,
                            uint8_t ret_bytes[CAIRN_RECORD_KEY_BYTES]);
size_t cairn_record_block_write(const struct cairn_catalog_block *block, uint8_t *ret_bytes);
int cairn_record_block_read(const void *key, size_t key_size, const void *bytes, size_t size,
                            struct cairn_catalog_block *ret_block);

size_t cairn_record_audit_write(const struct cairn_audit_end *end, uint8_t *ret_bytes);
int cairn_record_audit_read(const void *bytes, size_t size, struct cairn_audit_end *ret_end);

// ret_space->description points into `bytes`.
size_t cairn_record_space_write(const struct cairn_catalog_space *space, uint8_t *ret_bytes);
int cairn_record_space_read(const void *bytes, size_t size, struct cairn_catalog_space *ret_space);

#endif
