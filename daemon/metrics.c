// Metrics over HTTP by libmicrohttpd, driven by the loop: no thread of its own.
#include "daemon/metrics.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/address.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/stats.h"
#include "proto/status.h"

enum {
        CONNECTIONS_MAX = 16,
        CONNECTION_BYTES_MAX = 32 * 1024,
        TIMEOUT_S = 10,
        BACKLOG = 16,
};

struct cairn_metrics {
        struct cairn_server *server;
        struct MHD_Daemon *http;
        uv_poll_t poll;
        uv_timer_t timer;
        const char *path; // of a Unix socket, or NULL
        struct stat path_info;
};

static int listen_tcp(const char *text, const struct cairn_address *address, int *ret_fd)
{
        int one = 1;
        int fd;

        if (!address->loopback)
                cairn_log(CAIRN_LOG_WARNING, "use 127.0.0.1 or a Unix socket unless that is wanted",
                          "metrics on %s are readable from other machines", text);
        fd = socket(address->tcp.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
            bind(fd, &address->tcp.any, address->tcp_bytes) != 0 || listen(fd, BACKLOG) != 0) {
                int error = errno;

                cairn_log(CAIRN_LOG_ERROR,
                          error == EAFNOSUPPORT || error == EPERM
                              ? "allow it in the unit (metrics-tcp.conf), or use a Unix socket"
                              : "choose another port, or stop who has it",
                          "cannot serve metrics on %s: %s", text, strerror(error));
                if (fd >= 0)
                        (void)close(fd); // nothing was written
                return error == EADDRINUSE ? CAIRN_EBUSY : CAIRN_EIO;
        }
        *ret_fd = fd;
        return CAIRN_OK;
}

// ---- the text ----

struct page {
        FILE *to;
        const char *last_name;
};

static void on_sample(void *arg, const struct cairn_sample *sample)
{
        struct page *page = arg;

        if (!page->last_name || strcmp(page->last_name, sample->name) != 0)
                (void)fprintf(page->to, "# HELP %s %s\n# TYPE %s %s\n", sample->name, sample->help,
                              sample->name, sample->type);
        page->last_name = sample->name; // a constant; names come in runs
        (void)fprintf(page->to, "%s%s%s%s%s %.17g\n", sample->name, sample->suffix,
                      sample->labels[0] ? "{" : "", sample->labels, sample->labels[0] ? "}" : "",
                      sample->value);
}

// malloc'ed; NULL: no memory.
static char *make_page(const struct cairn_server *server, size_t *ret_size)
{
        char *text = NULL;
        struct page page = {.to = open_memstream(&text, ret_size)};
        bool failed;

        if (!page.to)
                return NULL;
        cairn_stats_visit(server, true, on_sample, &page);
        failed = ferror(page.to) != 0;
        if (fclose(page.to) != 0 || failed) {
                free(text);
                return NULL;
        }
        return text;
}

// ---- HTTP ----

static enum MHD_Result reply_text(struct MHD_Connection *connection, unsigned status,
                                  const char *text)
{
        struct MHD_Response *response =
            MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                            MHD_RESPMEM_PERSISTENT);
        enum MHD_Result result;

        if (!response)
                return MHD_NO;
        (void)MHD_add_response_header(response, "Content-Type", "text/plain; charset=utf-8");
        result = MHD_queue_response(connection, status, response);
        MHD_destroy_response(response);
        return result;
}

static enum MHD_Result reply_metrics(struct MHD_Connection *connection,
                                     const struct cairn_server *server)
{
        struct MHD_Response *response;
        enum MHD_Result result;
        size_t size;
        char *page = server->store ? make_page(server, &size) : NULL;

        if (!page)
                return reply_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "stopping\n");
        response = MHD_create_response_from_buffer(size, page, MHD_RESPMEM_MUST_FREE);
        if (!response) {
                free(page);
                return MHD_NO;
        }
        (void)MHD_add_response_header(response, "Content-Type",
                                      "text/plain; version=0.0.4; charset=utf-8");
        result = MHD_queue_response(connection, MHD_HTTP_OK, response);
        MHD_destroy_response(response);
        return result;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
        const struct cairn_metrics *metrics = arg;
        const struct cairn_server *server = metrics->server;

        (void)version;
        (void)upload;
        (void)state;
        if (*upload_size > 0) {
                *upload_size = 0; // nobody sends a body here: dropped
                return MHD_YES;
        }
        if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
                return reply_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET only\n");
        if (strcmp(url, "/metrics") == 0)
                return reply_metrics(connection, server);
        if (strcmp(url, "/live") == 0)
                return reply_text(connection, MHD_HTTP_OK, "live\n");
        if (strcmp(url, "/ready") == 0)
                return server->state == CAIRN_SERVER_SERVING
                           ? reply_text(connection, MHD_HTTP_OK, "ready\n")
                           : reply_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "not ready\n");
        return reply_text(connection, MHD_HTTP_NOT_FOUND, "/metrics, /ready or /live\n");
}

// ---- on the loop ----

static void turn(struct cairn_metrics *metrics);

static void on_poll(uv_poll_t *poll, int status, int events)
{
        (void)status; // the library looks itself
        (void)events;
        turn(poll->data);
}

static void on_timer(uv_timer_t *timer)
{
        turn(timer->data);
}

// Runs what is due, and comes back when the next connection times out.
static void turn(struct cairn_metrics *metrics)
{
        MHD_UNSIGNED_LONG_LONG wait_ms;

        (void)MHD_run(metrics->http); // a daemon that is polled from outside: cannot fail
        if (MHD_get_timeout(metrics->http, &wait_ms) == MHD_YES)
                (void)uv_timer_start(&metrics->timer, on_timer, wait_ms + 1, 0);
        else
                (void)uv_timer_stop(&metrics->timer);
}

static int start(struct cairn_metrics *metrics, int fd)
{
        const union MHD_DaemonInfo *info;
        uv_loop_t *loop = &metrics->server->loop;

        metrics->http =
            MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, metrics,
                             MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                             (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                             (size_t)CONNECTION_BYTES_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
                             (unsigned)TIMEOUT_S, MHD_OPTION_END);
        if (!metrics->http) {
                (void)close(fd); // nothing was written
                return CAIRN_ENOMEM;
        }
        info = MHD_get_daemon_info(metrics->http, MHD_DAEMON_INFO_EPOLL_FD);
        if (!info || uv_poll_init(loop, &metrics->poll, info->epoll_fd) != 0)
                return CAIRN_EIO;
        metrics->poll.data = metrics;
        if (uv_timer_init(loop, &metrics->timer) != 0)
                return CAIRN_EIO;
        metrics->timer.data = metrics;
        return uv_poll_start(&metrics->poll, UV_READABLE, on_poll) == 0 ? CAIRN_OK : CAIRN_EIO;
}

int cairn_metrics_create(struct cairn_server *server, struct cairn_metrics **ret_metrics)
{
        const char *text = server->config->metrics_address;
        struct cairn_address address = {0};
        struct cairn_metrics *metrics;
        int status;
        int fd;

        *ret_metrics = NULL;
        if (text[0] == '\0')
                return CAIRN_OK;
        metrics = calloc(1, sizeof(*metrics));
        if (!metrics)
                return CAIRN_ENOMEM;
        metrics->server = server;
        status = cairn_address_parse(text, &address);
        metrics->path = address.path;
        if (status == CAIRN_OK)
                status = address.path ? cairn_listener_bind(address.path, &fd, &metrics->path_info)
                                      : listen_tcp(text, &address, &fd);
        if (status == CAIRN_OK)
                status = start(metrics, fd);
        if (status != CAIRN_OK) {
                free(metrics); // the process ends, and with it what libuv still holds
                return status;
        }
        cairn_log(CAIRN_LOG_INFO, NULL, "metrics on %s", text);
        *ret_metrics = metrics;
        return CAIRN_OK;
}

void cairn_metrics_stop(struct cairn_metrics *metrics)
{
        if (!metrics || !metrics->http)
                return;
        (void)uv_poll_stop(&metrics->poll);
        (void)uv_timer_stop(&metrics->timer);
        MHD_stop_daemon(metrics->http); // closes the socket too
        metrics->http = NULL;
        if (metrics->path)
                cairn_listener_unlink(metrics->path, &metrics->path_info);
}

void cairn_metrics_destroy(struct cairn_metrics *metrics)
{
        free(metrics);
}
