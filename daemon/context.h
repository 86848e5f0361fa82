// Contexts: a chain of stored blocks, held and pinned, and a tail that its worker appends to.
//
// Tokens are never moved once they are there: the chain is fixed, full tail blocks are constant,
// and an append writes beyond what was counted before. So requests that read a context work on a
// *view* (what was there when they began) while appends go on. Memory goes with the last use. May
// be used by: daemon. May use: proto, policy, storage. Threads: the loop's, but for views, which
// scorers read.
#ifndef CAIRN_CONTEXT_H
#define CAIRN_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/session.h"
#include "daemon/space_table.h"
#include "policy/landmark/landmark.h"
#include "storage/store.h"

struct cairn_request;
struct cairn_present_replaced;

// Stored blocks, held and pinned. Shared by a context and its forks; constant.
struct cairn_chain {
        uint32_t uses;
        uint32_t count;
        uint32_t parts;              // CAIRN_PART_* pinned of each
        struct cairn_block **blocks; // owned
};

// One block of the tail: raw rows as in a stored block, and its code once it is full. A full one is
// constant, and shared with forks.
struct cairn_tail_block {
        uint32_t uses;
        uint8_t *raw;  // [layer][KV head]{K [block_tokens], V [block_tokens]}
        uint8_t *code; // [layer][KV head] code runs, made once the block is full; NULL: the space
                       // has none
};

// The tail's blocks. It grows into a new array; views keep reading the older ones, which stay until
// the context goes.
struct cairn_tail_array {
        struct cairn_tail_array *older;
        uint32_t capacity;
        struct cairn_tail_block *blocks[];
};

// A bit a token of each (layer, KV head): rows that drops left, or rows that the last Retain
// demoted (and so the worker does not hold). Constant from the moment a context has it, and shared
// by forks. Tokens from `end` on came later: they count as 1.
struct cairn_present {
        uint32_t uses;
        uint64_t end;
        uint64_t words;  // a head
        uint64_t bytes;  // counted against context_bytes
        uint64_t bits[]; // [layer][KV head][words]
};

struct cairn_context {
        struct cairn_context *next;    // of the session
        struct cairn_session *session; // NULL once closed
        struct cairn_server *server;
        const struct cairn_space_entry *entry;
        uint64_t id;
        uint32_t uses; // the session, and each request at work
        struct cairn_chain *chain;
        // The tail.
        struct cairn_tail_array *tail; // NULL: nothing was appended yet
        uint32_t tail_count;           // blocks with memory
        uint64_t tail_tokens;
        // Appends are done one after the other.
        struct cairn_request *append_head;
        struct cairn_request *append_tail;
        bool appending;
        // Retains, one at a time.
        struct cairn_present *present;           // what drops left; NULL: every row is there
        struct cairn_present *demoted;           // by the last Retain; NULL: none did
        struct cairn_present_replaced *replaced; // that requests at work may still read
        bool retaining;
};

// What a request sees. Valid while the context is in use.
struct cairn_context_view {
        const struct cairn_context *context;
        const struct cairn_tail_array *tail;
        uint64_t tail_tokens;
        uint64_t tokens; // of chain and tail
        const struct cairn_present *present;
        const struct cairn_present *demoted;
};

// Takes blocks[count] (held, pinned, and in the server's pin table) over. CAIRN_ENOMEM, CAIRN_EBUSY
// (CAIRN_CONTEXTS_MAX): they stay the caller's.
int cairn_context_create(struct cairn_session *session, const struct cairn_space_entry *entry,
                         struct cairn_block **blocks, uint32_t blocks_count, uint32_t parts,
                         struct cairn_context **ret_context);
struct cairn_context *cairn_context_find(const struct cairn_session *session, uint64_t id);
// A new context of the same session with the view's tokens: chain and full tail blocks shared, an
// unfinished one with room of its own, whose rows the caller copies (cairn_context_copy_open, any
// thread) before it tells anyone. CAIRN_ENOMEM, CAIRN_EBUSY.
int cairn_context_fork(struct cairn_session *session, const struct cairn_context_view *view,
                       struct cairn_context **ret_context);
void cairn_context_copy_open(const struct cairn_context_view *from, struct cairn_context *to);
// The session lets go of it.
void cairn_context_close(struct cairn_session *session, struct cairn_context *context);
void cairn_context_ref(struct cairn_context *context);
void cairn_context_unref(struct cairn_context *context);

// Makes room for `tokens` more, charged against context_bytes. CAIRN_ENOMEM: above it;
// CAIRN_ERANGE: above CAIRN_CONTEXT_TOKENS_MAX.
int cairn_context_reserve(struct cairn_context *context, uint64_t tokens);
void cairn_context_view(const struct cairn_context *context, struct cairn_context_view *ret_view);

// Pieces of one (layer, KV head) of a view, for the policy. Any thread. `pieces` has room for
// cairn_context_pieces(view). Returns how many were written.
uint32_t cairn_context_pieces(const struct cairn_context_view *view);
uint32_t cairn_context_fill(const struct cairn_context_view *view, uint32_t layer, uint32_t head,
                            struct cairn_landmark_piece *pieces);

// present.c. Room for the bits of `tokens` tokens, all 0, charged against context_bytes.
// CAIRN_ENOMEM.
int cairn_present_create(struct cairn_server *server, const struct cairn_space_entry *entry,
                         uint64_t tokens, struct cairn_present **ret_present);
void cairn_present_unref(struct cairn_server *server, struct cairn_present *present); // NULL: fine
// Bits of one head; any thread. NULL: `present` is NULL, all are there.
uint64_t *cairn_present_bits(const struct cairn_present *present,
                             const struct cairn_space_entry *entry, uint32_t layer, uint32_t head);
// The context has these bits from now on (taken over); what it had is kept for those who read it.
// A drop leaves nothing demoted. CAIRN_ENOMEM: nothing changed, and the bits stay the caller's.
int cairn_context_drop(struct cairn_context *context, struct cairn_present *present);
int cairn_context_demote(struct cairn_context *context, struct cairn_present *demoted);
// Frees what was replaced; nobody may be reading it.
void cairn_context_forget_replaced(struct cairn_context *context);

#endif
