// The store: all that the daemon sees of storage. Blocks by (space, key) in a RAM tier and on NVMe,
// with an LMDB catalog. Asynchronous, driven by one thread (the loop): callbacks run on it, exactly
// once, inside cairn_store_poll and never inside the call that started them.
//
// A block has two parts, resident apart from each other:
//   RAW   the rows as the worker gave them, [layer] segments of equal size
//   CODE  what the policy made of them (landmarks, value codes, q8 rows), [layer] segments of equal
//   size; may be empty
// Both are checksummed a layer at a time (XXH3-128); a block's checksum is that of the table of
// these. So a range of layers can be read and verified alone, and a context opens by reading codes
// only.
//
// May be used by: daemon, tests. May use: proto. Bytes on disk: storage/README.md.
#ifndef CAIRN_STORE_H
#define CAIRN_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/audit_record.h"
#include "proto/key.h"
#include "proto/limits.h"
#include "proto/status.h"
#include "storage/executor.h"

struct cairn_admission_ops; // proto/admission.h
struct cairn_eviction_ops;  // proto/eviction.h
struct cairn_store;
struct cairn_block; // an entry of the block table: held, it stays findable
struct cairn_put;   // a block being written: invisible until committed

enum cairn_part {
        CAIRN_PART_RAW = 1,
        CAIRN_PART_CODE = 2
};
enum cairn_ack {
        CAIRN_ACK_MEMORY = 0,
        CAIRN_ACK_DISK = 1
};
enum cairn_tier {
        CAIRN_TIER_NONE = 0,
        CAIRN_TIER_RAM = 1,
        CAIRN_TIER_NVME = 2,
        CAIRN_TIER_REMOTE = 3
};
enum {
        CAIRN_STORE_DIRECTORIES_MAX = 8,
        CAIRN_VIEW_SEGMENTS_MAX = 4096 // in use at once
};

struct cairn_store_options {
        const char *directories[CAIRN_STORE_DIRECTORIES_MAX]; // the first holds the catalog; slabs
                                                              // are striped over all
        uint32_t directories_count;
        uint64_t ram_bytes;   // bound of the RAM tier: raw and code parts together
        uint64_t nvme_bytes;  // bound of the slabs, over all directories
        uint64_t slab_bytes;  // size of one slab file; 0: 256 MiB or 64 slots, whichever is more
        uint32_t queue_depth; // I/O in flight; 0: 64
        uint32_t commit_delay_us;  // longest wait of a commit for company; 0: 500
        uint32_t commit_batch_max; // 0: 1024
        bool force_sync_device;    // pread/pwrite though io_uring is there
        bool force_buffered;       // no O_DIRECT
        bool views; // RAM segments that workers may map: sealed, given back whole alone
        const struct cairn_eviction_ops *eviction;   // who leaves a tier next; required
        const struct cairn_admission_ops *admission; // what is worth a write to NVMe; NULL: all
        struct cairn_executor *executor;             // required
        uint64_t (*now_ms)(void *clock);             // monotonic; required
        uint64_t (*wall_ms)(void *clock); // since 1970, for the audit; NULL: its times are 0
        void *clock;
        uint64_t audit_bytes; // bound of the audit's files; 0: no audit
        // Warnings that an operator should see, once each: text lives for the call. May be NULL.
        void (*on_warning)(void *arg, const char *text);
        void *on_warning_arg;
};

// Sizes of a space's blocks, fixed for its life.
struct cairn_block_shape {
        uint32_t layers;
        uint64_t raw_layer_bytes;
        uint64_t code_layer_bytes; // 0: no code part
};

// Opens (creates) the directories, takes their lock, loads the catalog, frees orphaned slots.
// Blocks the caller. Errors: CAIRN_EBUSY (another daemon has the directory), CAIRN_EVERSION,
// CAIRN_EIO, CAIRN_EINVAL, CAIRN_ENOMEM, with a sentence naming cause and remedy in ret_text (size
// CAIRN_TEXT_BYTES_MAX).
int cairn_store_open(const struct cairn_store_options *options, struct cairn_store **ret_store,
                     char *ret_text);

// A descriptor that is readable when cairn_store_poll has something to do.
int cairn_store_fd(const struct cairn_store *store);
// Runs what has completed: callbacks, retries, evictions. Never blocks. Loop thread.
void cairn_store_poll(struct cairn_store *store);

// Writes back all that is only in RAM and commits it, then calls back (CAIRN_OK, or CAIRN_EDEADLINE
// with what could not be written in time dropped). New puts are refused with CAIRN_ECANCELLED from
// here on.
void cairn_store_drain(struct cairn_store *store, uint64_t deadline_ms,
                       void (*on_drained)(void *arg, int status), void *arg);
// Ends everything, joins threads, frees memory. No block may be held. NULL is fine.
void cairn_store_close(struct cairn_store *store);

// ---- spaces ----

struct cairn_store_space_info {
        uint32_t id;
        struct cairn_key fingerprint;
        struct cairn_block_shape shape;
        const void *description; // as given at creation; the store's
        size_t description_bytes;
        uint64_t blocks;
        uint64_t ram_bytes;
        uint64_t nvme_bytes;
};

// Finds or creates (durably, before the callback) the space of this fingerprint. `description` is
// opaque to storage
// (<= 4096 bytes, copied). CAIRN_EMISMATCH: it is there with another shape. CAIRN_EBUSY:
// CAIRN_SPACES_MAX reached.
void cairn_store_space_open(struct cairn_store *store, const struct cairn_key *fingerprint,
                            const struct cairn_block_shape *shape, const void *description,
                            size_t description_bytes,
                            void (*on_open)(void *arg, int status, uint32_t space), void *arg);
size_t cairn_store_spaces_count(const struct cairn_store *store);
// index < count. Pointers in ret_info are valid until the next call into the store.
void cairn_store_space_info(const struct cairn_store *store, size_t index,
                            struct cairn_store_space_info *ret_info);

// ---- finding and holding ----

// Finds a committed block and holds it: it stays in some local tier until unhold. CAIRN_ENOENT.
// Does not count as use. No callback: the block table is in memory.
int cairn_store_hold(struct cairn_store *store, uint32_t space, const struct cairn_key *key,
                     struct cairn_block **ret_block);
void cairn_store_unhold(struct cairn_store *store, struct cairn_block *block);
// Holds the blocks of keys[count] in order up to the first that is not there: how many, with their
// tiers. Much faster than one by one.
size_t cairn_store_hold_prefix(struct cairn_store *store, uint32_t space,
                               const struct cairn_key *keys, size_t count,
                               struct cairn_block **ret_blocks, uint8_t *ret_tiers);
void cairn_store_unhold_many(struct cairn_store *store, struct cairn_block *const *blocks,
                             size_t count);
enum cairn_tier cairn_block_tier(
    const struct cairn_block *block); // the fastest that holds its RAW part
const struct cairn_key *cairn_block_key(const struct cairn_block *block);
uint64_t cairn_block_generation(const struct cairn_block *block);
uint32_t cairn_block_tenant(const struct cairn_block *block); // who put it
// True once a re-put or delete has replaced this generation (its bytes stay readable while held).
bool cairn_block_stale(const struct cairn_block *block);
// Counts a hit for eviction's sake.
void cairn_store_touch(struct cairn_store *store, struct cairn_block *block);

// ---- reading ----

// Brings parts of a held block into RAM, verified, and pins them there. The request is the
// caller's, pinned until on_ready has run. CAIRN_ECORRUPT (the block is then gone: a miss),
// CAIRN_EIO, CAIRN_ENOMEM (no RAM can be freed), CAIRN_EDEADLINE.
struct cairn_acquire {
        void (*on_ready)(struct cairn_acquire *request, int status);
        struct cairn_block *block;  // held by the caller
        uint32_t parts;             // CAIRN_PART_*
        uint64_t deadline_ms;       // of the clock; 0: none
        struct cairn_acquire *next; // the store's
        void *internal;             // the store's
};
void cairn_store_acquire(struct cairn_store *store, struct cairn_acquire *request);
// Pinned parts: layer `layer` of RAW or CODE. Readable by any thread until the unpin.
const void *cairn_block_raw(const struct cairn_block *block, uint32_t layer);
const void *cairn_block_code(const struct cairn_block *block, uint32_t layer);

// Reads layers [first, first + count) of one part of a held block, and no more than these, into
// memory of the RAM budget, verified. Bytes that are in RAM already are pinned there instead. The
// request is the caller's, pinned until on_ready has run and, after CAIRN_OK, until the release.
// Errors as for acquire; CAIRN_ENOENT: from_nvme, and it is not there; CAIRN_ERANGE: no such
// layers.
struct cairn_range {
        void (*on_ready)(struct cairn_range *range, int status);
        struct cairn_block *block; // held by the caller
        enum cairn_part part;
        uint32_t first;
        uint32_t count;
        bool from_nvme;           // though RAM has it: to see what the disk holds
        bool from_ram;            // only what RAM has; else CAIRN_ENOENT
        uint64_t deadline_ms;     // of the clock; 0: none
        const void *bytes;        // of layer `first`; the others follow without gaps
        void *internal;           // the store's
        struct cairn_range *next; // the store's
        int status;               // the store's
};
void cairn_store_range_read(struct cairn_store *store, struct cairn_range *range);
void cairn_store_range_release(struct cairn_store *store, struct cairn_range *range);

// Where a pinned part lies for workers that map it (options.views): layer 0 at `offset` of a memfd
// that nobody can write through and that no other tenant's bytes are in. The u64 at
// `generation_offset` differs from `generation` once the bytes may have been replaced; the
// segment's first u64 is 0 until the store gives the segment up. The descriptor is the store's.
// CAIRN_EUNSUPPORTED: views are off.
struct cairn_block_view {
        int fd;
        uint64_t segment; // never the same for two segments, so that a worker maps each once
        uint32_t index;   // of the segment's place: below CAIRN_VIEW_SEGMENTS_MAX
        uint64_t segment_bytes;
        uint64_t offset;
        uint64_t size_bytes;
        uint64_t generation_offset;
        uint64_t generation;
};
int cairn_block_view(const struct cairn_store *store, const struct cairn_block *block,
                     enum cairn_part part, struct cairn_block_view *ret_view);

// Holds the next block at or after `cursor` (0: the first) and returns the cursor after it; 0 when
// there is none. Blocks that come meanwhile may be missed.
uint32_t cairn_store_walk(struct cairn_store *store, uint32_t cursor,
                          struct cairn_block **ret_block);

// What an operator may want to know of a block.
struct cairn_store_block_info {
        uint32_t space;
        uint32_t tenant;
        struct cairn_key key;
        struct cairn_key parent;
        uint64_t ram_bytes;  // 0: not there
        uint64_t nvme_bytes; // 0: not there
        uint32_t holds;
        uint32_t children;
        uint64_t generation;
        uint64_t uses_since; // uses of blocks since this one's last
        uint64_t expires_ms; // from now on; 0: never
        bool unwritten;      // not on NVMe (yet)
};
// Which blocks a list shows: zero for all.
struct cairn_store_list {
        uint32_t space;
        bool by_tenant;
        uint32_t tenant;
        enum cairn_tier tier; // with a copy there
        bool held;
        uint8_t key[CAIRN_KEY_BYTES]; // key_bytes of it: what keys begin with
        uint32_t key_bytes;
};
// Why a block that is not there left, as far as that is remembered (for numbers); 0: unknown.
enum cairn_audit_reason cairn_store_gone(const struct cairn_store *store, uint32_t space,
                                         const struct cairn_key *key);
void cairn_store_block_info(const struct cairn_store *store, const struct cairn_block *block,
                            struct cairn_store_block_info *ret_info);
// Visible blocks from *cursor (0: the first) on, at most `max` of them, having looked at no more
// than CAIRN_LIST_LOOKED_MAX entries. Returns how many; *cursor is where to go on, 0 at the end.
size_t cairn_store_list_blocks(const struct cairn_store *store, const struct cairn_store_list *list,
                               uint32_t *cursor, struct cairn_store_block_info *ret_infos,
                               size_t max);

// Of the block's space.
void cairn_block_shape(const struct cairn_store *store, const struct cairn_block *block,
                       struct cairn_block_shape *ret_shape);

// Checks the pinned bytes of layers [first, first + count) of one part again: CAIRN_OK or
// CAIRN_ECORRUPT. Any thread.
int cairn_block_verify(const struct cairn_block *block, enum cairn_part part, uint32_t first,
                       uint32_t count);
// Checksum of one layer of one part, as stored. Any thread while pinned.
void cairn_block_checksum(const struct cairn_block *block, enum cairn_part part, uint32_t layer,
                          uint8_t ret_checksum[16]);
void cairn_store_unpin(struct cairn_store *store, struct cairn_block *block, uint32_t parts);
// The caller found a pinned part corrupt: the block becomes a miss, is counted, and may be put
// again.
void cairn_store_report_corrupt(struct cairn_store *store, struct cairn_block *block);
// The caller, who pins one part of the block and holds it, found that RAM copy corrupt: counted and
// let go, so that the next acquire reads it from NVMe. Unpins. CAIRN_EHELD: others pin it too;
// CAIRN_ENOENT: there is no other copy; then the block is a miss, as by report_corrupt.
int cairn_store_drop_corrupt_copy(struct cairn_store *store, struct cairn_block *block,
                                  enum cairn_part part);

// ---- writing ----

struct cairn_put_begin {
        void (*on_begun)(struct cairn_put_begin *request, int status, struct cairn_put *put);
        uint32_t space;
        uint32_t tenant;
        struct cairn_key key;
        struct cairn_key parent; // zero: a root
        enum cairn_ack ack;
        uint64_t recompute_us; // 0: unknown
        uint64_t ttl_ms;       // 0: for ever
        uint64_t deadline_ms;  // 0: none
        uint64_t request;      // who asked, for the audit's record of a refusal
        uint64_t connection;
        struct cairn_put_begin *next; // the store's
        void *internal;               // the store's
        uint32_t refusal;             // the store's
        bool wrote;                   // the store's: it asked for the write that it waits for
};
// Reserves RAM (waiting for eviction and write-back, in order of arrival) for one block. Statuses:
//   CAIRN_OK        fill the put, then commit or abort
//   CAIRN_EEXIST    visible already, or another put of the same key committed while this one
//                   waited; asked with ACK_DISK, it is on NVMe too: a block that was in memory
//                   alone has been written meanwhile, or its failure is told
//   CAIRN_ENOENT    no such space
//   CAIRN_ENOSPC, CAIRN_ENOMEM, CAIRN_EDEADLINE, CAIRN_ECANCELLED
// Two puts of one key at once: the second waits for the first; if that aborts, the second goes on.
void cairn_store_put_begin(struct cairn_store *store, struct cairn_put_begin *request);
// Where layer `layer` goes. Writable by any one thread at a time until commit or abort. NULL for an
// absent code part.
void *cairn_put_raw(struct cairn_put *put, uint32_t layer);
void *cairn_put_code(struct cairn_put *put, uint32_t layer);
// Takes the checksum of a filled layer into the block's table (any thread, one at a time a layer).
// Every layer of every part must be sealed before the commit. The second form takes a checksum that
// the caller computed while copying.
void cairn_put_seal(struct cairn_put *put, enum cairn_part part, uint32_t layer);
void cairn_put_seal_with(struct cairn_put *put, enum cairn_part part, uint32_t layer,
                         const uint8_t checksum[16]);
// Makes it visible: ACK_MEMORY at once (write-back follows), ACK_DISK after data sync and catalog
// commit. The put is the store's from here on. CAIRN_OK; CAIRN_ENOSPC, CAIRN_EIO: no trace is left.
void cairn_store_put_commit(struct cairn_store *store, struct cairn_put *put,
                            void (*on_committed)(void *arg, int status), void *arg);
void cairn_store_put_abort(struct cairn_store *store, struct cairn_put *put);

// ---- removing ----

// Durably forgets the block (CAIRN_OK, CAIRN_ENOENT; CAIRN_EHELD: under a legal hold). Holders keep
// what they pinned. A child may outlive its parent here. `cause`: action, reason, request and
// connection of the audit's record, the rest of which is the store's; copied; NULL: a delete that
// somebody asked for.
void cairn_store_delete(struct cairn_store *store, uint32_t space, const struct cairn_key *key,
                        const struct cairn_audit_record *cause,
                        void (*on_deleted)(void *arg, int status), void *arg);
// Drops clean RAM copies that nobody pins (tests, and `cairnctl` when asked). Returns the bytes
// freed.
uint64_t cairn_store_drop_ram(struct cairn_store *store);
// The caller, who holds these blocks once each, needs no RAM for their RAW parts any more: copies
// that are clean, pinned by nobody and held by nobody else leave RAM, the others are the first to
// go. Other tenants' blocks stay. A demotion's record each, with action, reason, tenant, policy,
// request, connection and context from `cause`. Returns how many left.
uint32_t cairn_store_demote(struct cairn_store *store, struct cairn_block *const *blocks,
                            uint32_t count, const struct cairn_audit_record *cause);

// ---- tenants ----

// What a tenant's blocks may take. They count for whoever put them, whoever reads them.
struct cairn_quota {
        uint64_t ram_bytes; // hard limits: beyond them it evicts its own, or is refused; 0: none
        uint64_t nvme_bytes;
        uint64_t ram_guaranteed_bytes; // nobody else takes these from it
        uint64_t nvme_guaranteed_bytes;
};
// Works while running; a limit that was lowered evicts the tenant's own blocks, as soon as nobody
// holds them. CAIRN_EINVAL: a guarantee above the tenant's limit, or all guarantees above the
// tier. CAIRN_EBUSY: CAIRN_TENANTS_MAX reached. CAIRN_ENOMEM. Nothing is changed then. Not kept
// over a restart.
int cairn_store_quota_set(struct cairn_store *store, uint32_t tenant,
                          const struct cairn_quota *quota);

struct cairn_store_tenant_info {
        uint32_t tenant;
        struct cairn_quota quota;
        uint64_t ram_bytes; // used
        uint64_t nvme_bytes;
        uint64_t blocks;
        uint64_t evicted[CAIRN_AUDIT_REASON_COUNT]; // blocks that are gone, by reason
        uint64_t demoted;                           // RAM copies dropped that NVMe has
        uint64_t refused_quota;                     // puts
        uint64_t refused_admission;                 // blocks that were not written to NVMe, as yet
};
// Inside on_begun and on_committed with CAIRN_ENOSPC: which quota left no room, and what helps;
// NULL: none, the tier itself is full. Lives for the callback.
const char *cairn_store_refusal(const struct cairn_store *store);
// Tenants that have, or had, blocks or a quota.
size_t cairn_store_tenants_count(const struct cairn_store *store);
void cairn_store_tenant_info(const struct cairn_store *store, size_t index,
                             struct cairn_store_tenant_info *ret_info); // index < count

// ---- audit ----

// Leaves a record of what the daemon decided (refusals, quotas, holds, retention); copied, its time
// and sequence are the store's. Durable within about a second, and never in silence: what a flood
// makes too many is counted in a record of its own. Removals of blocks leave theirs by themselves.
void cairn_store_audit(struct cairn_store *store, const struct cairn_audit_record *record);
// Calls back when all records so far are committed: a snapshot then has them.
void cairn_store_audit_flush(struct cairn_store *store, void (*on_status)(void *arg, int status),
                             void *arg);
// What is committed, to search and check (storage/audit_read.h). Any thread; blocks for a while.
// CAIRN_EUNSUPPORTED: there is no audit; CAIRN_EIO, CAIRN_ENOMEM.
struct cairn_audit_snapshot;
int cairn_store_audit_snapshot(const struct cairn_store *store,
                               struct cairn_audit_snapshot *ret_snapshot);

// ---- numbers ----

struct cairn_store_stats {
        uint64_t blocks;
        uint64_t ram_blocks;
        uint64_t nvme_blocks;
        uint64_t dirty_blocks; // in RAM, not yet on NVMe
        uint64_t ram_used_bytes;
        uint64_t ram_limit_bytes;
        uint64_t nvme_used_bytes;
        uint64_t nvme_free_bytes; // of allocated slabs
        uint64_t nvme_limit_bytes;
        uint64_t spaces;
        uint64_t holds;
        uint64_t pins;
        uint64_t io_inflight;
        uint64_t puts;
        uint64_t puts_failed;
        uint64_t puts_existing;
        uint64_t ram_hits;
        uint64_t nvme_reads;
        uint64_t nvme_read_bytes;
        uint64_t nvme_read_busy_ms; // while one read or more were under way
        uint64_t nvme_writes;
        uint64_t nvme_write_bytes;
        uint64_t io_errors;
        uint64_t corrupt_blocks;
        uint64_t corrupt_copies; // in RAM, read from NVMe again
        uint64_t evicted_ram;
        uint64_t evicted_nvme;
        uint64_t deleted;
        uint64_t expired;
        uint64_t commits;
        uint64_t recovered_blocks; // found at start
        uint64_t recovered_orphans;
        uint64_t waiting_puts;
        uint64_t writes_queued;   // blocks that wait to be written
        uint64_t commits_pending; // written blocks whose commit is under way
        bool device_uring;
        bool device_direct;
        bool nvme_failed; // read-only or gone: RAM only, and an alarm
};
void cairn_store_stats(const struct cairn_store *store, struct cairn_store_stats *ret_stats);
// Recomputes block, RAM and NVMe sums from the tables; CAIRN_EINTERNAL if any counter differs
// (tests).
int cairn_store_audit_counters(const struct cairn_store *store);

#endif
