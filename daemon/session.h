// A session: what one connection has opened and holds. It ends with the connection, and everything
// in it. May be used by: daemon. May use: proto. Threads: the loop's.
#ifndef CAIRN_SESSION_H
#define CAIRN_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/arena.h"
#include "daemon/lease.h"
#include "daemon/space_table.h"
#include "proto/limits.h"

struct cairn_server;
struct cairn_context;

struct cairn_session {
        struct cairn_server *server;
        bool greeted;        // Hello was agreed
        uint32_t tenant;     // of the peer's uid
        uint64_t connection; // its number, from 1 on
        char client[64];     // what it calls itself, or ""
        uint8_t spaces[CAIRN_SPACES_MAX / 8];
        struct cairn_arena *arenas[CAIRN_ARENAS_MAX]; // NULL: free
        uint32_t arena_id_last;
        struct cairn_lease_table leases;
        struct cairn_context *contexts; // a list
        uint32_t contexts_count;
        uint64_t *view_segments; // those whose descriptor was sent, by place; NULL: none yet. Owned
};

void cairn_session_init(struct cairn_session *session, struct cairn_server *server,
                        uint32_t tenant);
void cairn_session_finish(struct cairn_session *session);

void cairn_session_open_space(struct cairn_session *session, const struct cairn_space_entry *entry);
// The space, if this session has opened it; else NULL.
const struct cairn_space_entry *cairn_session_space(const struct cairn_session *session,
                                                    uint32_t id);

// Takes the arena over and numbers it. CAIRN_EBUSY: CAIRN_ARENAS_MAX reached.
int cairn_session_add_arena(struct cairn_session *session, struct cairn_arena *arena);
struct cairn_arena *cairn_session_arena(const struct cairn_session *session, uint32_t id);
// CAIRN_ESTALE: none of this session. Requests that use it keep it mapped until they end.
int cairn_session_release_arena(struct cairn_session *session, uint32_t id);

// Whether the peer has the segment at this place already; if not, from now on it has.
// CAIRN_EEXIST, CAIRN_OK or CAIRN_ENOMEM.
int cairn_session_show_segment(struct cairn_session *session, uint32_t place, uint64_t segment);

// Ends leases past their deadline.
void cairn_session_expire(struct cairn_session *session, uint64_t now_ms);

#endif
