// libcairn: how a worker speaks with cairnd. This header stands alone.
//
// A *client* is one connection that mends itself. It belongs to one thread: nothing here locks;
// several clients in one process are fine. Every request takes a `struct cairn_call *`. NULL: the
// call blocks until the daemon has answered or the client's timeout has passed. A call: it returns
// at once, and on_done runs later, exactly once, inside cairn_client_poll or inside a blocking
// call, never inside the call that started it. Call, arguments that are said to be kept, and
// outputs must stay until then. A negative return means: not started, on_done will not run.
//
// Results are 0 or a negative enum cairn_status; outputs (ret_*) are untouched on failure.
// cairn_client_error tells cause and remedy of the last failure.
//
// Memory that lies in an arena (cairn_client_arena_create) is shared with the daemon: blocks, rows,
// queries and results in it move without a copy through the socket. Any other memory works too,
// copied.
//
// A call that ends with CAIRN_EDEADLINE or CAIRN_EDISCONNECTED may still be at work in the daemon:
// do not reuse memory of an arena that it was to fill for something else before you have created
// another arena or know the daemon gone.
//
// If the connection is lost, requests under way end with CAIRN_EDISCONNECTED; the next call
// connects again, shares the arenas anew and opens the spaces again. Leases and contexts die with
// the connection: CAIRN_ESTALE.
#ifndef CAIRN_CAIRN_H
#define CAIRN_CAIRN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAIRN_API __attribute__((visibility("default")))

// ---- status codes ----

#ifndef CAIRN_STATUS_H // the library's own sources have them already
enum cairn_status {
        CAIRN_OK = 0,
        CAIRN_EINVAL = -1,         // a field is out of range or contradicts another
        CAIRN_EPROTO = -2,         // bytes that are no valid frame or message
        CAIRN_EVERSION = -3,       // protocol or disk format of another version
        CAIRN_EUNSUPPORTED = -4,   // known, but not built or not enabled
        CAIRN_ENOENT = -5,         // block, space, context or arena not there (a miss)
        CAIRN_EEXIST = -6,         // the block was there already: nothing written, nothing wrong
        CAIRN_ECORRUPT = -7,       // stored bytes fail their checksum: a miss, may be put again
        CAIRN_ENOSPC = -8,         // no room in the tier, the quota or the disk
        CAIRN_ENOMEM = -9,         // no memory left in the budget
        CAIRN_EBUSY = -10,         // too many of these under way or open: wait and retry
        CAIRN_EAGAIN = -11,        // lost a race with another request: retry
        CAIRN_EDEADLINE = -12,     // the request's deadline passed
        CAIRN_ECANCELLED = -13,    // given up since the connection or the daemon ends
        CAIRN_EIO = -14,           // the device failed
        CAIRN_EPERM = -15,         // this uid may not
        CAIRN_EMISMATCH = -16,     // the space differs from the one named
        CAIRN_ERANGE = -17,        // a range leaves its arena, payload or result region
        CAIRN_ESTALE = -18,        // a lease, arena or context that is no longer valid
        CAIRN_EHELD = -19,         // pinned, leased or under hold
        CAIRN_EDISCONNECTED = -20, // no daemon at the other end
        CAIRN_EINTERNAL = -21,     // a bug: please report
        CAIRN_STATUS_COUNT = 22,
};
#endif

// The code's name, what happened, and what to do; never NULL, constant.
CAIRN_API const char *cairn_error_name(int status);
CAIRN_API const char *cairn_error_text(int status);
CAIRN_API const char *cairn_error_remedy(int status);

// ---- spaces, keys ----

#ifndef CAIRN_SPACE_H
enum cairn_space_kind {
        CAIRN_SPACE_ATTENTION = 0,
        CAIRN_SPACE_OPAQUE = 1
};
enum cairn_dtype {
        CAIRN_DTYPE_NONE = 0,
        CAIRN_DTYPE_F32 = 1,
        CAIRN_DTYPE_F16 = 2,
        CAIRN_DTYPE_BF16 = 3,
        CAIRN_DTYPE_F8E4M3 = 4,
        CAIRN_DTYPE_F8E5M2 = 5,
};
enum cairn_row_codec {
        CAIRN_ROW_RAW = 0,
        CAIRN_ROW_Q8 = 1,
        CAIRN_ROW_Q4 = 2,
        CAIRN_ROW_NONE = 3,
};
enum cairn_rope {
        CAIRN_ROPE_APPLIED = 0,
        CAIRN_ROPE_NOT_APPLIED = 1,
        CAIRN_ROPE_NONE = 2
};
#endif

#ifndef CAIRN_KEY_H
struct cairn_key {
        uint8_t bytes[32];
};
#endif

enum {
        CAIRN_CONFIG_NAME_BYTES = 129
}; // with the final zero

// The immutable description of a KV cache: every field is part of every key. Begin with
// cairn_space_config_init.
struct cairn_space_config {
        uint32_t kind; // enum cairn_space_kind
        char model[CAIRN_CONFIG_NAME_BYTES];
        char revision[CAIRN_CONFIG_NAME_BYTES];
        char layout[CAIRN_CONFIG_NAME_BYTES]; // "lhkv" for attention spaces
        uint32_t layers;
        uint32_t kv_heads;
        uint32_t k_dim;
        uint32_t v_dim; // 0: no values
        uint32_t dtype; // enum cairn_dtype
        uint32_t block_tokens;
        uint32_t cache_group;
        uint32_t tp_rank;
        uint32_t tp_size;
        uint32_t rope;          // enum cairn_rope: whether keys are rotated already
        uint32_t landmark_bits; // 0: no retrieval, 1, 2, 4 or 8
        uint32_t outliers;
        uint32_t run_tokens;
        uint32_t value_bits;  // 0, 2 or 4
        uint32_t k_codec;     // enum cairn_row_codec
        uint32_t v_codec;     // enum cairn_row_codec
        uint64_t block_bytes; // opaque spaces only
        uint32_t shared;      // 1: every tenant may use it; 0: this tenant's alone
        uint32_t v_prefix;    // latent attention: values are the first v_prefix dims of K, of which
                              // alone blocks consist (v_dim is 0); 0: not so
};

// What the daemon knows of a space. Strings and pointers live for the call that hands it over.
struct cairn_space_info {
        struct cairn_space_config config;
        struct cairn_key fingerprint;
        uint64_t block_bytes; // of one raw block
        uint64_t blocks;
        uint64_t ram_bytes;
        uint64_t nvme_bytes;
        uint32_t id; // the daemon's number of it
};

// An attention space with the defaults: f16, blocks of 256 tokens, 2-bit landmarks with 8 outlier
// channels, 2-bit value codes, q8 rows, one rank. Model, layers, heads and dims are the caller's to
// fill in.
CAIRN_API void cairn_space_config_init(struct cairn_space_config *ret_config);
// CAIRN_EINVAL with the field and what it may be in ret_text (may be NULL).
CAIRN_API int cairn_space_config_check(const struct cairn_space_config *config, char *ret_text,
                                       size_t text_bytes);
// Bytes of a raw block: [layer][KV head]{K [tokens][k_dim], V [tokens][v_dim]} in the dtype.
CAIRN_API uint64_t cairn_space_config_block_bytes(const struct cairn_space_config *config);
CAIRN_API void cairn_space_config_fingerprint(const struct cairn_space_config *config,
                                              struct cairn_key *ret_fingerprint);

// Keys of the full blocks of tokens[count]: count / block_tokens of them go to ret_keys; returns
// their number. `parent` NULL: the chain begins here. `salt` and `adapter`: bytes that set chains
// apart, NULL with size 0 for none.
CAIRN_API size_t cairn_chain_keys(const struct cairn_key *fingerprint, uint32_t block_tokens,
                                  const void *salt, size_t salt_bytes, const void *adapter,
                                  size_t adapter_bytes, const struct cairn_key *parent,
                                  const uint32_t *tokens, size_t count, struct cairn_key *ret_keys);
// 64 hex digits and a zero; and back (CAIRN_EINVAL).
CAIRN_API void cairn_key_to_text(const struct cairn_key *key, char ret_text[65]);
CAIRN_API int cairn_key_from_text(const char *text, struct cairn_key *ret_key);

// ---- the client ----

struct cairn_client;

struct cairn_client_options {
        const char *socket_path;    // NULL: $CAIRN_SOCKET, $XDG_RUNTIME_DIR/cairn/cairnd.sock,
                                    // /run/cairn/cairnd.sock
        const char *name;           // told to the daemon; NULL: the program's name
        uint32_t timeout_ms;        // deadline of requests that name none; 0: 30 s
        uint32_t connect_wait_ms;   // how long the first connect waits for a daemon that is not
                                    // there; 0: one try
        uint32_t reconnect_wait_ms; // the same once the connection was lost; 0: 2 s
        // How long a wait looks for the answer before it sleeps, where answers (to blocking calls:
        // of their kind) come that soon. 0: 100 us; CAIRN_SPIN_NEVER. On a single processor: never.
        uint32_t spin_us;
};
#define CAIRN_SPIN_NEVER UINT32_MAX

// A request under way. The caller embeds it, fills on_done, arg and deadline_ms, and keeps it until
// on_done runs.
struct cairn_call {
        void (*on_done)(struct cairn_call *call, int status);
        void *arg;
        uint32_t deadline_ms; // 0: the client's timeout
        uint64_t id;          // the library's
};

// What the daemon said when the client connected.
struct cairn_server_info {
        uint64_t incarnation; // another number after every start of the daemon
        uint32_t protocol;
        char server[64];
        char isa[32];
};

struct cairn_ping_info {
        uint64_t incarnation;
        uint32_t state; // 0: starting, 1: ready, 2: draining
        uint64_t uptime_ms;
};

// Connects. options NULL: defaults. CAIRN_EDISCONNECTED: nobody there; CAIRN_EVERSION: no common
// protocol version; CAIRN_EINVAL: socket path above 107 bytes. ret_text (may be NULL) gets the
// cause and the remedy.
CAIRN_API int cairn_client_create(const struct cairn_client_options *options,
                                  struct cairn_client **ret_client, char *ret_text,
                                  size_t text_bytes);
// Ends the connection and unmaps the arenas. Calls under way are forgotten: their on_done does not
// run. NULL is fine.
CAIRN_API void cairn_client_destroy(struct cairn_client *client);
// Ends the connection, and with it leases and contexts; arenas stay mapped. The next call connects
// again.
CAIRN_API void cairn_client_hang_up(struct cairn_client *client);

// Requests from now on belong to this trace (W3C trace context, as OpenTelemetry hands it over:
// "00-<trace id>-<span id>-<flags>"): the daemon's lines about them name it. NULL: to none.
// CAIRN_EINVAL: no such text; then to none.
CAIRN_API int cairn_client_trace(struct cairn_client *client, const char *traceparent);

// Text of the last failure of a call of this client, with cause and remedy; inside on_done: of this
// call. Valid until the next call.
CAIRN_API const char *cairn_client_error(const struct cairn_client *client);
CAIRN_API const char *cairn_client_socket(const struct cairn_client *client);
CAIRN_API void cairn_client_server(const struct cairn_client *client,
                                   struct cairn_server_info *ret_info);

// A descriptor that is readable when cairn_client_poll has something to do. The same for the
// client's whole life.
CAIRN_API int cairn_client_fd(const struct cairn_client *client);
// Sends, receives and runs what is done, waiting up to timeout_ms for something (-1: until the next
// deadline, 0: not at all). Returns the number of calls that ended, or CAIRN_EBUSY inside an
// on_done. A lost connection shows in the calls that it ended, never here.
CAIRN_API int cairn_client_poll(struct cairn_client *client, int timeout_ms);
// Calls that have not ended.
CAIRN_API size_t cairn_client_pending(const struct cairn_client *client);

CAIRN_API int cairn_ping(struct cairn_client *client, struct cairn_call *call,
                         struct cairn_ping_info *ret_info);
// on_metric runs once a metric, before on_done; its texts live for its call.
CAIRN_API int cairn_stats(struct cairn_client *client, struct cairn_call *call,
                          void (*on_metric)(void *arg, const char *name, const char *labels,
                                            double value),
                          void *arg);

// Does loading what the daemon stores beat computing it again?
struct cairn_break_even {
        double disk_bytes_s; // as the daemon has measured it; 0: too little was read from it so far
        double ram_bytes_s;  // a copy in memory, as measured here
        double disk_tokens_s; // these, over the bytes of a token
        double ram_tokens_s;
        bool load_from_disk; // it is faster than prefill_tokens_s; true while it is unknown
        bool load_from_ram;
};
// bytes_per_token: K and V of all layers (block_bytes / block_tokens). prefill_tokens_s: what the
// model computes. Blocks: asks for the daemon's numbers, and copies 16 MiB the first time.
CAIRN_API int cairn_break_even(struct cairn_client *client, double bytes_per_token,
                               double prefill_tokens_s, struct cairn_break_even *ret_answer);

// For operators (root, the daemon's user, operator_gids): CAIRN_EPERM to others.
// Reads the configuration again; ret_text[512] (may be NULL) says what changed and what needs a
// restart. CAIRN_EINVAL: it is wrong, and nothing changed.
CAIRN_API int cairn_reload(struct cairn_client *client, struct cairn_call *call, char *ret_text);
// The daemon stops as SIGTERM stops it, within limit_ms (0: its stop_timeout).
CAIRN_API int cairn_drain(struct cairn_client *client, struct cairn_call *call, uint64_t limit_ms);

struct cairn_verify_info {
        uint64_t blocks;
        uint64_t corrupt; // are misses now, and can be put again
        uint64_t unread;  // the disk refused, or memory had no room in time
        uint64_t bytes;   // read and checked
};
// The daemon reads and checks every copy of every block, rate_bytes a second (0: its verify_rate).
// Takes as long as that takes: give the call a deadline. CAIRN_EBUSY: another is under way.
CAIRN_API int cairn_verify(struct cairn_client *client, struct cairn_call *call,
                           uint64_t rate_bytes, struct cairn_verify_info *ret_info);

// ---- operators' lists, a page at a time ----

// What to list: zero for all of it, from the start, 256 at most.
struct cairn_list {
        uint64_t cursor; // what the page before gave
        uint32_t max;    // at most 1024
        bool by_tenant;
        uint32_t tenant; // a uid
        // Blocks alone:
        uint32_t space; // number of a space, as list_spaces gives it
        uint32_t tier;  // 1: with a copy in RAM, 2: on NVMe
        bool held;      // that somebody holds
        const uint8_t *key;
        size_t key_bytes; // of `key`: what keys begin with
};
// Pointers in these live for the call that hands them over.
struct cairn_block_info {
        uint32_t space;
        uint32_t tenant;
        struct cairn_key key;
        struct cairn_key parent; // zero: a root
        uint64_t ram_bytes;      // 0: no copy there
        uint64_t nvme_bytes;
        uint32_t holds; // by leases, contexts, pins and requests at work
        uint32_t children;
        bool unwritten;      // not on NVMe (yet)
        uint64_t uses_since; // uses of blocks since this one's last: how long it rests
        uint64_t generation;
        uint64_t expires_ms; // from now on; 0: never
};
struct cairn_holder {
        uint32_t tenant;
        uint32_t pid;
        const char *client; // what it calls itself
};
struct cairn_context_info {
        uint64_t context;
        uint32_t space;
        struct cairn_holder holder;
        uint64_t tokens;
        uint64_t tail_tokens; // of them, appended
        uint32_t blocks;      // stored ones that it holds
        bool busy;            // an Append or Retain is at work
};
struct cairn_lease_info {
        uint64_t lease;
        struct cairn_holder holder;
        uint32_t blocks;
        uint64_t left_ms;
        struct cairn_key first_key; // of its blocks
};
// A key of the configuration as it stands.
struct cairn_setting {
        const char *name;
        const char *value;
        const char *source; // "default", "file", "environment" or "flag"
        const char *help;
        uint64_t number; // what "5%" or "auto" came to; else 0
        bool reloadable;
};
// For operators. on_...: once an entry, before on_done. *ret_cursor is where the next page begins,
// 0 at the end; a page may be empty and not the last.
CAIRN_API int cairn_list_blocks(struct cairn_client *client, struct cairn_call *call,
                                const struct cairn_list *list,
                                void (*on_block)(void *arg, const struct cairn_block_info *info),
                                void *arg, uint64_t *ret_cursor);
CAIRN_API int cairn_list_contexts(struct cairn_client *client, struct cairn_call *call,
                                  const struct cairn_list *list,
                                  void (*on_context)(void *arg,
                                                     const struct cairn_context_info *info),
                                  void *arg, uint64_t *ret_cursor);
CAIRN_API int cairn_list_leases(struct cairn_client *client, struct cairn_call *call,
                                const struct cairn_list *list,
                                void (*on_lease)(void *arg, const struct cairn_lease_info *info),
                                void *arg, uint64_t *ret_cursor);
// ret_file[4096] (may be NULL): the file that was read, or "".
CAIRN_API int cairn_show_config(struct cairn_client *client, struct cairn_call *call,
                                void (*on_setting)(void *arg, const struct cairn_setting *setting),
                                void *arg, char *ret_file);

// ---- arenas ----

struct cairn_arena; // lives until destroyed, or with its client

// Shared memory of at least `bytes`, zeroed, mapped here and registered with the daemon; sealed
// against resizing. Blocks.
CAIRN_API int cairn_client_arena_create(struct cairn_client *client, uint64_t bytes,
                                        struct cairn_arena **ret_arena);
// No request that uses it may be under way (CAIRN_EBUSY). NULL is fine.
CAIRN_API int cairn_client_arena_destroy(struct cairn_client *client, struct cairn_arena *arena);
CAIRN_API void *cairn_client_arena_data(const struct cairn_arena *arena);
CAIRN_API uint64_t cairn_client_arena_bytes(const struct cairn_arena *arena);

// ---- spaces of a client ----

// *ret_space is a number of this client, valid until its end, across reconnects. CAIRN_EMISMATCH,
// CAIRN_EINVAL. Blocks.
CAIRN_API int cairn_client_open_space(struct cairn_client *client,
                                      const struct cairn_space_config *config, uint32_t *ret_space);
// Description and fingerprint of an opened space (blocks and bytes are as of its opening).
CAIRN_API int cairn_client_space(const struct cairn_client *client, uint32_t space,
                                 struct cairn_space_info *ret_info);
// on_space runs once a space that the daemon stores, before on_done.
CAIRN_API int cairn_list_spaces(struct cairn_client *client, struct cairn_call *call,
                                void (*on_space)(void *arg, const struct cairn_space_info *info),
                                void *arg);

// ---- blocks ----

enum {
        CAIRN_KEYS_A_CALL_MAX = 4096
}; // asynchronous calls; blocking ones take any number

// A hold on blocks. id 0: none.
struct cairn_lease {
        uint64_t id;
        uint64_t connection; // the library's
};

// Length of the longest prefix of keys[count] that is stored, held for lease_ms (0: not held;
// ret_lease may be NULL).
CAIRN_API int cairn_lookup(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                           const struct cairn_key *keys, size_t count, uint32_t lease_ms,
                           size_t *ret_found, struct cairn_lease *ret_lease);
CAIRN_API int cairn_release(struct cairn_client *client, struct cairn_call *call,
                            const struct cairn_lease *lease);

enum {
        CAIRN_PUT_ACK_MEMORY = 0,
        CAIRN_PUT_ACK_DISK = 1
};
struct cairn_put_args {
        uint32_t space;
        const struct cairn_key *keys;
        size_t count;
        const struct cairn_key
            *parent; // of keys[0], NULL: a root; each further key's parent is the one before it
        const struct cairn_key *parents; // or one a key (all zero: a root); then parent is NULL
        const void *blocks;              // side by side
        const void *const *blocks_at;    // or one pointer a key
        uint32_t ack; // MEMORY: answered once whole in RAM; DISK: once it would survive a crash
        uint64_t recompute_us; // what a miss would cost, for eviction; 0: unknown
        uint64_t ttl_ms;       // 0: for ever
};
// ret_statuses[count] (may be NULL): CAIRN_OK or CAIRN_EEXIST are both good (EEXIST: visible; after
// a put that asked for MEMORY alone it may still be on its way to disk). Returns 0 when every key
// has a status; with ret_statuses NULL, the first bad one. Asynchronous: blocks lie in an arena,
// or take <= 4 MiB together.
CAIRN_API int cairn_put(struct cairn_client *client, struct cairn_call *call,
                        const struct cairn_put_args *args, int *ret_statuses);

struct cairn_get_args {
        uint32_t space;
        const struct cairn_key *keys;
        size_t count;
        struct cairn_lease lease; // of a lookup; zero: none
        uint32_t layer_first;
        uint32_t
            layer_count; // 0: all. Each key yields its layers [first, first + count) side by side
        void *blocks;    // to: side by side
        void *const *blocks_at; // or one pointer a key
};
// As cairn_put. What a key without CAIRN_OK would have filled is not to be read. An asynchronous
// call keeps blocks_at itself, and where it points, until its end; keys are read at once.
CAIRN_API int cairn_get(struct cairn_client *client, struct cairn_call *call,
                        const struct cairn_get_args *args, int *ret_statuses);

// A leased block (or some of its layers), read where it lies: in the daemon's RAM tier, which the
// library maps read-only.
struct cairn_segment; // the library's
struct cairn_view {
        const void *bytes; // NULL: none
        uint64_t size_bytes;
        struct cairn_segment *segment; // this and the rest are the library's
        uint64_t slot;
        uint64_t generation;
};
// As cairn_get, without a copy: args->blocks and blocks_at are NULL, args->lease is of a lookup.
// The daemon keeps the blocks in RAM until the lease ends; after that the bytes may be replaced at
// any moment: read, then ask cairn_view_valid. ret_views[count]: each is to be released, also when
// its lease has ended. Statuses, besides those of cairn_get: CAIRN_EUNSUPPORTED (the call's): the
// daemon serves no views; CAIRN_EBUSY: leases pin as much as the daemon lets them; CAIRN_EPERM:
// another user's block; CAIRN_ESTALE: the lease has ended; CAIRN_EAGAIN (asynchronous calls, which
// need ret_statuses): more memory is named for the first time than one answer can show: ask again.
CAIRN_API int cairn_get_views(struct cairn_client *client, struct cairn_call *call,
                              const struct cairn_get_args *args, struct cairn_view *ret_views,
                              int *ret_statuses);
// True: what was read from the view before this call was the block. False: it may not have been,
// since the lease has ended and its memory was used anew, or the connection was lost. Any thread.
CAIRN_API bool cairn_view_valid(const struct cairn_view *view);
// The view's bytes may be unmapped from here on. It does not end the lease (cairn_release does).
// Any thread, also after the client's end; a second time, or an empty view, is fine.
CAIRN_API void cairn_view_release(struct cairn_view *view);

// CAIRN_ENOENT: it was not there; CAIRN_EHELD: it is pinned, or under legal hold
// (cairn_client_error says which). purge: the caller's own pins do not count, and end with it, and
// the bytes are overwritten: see cairn_purge in cairn/tenant.h.
CAIRN_API int cairn_delete(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                           const struct cairn_key *keys, size_t count, bool purge,
                           int *ret_statuses);

struct cairn_pin_args {
        uint32_t space;
        const struct cairn_key *keys;
        size_t count;
        const char *owner; // NULL: ""; who unpins names it again. At most 128 bytes
        uint64_t for_ms;   // 0: until unpinned
        bool hard;         // it outlives the connection; until unpinned, or the daemon ends
};
// Pins keep blocks in a local tier, and keep them from being deleted. Pinning again, by the same
// owner, renews. Statuses: CAIRN_OK; CAIRN_ENOENT: no such block (unpin: no such pin of this tenant
// and owner); CAIRN_EBUSY: too many pins.
CAIRN_API int cairn_pin(struct cairn_client *client, struct cairn_call *call,
                        const struct cairn_pin_args *args, int *ret_statuses);
CAIRN_API int cairn_unpin(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                          const struct cairn_key *keys, size_t count, const char *owner,
                          int *ret_statuses);
// Brings blocks into RAM, as many as it has room for; ends when they are there. Keys that are not
// stored are passed over.
CAIRN_API int cairn_prefetch(struct cairn_client *client, struct cairn_call *call, uint32_t space,
                             const struct cairn_key *keys, size_t count, size_t *ret_loaded);

// ---- contexts ----

// A chain opened for retrieval, with an open tail.
struct cairn_context {
        uint64_t id;
        uint64_t connection; // the library's
        uint64_t tokens;     // as of the last open, append or fork that ended
        uint32_t space;
};

// keys may be NULL with count 0: an empty context. CAIRN_ENOENT names the first key that is not
// there.
CAIRN_API int cairn_open_context(struct cairn_client *client, struct cairn_call *call,
                                 uint32_t space, const struct cairn_key *keys, size_t count,
                                 struct cairn_context *ret_context);
// rows: [layer][KV head]{K [tokens][k_dim], V [tokens][v_dim]}. context->tokens follows when it
// ends.
CAIRN_API int cairn_append(struct cairn_client *client, struct cairn_call *call,
                           struct cairn_context *context, const void *rows, uint32_t tokens);
CAIRN_API int cairn_fork(struct cairn_client *client, struct cairn_call *call,
                         const struct cairn_context *context, struct cairn_context *ret_context);
// Turns the full blocks of the tail into stored blocks named keys[count]; ret_statuses[count] may
// be NULL.
CAIRN_API int cairn_seal(struct cairn_client *client, struct cairn_call *call,
                         const struct cairn_context *context, const struct cairn_key *keys,
                         size_t count, const struct cairn_key *parent, size_t *ret_sealed,
                         int *ret_statuses);
CAIRN_API int cairn_close_context(struct cairn_client *client, struct cairn_call *call,
                                  const struct cairn_context *context);

// How many rows a KV head: exactly one of count, share (of the tokens), threshold (estimated
// probability), mass.
struct cairn_budget {
        uint32_t count;
        double share;
        double threshold;
        double mass;
        uint32_t cap; // most rows: required with threshold or mass, optional with a share
};
struct cairn_range {
        uint64_t begin;
        uint64_t end; // half open
};
enum {
        CAIRN_GROUP_RULE_MAX = 0,
        CAIRN_GROUP_RULE_SUM = 1
};
enum {
        CAIRN_FIND_TOKEN = 0, // landmarks of every token
        CAIRN_FIND_CHUNK_MEAN = 1,
        CAIRN_FIND_CHUNK_MINMAX = 2,
        CAIRN_FIND_EXACT = 3,
};

// Begin with zeros. Everything pointed at is read before the call returns.
struct cairn_retrieve_args {
        const struct cairn_context *contexts; // one a pair, or one for all
        size_t contexts_count;
        const uint32_t *layers; // one a pair
        size_t layers_count;
        uint32_t steps;       // 0: 1
        uint32_t query_heads; // a multiple of the space's kv_heads
        const float *queries; // [pair][step][query head][k_dim]
        // [pair][step][query head] or NULL: log-sum-exp of scale * q.k over all that the worker
        // holds, generated tokens too; -INFINITY: nothing. NULL: estimated from the excluded
        // tokens.
        const float *held_lse;
        float scale; // 0: 1 / sqrt(k_dim)
        struct cairn_budget budget;
        const struct cairn_range *excluded; // ascending: positions that the worker holds itself
        size_t excluded_count;
        float rerank_factor; // 0: the default
        uint32_t group_rule;
        uint32_t landmark; // CAIRN_FIND_*
        uint32_t chunk_tokens;
        uint32_t row_dtype; // 0: the space's
        bool rows;          // cairn_retrieve: gather K and V rows
        bool rest;          // one more partial, for all tokens not chosen
        bool all;           // cairn_attend: over every row, budget is ignored
        bool demoted; // only rows that the context's last cairn_retain demoted, and later ones: the
                      // worker holds what it kept, a set of its own a head, and says so in held_lse
};

// Where the parts of an answer lie: pointers into the result memory; NULL where a part is absent.
struct cairn_selection {
        uint32_t pairs;
        uint32_t steps;
        uint32_t kv_heads;
        uint32_t query_heads;
        uint32_t k_max;
        uint32_t k_dim;
        uint32_t v_dim;
        uint32_t out_dim; // of part_out and rest_out: v_dim, or v_prefix of latent attention
        uint32_t row_dtype;
        const uint32_t *counts;    // [P][S][H], each <= k_max
        const uint32_t *positions; // [P][S][H][k_max], ascending
        const float *scores;       // [P][S][H][k_max]: log of the group's softmax probability
        const float *lse;          // [P][S][Q][2]: of the chosen, of all that were not excluded
        const float *mass_error;   // [P][S][Q]: standard error of exp(chosen - all), the mass held
        const float *part_lse;     // [P][S][Q]         attend
        const float *part_out;     // [P][S][Q][out_dim]  attend
        const float *rest_lse;     // [P][S][Q]         rest (-inf: nothing left)
        const float *rest_out;     // [P][S][Q][out_dim]  rest
        const void *k_rows;        // [P][S][H][k_max][k_dim], row_dtype
        const void *v_rows;        // [P][S][H][k_max][v_dim]
        uint64_t result_bytes;
        uint64_t tokens_scanned;
        uint64_t bytes_scanned;
        uint64_t kernel_ns;
};

// Most bytes that the answer to these arguments can take (0: the arguments are no good).
CAIRN_API uint64_t cairn_retrieve_bytes(const struct cairn_client *client,
                                        const struct cairn_retrieve_args *args, bool attend);
// The k best tokens a step and KV head. The answer lies in result[result_bytes] (aligned to 64), in
// an arena or not; with result NULL (blocking calls) in memory of the client, until its next
// retrieve or attend.
CAIRN_API int cairn_retrieve(struct cairn_client *client, struct cairn_call *call,
                             const struct cairn_retrieve_args *args, void *result,
                             uint64_t result_bytes, struct cairn_selection *ret_selection);
// The same, but instead of rows the attention output over them.
CAIRN_API int cairn_attend(struct cairn_client *client, struct cairn_call *call,
                           const struct cairn_retrieve_args *args, void *result,
                           uint64_t result_bytes, struct cairn_selection *ret_selection);
// Rows at positions[sum of counts], counts a KV head of the space. result: K [sum][k_dim], then, at
// the next multiple of 64 bytes, V [sum][v_dim], in row_dtype (0: the space's).
CAIRN_API int cairn_fetch_rows(struct cairn_client *client, struct cairn_call *call,
                               const struct cairn_context *context, uint32_t layer,
                               const uint32_t *counts, const uint32_t *positions,
                               uint32_t row_dtype, void *result, uint64_t result_bytes);
// The landmarks of a layer, all KV heads: what a worker needs to score tokens itself (on a GPU,
// say) and ask for rows by position. The bytes are documented in policy/landmark/export.h.
// *ret_bytes: how many there are; result NULL asks for that alone. CAIRN_ERANGE: result_bytes are
// too few.
CAIRN_API int cairn_export_landmarks(struct cairn_client *client, struct cairn_call *call,
                                     const struct cairn_context *context, uint32_t layer,
                                     void *result, uint64_t result_bytes, uint64_t *ret_bytes);

// ---- retention ----

enum {
        CAIRN_PLAN_CURVE_POINTS = 64
};

// What stays hot of a context, by NACL (arXiv 2408.03675). Begin with cairn_retain_args_init.
// Everything pointed at is read before the call returns.
struct cairn_retain_args {
        const struct cairn_context *context;
        const uint32_t *layers; // ascending
        size_t layers_count;    // 0: all
        // Proxy tokens, usually the question at the end of the prompt, and their queries.
        const float *queries; // [layer][proxy][query head][k_dim]
        uint32_t query_heads;
        uint32_t proxies_count;
        const struct cairn_range *proxies; // ascending: where they are. NULL: the last tokens
        size_t proxies_ranges;
        float scale; // 0: 1 / sqrt(k_dim)
        bool causal; // a proxy sees what lies before it; else every token, as in the paper's code
        // Shares of the tokens, rounded down.
        double proxy_keep;  // 0.12: the highest scores
        double random_keep; // 0.07: sampled from the others, by seed
        double protect;     // 0.01: the first `sinks` and the most recent, together
        uint32_t sinks;     // 4
        const struct cairn_range *protected_ranges; // ascending: tokens that stay in any case
        size_t protected_count;
        bool spread; // heads of a layer share their budgets by where the mass lies
        double even; // spread: this part of each head's budget stays its own
        uint64_t seed;
        bool drop; // what does not stay is gone from this context, and from forks of it made later,
                   // for good; else all of it is still found by cairn_retrieve
};
CAIRN_API void cairn_retain_args_init(struct cairn_retain_args *ret_args);

// Pointers into the result memory.
struct cairn_retained {
        uint32_t layers;
        uint32_t kv_heads;
        const uint32_t *counts;    // [layers][kv_heads]
        const float *mass;         // [layers][kv_heads]: share of the proxies' attention that stays
        const uint32_t *positions; // ascending, one head after the other
        uint64_t kept;             // all counts
        uint64_t removed;
        double mass_mean;
        double mass_lowest;
        uint32_t lowest_layer;
        uint32_t lowest_head;
        uint64_t result_bytes;
        uint64_t kernel_ns;
};
// Most bytes that the answer can take (0: the arguments are no good).
CAIRN_API uint64_t cairn_retain_bytes(const struct cairn_client *client,
                                      const struct cairn_retain_args *args);
// `result` as in cairn_retrieve. A drop happens whole or, with any error, not at all.
CAIRN_API int cairn_retain(struct cairn_client *client, struct cairn_call *call,
                           const struct cairn_retain_args *args, void *result,
                           uint64_t result_bytes, struct cairn_retained *ret_retained);

// What a share of every head's tokens would hold: on average, and the head that holds least.
struct cairn_plan_point {
        double share;
        double mass;
        double mass_lowest;
        uint32_t lowest_layer;
        uint32_t lowest_head;
};
struct cairn_plan_args {
        struct cairn_retain_args retain; // seed, spread, drop and the two keeps are not looked at
        double target_mass;              // 0: 0.99
        const double *budgets;           // shares to ask about, at most 64
        size_t budgets_count;
};
// Pointers into the result memory; P = CAIRN_PLAN_CURVE_POINTS.
struct cairn_plan {
        uint32_t layers;
        uint32_t kv_heads;
        uint64_t tokens;
        struct cairn_plan_point needed; // the smallest share that holds target_mass on average
        struct cairn_plan_point curve[CAIRN_PLAN_CURVE_POINTS];
        struct cairn_plan_point budgets[CAIRN_PLAN_CURVE_POINTS]; // one a budget asked about
        const uint32_t *head_needed;      // [layers][kv_heads]: the fewest tokens for target_mass
        const uint32_t *head_protected;   // [layers][kv_heads]
        const float *head_mass_needed;    // [layers][kv_heads]: what the needed hold
        const float *head_mass_protected; // [layers][kv_heads]
        const uint32_t *head_kept;        // [layers][kv_heads][P]: tokens at a point of the curve
        const float *head_mass;           // [layers][kv_heads][P]
        uint64_t result_bytes;
        uint64_t kernel_ns;
};
CAIRN_API uint64_t cairn_plan_bytes(const struct cairn_client *client,
                                    const struct cairn_plan_args *args);
// The dry run: changes nothing.
CAIRN_API int cairn_plan(struct cairn_client *client, struct cairn_call *call,
                         const struct cairn_plan_args *args, void *result, uint64_t result_bytes,
                         struct cairn_plan *ret_plan);

#ifdef __cplusplus
}
#endif

#endif
