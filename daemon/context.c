// Contexts: their life, their tail's memory, and the pieces that the policy reads.
#include "daemon/context.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/secret.h"
#include "daemon/server.h"
#include "proto/status.h"

// ---- life ----

// An empty context in the session's list, with a use of `chain` taken over. NULL: no memory.
static struct cairn_context *new_context(struct cairn_session *session,
                                         const struct cairn_space_entry *entry,
                                         struct cairn_chain *chain)
{
        struct cairn_server *server = session->server;
        struct cairn_context *context = calloc(1, sizeof(*context));

        if (!context)
                return NULL;
        context->session = session;
        context->server = server;
        context->entry = entry;
        context->id = (server->incarnation << 32) | (uint32_t)++server->context_last;
        context->uses = 1;
        context->chain = chain;
        context->next = session->contexts;
        session->contexts = context;
        session->contexts_count++;
        server->counters.contexts++;
        server->counters.contexts_unfinished++;
        return context;
}

int cairn_context_create(struct cairn_session *session, const struct cairn_space_entry *entry,
                         struct cairn_block **blocks, uint32_t blocks_count, uint32_t parts,
                         struct cairn_context **ret_context)
{
        struct cairn_chain *chain;
        struct cairn_context *context;

        if (session->contexts_count >= CAIRN_CONTEXTS_MAX)
                return CAIRN_EBUSY;
        chain = malloc(sizeof(*chain));
        if (!chain)
                return CAIRN_ENOMEM;
        *chain = (struct cairn_chain){
            .uses = 1, .count = blocks_count, .parts = parts, .blocks = blocks};
        context = new_context(session, entry, chain);
        if (!context) {
                free(chain);
                return CAIRN_ENOMEM;
        }
        *ret_context = context;
        return CAIRN_OK;
}

struct cairn_context *cairn_context_find(const struct cairn_session *session, uint64_t id)
{
        for (struct cairn_context *context = session->contexts; context; context = context->next)
                if (context->id == id)
                        return context;
        return NULL;
}

void cairn_context_close(struct cairn_session *session, struct cairn_context *context)
{
        struct cairn_context **link = &session->contexts;

        while (*link != context) {
                assert(*link);
                link = &(*link)->next;
        }
        *link = context->next;
        context->next = NULL;
        context->session = NULL;
        session->contexts_count--;
        context->server->counters.contexts--;
        cairn_context_unref(context);
}

void cairn_context_ref(struct cairn_context *context)
{
        assert(context->uses > 0);
        context->uses++;
}

static uint64_t tail_block_bytes(const struct cairn_space_entry *entry)
{
        return entry->block_bytes + entry->code_bytes;
}

static void unref_tail_block(struct cairn_context *context, struct cairn_tail_block *block)
{
        assert(block->uses > 0);
        if (--block->uses > 0)
                return;
        context->server->counters.context_bytes -= tail_block_bytes(context->entry);
        free(block->raw);
        free(block->code);
        free(block);
}

static void unref_chain(struct cairn_server *server, struct cairn_chain *chain)
{
        assert(chain->uses > 0);
        if (--chain->uses > 0)
                return;
        for (uint32_t i = 0; i < chain->count; i++) {
                if (chain->parts != 0)
                        cairn_store_unpin(server->store, chain->blocks[i], chain->parts);
                cairn_pin_remove(&server->pins, chain->blocks[i]);
                cairn_store_unhold(server->store, chain->blocks[i]);
        }
        free(chain->blocks);
        free(chain);
}

void cairn_context_unref(struct cairn_context *context)
{
        struct cairn_server *server = context->server;

        assert(context->uses > 0);
        if (--context->uses == 1 && context->session)
                cairn_context_forget_replaced(context); // only the session is left
        if (context->uses > 0)
                return;
        assert(!context->session && !context->append_head);
        cairn_context_forget_replaced(context);
        cairn_present_unref(server, context->present);
        cairn_present_unref(server, context->demoted);
        unref_chain(server, context->chain);
        for (uint32_t i = 0; i < context->tail_count; i++)
                unref_tail_block(context, context->tail->blocks[i]);
        while (context->tail) {
                struct cairn_tail_array *older = context->tail->older;

                free(context->tail);
                context->tail = older;
        }
        server->counters.contexts_unfinished--;
        free(context);
}

// ---- the tail ----

static int grow_array(struct cairn_context *context)
{
        struct cairn_tail_array *older = context->tail;
        uint32_t capacity = older ? 2 * older->capacity : 8;
        struct cairn_tail_array *array =
            malloc(sizeof(*array) + capacity * sizeof(array->blocks[0]));

        if (!array)
                return CAIRN_ENOMEM;
        array->older = older;
        array->capacity = capacity;
        if (older)
                memcpy(array->blocks, older->blocks,
                       context->tail_count * sizeof(array->blocks[0]));
        context->tail = array;
        return CAIRN_OK;
}

// One more block of the tail, charged against context_bytes.
static int add_tail_block(struct cairn_context *context)
{
        const struct cairn_space_entry *entry = context->entry;
        struct cairn_server *server = context->server;
        uint64_t limit = server->config->context_bytes;
        uint64_t bytes = tail_block_bytes(entry);
        uint64_t code_bytes = (entry->code_bytes + 63) & ~63ull;
        struct cairn_tail_block *block;

        if (bytes > limit || server->counters.context_bytes > limit - bytes)
                return CAIRN_ENOMEM;
        if ((!context->tail || context->tail_count == context->tail->capacity) &&
            grow_array(context) != CAIRN_OK)
                return CAIRN_ENOMEM;
        block = calloc(1, sizeof(*block));
        if (!block)
                return CAIRN_ENOMEM;
        block->uses = 1;
        block->raw = cairn_secret_alloc(entry->block_bytes);
        block->code = cairn_secret_alloc(code_bytes);
        if (!block->raw || (code_bytes > 0 && !block->code)) {
                free(block->raw);
                free(block->code);
                free(block);
                return CAIRN_ENOMEM;
        }
        server->counters.context_bytes += bytes;
        context->tail->blocks[context->tail_count++] = block;
        return CAIRN_OK;
}

int cairn_context_reserve(struct cairn_context *context, uint64_t tokens)
{
        uint64_t block_tokens = context->entry->space.block_tokens;
        uint64_t chain_tokens = context->chain->count * block_tokens;
        uint64_t wanted;

        if (tokens > CAIRN_CONTEXT_TOKENS_MAX - chain_tokens ||
            context->tail_tokens > CAIRN_CONTEXT_TOKENS_MAX - chain_tokens - tokens)
                return CAIRN_ERANGE;
        wanted = (context->tail_tokens + tokens + block_tokens - 1) / block_tokens;
        while (context->tail_count < wanted) {
                int status = add_tail_block(context);

                if (status != CAIRN_OK)
                        return status;
        }
        return CAIRN_OK;
}

// ---- forks ----

int cairn_context_fork(struct cairn_session *session, const struct cairn_context_view *view,
                       struct cairn_context **ret_context)
{
        const struct cairn_context *from = view->context;
        uint64_t block_tokens = from->entry->space.block_tokens;
        uint64_t full = view->tail_tokens / block_tokens;
        struct cairn_context *context;
        int status = CAIRN_OK;

        if (session->contexts_count >= CAIRN_CONTEXTS_MAX)
                return CAIRN_EBUSY;
        context = new_context(session, from->entry, from->chain);
        if (!context)
                return CAIRN_ENOMEM;
        context->chain->uses++;
        context->present = from->present;
        if (context->present)
                context->present->uses++;
        context->demoted = from->demoted;
        if (context->demoted)
                context->demoted->uses++;
        for (uint64_t i = 0; i < full && status == CAIRN_OK; i++) {
                if (!context->tail || context->tail_count == context->tail->capacity)
                        status = grow_array(context);
                if (status != CAIRN_OK)
                        break;
                view->tail->blocks[i]->uses++;
                context->tail->blocks[context->tail_count++] = view->tail->blocks[i];
        }
        context->tail_tokens = full * block_tokens;
        if (status == CAIRN_OK)
                status = cairn_context_reserve(context, view->tail_tokens - context->tail_tokens);
        if (status != CAIRN_OK) {
                cairn_context_close(session, context);
                return status;
        }
        context->tail_tokens = view->tail_tokens;
        *ret_context = context;
        return CAIRN_OK;
}

void cairn_context_copy_open(const struct cairn_context_view *from, struct cairn_context *to)
{
        const struct cairn_space_entry *entry = to->entry;
        uint64_t element = cairn_dtype_bytes(entry->space.dtype);
        uint64_t full = from->tail_tokens / entry->space.block_tokens;
        uint64_t rows = from->tail_tokens % entry->space.block_tokens;

        if (rows == 0)
                return;
        for (uint64_t i = 0; i < (uint64_t)entry->space.layers * entry->space.kv_heads; i++) {
                uint64_t at = i / entry->space.kv_heads * entry->shape.raw_layer_bytes +
                              i % entry->space.kv_heads * entry->layout.raw_bytes;
                const uint8_t *source = from->tail->blocks[full]->raw + at;
                uint8_t *target = to->tail->blocks[full]->raw + at;

                memcpy(target, source, rows * entry->space.k_dim * element);
                memcpy(target + entry->layout.raw_k_bytes, source + entry->layout.raw_k_bytes,
                       rows * entry->space.v_dim * element);
        }
}

// ---- views ----

void cairn_context_view(const struct cairn_context *context, struct cairn_context_view *ret_view)
{
        *ret_view = (struct cairn_context_view){
            .context = context,
            .tail = context->tail,
            .tail_tokens = context->tail_tokens,
            .tokens = (uint64_t)context->chain->count * context->entry->space.block_tokens +
                      context->tail_tokens,
            .present = context->present,
            .demoted = context->demoted,
        };
}

uint32_t cairn_context_pieces(const struct cairn_context_view *view)
{
        uint64_t block_tokens = view->context->entry->space.block_tokens;

        return (uint32_t)((view->tokens + block_tokens - 1) / block_tokens);
}

// The piece of one head block: `raw` and `code` are of its layer, either may be NULL.
static struct cairn_landmark_piece piece_of(const struct cairn_space_entry *entry,
                                            const uint8_t *raw, const uint8_t *code, uint32_t head,
                                            uint64_t position, uint32_t n_tokens)
{
        const struct cairn_landmark_layout *layout = &entry->layout;
        struct cairn_landmark_piece piece = {.position = (uint32_t)position, .n_tokens = n_tokens};

        if (code && layout->total_bytes > 0)
                piece.code_run = code + (uint64_t)head * layout->total_bytes;
        if (raw) {
                piece.k_raw = raw + (uint64_t)head * layout->raw_bytes;
                if (entry->space.v_dim > 0)
                        piece.v_raw = (const uint8_t *)piece.k_raw + layout->raw_k_bytes;
        }
        return piece;
}

uint32_t cairn_context_fill(const struct cairn_context_view *view, uint32_t layer, uint32_t head,
                            struct cairn_landmark_piece *pieces)
{
        const struct cairn_context *context = view->context;
        const struct cairn_space_entry *entry = context->entry;
        uint32_t block_tokens = entry->space.block_tokens;
        uint64_t position = 0;
        uint32_t count = 0;

        for (uint32_t i = 0; i < context->chain->count; i++, position += block_tokens) {
                const struct cairn_block *block = context->chain->blocks[i];
                const uint8_t *raw =
                    context->chain->parts & CAIRN_PART_RAW ? cairn_block_raw(block, layer) : NULL;
                const uint8_t *code =
                    context->chain->parts & CAIRN_PART_CODE ? cairn_block_code(block, layer) : NULL;

                pieces[count++] = piece_of(entry, raw, code, head, position, block_tokens);
        }
        for (uint64_t done = 0; done < view->tail_tokens; done += block_tokens) {
                const struct cairn_tail_block *block = view->tail->blocks[done / block_tokens];
                uint64_t left = view->tail_tokens - done;
                bool full = left >= block_tokens;
                const uint8_t *raw = block->raw + layer * entry->shape.raw_layer_bytes;
                const uint8_t *code = full && block->code
                                          ? block->code + layer * entry->shape.code_layer_bytes
                                          : NULL;

                pieces[count++] = piece_of(entry, raw, code, head, position + done,
                                           full ? block_tokens : (uint32_t)left);
        }
        return count;
}
