// What the store has under way: puts, callbacks, loads, ranges, waits. Each embeds the requests
// that it makes, stays where it is until they have ended, and is in a list of its kind, so that it
// is found when the store ends in between.
//
// May be used by: store_internal.h. Threads: the loop thread, except where said.
#ifndef CAIRN_WORK_H
#define CAIRN_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/buffer.h"
#include "storage/catalog.h"
#include "storage/device.h"
#include "storage/ram.h"
#include "storage/store.h"

#define CAIRN_CONTAINER(pointer, type, member) \
        ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

// A place in a list of all of a kind, by which they are found when the store ends in the middle of
// work.
struct cairn_link {
        struct cairn_link *next;
        struct cairn_link **from;
};
static inline void cairn_link_add(struct cairn_link **list, struct cairn_link *link)
{
        link->next = *list;
        link->from = list;
        if (link->next)
                link->next->from = &link->next;
        *list = link;
}
static inline void cairn_link_remove(struct cairn_link *link)
{
        *link->from = link->next;
        if (link->next)
                link->next->from = link->from;
}

// A block being written: from put_begin until it is committed, or written back.
struct cairn_put {
        struct cairn_link link; // of all
        struct cairn_store *store;
        struct cairn_block *block;
        struct cairn_put *next;            // of the queue that it is in
        struct cairn_put *next_same;       // of the puts' hash
        struct cairn_put_begin *followers; // puts of the same key that wait for this one
        void (*on_committed)(void *arg, int status);
        void *arg;
        enum cairn_ack ack;
        bool active;  // in the hash
        bool settled; // committed or aborted: nobody fills it any more
        uint32_t attempts;
        uint32_t refusal;
        int write_status; // of an attempt that left it in RAM
        uint64_t ttl_ms;
        uint64_t recompute_us;
        uint64_t written_ms;
        uint64_t request_id; // who asked
        uint64_t connection_id;
        struct cairn_checksum checksum;
        struct cairn_device_request request;
        struct cairn_catalog_op op;
};

// A callback to come, and the catalog change that leads to it.
struct cairn_op {
        struct cairn_link link; // of all that are out
        struct cairn_op *next;
        struct cairn_store *store;
        void (*on_status)(void *arg, int status);
        void (*on_space)(void *arg, int status, uint32_t space);
        void *arg;
        int status;
        uint32_t value;
        struct cairn_tenant *tenant; // of a refusal
        uint32_t refusal;            // why, where the status is CAIRN_ENOSPC
        bool evicting;
        struct cairn_block *block;
        struct cairn_catalog_op op;
        struct cairn_device_request request; // files that recovery removes
};

// A part on its way from its slot to RAM.
struct cairn_load {
        struct cairn_store *store;
        struct cairn_block *block;
        uint32_t part;
        uint32_t attempts;
        int status;
        struct cairn_load *next; // of the verified
        struct cairn_link link;  // of all under way
        struct cairn_device_request request;
        struct cairn_work work;
        struct cairn_part_identity identity;
        struct cairn_checksum table;
};

// Layers on their way from a slot, or read: they have memory of their own.
struct cairn_range_load {
        struct cairn_link link; // of all
        struct cairn_store *store;
        struct cairn_block *block;
        struct cairn_range *range; // NULL: nobody waits for it any more
        struct cairn_ram_slot
            slot; // the part's header, then whole pages around the layers; none: pinned instead
        uint64_t bytes;  // of the slot
        uint8_t *layers; // of layer `first`
        uint32_t part;
        uint32_t first;
        uint32_t count;
        uint32_t pending; // requests
        int status;
        bool done;
        struct cairn_range_load *next;
        const struct cairn_layout *layout;
        struct cairn_part_identity identity;
        struct cairn_device_request requests[2];
        struct cairn_work work;
};

// A wait for RAM, in order of arrival.
struct cairn_wait {
        struct cairn_wait *next;
        struct cairn_tenant *tenant; // whose quota it takes from
        uint64_t since_ms;
        struct cairn_put_begin *begin; // one of them
        struct cairn_acquire *acquire;
        struct cairn_range *range;
};

#endif
