// The server: all that lives as long as the daemon, on one loop thread. Start, stop, and the list
// of connections. May be used by: daemon. May use: proto, policy, storage, libuv. Threads: the
// loop's.
#ifndef CAIRN_SERVER_H
#define CAIRN_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <uv.h>

#include "daemon/block_pins.h"
#include "daemon/config.h"
#include "daemon/pin_table.h"
#include "daemon/scorer.h"
#include "daemon/space_table.h"
#include "daemon/stats.h"
#include "daemon/spin.h"
#include "daemon/tuning.h"
#include "storage/store.h"

struct cairn_connection;
struct cairn_metrics;

enum cairn_server_state {
        CAIRN_SERVER_STARTING = 0,
        CAIRN_SERVER_SERVING = 1,
        CAIRN_SERVER_DRAINING = 2, // no new work; what is under way ends
        CAIRN_SERVER_WRITING = 3,  // the store writes back
        CAIRN_SERVER_STOPPED = 4,
};

struct cairn_server {
        struct cairn_config *config;
        uv_loop_t loop;
        uv_poll_t listener;
        uv_poll_t store_poll;
        uv_timer_t tick;
        uv_timer_t backoff; // accepts again when it fires
        uv_timer_t pace;    // turns of those who do not read their replies
        uv_idle_t deferral; // runs while `deferred` holds someone
        uv_signal_t signals[2];
        uv_signal_t hangup;
        uv_timer_t watchdog;
        int listen_fd;
        struct stat socket_info; // of the socket file that this daemon made
        enum cairn_server_state state;
        uint64_t incarnation; // of this process, never 0
        uint64_t started_ms;
        uint64_t stop_deadline_ms;
        uint64_t stop_limit_ms;
        uint64_t lease_last;
        uint64_t context_last;
        uint64_t check_state; // of the random choice of blocks to check
        struct cairn_store *store;
        struct cairn_scorer *scorer;
        struct cairn_metrics *metrics; // NULL: not served over HTTP
        struct cairn_space_table spaces;
        struct cairn_pin_table pins;        // of open contexts
        struct cairn_block_pins block_pins; // of workers
        struct cairn_connection *connections;
        struct cairn_connection *deferred_head;
        struct cairn_connection *deferred_tail;
        struct cairn_counters counters;
        bool verifying;  // a Verify is under way
        uint32_t audits; // Audits and Whys under way
        struct cairn_tuning tuning;
        struct cairn_spin spin;
        bool memory_paused; // connections wait for request_bytes
        uint8_t *receive_buffer;
};

// Opens store and socket, serves until a signal ends it. Returns the exit code; errors are logged.
int cairn_server_run(struct cairn_config *config);

// Stops as SIGTERM does, within limit_ms.
void cairn_server_stop(struct cairn_server *server, uint64_t limit_ms);

// The connection goes on in the next turn of the loop.
void cairn_server_defer(struct cairn_connection *connection);
// cairn_connection_pace is called for each connection a little later.
void cairn_server_pace(struct cairn_server *server);
void cairn_server_connection_opened(struct cairn_connection *connection);
void cairn_server_connection_closed(struct cairn_connection *connection);
// Bytes of requests and replies, against request_bytes. Above it, a connection that holds more than
// its even share is full: it must wait, and those who hold little go on.
void cairn_server_charge(struct cairn_server *server, size_t bytes);
void cairn_server_discharge(struct cairn_server *server, size_t bytes);
bool cairn_server_full(const struct cairn_connection *connection);

#endif
