// The store's insides, shared by the files that make it: table, space, slab, evict, put, writer,
// reader, recover, store. A block is found in the table; its bytes lie in a slot of a slab, in RAM,
// or both.
//
// May be used by: storage, tests that look inside. Threads: the loop thread, except where said.
#ifndef CAIRN_STORE_INTERNAL_H
#define CAIRN_STORE_INTERNAL_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/admission.h"
#include "proto/audit_record.h"
#include "storage/buffer.h"
#include "storage/catalog.h"
#include "storage/device.h"
#include "storage/evict.h"
#include "storage/gone.h"
#include "storage/heap.h"
#include "storage/ram.h"
#include "storage/store.h"
#include "storage/work.h"

enum {
        CAIRN_NO_SLAB = UINT32_MAX,
        CAIRN_PART_COUNT = CAIRN_PARTS_COUNT,
        CAIRN_CHAIN_MAX = 65536,    // ancestors that are looked at
        CAIRN_WAITING_MAX = 65536,  // puts and acquires that wait for RAM
        CAIRN_EVICT_BATCH_MAX = 64, // blocks that one shortage of slots evicts
        CAIRN_WRITE_ATTEMPTS_MAX = 2,
        CAIRN_WRITE_AGE_MS =
            2, // longest wait of a written block for others' writes before the data sync
        CAIRN_NVME_ERRORS_MAX = 8,  // failures in a row after which NVMe counts as failed
        CAIRN_NVME_RETRY_MS = 1000, // between attempts to write what stayed in RAM
        CAIRN_QUOTA_WAIT_MS = 5000, // for room in a tenant's own quota
        CAIRN_TICK_MS = 10,         // while something waits for the clock
        CAIRN_OPS_RESERVE = 64,
        CAIRN_BLOCKS_RESERVE = 64,
        CAIRN_POLL_ROUNDS_MAX = 64,
};

// ---- the block table ----

enum cairn_block_flag {
        CAIRN_BLOCK_GHOST = 1 << 0,       // a parent that is not here: counts children alone
        CAIRN_BLOCK_VISIBLE = 1 << 1,     // in the table
        CAIRN_BLOCK_STORED = 1 << 2,      // its slot holds it, committed
        CAIRN_BLOCK_DIRTY = 1 << 3,       // on its way to a slot
        CAIRN_BLOCK_RAM_ONLY = 1 << 4,    // could not be, or was not worth being, written
        CAIRN_BLOCK_STALE = 1 << 5,       // was visible, is no more
        CAIRN_BLOCK_RECORD = 1 << 6,      // a catalog record of it was submitted
        CAIRN_BLOCK_CHILD = 1 << 7,       // counted in its parent's children
        CAIRN_BLOCK_CHILD_RAM = 1 << 8,   // counted in its parent's children_ram
        CAIRN_BLOCK_BAD_SLOT = 1 << 9,    // its slot is not to be used again
        CAIRN_BLOCK_LIVE = 1 << 10,       // the entry is in use
        CAIRN_BLOCK_RAW = 1 << 13,        // its RAW is ready in RAM
        CAIRN_BLOCK_LEGAL = 1 << 11,      // under a legal hold: is not evicted, does not expire
        CAIRN_BLOCK_PURGE = 1 << 12,      // its bytes are overwritten before it ends
        CAIRN_BLOCK_UNADMITTED = 1 << 14, // RAM_ONLY, since it was not used often enough
        CAIRN_BLOCK_MAY_GO = 1 << 15,     // its pool's policy may choose it: spares looking there
};

// An entry. One million of them are to fit in 160 MB with the table's index. Look-ups and holds
// need the first 64 bytes alone.
struct cairn_block {
        struct cairn_key key;
        uint64_t expires_ms; // 0: never
        uint32_t holds;
        uint32_t refs : 31;  // the store's own: loads, writes, catalog changes
        uint32_t pooled : 1; // its node is in a pool: spares looking there
        uint32_t children;   // visible blocks and puts that name it as parent
        uint32_t heap;       // place in store->expiries
        uint32_t id;         // place in the table's entries
        uint16_t space;      // index in store->spaces
        uint16_t flags;
        struct cairn_resident *resident; // NULL: nothing in RAM
        struct cairn_key parent;         // zero: a root
        uint64_t generation;
        uint64_t used; // order of use, by the store's counter
        uint32_t slab; // index in store->slabs; CAIRN_NO_SLAB
        uint32_t slot;
        uint32_t tenant;
        uint32_t owner;            // index in store->tenants
        uint32_t children_ram;     // of the children, those with RAW in RAM
        uint32_t children_visible; // of the children, those that are no puts any more
};
static_assert(offsetof(struct cairn_block, resident) == 64, "one cache line's worth for look-ups");
static_assert(sizeof(struct cairn_block) <= 144, "a block costs at most 160 bytes with its index");

struct cairn_table {
        struct cairn_block **chunks; // owned
        uint32_t chunks_count;
        uint32_t chunks_capacity;
        uint32_t free_first; // entry id + 1; linked through `heap`
        uint32_t free_count;
        uint32_t groups_from; // chunks from this one on are allocated in groups
        uint32_t *index;      // entry id + 1 below, bits of the hash above; open addressing
        uint32_t index_mask;
        uint32_t index_count;
        uint32_t id_bits;
        uint64_t seed;
        uint64_t secrets[4]; // made of the seed
};

// A search for many keys in order. The table must not change until it ends.
enum {
        CAIRN_SEARCH_GROUP = 16
};
struct cairn_table_search {
        const struct cairn_table *table;
        const struct cairn_key *keys; // the caller's
        size_t count;
        size_t done;
        size_t base; // where the groups under way begin
        struct cairn_block *last;
        uint32_t run; // so many entries, up to the last, lay one behind the other
        bool follows; // the next is looked for behind the last
        uint64_t hashes[2 * CAIRN_SEARCH_GROUP];
        struct cairn_block *blocks[2 * CAIRN_SEARCH_GROUP];
        uint16_t space;
};

int cairn_table_init(struct cairn_table *table, uint64_t expected_count, uint64_t seed);
void cairn_table_finish(struct cairn_table *table);
// A fresh entry outside the index. NULL: no memory. `reserve`: may take the last ones (ghosts).
struct cairn_block *cairn_table_entry(struct cairn_table *table, bool reserve);
// For a start: makes the entries with ids below `count`, to be taken by id in any order, each once.
// What is taken so is on the list of free ones until relist, before which nothing else is taken.
int cairn_table_prepare(struct cairn_table *table, uint32_t count);
struct cairn_block *cairn_table_entry_at(struct cairn_table *table, uint32_t id);
void cairn_table_relist(struct cairn_table *table);
void cairn_table_entry_free(struct cairn_table *table, struct cairn_block *block);
struct cairn_block *cairn_table_at(const struct cairn_table *table, uint32_t id);
uint32_t cairn_table_entries(const struct cairn_table *table); // ids are below this
// With ghosts. NULL if absent.
struct cairn_block *cairn_table_find(const struct cairn_table *table, uint16_t space,
                                     const struct cairn_key *key);
void cairn_table_search_init(struct cairn_table_search *search, const struct cairn_table *table,
                             uint16_t space, const struct cairn_key *keys, size_t count);
// What find gives for the next key. There must be one.
struct cairn_block *cairn_table_search_next(struct cairn_table_search *search);
// What look-ups and holds need, and `resident` behind it.
static inline void cairn_block_prefetch(const struct cairn_block *block)
{
        __builtin_prefetch(block, 1);
        __builtin_prefetch(&block->resident, 1);
}
int cairn_table_reserve(struct cairn_table *table, uint32_t more); // room for so many inserts
void cairn_table_insert(struct cairn_table *table, struct cairn_block *block); // the key is absent
void cairn_table_remove(struct cairn_table *table, struct cairn_block *block);
// `block` takes the place and the children of the ghost of its key, which is freed.
void cairn_table_replace(struct cairn_table *table, struct cairn_block *ghost,
                         struct cairn_block *block);

// ---- RAM ----

enum cairn_part_state {
        CAIRN_PART_NONE = 0,
        CAIRN_PART_LOADING,
        CAIRN_PART_READY
};

// One part of a block in RAM.
struct cairn_part_ram {
        struct cairn_ram_slot slot;
        struct cairn_eviction_node node; // while READY
        uint32_t pins;
        uint32_t heap;   // place in the tenant's heaps[heap_of]
        uint8_t heap_of; // enum cairn_ram_heap
        uint8_t state;
};

// What a block has in RAM. `space` and a pinned part's slot are read by any thread.
struct cairn_resident {
        const struct cairn_space_state *space;
        struct cairn_block *block;
        struct cairn_part_ram parts[CAIRN_PART_COUNT];
        struct cairn_acquire *waiters; // for loads
        bool cold;                     // used less often than what RAM holds: the first to go
        bool fresh;                    // loaded, and not used since
};

// ---- spaces and slabs ----

enum cairn_slab_state {
        CAIRN_SLAB_FREE = 0,
        CAIRN_SLAB_CREATING,
        CAIRN_SLAB_OPEN,
        CAIRN_SLAB_REMOVING
};

struct cairn_slab {
        enum cairn_slab_state state;
        uint32_t number;
        uint32_t directory;
        uint32_t slots;
        uint32_t free_count;
        uint32_t bad_count;
        uint32_t hint; // word of the bitmap to look at first
        uint16_t space;
        bool sync_wanted;
        int sync_status;
        int file;
        uint64_t size_bytes;
        uint64_t *taken; // bitmap, owned
        uint8_t *header; // while creating
        struct cairn_store *store;
        struct cairn_device_request request; // create, remove, sync
};

struct cairn_space_state {
        uint32_t id;
        uint16_t index;
        struct cairn_key fingerprint;
        struct cairn_layout layout;
        void *description; // owned
        uint32_t description_bytes;
        bool committed;
        bool recording;             // its record is on its way
        struct cairn_op *followers; // opened meanwhile
        uint64_t blocks;
        uint64_t ram_bytes;
        uint64_t nvme_bytes;
        uint64_t free_slots;
        uint32_t creating;        // slabs under way
        uint32_t evicting;        // evictions whose catalog change is under way
        struct cairn_pool *pools; // one a tenant that has blocks in it
        struct cairn_put *write_first;
        struct cairn_put **write_last;
        uint32_t write_count;
};

enum {
        CAIRN_PUTS_HASH = 4096
};

struct cairn_store {
        struct cairn_store_options options;
        char *directories[CAIRN_STORE_DIRECTORIES_MAX];
        int locks[CAIRN_STORE_DIRECTORIES_MAX];
        struct cairn_device *device;
        bool device_owned;
        struct cairn_catalog *catalog;
        struct cairn_ram *ram;
        struct cairn_table table;
        struct cairn_space_state **spaces;
        uint32_t spaces_count;
        struct cairn_notes *notes;     // NULL: none yet
        struct cairn_legal *legal;     // NULL: no hold yet
        struct cairn_purges *purges;   // NULL: none yet
        struct cairn_tenant **tenants; // [CAIRN_TENANTS_MAX], in order of arrival
        uint32_t tenants_count;
        struct cairn_slab **slabs;
        uint32_t slabs_count;
        uint32_t slab_number; // next
        uint64_t slab_bytes_total;
        uint64_t generation;
        uint64_t used;
        struct cairn_eviction_node **node_chunks; // of blocks, by id
        uint32_t node_chunks_count;
        void *admission;            // its state
        struct cairn_heap expiries; // visible blocks that will expire, by when
        bool quotas_lowered;        // a tenant has more than it may
        const char *refusal;        // why, while a callback runs that brings CAIRN_ENOSPC
        char refusal_text[CAIRN_TEXT_BYTES_MAX];

        int epoll_fd;
        int wake_fd;
        int timer_fd;
        bool woken;         // there is something to do
        bool signalled;     // and wake_fd says so
        uint64_t timer_for; // when the timer rings; UINT64_MAX: it ticks; 0: never
        bool polling;
        bool draining;
        bool closing;
        bool slabs_refused; // by a directory that has gone or is read-only: nothing is written
        bool full;          // the disk refused a slab: no more until something was freed
        bool ram_short;     // somebody waits for RAM, and nothing can be dropped
        uint64_t retry_ms;
        uint64_t full_ms;
        uint32_t errors_in_row;
        bool warned_full;

        struct cairn_put *puts[CAIRN_PUTS_HASH];
        uint32_t puts_active;
        uint32_t writes_queued;
        uint32_t writes_inflight;
        struct cairn_put *written_first;
        struct cairn_put **written_last;
        struct cairn_put *syncing;
        uint32_t syncs_inflight;
        uint32_t commits_inflight;
        uint32_t ram_only;
        uint64_t io_pending; // requests at the device, of any kind
        uint64_t ops_pending;

        struct cairn_wait *wait_first;
        struct cairn_wait **wait_last;
        uint32_t wait_count;
        uint32_t deadlines; // requests that wait and have one
        uint32_t followers; // of these, those that wait for another's put
        uint64_t deadlines_checked_ms;

        // Callbacks to run at the end of a poll.
        struct cairn_acquire *ready_acquires;
        struct cairn_acquire **ready_acquires_last;
        struct cairn_put_begin *ready_begins;
        struct cairn_put_begin **ready_begins_last;
        struct cairn_op *ready_ops;
        struct cairn_op **ready_ops_last;
        struct cairn_load *verified;
        struct cairn_link *loads;
        struct cairn_link *ranges;
        uint64_t range_bytes; // of their slots
        struct cairn_range_load *ranges_verified;
        struct cairn_range *ready_ranges;
        struct cairn_range **ready_ranges_last;
        struct cairn_link *all_puts;
        struct cairn_link *all_ops;
        struct cairn_op *free_ops;
        uint32_t free_ops_count;

        void (*on_drained)(void *arg, int status);
        void *on_drained_arg;
        uint64_t drain_deadline_ms;

        struct cairn_store_stats stats;
        struct cairn_gone *gone;
        uint32_t reads_inflight;
        uint64_t reads_since_ms; // when the first of them began
};

// Options of tests: a device of their own, a catalog that runs inside poll, a fixed seed of the
// table.
struct cairn_store_internal {
        struct cairn_device *device; // the caller's; NULL: a real one
        bool catalog_inline;
        bool catalog_no_sync;
        int (*on_catalog_fault)(void *arg);
        void *on_catalog_fault_arg;
        uint64_t seed; // 0: from the system
};
int cairn_store_open_with(const struct cairn_store_options *options,
                          const struct cairn_store_internal *internal,
                          struct cairn_store **ret_store, char *ret_text);
// Frees the memory in the middle of everything, as a crash would: nothing more reaches device or
// catalog.
void cairn_store_abandon(struct cairn_store *store);

// space.c
struct cairn_space_state *cairn_space_by_id(const struct cairn_store *store,
                                            uint32_t id); // committed; or NULL
struct cairn_space_state *cairn_space_by_fingerprint(const struct cairn_store *store,
                                                     const struct cairn_key *fingerprint);
// Adds a space that is not there. CAIRN_EINVAL, CAIRN_EBUSY, CAIRN_ENOMEM.
int cairn_space_add(struct cairn_store *store, const struct cairn_catalog_space *record,
                    struct cairn_space_state **ret_space);
void cairn_spaces_finish(struct cairn_store *store);

// legal.c
void cairn_legal_load(struct cairn_store *store); // once all blocks are there
void cairn_legal_published(struct cairn_store *store, struct cairn_block *block);
void cairn_legal_unpublished(struct cairn_store *store, struct cairn_block *block);
void cairn_legal_finish(struct cairn_store *store);

// purge.c
void cairn_purge_resume(struct cairn_store *store); // what the last run left
void cairn_purge_pump(struct cairn_store *store);
// An entry that nobody needs any more is to be overwritten first. False: let it end.
bool cairn_purge_catch(struct cairn_store *store, struct cairn_block *block);
bool cairn_purge_busy(const struct cairn_store *store); // the executor works for it
void cairn_purge_cancel(struct cairn_store *store);     // at the close
void cairn_purges_finish(struct cairn_store *store);

// tenant.c
struct cairn_tenant *cairn_tenant_find(const struct cairn_store *store, uint32_t tenant);
// Finds or adds. CAIRN_EBUSY, CAIRN_ENOMEM.
int cairn_tenant_of(struct cairn_store *store, uint32_t tenant, struct cairn_tenant **ret_tenant);
void cairn_tenants_finish(struct cairn_store *store);
// A put that its tenant's quota cannot take: counted, recorded, and told with the status.
void cairn_tenant_refused(struct cairn_store *store, const struct cairn_refused *refused);
void cairn_tenant_explain(struct cairn_store *store, const struct cairn_tenant *tenant,
                          enum cairn_refusal refusal);

// store.c
void cairn_store_wake(struct cairn_store *store);
uint64_t cairn_store_now(const struct cairn_store *store);
struct cairn_op *cairn_op_create(struct cairn_store *store);   // NULL: no memory
struct cairn_op *cairn_op_reserved(struct cairn_store *store); // for a callback: never NULL
void cairn_op_free(struct cairn_store *store, struct cairn_op *op);
void cairn_op_ready(struct cairn_op *op, int status);
void cairn_op_dropped(struct cairn_catalog_op *op,
                      int status); // on_done of changes nobody waits for
void cairn_op_removed(struct cairn_device_request *request, int status);
void cairn_store_warn(struct cairn_store *store, const char *text);
void cairn_io_submit(struct cairn_store *store, struct cairn_device_request *request);
void cairn_io_done(struct cairn_store *store);
// Around each read of a block: what is read, and for how long anything is.
void cairn_read_begin(struct cairn_store *store, uint64_t bytes);
void cairn_read_end(struct cairn_store *store);

// block.c: the life of an entry
static inline struct cairn_space_state *cairn_block_space(const struct cairn_store *store,
                                                          const struct cairn_block *block)
{
        return store->spaces[block->space];
}
static inline struct cairn_tenant *cairn_block_owner(const struct cairn_store *store,
                                                     const struct cairn_block *block)
{
        return store->tenants[block->owner];
}
static inline bool cairn_block_is(const struct cairn_block *block, uint32_t flag)
{
        return (block->flags & flag) != 0;
}
struct cairn_resident *cairn_block_resident(struct cairn_store *store, struct cairn_block *block);
void cairn_block_publish(struct cairn_store *store, struct cairn_block *block);
void cairn_block_unpublish(struct cairn_store *store, struct cairn_block *block);
// Publishing at the start, when the key is known to be absent; refresh follows when all are there.
void cairn_block_load(struct cairn_store *store, struct cairn_block *block);
// Counts it in its parent, or its parent's ghost, which is returned (NULL: a root) and wants a
// refresh.
struct cairn_block *cairn_block_child_count(struct cairn_store *store, struct cairn_block *block);
bool cairn_block_closes_circle(const struct cairn_store *store, const struct cairn_block *block);
void cairn_block_child_add(struct cairn_store *store, struct cairn_block *block);
void cairn_block_child_remove(struct cairn_store *store, struct cairn_block *block);
void cairn_block_set_flag(struct cairn_store *store, struct cairn_block *block, uint32_t flag,
                          bool on);
// After any change of pins, holds, flags, children: puts it into the heaps or takes it out; frees
// what nobody needs.
void cairn_block_refresh(struct cairn_store *store, struct cairn_block *block);
int cairn_part_take(struct cairn_store *store, struct cairn_block *block, uint32_t part);
void cairn_part_ready(struct cairn_store *store, struct cairn_block *block, uint32_t part);
void cairn_part_drop(struct cairn_store *store, struct cairn_block *block, uint32_t part);
// A slot of a slab becomes the block's, or is free again.
void cairn_block_slot_taken(struct cairn_store *store, struct cairn_block *block);
void cairn_block_slot_give(struct cairn_store *store, struct cairn_block *block, bool bad);
// Makes it invisible and forgets it durably. `op` may be NULL: then one is made if memory allows.
// `record` (copied) becomes durable with the removal, or not at all; NULL: the key stays, by a
// newer block.
void cairn_block_forget(struct cairn_store *store, struct cairn_block *block, struct cairn_op *op,
                        const struct cairn_audit_record *record);

// audit.c
// The facts of a block for a record about it: tenant, space, key, bytes, the tier it is in, the
// time. Policy, score, numbers, request and connection are the caller's to add.
void cairn_audit_describe(const struct cairn_store *store, const struct cairn_block *block,
                          enum cairn_audit_action action, enum cairn_audit_reason reason,
                          struct cairn_audit_record *ret_record);
// Takes a record that goes with no removal from the catalog (a RAM copy dropped, a refusal):
// copied, committed within about a second or with what comes first, never by a commit of its own.
// A time of 0 is set. Records of removals go by cairn_block_forget.
void cairn_audit_emit(struct cairn_store *store, const struct cairn_audit_record *record);
// The store's own: it was opened; it ends, and takes along what memory alone has.
void cairn_audit_started(struct cairn_store *store);
void cairn_audit_stopping(struct cairn_store *store);

// evict.c: RAM
// Whether a block that is about to be loaded was used longer ago than what RAM would give up for
// it.
bool cairn_evict_is_cold(const struct cairn_store *store, const struct cairn_block *block);
// A slot for bytes of the tenant, and its end. CAIRN_EAGAIN: not now (tenant->short_of_quota says
// of what it is short). CAIRN_ENOMEM: never.
int cairn_evict_ram_alloc(struct cairn_store *store, struct cairn_tenant *tenant, uint64_t bytes,
                          struct cairn_ram_slot *ret_slot);
void cairn_evict_ram_free(struct cairn_store *store, struct cairn_tenant *tenant, uint64_t bytes,
                          struct cairn_ram_slot *slot);
uint64_t cairn_evict_ram_attainable(const struct cairn_store *store,
                                    const struct cairn_tenant *tenant);
bool cairn_evict_ram_to_quota(struct cairn_store *store, struct cairn_tenant *tenant);
void cairn_evict_ram_add(struct cairn_store *store, struct cairn_block *block, uint32_t part);
void cairn_evict_ram_remove(struct cairn_store *store, struct cairn_block *block, uint32_t part);
void cairn_evict_touch(struct cairn_store *store, struct cairn_block *block); // a use
void cairn_evict_place_ram(struct cairn_store *store, struct cairn_block *block, uint32_t part);
// The policy, its score and its numbers. `policy` NULL: options.eviction.
void cairn_audit_decided(const struct cairn_store *store, struct cairn_audit_record *record,
                         const char *policy, const struct cairn_eviction_reason *reason);

// evict_nvme.c
int cairn_evict_open(struct cairn_store *store, struct cairn_eviction *eviction,
                     uint64_t capacity_bytes);
// A block's node, beside the table: reserved with the entry, filled once the key is known.
int cairn_evict_node_reserve(struct cairn_store *store, const struct cairn_block *block);
void cairn_evict_node_init(struct cairn_store *store, struct cairn_block *block,
                           uint64_t recompute_us);
struct cairn_eviction_node *cairn_evict_node(const struct cairn_store *store,
                                             const struct cairn_block *block);
void cairn_evict_nodes_finish(struct cairn_store *store);
int cairn_evict_pool_of(struct cairn_store *store, struct cairn_space_state *space,
                        struct cairn_tenant *tenant, struct cairn_pool **ret_pool);
void cairn_evict_pools_finish(struct cairn_space_state *space);
void cairn_evict_place_nvme(struct cairn_store *store, struct cairn_block *block);
// For `taker` (NULL: the store itself): how many went.
uint32_t cairn_evict_nvme(struct cairn_store *store, struct cairn_space_state *space,
                          const struct cairn_tenant *taker, uint32_t count);
// In the space whose next victim is the longest unused, until one of its files is empty. True: some
// are on their way out.
bool cairn_evict_elsewhere(struct cairn_store *store, const struct cairn_tenant *taker,
                           const struct cairn_space_state *but);
bool cairn_evict_over_quota(const struct cairn_tenant *tenant, uint64_t more_bytes);
bool cairn_evict_own(struct cairn_store *store, struct cairn_tenant *tenant, uint64_t more_bytes);
void cairn_evict_to_quotas(struct cairn_store *store); // a step, after one was lowered

// expire.c
void cairn_expire_place(struct cairn_store *store, struct cairn_block *block);
void cairn_expire(struct cairn_store *store, struct cairn_block *block); // its time has come
void cairn_expire_due(struct cairn_store *store);

// slab.c
enum cairn_slab_answer {
        CAIRN_SLAB_TAKEN,
        CAIRN_SLAB_WAIT,
        CAIRN_SLAB_NONE
};
enum cairn_slab_answer cairn_slab_take(struct cairn_store *store, struct cairn_space_state *space,
                                       struct cairn_tenant *tenant, uint32_t *ret_slab,
                                       uint32_t *ret_slot);
void cairn_slab_give(struct cairn_store *store, uint32_t slab, uint32_t slot, bool bad);
// Takes a slot that is free, until it is given.
void cairn_slab_borrow(struct cairn_store *store, uint32_t slab, uint32_t slot);
uint64_t cairn_slab_offset(const struct cairn_store *store, uint32_t slab, uint32_t slot);
uint32_t cairn_slab_slots_of(const struct cairn_store *store, const struct cairn_layout *layout);
struct cairn_slab *cairn_slab_add(struct cairn_store *store, uint32_t slots, uint32_t *ret_index);
void cairn_slab_drop(struct cairn_store *store, uint32_t index);
uint32_t cairn_slab_index(const struct cairn_slab *slab);
void cairn_slab_shrink(struct cairn_store *store); // a step towards a limit that was lowered
bool cairn_slab_mark(struct cairn_slab *slab, uint32_t slot); // false: taken already

// writer.c
void cairn_writer_queue(struct cairn_store *store, struct cairn_put *put);
void cairn_writer_pump(struct cairn_store *store);
bool cairn_writer_idle(const struct cairn_store *store);
void cairn_writer_error(struct cairn_store *store, int status); // counts, and raises the alarm
// Another attempt at a block that is in RAM alone. NULL: no memory.
struct cairn_put *cairn_writer_requeue(struct cairn_store *store, struct cairn_block *block);
void cairn_writer_retry(struct cairn_store *store); // what stayed in RAM, when its time has come
void cairn_put_discard(struct cairn_store *store, struct cairn_put *put, int status);
void cairn_put_end(struct cairn_store *store, struct cairn_put *put, int status);

// put.c, reader.c
void cairn_put_begin_step(struct cairn_store *store, struct cairn_put_begin *request);
// Its turn. CAIRN_OK: it ended, or waits for another put. CAIRN_EAGAIN: it must wait for RAM.
int cairn_put_turn(struct cairn_store *store, struct cairn_put_begin *request);
void cairn_put_refuse(struct cairn_store *store, struct cairn_put_begin *request,
                      struct cairn_tenant *tenant, enum cairn_refusal refusal);
// Takes a put of a visible block into the hash, so that others can wait for its write.
void cairn_put_active_add(struct cairn_store *store, struct cairn_put *put);
void cairn_begin_ready(struct cairn_store *store, struct cairn_put_begin *request, int status,
                       struct cairn_put *put);
int cairn_acquire_step(struct cairn_store *store, struct cairn_acquire *request);
void cairn_acquire_end(struct cairn_store *store, struct cairn_acquire *request, int status);
void cairn_reader_finish(struct cairn_store *store); // loads that the executor has verified
// A wait for RAM. CAIRN_ENOMEM, CAIRN_EBUSY.
int cairn_wait_add(struct cairn_store *store, const struct cairn_wait *wait);
// Whether the tenant's new request must wait: who is short of the tier waits before it, or another
// of its own.
bool cairn_wait_before(const struct cairn_store *store, const struct cairn_tenant *tenant);
void cairn_wait_pump(struct cairn_store *store);
void cairn_wait_expire(struct cairn_store *store);
void cairn_wait_cancel(struct cairn_store *store);

// range.c
int cairn_range_step(struct cairn_store *store, struct cairn_range *range); // CAIRN_EAGAIN: wait
void cairn_range_end(struct cairn_store *store, struct cairn_range *range, int status);
void cairn_range_finish(struct cairn_store *store); // those that the executor has verified
void cairn_range_expire(struct cairn_store *store, uint64_t now_ms);
void cairn_reader_condemn(struct cairn_store *store, struct cairn_block *block);

// recover.c
int cairn_recover(struct cairn_store *store, char *ret_text);
enum {
        CAIRN_ANY_ENTRY = UINT32_MAX
};
// One block of a record into the table, into this entry. CAIRN_ENOENT: its slot is taken or not
// there.
int cairn_recover_block(struct cairn_store *store, uint32_t slab,
                        const struct cairn_catalog_block *record, uint32_t entry);
void cairn_recover_remove(struct cairn_store *store, struct cairn_block *block);

// rebuild.c: a lost catalog
int cairn_rebuild_space(struct cairn_store *store, const struct cairn_slab_header *header,
                        struct cairn_space_state **ret_space);
int cairn_rebuild_blocks(struct cairn_store *store);

#endif
