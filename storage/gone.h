// What became of blocks that were here: why each of the last ones left, so that a miss can be
// counted by its reason. A fixed table of tags, newer ones over older ones: a key that was
// forgotten, or never here, is "absent". Good for numbers, not for decisions.
// May be used by: storage. Threads: the loop's.
#ifndef CAIRN_GONE_H
#define CAIRN_GONE_H

#include <stdint.h>

#include "proto/audit_record.h"
#include "proto/key.h"

enum {
        CAIRN_GONE_MAX = 65536 // tags of 8 bytes; a power of two
};

struct cairn_gone; // made at the first block that leaves

void cairn_gone_note(struct cairn_gone **gone, uint32_t space, const struct cairn_key *key,
                     enum cairn_audit_reason reason);
// 0: not remembered.
enum cairn_audit_reason cairn_gone_reason(const struct cairn_gone *gone, uint32_t space,
                                          const struct cairn_key *key);
void cairn_gone_destroy(struct cairn_gone *gone); // NULL: fine

#endif
