// The client's life: creation, polling, errors.
#include "client/src/client.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

uint64_t cairn_client_now_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); // cannot fail with this clock
        return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int64_t cairn_client_now_ms(void)
{
        return (int64_t)(cairn_client_now_ns() / 1000000u);
}

int cairn_client_fail(struct cairn_client *client, int status, const char *format, ...)
{
        va_list args;

        assert(status < 0);
        if (!format) {
                (void)snprintf(client->error, sizeof(client->error), "%s; %s",
                               cairn_status_text(status), cairn_status_remedy(status));
                return status;
        }
        va_start(args, format);
        (void)vsnprintf(client->error, sizeof(client->error), format, args); // cut short is fine
        va_end(args);
        return status;
}

// $CAIRN_SOCKET, $XDG_RUNTIME_DIR/cairn/cairnd.sock, /run/cairn/cairnd.sock. A path cut short would
// name another socket: refused.
static int choose_path(struct cairn_client *client, const char *wanted)
{
        const char *runtime = getenv("XDG_RUNTIME_DIR");
        char path[4096];
        size_t size;

        if (!wanted || !*wanted)
                wanted = getenv("CAIRN_SOCKET");
        if (wanted && *wanted)
                (void)snprintf(path, sizeof(path), "%s", wanted);
        else if (runtime && *runtime)
                (void)snprintf(path, sizeof(path), "%s/cairn/cairnd.sock", runtime);
        else
                (void)snprintf(path, sizeof(path), "/run/cairn/cairnd.sock");
        size = strlen(path);
        if (size > CAIRN_SOCKET_PATH_BYTES_MAX)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "the socket path has %zu bytes, the system allows %d; "
                                         "use a shorter path: %.60s...",
                                         size, CAIRN_SOCKET_PATH_BYTES_MAX, path);
        memcpy(client->socket_path, path, size + 1);
        return CAIRN_OK;
}

static int open_descriptors(struct cairn_client *client)
{
        struct epoll_event event = {.events = EPOLLIN};

        client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        client->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (client->epoll_fd < 0 || client->timer_fd < 0 ||
            epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, client->timer_fd, &event) != 0)
                return cairn_client_fail(client, cairn_status_from_errno(errno),
                                         "no descriptors left for a client (%s); close some, or "
                                         "raise the limit",
                                         strerror(errno));
        return CAIRN_OK;
}

static void set_options(struct cairn_client *client, const struct cairn_client_options *options)
{
        static const struct cairn_client_options none;
        const struct cairn_client_options *o = options ? options : &none;

        client->timeout_ms = o->timeout_ms ? o->timeout_ms : CAIRN_CLIENT_TIMEOUT_MS_DEFAULT;
        client->connect_wait_ms = o->connect_wait_ms;
        client->reconnect_wait_ms =
            o->reconnect_wait_ms ? o->reconnect_wait_ms : CAIRN_CLIENT_RECONNECT_MS_DEFAULT;
        cairn_client_spin_init(client, o->spin_us);
        (void)snprintf(client->name, sizeof(client->name), "%s",
                       o->name ? o->name : program_invocation_short_name);
}

int cairn_client_create(const struct cairn_client_options *options,
                        struct cairn_client **ret_client, char *ret_text, size_t text_bytes)
{
        struct cairn_client *client = calloc(1, sizeof(*client));
        int status = CAIRN_ENOMEM;

        if (!client)
                return CAIRN_ENOMEM;
        client->socket_fd = client->epoll_fd = client->timer_fd = -1;
        cairn_frame_parser_init(&client->parser, true);
        set_options(client, options);
        (void)cairn_client_fail(client, CAIRN_ENOMEM,
                                NULL); // the text, until something else is said
        client->receive_buffer = malloc(CAIRN_CLIENT_RECEIVE_BYTES);
        client->slots = calloc(CAIRN_CLIENT_SLOTS, sizeof(*client->slots));
        if (!client->receive_buffer || !client->slots)
                goto fail;
        status = choose_path(client, options ? options->socket_path : NULL);
        if (status != CAIRN_OK)
                goto fail;
        status = open_descriptors(client);
        if (status != CAIRN_OK)
                goto fail;
        status = cairn_client_connect(client, client->connect_wait_ms);
        if (status != CAIRN_OK)
                goto fail;
        client->error[0] = '\0';
        *ret_client = client;
        return CAIRN_OK;
fail:
        if (ret_text && text_bytes > 0)
                (void)snprintf(ret_text, text_bytes, "%s", client->error);
        cairn_client_destroy(client);
        return status;
}

int cairn_client_trace(struct cairn_client *client, const char *traceparent)
{
        struct cairn_trace trace;

        client->traced = false;
        if (!traceparent)
                return CAIRN_OK;
        if (cairn_trace_parse(traceparent, &trace) != CAIRN_OK)
                return cairn_client_fail(client, CAIRN_EINVAL,
                                         "%.80s is no traceparent; it looks like "
                                         "00-<32 hex digits>-<16 hex digits>-01",
                                         traceparent);
        client->trace = trace;
        client->traced = true;
        return CAIRN_OK;
}

void cairn_client_destroy(struct cairn_client *client)
{
        if (!client)
                return;
        assert(!client->in_callback);
        if (client->slots)
                cairn_client_disconnect(client, CAIRN_ECANCELLED, NULL);
        cairn_client_arenas_finish(client);
        cairn_frame_parser_finish(&client->parser);
        if (client->epoll_fd >= 0)
                (void)close(client->epoll_fd);
        if (client->timer_fd >= 0)
                (void)close(client->timer_fd);
        free(client->spaces);
        free(client->slots);
        free(client->receive_buffer);
        free(client);
}

void cairn_client_hang_up(struct cairn_client *client)
{
        assert(!client->in_callback);
        cairn_client_disconnect(client, CAIRN_ECANCELLED, "this client hung up");
}

const char *cairn_client_error(const struct cairn_client *client)
{
        return client->error;
}

const char *cairn_client_socket(const struct cairn_client *client)
{
        return client->socket_path;
}

void cairn_client_server(const struct cairn_client *client, struct cairn_server_info *ret_info)
{
        *ret_info = client->server;
}

int cairn_client_fd(const struct cairn_client *client)
{
        return client->epoll_fd;
}

size_t cairn_client_pending(const struct cairn_client *client)
{
        return client->slots_used;
}

// Milliseconds from now to the next deadline, no more than timeout_ms (-1: no bound of its own).
static int64_t bounded_wait(const struct cairn_client *client, int64_t timeout_ms)
{
        int64_t next = cairn_client_next_deadline_ms(client);
        int64_t wait;

        if (next < 0)
                return timeout_ms;
        wait = next - cairn_client_now_ms();
        if (wait < 0)
                wait = 0;
        return timeout_ms >= 0 && timeout_ms < wait ? timeout_ms : wait;
}

void cairn_client_turn(struct cairn_client *client, int64_t timeout_ms)
{
        bool received = false;

        if (client->socket_fd >= 0 && client->unsent_first)
                cairn_client_flush(client);
        if (client->socket_fd >= 0) {
                int64_t wait = bounded_wait(client, timeout_ms);

                if (wait != 0)
                        received = cairn_client_wait(client, wait);
        }
        if (client->socket_fd >= 0 && client->unsent_first)
                cairn_client_flush(client);
        if (client->socket_fd >= 0 && !received)
                (void)cairn_client_receive(client); // what there is
        cairn_client_segments_sweep(client);
        if (client->slots_used > 0)
                cairn_client_expire(client, cairn_client_now_ms());
}

void cairn_client_run_one(struct cairn_client *client)
{
        struct cairn_client_request *request = client->ended_first;
        struct cairn_call *call = request->call;
        int status = request->status;

        assert(!client->in_callback);
        client->ended_first = request->next_ended;
        if (!client->ended_first)
                client->ended_last = NULL;
        if (status < 0)
                (void)cairn_client_fail(client, status, "%s", request->text);
        cairn_client_release_slot(client, request);
        if (!call->on_done)
                return;
        call->id = 0;
        client->in_callback = true;
        call->on_done(call, status);
        client->in_callback = false;
}

// A timer that fired has done its work by waking the poller; it is armed anew for what is left.
static void rearm_timer(struct cairn_client *client)
{
        int64_t next = cairn_client_next_deadline_ms(client);
        uint64_t expirations;

        if (client->timer_at_ms == 0 || client->timer_at_ms > cairn_client_now_ms())
                return;
        (void)!read(client->timer_fd, &expirations, sizeof(expirations)); // empty is fine
        client->timer_at_ms = 0;
        if (next > 0)
                cairn_client_arm_timer(client, next);
}

int cairn_client_poll(struct cairn_client *client, int timeout_ms)
{
        int count;

        if (client->in_callback)
                return cairn_client_fail(client, CAIRN_EBUSY,
                                         "cairn_client_poll inside on_done; return from it first");
        if (client->ended_first || client->slots_used == 0)
                timeout_ms = 0; // something is done already, or nothing can be
        cairn_client_turn(client, timeout_ms);
        for (count = 0; client->ended_first; count++)
                cairn_client_run_one(client);
        rearm_timer(client);
        return count;
}
