// ListBlocks, ListContexts, ListLeases and ShowConfig: what operators look at, a page at a time.
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/context.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/status.h"

// `wanted` entries a page, or as many as there may be.
static size_t page_size(uint32_t wanted)
{
        return wanted == 0 ? CAIRN_LIST_DEFAULT : wanted > CAIRN_LIST_MAX ? CAIRN_LIST_MAX : wanted;
}

// ---- blocks ----

struct blocks_page {
        struct cairn_store_block_info infos[CAIRN_LIST_MAX];
        Cairn__BlockInfo messages[CAIRN_LIST_MAX];
        Cairn__BlockInfo *pointers[CAIRN_LIST_MAX];
};

static void fill_block(struct cairn_store_block_info *info, Cairn__BlockInfo *ret_message)
{
        *ret_message = (Cairn__BlockInfo)CAIRN__BLOCK_INFO__INIT;
        ret_message->space = info->space;
        ret_message->key = (ProtobufCBinaryData){CAIRN_KEY_BYTES, info->key.bytes};
        if (!cairn_key_is_zero(&info->parent))
                ret_message->parent = (ProtobufCBinaryData){CAIRN_KEY_BYTES, info->parent.bytes};
        ret_message->tenant = info->tenant;
        ret_message->ram_bytes = info->ram_bytes;
        ret_message->nvme_bytes = info->nvme_bytes;
        ret_message->holds = info->holds;
        ret_message->children = info->children;
        ret_message->unwritten = info->unwritten;
        ret_message->uses_since = info->uses_since;
        ret_message->generation = info->generation;
        ret_message->expires_ms = info->expires_ms;
}

void cairn_serve_list_blocks(struct cairn_request *request)
{
        const Cairn__ListBlocksRequest *message = request->message;
        Cairn__ListBlocksReply reply = CAIRN__LIST_BLOCKS_REPLY__INIT;
        struct cairn_store_list list = {.space = message->space,
                                        .by_tenant = message->by_tenant,
                                        .tenant = message->tenant,
                                        .tier = (enum cairn_tier)message->tier,
                                        .held = message->held,
                                        .key_bytes = (uint32_t)message->key.len};
        struct blocks_page *page;
        uint32_t cursor = (uint32_t)message->cursor;

        if (message->key.len > CAIRN_KEY_BYTES || message->cursor > UINT32_MAX) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "ListBlocks: a key has %d bytes at most, and a cursor comes "
                                   "from the page before",
                                   CAIRN_KEY_BYTES);
                return;
        }
        page = cairn_request_op(request, sizeof(*page), NULL);
        if (!page) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        if (message->key.len > 0)
                memcpy(list.key, message->key.data, message->key.len);
        reply.n_blocks = cairn_store_list_blocks(request->server->store, &list, &cursor,
                                                 page->infos, page_size(message->max));
        for (size_t i = 0; i < reply.n_blocks; i++) {
                fill_block(&page->infos[i], &page->messages[i]);
                page->pointers[i] = &page->messages[i];
        }
        reply.blocks = page->pointers;
        reply.cursor = cursor;
        cairn_request_reply(request, &reply);
}

// ---- what connections hold, in the order of their numbers ----

struct found {
        uint64_t id;
        const void *thing; // a context or a lease
        const struct cairn_connection *connection;
};

// The `max` things of the lowest numbers above the cursor: a heap whose top has the highest.
struct holdings {
        struct found found[CAIRN_LIST_MAX];
        size_t count;
        size_t max;
        uint64_t cursor;
        bool more; // some were left out
        Cairn__Holder holders[CAIRN_LIST_MAX];
        union {
                Cairn__ContextInfo contexts[CAIRN_LIST_MAX];
                Cairn__LeaseInfo leases[CAIRN_LIST_MAX];
        } messages;
        union {
                Cairn__ContextInfo *contexts[CAIRN_LIST_MAX];
                Cairn__LeaseInfo *leases[CAIRN_LIST_MAX];
        } pointers;
};

static void sift_down(struct holdings *h)
{
        size_t at = 0;

        for (;;) {
                size_t child = 2 * at + 1;
                struct found moved = h->found[at];

                if (child >= h->count)
                        return;
                if (child + 1 < h->count && h->found[child + 1].id > h->found[child].id)
                        child++;
                if (h->found[child].id <= moved.id)
                        return;
                h->found[at] = h->found[child];
                h->found[child] = moved;
                at = child;
        }
}

static void take(struct holdings *h, const struct found *found)
{
        size_t at;

        if (found->id <= h->cursor)
                return;
        if (h->count == h->max) {
                h->more = true;
                if (found->id >= h->found[0].id)
                        return;
                h->found[0] = *found;
                sift_down(h);
                return;
        }
        at = h->count++;
        for (; at > 0 && h->found[(at - 1) / 2].id < found->id; at = (at - 1) / 2)
                h->found[at] = h->found[(at - 1) / 2];
        h->found[at] = *found;
}

static int by_id(const void *a, const void *b)
{
        const struct found *one = a;
        const struct found *other = b;

        return one->id < other->id ? -1 : one->id > other->id;
}

// The peer behind a connection. `name` lives as long as the connection.
static void fill_holder(const struct cairn_connection *connection, Cairn__Holder *ret_holder)
{
        struct ucred peer;
        socklen_t size = sizeof(peer);

        *ret_holder = (Cairn__Holder)CAIRN__HOLDER__INIT;
        ret_holder->tenant = connection->session.tenant;
        ret_holder->client = (char *)connection->session.client;
        if (getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
                ret_holder->pid = (uint32_t)peer.pid;
}

// Collects what `each` names of every connection that fits. NULL: answered.
static struct holdings *collect(struct cairn_request *request, uint64_t cursor, uint32_t max,
                                const uint32_t *tenant,
                                void (*each)(struct holdings *h,
                                             const struct cairn_connection *connection))
{
        struct holdings *h = cairn_request_op(request, sizeof(*h), NULL);

        if (!h) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return NULL;
        }
        h->cursor = cursor;
        h->max = page_size(max);
        for (const struct cairn_connection *c = request->server->connections; c; c = c->next)
                if (!c->closed && (!tenant || c->session.tenant == *tenant))
                        each(h, c);
        qsort(h->found, h->count, sizeof(h->found[0]), by_id);
        for (size_t i = 0; i < h->count; i++)
                fill_holder(h->found[i].connection, &h->holders[i]);
        return h;
}

static uint64_t next_cursor(const struct holdings *h)
{
        return h->more ? h->found[h->count - 1].id : 0;
}

// ---- contexts ----

static void each_context(struct holdings *h, const struct cairn_connection *connection)
{
        for (const struct cairn_context *c = connection->session.contexts; c; c = c->next)
                take(h, &(struct found){c->id, c, connection});
}

void cairn_serve_list_contexts(struct cairn_request *request)
{
        const Cairn__ListContextsRequest *message = request->message;
        Cairn__ListContextsReply reply = CAIRN__LIST_CONTEXTS_REPLY__INIT;
        struct holdings *h = collect(request, message->cursor, message->max,
                                     message->by_tenant ? &message->tenant : NULL, each_context);

        if (!h)
                return;
        for (size_t i = 0; i < h->count; i++) {
                const struct cairn_context *context = h->found[i].thing;
                Cairn__ContextInfo *info = &h->messages.contexts[i];
                struct cairn_context_view view;

                cairn_context_view(context, &view);
                *info = (Cairn__ContextInfo)CAIRN__CONTEXT_INFO__INIT;
                info->context = context->id;
                info->space = context->entry->id;
                info->holder = &h->holders[i];
                info->tokens = view.tokens;
                info->blocks = context->chain ? context->chain->count : 0;
                info->tail_tokens = view.tail_tokens;
                info->busy = context->appending || context->retaining;
                h->pointers.contexts[i] = info;
        }
        reply.contexts = h->pointers.contexts;
        reply.n_contexts = h->count;
        reply.cursor = next_cursor(h);
        cairn_request_reply(request, &reply);
}

// ---- leases ----

static void each_lease(struct holdings *h, const struct cairn_connection *connection)
{
        for (const struct cairn_lease *l = connection->session.leases.first; l; l = l->next)
                take(h, &(struct found){l->id, l, connection});
}

void cairn_serve_list_leases(struct cairn_request *request)
{
        const Cairn__ListLeasesRequest *message = request->message;
        Cairn__ListLeasesReply reply = CAIRN__LIST_LEASES_REPLY__INIT;
        struct holdings *h = collect(request, message->cursor, message->max,
                                     message->by_tenant ? &message->tenant : NULL, each_lease);
        uint64_t now_ms = cairn_clock_ms();

        if (!h)
                return;
        for (size_t i = 0; i < h->count; i++) {
                const struct cairn_lease *lease = h->found[i].thing;
                Cairn__LeaseInfo *info = &h->messages.leases[i];

                *info = (Cairn__LeaseInfo)CAIRN__LEASE_INFO__INIT;
                info->lease = lease->id;
                info->holder = &h->holders[i];
                info->blocks = (uint32_t)lease->blocks_count;
                info->left_ms = lease->deadline_ms > now_ms ? lease->deadline_ms - now_ms : 0;
                if (lease->blocks_count > 0)
                        info->first_key = (ProtobufCBinaryData){
                            CAIRN_KEY_BYTES, (uint8_t *)cairn_block_key(lease->blocks[0])->bytes};
                h->pointers.leases[i] = info;
        }
        reply.leases = h->pointers.leases;
        reply.n_leases = h->count;
        reply.cursor = next_cursor(h);
        cairn_request_reply(request, &reply);
}

// ---- the configuration ----

struct settings {
        Cairn__Setting messages[CAIRN_CONFIG_KEYS_MAX];
        Cairn__Setting *pointers[CAIRN_CONFIG_KEYS_MAX];
};

void cairn_serve_show_config(struct cairn_request *request)
{
        const struct cairn_config *config = request->server->config;
        Cairn__ShowConfigReply reply = CAIRN__SHOW_CONFIG_REPLY__INIT;
        struct settings *settings = cairn_request_op(request, sizeof(*settings), NULL);
        struct cairn_config_setting setting;

        if (!settings) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        for (size_t i = 0; cairn_config_setting(config, i, &setting); i++) {
                Cairn__Setting *to = &settings->messages[i];

                *to = (Cairn__Setting)CAIRN__SETTING__INIT;
                to->name = (char *)setting.name;
                to->value = (char *)setting.value;
                to->source = (char *)setting.source;
                to->help = (char *)setting.help;
                to->reloadable = setting.live;
                to->number = setting.number;
                settings->pointers[i] = to;
                reply.n_settings = i + 1;
        }
        reply.settings = settings->pointers;
        if (config->file)
                reply.file = (char *)config->file;
        cairn_request_reply(request, &reply);
}
