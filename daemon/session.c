// What a connection has opened.
#include "daemon/session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/context.h"
#include "daemon/server.h"
#include "proto/status.h"

static void release_blocks(void *arg, struct cairn_block *const *blocks, size_t count)
{
        struct cairn_server *server = arg;

        cairn_store_unhold_many(server->store, blocks, count);
}

static void end_view(void *arg, const struct cairn_lease_view *view)
{
        struct cairn_server *server = arg;

        assert(server->counters.views > 0 && server->counters.view_bytes >= view->bytes);
        server->counters.views--;
        server->counters.view_bytes -= view->bytes;
        cairn_store_unpin(server->store, view->block, CAIRN_PART_RAW);
        cairn_store_unhold(server->store, view->block);
}

void cairn_session_init(struct cairn_session *session, struct cairn_server *server, uint32_t tenant)
{
        *session = (struct cairn_session){.server = server, .tenant = tenant};
        cairn_lease_table_init(&session->leases, release_blocks, end_view, server);
}

static void drop_arena(struct cairn_session *session, uint32_t slot)
{
        struct cairn_arena *arena = session->arenas[slot];

        session->arenas[slot] = NULL;
        session->server->counters.arenas--;
        session->server->counters.arena_bytes -= arena->size_bytes;
        cairn_arena_unref(arena);
}

void cairn_session_finish(struct cairn_session *session)
{
        session->server->counters.leases -= session->leases.count;
        cairn_lease_table_finish(&session->leases);
        free(session->view_segments);
        session->view_segments = NULL;
        cairn_block_pins_end_session(&session->server->block_pins, session);
        while (session->contexts)
                cairn_context_close(session, session->contexts);
        assert(session->contexts_count == 0);
        for (uint32_t i = 0; i < CAIRN_ARENAS_MAX; i++)
                if (session->arenas[i])
                        drop_arena(session, i);
}

void cairn_session_open_space(struct cairn_session *session, const struct cairn_space_entry *entry)
{
        session->spaces[entry->index / 8] |= (uint8_t)(1u << (entry->index % 8));
}

const struct cairn_space_entry *cairn_session_space(const struct cairn_session *session,
                                                    uint32_t id)
{
        const struct cairn_space_entry *entry =
            cairn_space_table_find(&session->server->spaces, id);

        if (!entry || !(session->spaces[entry->index / 8] & (1u << (entry->index % 8))))
                return NULL;
        return entry;
}

int cairn_session_add_arena(struct cairn_session *session, struct cairn_arena *arena)
{
        for (uint32_t i = 0; i < CAIRN_ARENAS_MAX; i++) {
                if (session->arenas[i])
                        continue;
                if (session->arena_id_last == UINT32_MAX)
                        return CAIRN_EBUSY; // numbers are never used again: reconnect
                arena->id = ++session->arena_id_last;
                session->arenas[i] = arena;
                session->server->counters.arenas++;
                session->server->counters.arena_bytes += arena->size_bytes;
                return CAIRN_OK;
        }
        return CAIRN_EBUSY;
}

static int arena_slot(const struct cairn_session *session, uint32_t id, uint32_t *ret_slot)
{
        for (uint32_t i = 0; i < CAIRN_ARENAS_MAX; i++) {
                if (session->arenas[i] && session->arenas[i]->id == id) {
                        *ret_slot = i;
                        return CAIRN_OK;
                }
        }
        return CAIRN_ESTALE;
}

struct cairn_arena *cairn_session_arena(const struct cairn_session *session, uint32_t id)
{
        uint32_t slot;

        return arena_slot(session, id, &slot) == CAIRN_OK ? session->arenas[slot] : NULL;
}

int cairn_session_release_arena(struct cairn_session *session, uint32_t id)
{
        uint32_t slot;
        int status = arena_slot(session, id, &slot);

        if (status == CAIRN_OK)
                drop_arena(session, slot);
        return status;
}

int cairn_session_show_segment(struct cairn_session *session, uint32_t place, uint64_t segment)
{
        assert(place < CAIRN_VIEW_SEGMENTS_MAX && segment != 0);
        if (!session->view_segments)
                session->view_segments =
                    calloc(CAIRN_VIEW_SEGMENTS_MAX, sizeof(session->view_segments[0]));
        if (!session->view_segments)
                return CAIRN_ENOMEM;
        if (session->view_segments[place] == segment)
                return CAIRN_EEXIST;
        session->view_segments[place] = segment;
        return CAIRN_OK;
}

void cairn_session_expire(struct cairn_session *session, uint64_t now_ms)
{
        uint32_t ended = cairn_lease_expire(&session->leases, now_ms);

        session->server->counters.leases -= ended;
        session->server->counters.leases_expired += ended;
}
