// The insides of purging: what purge.c and purge_scan.c share.
// May be used by: storage/purge*.c. Threads: the loop's; the executor's where said.
#ifndef CAIRN_PURGE_INTERNAL_H
#define CAIRN_PURGE_INTERNAL_H

#include "storage/legal.h"
#include "storage/note.h"
#include "storage/purge.h"
#include "storage/store_internal.h"

enum {
        CAIRN_PURGE_LANES = 16, // reads of headers at once
        CAIRN_PURGE_NO_INDEX = UINT32_MAX,
        CAIRN_PURGE_ZERO_BYTES = 1 << 20, // written at once, twice over
};

enum cairn_victim_state {
        CAIRN_VICTIM_HELD = 0, // somebody holds the block, or its delete is on its way
        CAIRN_VICTIM_READY,
        CAIRN_VICTIM_WORKING,
        CAIRN_VICTIM_WRITTEN, // zeros are in RAM and in the slot, not synced
};

// A block on its way out, or (block NULL) a free slot with an old copy, taken meanwhile.
struct cairn_victim {
        struct cairn_victim *next;
        struct cairn_purges *purges;
        struct cairn_block *block;
        struct cairn_key key;
        uint32_t space;
        uint32_t slab; // index; CAIRN_NO_SLAB: it has no slot
        uint32_t slot;
        uint32_t index; // of its key in the request; CAIRN_PURGE_NO_INDEX: that was answered
        enum cairn_victim_state state;
        bool forgetting;
        bool late; // removes its note itself
};

enum cairn_purge_state {
        CAIRN_PURGE_NOTE = 0,
        CAIRN_PURGE_FORGET,
        CAIRN_PURGE_ZERO,
        CAIRN_PURGE_SCAN,
        CAIRN_PURGE_SCRUB,
        CAIRN_PURGE_UNNOTE,
        CAIRN_PURGE_DONE,
};

// A read of a free slot's first bytes. The slot is taken meanwhile.
struct cairn_purge_lane {
        struct cairn_purges *purges;
        uint32_t slab;
        uint32_t slot;
        struct cairn_device_request request;
};

struct cairn_purges {
        struct cairn_store *store;
        struct cairn_purge *first; // the one at work, then those that wait
        struct cairn_purge **last;
        enum cairn_purge_state state;
        int status; // of the one at work
        struct cairn_victim *victims;
        struct cairn_victim *working;
        bool busy;      // `request` or `work` is under way
        bool executing; // `work` is
        uint64_t at_bytes;
        uint64_t left_bytes;
        uint32_t syncing; // slab
        struct cairn_device_request request;
        struct cairn_work work;
        uint8_t *zeros; // owned
        // The scan.
        uint32_t scan_slab;
        uint32_t scan_slot;
        uint32_t *scan_keys; // index + 1 of the request's keys, by hash
        uint32_t scan_mask;
        uint32_t lanes_busy;
        struct cairn_purge_lane lanes[CAIRN_PURGE_LANES];
        uint8_t *headers; // owned: 4096 bytes a lane
        // The scrub.
        uint32_t scrub_segment;
        uint32_t scrub_left;
        struct cairn_ram_slot scrub_slot;
        uint64_t scrub_bytes;
        // What the last run left.
        struct cairn_purge resume;
        struct cairn_key *resumed; // owned
        uint64_t resumed_generation;
        size_t resumed_count; // notes before the last round
};

// purge_zero.c
void cairn_purge_note_of(const struct cairn_store *store, uint32_t space,
                         const struct cairn_key *key, bool keep, struct cairn_note *ret_note);
void cairn_victim_free(struct cairn_purges *purges, struct cairn_victim *victim);
bool cairn_victim_of_key(const struct cairn_purges *purges, uint32_t space,
                         const struct cairn_key *key);
bool cairn_purge_zero_step(struct cairn_purges *purges); // true: something was begun

// purge_scan.c
void cairn_purge_scan_begin(struct cairn_purges *purges);
bool cairn_purge_scan_step(struct cairn_purges *purges);  // false: all is looked at
bool cairn_purge_scrub_step(struct cairn_purges *purges); // the same

#endif
