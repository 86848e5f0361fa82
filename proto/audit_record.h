// A record of the audit: what was removed, refused or changed, why, by which policy. The bytes of a
// record, and the chain of digests that makes a change of any record show.
//
// Records are CAIRN_AUDIT_RECORD_BYTES each, one after the other, so a file can be read from any
// multiple. Each carries the digest of the one before and its own (BLAKE2b-256 over all bytes
// before it). A changed, removed, inserted or moved record breaks the chain; records cut off at the
// end do not, unless the last digest and sequence were kept elsewhere (the daemon keeps them in the
// catalog). Who can rewrite the whole log and that anchor can forge both: the chain has no secret.
//
// Pure; threads: any. May be used by: all folders. Little endian:
//
//   offset size field
//        0    4 magic "CAU1"
//        4    2 version, 1
//        6    1 action (enum cairn_audit_action)
//        7    1 reason (enum cairn_audit_reason)
//        8    8 sequence: 0 for the first of a log, then one more each
//       16    8 wall time, ms since 1970
//       24    4 tenant (its number; a uid where no name is configured)
//       28    4 space
//       32   32 the block's key; zero where the record is about a context or a quota
//       64    8 context; 0: none
//       72    2 layer        74  2 KV head; 0xffff: all of them
//       76    4 count of tokens, rows or blocks
//       80    8 bytes freed, refused, or the new quota
//       88    8 score of what was removed (f64)
//       96   32 four numbers behind the decision (f64 each); README of the policy names them
//      128   16 the policy's name, padded with zeros
//      144    8 request id       152  8 connection that caused it; 0: the daemon itself
//      160    1 tier it left     161  1 tier it went to (enum Tier); 0: none
//      162   30 zero
//      192   32 digest of the record before; zero for the first of a log
//      224   32 digest of bytes 0..223
#ifndef CAIRN_AUDIT_RECORD_H
#define CAIRN_AUDIT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/key.h"

enum {
        CAIRN_AUDIT_RECORD_BYTES = 256,
        CAIRN_AUDIT_VERSION = 1,
        CAIRN_AUDIT_NUMBERS = 4,
        CAIRN_AUDIT_POLICY_BYTES_MAX = 15,
        CAIRN_AUDIT_ALL = 0xffff, // layer or head: all of them
};

// Part of the disk format: only added to.
enum cairn_audit_action {
        CAIRN_AUDIT_EVICT = 1,  // a block left the last local tier
        CAIRN_AUDIT_DEMOTE = 2, // bytes moved to a slower tier
        CAIRN_AUDIT_DROP = 3,   // rows inside blocks deleted for good
        CAIRN_AUDIT_DELETE = 4, // asked for by a worker or an operator
        CAIRN_AUDIT_PURGE = 5,  // deleted and overwritten in every tier
        CAIRN_AUDIT_REFUSE = 6, // a request was refused by quota, hold or permission
        CAIRN_AUDIT_QUOTA = 7,  // a quota changed
        CAIRN_AUDIT_HOLD = 8,   // a legal hold was set or lifted
        CAIRN_AUDIT_RETAIN = 9, // a retention chose what stays
        CAIRN_AUDIT_BEGIN = 10, // a new file or a restart: the chain goes on
        CAIRN_AUDIT_LOST = 11,  // `count` records could not be kept: too many at once, or no disk
        CAIRN_AUDIT_ACTION_COUNT = 12,
};
enum cairn_audit_reason {
        CAIRN_AUDIT_CAPACITY = 1, // the tier was full
        CAIRN_AUDIT_OVER_QUOTA = 2,
        CAIRN_AUDIT_EXPIRED = 3, // its time to live ended
        CAIRN_AUDIT_REQUEST = 4, // somebody asked
        CAIRN_AUDIT_CORRUPT = 5, // its bytes failed their checksum
        CAIRN_AUDIT_RETENTION = 6,
        CAIRN_AUDIT_ADMISSION = 7, // not used often enough for the tier
        CAIRN_AUDIT_LEGAL_HOLD = 8,
        CAIRN_AUDIT_PERMISSION = 9,
        CAIRN_AUDIT_PINNED = 10,
        CAIRN_AUDIT_STARTED = 11,
        CAIRN_AUDIT_DEVICE = 12,  // the device failed or went away
        CAIRN_AUDIT_STOPPED = 13, // the daemon stopped, and memory alone had it
        CAIRN_AUDIT_REASON_COUNT = 14,
};

struct cairn_audit_record {
        enum cairn_audit_action action;
        enum cairn_audit_reason reason;
        uint64_t sequence;
        uint64_t time_ms;
        uint32_t tenant;
        uint32_t space;
        struct cairn_key key;
        uint64_t context;
        uint16_t layer;
        uint16_t head;
        uint32_t count;
        uint64_t bytes;
        double score;
        double numbers[CAIRN_AUDIT_NUMBERS];
        char policy[CAIRN_AUDIT_POLICY_BYTES_MAX + 1];
        uint64_t request;
        uint64_t connection;
        uint8_t tier_from;
        uint8_t tier_to;
};

// The end of a chain: what the next record continues. Zero: an empty log.
struct cairn_audit_end {
        uint64_t count; // records so far; the next one's sequence
        struct cairn_key digest;
};

// Writes the record that follows `end` (record->sequence is ignored) and moves `end` on.
void cairn_audit_append(struct cairn_audit_end *end, const struct cairn_audit_record *record,
                        uint8_t ret_bytes[CAIRN_AUDIT_RECORD_BYTES]);

// Reads one record on its own. CAIRN_EPROTO: no record; CAIRN_EVERSION: of another version;
// CAIRN_ECORRUPT: its digest does not fit its bytes. ret_record is untouched then.
int cairn_audit_read(const uint8_t bytes[CAIRN_AUDIT_RECORD_BYTES],
                     struct cairn_audit_record *ret_record);

// Checks `count` records that follow `end` and moves it past the good ones: end->count and digest
// then say how far the chain holds. CAIRN_OK; else as cairn_audit_read, or CAIRN_EMISMATCH: a good
// record that does not follow the one before (something is missing, inserted or moved).
int cairn_audit_verify(struct cairn_audit_end *end, const uint8_t *bytes, size_t count);

// The chain's end after this record, to go on in the middle of a log. CAIRN_EPROTO as above.
int cairn_audit_end_after(const uint8_t bytes[CAIRN_AUDIT_RECORD_BYTES],
                          struct cairn_audit_end *ret_end);

// The chain's end before this record, at its word: for the oldest record that is left of a log.
void cairn_audit_end_before(const uint8_t bytes[CAIRN_AUDIT_RECORD_BYTES],
                            struct cairn_audit_end *ret_end);
// And after it, though it may be damaged: to go on behind it.
void cairn_audit_end_behind(const uint8_t bytes[CAIRN_AUDIT_RECORD_BYTES],
                            struct cairn_audit_end *end);

// Which records somebody asks for. Zeroed: all of them.
struct cairn_audit_filter {
        uint64_t since_ms;
        uint64_t until_ms;      // 0: no end
        const uint32_t *tenant; // the caller's, as all below; NULL: any
        const uint32_t *space;
        const struct cairn_key *key;
        const uint64_t *context;
        int action; // 0: any
        int reason;
};
// On the bytes as they are: a record that matches may still be damaged.
bool cairn_audit_matches(const uint8_t bytes[CAIRN_AUDIT_RECORD_BYTES],
                         const struct cairn_audit_filter *filter);

// Words for people and for --reason; never NULL. parse: 0 when unknown.
const char *cairn_audit_action_name(int action);
const char *cairn_audit_reason_name(int reason);
int cairn_audit_action_parse(const char *name);
int cairn_audit_reason_parse(const char *name);

#endif
