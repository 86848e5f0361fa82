// Hello, Ping, arenas, spaces.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/status.h"

void cairn_serve_hello(struct cairn_request *request)
{
        const Cairn__HelloRequest *hello = request->message;
        struct cairn_server *server = request->server;
        Cairn__HelloReply reply = CAIRN__HELLO_REPLY__INIT;

        if (hello->version_min > CAIRN_PROTOCOL_VERSION ||
            hello->version_max < CAIRN_PROTOCOL_VERSION) {
                cairn_connection_end(request->connection);
                cairn_request_fail(
                    request, CAIRN_EVERSION,
                    "the client speaks versions %u to %u, this daemon %d; update the "
                    "older side",
                    hello->version_min, hello->version_max, CAIRN_PROTOCOL_VERSION);
                return;
        }
        request->session->greeted = true;
        (void)snprintf(request->session->client, sizeof(request->session->client), "%s",
                       hello->client); // cut short is fine
        reply.version = CAIRN_PROTOCOL_VERSION;
        reply.incarnation = server->incarnation;
        reply.server = "cairnd " CAIRN_VERSION;
        reply.isa = (char *)cairn_isa_name(cairn_isa_chosen());
        reply.message_bytes_max = CAIRN_MESSAGE_BYTES_MAX;
        reply.payload_bytes_max = CAIRN_PAYLOAD_BYTES_MAX;
        reply.inflight_max = CAIRN_INFLIGHT_MAX;
        reply.lease_ms_max = (uint32_t)server->config->lease_max_ms;
        cairn_request_reply(request, &reply);
}

void cairn_serve_ping(struct cairn_request *request)
{
        Cairn__PingReply reply = CAIRN__PING_REPLY__INIT;

        reply.incarnation = request->server->incarnation;
        reply.state = request->server->state >= CAIRN_SERVER_DRAINING ? CAIRN_SERVER_DRAINING
                                                                      : request->server->state;
        reply.uptime_ms = cairn_clock_ms() - request->server->started_ms;
        cairn_request_reply(request, &reply);
}

void cairn_serve_register_arena(struct cairn_request *request)
{
        const Cairn__RegisterArenaRequest *message = request->message;
        Cairn__RegisterArenaReply reply = CAIRN__REGISTER_ARENA_REPLY__INIT;
        struct cairn_arena *arena = NULL;
        char text[CAIRN_TEXT_BYTES_MAX];
        bool refused;
        int descriptor = cairn_connection_take_descriptor(request->connection, &refused);
        int status;

        if (descriptor < 0 || refused) {
                if (descriptor >= 0)
                        (void)close(descriptor); // never written by us
                cairn_request_fail(request, CAIRN_EINVAL,
                                   refused
                                       ? "arena: more than one descriptor came, or one was lost "
                                         "at the daemon's limit; send exactly one memfd"
                                       : "arena: no descriptor came with the frame; send the "
                                         "memfd by SCM_RIGHTS with its first byte");
                return;
        }
        status = cairn_arena_map(descriptor, message->size_bytes, &arena, text);
        (void)close(descriptor); // the mapping stays
        if (status != CAIRN_OK) {
                cairn_request_fail(request, status, "%s", text);
                return;
        }
        status = cairn_session_add_arena(request->session, arena);
        if (status != CAIRN_OK) {
                cairn_arena_unref(arena);
                cairn_request_fail(request, status,
                                   "arena: a connection may have %d; release one first",
                                   CAIRN_ARENAS_MAX);
                return;
        }
        reply.arena = arena->id;
        cairn_request_reply(request, &reply);
}

void cairn_serve_release_arena(struct cairn_request *request)
{
        const Cairn__ReleaseArenaRequest *message = request->message;
        Cairn__ReleaseArenaReply reply = CAIRN__RELEASE_ARENA_REPLY__INIT;

        if (cairn_session_release_arena(request->session, message->arena) != CAIRN_OK)
                cairn_request_fail(request, CAIRN_ESTALE,
                                   "arena %u is none of this connection; register it first",
                                   message->arena);
        else
                cairn_request_reply(request, &reply);
}

// ---- spaces ----

struct open_space_op {
        struct cairn_request *request;
        struct cairn_space_opening opening;
        struct cairn_space_entry entry;
};

static void reply_space(struct cairn_request *request, const struct cairn_space_entry *entry);

static void on_space_open(void *arg, int status, uint32_t id)
{
        struct open_space_op *op = arg;
        const struct cairn_space_entry *entry = NULL;
        struct cairn_space_opening **link = &op->request->server->spaces.openings;

        while (*link != &op->opening)
                link = &(*link)->next;
        *link = op->opening.next;
        if (status == CAIRN_OK)
                status =
                    cairn_space_table_add(&op->request->server->spaces, &op->entry, id, &entry);
        if (status != CAIRN_OK)
                cairn_request_fail(op->request, status, NULL);
        else
                reply_space(op->request, entry);
}

static void reply_space(struct cairn_request *request, const struct cairn_space_entry *entry)
{
        Cairn__OpenSpaceReply reply = CAIRN__OPEN_SPACE_REPLY__INIT;

        if (!request->connection->closed)
                cairn_session_open_space(request->session, entry);
        reply.space = entry->id;
        reply.fingerprint.data = (uint8_t *)entry->fingerprint.bytes;
        reply.fingerprint.len = sizeof(entry->fingerprint.bytes);
        reply.block_bytes = entry->block_bytes;
        reply.stored_bytes = entry->block_bytes + entry->code_bytes;
        cairn_request_reply(request, &reply);
}

// An operator may look after any tenant's space; whether a number is one, others are not told.
static void open_by_number(struct cairn_request *request, uint32_t id)
{
        const struct cairn_space_entry *entry;

        if (!cairn_request_from_operator(request)) {
                cairn_request_fail(
                    request, CAIRN_EPERM,
                    "space: opening one by its number is for operators; describe it");
                return;
        }
        entry = cairn_space_table_find(&request->server->spaces, id);
        if (entry)
                reply_space(request, entry);
        else
                cairn_request_fail(request, CAIRN_ENOENT, "space %u is not there; list them", id);
}

// A space that is not there yet counts against its tenant's.
static void open_described(struct open_space_op *op)
{
        struct cairn_request *request = op->request;
        struct cairn_space_table *table = &request->server->spaces;
        const struct cairn_space_entry *old =
            cairn_space_table_find_old(table, &op->entry.fingerprint, op->entry.tenant);
        uint8_t *description;
        size_t size;

        if (old) {
                reply_space(request, old);
                return;
        }
        if (!cairn_request_from_operator(request) &&
            !cairn_space_table_has(table, &op->entry.stored) &&
            cairn_space_table_count(table, op->entry.tenant) >= CAIRN_SPACES_TENANT_MAX) {
                cairn_request_fail(request, CAIRN_EBUSY,
                                   "space: this tenant has %d, the most that one may have; use "
                                   "those, or ask the operator",
                                   CAIRN_SPACES_TENANT_MAX);
                return;
        }
        if (cairn_space_describe(&op->entry, &description, &size) != CAIRN_OK) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        op->opening = (struct cairn_space_opening){table->openings, op->entry.tenant};
        table->openings = &op->opening;
        cairn_store_space_open(request->server->store, &op->entry.stored, &op->entry.shape,
                               description, size, on_space_open, op);
        free(description); // the store has copied it
}

void cairn_serve_open_space(struct cairn_request *request)
{
        const Cairn__OpenSpaceRequest *message = request->message;
        struct open_space_op *op = cairn_request_op(request, sizeof(*op), NULL);
        char text[CAIRN_TEXT_BYTES_MAX] = "";
        struct cairn_space space;

        if (!op) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        if (message->id != 0) {
                open_by_number(request, message->id);
                return;
        }
        op->request = request;
        if (!message->space || cairn_codec_space_from(message->space, &space) != CAIRN_OK) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "space: it is missing, or a name is above %d bytes",
                                   CAIRN_NAME_BYTES_MAX);
                return;
        }
        if (cairn_space_entry_init(&space, request->session->tenant, &op->entry, text) !=
            CAIRN_OK) {
                cairn_request_fail(request, CAIRN_EINVAL, "%s", text);
                return;
        }
        if (message->fingerprint.len != 0 &&
            (message->fingerprint.len != sizeof(op->entry.fingerprint.bytes) ||
             memcmp(message->fingerprint.data, op->entry.fingerprint.bytes,
                    sizeof(op->entry.fingerprint.bytes)) != 0)) {
                cairn_request_fail(
                    request, CAIRN_EMISMATCH,
                    "space: its fingerprint is not the one that was sent; client and "
                    "daemon describe it differently");
                return;
        }
        open_described(op);
}

// The store's numbers of one space, as a message whose bytes lie in `entry`.
static void fill_info(const struct cairn_space_entry *entry,
                      const struct cairn_store_space_info *info, char *owner, Cairn__Space *space,
                      Cairn__SpaceInfo *ret_message)
{
        *ret_message = (Cairn__SpaceInfo)CAIRN__SPACE_INFO__INIT;
        cairn_codec_space_to(&entry->space, space);
        ret_message->space = space;
        ret_message->fingerprint.data = (uint8_t *)entry->fingerprint.bytes;
        ret_message->fingerprint.len = sizeof(entry->fingerprint.bytes);
        ret_message->id = entry->id;
        ret_message->blocks = info->blocks;
        ret_message->ram_bytes = info->ram_bytes;
        ret_message->nvme_bytes = info->nvme_bytes;
        ret_message->tenant = owner;
}

struct space_list {
        Cairn__SpaceInfo **pointers;
        Cairn__SpaceInfo *infos;
        Cairn__Space *spaces;
        char (*owners)[CAIRN_TENANT_NAME_BYTES];
};

static void list_end(void *arg)
{
        struct space_list *list = arg;

        free(list->pointers);
        free(list->infos);
        free(list->spaces);
        free(list->owners);
}

void cairn_serve_list_spaces(struct cairn_request *request)
{
        struct space_list *list = cairn_request_op(request, sizeof(*list), list_end);
        struct cairn_store *store = request->server->store;
        Cairn__ListSpacesReply reply = CAIRN__LIST_SPACES_REPLY__INIT;
        size_t count = cairn_store_spaces_count(store);
        bool all = cairn_request_from_operator(request);

        if (list) {
                list->pointers = calloc(count + 1, sizeof(list->pointers[0]));
                list->infos = calloc(count + 1, sizeof(list->infos[0]));
                list->spaces = calloc(count + 1, sizeof(list->spaces[0]));
                list->owners = calloc(count + 1, sizeof(list->owners[0]));
        }
        if (!list || !list->pointers || !list->infos || !list->spaces || !list->owners) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        for (size_t i = 0; i < count; i++) {
                const struct cairn_space_entry *entry;
                struct cairn_store_space_info info;
                size_t n = reply.n_spaces;

                cairn_store_space_info(store, i, &info);
                entry = cairn_space_table_find(&request->server->spaces, info.id);
                if (!entry)
                        continue; // not understood: said in the log at the start
                if (!all && !cairn_space_entry_visible(entry, request->session->tenant))
                        continue;
                if (entry->owned)
                        cairn_tenants_name(&request->server->config->tenants_named, entry->tenant,
                                           list->owners[n]);
                fill_info(entry, &info, list->owners[n], &list->spaces[n], &list->infos[n]);
                list->pointers[n] = &list->infos[n];
                reply.n_spaces++;
        }
        reply.spaces = list->pointers;
        cairn_request_reply(request, &reply);
}
