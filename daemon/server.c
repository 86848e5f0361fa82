// The daemon's life: start, loop, stop.
#include "daemon/server.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/operate.h"
#include "daemon/quota.h"
#include "daemon/sandbox.h"
#include "daemon/stop_guard.h"
#include "policy/admission/admission.h"
#include "policy/eviction/eviction.h"
#include "policy/landmark/landmark.h"
#include "proto/status.h"

enum {
        TICK_MS = 100,
        STOP_GRACE_MS = 1000, // beyond stop_timeout, before the process gives up
};

// ---- connections ----

static void on_tick(uv_timer_t *timer);

void cairn_server_connection_opened(struct cairn_connection *connection)
{
        struct cairn_server *server = connection->server;

        connection->next = server->connections;
        if (server->connections)
                server->connections->previous = connection;
        server->connections = connection;
        server->counters.connections++;
        server->counters.connections_total++;
        if (!uv_is_active((uv_handle_t *)&server->tick))
                (void)uv_timer_start(&server->tick, on_tick, TICK_MS, TICK_MS);
}

// Those who wait for memory look again.
static void wake_paused(struct cairn_server *server)
{
        server->memory_paused = false;
        for (struct cairn_connection *c = server->connections; c; c = c->next)
                if (!c->closed)
                        cairn_server_defer(c);
}

void cairn_server_connection_closed(struct cairn_connection *connection)
{
        struct cairn_server *server = connection->server;

        if (connection->next)
                connection->next->previous = connection->previous;
        if (connection->previous)
                connection->previous->next = connection->next;
        else
                server->connections = connection->next;
        server->counters.connections--;
        if (server->memory_paused)
                wake_paused(server);
}

void cairn_server_charge(struct cairn_server *server, size_t bytes)
{
        server->counters.requests_bytes += bytes;
}

void cairn_server_discharge(struct cairn_server *server, size_t bytes)
{
        assert(server->counters.requests_bytes >= bytes);
        server->counters.requests_bytes -= bytes;
        if (server->memory_paused &&
            server->counters.requests_bytes < server->config->request_bytes)
                wake_paused(server);
}

bool cairn_server_full(const struct cairn_connection *connection)
{
        const struct cairn_server *server = connection->server;
        uint64_t own =
            connection->inflight_bytes + connection->output_bytes + connection->reserved_bytes;

        return server->counters.requests_bytes >= server->config->request_bytes &&
               own > server->config->request_bytes / (server->counters.connections + 1);
}

// ---- stopping: drain, write back, close ----

static void on_drained(void *arg, int status)
{
        struct cairn_server *server = arg;

        if (status != CAIRN_OK)
                cairn_log(CAIRN_LOG_WARNING, "raise stop_timeout if blocks in RAM must survive",
                          "stopped before all blocks were on disk: %s", cairn_status_text(status));
        // The store cannot be closed from inside its own callback: the tick does it.
        server->state = CAIRN_SERVER_STOPPED;
        (void)uv_timer_start(&server->tick, on_tick, 0, TICK_MS);
}

static void begin_writing(struct cairn_server *server)
{
        server->state = CAIRN_SERVER_WRITING;
        for (struct cairn_connection *c = server->connections; c;) {
                struct cairn_connection *next = c->next;

                cairn_connection_close(c);
                c = next;
        }
        (void)sd_notify(0, "STATUS=Writing back");
        cairn_store_drain(server->store, server->stop_deadline_ms, on_drained, server);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
        (void)arg;
        if (!uv_is_closing(handle))
                uv_close(handle, NULL);
}

static void on_scorer_closed(void *arg)
{
        struct cairn_server *server = arg;

        server->scorer = NULL;
        uv_walk(&server->loop, close_handle, NULL);
}

// Waits for reads and writes under way, which a disk that stands still may never end.
static void close_store(struct cairn_server *server)
{
        uint64_t now_ms = cairn_clock_ms();
        uint64_t left_ms =
            server->stop_deadline_ms > now_ms ? server->stop_deadline_ms - now_ms : 0;
        struct cairn_stop_guard *guard = cairn_stop_guard_create(left_ms + STOP_GRACE_MS);

        cairn_store_close(server->store);
        server->store = NULL;
        cairn_stop_guard_destroy(guard);
}

// Once nothing is under way any more. Called again by the tick until then.
static void finish_stop(struct cairn_server *server)
{
        if (server->state != CAIRN_SERVER_STOPPED || server->counters.requests_inflight > 0 ||
            server->counters.contexts_unfinished > 0 || cairn_scorer_pending(server->scorer) > 0 ||
            !server->store)
                return;
        cairn_metrics_stop(server->metrics);
        (void)uv_poll_stop(&server->store_poll);
        uv_close((uv_handle_t *)&server->store_poll, NULL);
        cairn_block_pins_finish(&server->block_pins);
        close_store(server);
        cairn_scorer_destroy(server->scorer, on_scorer_closed, server);
}

static void stop_step(struct cairn_server *server, uint64_t now_ms)
{
        uint64_t half_ms = server->stop_limit_ms / 2;

        if (server->state == CAIRN_SERVER_DRAINING &&
            (server->counters.requests_inflight == 0 ||
             now_ms + half_ms >= server->stop_deadline_ms))
                begin_writing(server);
        finish_stop(server);
        if (now_ms >= server->stop_deadline_ms + STOP_GRACE_MS) {
                cairn_log(CAIRN_LOG_ERROR, "look at the disk; what was only in RAM is lost",
                          "gave up waiting: %llu requests under way",
                          (unsigned long long)server->counters.requests_inflight);
                _exit(1);
        }
}

void cairn_server_stop(struct cairn_server *server, uint64_t limit_ms)
{
        if (server->state >= CAIRN_SERVER_DRAINING)
                return;
        server->state = CAIRN_SERVER_DRAINING;
        server->stop_limit_ms = limit_ms;
        server->stop_deadline_ms = cairn_clock_ms() + limit_ms;
        cairn_log(CAIRN_LOG_INFO, NULL, "stopping within %llu ms", (unsigned long long)limit_ms);
        (void)sd_notify(0, "STOPPING=1\nSTATUS=Draining");
        (void)uv_timer_stop(&server->backoff);
        uv_close((uv_handle_t *)&server->listener, NULL);
        cairn_listener_close(server);
        (void)uv_timer_start(&server->tick, on_tick, 0, TICK_MS);
}

static void on_signal(uv_signal_t *handle, int number)
{
        struct cairn_server *server = handle->data;

        if (server->state >= CAIRN_SERVER_DRAINING) {
                cairn_log(CAIRN_LOG_WARNING, NULL, "signal %d again: exiting at once", number);
                _exit(1);
        }
        cairn_server_stop(server, server->config->stop_timeout_ms);
}

static void on_tick(uv_timer_t *timer)
{
        struct cairn_server *server = timer->data;
        uint64_t now_ms = cairn_clock_ms();

        for (struct cairn_connection *c = server->connections; c;) {
                struct cairn_connection *next = c->next;

                cairn_connection_tick(c, now_ms);
                c = next;
        }
        cairn_block_pins_expire(&server->block_pins, now_ms);
        if (server->state >= CAIRN_SERVER_DRAINING)
                stop_step(server, now_ms);
        else if (!server->connections && server->block_pins.deadline_min_ms == UINT64_MAX)
                (void)uv_timer_stop(&server->tick);
}

static void release_pinned(void *arg, struct cairn_block *block)
{
        struct cairn_server *server = arg;

        server->counters.block_pins--;
        cairn_store_unhold(server->store, block);
}

// ---- starting ----

static uint64_t store_clock(void *clock)
{
        (void)clock;
        return cairn_clock_ms();
}

static uint64_t store_wall_clock(void *arg)
{
        (void)arg;
        return cairn_clock_wall_ms();
}

static void on_store_warning(void *arg, const char *text)
{
        (void)arg;
        cairn_log(CAIRN_LOG_WARNING, NULL, "%s", text);
}

static void on_store_ready(uv_poll_t *poll, int status, int events)
{
        struct cairn_server *server = poll->data;

        (void)status; // the store looks itself
        (void)events;
        cairn_spin_note(&server->spin);
        cairn_store_poll(server->store);
}

static int open_store(struct cairn_server *server)
{
        const struct cairn_config *config = server->config;
        struct cairn_store_options options = {
            .directories_count = (uint32_t)config->data_dirs_count,
            .ram_bytes = config->ram_bytes,
            .nvme_bytes = config->nvme_bytes,
            .slab_bytes = config->slab_bytes,
            .queue_depth = (uint32_t)config->queue_depth,
            .commit_delay_us = (uint32_t)config->commit_delay_us,
            .force_sync_device = config->force_sync_device != 0,
            .force_buffered = config->force_buffered != 0,
            .views = config->views != 0,
            .eviction = cairn_eviction_by_name(cairn_eviction_name(config->eviction)),
            .admission = config->admission == CAIRN_CONFIG_SECOND_USE ? &cairn_admission_second_use
                         : config->admission == CAIRN_CONFIG_TINYLFU  ? &cairn_admission_tinylfu
                                                                      : NULL,
            .executor = cairn_scorer_executor(server->scorer),
            .now_ms = store_clock,
            .wall_ms = store_wall_clock,
            .audit_bytes = config->audit_bytes,
            .on_warning = on_store_warning,
        };
        char text[CAIRN_TEXT_BYTES_MAX] = "";
        uint32_t unknown;
        int status;

        for (size_t i = 0; i < config->data_dirs_count; i++)
                options.directories[i] = config->data_dirs[i];
        status = cairn_store_open(&options, &server->store, text);
        if (status != CAIRN_OK) {
                cairn_log(CAIRN_LOG_ERROR, cairn_status_remedy(status), "cannot open the store: %s",
                          text[0] ? text : cairn_status_text(status));
                return status;
        }
        cairn_quotas_apply(server);
        unknown = cairn_space_table_load(&server->spaces, server->store);
        if (unknown > 0)
                cairn_log(CAIRN_LOG_WARNING,
                          "their blocks stay on disk; use the version that made "
                          "them, or open the spaces anew",
                          "%u stored spaces are not understood", unknown);
        return CAIRN_OK;
}

// As many descriptors as the hard limit allows.
static void raise_descriptor_limit(void)
{
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                (void)setrlimit(RLIMIT_NOFILE, &limit); // the soft limit serves too
        }
}

static uint64_t new_incarnation(void)
{
        uint64_t number = 0;

        if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
                number = cairn_clock_ns() ^ ((uint64_t)getpid() << 32);
        return number | 1; // never 0
}

static int init_handles(struct cairn_server *server)
{
        uv_loop_t *loop = &server->loop;

        if (uv_loop_init(loop) != 0)
                return CAIRN_ENOMEM;
        if (uv_timer_init(loop, &server->tick) != 0 || uv_timer_init(loop, &server->backoff) != 0 ||
            uv_timer_init(loop, &server->pace) != 0 || uv_idle_init(loop, &server->deferral) != 0 ||
            uv_signal_init(loop, &server->signals[0]) != 0 ||
            uv_signal_init(loop, &server->hangup) != 0 ||
            uv_timer_init(loop, &server->watchdog) != 0 ||
            uv_signal_init(loop, &server->signals[1]) != 0)
                return CAIRN_ENOMEM;
        if (cairn_spin_init(&server->spin, loop, server->config->spin_us) != CAIRN_OK)
                return CAIRN_ENOMEM;
        server->tick.data = server;
        server->backoff.data = server;
        server->pace.data = server;
        server->deferral.data = server;
        server->signals[0].data = server;
        server->signals[1].data = server;
        return CAIRN_OK;
}

static int start(struct cairn_server *server)
{
        int status = init_handles(server);

        if (status != CAIRN_OK)
                return status;
        status = cairn_scorer_create(&server->loop, (uint32_t)server->config->scorers,
                                     server->config->scratch_bytes,
                                     &server->config->scorer_cpu_list, &server->scorer);
        if (status == CAIRN_EINVAL) {
                cairn_log(CAIRN_LOG_ERROR, "name processors that this process may run on",
                          "cannot start scorers on scorer_cpus = %s", server->config->scorer_cpus);
                return status;
        }
        if (status != CAIRN_OK) {
                cairn_log(CAIRN_LOG_ERROR, "lower scorers, or raise the limit of tasks",
                          "cannot start scorers");
                return status;
        }
        status = open_store(server);
        if (status == CAIRN_OK)
                status = cairn_listener_open(server);
        if (status != CAIRN_OK)
                return status;
        if (uv_poll_init(&server->loop, &server->store_poll, cairn_store_fd(server->store)) != 0 ||
            uv_poll_init(&server->loop, &server->listener, server->listen_fd) != 0)
                return CAIRN_EIO;
        server->store_poll.data = server;
        server->listener.data = server;
        if (uv_poll_start(&server->store_poll, UV_READABLE, on_store_ready) != 0 ||
            uv_signal_start(&server->signals[0], on_signal, SIGTERM) != 0 ||
            uv_signal_start(&server->signals[1], on_signal, SIGINT) != 0)
                return CAIRN_EIO;
        status = cairn_operate_start(server);
        if (status == CAIRN_OK)
                status = cairn_metrics_create(server, &server->metrics);
        return status == CAIRN_OK ? cairn_listener_start(server) : status;
}

static void announce(struct cairn_server *server)
{
        struct cairn_store_stats stats;

        server->state = CAIRN_SERVER_SERVING;
        cairn_store_stats(server->store, &stats);
        cairn_log(CAIRN_LOG_INFO, NULL,
                  "%llu blocks of %u spaces found; RAM %llu MiB, NVMe %llu MiB; %s%s; kernels %s; "
                  "%llu scorers",
                  (unsigned long long)stats.blocks, server->spaces.count,
                  (unsigned long long)(stats.ram_limit_bytes >> 20),
                  (unsigned long long)(stats.nvme_limit_bytes >> 20),
                  stats.device_uring ? "io_uring" : "pread/pwrite",
                  stats.device_direct ? ", O_DIRECT" : "", cairn_isa_name(cairn_isa_chosen()),
                  (unsigned long long)server->config->scorers);
        cairn_log(CAIRN_LOG_INFO, NULL, "ready on %s", server->config->socket);
        (void)sd_notifyf(0, "READY=1\nSTATUS=Serving on %s", server->config->socket);
}

static void log_sandbox(enum cairn_sandbox_state files, enum cairn_sandbox_state calls)
{
        static const char *const words[] = {"on", "off", "not to be had"};

        cairn_log(CAIRN_LOG_DEBUG, NULL, "sandbox: files %s, system calls %s", words[files],
                  words[calls]);
}

// A start that failed, with what libuv still holds: it goes with the process, and is no leak.
static struct cairn_server *volatile unfinished;

int cairn_server_run(struct cairn_config *config)
{
        struct cairn_server *server = calloc(1, sizeof(*server));
        enum cairn_sandbox_state files;
        int status;

        if (!server)
                return 1;
        server->config = config;
        server->listen_fd = -1;
        server->started_ms = cairn_clock_ms();
        server->incarnation = new_incarnation();
        // A quarter of the RAM tier stays for what flows through.
        cairn_pin_table_init(&server->pins, config->ram_bytes / 4 * 3);
        cairn_block_pins_init(&server->block_pins, release_pinned, server);
        server->receive_buffer = malloc(CAIRN_RECEIVE_BYTES);
        (void)signal(SIGPIPE, SIG_IGN);
        (void)umask(0077);
        raise_descriptor_limit();
        files = cairn_sandbox_files(config);
        status = server->receive_buffer ? start(server) : CAIRN_ENOMEM;
        if (status != CAIRN_OK) {
                cairn_log(CAIRN_LOG_ERROR, NULL, "not started (%s)", cairn_status_name(status));
                cairn_listener_close(server);
                cairn_store_close(server->store);
                unfinished = server;
                return 1;
        }
        log_sandbox(files, cairn_sandbox_calls(config));
        announce(server);
        while (uv_run(&server->loop, UV_RUN_DEFAULT) != 0)
                ;
        (void)uv_loop_close(&server->loop); // every handle is closed
        cairn_metrics_destroy(server->metrics);
        cairn_space_table_finish(&server->spaces);
        cairn_pin_table_finish(&server->pins);
        free(server->receive_buffer);
        free(server);
        cairn_log(CAIRN_LOG_INFO, NULL, "stopped");
        return 0;
}
