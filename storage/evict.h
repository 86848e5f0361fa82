// Who leaves a tier next: for each tenant an eviction (proto/eviction.h) over each part in RAM, and
// one for each of its spaces over the blocks on NVMe. The policy behind them is the caller's
// (options.eviction); what may go at all is decided here: pinned, held, unwritten bytes never,
// parents after their children.
//
// May be used by: store_internal.h. Threads: the loop thread.
#ifndef CAIRN_EVICT_H
#define CAIRN_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/audit_record.h"
#include "proto/eviction.h"
#include "storage/heap.h"
#include "storage/ram.h"
#include "storage/store.h"

struct cairn_block;
struct cairn_space_state;
struct cairn_tenant;

// What RAM may give up beside what the policy orders; by use, oldest first.
enum cairn_ram_heap {
        CAIRN_HEAP_COLD = 0, // RAW that came from NVMe, but had rested longer than anything in RAM
        CAIRN_HEAP_REST = 1, // parents of RAW in RAM, then blocks without another copy
        CAIRN_HEAP_COUNT = 2,
};
// A key in them: a class in the upper bits, then the use.
enum {
        CAIRN_KEY_CLASS_SHIFT = 62,
        CAIRN_KEY_PARENT = 1,
        CAIRN_KEY_LAST_COPY = 2
};

// Blocks on NVMe of one space and tenant.
struct cairn_pool {
        struct cairn_eviction eviction;
        struct cairn_space_state *space;
        struct cairn_tenant *tenant;
        struct cairn_pool *next_of_space;
        struct cairn_pool *next_of_tenant;
};

struct cairn_tenant {
        uint32_t tenant;
        uint32_t index;
        struct cairn_quota quota;
        uint64_t ram_bytes;  // of slots that its blocks' parts and ranges have
        uint64_t nvme_bytes; // of slots that its blocks have, bad ones too while it has them
        uint64_t blocks;     // visible
        uint64_t evicted[CAIRN_AUDIT_REASON_COUNT];
        uint64_t demoted;
        uint64_t refused_quota;
        uint64_t refused_admission;
        struct cairn_eviction ram[CAIRN_PARTS_COUNT];
        struct cairn_heap heaps[CAIRN_HEAP_COUNT];
        struct cairn_pool *pools;
        uint32_t evicting;   // evictions from NVMe whose catalog change is under way
        uint32_t waits;      // for RAM
        bool short_of_quota; // the last of them failed for its quota, not for the tier
};

// Why a put was refused for want of room, beyond its status.
enum cairn_refusal {
        CAIRN_REFUSAL_NONE = 0,
        CAIRN_REFUSAL_RAM_QUOTA,
        CAIRN_REFUSAL_NVME_QUOTA,
        CAIRN_REFUSAL_GUARANTEES, // of others leave too little
};
struct cairn_refused {
        struct cairn_tenant *tenant;
        enum cairn_refusal refusal;
        uint32_t space;
        struct cairn_key key;
        uint64_t bytes;
        uint64_t request;
        uint64_t connection;
};

#endif
