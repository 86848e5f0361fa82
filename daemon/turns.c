// Turns of connections on the loop: who defers goes on behind the others, and who does not read its
// replies at a pace. Which of them can wait: connection_input.c.
#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/server.h"

enum {
        PACE_MS = 5,
        DEFERRED_NS_MAX = 100 * 1000, // of those who can wait, before sockets are looked at
};

static void push_deferred(struct cairn_connection **head, struct cairn_connection **tail,
                          struct cairn_connection *connection)
{
        connection->next_deferred = NULL;
        if (*tail)
                (*tail)->next_deferred = connection;
        else
                *head = connection;
        *tail = connection;
}

// Each that waits at most once; who defers again waits behind the others. Those who can wait get
// what time is left of theirs, and keep their places.
static void on_deferral(uv_idle_t *idle)
{
        struct cairn_server *server = idle->data;
        struct cairn_connection *connection = server->deferred_head;
        struct cairn_connection *kept_head = NULL;
        struct cairn_connection *kept_tail = NULL;
        uint64_t spent_ns = 0; // by those who can wait

        server->deferred_head = NULL;
        server->deferred_tail = NULL;
        while (connection) {
                struct cairn_connection *next = connection->next_deferred;
                bool can_wait = cairn_connection_can_wait(connection);

                if (can_wait && spent_ns >= DEFERRED_NS_MAX) {
                        push_deferred(&kept_head, &kept_tail, connection);
                } else {
                        uint64_t begun_ns = cairn_clock_ns();

                        connection->next_deferred = NULL;
                        cairn_connection_continue(connection);
                        spent_ns += can_wait ? cairn_clock_ns() - begun_ns : 0;
                }
                connection = next;
        }
        if (kept_head) {
                kept_tail->next_deferred = server->deferred_head;
                server->deferred_head = kept_head;
                if (!server->deferred_tail)
                        server->deferred_tail = kept_tail;
        }
        if (!server->deferred_head)
                (void)uv_idle_stop(idle); // cannot fail
}

void cairn_server_defer(struct cairn_connection *connection)
{
        struct cairn_server *server = connection->server;

        if (connection->deferred)
                return;
        connection->deferred = true;
        push_deferred(&server->deferred_head, &server->deferred_tail, connection);
        (void)uv_idle_start(&server->deferral, on_deferral); // cannot fail with a callback
}

static void on_pace(uv_timer_t *timer)
{
        struct cairn_server *server = timer->data;

        for (struct cairn_connection *c = server->connections; c; c = c->next)
                cairn_connection_pace(c);
}

void cairn_server_pace(struct cairn_server *server)
{
        if (!uv_is_active((uv_handle_t *)&server->pace))
                (void)uv_timer_start(&server->pace, on_pace, PACE_MS, 0); // cannot fail
}
